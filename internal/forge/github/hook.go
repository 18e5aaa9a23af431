package github

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/go-github/v88/github"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/forge/wire"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Verify implements [forge.Host]. SHA-1 signatures are not looked at.
func (f *Forge) Verify(h http.Header, body, secret []byte) error {
	return wire.VerifyHex(h, "X-Hub-Signature-256", "sha256=", body, secret)
}

// Parse implements [forge.Host]. https://docs.github.com/webhooks/webhook-events-and-payloads
func (f *Forge) Parse(h http.Header, body []byte) (forge.Delivery, error) {
	d := forge.Delivery{ID: h.Get("X-Github-Delivery"), Forge: f.cfg.Name, Kind: forge.Ignored}
	event := h.Get("X-Github-Event")
	if d.ID == "" || event == "" {
		return d, &task.Error{Class: task.Invalid, Msg: "the delivery has no X-GitHub-Delivery or no X-GitHub-Event"}
	}
	var any json.RawMessage
	if err := wire.Decode(body, &any); err != nil {
		return d, err
	}
	switch event {
	case "ping", "issues", "issue_comment", "pull_request", "pull_request_review", "pull_request_review_comment", "push":
	case "check_run":
		return pressed(d, any)
	default:
		return d, nil
	}
	e, err := github.ParseWebHook(event, body)
	if err != nil {
		return d, &task.Error{Class: task.Invalid, Msg: "a " + event + " delivery of another form than expected", Err: err}
	}
	switch e := e.(type) {
	case *github.PingEvent:
		d.Kind = forge.Ping
	case *github.IssuesEvent:
		about(&d, e.Repo, e.Sender)
		issues(&d, e)
	case *github.IssueCommentEvent:
		about(&d, e.Repo, e.Sender)
		if e.GetAction() == "created" && e.Issue != nil && e.Comment != nil {
			i, c := issue(e.Issue), comment(e.Comment)
			d.Kind, d.Issue, d.Comment, d.At = forge.Commented, &i, &c, c.Created
			if i.PullRequest {
				d.Pull = &forge.Pull{Number: i.Number, State: forge.PullOpen}
			}
		}
	case *github.PullRequestEvent:
		about(&d, e.Repo, e.Sender)
		if e.GetAction() == "closed" && e.PullRequest != nil {
			d.Kind, d.Pull, d.At = forge.PullEnded, pull(e.PullRequest), e.PullRequest.GetUpdatedAt().UTC()
		}
	case *github.PullRequestReviewEvent:
		about(&d, e.Repo, e.Sender)
		if e.GetAction() == "submitted" && e.PullRequest != nil && e.Review != nil {
			d.Kind, d.Pull, d.Verdict, d.At = forge.Reviewed, pull(e.PullRequest), strings.ToLower(e.Review.GetState()), e.Review.GetSubmittedAt().UTC()
			d.Comment = &forge.Comment{ID: strconv.FormatInt(e.Review.GetID(), 10), Author: user(e.Review.User), Body: e.Review.GetBody(), Created: d.At, Updated: d.At}
		}
	case *github.PullRequestReviewCommentEvent:
		about(&d, e.Repo, e.Sender)
		if e.GetAction() == "created" && e.PullRequest != nil && e.Comment != nil {
			c := reviewComment(e.Comment)
			d.Kind, d.Pull, d.Comment, d.At = forge.ReviewCommented, pull(e.PullRequest), &c, c.Created
		}
	case *github.PushEvent:
		d.Repository, d.Path, d.Sender = strconv.FormatInt(e.GetRepo().GetID(), 10), e.GetRepo().GetFullName(), user(e.Sender)
		if branch, ok := strings.CutPrefix(e.GetRef(), "refs/heads/"); ok {
			d.Kind, d.Branch, d.Before, d.After = forge.Pushed, branch, e.GetBefore(), e.GetAfter()
		}
	}
	return d, nil
}

// pressed reads the buttons of a check run, and no more of it: what GitHub sends of check runs has
// times in more than one form.
func pressed(d forge.Delivery, body []byte) (forge.Delivery, error) {
	var e struct {
		Action          string `json:"action"`
		RequestedAction struct {
			Identifier string `json:"identifier"`
		} `json:"requested_action"`
		CheckRun struct {
			Name       string `json:"name"`
			ExternalID string `json:"external_id"`
		} `json:"check_run"`
		Repository struct {
			ID       int64  `json:"id"`
			FullName string `json:"full_name"`
		} `json:"repository"`
		Sender *github.User `json:"sender"`
	}
	if err := wire.Decode(body, &e); err != nil {
		return d, err
	}
	d.Repository, d.Path, d.Sender, d.Task = strconv.FormatInt(e.Repository.ID, 10), e.Repository.FullName, user(e.Sender), e.CheckRun.ExternalID
	switch {
	case e.CheckRun.Name != checkName:
	case e.Action == "requested_action" && e.RequestedAction.Identifier == "stop":
		d.Kind = forge.StopPressed
	case e.Action == "rerequested":
		d.Kind = forge.RetryPressed
	}
	return d, nil
}

func about(d *forge.Delivery, r *github.Repository, sender *github.User) {
	d.Repository, d.Path, d.Sender = strconv.FormatInt(r.GetID(), 10), r.GetFullName(), user(sender)
}

func issues(d *forge.Delivery, e *github.IssuesEvent) {
	if e.Issue == nil {
		return
	}
	i := issue(e.Issue)
	d.Issue, d.At = &i, i.Updated
	switch e.GetAction() {
	case "labeled":
		d.Kind, d.Labels = forge.Labeled, []string{e.GetLabel().GetName()}
	case "assigned":
		d.Kind, d.Assignees = forge.Assigned, []string{e.GetAssignee().GetLogin()}
	case "edited":
		d.Kind = forge.Edited
	}
}

func pull(p *github.PullRequest) *forge.Pull {
	x := pullRequest("", p)
	return &forge.Pull{Number: x.Number, Branch: x.Branch, Head: x.Head, State: x.State, MergedBy: x.MergedBy, MergeCommit: x.MergeCommit}
}

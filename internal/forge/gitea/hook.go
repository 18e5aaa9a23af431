package gitea

import (
	"net/http"
	"strconv"
	"strings"

	sdk "code.gitea.io/sdk/gitea"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/forge/wire"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Verify implements [forge.Host].
func (f *Forge) Verify(h http.Header, body, secret []byte) error {
	return wire.VerifyHex(h, "X-Gitea-Signature", "", body, secret)
}

// payload has the fields of all deliveries that matter.
type payload struct {
	Action      string           `json:"action"`
	Number      int64            `json:"number"`
	Issue       *sdk.Issue       `json:"issue"`
	Comment     *sdk.Comment     `json:"comment"`
	PullRequest *sdk.PullRequest `json:"pull_request"`
	IsPull      bool             `json:"is_pull"`
	Review      *struct {
		Type    string `json:"type"`
		Content string `json:"content"`
	} `json:"review"`
	Ref        string          `json:"ref"`
	Before     string          `json:"before"`
	After      string          `json:"after"`
	Repository *sdk.Repository `json:"repository"`
	Sender     *sdk.User       `json:"sender"`
}

// Parse implements [forge.Host]. https://docs.gitea.com/usage/webhooks
func (f *Forge) Parse(h http.Header, body []byte) (forge.Delivery, error) {
	d := forge.Delivery{ID: h.Get("X-Gitea-Delivery"), Forge: f.cfg.Name, Kind: forge.Ignored}
	event := h.Get("X-Gitea-Event-Type")
	if event == "" {
		event = h.Get("X-Gitea-Event")
	}
	if d.ID == "" || event == "" {
		return d, &task.Error{Class: task.Invalid, Msg: "the delivery has no X-Gitea-Delivery or no X-Gitea-Event"}
	}
	var p payload
	if err := wire.Decode(body, &p); err != nil {
		return d, err
	}
	if p.Repository == nil {
		return d, nil
	}
	d.Repository, d.Path, d.Sender = strconv.FormatInt(p.Repository.ID, 10), p.Repository.FullName, user(p.Sender)
	if p.Issue != nil {
		i := issue(p.Issue)
		d.Issue = &i
		d.At = i.Updated
	}
	if p.PullRequest != nil {
		d.Pull = pull(p.PullRequest)
		d.At = wire.Time(p.PullRequest.Updated)
	}
	switch {
	case event == "push":
		if branch, ok := strings.CutPrefix(p.Ref, "refs/heads/"); ok {
			d.Kind, d.Branch, d.Before, d.After = forge.Pushed, branch, p.Before, p.After
		}
	case p.Comment != nil && p.Action == "created":
		c := comment(p.Comment)
		d.Comment, d.At = &c, c.Created
		if d.Issue == nil && d.Pull == nil {
			return d, &task.Error{Class: task.Invalid, Msg: "the delivery has a comment on nothing"}
		}
		d.Kind = forge.Commented
		if d.Pull == nil && (p.IsPull || d.Issue.PullRequest) {
			d.Pull = &forge.Pull{Number: d.Issue.Number, State: forge.PullOpen}
		}
	case p.Comment != nil:
	case p.Review != nil && d.Pull != nil:
		d.Kind = forge.Reviewed
		d.Verdict = map[string]string{"pull_request_review_approved": "approved", "pull_request_review_rejected": "changes_requested"}[p.Review.Type]
		if d.Verdict == "" {
			d.Verdict = "commented"
		}
		d.Comment = &forge.Comment{Author: d.Sender, Body: p.Review.Content, Created: d.At, Updated: d.At}
	case d.Pull != nil && p.Action == "closed":
		d.Kind = forge.PullEnded
	case d.Issue == nil:
	case p.Action == "label_updated":
		d.Kind, d.Labels = forge.Labeled, d.Issue.Labels // all of them: the server does not say which is new
	case p.Action == "assigned":
		d.Kind, d.Assignees = forge.Assigned, d.Issue.Assignees
	case p.Action == "edited":
		d.Kind = forge.Edited
	}
	return d, nil
}

func pull(p *sdk.PullRequest) *forge.Pull {
	x := pullRequest("", p)
	return &forge.Pull{Number: x.Number, Branch: x.Branch, Head: x.Head, State: x.State, MergedBy: x.MergedBy, MergeCommit: x.MergeCommit}
}

package gitlab

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/forge/wire"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Verify implements [forge.Host]: the signature of servers that sign, with a secret that begins
// with whsec_, or else the token that the older ones send.
func (f *Forge) Verify(h http.Header, body, secret []byte) error {
	if strings.HasPrefix(string(secret), "whsec_") {
		return wire.VerifyStandard(h, body, secret, f.cfg.Now())
	}
	return wire.VerifyToken(h, "X-Gitlab-Token", secret)
}

type person struct {
	ID       int64  `json:"id"`
	Username string `json:"username"`
}

func (p *person) user() forge.User {
	if p == nil || p.ID <= 0 || p.Username == "ghost" || p.Username == "" {
		return forge.User{}
	}
	return forge.User{ID: strconv.FormatInt(p.ID, 10), Name: p.Username}
}

type label struct {
	Title string `json:"title"`
}

// thing has the fields of what GitLab calls object_attributes, issue and merge_request.
type thing struct {
	ID              int64   `json:"id"`
	IID             int64   `json:"iid"`
	Title           string  `json:"title"`
	Description     string  `json:"description"`
	URL             string  `json:"url"`
	State           string  `json:"state"`
	Action          string  `json:"action"`
	Created         string  `json:"created_at"`
	Updated         string  `json:"updated_at"`
	Labels          []label `json:"labels"`
	Note            string  `json:"note"`
	NoteableType    string  `json:"noteable_type"`
	Type            string  `json:"type"`
	System          bool    `json:"system"`
	Internal        bool    `json:"internal"`
	SourceBranch    string  `json:"source_branch"`
	SourceProjectID int64   `json:"source_project_id"`
	MergeCommitSHA  string  `json:"merge_commit_sha"`
	LastCommit      struct {
		ID string `json:"id"`
	} `json:"last_commit"`
}

// payload has the fields of all deliveries that matter.
type payload struct {
	Kind    string  `json:"object_kind"`
	User    *person `json:"user"`
	Project struct {
		ID   int64  `json:"id"`
		Path string `json:"path_with_namespace"`
	} `json:"project"`
	Attributes thing    `json:"object_attributes"`
	Issue      *thing   `json:"issue"`
	MR         *thing   `json:"merge_request"`
	Labels     []label  `json:"labels"`
	Assignees  []person `json:"assignees"`
	Changes    struct {
		Labels      *change[label]  `json:"labels"`
		Assignees   *change[person] `json:"assignees"`
		Title       any             `json:"title"`
		Description any             `json:"description"`
	} `json:"changes"`
	Ref      string `json:"ref"`
	Before   string `json:"before"`
	After    string `json:"after"`
	UserID   int64  `json:"user_id"`
	UserName string `json:"user_username"`
}

type change[T any] struct {
	Previous []T `json:"previous"`
	Current  []T `json:"current"`
}

// added are those that were not there before.
func added[T comparable](c *change[T]) []T {
	if c == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(c.Current), func(x T) bool { return slices.Contains(c.Previous, x) })
}

// clock reads the forms of time that GitLab's deliveries have; zero for any other.
func clock(s string) time.Time {
	for _, form := range []string{time.RFC3339Nano, "2006-01-02 15:04:05 MST", "2006-01-02 15:04:05 -0700"} {
		if t, err := time.Parse(form, s); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}

// id is the name that GitLab gives a delivery, the same when it is sent again.
func id(h http.Header) string {
	for _, name := range []string{"Webhook-Id", "Idempotency-Key", "X-Gitlab-Event-Uuid"} {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return ""
}

// Parse implements [forge.Host]. https://docs.gitlab.com/user/project/integrations/webhook_events/
func (f *Forge) Parse(h http.Header, body []byte) (forge.Delivery, error) {
	d := forge.Delivery{ID: id(h), Forge: f.cfg.Name, Kind: forge.Ignored}
	if d.ID == "" || h.Get("X-Gitlab-Event") == "" {
		return d, &task.Error{Class: task.Invalid, Msg: "the delivery has no id or no X-Gitlab-Event"}
	}
	switch h.Get("X-Gitlab-Event") {
	case "Issue Hook", "Note Hook", "Merge Request Hook", "Push Hook":
	default: // of another form, and not for us
		return d, nil
	}
	var p payload
	if err := wire.Decode(body, &p); err != nil {
		return d, err
	}
	a := p.Attributes
	d.Repository, d.Path, d.Sender, d.At = strconv.FormatInt(p.Project.ID, 10), p.Project.Path, p.User.user(), clock(a.Updated)
	switch p.Kind {
	case "push":
		d.Sender, d.At = (&person{p.UserID, p.UserName}).user(), time.Time{}
		if branch, ok := strings.CutPrefix(p.Ref, "refs/heads/"); ok {
			d.Kind, d.Branch, d.Before, d.After = forge.Pushed, branch, p.Before, p.After
		}
	case "issue":
		p.issue(&d)
	case "note":
		p.note(&d)
	case "merge_request":
		if a.Action == "merge" || a.Action == "close" {
			d.Kind, d.Pull = forge.PullEnded, a.pull()
			if a.Action == "merge" {
				d.Pull.MergedBy = d.Sender
			}
		}
	}
	return d, nil
}

func (p *payload) issue(d *forge.Delivery) {
	i := p.Attributes.issue()
	for _, l := range p.Labels {
		if !slices.Contains(i.Labels, l.Title) {
			i.Labels = append(i.Labels, l.Title)
		}
	}
	for _, u := range p.Assignees {
		i.Assignees = append(i.Assignees, u.Username)
	}
	d.Issue = &i
	labels, people := added(p.Changes.Labels), added(p.Changes.Assignees)
	if p.Attributes.Action == "open" { // what it was opened with is new as well
		labels, people = p.Labels, p.Assignees
	}
	for _, l := range labels {
		d.Labels = append(d.Labels, l.Title)
	}
	for _, u := range people {
		d.Assignees = append(d.Assignees, u.Username)
	}
	switch {
	case len(d.Labels) > 0:
		d.Kind = forge.Labeled
	case len(d.Assignees) > 0:
		d.Kind = forge.Assigned
	case p.Changes.Title != nil || p.Changes.Description != nil:
		d.Kind = forge.Edited
	}
}

func (p *payload) note(d *forge.Delivery) {
	a := p.Attributes
	if a.System || a.Action != "" && a.Action != "create" {
		return
	}
	d.At = clock(a.Created)
	d.Comment = &forge.Comment{ID: strconv.FormatInt(a.ID, 10), Author: d.Sender, Body: a.Note, URL: a.URL, Created: d.At, Updated: clock(a.Updated), Internal: a.Internal}
	switch {
	case a.NoteableType == "Issue" && p.Issue != nil:
		i := p.Issue.issue()
		d.Kind, d.Issue = forge.Commented, &i
	case a.NoteableType == "MergeRequest" && p.MR != nil:
		d.Kind, d.Pull = forge.Commented, p.MR.pull()
		if a.Type == "DiffNote" {
			d.Kind = forge.ReviewCommented
		}
	}
}

func (x thing) issue() forge.Issue {
	i := forge.Issue{Number: int(x.IID), Title: x.Title, Body: x.Description, URL: x.URL, Open: x.State == "opened", Created: clock(x.Created), Updated: clock(x.Updated)}
	for _, l := range x.Labels {
		i.Labels = append(i.Labels, l.Title)
	}
	return i
}

func (x thing) pull() *forge.Pull {
	p := &forge.Pull{Number: int(x.IID), Branch: x.SourceBranch, Head: x.LastCommit.ID, State: forge.PullOpen, MergeCommit: x.MergeCommitSHA}
	switch x.State {
	case "merged":
		p.State = forge.PullMerged
	case "closed":
		p.State = forge.PullClosed
	}
	return p
}

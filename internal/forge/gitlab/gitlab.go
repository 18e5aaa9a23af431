// Package gitlab is the adapter to GitLab.
//
// Invariants: every call for a project first makes sure that it is still the registered one; the
// clone address is made of the operator's base URL; a draft is a title with a prefix, which only a
// person takes off; nothing approves, merges or sets a merge for later.
package gitlab

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"time"

	sdk "gitlab.com/gitlab-org/api/client-go"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/forge/wire"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Config says which server, as whom, and for which projects.
type Config struct {
	Name   string // in records
	URL    string // of the server
	Token  string // of a project or group, role Developer, scopes api and write_repository
	Git    *git.Git
	Pinned func(path string) string // the number a project was registered with, "" for none
	Wire   wire.Config              // Internal, Roots; the rest is filled in
	Fork   wire.Fork                // where branches go; its zero value is the project itself
	Now    func() time.Time
}

// Forge implements [forge.Host]; [New] makes one.
type Forge struct {
	cfg  Config
	web  string
	api  *sdk.Client
	git  *git.Git
	pins *wire.Pins

	home  *sdk.Client // with the token that is for what branches go to
	forks *wire.Forks // nil: none
}

// depth is how deep groups may be nested.
const depth = 21

// New checks the configuration; it asks the server nothing.
func New(cfg Config) (forge.Host, error) {
	if cfg.Token == "" {
		return nil, &task.Error{Class: task.Auth, Msg: "no token for " + cfg.URL}
	}
	w := cfg.Wire
	w.Name, w.BaseURL, w.Now = cfg.Name, cfg.URL, cfg.Now
	hc, err := wire.NewClient(w)
	if err != nil {
		return nil, err
	}
	f := &Forge{cfg: cfg, web: strings.TrimSuffix(cfg.URL, "/")}
	client := func(token string) (*sdk.Client, error) {
		return sdk.NewClient(token, sdk.WithBaseURL(f.web+"/api/v4"), sdk.WithHTTPClient(hc), sdk.WithoutRetries(), sdk.WithCustomLimiter(unlimited{}), sdk.WithUserAgent("daybreak"))
	}
	if f.api, err = client(cfg.Token); err != nil {
		return nil, err
	}
	f.home = f.api
	pusher := cfg.Token
	if cfg.Fork.Owner != "" {
		pusher = cfg.Fork.Token
		f.forks = &wire.Forks{Owner: cfg.Fork.Owner, Ask: f.askFork, Make: f.fork, Now: cfg.Now}
		if f.home, err = client(pusher); err != nil {
			return nil, err
		}
	}
	f.pins = &wire.Pins{Of: cfg.Pinned, Ask: f.ask, Now: cfg.Now}
	f.git = cfg.Git.With(func(context.Context, string) (*git.Credential, error) {
		return &git.Credential{Username: "oauth2", Secret: pusher}, nil
	})
	return wire.Tidy(f), nil
}

// unlimited keeps the library from asking the server about its limits first: what the server
// answers is obeyed by package wire.
type unlimited struct{}

func (unlimited) Wait(context.Context) error { return nil }

// Name implements [forge.Forge].
func (f *Forge) Name() string { return f.cfg.Name }

// Capabilities implements [forge.Host].
func (f *Forge) Capabilities() forge.Capabilities {
	return forge.Capabilities{
		TokenPerRepository: true, TokenLifetime: "as long as the token was made for", ReviewReplies: true, Redelivers: true, DraftBy: strings.TrimSpace(draftPrefix), PullMark: "!",
	}
}

const draftPrefix = "Draft: "

func with(ctx context.Context) sdk.RequestOptionFunc { return sdk.WithContext(ctx) }

// at makes sure of a project and returns its number.
func (f *Forge) at(ctx context.Context, address string) (string, forge.Repository, error) {
	path, err := wire.Path(f.web, address, depth)
	if err != nil {
		return "", forge.Repository{}, err
	}
	r, err := f.pins.Check(ctx, path)
	return r.ID, r, err // by number: a path may be another project's by the time of the call
}

func (f *Forge) ask(ctx context.Context, path string) (forge.Repository, error) {
	p, _, err := f.api.Projects.GetProject(path, nil, with(ctx))
	if err != nil {
		return forge.Repository{}, err
	}
	return f.repository(p), nil
}

func (f *Forge) repository(p *sdk.Project) forge.Repository {
	return forge.Repository{
		ID: strconv.FormatInt(p.ID, 10), Path: p.PathWithNamespace, URL: f.web + "/" + p.PathWithNamespace, Clone: f.web + "/" + p.PathWithNamespace + ".git",
		DefaultBranch: p.DefaultBranch, Private: p.Visibility != sdk.PublicVisibility, Archived: p.Archived,
	}
}

// Repository implements [forge.Host].
func (f *Forge) Repository(ctx context.Context, address string) (forge.Repository, error) {
	path, err := wire.Path(f.web, address, depth)
	if err != nil {
		return forge.Repository{}, err
	}
	return f.ask(ctx, path)
}

// Push implements [forge.Forge].
func (f *Forge) Push(ctx context.Context, p forge.Push) (bool, error) {
	if err := git.CheckBranch(p.Branch); err != nil {
		return false, err
	}
	_, r, err := f.at(ctx, p.Repo)
	if err != nil {
		return false, err
	}
	if r, err = f.branches(ctx, r); err != nil {
		return false, err
	}
	return f.git.Push(ctx, p.GitDir, r.Clone, p.Commit, p.Branch, p.Old)
}

// Credential implements [forge.Host].
func (f *Forge) Credential(ctx context.Context, address string) (forge.Credential, error) {
	if ok, err := f.isFork(ctx, address); ok || err != nil {
		return forge.Credential{Username: "oauth2", Secret: f.cfg.Fork.Token}, err
	}
	if _, _, err := f.at(ctx, address); err != nil {
		return forge.Credential{}, err
	}
	return forge.Credential{Username: "oauth2", Secret: f.cfg.Token}, nil
}

// FindPullRequest implements [forge.Forge].
func (f *Forge) FindPullRequest(ctx context.Context, address, branch string) (*forge.PullRequest, error) {
	id, r, err := f.at(ctx, address)
	if err != nil {
		return nil, err
	}
	if r, err = f.branches(ctx, r); err != nil {
		return nil, err
	}
	return f.find(ctx, id, r.ID, address, branch)
}

func (f *Forge) find(ctx context.Context, id, from, address, branch string) (*forge.PullRequest, error) {
	ms, _, err := f.api.MergeRequests.ListProjectMergeRequests(id, &sdk.ListProjectMergeRequestsOptions{
		SourceBranch: &branch, State: sdk.Ptr("all"), OrderBy: sdk.Ptr("created_at"), Sort: sdk.Ptr("desc"), ListOptions: sdk.ListOptions{PerPage: 20},
	}, with(ctx))
	if err != nil {
		return nil, err
	}
	for _, m := range ms {
		if m.SourceBranch == branch && strconv.FormatInt(m.SourceProjectID, 10) == from {
			pr := mergeRequest(address, m)
			return &pr, nil
		}
	}
	return nil, nil
}

// cutDraft is what GitLab takes for a draft.
func cutDraft(title string) (string, bool) {
	m := regexp.MustCompile(`(?i)^\s*(?:\[draft\]|draft:|\(draft\))\s*`).FindString(title)
	return title[len(m):], m != ""
}

func mergeRequest(address string, m *sdk.BasicMergeRequest) forge.PullRequest {
	title, draft := cutDraft(m.Title)
	pr := forge.PullRequest{
		Repo: address, Title: title, Body: m.Description, Draft: draft || m.Draft, URL: m.WebURL, Number: int(m.IID), State: forge.PullOpen,
		Branch: m.SourceBranch, Head: m.SHA, Base: m.TargetBranch,
	}
	switch m.State {
	case "merged":
		pr.State, pr.MergedBy, pr.Ended = forge.PullMerged, user(m.MergeUser), wire.Time(m.MergedAt)
		pr.MergeCommit = m.MergeCommitSHA
		if pr.MergeCommit == "" {
			pr.MergeCommit = m.SquashCommitSHA
		}
	case "closed", "locked":
		pr.State, pr.Ended = forge.PullClosed, wire.Time(m.ClosedAt)
	}
	return pr
}

// OpenPullRequest implements [forge.Forge].
func (f *Forge) OpenPullRequest(ctx context.Context, pr forge.PullRequest) (forge.PullRequest, bool, error) {
	if err := git.CheckBranch(pr.Branch); err != nil {
		return pr, false, err
	}
	id, r, err := f.at(ctx, pr.Repo)
	if err != nil {
		return pr, false, err
	}
	if pr.Base == "" {
		pr.Base = r.DefaultBranch
	}
	from, err := f.branches(ctx, r)
	if err != nil {
		return pr, false, err
	}
	var target *int64
	if from.ID != r.ID {
		n, err := strconv.ParseInt(r.ID, 10, 64)
		if err != nil {
			return pr, false, err
		}
		target = &n
	}
	return wire.Pulls{
		Find: func() (*forge.PullRequest, error) { return f.find(ctx, id, from.ID, pr.Repo, pr.Branch) },
		Create: func(title string) (forge.PullRequest, error) {
			made, _, err := f.home.MergeRequests.CreateMergeRequest(from.ID, &sdk.CreateMergeRequestOptions{
				Title: &title, Description: &pr.Body, SourceBranch: &pr.Branch, TargetBranch: &pr.Base, TargetProjectID: target,
			}, with(ctx))
			if err != nil {
				return forge.PullRequest{}, err
			}
			return mergeRequest(pr.Repo, &made.BasicMergeRequest), nil
		},
		Edit: func(number int, title string) (forge.PullRequest, error) {
			done, _, err := f.home.MergeRequests.UpdateMergeRequest(id, int64(number), &sdk.UpdateMergeRequestOptions{Title: &title, Description: &pr.Body}, with(ctx))
			if err != nil {
				return forge.PullRequest{}, err
			}
			return mergeRequest(pr.Repo, &done.BasicMergeRequest), nil
		},
		Draft: draftPrefix, There: []task.Class{task.Conflict},
	}.Open(pr)
}

// PullRequest implements [forge.Host].
func (f *Forge) PullRequest(ctx context.Context, address string, number int) (forge.PullRequest, error) {
	id, _, err := f.at(ctx, address)
	if err != nil {
		return forge.PullRequest{}, err
	}
	m, _, err := f.api.MergeRequests.GetMergeRequest(id, int64(number), nil, with(ctx))
	if err != nil {
		return forge.PullRequest{}, err
	}
	return mergeRequest(address, &m.BasicMergeRequest), nil
}

// Home implements [forge.Forge].
func (f *Forge) Home(ctx context.Context, address, _ string) (string, error) {
	_, r, err := f.at(ctx, address)
	if err != nil {
		return "", err
	}
	r, err = f.branches(ctx, r)
	return r.Clone, err
}

// SetStatus implements [forge.Host].
func (f *Forge) SetStatus(ctx context.Context, address, commit string, s forge.Status) error {
	id, _, err := f.at(ctx, address)
	if err != nil {
		return err
	}
	if err := wire.CheckCommit(commit); err != nil {
		return err
	}
	state := map[forge.StatusState]sdk.BuildStateValue{
		forge.StatusPending: sdk.Running, forge.StatusSuccess: sdk.Success, forge.StatusFailure: sdk.Failed, forge.StatusStopped: sdk.Canceled,
	}[s.State]
	opt := &sdk.SetCommitStatusOptions{State: state, Name: sdk.Ptr("daybreak"), Description: &s.Title}
	if s.URL != "" {
		opt.TargetURL = &s.URL
	}
	_, _, err = f.api.Commits.SetCommitStatus(id, commit, opt, with(ctx))
	if task.ClassOf(err) == task.Invalid { // "Cannot transition status": it stands already
		return nil
	}
	return err
}

func user(u *sdk.BasicUser) forge.User {
	if u == nil || u.ID == 0 || u.Username == "ghost" {
		return forge.User{}
	}
	return forge.User{ID: strconv.FormatInt(u.ID, 10), Name: u.Username}
}

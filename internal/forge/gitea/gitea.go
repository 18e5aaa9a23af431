// Package gitea is the adapter to Gitea and Forgejo.
//
// Invariants: every call for a repository first makes sure that it is still the registered
// one; the clone address is made of the operator's base URL, never taken from an answer; a
// draft is a title with a prefix, which only a person takes off.
package gitea

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "code.gitea.io/sdk/gitea"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/forge/wire"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Config says which server, as whom, and for which repositories.
type Config struct {
	Name   string // in records; "gitea" or "forgejo"
	URL    string // of the server
	Token  string // scopes write:repository, write:issue, read:user
	Git    *git.Git
	Pinned func(path string) string // the number a repository was registered with, "" for none
	Wire   wire.Config              // Internal, Roots; the rest is filled in
	Fork   wire.Fork                // where branches go; its zero value is the repository itself
	Now    func() time.Time
}

// Forge implements [forge.Host]; [New] makes one.
type Forge struct {
	cfg  Config
	web  string
	http *http.Client
	git  *git.Git
	pins *wire.Pins

	forks *wire.Forks // nil: none
}

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
	f := &Forge{cfg: cfg, web: strings.TrimSuffix(cfg.URL, "/"), http: hc}
	f.pins = &wire.Pins{Of: cfg.Pinned, Ask: f.ask, Now: cfg.Now}
	pusher := cfg.Token
	if cfg.Fork.Owner != "" {
		f.forks, pusher = &wire.Forks{Owner: cfg.Fork.Owner, Ask: f.askFork, Make: f.fork, Now: cfg.Now}, cfg.Fork.Token
	}
	f.git = cfg.Git.With(func(context.Context, string) (*git.Credential, error) {
		return &git.Credential{Username: "oauth2", Secret: pusher}, nil
	})
	return wire.Tidy(f), nil
}

// Name implements [forge.Forge].
func (f *Forge) Name() string { return f.cfg.Name }

// Capabilities implements [forge.Host].
func (f *Forge) Capabilities() forge.Capabilities {
	return forge.Capabilities{TokenLifetime: "until it is revoked", Assign: true, DraftBy: strings.TrimSpace(draftPrefix), WholeLabels: true, Hunks: true}
}

// draftPrefix is the first of Gitea's default prefixes of work in progress.
const draftPrefix = "WIP: "

// api is the official client for one call: it keeps a context, so it is made anew.
func (f *Forge) api(ctx context.Context) (*sdk.Client, error) { return f.as(ctx, f.cfg.Token) }

func (f *Forge) as(ctx context.Context, token string) (*sdk.Client, error) {
	return sdk.NewClient(f.web, sdk.SetHTTPClient(f.http), sdk.SetToken(token), sdk.SetContext(ctx), sdk.SetGiteaVersion(""), sdk.SetUserAgent("daybreak"))
}

// repo is one registered repository for one call.
type repo struct {
	*sdk.Client
	owner, name string
	forge.Repository
}

func (f *Forge) at(ctx context.Context, address string) (repo, error) {
	path, err := wire.Path(f.web, address, 2)
	if err != nil {
		return repo{}, err
	}
	r, err := f.pins.Check(ctx, path)
	if err != nil {
		return repo{}, err
	}
	c, err := f.api(ctx)
	owner, name, _ := strings.Cut(path, "/")
	return repo{Client: c, owner: owner, name: name, Repository: r}, err
}

func (f *Forge) ask(ctx context.Context, path string) (forge.Repository, error) {
	r, err := f.full(ctx, path)
	if err != nil {
		return forge.Repository{}, err
	}
	return f.repository(r), nil
}

func (f *Forge) full(ctx context.Context, path string) (*sdk.Repository, error) {
	c, err := f.api(ctx)
	if err != nil {
		return nil, err
	}
	owner, name, _ := strings.Cut(path, "/")
	r, _, err := c.GetRepo(owner, name)
	return r, err
}

func (f *Forge) repository(r *sdk.Repository) forge.Repository {
	return forge.Repository{
		ID: strconv.FormatInt(r.ID, 10), Path: r.FullName, URL: f.web + "/" + r.FullName, Clone: f.web + "/" + r.FullName + ".git",
		DefaultBranch: r.DefaultBranch, Private: r.Private, Archived: r.Archived,
	}
}

// Repository implements [forge.Host].
func (f *Forge) Repository(ctx context.Context, address string) (forge.Repository, error) {
	path, err := wire.Path(f.web, address, 2)
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
	r, err := f.at(ctx, p.Repo)
	if err != nil {
		return false, err
	}
	home, err := f.home(ctx, r)
	if err != nil {
		return false, err
	}
	return f.git.Push(ctx, p.GitDir, home.Clone, p.Commit, p.Branch, p.Old)
}

// Credential implements [forge.Host].
func (f *Forge) Credential(ctx context.Context, address string) (forge.Credential, error) {
	if ok, err := f.isFork(ctx, address); ok || err != nil {
		return forge.Credential{Username: "oauth2", Secret: f.cfg.Fork.Token}, err
	}
	if _, err := f.at(ctx, address); err != nil {
		return forge.Credential{}, err
	}
	return forge.Credential{Username: "oauth2", Secret: f.cfg.Token}, nil
}

// FindPullRequest implements [forge.Forge]: the newest one whose head is the branch in the
// repository itself.
func (f *Forge) FindPullRequest(ctx context.Context, address, branch string) (*forge.PullRequest, error) {
	r, err := f.at(ctx, address)
	if err != nil {
		return nil, err
	}
	home, err := f.home(ctx, r)
	if err != nil {
		return nil, err
	}
	return f.find(r, home, address, branch)
}

func (f *Forge) find(r, home repo, address, branch string) (*forge.PullRequest, error) {
	var found *sdk.PullRequest
	_, err := wire.Pages(forge.MaxItems, func(page int) ([]*sdk.PullRequest, int, error) {
		prs, res, err := r.ListRepoPullRequests(r.owner, r.name, sdk.ListPullRequestsOptions{
			ListOptions: sdk.ListOptions{Page: page, PageSize: 50}, State: sdk.StateAll, Sort: "recentupdate",
		})
		if err != nil {
			return nil, 0, err
		}
		i := slices.IndexFunc(prs, func(p *sdk.PullRequest) bool {
			return p.Head != nil && p.Head.Ref == branch && strconv.FormatInt(p.Head.RepoID, 10) == home.ID
		})
		if i >= 0 {
			found = prs[i]
			return prs, 0, nil
		}
		return prs, res.NextPage, nil
	})
	if err != nil || found == nil {
		return nil, err
	}
	pr := pullRequest(address, found)
	return &pr, nil
}

// cutDraft is what Gitea takes for work in progress, in its default settings.
func cutDraft(title string) (string, bool) {
	m := regexp.MustCompile(`(?i)^\s*(?:WIP:|\[WIP\])\s*`).FindString(title)
	return title[len(m):], m != ""
}

func pullRequest(address string, p *sdk.PullRequest) forge.PullRequest {
	title, draft := cutDraft(p.Title)
	pr := forge.PullRequest{
		Repo: address, Title: title, Body: p.Body, Draft: draft || p.Draft, URL: p.HTMLURL, Number: int(p.Index), State: forge.PullOpen,
	}
	if p.Head != nil {
		pr.Branch, pr.Head = p.Head.Ref, p.Head.Sha
		if pr.Branch == "" || strings.HasPrefix(pr.Branch, "refs/pull/") {
			pr.Branch = p.Head.Name // of a branch that is gone
		}
	}
	if p.Base != nil {
		pr.Base = p.Base.Ref
	}
	switch {
	case p.HasMerged:
		pr.State, pr.MergedBy = forge.PullMerged, user(p.MergedBy)
		if p.MergedCommitID != nil {
			pr.MergeCommit = *p.MergedCommitID
		}
		pr.Ended = wire.Time(p.Merged)
	case p.State == sdk.StateClosed:
		pr.State, pr.Ended = forge.PullClosed, wire.Time(p.Closed)
	}
	return pr
}

// OpenPullRequest implements [forge.Forge].
func (f *Forge) OpenPullRequest(ctx context.Context, pr forge.PullRequest) (forge.PullRequest, bool, error) {
	if err := git.CheckBranch(pr.Branch); err != nil {
		return pr, false, err
	}
	r, err := f.at(ctx, pr.Repo)
	if err != nil {
		return pr, false, err
	}
	if pr.Base == "" {
		pr.Base = r.DefaultBranch
	}
	home, err := f.home(ctx, r)
	if err != nil {
		return pr, false, err
	}
	head := pr.Branch
	if home.ID != r.ID {
		head = home.owner + ":" + head
	}
	return wire.Pulls{
		Find: func() (*forge.PullRequest, error) { return f.find(r, home, pr.Repo, pr.Branch) },
		Create: func(title string) (forge.PullRequest, error) {
			made, _, err := home.CreatePullRequest(r.owner, r.name, sdk.CreatePullRequestOption{Head: head, Base: pr.Base, Title: title, Body: pr.Body})
			if err != nil {
				return forge.PullRequest{}, err
			}
			return pullRequest(pr.Repo, made), nil
		},
		Edit: func(number int, title string) (forge.PullRequest, error) {
			done, _, err := home.EditPullRequest(r.owner, r.name, int64(number), sdk.EditPullRequestOption{Title: title, Body: &pr.Body})
			if err != nil {
				return forge.PullRequest{}, err
			}
			return pullRequest(pr.Repo, done), nil
		},
		Draft: draftPrefix, There: []task.Class{task.Conflict},
	}.Open(pr)
}

// PullRequest implements [forge.Host].
func (f *Forge) PullRequest(ctx context.Context, address string, number int) (forge.PullRequest, error) {
	r, err := f.at(ctx, address)
	if err != nil {
		return forge.PullRequest{}, err
	}
	p, _, err := r.GetPullRequest(r.owner, r.name, int64(number))
	if err != nil {
		return forge.PullRequest{}, err
	}
	return pullRequest(address, p), nil
}

// Home implements [forge.Forge].
func (f *Forge) Home(ctx context.Context, address, _ string) (string, error) {
	r, err := f.at(ctx, address)
	if err != nil {
		return "", err
	}
	home, err := f.home(ctx, r)
	return home.Clone, err
}

// SetStatus implements [forge.Host].
func (f *Forge) SetStatus(ctx context.Context, address, commit string, s forge.Status) error {
	r, err := f.at(ctx, address)
	if err != nil {
		return err
	}
	if err := wire.CheckCommit(commit); err != nil {
		return err
	}
	state := map[forge.StatusState]sdk.StatusState{
		forge.StatusPending: sdk.StatusPending, forge.StatusSuccess: sdk.StatusSuccess, forge.StatusFailure: sdk.StatusFailure, forge.StatusStopped: sdk.StatusError,
	}[s.State]
	_, _, err = r.CreateStatus(r.owner, r.name, commit, sdk.CreateStatusOption{State: state, TargetURL: s.URL, Description: s.Title, Context: "daybreak"})
	return err
}

func user(u *sdk.User) forge.User {
	if u == nil || u.ID <= 0 { // Gitea's ghost and its actions user have numbers below 1
		return forge.User{}
	}
	return forge.User{ID: strconv.FormatInt(u.ID, 10), Name: u.UserName}
}

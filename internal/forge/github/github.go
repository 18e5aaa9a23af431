// Package github is the adapter to GitHub and GitHub Enterprise, as an App or with a token.
//
// Invariants: an App's token is for one repository, with write access to issues, pull requests and
// checks and, unless branches go to a fork, to contents, never to workflows or administration; every call for a repository first
// makes sure that it is still the registered one; the clone address is made of the operator's
// base URL; a pull request is opened as a draft, and there is no call that would make it ready.
package github

import (
	"context"
	"crypto/rsa"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/go-github/v88/github"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/forge/wire"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Config says as whom, and for which repositories. Either Token or App is set.
type Config struct {
	Name   string // in records
	URL    string // what people open, such as https://github.com
	API    string // empty: the usual one beside URL
	Token  string
	App    *App
	Git    *git.Git
	Pinned func(path string) string // the number a repository was registered with, "" for none
	Wire   wire.Config              // Internal, Roots, WriteGap; the rest is filled in
	Fork   wire.Fork                // where branches go; its zero value is the repository itself
	Now    func() time.Time
}

// App is a GitHub App.
type App struct {
	ID  int64
	Key *rsa.PrivateKey
}

// Forge implements [forge.Host]; [New] makes one.
type Forge struct {
	cfg  Config
	web  string
	api  string
	http *http.Client
	git  *git.Git
	pins *wire.Pins

	forks *wire.Forks // nil: none

	mu     sync.Mutex
	tokens map[string]minted // of an App, by path
}

// New checks the configuration; it asks the server nothing.
func New(cfg Config) (forge.Host, error) {
	if (cfg.Token == "") == (cfg.App == nil) {
		return nil, &task.Error{Class: task.Auth, Msg: cfg.URL + " needs a token or an App, and not both"}
	}
	f := &Forge{cfg: cfg, web: strings.TrimSuffix(cfg.URL, "/"), api: cfg.API, tokens: map[string]minted{}}
	if f.api == "" {
		f.api = f.web + "/api/v3"
		if f.web == "https://github.com" {
			f.api = "https://api.github.com"
		}
	}
	f.api = strings.TrimSuffix(f.api, "/") + "/"
	w := cfg.Wire
	w.Name, w.BaseURL, w.Now = cfg.Name, f.api, cfg.Now
	var err error
	if f.http, err = wire.NewClient(w); err != nil {
		return nil, err
	}
	f.pins = &wire.Pins{Of: cfg.Pinned, Ask: f.ask, Now: cfg.Now}
	if cfg.Fork.Owner != "" {
		f.forks = &wire.Forks{Owner: cfg.Fork.Owner, Ask: f.askFork, Make: f.fork, Now: cfg.Now}
	}
	f.git = cfg.Git.With(func(ctx context.Context, url string) (*git.Credential, error) {
		c, err := f.Credential(ctx, url)
		return &git.Credential{Username: c.Username, Secret: c.Secret}, err
	})
	return wire.Tidy(f), nil
}

// Name implements [forge.Forge].
func (f *Forge) Name() string { return f.cfg.Name }

// Capabilities implements [forge.Host].
func (f *Forge) Capabilities() forge.Capabilities {
	c := forge.Capabilities{ReviewReplies: true, Hunks: true, Redelivers: true, DraftBy: "flag", TokenLifetime: "as long as the token was made for", Assign: true}
	if f.cfg.App != nil {
		c.TokenPerRepository, c.TokenLifetime, c.CheckRuns, c.Assign = true, "one hour", true, false
	}
	return c
}

// client is the official client with a token.
func (f *Forge) client(token string) (*github.Client, error) {
	own := *f.http // the library changes the client that it is given
	return github.NewClient(github.WithHTTPClient(&own), github.WithURLs(&f.api, &f.api), github.WithAuthToken(token),
		github.WithDisableRateLimitCheck(), github.WithUserAgent("daybreak"))
}

// repo is one registered repository for one call.
type repo struct {
	*github.Client
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
	c, err := f.for1(ctx, path)
	owner, name, _ := strings.Cut(path, "/")
	return repo{Client: c, owner: owner, name: name, Repository: r}, err
}

// for1 is a client whose token is for the one repository.
func (f *Forge) for1(ctx context.Context, path string) (*github.Client, error) {
	t, err := f.token(ctx, path)
	if err != nil {
		return nil, err
	}
	return f.client(t.secret)
}

func (f *Forge) ask(ctx context.Context, path string) (forge.Repository, error) {
	r, err := f.full(ctx, path)
	if err != nil {
		return forge.Repository{}, err
	}
	return f.repository(r), nil
}

func (f *Forge) full(ctx context.Context, path string) (*github.Repository, error) {
	c, err := f.for1(ctx, path)
	if err != nil {
		return nil, err
	}
	owner, name, _ := strings.Cut(path, "/")
	r, _, err := c.Repositories.Get(ctx, owner, name)
	return r, err
}

func (f *Forge) repository(r *github.Repository) forge.Repository {
	return forge.Repository{
		ID: strconv.FormatInt(r.GetID(), 10), Path: r.GetFullName(), URL: f.web + "/" + r.GetFullName(), Clone: f.web + "/" + r.GetFullName() + ".git",
		DefaultBranch: r.GetDefaultBranch(), Private: r.GetPrivate(), Archived: r.GetArchived(),
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
	return f.git.Push(ctx, p.GitDir, home.Repository.Clone, p.Commit, p.Branch, p.Old)
}

// Credential implements [forge.Host].
func (f *Forge) Credential(ctx context.Context, address string) (forge.Credential, error) {
	if ok, err := f.isFork(ctx, address); ok || err != nil {
		return forge.Credential{Username: "x-access-token", Secret: f.cfg.Fork.Token}, err
	}
	r, err := f.at(ctx, address)
	if err != nil {
		return forge.Credential{}, err
	}
	t, err := f.token(ctx, r.Path)
	return forge.Credential{Username: "x-access-token", Secret: t.secret, Expires: t.until}, err
}

// FindPullRequest implements [forge.Forge].
func (f *Forge) FindPullRequest(ctx context.Context, address, branch string) (*forge.PullRequest, error) {
	r, err := f.at(ctx, address)
	if err != nil {
		return nil, err
	}
	home, err := f.home(ctx, r)
	if err != nil {
		return nil, err
	}
	return f.find(ctx, r, home, address, branch)
}

func (f *Forge) find(ctx context.Context, r, home repo, address, branch string) (*forge.PullRequest, error) {
	prs, _, err := r.PullRequests.List(ctx, r.owner, r.name, &github.PullRequestListOptions{
		State: "all", Head: home.owner + ":" + branch, Sort: "created", Direction: "desc", ListOptions: github.ListOptions{PerPage: 10},
	})
	if err != nil {
		return nil, err
	}
	for _, p := range prs {
		if p.GetHead().GetRef() != branch || strconv.FormatInt(p.GetHead().GetRepo().GetID(), 10) != home.ID {
			continue // a filter that was not understood is no filter
		}
		pr := pullRequest(address, p)
		return &pr, nil
	}
	return nil, nil
}

func pullRequest(address string, p *github.PullRequest) forge.PullRequest {
	pr := forge.PullRequest{
		Repo: address, Title: p.GetTitle(), Body: p.GetBody(), Draft: p.GetDraft(), URL: p.GetHTMLURL(), Number: p.GetNumber(), State: forge.PullOpen,
		Branch: p.GetHead().GetRef(), Head: p.GetHead().GetSHA(), Base: p.GetBase().GetRef(),
	}
	switch {
	case p.GetMerged() || !p.GetMergedAt().IsZero():
		pr.State, pr.MergedBy, pr.MergeCommit, pr.Ended = forge.PullMerged, user(p.MergedBy), p.GetMergeCommitSHA(), p.GetMergedAt().UTC()
	case p.GetState() == "closed":
		pr.State, pr.Ended = forge.PullClosed, p.GetClosedAt().UTC()
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
		Find: func() (*forge.PullRequest, error) { return f.find(ctx, r, home, pr.Repo, pr.Branch) },
		Create: func(title string) (forge.PullRequest, error) {
			made, _, err := home.PullRequests.Create(ctx, r.owner, r.name, &github.NewPullRequest{
				Title: &title, Head: &head, Base: &pr.Base, Body: &pr.Body, Draft: &pr.Draft,
			})
			if err != nil {
				return forge.PullRequest{}, err
			}
			return pullRequest(pr.Repo, made), nil
		},
		Edit: func(number int, title string) (forge.PullRequest, error) {
			done, _, err := home.PullRequests.Edit(ctx, r.owner, r.name, number, &github.PullRequest{Title: &title, Body: &pr.Body})
			if err != nil {
				return forge.PullRequest{}, err
			}
			return pullRequest(pr.Repo, done), nil
		},
		There: []task.Class{task.Invalid, task.Conflict},
	}.Open(pr)
}

// PullRequest implements [forge.Host].
func (f *Forge) PullRequest(ctx context.Context, address string, number int) (forge.PullRequest, error) {
	r, err := f.at(ctx, address)
	if err != nil {
		return forge.PullRequest{}, err
	}
	p, _, err := r.PullRequests.Get(ctx, r.owner, r.name, number)
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
	return home.Repository.Clone, err
}

// checkName is what our check runs and statuses are called.
const checkName = "daybreak"

// SetStatus implements [forge.Host]: a check run of an App, a status of a token.
func (f *Forge) SetStatus(ctx context.Context, address, commit string, s forge.Status) error {
	r, err := f.at(ctx, address)
	if err != nil {
		return err
	}
	if err := wire.CheckCommit(commit); err != nil {
		return err
	}
	if f.cfg.App != nil {
		return f.check(ctx, r, commit, s)
	}
	state := map[forge.StatusState]string{forge.StatusPending: "pending", forge.StatusSuccess: "success", forge.StatusFailure: "failure", forge.StatusStopped: "error"}[s.State]
	_, _, err = r.Repositories.CreateStatus(ctx, r.owner, r.name, commit, github.RepoStatus{
		State: &state, Description: github.Ptr(clip(s.Title, 140)), Context: github.Ptr(checkName), TargetURL: optional(s.URL),
	})
	return err
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func clip(s string, max int) string {
	if len(s) <= max {
		return s
	}
	return strings.ToValidUTF8(s[:max-3], "") + "…"
}

func (f *Forge) check(ctx context.Context, r repo, commit string, s forge.Status) error {
	state, conclusion := "completed", map[forge.StatusState]string{forge.StatusSuccess: "success", forge.StatusFailure: "failure", forge.StatusStopped: "cancelled"}[s.State]
	var actions []*github.CheckRunAction
	if s.State == forge.StatusPending {
		state = "in_progress"
		if s.Stop {
			actions = []*github.CheckRunAction{{Label: "Stop", Description: "Stop the task", Identifier: "stop"}}
		}
	}
	output := &github.CheckRunOutput{Title: github.Ptr(clip(s.Title, 140)), Summary: github.Ptr(clip(s.Summary, 60_000))}
	runs, _, err := r.Checks.ListCheckRunsForRef(ctx, r.owner, r.name, commit, &github.ListCheckRunsOptions{
		CheckName: github.Ptr(checkName), Filter: github.Ptr("latest"), AppID: &f.cfg.App.ID,
	})
	if err != nil {
		return err
	}
	for _, run := range runs.CheckRuns {
		if run.GetExternalID() == s.Task && run.GetStatus() != "completed" {
			_, _, err := r.Checks.UpdateCheckRun(ctx, r.owner, r.name, run.GetID(), github.UpdateCheckRunOptions{
				Name: checkName, DetailsURL: optional(s.URL), ExternalID: &s.Task, Status: &state, Conclusion: optional(conclusion), Output: output, Actions: actions,
			})
			return err
		}
	}
	_, _, err = r.Checks.CreateCheckRun(ctx, r.owner, r.name, github.CreateCheckRunOptions{
		Name: checkName, HeadSHA: commit, DetailsURL: optional(s.URL), ExternalID: &s.Task, Status: &state, Conclusion: optional(conclusion), Output: output, Actions: actions,
	})
	return err
}

func user(u *github.User) forge.User {
	if u == nil || u.GetID() == 0 || u.GetLogin() == "ghost" {
		return forge.User{}
	}
	return forge.User{ID: strconv.FormatInt(u.GetID(), 10), Name: u.GetLogin(), Bot: u.GetType() != "User" && u.GetType() != ""}
}

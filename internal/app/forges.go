package app

import (
	"context"
	"crypto/x509"
	"maps"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/dispatch"
	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/forge/gitea"
	"github.com/daybreak-agent/daybreak/internal/forge/github"
	"github.com/daybreak-agent/daybreak/internal/forge/gitlab"
	"github.com/daybreak-agent/daybreak/internal/forge/local"
	"github.com/daybreak-agent/daybreak/internal/forge/route"
	"github.com/daybreak-agent/daybreak/internal/forge/wire"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/intake"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/worker"
)

// Forges are the configured forges, opened.
type Forges struct {
	*route.Route
	Hosts map[string]forge.Host // by name
}

// Registry is the list of registered repositories.
func (a *App) Registry() *intake.Registry { return a.registry }

// openForges opens every configured forge. It asks none of them anything.
func (a *App) openForges() (*Forges, error) {
	pulls, err := local.New(local.Config{Dir: a.Dir, Git: a.Git})
	if err != nil {
		return nil, err
	}
	f := &Forges{Hosts: map[string]forge.Host{}}
	var entries []route.Entry
	for _, name := range slices.Sorted(maps.Keys(a.Config.Forges)) {
		c := a.Config.Forges[name]
		h, err := a.openForge(name, c)
		if err != nil {
			return nil, err
		}
		f.Hosts[name] = h
		entries = append(entries, route.Entry{URL: c.URL, Host: h})
	}
	f.Route = route.New(pulls, entries...)
	return f, nil
}

func (a *App) openForge(name string, c config.Forge) (forge.Host, error) {
	token, err := c.Token(a.opts.Getenv)
	if err != nil {
		return nil, err
	}
	w := wire.Config{Internal: c.Internal}
	forkToken, err := c.Fork.Token(a.opts.Getenv)
	if err != nil {
		return nil, err
	}
	fork := wire.Fork{Owner: c.Fork.Owner, Token: forkToken}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, &task.Error{Class: task.Invalid, Msg: "cannot read forges." + name + ".ca_file", Err: err}
		}
		w.Roots = x509.NewCertPool()
		if !w.Roots.AppendCertsFromPEM(pem) {
			return nil, &task.Error{Class: task.Invalid, Msg: "forges." + name + ".ca_file holds no certificate"}
		}
	}
	pinned := func(path string) string { return a.registry.Pinned(context.Background(), name, path) }
	switch c.Kind {
	case config.Gitea:
		return gitea.New(gitea.Config{Name: name, URL: c.URL, Token: token, Fork: fork, Git: a.Git, Pinned: pinned, Wire: w, Now: a.Now})
	case config.GitLab:
		return gitlab.New(gitlab.Config{Name: name, URL: c.URL, Token: token, Fork: fork, Git: a.Git, Pinned: pinned, Wire: w, Now: a.Now})
	case config.GitHub:
		g := github.Config{Name: name, URL: c.URL, API: c.APIURL, Token: token, Fork: fork, Git: a.Git, Pinned: pinned, Wire: w, Now: a.Now}
		g.Wire.WriteGap = time.Second // https://docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api
		if c.AppID != 0 {
			text, err := os.ReadFile(c.AppKeyFile)
			if err != nil {
				return nil, &task.Error{Class: task.Auth, Msg: "cannot read forges." + name + ".app_key_file", Err: err}
			}
			key, err := github.ParseKey(text)
			if err != nil {
				return nil, err
			}
			g.App = &github.App{ID: c.AppID, Key: key}
		}
		return github.New(g)
	}
	return nil, &task.Error{Class: task.Invalid, Msg: "forges." + name + ".kind is not known"}
}

// credential is what git shows a server: nothing for a repository that is not registered.
func (a *App) credential(ctx context.Context, url string) (*git.Credential, error) {
	if len(a.Config.Forges) == 0 {
		return nil, nil
	}
	f, err := a.Forges()
	if err != nil {
		return nil, err
	}
	h, ok := f.Host(url)
	if !ok {
		return nil, nil
	}
	c, err := h.Credential(ctx, url)
	if task.ClassOf(err) == task.Invalid {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &git.Credential{Username: c.Username, Secret: c.Secret}, nil
}

// Mail is what takes in what the forges tell; nil when none is configured. It needs
// Options.Dispatch.
func (a *App) Mail() (*intake.Intake, error) {
	if len(a.Config.Forges) == 0 {
		return nil, nil
	}
	mail, ok := a.Store.(store.Deliveries)
	if !ok || a.queue == nil {
		return nil, &task.Error{Class: task.Internal, Msg: "the store was opened without its queue"}
	}
	f, err := a.Forges()
	if err != nil {
		return nil, err
	}
	hosts := map[string]intake.Host{}
	for name, h := range f.Hosts {
		c := a.Config.Forges[name]
		now, old, err := c.Secrets(a.opts.Getenv)
		if err != nil {
			return nil, err
		}
		x := intake.Host{Host: h}
		if now != "" {
			x.Secrets = append(x.Secrets, intake.Secret{Value: []byte(now)})
		}
		if old != "" {
			x.Secrets = append(x.Secrets, intake.Secret{Value: []byte(old), Until: c.OldSecretUntil})
		}
		if len(x.Secrets) == 0 {
			a.opts.Logger.Warn("the forge has no webhook secret: its webhooks are refused, and only the poller hears it", "forge", name)
		}
		hosts[name] = x
	}
	c := a.Config
	maker := a.Intake()
	return intake.New(intake.Config{
		Store: struct {
			store.Store
			store.Deliveries
		}{a.Store, mail},
		Hosts: hosts, Registry: a.registry, Most: c.Most.Limits(), Owner: Owner(), Now: a.Now, Logger: a.opts.Logger,
		Rates: intake.Rates{Author: c.Intake.Rates.Author, Repo: c.Intake.Rates.Repository, Total: c.Intake.Rates.Total, Queue: c.Intake.Rates.Queue},
		Create: func(ctx context.Context, q intake.Wanted) (store.Task, bool, error) {
			return maker.Create(ctx, worker.Request{
				Attempts: c.Attempts,
				Repo:     q.Repo, Issue: q.Issue, Model: c.Model, Limits: c.Budget.Limits(), RequestedBy: q.Origin.By, Settings: c.Digest(),
				Origin: &q.Origin, Key: q.Key, Author: q.Origin.Forge + ":" + q.Origin.By, Priority: q.Priority, Dispatch: true,
			})
		},
		Landed: func(ctx context.Context, repo, branch string, since time.Time) ([]intake.Landed, error) {
			notes, err := a.Snapshots.Notes(ctx, repo, branch, since)
			out := make([]intake.Landed, len(notes))
			for i, n := range notes {
				out[i] = intake.Landed{ID: n.ID, By: n.By, At: n.At, Message: n.Message}
			}
			return out, err
		},
		Again: func(ctx context.Context, id task.ID, why string) error {
			_, err := a.queue.store.Reissue(ctx, id, why)
			return err
		},
	}), nil
}

// reportEvery is how often progress is shown on the forges: a task that did not change costs
// nothing, and comments are edited at a rate of their own.
const reportEvery = 5 * time.Second

// Chores are what one of the service's processes does every so often for the forges, if there are
// any, and for plain repositories.
func (a *App) Chores(in *intake.Intake) []dispatch.Periodic {
	every := []dispatch.Periodic{{Name: "settle", Every: settleEvery, Do: a.Settle}}
	if in == nil {
		return every
	}
	return append(every, []dispatch.Periodic{
		{Name: "poll", Every: a.Config.Intake.Poll, Do: in.Poll},
		{Name: "report", Every: reportEvery, Do: in.Report},
	}...)
}

// Hooks are the handlers of webhooks, by their paths.
func (a *App) Hooks(in *intake.Intake) map[string]http.Handler {
	hs := map[string]http.Handler{}
	if in == nil {
		return hs
	}
	for name := range a.Config.Forges {
		hs["/hooks/"+name] = in.Hook(name)
	}
	return hs
}

package access

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Fresh is how long an answer of a forge about a person's permission is good.
const Fresh = 30 * time.Second

// maxAnswers bounds the answers that are remembered.
const maxAnswers = 10_000

// GateConfig is what a gate needs. All fields are required.
type GateConfig struct {
	// Host finds the forge on which a repository lives; ok is false for one that lives on none.
	Host func(repo string) (h forge.Host, ok bool)
	Task func(ctx context.Context, id task.ID) (store.Task, error)
	Now  func() time.Time
}

// Gate decides what a viewer may see and do. It is safe for concurrent use.
type Gate struct {
	cfg GateConfig

	mu      sync.Mutex
	answers map[question]*answer
}

type question struct{ repo, login string }

type answer struct {
	ready chan struct{} // closed once the rest is set
	at    time.Time
	may   forge.Permission
	err   error
}

// NewGate returns a gate.
func NewGate(cfg GateConfig) *Gate { return &Gate{cfg: cfg, answers: map[question]*answer{}} }

// MayRead returns nil when the viewer may read what belongs to a repository. It is class NotFound
// when not, and the forge's error when it cannot say.
func (g *Gate) MayRead(ctx context.Context, v Viewer, repo string) error {
	return g.may(ctx, v, repo, Read)
}

// MayAct returns nil when the viewer may do s with a task of a repository. It is class NotFound
// when they may not even read it, class Auth ([ErrForbidden]) when they may only read it.
func (g *Gate) MayAct(ctx context.Context, v Viewer, repo string, s Scope) error {
	if err := g.may(ctx, v, repo, Read); err != nil {
		if !v.Has(Read) && v.Has(s) { // a token that only creates
			return g.may(ctx, v, repo, s)
		}
		return err
	}
	return g.may(ctx, v, repo, s)
}

// Task reads a task for a viewer who wants to do s with it. Class NotFound when they may not read
// it, with the very words for one that is not there.
func (g *Gate) Task(ctx context.Context, v Viewer, id task.ID, s Scope) (store.Task, error) {
	if !id.Valid() {
		return store.Task{}, Gone()
	}
	t, err := g.cfg.Task(ctx, id)
	if task.ClassOf(err) == task.NotFound && err != nil {
		return t, Gone()
	}
	if err != nil {
		return t, err
	}
	return t, g.MayAct(ctx, v, t.Repo, s)
}

// Readable keeps those tasks that the viewer may read. A repository whose forge cannot say is left
// out; the error is then the last one's, beside what is known.
func (g *Gate) Readable(ctx context.Context, v Viewer, ts []store.Task) (out []store.Task, err error) {
	known := map[string]error{}
	for _, t := range ts {
		e, ok := known[t.Repo]
		if !ok {
			e = g.MayRead(ctx, v, t.Repo)
			known[t.Repo] = e
		}
		switch {
		case e == nil:
			out = append(out, t)
		case task.ClassOf(e) != task.NotFound:
			err = e
		}
	}
	return out, err
}

// Watcher is what a viewer's live streams of a repository are held to.
func (g *Gate) Watcher(v Viewer, repo string) (name string, may func(context.Context) error) {
	return v.Key(), func(ctx context.Context) error {
		if !v.Expires.IsZero() && !g.cfg.Now().Before(v.Expires) {
			return Gone()
		}
		if err := v.Still(ctx); err != nil {
			return err
		}
		return g.MayRead(ctx, v, repo)
	}
}

func (g *Gate) may(ctx context.Context, v Viewer, repo string, s Scope) error {
	refused := Gone()
	if s != Read {
		refused = ErrForbidden
	}
	if !v.Has(s) || !v.within(repo) {
		return refused
	}
	if v.All {
		return nil
	}
	h, ok := g.cfg.Host(repo)
	if !ok { // nobody to ask: such a repository is the operator's
		return refused
	}
	login := v.login(h.Name())
	if login == "" {
		return refused
	}
	p, err := g.permission(ctx, h, repo, login)
	if err != nil {
		return err
	}
	if need := needed(s); p < need {
		return refused
	}
	return nil
}

func needed(s Scope) forge.Permission {
	switch s {
	case Read:
		return forge.Read
	case Admin:
		return forge.Admin + 1 // of a forge, nobody is Daybreak's operator
	}
	return forge.Write
}

// permission asks the forge, once for all who want to know at the same time.
func (g *Gate) permission(ctx context.Context, h forge.Host, repo, login string) (forge.Permission, error) {
	q := question{repo, login}
	now := g.cfg.Now()
	g.mu.Lock()
	a := g.answers[q]
	if a != nil && now.Sub(a.at) < Fresh {
		g.mu.Unlock()
		select {
		case <-a.ready:
			return a.may, a.err
		case <-ctx.Done():
			return forge.None, context.Cause(ctx)
		}
	}
	if len(g.answers) >= maxAnswers {
		clear(g.answers)
	}
	a = &answer{ready: make(chan struct{}), at: now}
	g.answers[q] = a
	g.mu.Unlock()

	// Whoever asked first may leave: the others wait for the same answer.
	ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	a.may, a.err = h.Permission(ask, repo, login)
	if a.err != nil {
		a.may = forge.None
		switch task.ClassOf(a.err) {
		case task.NotFound, task.Invalid, task.Conflict: // the repository is gone, another one, or not registered
			a.err = nil
		default:
			var e *task.Error
			if !errors.As(a.err, &e) {
				a.err = fmt.Errorf("%s cannot be asked who may see this: %w", h.Name(), a.err)
			}
			g.mu.Lock()
			if g.answers[q] == a {
				delete(g.answers, q) // the next one asks again
			}
			g.mu.Unlock()
		}
	}
	close(a.ready)
	return a.may, a.err
}

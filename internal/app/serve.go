package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/dispatch"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/telemetry"
	"github.com/daybreak-agent/daybreak/internal/worker"
)

// Dispatcher builds what runs tasks in this process, at most workers at once; with 0 it only
// looks after those of others. Runs end at their next step once draining is closed. It needs
// Options.Dispatch.
func (a *App) Dispatcher(workers int, draining <-chan struct{}, every ...dispatch.Periodic) (*dispatch.Dispatcher, error) {
	if a.queue == nil {
		return nil, &task.Error{Class: task.Internal, Msg: "the store was opened without its queue"}
	}
	c := a.Config.Serve
	run := func(context.Context, store.Lease) dispatch.Outcome {
		return dispatch.Outcome{Trouble: errors.New("this process runs no tasks")}
	}
	cfg := dispatch.Config{
		Store: a.queue.store, Engine: a.queue.engine, Owner: serviceOwner(), Dead: a.dead, Lease: c.Lease, Workers: workers,
		Caps:  store.Caps{Total: c.Caps.Total, Repo: c.Caps.Repository, Author: c.Caps.Author},
		Every: every, Logger: a.opts.Logger, Run: run,
	}
	watch, err := a.Watch()
	if err != nil {
		return nil, err
	}
	cfg.Taken = func() { watch.Add(telemetry.Takeovers, 1) }
	a.slots = workers
	if workers > 0 {
		log := a.opts.Logger
		wc, err := a.workerConfig(Hooks{Observe: func(e event.Event, _ event.Payload) {
			log.Debug("event", "task", e.Task, "seq", e.Seq, "kind", e.Kind)
		}})
		if err != nil {
			return nil, err
		}
		wc.LeaseTTL, wc.Draining = c.Lease, draining
		wc.Runtime = a.keepReady(wc.Runtime)
		wc.Questions = worker.Questions{Most: a.Config.Questions.Most, Wait: a.Config.Questions.Wait}
		cfg.Run, cfg.Sweep = a.runner(worker.New(wc)), a.sweep
	}
	return dispatch.New(cfg), nil
}

// serviceOwner names this process in the service's leases: machines that share a store may have
// the same name, and containers the same process numbers.
func serviceOwner() string { return Owner() + "@" + place() }

// place names this boot of this machine, and the namespace whose process numbers are meant.
func place() string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	ns, _ := os.Readlink("/proc/self/ns/pid")
	sum := sha256.Sum256(append(boot, ns...))
	return hex.EncodeToString(sum[:6])
}

// dead reports whether the owner of a lease is gone for certain. A SQLite file has one service,
// and that is this process: every other one is over.
func (a *App) dead(owner string) bool {
	if a.Config.Store.Engine == config.SQLite && strings.Contains(owner, "@") {
		return owner != serviceOwner()
	}
	return Gone(owner)
}

// heldFor is when a task that waits for a person is looked at again, should nobody say a word: the
// word orders its next run.
const heldFor = 24 * time.Hour

// runner turns a run's end into what the dispatcher should do.
func (a *App) runner(w *worker.Worker) func(context.Context, store.Lease) dispatch.Outcome {
	log := a.opts.Logger
	return func(ctx context.Context, l store.Lease) dispatch.Outcome {
		log.InfoContext(ctx, "a run begins", "task", l.Task, "epoch", l.Epoch)
		sum, err := w.RunUnder(ctx, l)
		if watch, werr := a.Watch(); werr == nil {
			watch.RunEnded(l.Task, a.Now())
		}
		log.InfoContext(ctx, "a run ended", "task", l.Task, "epoch", l.Epoch, "state", sum.State, "steps", sum.Spent.Steps, "reason", sum.Reason)
		switch {
		case errors.Is(err, worker.ErrLost):
			return dispatch.Outcome{Lost: true}
		case errors.Is(err, worker.ErrHeld):
			return dispatch.Outcome{Parked: true, After: heldFor}
		case errors.Is(err, worker.ErrParked):
			return dispatch.Outcome{Parked: true, After: min(heldFor, max(sum.Asked.Until.Sub(a.Now()), time.Second))}
		case errors.Is(err, worker.ErrDrained), errors.Is(err, worker.ErrInterrupted):
			return dispatch.Outcome{}
		}
		out := dispatch.Outcome{Trouble: err}
		var e *task.Error
		if errors.As(err, &e) {
			out.After = e.RetryAfter
		}
		return out
	}
}

// Intake makes tasks, and needs no sandbox for it.
func (a *App) Intake() *worker.Worker {
	return worker.New(worker.Config{
		Store: a.Store, Git: a.Git, Snapshots: a.Snapshots, Owner: Owner(), Now: a.Now, Rand: a.opts.Rand, Logger: a.opts.Logger,
	})
}

// QueuePages are the queue's own pages below a prefix, to look at, once the dispatcher has
// started. They ask nobody who they are.
func (a *App) QueuePages(ctx context.Context, prefix string) (http.Handler, error) {
	return a.queue.pages(ctx, prefix)
}

// Token is what /api asks for; "" when none is set.
func (a *App) Token() (string, error) { return a.Config.Serve.Token(a.opts.Getenv) }

// sweep ends sandboxes of processes that are gone, except those that hold the work of an
// unfinished task: its next run begins with them.
func (a *App) sweep(ctx context.Context) ([]string, error) {
	rt, err := a.Runtime()
	if err != nil {
		return nil, err
	}
	ended, err := rt.Collect(ctx, func(h sandbox.Handle) bool {
		if !Gone(h.Owner) {
			return true
		}
		if !task.ID(h.Task).Valid() {
			return false
		}
		t, err := a.Store.Task(ctx, task.ID(h.Task))
		if task.ClassOf(err) == task.NotFound {
			return false
		}
		return err != nil || !t.State.Done()
	})
	out := make([]string, len(ended))
	for i, h := range ended {
		out[i] = fmt.Sprintf("sandbox %s (%s of task %s)", h.ID, h.Purpose, h.Task)
	}
	return out, err
}

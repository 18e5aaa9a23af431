package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/oklog/ulid/v2"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/server"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/worker"
)

// apiTasks implements server.Tasks.
type apiTasks struct {
	a      *App
	intake *worker.Worker
}

// APITasks is what the API does with tasks.
func (a *App) APITasks() server.Tasks { return apiTasks{a, a.Intake()} }

// Create implements server.Tasks.
func (t apiTasks) Create(ctx context.Context, q server.Request) (server.View, bool, error) {
	cfg := t.a.Config
	repo := q.Repo
	if _, err := os.Stat(repo); err == nil {
		if repo, err = filepath.Abs(repo); err != nil {
			return server.View{}, false, err
		}
	}
	if !cfg.Serve.Allows(repo) {
		return server.View{}, false, &task.Error{Class: task.Invalid, Msg: "the repository " + repo + " is none that the API may name", Fix: "add it to serve.repos"}
	}
	name := q.Model
	if name == "" {
		name = cfg.Model
	}
	if _, err := t.a.Model(name); err != nil {
		return server.View{}, false, err
	}
	key := ""
	if q.Key != "" {
		sum := sha256.Sum256([]byte(q.Key))
		key = "api-" + hex.EncodeToString(sum[:16])
		switch old, err := t.a.Store.Tasks(ctx, store.Filter{Key: key, Limit: 1}); {
		case err != nil:
			return server.View{}, false, err
		case len(old) > 0:
			return viewOf(old[0]), false, nil
		}
	}
	if err := t.room(ctx); err != nil {
		return server.View{}, false, err
	}
	who := q.RequestedBy
	if who == "" {
		who = "api"
	}
	made, created, err := t.intake.Create(ctx, worker.Request{
		Repo: repo, Ref: q.Ref, Issue: []byte(q.Issue), Model: name, Limits: lowered(cfg.Budget.Limits(), q), RequestedBy: who,
		Settings: cfg.Digest(), Key: key, Author: who, Priority: q.Priority, Dispatch: true,
	})
	if err == nil && !created && !made.Dispatch && !made.State.Done() && made.Owner == "" && t.a.queue != nil {
		// A person began it at the command line and left it: from now on it is the scheduler's.
		_, err = t.a.queue.store.Reissue(ctx, made.ID, "asked for over the API by "+who)
		if task.ClassOf(err) == task.Conflict {
			err = nil // somebody works on it after all
		}
	}
	return viewOf(made), created, err
}

// room refuses what would make the queue longer than it may be.
func (t apiTasks) room(ctx context.Context) error {
	if t.a.queue == nil {
		return nil
	}
	all, err := t.a.queue.store.Unfinished(ctx)
	if err == nil && len(all) >= t.a.Config.Serve.Queue {
		return &task.Error{Class: task.Overloaded, Msg: "the queue is full", Fix: "ask again later, or raise serve.queue"}
	}
	return err
}

func viewOf(t store.Task) server.View {
	return server.View{Task: t.ID, State: t.State, Repo: t.Repo, Title: t.Title, Created: t.Created}
}

// lowered is the configured budget where the request does not ask for less.
func lowered(l task.Limits, q server.Request) task.Limits {
	l.Steps = lower(l.Steps, q.Budget.Steps)
	l.Tokens = lower(l.Tokens, q.Budget.Tokens)
	l.Wall = lower(l.Wall, q.Wall)
	l.Cost = lower(l.Cost, task.MicroUSD(math.Round(min(q.Budget.USD, 1e9)*1e6)))
	return l
}

// lower is the smaller of two limits, of which 0 is none.
func lower[T ~int | ~int64](most, asked T) T {
	if asked == 0 || most != 0 && most < asked {
		return most
	}
	return asked
}

// Approve implements server.Tasks.
func (t apiTasks) Approve(ctx context.Context, id task.ID, who string) error {
	if _, err := t.a.Approve(ctx, id, who); err != nil {
		return err
	}
	if t.a.queue == nil {
		return nil
	}
	_, err := t.a.queue.store.Reissue(ctx, id, "approved by "+who)
	if c := task.ClassOf(err); c == task.Conflict || c == task.Invalid {
		return nil // it is on its way already
	}
	return err
}

// Approve keeps a person's word that the verified change of a task may be published; the next run
// takes it up. It is for the change that waits now, whose number of files is returned. Class
// Conflict when none does.
func (a *App) Approve(ctx context.Context, id task.ID, who string) (files int, err error) {
	if _, err := a.Store.Task(ctx, id); err != nil {
		return 0, err
	}
	events, err := a.Store.Events(ctx, id, 0, 0)
	if err != nil {
		return 0, err
	}
	sum, err := event.Fold(events)
	if err != nil {
		return 0, err
	}
	if !sum.Waits() {
		return 0, &task.Error{Class: task.Conflict, Msg: fmt.Sprintf("task %s has no change that waits for an approval: it is %s", id, sum.State)}
	}
	return sum.Held.Files, a.Store.Signal(ctx, store.Signal{ID: ulid.Make().String(), Task: id, Kind: store.Approve, Who: who, Text: sum.Held.Tree, At: a.Now()})
}

// View implements server.Tasks.
func (t apiTasks) View(ctx context.Context, id task.ID) (json.RawMessage, error) {
	if _, err := t.a.Store.Task(ctx, id); err != nil {
		return nil, err
	}
	res, err := worker.ResultOf(ctx, t.a.Store, id)
	if err != nil {
		return nil, err
	}
	return json.Marshal(res)
}

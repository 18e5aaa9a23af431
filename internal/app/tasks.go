package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/oklog/ulid/v2"

	"github.com/daybreak-agent/daybreak/internal/api"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/worker"
)

// desk implements api.Desk and web.Desk.
type desk struct {
	a      *App
	intake *worker.Worker
}

// Desk takes what people want of tasks.
func (a *App) Desk() api.Desk { return a.desk() }

func (a *App) desk() desk { return desk{a, a.Intake()} }

// Repository implements api.Desk.
func (t desk) Repository(repo string) (string, error) {
	named := repo
	if _, err := os.Stat(repo); err == nil {
		if repo, err = filepath.Abs(repo); err != nil {
			return "", err
		}
	}
	if !t.a.Config.Serve.Allows(repo) {
		return "", &task.Error{Class: task.Invalid, Msg: "the repository " + named + " is none that the API may name", Fix: "add it to serve.repos"}
	}
	return repo, nil
}

// Create implements api.Desk.
func (t desk) Create(ctx context.Context, q api.Request) (store.Task, bool, error) {
	cfg := t.a.Config
	name := q.Model
	if name == "" {
		name = cfg.Model
	}
	if _, err := t.a.Model(name); err != nil {
		return store.Task{}, false, err
	}
	key := ""
	if q.Key != "" {
		sum := sha256.Sum256([]byte(q.Repo + "\x00" + q.Key)) // a key of one repository says nothing about another's
		key = "api-" + hex.EncodeToString(sum[:16])
		switch old, err := t.a.Store.Tasks(ctx, store.Filter{Key: key, Limit: 1}); {
		case err != nil:
			return store.Task{}, false, err
		case len(old) > 0:
			return old[0], false, nil
		}
	}
	if err := t.room(ctx); err != nil {
		return store.Task{}, false, err
	}
	who := q.RequestedBy
	made, created, err := t.intake.Create(ctx, worker.Request{
		Attempts: cfg.Attempts,
		Repo:     q.Repo, Ref: q.Ref, Issue: []byte(q.Issue), Model: name, Limits: lowered(cfg.Budget.Limits(), q.Limits), RequestedBy: who,
		Settings: cfg.Digest(), Key: key, Author: who, Priority: q.Priority, Dispatch: true,
	})
	if err == nil && !created && !made.Dispatch && !made.State.Done() && made.Owner == "" && t.a.queue != nil {
		// A person began it at the command line and left it: from now on it is the scheduler's.
		_, err = t.a.queue.store.Reissue(ctx, made.ID, "asked for over the API by "+who)
		if task.ClassOf(err) == task.Conflict {
			err = nil // somebody works on it after all
		}
	}
	return made, created, err
}

// room refuses what would make the queue longer than it may be.
func (t desk) room(ctx context.Context) error {
	if t.a.queue == nil {
		return nil
	}
	all, err := t.a.queue.store.Unfinished(ctx)
	if err == nil && len(all) >= t.a.Config.Serve.Queue {
		return &task.Error{Class: task.Overloaded, Msg: "the queue is full", Fix: "ask again later, or raise serve.queue"}
	}
	return err
}

// lowered is the configured budget where the request does not ask for less.
func lowered(l, asked task.Limits) task.Limits {
	l.Steps = lower(l.Steps, asked.Steps)
	l.Tokens = lower(l.Tokens, asked.Tokens)
	l.Wall = lower(l.Wall, asked.Wall)
	l.Cost = lower(l.Cost, asked.Cost)
	return l
}

// lower is the smaller of two limits, of which 0 is none.
func lower[T ~int | ~int64](most, asked T) T {
	if asked == 0 || most != 0 && most < asked {
		return most
	}
	return asked
}

// Approve implements api.Desk.
func (t desk) Approve(ctx context.Context, id task.ID, who, tree string) error {
	if _, err := t.a.approve(ctx, id, who, tree); err != nil {
		return err
	}
	return t.again(ctx, id, "approved by "+who)
}

// again orders the next run of a task that rests.
func (t desk) again(ctx context.Context, id task.ID, why string) error {
	if t.a.queue == nil {
		return nil
	}
	_, err := t.a.queue.store.Reissue(ctx, id, why)
	if c := task.ClassOf(err); c == task.Conflict || c == task.Invalid {
		return nil // it is on its way already
	}
	return err
}

// Approve keeps a person's word that the verified change of a task may be published; the next run
// takes it up. It is for the change that waits now, whose number of files is returned. Class
// Conflict when none does.
func (a *App) Approve(ctx context.Context, id task.ID, who string) (files int, err error) {
	return a.approve(ctx, id, who, "")
}

// approve is for the tree that was looked at, or with "" for the one that waits.
func (a *App) approve(ctx context.Context, id task.ID, who, tree string) (files int, err error) {
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
	if tree != "" && tree != sum.Held.Tree {
		return 0, &task.Error{Class: task.Conflict, Msg: "another change waits by now than the one that was looked at", Fix: "look at it again"}
	}
	return sum.Held.Files, a.Store.Signal(ctx, store.Signal{ID: ulid.Make().String(), Task: id, Kind: store.Approve, Who: who, Text: sum.Held.Tree, At: a.Now()})
}

// Answer implements api.Desk.
func (t desk) Answer(ctx context.Context, id task.ID, who, text string) error {
	if err := t.a.Answer(ctx, id, who, text); err != nil {
		return err
	}
	return t.again(ctx, id, "answered by "+who)
}

// Result implements api.Desk.
func (t desk) Result(ctx context.Context, id task.ID) (json.RawMessage, error) {
	if _, err := t.a.Store.Task(ctx, id); err != nil {
		return nil, err
	}
	res, err := worker.ResultOf(ctx, t.a.Store, id)
	if err != nil {
		return nil, err
	}
	return json.Marshal(res)
}

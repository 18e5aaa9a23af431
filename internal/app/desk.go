package app

import (
	"context"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/policy"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/worker"
)

// live is a task that people can still say something to. Class Conflict for one that is over.
func (t desk) live(ctx context.Context, id task.ID) (store.Task, error) {
	row, err := t.a.Store.Task(ctx, id)
	if err == nil && row.State.Done() {
		return row, &task.Error{Class: task.Conflict, Msg: "the task is over: it is " + strings.ReplaceAll(string(row.State), "_", " ")}
	}
	return row, err
}

// Steer implements api.Desk. A task in review goes back to work with the words.
func (t desk) Steer(ctx context.Context, id task.ID, who, text string) error {
	row, err := t.a.Store.Task(ctx, id)
	if err != nil {
		return err
	}
	if row.State != task.InReview {
		if row, err = t.live(ctx, id); err != nil {
			return err
		}
	}
	if text, _ = policy.CleanText(text); strings.TrimSpace(text) == "" {
		return &task.Error{Class: task.Invalid, Msg: "there is nothing in it that the agent can read"}
	}
	s := store.Signal{ID: ulid.Make().String(), Task: id, Kind: store.Steer, Who: who, Text: text, At: t.a.Now()}
	if row.State == task.InReview {
		return t.follow(ctx, s)
	}
	answers, err := store.Say(ctx, t.a.Store, s)
	if err != nil || !answers {
		return err
	}
	return t.again(ctx, id, "answered by "+who)
}

// follow takes a task from review back to work, as a reviewer's comment on the forge does.
func (t desk) follow(ctx context.Context, s store.Signal) error {
	if t.a.queue == nil {
		return &task.Error{Class: task.Conflict, Msg: "the task is in review, and no service runs that would work on it", Fix: "start `daybreak serve`"}
	}
	l, err := t.a.Store.Acquire(ctx, s.Task, Owner()+":api", t.a.Config.Serve.Lease, nil)
	if err != nil {
		return err
	}
	err = t.back(ctx, l, s)
	if rerr := t.a.Store.Release(context.WithoutCancel(ctx), l); rerr != nil { // it ends by itself
		t.a.opts.Logger.WarnContext(ctx, "a lease is left to its end", "task", s.Task, "error", rerr)
	}
	if err != nil {
		return err
	}
	if err := t.again(ctx, s.Task, s.Who+" asked for a change"); err != nil {
		t.a.opts.Logger.WarnContext(ctx, "the next run is left to the reconciler", "task", s.Task, "error", err)
	}
	return nil
}

// back keeps the word and takes the task to work, while nobody else can move it: what is refused
// leaves no word behind.
func (t desk) back(ctx context.Context, l store.Lease, s store.Signal) error {
	row, err := t.a.Store.Task(ctx, s.Task)
	if err != nil {
		return err
	}
	if row.State != task.InReview {
		return &task.Error{Class: task.Conflict, Msg: "the task is in review no more: it is " + strings.ReplaceAll(string(row.State), "_", " ")}
	}
	d, err := event.New(event.StateChanged{From: task.InReview, To: task.Working, Reason: s.Who + " asked for a change"})
	if err != nil {
		return err
	}
	if err := t.a.Store.Signal(ctx, s); err != nil {
		return err
	}
	_, err = t.a.Store.Append(ctx, l, d)
	return err
}

// Stop implements api.Desk.
func (t desk) Stop(ctx context.Context, id task.ID, who, reason string) error {
	row, err := t.live(ctx, id)
	if err != nil {
		return err
	}
	reason, _ = policy.CleanText(reason)
	err = t.a.Store.Signal(ctx, store.Signal{ID: ulid.Make().String(), Task: id, Kind: store.Stop, Who: who, Text: reason, At: t.a.Now()})
	if err != nil || row.Owner != "" || !row.Dispatch {
		return err
	}
	return t.again(ctx, id, "stopped by "+who) // so that one that rests ends now
}

// Budget implements api.Desk.
func (t desk) Budget(ctx context.Context, id task.ID, who string, asked task.Limits) (task.Limits, error) {
	if _, err := t.a.Store.Task(ctx, id); err != nil {
		return task.Limits{}, err
	}
	l, again, err := store.Raise(ctx, t.a.Store, store.Raised{
		Task: id, Word: ulid.Make().String(), Who: who, Owner: Owner() + ":api", Asked: asked, Most: t.a.Config.Most.Limits(), At: t.a.Now(),
	})
	if err != nil || !again {
		return l, err
	}
	return l, t.again(ctx, id, who+" raised the budget")
}

// Retry implements api.Desk. The new task has the text that was authorised for the old one.
func (t desk) Retry(ctx context.Context, id task.ID, who string) (task.ID, error) {
	row, err := t.a.Store.Task(ctx, id)
	if err != nil {
		return "", err
	}
	if !row.State.Done() || row.State == task.InReview || row.State == task.Merged {
		return "", &task.Error{Class: task.Conflict, Msg: "only a task that came to no pull request can be tried again: it is " + strings.ReplaceAll(string(row.State), "_", " ")}
	}
	first, err := t.a.Store.Events(ctx, id, 0, 1)
	if err != nil {
		return "", err
	}
	sum, err := event.Fold(first)
	if err != nil {
		return "", err
	}
	c := sum.Created
	raw, err := store.Load(ctx, t.a.Store, c.IssueRaw)
	if err != nil {
		return "", err
	}
	if c.Origin == nil {
		if _, err := t.Repository(c.Repo); err != nil {
			return "", err
		}
	}
	if err := t.room(ctx); err != nil {
		return "", err
	}
	q := worker.Request{
		Attempts: t.a.Config.Attempts,
		Repo:     c.Repo, Ref: c.BaseRef, Issue: []byte(raw), Model: t.a.Config.Model, Limits: t.a.Config.Budget.Limits(), RequestedBy: who, Settings: t.a.Config.Digest(),
		Key: c.Key, Author: who, Priority: row.Priority, Dispatch: t.a.queue != nil,
	}
	if c.BaseRef == "HEAD" {
		q.Ref = ""
	}
	if q.Model == "" {
		q.Model = c.Model
	}
	if c.Origin != nil {
		o := *c.Origin
		o.Trigger, o.By = "retry", who
		q.Origin, q.Author = &o, o.Forge+":"+who
	}
	made, created, err := t.intake.Create(ctx, q)
	switch {
	case err != nil:
		return made.ID, err
	case !created && made.ID == id:
		return "", &task.Error{Class: task.Conflict, Msg: "the task cannot be begun anew"}
	}
	return made.ID, nil
}

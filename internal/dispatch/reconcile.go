package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// How long something may be odd before it is put right: an order that was taken up and has no
// lease yet is a claim on its way, a task without events may be running a long suite.
const (
	unclaimed = time.Minute
	silent    = 2 * time.Hour
)

// Reconcile looks at everything unfinished once and puts right what does not fit: tasks whose
// order is gone (a ghost: nobody would ever work on them), orders that were taken by a process
// that died before it claimed the task, and what runs left on this machine. Each repair is in
// the task's log and in the process's. Tasks that said nothing for hours are named.
func (d *Dispatcher) Reconcile(ctx context.Context) error {
	all, err := d.cfg.Store.Unfinished(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range all {
		if t.Owner != "" {
			if quiet := time.Since(t.Updated); quiet > silent {
				d.cfg.Logger.WarnContext(ctx, "a task has been silent for long", "task", t.ID, "owner", t.Owner, "for", quiet.Round(time.Minute))
			}
			continue
		}
		why := ""
		switch at, err := d.cfg.Engine.Standing(ctx, t.Job); {
		case err != nil:
			errs = append(errs, err)
			continue
		case !at.Live:
			why = "nobody was working on it and no run was ordered"
		case !at.Taken.IsZero() && time.Since(at.Taken) > unclaimed:
			why = "its order was taken up and never worked"
		default:
			waits, err := d.called(ctx, t)
			errs = append(errs, err)
			if !waits {
				continue
			}
			why = "a person's word waits for it"
		}
		r, err := d.cfg.Store.Reissue(ctx, t.ID, why)
		if c := task.ClassOf(err); c == task.Conflict || c == task.Invalid {
			continue // somebody was faster
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		d.cfg.Logger.WarnContext(ctx, "a task was ordered again", "task", t.ID, "why", why, "epoch", r.Epoch, "job", r.Job)
	}
	if d.cfg.Sweep != nil {
		removed, err := d.cfg.Sweep(ctx)
		errs = append(errs, err)
		for _, what := range removed {
			d.cfg.Logger.WarnContext(ctx, "something left behind was removed", "what", what)
		}
	}
	return errors.Join(errs...)
}

// call orders the next run of tasks that rest for long and have a person's word waiting.
func (d *Dispatcher) call(ctx context.Context) error {
	all, err := d.cfg.Store.Unfinished(ctx)
	if err != nil {
		return err
	}
	for _, t := range all {
		if t.Owner != "" || t.Job == 0 {
			continue
		}
		if waits, err := d.called(ctx, t); err != nil || !waits {
			if err != nil {
				return err
			}
			continue
		}
		const why = "a person's word waits for it"
		r, err := d.cfg.Store.Reissue(ctx, t.ID, why)
		if c := task.ClassOf(err); err != nil && c != task.Conflict && c != task.Invalid {
			return err
		}
		if err == nil {
			d.cfg.Logger.InfoContext(ctx, "a task was ordered again", "task", t.ID, "why", why, "epoch", r.Epoch, "job", r.Job)
		}
	}
	return nil
}

// called reports whether a task that rests for long has a person's word waiting that its next run
// takes up first of all. Words for the agent are none of these: they do not hurry a task whose
// provider is away. Nor is a word that only another rest takes up: runs would follow one another
// without an end, each leaving it there.
func (d *Dispatcher) called(ctx context.Context, t store.Dispatched) (bool, error) {
	if time.Until(t.Due) < time.Minute {
		return false, nil
	}
	in, err := d.cfg.Store.Signals(ctx, t.ID)
	return slices.ContainsFunc(in, func(s store.Signal) bool {
		switch s.Kind {
		case store.Stop, store.Budget:
			return true
		case store.Approve:
			return t.State == task.Publishing
		case store.Answer:
			return t.State == task.Working
		}
		return false
	}), err
}

package sqlite

import (
	"context"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Signal implements [store.Store]. A signal that arrives again under the same id is the same
// signal. A zero time means now. An unknown task is an error of class [task.NotFound].
func (s *Store) Signal(ctx context.Context, sig store.Signal) error {
	if sig.ID == "" || sig.Kind == "" {
		return failure(task.Invalid, "a signal needs an id and a kind")
	}
	return s.writeTask(ctx, "store signal", sig.Task, func(ctx context.Context) error {
		at := sig.At
		if at.IsZero() {
			at = s.now()
		}
		_, err := s.w.signal.ExecContext(ctx, sig.ID, string(sig.Task), sig.Kind, sig.Who, sig.Text, micros(at))
		if constraint(err) {
			return noTask(sig.Task)
		}
		return err
	})
}

// Signals implements [store.Store].
func (s *Store) Signals(ctx context.Context, id task.ID) ([]store.Signal, error) {
	rows, err := s.r.signals.QueryContext(ctx, string(id))
	if err != nil {
		return nil, s.explain("read signals", err)
	}
	defer rows.Close()
	var out []store.Signal
	for rows.Next() {
		var sig store.Signal
		var owner string
		var at int64
		if err := rows.Scan(&sig.ID, &owner, &sig.Kind, &sig.Who, &sig.Text, &at); err != nil {
			return nil, s.explain("read signals", err)
		}
		sig.Task, sig.At = task.ID(owner), fromMicros(at)
		out = append(out, sig)
	}
	return out, s.explain("read signals", rows.Err())
}

// TakeSignals implements [store.Store]. When one of the ids is unknown or taken already it
// fails with class [task.Conflict] and nothing is stored.
func (s *Store) TakeSignals(ctx context.Context, l store.Lease, ids []string, drafts ...event.Draft) ([]event.Event, error) {
	if len(drafts) == 0 {
		return nil, failure(task.Invalid, "a signal of %s is taken by an event, and there is none", l.Task)
	}
	var out []event.Event
	err := s.writeTask(ctx, "take signals", l.Task, func(ctx context.Context) error {
		h, err := s.held(ctx, l)
		if err != nil {
			return err
		}
		if out, err = s.append(ctx, h, drafts); err != nil {
			return err
		}
		for _, id := range ids {
			res, err := s.w.takeWord.ExecContext(ctx, out[0].Seq, id, string(l.Task))
			if err != nil {
				return err
			}
			if n, err := res.RowsAffected(); err != nil || n != 1 {
				return failure(task.Conflict, "signal %s of %s is not waiting", id, l.Task)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

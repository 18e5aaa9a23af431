package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

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
	at := sig.At
	if at.IsZero() {
		at = s.now()
	}
	return s.write(ctx, "store signal", sig.Task, func(ctx context.Context, tx pgx.Tx, _ bool) error {
		_, err := tx.Exec(ctx, `INSERT INTO signals (id, task, kind, who, text, at) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO NOTHING`,
			sig.ID, string(sig.Task), sig.Kind, []byte(sig.Who), []byte(sig.Text), micros(at))
		if is(err, foreignViolation) {
			return noTask(sig.Task)
		}
		return err
	})
}

// Signals implements [store.Store].
func (s *Store) Signals(ctx context.Context, id task.ID) (out []store.Signal, err error) {
	err = s.try(ctx, "read signals", func(ctx context.Context, _ bool) error {
		rows, err := s.pool.Query(ctx, `SELECT id, kind, who, text, at FROM signals WHERE task = $1 AND taken = 0 ORDER BY n`, string(id))
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.Signal, error) {
			sig := store.Signal{Task: id}
			var who, text []byte
			var at int64
			err := row.Scan(&sig.ID, &sig.Kind, &who, &text, &at)
			sig.Who, sig.Text, sig.At = string(who), string(text), fromMicros(at)
			return sig, err
		})
		return err
	})
	return out, err
}

// TakeSignals implements [store.Store]. When one of the ids is unknown or taken already it
// fails with class [task.Conflict] and nothing is stored.
func (s *Store) TakeSignals(ctx context.Context, l store.Lease, ids []string, drafts ...event.Draft) ([]event.Event, error) {
	if len(drafts) == 0 {
		return nil, failure(task.Invalid, "a signal of %s is taken by an event, and there is none", l.Task)
	}
	return s.add(ctx, "take signals", l, drafts, func(ctx context.Context, tx pgx.Tx, out []event.Event) error {
		for _, id := range ids {
			tag, err := tx.Exec(ctx, `UPDATE signals SET taken = $1 WHERE id = $2 AND task = $3 AND taken = 0`, out[0].Seq, id, string(l.Task))
			if err != nil {
				return err
			}
			if tag.RowsAffected() != 1 {
				return failure(task.Conflict, "signal %s of %s is not waiting", id, l.Task)
			}
		}
		return nil
	})
}

package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// head is where a task's log stands, read and locked by the transaction that appends to it.
type head struct {
	id    task.ID
	state task.State
	seq   int64
	hash  string
	epoch int64
	owner string
}

// lockHead reads the head and keeps others from changing it until tx ends.
func lockHead(ctx context.Context, tx pgx.Tx, id task.ID) (head, error) {
	h := head{id: id}
	var state string
	err := tx.QueryRow(ctx, `SELECT state, last_seq, last_hash, epoch, owner FROM tasks WHERE id = $1 FOR UPDATE`, string(id)).
		Scan(&state, &h.seq, &h.hash, &h.epoch, &h.owner)
	if none(err) {
		return h, noTask(id)
	}
	h.state = task.State(state)
	return h, err
}

// held is lockHead, and a check that the lease is the task's current one. An expired lease
// that nobody else took is still the only one that can write, so it is good.
func held(ctx context.Context, tx pgx.Tx, l store.Lease) (head, error) {
	h, err := lockHead(ctx, tx, l.Task)
	switch {
	case err != nil:
		return h, err
	case h.owner == "" && h.epoch == l.Epoch:
		return h, failure(task.Stale, "the lease of %s was released", l.Task)
	case h.epoch != l.Epoch || h.owner != l.Owner:
		return h, failure(task.Stale, "the lease of %s (epoch %d) was lost: epoch %d is now the newest", l.Task, l.Epoch, h.epoch)
	}
	return h, nil
}

// Append implements [store.Store].
func (s *Store) Append(ctx context.Context, l store.Lease, drafts ...event.Draft) ([]event.Event, error) {
	if len(drafts) == 0 {
		return nil, nil
	}
	return s.add(ctx, "append", l, drafts, nil)
}

// add appends under the lease and does what else belongs to the same transaction.
func (s *Store) add(ctx context.Context, what string, l store.Lease, drafts []event.Draft, also func(ctx context.Context, tx pgx.Tx, out []event.Event) error) ([]event.Event, error) {
	var out []event.Event
	err := s.write(ctx, what, l.Task, func(ctx context.Context, tx pgx.Tx, again bool) error {
		if stored, err := found(ctx, tx, again, out); stored || err != nil {
			return err
		}
		h, err := held(ctx, tx, l)
		if err != nil {
			return err
		}
		if out, err = s.append(ctx, tx, h, drafts); err != nil || also == nil {
			return err
		}
		return also(ctx, tx, out)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// found reports whether what an earlier attempt sealed was stored although its answer was lost.
func found(ctx context.Context, tx pgx.Tx, again bool, sealed []event.Event) (bool, error) {
	if !again || len(sealed) == 0 {
		return false, nil
	}
	last := sealed[len(sealed)-1]
	var there bool
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM events WHERE task = $1 AND seq = $2 AND hash = $3)`,
		string(last.Task), last.Seq, last.Hash).Scan(&there)
	return there, err
}

// append seals and inserts the drafts after h and moves the task's row along, in one round
// trip.
func (s *Store) append(ctx context.Context, tx pgx.Tx, h head, drafts []event.Draft) ([]event.Event, error) {
	now := s.now()
	was := h.state
	out := make([]event.Event, 0, len(drafts))
	var b pgx.Batch
	for _, d := range drafts {
		d, err := d.Canonical()
		if err != nil {
			return nil, err
		}
		if h.state, err = event.NextState(h.state, d); err != nil {
			return nil, err
		}
		e := event.Seal(h.id, h.seq+1, h.epoch, now, h.hash, d)
		b.Queue(`INSERT INTO events (task, seq, epoch, time, kind, version, payload, prev, hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			string(e.Task), e.Seq, e.Epoch, micros(e.Time), string(e.Kind), e.Version, []byte(e.Payload), e.Prev, e.Hash)
		h.seq, h.hash = e.Seq, e.Hash
		out = append(out, e)
	}
	b.Queue(`UPDATE tasks SET state = $1, done = $2, last_seq = $3, last_hash = $4, updated = $5 WHERE id = $6`,
		string(h.state), h.state.Done(), h.seq, h.hash, micros(now), string(h.id))
	err := tx.SendBatch(ctx, &b).Close()
	if is(err, uniqueViolation) && was.Done() {
		return nil, failure(task.Conflict, "task %s cannot go back to %s: another task works on the same issue", h.id, h.state)
	}
	return out, err
}

// Events implements [store.Store].
func (s *Store) Events(ctx context.Context, id task.ID, after int64, limit int) (out []event.Event, err error) {
	var most any // NULL: all
	if limit > 0 {
		most = limit
	}
	err = s.try(ctx, "read events", func(ctx context.Context, _ bool) error {
		rows, err := s.pool.Query(ctx, `SELECT task, seq, epoch, time, kind, version, payload, prev, hash FROM events
			WHERE task = $1 AND seq > $2 ORDER BY seq LIMIT $3`, string(id), after, most)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (event.Event, error) {
			var e event.Event
			var owner, kind string
			var at int64
			var payload []byte
			err := row.Scan(&owner, &e.Seq, &e.Epoch, &at, &kind, &e.Version, &payload, &e.Prev, &e.Hash)
			e.Task, e.Kind, e.Time, e.Payload = task.ID(owner), event.Kind(kind), fromMicros(at), payload
			return e, err
		})
		return err
	})
	return out, err
}

package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// head is where a task's log stands, read inside the transaction that appends to it.
type head struct {
	id    task.ID
	state task.State
	seq   int64
	hash  string
	epoch int64
}

// held reads the head and checks that the lease is the task's current one. An expired lease
// that nobody else took is still the only one that can write, so it is good.
func (s *Store) held(ctx context.Context, l store.Lease) (head, error) {
	h := head{id: l.Task}
	var state, owner string
	err := s.w.head.QueryRowContext(ctx, string(l.Task)).Scan(&state, &h.seq, &h.hash, &h.epoch, &owner)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return h, noTask(l.Task)
	case err != nil:
		return h, err
	case owner == "" && h.epoch == l.Epoch:
		return h, failure(task.Stale, "the lease of %s was released", l.Task)
	case h.epoch != l.Epoch || owner != l.Owner:
		return h, failure(task.Stale, "the lease of %s (epoch %d) was lost: epoch %d is now the newest", l.Task, l.Epoch, h.epoch)
	}
	h.state = task.State(state)
	return h, nil
}

// Append implements [store.Store].
func (s *Store) Append(ctx context.Context, l store.Lease, drafts ...event.Draft) ([]event.Event, error) {
	if len(drafts) == 0 {
		return nil, nil
	}
	var out []event.Event
	err := s.writeTask(ctx, "append", l.Task, func(ctx context.Context) error {
		h, err := s.held(ctx, l)
		if err != nil {
			return err
		}
		out, err = s.append(ctx, h, drafts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// append seals and inserts the drafts after h and moves the task's row along. It must run
// inside a transaction.
func (s *Store) append(ctx context.Context, h head, drafts []event.Draft) ([]event.Event, error) {
	now := s.now()
	was := h.state
	out := make([]event.Event, 0, len(drafts))
	for _, d := range drafts {
		d, err := d.Canonical()
		if err != nil {
			return nil, err
		}
		if h.state, err = event.NextState(h.state, d); err != nil {
			return nil, err
		}
		e := event.Seal(h.id, h.seq+1, h.epoch, now, h.hash, d)
		_, err = s.w.insertEvent.ExecContext(ctx, string(e.Task), e.Seq, e.Epoch, micros(e.Time),
			string(e.Kind), e.Version, []byte(e.Payload), e.Prev, e.Hash)
		if err != nil {
			return nil, err
		}
		h.seq, h.hash = e.Seq, e.Hash
		out = append(out, e)
	}
	_, err := s.w.advance.ExecContext(ctx, string(h.state), h.state.Done(), h.seq, h.hash, micros(now), string(h.id))
	if constraint(err) && was.Done() {
		return nil, failure(task.Conflict, "task %s cannot go back to %s: another task works on the same issue", h.id, h.state)
	}
	return out, err
}

// Events implements [store.Store].
func (s *Store) Events(ctx context.Context, id task.ID, after int64, limit int) ([]event.Event, error) {
	if limit <= 0 {
		limit = -1 // SQLite's word for all
	}
	rows, err := s.r.events.QueryContext(ctx, string(id), after, limit)
	if err != nil {
		return nil, s.explain("read events", err)
	}
	defer rows.Close()
	var out []event.Event
	for rows.Next() {
		var e event.Event
		var owner, kind string
		var at int64
		var payload []byte
		if err := rows.Scan(&owner, &e.Seq, &e.Epoch, &at, &kind, &e.Version, &payload, &e.Prev, &e.Hash); err != nil {
			return nil, s.explain("read events", err)
		}
		e.Task, e.Kind, e.Time, e.Payload = task.ID(owner), event.Kind(kind), fromMicros(at), payload
		out = append(out, e)
	}
	return out, s.explain("read events", rows.Err())
}

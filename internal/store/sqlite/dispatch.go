package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func errNoQueue() error {
	return &task.Error{Class: task.Invalid, Msg: "no scheduler runs on this database", Fix: "start it with: daybreak serve"}
}

// order puts the job in and notes it in the task's row. It must run inside a transaction.
func (s *Store) order(ctx context.Context, j store.Job) (int64, error) {
	id, err := s.queue.Insert(ctx, s.tx, j)
	if err != nil {
		return 0, err
	}
	_, err = s.w.setOrder.ExecContext(ctx, id, micros(s.now().Add(j.After)), string(j.Task))
	return id, err
}

// Claim implements [store.Dispatch].
func (s *Store) Claim(ctx context.Context, j store.Job, owner string, ttl time.Duration, c store.Caps) (store.Lease, error) {
	var l store.Lease
	err := s.writeTask(ctx, "claim", j.Task, func(ctx context.Context) error {
		t, err := s.scanTask(s.w.taskByID.QueryRowContext(ctx, string(j.Task)))
		if errors.Is(err, sql.ErrNoRows) {
			return noTask(j.Task)
		}
		if err != nil {
			return err
		}
		if t.Epoch != j.Epoch || t.Owner != "" {
			return failure(task.Stale, "the order to work on %s at epoch %d is out of date", j.Task, j.Epoch)
		}
		now := s.now()
		var total, repo, author int
		if err := s.w.running.QueryRowContext(ctx, t.Repo, t.Author, micros(now)).Scan(&total, &repo, &author); err != nil {
			return err
		}
		if !c.Allow(total, repo, author) {
			return store.ErrFull
		}
		l = store.Lease{Task: j.Task, Epoch: t.Epoch + 1, Owner: owner, Until: now.Add(ttl).UTC().Truncate(time.Microsecond)}
		return s.setLease(ctx, l)
	})
	return l, err
}

// Handover implements [store.Dispatch].
func (s *Store) Handover(ctx context.Context, l store.Lease, after time.Duration) error {
	return s.writeTask(ctx, "hand over", l.Task, func(ctx context.Context) error {
		h, err := s.held(ctx, l)
		if err != nil {
			return err
		}
		if err := s.setLease(ctx, store.Lease{Task: l.Task, Epoch: l.Epoch, Until: time.UnixMicro(0)}); err != nil {
			return err
		}
		if h.state.Done() {
			return nil
		}
		if s.queue == nil {
			return errNoQueue()
		}
		t, err := s.scanTask(s.w.taskByID.QueryRowContext(ctx, string(l.Task)))
		if err != nil {
			return err
		}
		_, err = s.order(ctx, store.Job{Task: l.Task, Epoch: l.Epoch, Priority: t.Priority, After: after})
		return err
	})
}

// Reap implements [store.Dispatch].
func (s *Store) Reap(ctx context.Context, dead func(string) bool) ([]store.Reissued, error) {
	rows, err := s.readDB.QueryContext(ctx, `SELECT id, owner, until, epoch FROM tasks WHERE owner <> '' AND dispatch = 1`)
	if err != nil {
		return nil, s.explain("look for lost leases", err)
	}
	defer rows.Close()
	var held []store.Lease
	for rows.Next() {
		var l store.Lease
		var id string
		var until int64
		if err := rows.Scan(&id, &l.Owner, &until, &l.Epoch); err != nil {
			return nil, s.explain("look for lost leases", err)
		}
		l.Task, l.Until = task.ID(id), fromMicros(until)
		held = append(held, l)
	}
	if err := rows.Err(); err != nil {
		return nil, s.explain("look for lost leases", err)
	}
	var out []store.Reissued
	for _, l := range held {
		late := s.now().Sub(l.Until)
		why := fmt.Sprintf("its worker %s did not renew the lease", l.Owner)
		if late < 0 {
			if dead == nil || !dead(l.Owner) {
				continue
			}
			late, why = 0, fmt.Sprintf("its worker %s is gone", l.Owner)
		}
		r, err := s.reissue(ctx, l.Task, why, func(held store.Lease) bool {
			return held == l // else it was renewed or given back meanwhile
		})
		if task.ClassOf(err) == task.Conflict {
			continue
		}
		if err != nil {
			return out, err
		}
		r.Late = late
		out = append(out, r)
	}
	return out, nil
}

// Reissue implements [store.Dispatch].
func (s *Store) Reissue(ctx context.Context, id task.ID, why string) (store.Reissued, error) {
	return s.reissue(ctx, id, why, func(held store.Lease) bool { return held.Owner == "" || !held.Until.After(s.now()) })
}

// reissue raises the epoch, replaces the order and records why, unless may says that the
// task is held. A task whose worker died right after the end gets a run as well: it signs the
// log and clears up.
func (s *Store) reissue(ctx context.Context, id task.ID, why string, may func(held store.Lease) bool) (store.Reissued, error) {
	r := store.Reissued{Task: id}
	if s.queue == nil {
		return r, errNoQueue()
	}
	err := s.writeTask(ctx, "order again", id, func(ctx context.Context) error {
		h, held, t := head{id: id}, store.Lease{Task: id}, store.Job{Task: id}
		var state string
		var until int64
		err := s.w.holder.QueryRowContext(ctx, string(id)).
			Scan(&state, &h.seq, &h.hash, &held.Epoch, &held.Owner, &until, &t.ID, &t.Priority)
		if errors.Is(err, sql.ErrNoRows) {
			return noTask(id)
		}
		if err != nil {
			return err
		}
		h.state, held.Until = task.State(state), fromMicros(until)
		switch {
		case !may(held):
			return failure(task.Conflict, "task %s is being worked on by %s", id, held.Owner)
		case h.state.Done() && held.Owner == "":
			return failure(task.Invalid, "task %s is %s: there is nothing left to do", id, h.state)
		}
		h.epoch = held.Epoch + 1
		r.Owner, r.Epoch = held.Owner, h.epoch
		if err := s.setLease(ctx, store.Lease{Task: id, Epoch: h.epoch, Until: time.UnixMicro(0)}); err != nil {
			return err
		}
		if t.ID != 0 {
			if err := s.queue.Cancel(ctx, s.tx, t.ID); err != nil {
				return err
			}
		}
		d, err := store.ReissuedDraft(held.Owner, held.Epoch, why)
		if err != nil {
			return err
		}
		if _, err := s.append(ctx, h, []event.Draft{d}); err != nil {
			return err
		}
		t.Epoch = h.epoch
		r.Job, err = s.order(ctx, t)
		return err
	})
	return r, err
}

// Waiting implements [store.Dispatch].
func (s *Store) Waiting(ctx context.Context, c store.Caps, limit int) ([]store.Job, error) {
	all, err := s.Unfinished(ctx)
	if err != nil {
		return nil, err
	}
	return store.Fairest(all, s.now(), c, limit), nil
}

// Unfinished implements [store.Dispatch].
func (s *Store) Unfinished(ctx context.Context) ([]store.Dispatched, error) {
	rows, err := s.readDB.QueryContext(ctx, `SELECT `+taskColumns+`, job, due FROM tasks WHERE dispatch = 1 AND done = 0 ORDER BY created, id`)
	if err != nil {
		return nil, s.explain("list unfinished tasks", err)
	}
	defer rows.Close()
	var out []store.Dispatched
	for rows.Next() {
		var d store.Dispatched
		var due int64
		if d.Task, err = s.scanTask(also{rows, []any{&d.Job, &due}}); err != nil {
			return nil, s.explain("list unfinished tasks", err)
		}
		d.Due = fromMicros(due)
		out = append(out, d)
	}
	return out, s.explain("list unfinished tasks", rows.Err())
}

// also scans more columns after those of a task.
type also struct {
	scanner
	last []any
}

func (a also) Scan(dest ...any) error { return a.scanner.Scan(append(dest, a.last...)...) }

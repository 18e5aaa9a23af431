package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// claims is the advisory lock under which caps are counted: two claims at once could both
// find the last free place.
const claims = 0x6461796272656b

func errNoQueue() error {
	return &task.Error{Class: task.Invalid, Msg: "no scheduler runs on this database", Fix: "start it with: daybreak serve"}
}

// order puts the job in and notes it in the task's row.
func (s *Store) order(ctx context.Context, tx pgx.Tx, j store.Job) (int64, error) {
	id, err := s.queue.Insert(ctx, tx, j)
	if err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, `UPDATE tasks SET job = $1, due = daybreak_now() + $2, dispatch = true WHERE id = $3`, id, j.After.Microseconds(), string(j.Task))
	return id, err
}

// Claim implements [store.Dispatch].
func (s *Store) Claim(ctx context.Context, j store.Job, owner string, ttl time.Duration, c store.Caps) (store.Lease, error) {
	l := store.Lease{Task: j.Task, Epoch: j.Epoch + 1, Owner: owner}
	err := s.write(ctx, "claim", j.Task, func(ctx context.Context, tx pgx.Tx, again bool) error {
		if c != (store.Caps{}) {
			if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(claims)); err != nil {
				return err
			}
		}
		t, err := lockTask(ctx, tx, j.Task)
		if err != nil {
			return err
		}
		if again && t.Owner == owner && t.Epoch == l.Epoch { // the answer was lost
			l.Until = t.Until
			return nil
		}
		if t.Epoch != j.Epoch || t.Owner != "" {
			return failure(task.Stale, "the order to work on %s at epoch %d is out of date", j.Task, j.Epoch)
		}
		var total, repo, author int
		err = tx.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE repo = $1), count(*) FILTER (WHERE author = $2) FROM tasks
			WHERE owner <> '' AND until > daybreak_now() AND dispatch`, []byte(t.Repo), []byte(t.Author)).Scan(&total, &repo, &author)
		if err != nil {
			return err
		}
		if !c.Allow(total, repo, author) {
			return store.ErrFull
		}
		l.Until, err = setLease(ctx, tx, l, ttl)
		return err
	})
	if err != nil {
		return store.Lease{}, err
	}
	return l, nil
}

// Handover implements [store.Dispatch].
func (s *Store) Handover(ctx context.Context, l store.Lease, after time.Duration) error {
	return s.write(ctx, "hand over", l.Task, func(ctx context.Context, tx pgx.Tx, again bool) error {
		h, err := held(ctx, tx, l)
		if again && h.owner == "" && h.epoch == l.Epoch { // the answer was lost
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := setLease(ctx, tx, store.Lease{Task: l.Task, Epoch: l.Epoch}, 0); err != nil || h.state.Done() {
			return err
		}
		if s.queue == nil {
			return errNoQueue()
		}
		j := store.Job{Task: l.Task, Epoch: l.Epoch, After: after}
		if err := tx.QueryRow(ctx, `SELECT priority FROM tasks WHERE id = $1`, string(l.Task)).Scan(&j.Priority); err != nil {
			return err
		}
		_, err = s.order(ctx, tx, j)
		return err
	})
}

// Reap implements [store.Dispatch].
func (s *Store) Reap(ctx context.Context, dead func(string) bool) ([]store.Reissued, error) {
	type lost struct {
		store.Lease
		late time.Duration
	}
	var all []lost
	err := s.try(ctx, "look for lost leases", func(ctx context.Context, _ bool) error {
		rows, err := s.pool.Query(ctx, `SELECT id, owner, until, epoch, daybreak_now() - until FROM tasks WHERE owner <> '' AND dispatch`)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (lost, error) {
			var l lost
			var id string
			var until, late int64
			err := row.Scan(&id, &l.Owner, &until, &l.Epoch, &late)
			l.Task, l.Until, l.late = task.ID(id), fromMicros(until), time.Duration(late)*time.Microsecond
			return l, err
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	var out []store.Reissued
	for _, l := range all {
		why := fmt.Sprintf("its worker %s did not renew the lease", l.Owner)
		if l.late < 0 {
			if dead == nil || !dead(l.Owner) {
				continue
			}
			l.late, why = 0, fmt.Sprintf("its worker %s is gone", l.Owner)
		}
		r, err := s.reissue(ctx, l.Task, why, func(held store.Lease, _ bool) bool {
			return held == l.Lease // else it was renewed or given back meanwhile
		})
		if task.ClassOf(err) == task.Conflict {
			continue
		}
		if err != nil {
			return out, err
		}
		r.Late = l.late
		out = append(out, r)
	}
	return out, nil
}

// Reissue implements [store.Dispatch].
func (s *Store) Reissue(ctx context.Context, id task.ID, why string) (store.Reissued, error) {
	return s.reissue(ctx, id, why, func(held store.Lease, over bool) bool { return held.Owner == "" || over })
}

// reissue raises the epoch, replaces the order and records why, unless may says that the
// task is held. A task whose worker died right after the end gets a run as well: it signs the
// log and clears up.
func (s *Store) reissue(ctx context.Context, id task.ID, why string, may func(held store.Lease, over bool) bool) (store.Reissued, error) {
	if s.queue == nil {
		return store.Reissued{Task: id}, errNoQueue()
	}
	var r store.Reissued
	err := s.write(ctx, "order again", id, func(ctx context.Context, tx pgx.Tx, _ bool) error {
		r = store.Reissued{Task: id}
		h, err := lockHead(ctx, tx, id)
		if err != nil {
			return err
		}
		held, j := store.Lease{Task: id, Owner: h.owner, Epoch: h.epoch}, store.Job{Task: id, Epoch: h.epoch + 1}
		var until int64
		var over bool
		err = tx.QueryRow(ctx, `SELECT until, until <= daybreak_now(), job, priority FROM tasks WHERE id = $1`, string(id)).Scan(&until, &over, &j.ID, &j.Priority)
		if err != nil {
			return err
		}
		held.Until = fromMicros(until)
		switch {
		case !may(held, over):
			return failure(task.Conflict, "task %s is being worked on by %s", id, held.Owner)
		case h.state.Done() && held.Owner == "":
			return failure(task.Invalid, "task %s is %s: there is nothing left to do", id, h.state)
		}
		h.epoch = j.Epoch
		r.Owner, r.Epoch = held.Owner, h.epoch
		if _, err := setLease(ctx, tx, store.Lease{Task: id, Epoch: h.epoch}, 0); err != nil {
			return err
		}
		if j.ID != 0 {
			if err := s.queue.Cancel(ctx, tx, j.ID); err != nil {
				return err
			}
		}
		d, err := store.ReissuedDraft(held.Owner, held.Epoch, why)
		if err != nil {
			return err
		}
		if _, err := s.append(ctx, tx, h, []event.Draft{d}); err != nil {
			return err
		}
		r.Job, err = s.order(ctx, tx, j)
		return err
	})
	return r, err
}

// Waiting implements [store.Dispatch].
func (s *Store) Waiting(ctx context.Context, c store.Caps, limit int) ([]store.Job, error) {
	all, now, err := s.unfinished(ctx)
	if err != nil {
		return nil, err
	}
	return store.Fairest(all, now, c, limit), nil
}

// Unfinished implements [store.Dispatch].
func (s *Store) Unfinished(ctx context.Context) ([]store.Dispatched, error) {
	all, _, err := s.unfinished(ctx)
	return all, err
}

func (s *Store) unfinished(ctx context.Context) (out []store.Dispatched, now time.Time, err error) {
	err = s.try(ctx, "list unfinished tasks", func(ctx context.Context, _ bool) error {
		rows, err := s.pool.Query(ctx, `SELECT `+taskColumns+`, job, due, daybreak_now() FROM tasks WHERE dispatch AND NOT done ORDER BY created, id`)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (d store.Dispatched, err error) {
			var due, at int64
			d.Task, err = scanTask(row, &d.Job, &due, &at)
			d.Due, now = fromMicros(due), fromMicros(at)
			return d, err
		})
		return err
	})
	return out, now, err
}

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// defaultLimit is the length of a listing whose filter names none.
const defaultLimit = 100

// Create implements [store.Store]. The first draft must be a task.created: the log is what
// the row's state folds from. ID, Key, Repo and Title are taken from t; the rest is the
// store's.
func (s *Store) Create(ctx context.Context, t store.Task, first []event.Draft) (store.Task, bool, error) {
	if !t.ID.Valid() {
		return store.Task{}, false, failure(task.Invalid, "task id %q is not valid", t.ID)
	}
	if len(first) == 0 || first[0].Kind != (event.TaskCreated{}).EventKind() {
		return store.Task{}, false, failure(task.Invalid, "the log of %s must begin with task.created", t.ID)
	}
	if t.Dispatch && s.queue == nil {
		return store.Task{}, false, errNoQueue()
	}
	if t.Priority == 0 {
		t.Priority = store.DefaultPriority
	}
	var got store.Task
	created := false
	err := s.writeTask(ctx, "create task", t.ID, func(ctx context.Context) error {
		var err error
		if t.Key != "" {
			got, err = s.scanTask(s.w.unfinished.QueryRowContext(ctx, t.Key))
			if err == nil || !errors.Is(err, sql.ErrNoRows) {
				return err
			}
		}
		now := micros(s.now())
		_, err = s.w.insertTask.ExecContext(ctx, string(t.ID), t.Key, t.Repo, t.Title, now, now, event.Genesis(t.ID),
			t.Dispatch, t.Author, t.Priority)
		if constraint(err) {
			return failure(task.Conflict, "task %s exists already", t.ID)
		}
		if err != nil {
			return err
		}
		if _, err := s.append(ctx, head{id: t.ID, hash: event.Genesis(t.ID)}, first); err != nil {
			return err
		}
		created = true
		if t.Dispatch {
			if _, err := s.order(ctx, store.Job{Task: t.ID, Priority: t.Priority}); err != nil {
				return err
			}
		}
		got, err = s.scanTask(s.w.taskByID.QueryRowContext(ctx, string(t.ID)))
		return err
	})
	if err != nil {
		return store.Task{}, false, err
	}
	return got, created, nil
}

// Task implements [store.Store].
func (s *Store) Task(ctx context.Context, id task.ID) (store.Task, error) {
	t, err := s.scanTask(s.r.task.QueryRowContext(ctx, string(id)))
	if errors.Is(err, sql.ErrNoRows) {
		return t, noTask(id)
	}
	return t, s.explain("read task", err)
}

// Tasks implements [store.Store].
func (s *Store) Tasks(ctx context.Context, f store.Filter) ([]store.Task, error) {
	var where []string
	var args []any
	if len(f.States) > 0 {
		marks := strings.TrimSuffix(strings.Repeat("?, ", len(f.States)), ", ")
		where = append(where, "state IN ("+marks+")")
		for _, st := range f.States {
			args = append(args, string(st))
		}
	}
	if f.Repo != "" {
		where, args = append(where, "repo = ?"), append(args, f.Repo)
	}
	if f.Key != "" {
		where, args = append(where, "key = ?"), append(args, f.Key)
	}
	if f.Author != "" {
		where, args = append(where, "author = ?"), append(args, f.Author)
	}
	if f.Before != "" {
		where, args = append(where, "(created, id) < (SELECT created, id FROM tasks WHERE id = ?)"), append(args, string(f.Before))
	}
	q := `SELECT ` + taskColumns + ` FROM tasks`
	if len(where) > 0 {
		q += ` WHERE ` + strings.Join(where, " AND ")
	}
	limit := f.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	rows, err := s.readDB.QueryContext(ctx, q+` ORDER BY created DESC, id DESC LIMIT ?`, append(args, limit)...)
	if err != nil {
		return nil, s.explain("list tasks", err)
	}
	defer rows.Close()
	var out []store.Task
	for rows.Next() {
		t, err := s.scanTask(rows)
		if err != nil {
			return nil, s.explain("list tasks", err)
		}
		out = append(out, t)
	}
	return out, s.explain("list tasks", rows.Err())
}

type scanner interface{ Scan(dest ...any) error }

// scanTask reads taskColumns. An expired or released lease has no owner.
func (s *Store) scanTask(row scanner) (store.Task, error) {
	var t store.Task
	var id, state string
	var created, updated, until int64
	err := row.Scan(&id, &t.Key, &state, &t.Repo, &t.Title, &created, &updated, &t.LastSeq, &t.Epoch, &t.Owner, &until,
		&t.Dispatch, &t.Author, &t.Priority)
	if err != nil {
		return store.Task{}, err
	}
	t.ID, t.State = task.ID(id), task.State(state)
	t.Created, t.Updated = fromMicros(created), fromMicros(updated)
	if t.Owner == "" || until <= micros(s.now()) {
		t.Owner = ""
		return t, nil
	}
	t.Until = fromMicros(until)
	return t, nil
}

// Acquire implements [store.Store]. dead is asked outside the transaction, about the owner
// that holds the lease; if the lease changed hands meanwhile the answer is not used.
func (s *Store) Acquire(ctx context.Context, id task.ID, owner string, ttl time.Duration, dead func(string) bool) (store.Lease, error) {
	if owner == "" || ttl <= 0 {
		return store.Lease{}, failure(task.Invalid, "a lease of %s needs an owner and a time to live", id)
	}
	seen, err := s.Task(ctx, id)
	if err != nil {
		return store.Lease{}, err
	}
	gone := seen.Owner != "" && dead != nil && dead(seen.Owner)
	var l store.Lease
	err = s.writeTask(ctx, "acquire lease", id, func(ctx context.Context) error {
		t, err := s.scanTask(s.w.taskByID.QueryRowContext(ctx, string(id)))
		if err != nil {
			return err
		}
		if t.Owner != "" && (!gone || t.Epoch != seen.Epoch) {
			return &task.Error{
				Class: task.Conflict,
				Msg:   "task " + string(id) + " is being worked on by " + t.Owner,
				Fix:   "wait for it, or stop it with: daybreak task stop " + string(id),
			}
		}
		until := s.now().Add(ttl).UTC().Truncate(time.Microsecond)
		l = store.Lease{Task: id, Epoch: t.Epoch + 1, Owner: owner, Until: until}
		return s.setLease(ctx, l)
	})
	if err != nil {
		return store.Lease{}, err
	}
	return l, nil
}

// Renew implements [store.Store]. A lease that expired and that nobody took is renewed.
func (s *Store) Renew(ctx context.Context, l store.Lease, ttl time.Duration) (store.Lease, error) {
	err := s.write(ctx, "renew lease", func(ctx context.Context) error {
		if _, err := s.held(ctx, l); err != nil {
			return err
		}
		l.Until = s.now().Add(ttl).UTC().Truncate(time.Microsecond)
		return s.setLease(ctx, l)
	})
	return l, err
}

// Release implements [store.Store]. It fails with class [task.Stale] when the lease is
// already another's; there is then nothing left to do.
func (s *Store) Release(ctx context.Context, l store.Lease) error {
	return s.writeTask(ctx, "release lease", l.Task, func(ctx context.Context) error {
		if _, err := s.held(ctx, l); err != nil {
			return err
		}
		return s.setLease(ctx, store.Lease{Task: l.Task, Epoch: l.Epoch, Until: time.UnixMicro(0)})
	})
}

func (s *Store) setLease(ctx context.Context, l store.Lease) error {
	_, err := s.w.setLease.ExecContext(ctx, l.Epoch, l.Owner, micros(l.Until), string(l.Task))
	return err
}

func noTask(id task.ID) error {
	return &task.Error{Class: task.NotFound, Msg: "no task " + string(id), Fix: "daybreak task ls shows them"}
}

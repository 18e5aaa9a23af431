package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// defaultLimit is the length of a listing whose filter names none.
const defaultLimit = 100

// The columns of a task. An expired or released lease has no owner.
const taskColumns = `id, key, state, repo, title, created, updated, last_seq, epoch,
	CASE WHEN until > daybreak_now() THEN owner ELSE '' END, until, dispatch, author, priority`

func scanTask(row pgx.Row, more ...any) (store.Task, error) {
	var t store.Task
	var id, state string
	var key, repo, title, author []byte
	var created, updated, until int64
	err := row.Scan(append([]any{
		&id, &key, &state, &repo, &title, &created, &updated, &t.LastSeq, &t.Epoch, &t.Owner, &until,
		&t.Dispatch, &author, &t.Priority,
	}, more...)...)
	if err != nil {
		return store.Task{}, err
	}
	t.ID, t.State = task.ID(id), task.State(state)
	t.Key, t.Repo, t.Title, t.Author = string(key), string(repo), string(title), string(author)
	t.Created, t.Updated = fromMicros(created), fromMicros(updated)
	if t.Owner != "" {
		t.Until = fromMicros(until)
	}
	return t, nil
}

// Create implements [store.Store]. The first draft must be a task.created: the log is what
// the row's state folds from. ID, Key, Repo, Title and what the scheduler needs are taken
// from t; the rest is the store's.
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
	var (
		got     store.Task
		created bool
		sealed  []event.Event
	)
	err := s.write(ctx, "create task", t.ID, func(ctx context.Context, tx pgx.Tx, again bool) error {
		stored, err := found(ctx, tx, again, sealed)
		if err != nil {
			return err
		}
		if !stored {
			if got, created, err = s.insert(ctx, tx, t); err != nil || !created {
				return err
			}
			if sealed, err = s.append(ctx, tx, head{id: t.ID, hash: event.Genesis(t.ID)}, first); err != nil {
				return err
			}
			if t.Dispatch {
				if _, err := s.order(ctx, tx, store.Job{Task: t.ID, Priority: t.Priority}); err != nil {
					return err
				}
			}
		}
		created = true
		got, err = scanTask(tx.QueryRow(ctx, `SELECT `+taskColumns+` FROM tasks WHERE id = $1`, string(t.ID)))
		return err
	})
	if err != nil {
		return store.Task{}, false, err
	}
	return got, created, nil
}

// insert makes the row, or returns the unfinished task of the same key. A transaction that
// makes one of the same key at this moment is waited for.
func (s *Store) insert(ctx context.Context, tx pgx.Tx, t store.Task) (store.Task, bool, error) {
	for {
		now := micros(s.now())
		tag, err := tx.Exec(ctx, `INSERT INTO tasks (id, key, state, done, repo, title, created, updated, last_seq, last_hash, dispatch, author, priority)
			VALUES ($1, $2, '', false, $3, $4, $5, $5, 0, $6, $7, $8, $9) ON CONFLICT (key) WHERE NOT done AND key <> '' DO NOTHING`,
			string(t.ID), []byte(t.Key), []byte(t.Repo), []byte(t.Title), now, event.Genesis(t.ID), t.Dispatch, []byte(t.Author), t.Priority)
		if is(err, uniqueViolation) {
			return store.Task{}, false, failure(task.Conflict, "task %s exists already", t.ID)
		}
		if err != nil || tag.RowsAffected() == 1 {
			return store.Task{}, true, err
		}
		got, err := scanTask(tx.QueryRow(ctx, `SELECT `+taskColumns+` FROM tasks WHERE key = $1 AND NOT done`, []byte(t.Key)))
		if !none(err) { // else it was finished between the two statements
			return got, false, err
		}
	}
}

// Task implements [store.Store].
func (s *Store) Task(ctx context.Context, id task.ID) (t store.Task, err error) {
	err = s.try(ctx, "read task", func(ctx context.Context, _ bool) error {
		t, err = scanTask(s.pool.QueryRow(ctx, `SELECT `+taskColumns+` FROM tasks WHERE id = $1`, string(id)))
		return err
	})
	if none(err) {
		return t, noTask(id)
	}
	return t, err
}

// Tasks implements [store.Store].
func (s *Store) Tasks(ctx context.Context, f store.Filter) (out []store.Task, err error) {
	var where []string
	var args []any
	add := func(condition string, arg any) {
		args = append(args, arg)
		where = append(where, fmt.Sprintf(condition, len(args)))
	}
	if len(f.States) > 0 {
		states := make([]string, len(f.States))
		for i, st := range f.States {
			states[i] = string(st)
		}
		add("state = ANY($%d)", states)
	}
	if f.Repo != "" {
		add("repo = $%d", []byte(f.Repo))
	}
	if f.Key != "" {
		add("key = $%d", []byte(f.Key))
	}
	if f.Author != "" {
		add("author = $%d", []byte(f.Author))
	}
	if f.Before != "" {
		add("(created, id) < (SELECT created, id FROM tasks WHERE id = $%d)", string(f.Before))
	}
	q := `SELECT ` + taskColumns + ` FROM tasks`
	if len(where) > 0 {
		q += ` WHERE ` + strings.Join(where, " AND ")
	}
	limit := f.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	args = append(args, limit)
	q += fmt.Sprintf(` ORDER BY created DESC, id DESC LIMIT $%d`, len(args))
	err = s.try(ctx, "list tasks", func(ctx context.Context, _ bool) error {
		rows, err := s.pool.Query(ctx, q, args...)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.Task, error) { return scanTask(row) })
		return err
	})
	return out, err
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
	err = s.write(ctx, "acquire lease", id, func(ctx context.Context, tx pgx.Tx, again bool) error {
		t, err := lockTask(ctx, tx, id)
		if err != nil {
			return err
		}
		if again && t.Owner == owner && t.Epoch == l.Epoch { // the answer was lost
			l.Until = t.Until
			return nil
		}
		if t.Owner != "" && (!gone || t.Epoch != seen.Epoch) {
			return &task.Error{
				Class: task.Conflict,
				Msg:   "task " + string(id) + " is being worked on by " + t.Owner,
				Fix:   "wait for it, or stop it with: daybreak task stop " + string(id),
			}
		}
		l = store.Lease{Task: id, Epoch: t.Epoch + 1, Owner: owner}
		l.Until, err = setLease(ctx, tx, l, ttl)
		return err
	})
	if err != nil {
		return store.Lease{}, err
	}
	return l, nil
}

func lockTask(ctx context.Context, tx pgx.Tx, id task.ID) (store.Task, error) {
	t, err := scanTask(tx.QueryRow(ctx, `SELECT `+taskColumns+` FROM tasks WHERE id = $1 FOR UPDATE`, string(id)))
	if none(err) {
		return t, noTask(id)
	}
	return t, err
}

// setLease writes a lease that lasts ttl from now by the server's clock. Without an owner it
// is over.
func setLease(ctx context.Context, tx pgx.Tx, l store.Lease, ttl time.Duration) (time.Time, error) {
	var until int64
	err := tx.QueryRow(ctx, `UPDATE tasks SET epoch = $1, owner = $2, until = CASE WHEN $2 = '' THEN 0 ELSE daybreak_now() + $3 END
		WHERE id = $4 RETURNING until`, l.Epoch, l.Owner, ttl.Microseconds(), string(l.Task)).Scan(&until)
	return fromMicros(until), err
}

// Renew implements [store.Store]. A lease that expired and that nobody took is renewed.
func (s *Store) Renew(ctx context.Context, l store.Lease, ttl time.Duration) (store.Lease, error) {
	err := s.write(ctx, "renew lease", "", func(ctx context.Context, tx pgx.Tx, _ bool) error {
		if _, err := held(ctx, tx, l); err != nil {
			return err
		}
		var err error
		l.Until, err = setLease(ctx, tx, l, ttl)
		return err
	})
	return l, err
}

// Release implements [store.Store]. It fails with class [task.Stale] when the lease is
// already another's; there is then nothing left to do.
func (s *Store) Release(ctx context.Context, l store.Lease) error {
	return s.write(ctx, "release lease", l.Task, func(ctx context.Context, tx pgx.Tx, again bool) error {
		h, err := held(ctx, tx, l)
		if again && h.owner == "" && h.epoch == l.Epoch { // the answer was lost
			return nil
		}
		if err != nil {
			return err
		}
		_, err = setLease(ctx, tx, store.Lease{Task: l.Task, Epoch: l.Epoch}, 0)
		return err
	})
}

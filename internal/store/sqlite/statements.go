package sqlite

import (
	"context"
	"database/sql"
	"io"
)

const taskColumns = `id, key, state, repo, title, created, updated, last_seq, epoch, owner, until, dispatch, author, priority`

const eventColumns = `task, seq, epoch, time, kind, version, payload, prev, hash`

// writeStatements are prepared once on the writing connection.
type writeStatements struct {
	head, insertEvent, advance          *sql.Stmt
	insertTask, unfinished, taskByID    *sql.Stmt
	setLease, putBlob, signal, takeWord *sql.Stmt
	holder, setOrder, running           *sql.Stmt
	shared, setShared                   *sql.Stmt
}

// readStatements are prepared on the reader pool.
type readStatements struct {
	task, events, blob, signals *sql.Stmt
}

type preparer interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

type statement struct {
	to    **sql.Stmt
	query string
}

// prepareAll prepares every statement and returns what closes them: SQLite folds the WAL
// back into the file only when a connection closes with none left.
func prepareAll(ctx context.Context, p preparer, all []statement) (closers []io.Closer, err error) {
	for _, st := range all {
		if *st.to, err = p.PrepareContext(ctx, st.query); err != nil {
			return closers, err
		}
		closers = append(closers, *st.to)
	}
	return closers, nil
}

func (w *writeStatements) prepare(ctx context.Context, p preparer) ([]io.Closer, error) {
	return prepareAll(ctx, p, []statement{
		{&w.head, `SELECT state, last_seq, last_hash, epoch, owner FROM tasks WHERE id = ?`},
		{&w.insertEvent, `INSERT INTO events (` + eventColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`},
		{&w.advance, `UPDATE tasks SET state = ?, done = ?, last_seq = ?, last_hash = ?, updated = ? WHERE id = ?`},
		{&w.insertTask, `INSERT INTO tasks (id, key, state, done, repo, title, created, updated, last_seq, last_hash, dispatch, author, priority)
			VALUES (?, ?, '', 0, ?, ?, ?, ?, 0, ?, ?, ?, ?)`},
		{&w.holder, `SELECT state, last_seq, last_hash, epoch, owner, until, job, priority FROM tasks WHERE id = ?`},
		{&w.setOrder, `UPDATE tasks SET job = ?, due = ?, dispatch = 1 WHERE id = ?`},
		{&w.running, `SELECT count(*), coalesce(sum(repo = ?), 0), coalesce(sum(author = ?), 0) FROM tasks
			WHERE owner <> '' AND until > ? AND dispatch = 1`},
		{&w.shared, `SELECT value FROM shared WHERE key = ?`},
		{&w.setShared, `INSERT INTO shared (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`},
		{&w.unfinished, `SELECT ` + taskColumns + ` FROM tasks WHERE key = ? AND done = 0 AND key <> ''`},
		{&w.taskByID, `SELECT ` + taskColumns + ` FROM tasks WHERE id = ?`},
		{&w.setLease, `UPDATE tasks SET epoch = ?, owner = ?, until = ? WHERE id = ?`},
		{&w.putBlob, `INSERT INTO blobs (digest, data) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING`},
		{&w.signal, `INSERT INTO signals (id, task, kind, who, text, at) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`},
		{&w.takeWord, `UPDATE signals SET taken = ? WHERE id = ? AND task = ? AND taken = 0`},
	})
}

func (r *readStatements) prepare(ctx context.Context, p preparer) ([]io.Closer, error) {
	return prepareAll(ctx, p, []statement{
		{&r.task, `SELECT ` + taskColumns + ` FROM tasks WHERE id = ?`},
		{&r.events, `SELECT ` + eventColumns + ` FROM events WHERE task = ? AND seq > ? ORDER BY seq LIMIT ?`},
		{&r.blob, `SELECT data FROM blobs WHERE digest = ?`},
		{&r.signals, `SELECT id, task, kind, who, text, at FROM signals WHERE task = ? AND taken = 0 ORDER BY n`},
	})
}

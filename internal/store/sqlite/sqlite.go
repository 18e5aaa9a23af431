// Package sqlite is the store on one SQLite file, for one machine.
//
// Invariants: every write is one immediate transaction and one fsync (WAL, synchronous=FULL),
// so what a method acknowledged survives a crash of the process or the machine; events are
// never changed or deleted, the schema itself refuses it; an append checks the lease's epoch
// in the transaction that writes. Several processes may open the same file: writers queue on
// SQLite's lock, readers never wait for a writer.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/wake"
	"github.com/daybreak-agent/daybreak/internal/task"

	sqlitedriver "modernc.org/sqlite"
)

// busyTimeout is how long a statement waits for another process's write lock.
const busyTimeout = 10 * time.Second

// readers is the size of the reader pool of one process.
const readers = 4

// Options are the store's dependencies. Zero values mean time.Now, no logging, and no
// scheduler.
type Options struct {
	Now    func() time.Time
	Logger *slog.Logger
	Queue  store.Queue[*sql.Tx] // its tables are in the same file
}

// Store implements [store.Store]. It is safe for concurrent use.
type Store struct {
	path  string
	now   func() time.Time
	log   *slog.Logger
	queue store.Queue[*sql.Tx]
	hub   wake.Hub
	poll  sync.Once // starts looking for what other processes change

	turn    chan struct{} // holds one token: the right to use writer
	closed  chan struct{} // closed by Close
	writer  *sql.Conn
	tx      *sql.Tx // the running one, of whoever has the turn
	writeDB *sql.DB
	readDB  *sql.DB
	w       writeStatements
	r       readStatements
	closers []io.Closer // of the statements
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Dispatch = (*Store)(nil)
)

// Open opens the file, creating it and its folder when missing, and brings its schema up to
// date. Its errors name the file: class [task.Invalid] for a file that is no Daybreak
// database or has a newer schema than this build knows, [task.Unavailable] for what the
// operator can repair (permissions, space), [task.Internal] for a damaged file.
func Open(ctx context.Context, path string, opts Options) (*Store, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("database path: %w", err)
	}
	s := &Store{path: abs, now: opts.Now, log: opts.Logger, queue: opts.Queue, turn: make(chan struct{}, 1), closed: make(chan struct{})}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := touch(abs); err != nil {
		return nil, err
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(s.explain("open", err), s.closeAll())
	}
	s.turn <- struct{}{}
	return s, nil
}

// touch creates a missing file readable by its owner alone, before SQLite would create it
// with wider permissions; the WAL files take over the mode. An existing file is not opened
// here: closing it would drop the POSIX locks that another Store of this process holds on it.
func touch(path string) error {
	fail := func(err error) error {
		return &task.Error{
			Class: task.Unavailable, Msg: "cannot use the database file", Err: err,
			Fix: "make its folder writable or choose another with --dir",
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fail(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fail(err)
	}
	return f.Close()
}

func (s *Store) open(ctx context.Context) error {
	var err error
	if s.writeDB, err = connect(s.path, "journal_mode(WAL)", "synchronous(FULL)", "recursive_triggers(1)"); err != nil {
		return err
	}
	s.writeDB.SetMaxOpenConns(1)
	if err := s.connected(ctx); err != nil {
		return err
	}
	if err := s.migrate(ctx); err != nil {
		return err
	}
	if s.writer, err = s.writeDB.Conn(ctx); err != nil {
		return err
	}
	// begin does the waiting; inside a transaction there is nothing left to wait for.
	if _, err := s.writer.ExecContext(ctx, "PRAGMA busy_timeout = 0"); err != nil {
		return err
	}
	if s.readDB, err = connect(s.path, "query_only(1)"); err != nil {
		return err
	}
	s.readDB.SetMaxOpenConns(readers + 1) // one of them watches
	s.readDB.SetMaxIdleConns(readers)
	ws, err := s.w.prepare(ctx, s.writer)
	s.closers = append(s.closers, ws...)
	if err != nil {
		return err
	}
	rs, err := s.r.prepare(ctx, s.readDB)
	s.closers = append(s.closers, rs...)
	return err
}

// connected makes the first connection. SQLite does not wait for others while a new file becomes one
// with a write-ahead log, whatever its busy timeout is.
func (s *Store) connected(ctx context.Context) error {
	for deadline := time.Now().Add(busyTimeout); ; {
		err := s.writeDB.PingContext(ctx)
		if err == nil || !busy(err) || !time.Now().Before(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond + rand.N(4*time.Millisecond)):
		}
	}
}

// Pool opens the file for the scheduler's queue: one connection, that queues for the file's
// lock as the store's own does.
func Pool(path string) (*sql.DB, error) {
	db, err := connect(path, "journal_mode(WAL)", "synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

func connect(path string, pragmas ...string) (*sql.DB, error) {
	// The driver runs the pragmas in this order; waiting for a lock must be on first.
	q := url.Values{"_txlock": []string{"immediate"}, "_pragma": append([]string{
		"busy_timeout(" + strconv.FormatInt(busyTimeout.Milliseconds(), 10) + ")", "foreign_keys(1)",
	}, pragmas...)}
	dsn := (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
	c, err := sqlitedriver.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}

// Close waits for a running write and closes the file. Later calls do nothing; a write after
// it is an error.
func (s *Store) Close() error {
	select {
	case <-s.turn: // never given back
		close(s.closed)
		return s.closeAll()
	case <-s.closed:
		return nil
	}
}

func (s *Store) closeAll() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c.Close())
	}
	if s.readDB != nil {
		errs = append(errs, s.readDB.Close())
	}
	if s.writer != nil {
		errs = append(errs, s.writer.Close())
	}
	if s.writeDB != nil {
		errs = append(errs, s.writeDB.Close())
	}
	return errors.Join(errs...)
}

// Check reads the whole file and reports damage (class [task.Internal]). It takes time in
// proportion to the file's size.
func (s *Store) Check(ctx context.Context) error {
	rows, err := s.readDB.QueryContext(ctx, "PRAGMA integrity_check(1)")
	if err != nil {
		return s.explain("check", err)
	}
	defer rows.Close()
	var found string
	for rows.Next() {
		if err := rows.Scan(&found); err != nil {
			return s.explain("check", err)
		}
	}
	if err := rows.Err(); err != nil {
		return s.explain("check", err)
	}
	if found != "ok" {
		return s.damaged(errors.New(found))
	}
	return nil
}

// write runs do in one immediate transaction on the only writing connection. Nothing of it
// is stored unless write returns nil. Once it has its turn it is not interrupted: it is a
// few statements, and a half-cancelled commit would leave the caller guessing.
func (s *Store) write(ctx context.Context, what string, do func(ctx context.Context) error) error {
	select {
	case <-s.turn:
		defer func() { s.turn <- struct{}{} }()
	case <-s.closed:
		return fmt.Errorf("%s: the database is closed", what)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	if err := s.begin(ctx, what); err != nil {
		return err
	}
	defer func() { s.tx = nil }()
	ctx = context.WithoutCancel(ctx)
	err := do(ctx)
	if err == nil {
		err = s.tx.Commit()
	} else if rerr := s.tx.Rollback(); rerr != nil {
		// SQLite has already rolled back after some errors (disk full); then this one fails too.
		s.log.Debug("rollback", "after", err, "error", rerr)
	}
	if err == nil {
		return nil
	}
	// A commit that failed leaves the transaction open.
	if _, rerr := s.writer.ExecContext(ctx, "ROLLBACK"); rerr != nil {
		s.log.Debug("rollback", "after", err, "error", rerr)
	}
	return s.explain(what, err)
}

// writeTask is write for what the watchers of a task want to know of.
func (s *Store) writeTask(ctx context.Context, what string, id task.ID, do func(ctx context.Context) error) error {
	err := s.write(ctx, what, do)
	if err == nil {
		s.hub.Tell(id)
	}
	return err
}

// begin waits for the file's write lock. It asks again every few milliseconds: SQLite's own
// waiting backs off to 100 ms and starves beside a process that writes all the time.
func (s *Store) begin(ctx context.Context, what string) error {
	for deadline := time.Now().Add(busyTimeout); ; {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		tx, err := s.writer.BeginTx(context.WithoutCancel(ctx), nil)
		s.tx = tx
		if err == nil || !busy(err) || !time.Now().Before(deadline) {
			return s.explain(what, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond/4 + rand.N(2*time.Millisecond)):
		}
	}
}

func micros(t time.Time) int64 { return t.UnixMicro() }

func fromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }

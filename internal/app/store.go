package app

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/dispatch"
	"github.com/daybreak-agent/daybreak/internal/dispatch/river"
	"github.com/daybreak-agent/daybreak/internal/store/postgres"
	"github.com/daybreak-agent/daybreak/internal/store/sqlite"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// How often a process looks for orders: a file cannot tell it, a server does.
const (
	pollFile   = 200 * time.Millisecond
	pollServer = time.Second
)

// queue is the scheduler's half of an opened store.
type queue struct {
	store  dispatch.Store
	engine dispatch.Engine
	pages  func(ctx context.Context, prefix string) (http.Handler, error)
	close  func() error
}

// openStore opens the configured store, with the scheduler's tables when o.Dispatch is set.
func (a *App) openStore(ctx context.Context, o Options) error {
	c := o.Config.Store
	if c.Engine == config.Postgres {
		dsn, err := c.DSN(o.Getenv)
		if err != nil {
			return err
		}
		return a.openPostgres(ctx, o, dsn)
	}
	path := filepath.Join(o.Dir, "daybreak.db")
	if !o.Dispatch {
		st, err := sqlite.Open(ctx, path, sqlite.Options{Now: o.Now, Logger: o.Logger})
		a.Store = st
		return err
	}
	unlock, err := own(filepath.Join(o.Dir, "serve.lock"))
	if err != nil {
		return err
	}
	fail := func(err error) error { return errors.Join(err, unlock()) }
	q, err := river.NewQueue[*sql.Tx](riversqlite.New(nil), o.Logger)
	if err != nil {
		return fail(err)
	}
	st, err := sqlite.Open(ctx, path, sqlite.Options{Now: o.Now, Logger: o.Logger, Queue: q})
	if err != nil {
		return fail(err)
	}
	db, err := sqlite.Pool(path)
	if err != nil {
		return fail(errors.Join(err, st.Close()))
	}
	driver := riversqlite.New(db)
	if err := river.Migrate(ctx, driver, o.Logger); err != nil {
		return fail(errors.Join(err, db.Close(), st.Close()))
	}
	a.Store = st
	engine := river.NewEngine(driver, pollFile, o.Logger)
	a.queue = &queue{st, engine, engine.Pages, func() error { return errors.Join(db.Close(), unlock()) }}
	return nil
}

func (a *App) openPostgres(ctx context.Context, o Options, dsn string) error {
	opts := postgres.Options{Now: o.Now, Logger: o.Logger}
	if o.Dispatch {
		q, err := river.NewQueue[pgx.Tx](riverpgxv5.New(nil), o.Logger)
		if err != nil {
			return err
		}
		opts.Queue = q
	}
	st, err := postgres.Open(ctx, dsn, opts)
	if err != nil {
		return err
	}
	a.Store = st
	if !o.Dispatch {
		return nil
	}
	driver := riverpgxv5.New(st.Pool())
	err = st.Alone(ctx, "queue tables", func(ctx context.Context) error { return river.Migrate(ctx, driver, o.Logger) })
	if err != nil {
		return errors.Join(err, st.Close())
	}
	engine := river.NewEngine(driver, pollServer, o.Logger)
	a.queue = &queue{st, engine, engine.Pages, func() error { return nil }}
	return nil
}

// passwordIn is the password of a database's address, "" when it has none.
func passwordIn(dsn string) string {
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		return ""
	}
	return c.Password
}

// own takes the lock that the one process has that schedules on a SQLite file. The lock dies
// with the process.
func own(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, &task.Error{Class: task.Unavailable, Msg: "cannot use the data directory", Err: err, Fix: "make it writable or choose another with --dir"}
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		b, _ := os.ReadFile(path)
		_ = f.Close()
		who := "another process"
		if pid := strings.TrimSpace(string(b)); pid != "" {
			who = "process " + pid
		}
		return nil, &task.Error{
			Class: task.Conflict, Msg: who + " serves this data directory, and one SQLite file has one owning process",
			Fix: "stop it, raise serve.workers there, or set store.engine to postgres for more processes",
		}
	}
	if err := errors.Join(f.Truncate(0), write(f)); err != nil {
		return nil, errors.Join(&task.Error{Class: task.Unavailable, Msg: "cannot write " + path, Err: err}, f.Close())
	}
	return f.Close, nil
}

func write(f *os.File) error {
	_, err := f.WriteString(strconv.Itoa(os.Getpid()) + "\n")
	return err
}

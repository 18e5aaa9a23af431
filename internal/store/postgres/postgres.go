// Package postgres is the store on a PostgreSQL server, for workers on many machines.
//
// Invariants: what a method acknowledged was committed, once: when the connection breaks, the
// method asks again until the server answers, and a commit whose answer was lost is found, not
// repeated; an append locks its task's row and checks the lease there, and a trigger refuses an
// event of another epoch than the newest; leases run by the server's clock, so that clocks of
// workers need not agree; events and blobs are never changed, the schema itself refuses it.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/wake"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// How long one attempt, and the pause after one that did not reach the server, may be.
const (
	attemptLimit = 30 * time.Second
	connectLimit = 5 * time.Second
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
)

// DefaultPatience is how long a method goes on asking a server that cannot be reached.
const DefaultPatience = 3 * time.Minute

// Options are the store's dependencies. Zero values mean time.Now, no logging, no scheduler,
// and [DefaultPatience].
type Options struct {
	Now      func() time.Time // of events; leases run by the server's clock
	Logger   *slog.Logger
	Queue    store.Queue[pgx.Tx]
	Patience time.Duration
}

// Store implements [store.Store] and [store.Dispatch]. It is safe for concurrent use.
type Store struct {
	pool     *pgxpool.Pool
	now      func() time.Time
	log      *slog.Logger
	queue    store.Queue[pgx.Tx]
	patience time.Duration

	hub    wake.Hub
	listen sync.Mutex
	heard  chan struct{} // of the listener, closed when it has ended; nil: not started
	stop   context.CancelFunc
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Dispatch = (*Store)(nil)
)

// idleLimit is how long the server lets one of our transactions wait for its next statement.
const idleLimit = 5 * time.Second

// Open connects to the server and brings the schema up to date. dsn is a URL or a keyword
// string as libpq takes them. Its errors never hold the password. Class [task.Invalid] for a
// dsn or a schema that this build does not know, [task.Unavailable] for a server that cannot
// be reached or refuses.
func Open(ctx context.Context, dsn string, opts Options) (*Store, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, &task.Error{Class: task.Invalid, Msg: "the address of the PostgreSQL store is not valid", Fix: "write postgres://user:password@host:5432/database"}
	}
	cfg.ConnConfig.ConnectTimeout = connectLimit
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "daybreak"
	}
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		// What was acknowledged must survive a crash of the server, whatever its default is.
		if _, err := c.Exec(ctx, `SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'`); err != nil {
			return err
		}
		// A process that stops between two statements must not keep its locks: the one that takes
		// over waits for them.
		_, err := c.Exec(ctx, `SELECT set_config('idle_in_transaction_session_timeout', $1, false)`, strconv.FormatInt(idleLimit.Milliseconds(), 10))
		return err
	}
	if cfg.MaxConns < 10 {
		cfg.MaxConns = 10
	}
	s := &Store{now: opts.Now, log: opts.Logger, queue: opts.Queue, patience: opts.Patience}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.patience <= 0 {
		s.patience = DefaultPatience
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, s.explain("connect", err)
	}
	reach, cancel := context.WithTimeout(ctx, 2*connectLimit)
	defer cancel()
	if err := s.pool.Ping(reach); err != nil {
		s.pool.Close()
		return nil, s.explain("connect", err)
	}
	if err := s.migrate(ctx); err != nil {
		s.pool.Close()
		return nil, s.explain("migrate", err)
	}
	return s, nil
}

// Pool is for the scheduler's queue, whose tables are in the same database. It is closed with
// the store.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Close ends the listener and the connections.
func (s *Store) Close() error {
	s.listen.Lock()
	defer s.listen.Unlock()
	if s.heard != nil {
		s.stop()
		<-s.heard
	}
	s.pool.Close()
	return nil
}

// try calls do until the server answers, the patience or ctx ends. A started attempt is not
// interrupted by ctx: a half-cancelled commit would leave the caller guessing. again tells do
// that an earlier attempt may have been stored.
func (s *Store) try(ctx context.Context, what string, do func(ctx context.Context, again bool) error) error {
	again, pause := false, firstPause
	for deadline := time.Now().Add(s.patience); ; {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptLimit)
		err := do(attempt, again)
		cancel()
		if err == nil || !unreachable(err) && !repeatable(err) || !time.Now().Before(deadline) {
			return s.explain(what, err)
		}
		if pause == firstPause {
			s.log.WarnContext(ctx, "the store does not answer; asking again", "what", what, "error", err)
		}
		again = true
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// write is try for one transaction, which tells the watchers of the task when it commits.
func (s *Store) write(ctx context.Context, what string, id task.ID, do func(ctx context.Context, tx pgx.Tx, again bool) error) error {
	return s.try(ctx, what, func(ctx context.Context, again bool) error {
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			if err := do(ctx, tx, again); err != nil {
				return err
			}
			if id == "" {
				return nil
			}
			_, err := tx.Exec(ctx, `SELECT pg_notify('`+channel+`', $1)`, string(id))
			return err
		})
	})
}

// Check reads nothing: damage is the server's to find. It reports whether the server answers.
func (s *Store) Check(ctx context.Context) error {
	return s.explain("check", s.pool.Ping(ctx))
}

func noTask(id task.ID) error {
	return &task.Error{Class: task.NotFound, Msg: "no task " + string(id), Fix: "daybreak task ls shows them"}
}

func failure(class task.Class, format string, args ...any) error {
	return &task.Error{Class: class, Msg: fmt.Sprintf(format, args...)}
}

func micros(t time.Time) int64 { return t.UnixMicro() }

func fromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }

func none(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

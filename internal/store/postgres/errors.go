package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// The SQLSTATE codes that decide what an error is; see the appendix "PostgreSQL Error Codes"
// of its manual.
const (
	uniqueViolation  = "23505"
	foreignViolation = "23503"
	diskFull         = "53100"
)

// explain gives a driver's error its class and says what to do. Errors that have a class
// already, and no rows, pass unchanged.
func (s *Store) explain(what string, err error) error {
	var known *task.Error
	var pg *pgconn.PgError
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, pgx.ErrNoRows):
		return err
	case unreachable(err):
		return &task.Error{
			Class: task.Unavailable, Msg: "PostgreSQL store: " + what + ": the server does not answer", Err: err,
			Fix: "check that it runs and can be reached from here",
		}
	case !errors.As(err, &pg):
		return fmt.Errorf("PostgreSQL store: %s: %w", what, err)
	}
	e := &task.Error{Class: task.Internal, Err: errors.New(pg.Message + " (SQLSTATE " + pg.Code + ")"), Msg: "PostgreSQL store: " + what}
	switch {
	case pg.Code == diskFull:
		e.Class, e.Msg = task.Unavailable, e.Msg+": the server's disk is full and nothing was stored"
		e.Fix = "free some space there"
	case strings.HasPrefix(pg.Code, "53"):
		e.Class, e.Fix = task.Unavailable, "give the server more of what it lacks (max_connections, memory)"
	case strings.HasPrefix(pg.Code, "28"), pg.Code == "3D000", pg.Code == "42501":
		e.Class, e.Fix = task.Unavailable, "check the user, its password and its rights on the database"
	case repeatable(err):
		e.Class = task.Transient
	case strings.HasPrefix(pg.Code, "XX"):
		e.Fix = "the database may be damaged; restore it from a backup"
	}
	return e
}

// unreachable reports whether the server was not there to answer, so that nobody knows
// whether it did what it was asked.
func unreachable(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		// connection exceptions; shutdown, crash recovery, starting up; a standby that took over
		return strings.HasPrefix(pg.Code, "08") || pg.Code == "57P01" || pg.Code == "57P02" || pg.Code == "57P03" || pg.Code == "25006"
	}
	var netErr net.Error
	var connErr *pgconn.ConnectError
	return errors.As(err, &connErr) || errors.As(err, &netErr) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, context.DeadlineExceeded) ||
		strings.Contains(err.Error(), "conn closed") // pgconn's own word has no type
}

// repeatable reports whether the server undid the transaction because of another one.
func repeatable(err error) bool {
	return is(err, "40001") || is(err, "40P01")
}

func is(err error, code string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == code
}

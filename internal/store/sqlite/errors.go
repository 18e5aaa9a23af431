package sqlite

import (
	"errors"
	"fmt"

	"github.com/daybreak-agent/daybreak/internal/task"

	sqlitedriver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// explain gives a driver's error its class and says what to do. Errors that have a class
// already pass unchanged.
func (s *Store) explain(what string, err error) error {
	var known *task.Error
	var e *sqlitedriver.Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case !errors.As(err, &e):
		return fmt.Errorf("database %s: %s: %w", s.path, what, err)
	}
	switch e.Code() & 0xff { // the primary code; the rest is detail
	case sqlite3.SQLITE_FULL:
		return &task.Error{
			Class: task.Unavailable, Err: err,
			Msg: fmt.Sprintf("database %s: %s: the disk is full and nothing was stored", s.path, what),
			Fix: "free some space there and run the command again",
		}
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return &task.Error{
			Class: task.Transient, Err: err,
			Msg: fmt.Sprintf("database %s: %s: another process held it for more than %s", s.path, what, busyTimeout),
		}
	case sqlite3.SQLITE_CORRUPT:
		return s.damaged(err)
	case sqlite3.SQLITE_NOTADB:
		return &task.Error{
			Class: task.Invalid, Err: err,
			Msg: fmt.Sprintf("%s is not a Daybreak database", s.path),
			Fix: "move the file away or choose another folder with --dir",
		}
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return &task.Error{
			Class: task.Unavailable, Err: err,
			Msg: fmt.Sprintf("database %s: %s", s.path, what),
			Fix: "check the disk, its free space and the permissions of the folder",
		}
	}
	return &task.Error{Class: task.Internal, Err: err, Msg: fmt.Sprintf("database %s: %s", s.path, what)}
}

func (s *Store) damaged(err error) error {
	return &task.Error{
		Class: task.Internal, Err: err,
		Msg: fmt.Sprintf("database %s is damaged", s.path),
		Fix: "restore it from a backup, or move it away to start with an empty one",
	}
}

// busy reports whether err is another process's lock.
func busy(err error) bool {
	var e *sqlitedriver.Error
	return errors.As(err, &e) && (e.Code()&0xff == sqlite3.SQLITE_BUSY || e.Code()&0xff == sqlite3.SQLITE_LOCKED)
}

// constraint reports whether err is a violated uniqueness or reference rule.
func constraint(err error) bool {
	var e *sqlitedriver.Error
	return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_CONSTRAINT
}

func failure(class task.Class, format string, args ...any) error {
	return &task.Error{Class: class, Msg: fmt.Sprintf(format, args...)}
}

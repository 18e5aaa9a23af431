package sqlite

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/daybreak-agent/daybreak/internal/task"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// versionTable holds the versions that were applied, one row each.
const versionTable = "daybreak_schema"

// migrate brings the schema up to date. A file lock keeps two processes that open a new file
// at once from both doing it; an up-to-date file takes no lock.
func (s *Store) migrate(ctx context.Context) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, s.writeDB, files,
		goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true), goose.WithSlog(s.log))
	if err != nil {
		return err
	}
	sources := p.ListSources()
	target := sources[len(sources)-1].Version
	switch current, err := s.schemaVersion(ctx); {
	case err != nil:
		return err
	case current == target:
		return nil
	case current > target:
		return &task.Error{
			Class: task.Invalid,
			Msg:   fmt.Sprintf("database %s has schema %d, newer than the %d this daybreak knows", s.path, current, target),
			Fix:   "use the newer daybreak, or choose another folder with --dir",
		}
	}
	unlock, err := lock(s.path + ".migrate")
	if err != nil {
		return err
	}
	defer unlock()
	done, err := p.Up(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	for _, m := range done {
		s.log.Info("database migrated", "path", s.path, "version", m.Source.Version, "took", m.Duration)
	}
	return nil
}

// schemaVersion returns 0 for an empty file and refuses another program's database.
func (s *Store) schemaVersion(ctx context.Context) (int64, error) {
	var ours, tables int64
	err := s.writeDB.QueryRowContext(ctx,
		`SELECT count(*) FILTER (WHERE name = ?), count(*) FROM sqlite_schema WHERE type = 'table'`,
		versionTable).Scan(&ours, &tables)
	if err != nil {
		return 0, err
	}
	if ours == 0 && tables > 0 {
		return 0, &task.Error{
			Class: task.Invalid,
			Msg:   fmt.Sprintf("%s is another program's database", s.path),
			Fix:   "choose another folder with --dir",
		}
	}
	if ours == 0 {
		return 0, nil
	}
	var v int64
	err = s.writeDB.QueryRowContext(ctx, `SELECT coalesce(max(version_id), 0) FROM `+versionTable).Scan(&v)
	return v, err
}

// lock takes an advisory lock that dies with the process.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

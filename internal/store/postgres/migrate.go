package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/daybreak-agent/daybreak/internal/task"
)

//go:embed migrations/*.sql
var migrations embed.FS

// versionTable holds the versions that were applied, one row each.
const versionTable = "daybreak_schema"

// migrate brings the schema up to date, under a lock that processes share.
func (s *Store) migrate(ctx context.Context) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return err
	}
	db := stdlib.OpenDBFromPool(s.pool)
	defer func() { _ = db.Close() }()
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithTableName(versionTable),
		goose.WithDisableGlobalRegistry(true), goose.WithSlog(s.log), goose.WithSessionLocker(locker))
	if err != nil {
		return err
	}
	sources := p.ListSources()
	target := sources[len(sources)-1].Version
	current, err := s.schemaVersion(ctx)
	switch {
	case err != nil:
		return err
	case current == target:
		return nil
	case current > target:
		return &task.Error{
			Class: task.Invalid, Msg: fmt.Sprintf("the PostgreSQL database has schema %d, newer than the %d this daybreak knows", current, target),
			Fix: "use the newer daybreak, or another database",
		}
	}
	done, err := p.Up(ctx)
	if err != nil {
		return err
	}
	for _, m := range done {
		s.log.InfoContext(ctx, "database migrated", "version", m.Source.Version, "took", m.Duration)
	}
	return nil
}

// schemaVersion returns 0 for a database that Daybreak has not used.
func (s *Store) schemaVersion(ctx context.Context) (v int64, err error) {
	var there bool
	if err := s.pool.QueryRow(ctx, `SELECT to_regclass('`+versionTable+`') IS NOT NULL`).Scan(&there); err != nil || !there {
		return 0, err
	}
	err = s.pool.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM `+versionTable).Scan(&v)
	return v, err
}

package postgres

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/postgres/pgtest"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func openAt(t testing.TB, dsn string, o Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), dsn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// outside runs SQL as a foreign program would, without the rules that protect the log.
func outside(t testing.TB, s *Store, query string, args ...any) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SET LOCAL session_replication_role = replica"); err != nil {
			return err
		}
		tag, err := tx.Exec(t.Context(), query, args...)
		if n := tag.RowsAffected(); err == nil && n != 1 {
			t.Fatalf("%s changed %d rows", query, n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOnOneServer is everything that does not stop the server, which takes longest to start.
func TestOnOneServer(t *testing.T) {
	srv := pgtest.Start(t)
	for _, tt := range []struct {
		name string
		run  func(*testing.T, *pgtest.Server)
	}{
		{"Store", testStore},
		{"Dispatch", testDispatch},
		{"SchemaRefuses", testSchemaRefuses},
		{"OpenRefuses", testOpenRefuses},
		{"OldDatabase", testOldDatabase},
		{"AwayTooLong", testAwayTooLong},
		{"CutAnywhere", testCutAnywhere},
		{"CreateCut", testCreateCut},
		{"ZombieProcess", testZombieProcess},
		{"StopsInTransaction", testStopsInTransaction},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, srv) })
	}
}

func testStore(t *testing.T, srv *pgtest.Server) {
	dsns := map[store.Store]string{}
	open := func(t *testing.T) store.Store {
		dsn := srv.Database(t)
		s := openAt(t, dsn, Options{})
		dsns[s] = dsn
		return s
	}
	storetest.Run(t, open, storetest.Hooks{
		Reopen: func(t *testing.T, st store.Store) store.Store {
			dsn := dsns[st]
			if err := st.Close(); err != nil {
				t.Fatal(err)
			}
			return openAt(t, dsn, Options{})
		},
		CorruptBlob: func(t *testing.T, st store.Store, digest string) {
			outside(t, st.(*Store), `UPDATE blobs SET data = '\x00' WHERE digest = $1`, digest)
		},
		CorruptEvent: func(t *testing.T, st store.Store, id task.ID, seq int64) {
			outside(t, st.(*Store), `UPDATE events SET payload = '\x7b7d' WHERE task = $1 AND seq = $2`, string(id), seq)
		},
	})
}

// testSchemaRefuses: the database itself keeps the past, and an event of a stale epoch out.
func testSchemaRefuses(t *testing.T, srv *pgtest.Server) {
	s := openAt(t, srv.Database(t), Options{})
	id := storetest.New(t, s, 1)
	storetest.Lease(t, s, id) // epoch 1
	if _, err := s.PutBlob(t.Context(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{
		`UPDATE events SET payload = '\x7b7d'`, `DELETE FROM events`, `TRUNCATE events CASCADE`, `UPDATE blobs SET data = ''`, `DELETE FROM tasks`,
		`INSERT INTO events SELECT task, seq + 1, 0, time, kind, version, payload, prev, hash FROM events`,
	} {
		if _, err := s.pool.Exec(t.Context(), q); err == nil {
			t.Errorf("%s went through", q)
		}
	}
	storetest.Log(t, s, id)
}

func testOpenRefuses(t *testing.T, srv *pgtest.Server) {
	newer := srv.Database(t)
	s := openAt(t, newer, Options{})
	if _, err := s.pool.Exec(t.Context(), `INSERT INTO `+versionTable+` (version_id, is_applied) VALUES (9999, true)`); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, dsn string
		class     task.Class
		says      string
	}{
		{"nonsense", "postgres://user:hunter2@%zz/", task.Invalid, "postgres://"},
		{"nobody there", "postgres://user:hunter2@127.0.0.1:1/db", task.Unavailable, "does not answer"},
		{"no such database", srv.DSN("nowhere"), task.Unavailable, "check the user"},
		{"a newer schema", newer, task.Invalid, "schema 9999, newer than the"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Open(t.Context(), tt.dsn, Options{})
			if err == nil {
				s.Close()
				t.Fatal("it was opened")
			}
			if task.ClassOf(err) != tt.class || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "hunter2") {
				t.Fatalf("class %s, want %s saying %q: %v", task.ClassOf(err), tt.class, tt.says, err)
			}
		})
	}
}

// testOldDatabase: what was kept before deliveries were claimed is acted upon after the migration.
func testOldDatabase(t *testing.T, srv *pgtest.Server) {
	dsn := srv.Database(t)
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.UpTo(t.Context(), 3)
	if err == nil {
		_, err = db.ExecContext(t.Context(), `INSERT INTO deliveries (forge, id, body, at) VALUES ('hub', '1', 'x', 1)`)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, dsn, Options{})
	if d, ok, err := s.TakeUp(t.Context(), "hub", "me", time.Minute); err != nil || !ok || string(d.Body) != "x" {
		t.Errorf("%+v %v %v", d, ok, err)
	}
}

// jobs keeps orders in a table of the same database.
type jobs struct{}

func (jobs) Insert(ctx context.Context, tx pgx.Tx, j store.Job) (id int64, err error) {
	err = tx.QueryRow(ctx, `INSERT INTO test_jobs (task, epoch, priority) VALUES ($1, $2, $3) RETURNING id`, string(j.Task), j.Epoch, j.Priority).Scan(&id)
	return id, err
}

func (jobs) Cancel(ctx context.Context, tx pgx.Tx, id int64) error {
	_, err := tx.Exec(ctx, `DELETE FROM test_jobs WHERE id = $1`, id)
	return err
}

func testDispatch(t *testing.T, srv *pgtest.Server) {
	storetest.RunDispatch(t, func(t *testing.T) (storetest.Scheduled, storetest.Orders) {
		s := openAt(t, srv.Database(t), Options{Queue: jobs{}})
		if _, err := s.pool.Exec(t.Context(), `CREATE TABLE test_jobs (id bigint GENERATED ALWAYS AS IDENTITY, task text, epoch bigint, priority int)`); err != nil {
			t.Fatal(err)
		}
		return s, func(t *testing.T) []store.Job {
			rows, err := s.pool.Query(t.Context(), `SELECT id, task, epoch, priority FROM test_jobs ORDER BY id`)
			if err != nil {
				t.Fatal(err)
			}
			out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
				ID       int64
				Task     task.ID
				Epoch    int64
				Priority int
			}])
			if err != nil {
				t.Fatal(err)
			}
			var all []store.Job
			for _, r := range out {
				all = append(all, store.Job{ID: r.ID, Task: r.Task, Epoch: r.Epoch, Priority: r.Priority})
			}
			return all
		}
	})
}

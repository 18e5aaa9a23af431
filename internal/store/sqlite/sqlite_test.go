package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func openAt(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(context.Background(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openNew(t testing.TB) *Store {
	t.Helper()
	s := openAt(t, filepath.Join(t.TempDir(), "daybreak.db"))
	t.Cleanup(func() { s.Close() })
	return s
}

// outside runs SQL on the file as a foreign program would, without the rules that protect
// the log from ordinary statements.
func outside(t testing.TB, s *Store, query string, args ...any) {
	t.Helper()
	db, err := connect(s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, name := range []string{"events_are_not_changed", "events_are_not_deleted", "blobs_are_not_changed"} {
		if _, err := db.ExecContext(t.Context(), "DROP TRIGGER IF EXISTS "+name); err != nil {
			t.Fatal(err)
		}
	}
	res, err := db.ExecContext(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := res.RowsAffected(); n != 1 {
		t.Fatalf("%s changed %d rows", query, n)
	}
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return openNew(t) }, storetest.Hooks{
		Reopen: func(t *testing.T, st store.Store) store.Store {
			s := st.(*Store)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			again := openAt(t, s.path)
			t.Cleanup(func() { again.Close() })
			return again
		},
		CorruptBlob: func(t *testing.T, st store.Store, digest string) {
			outside(t, st.(*Store), `UPDATE blobs SET data = x'00' WHERE digest = ?`, digest)
		},
		CorruptEvent: func(t *testing.T, st store.Store, id task.ID, seq int64) {
			outside(t, st.(*Store), `UPDATE events SET payload = x'7b7d' WHERE task = ? AND seq = ?`, string(id), seq)
		},
	})
}

// TestDurability: what the promise of an acknowledged append rests on.
func TestDurability(t *testing.T) {
	s := openNew(t)
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1"} {
		var got string
		if err := s.writer.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
			t.Errorf("writer's %s is %q, want %q (%v)", pragma, got, want, err)
		}
	}
	if _, err := s.readDB.ExecContext(t.Context(), "DELETE FROM signals"); err == nil {
		t.Error("a reading connection can write")
	}
}

func TestClosed(t *testing.T) {
	s := openNew(t)
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutBlob(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Fatalf("write: %v", err)
	}
	if _, err := s.Task(t.Context(), storetest.ID(1)); err == nil {
		t.Fatal("read went through")
	}
}

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		appendForever(path)
	}
	os.Exit(m.Run())
}

// jobs keeps orders in a table of the same file.
type jobs struct{}

func (jobs) Insert(ctx context.Context, tx *sql.Tx, j store.Job) (int64, error) {
	res, err := tx.ExecContext(ctx, `INSERT INTO test_jobs (task, epoch, priority) VALUES (?, ?, ?)`, string(j.Task), j.Epoch, j.Priority)
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

func (jobs) Cancel(ctx context.Context, tx *sql.Tx, id int64) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM test_jobs WHERE id = ?`, id)
	return err
}

func TestDispatch(t *testing.T) {
	storetest.RunDispatch(t, func(t *testing.T) (storetest.Scheduled, storetest.Orders) {
		s, err := Open(t.Context(), filepath.Join(t.TempDir(), "daybreak.db"), Options{Queue: jobs{}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		if _, err := s.writer.ExecContext(t.Context(), `CREATE TABLE test_jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, task TEXT, epoch INTEGER, priority INTEGER)`); err != nil {
			t.Fatal(err)
		}
		return s, func(t *testing.T) []store.Job {
			rows, err := s.readDB.QueryContext(t.Context(), `SELECT id, task, epoch, priority FROM test_jobs ORDER BY id`)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			var out []store.Job
			for rows.Next() {
				var j store.Job
				if err := rows.Scan(&j.ID, &j.Task, &j.Epoch, &j.Priority); err != nil {
					t.Fatal(err)
				}
				out = append(out, j)
			}
			return out
		}
	})
}

// TestStaleEpochIsRefusedByTheFile: not only this package's code keeps a stale epoch out.
func TestStaleEpochIsRefusedByTheFile(t *testing.T) {
	s := openNew(t)
	id := storetest.New(t, s, 1)
	storetest.Lease(t, s, id) // epoch 1
	_, err := s.writer.ExecContext(t.Context(), `INSERT INTO events SELECT task, seq + 1, 0, time, kind, version, payload, prev, hash FROM events`)
	if err == nil || !strings.Contains(err.Error(), "not the newest") {
		t.Fatalf("an event of epoch 0 went in: %v", err)
	}
}

// TestOldDatabase: what was kept before deliveries were claimed is acted upon after the migration.
func TestOldDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daybreak.db")
	db, err := connect(path)
	if err != nil {
		t.Fatal(err)
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.UpTo(t.Context(), 4)
	if err == nil {
		_, err = db.ExecContext(t.Context(), `INSERT INTO deliveries (forge, id, body, at) VALUES ('hub', '1', x'78', 1)`)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, path)
	defer s.Close()
	if d, ok, err := s.TakeUp(t.Context(), "hub", "me", time.Minute); err != nil || !ok || string(d.Body) != "x" {
		t.Errorf("%+v %v %v", d, ok, err)
	}
}

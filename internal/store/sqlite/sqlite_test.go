package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"testing"

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
	t.Cleanup(func() {
		select {
		case <-s.turn: // else the test closed it
			s.closeAll()
		default:
		}
	})
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

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		appendForever(path)
	}
	os.Exit(m.Run())
}

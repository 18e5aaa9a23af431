package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func big(t *testing.T) event.Draft {
	return storetest.Draft(t, event.Noticed{Text: strings.Repeat("x", 64<<10)})
}

// fill appends until the store refuses, checks the refusal, and returns what is in the log.
func fill(t *testing.T, s *Store, l store.Lease) int {
	t.Helper()
	for range 1000 {
		before := len(storetest.Log(t, s, l.Task))
		_, err := s.Append(t.Context(), l, big(t), big(t))
		if err == nil {
			continue
		}
		var e *task.Error
		if !errors.As(err, &e) || e.Class != task.Unavailable || e.Fix == "" {
			t.Fatalf("full disk: %v", err)
		}
		if strings.Contains(err.Error(), "\n") {
			t.Fatalf("not one line: %v", err)
		}
		if after := len(storetest.Log(t, s, l.Task)); after != before {
			t.Fatalf("a refused append stored %d events", after-before)
		}
		return before
	}
	t.Fatal("the disk was never full")
	return 0
}

// TestFull uses SQLite's own page limit: it needs no privilege.
func TestFull_LOG03(t *testing.T) {
	s := openNew(t)
	id := storetest.New(t, s, 1)
	l := storetest.Lease(t, s, id)
	if _, err := s.writer.ExecContext(t.Context(), "PRAGMA max_page_count = 300"); err != nil {
		t.Fatal(err)
	}
	n := fill(t, s, l)
	if _, err := s.PutBlob(t.Context(), make([]byte, 2<<20)); task.ClassOf(err) != task.Unavailable {
		t.Fatalf("blob on a full disk: %v", err)
	}
	if _, err := s.writer.ExecContext(t.Context(), "PRAGMA max_page_count = 100000"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), l, big(t)); err != nil {
		t.Fatalf("after space was freed: %v", err)
	}
	if got := len(storetest.Log(t, s, id)); got != n+1 {
		t.Fatalf("%d events, want %d", got, n+1)
	}
}

// TestFullFileSystem_LOG03 fills a real one, reopens the log beside no free byte, frees space and
// goes on.
func TestFullFileSystem_LOG03(t *testing.T) {
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("mounting a small file system needs root")
		}
		t.Skip("mounting a small file system needs root")
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("mount a small tmpfs: %v", err)
		}
		t.Skipf("mount a small tmpfs: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, filepath.Join(dir, "daybreak.db"))
	id := storetest.New(t, s, 1)
	l := storetest.Lease(t, s, id)
	n := fill(t, s, l)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), l, storetest.Draft(t, event.Noticed{})); err != nil {
		t.Fatalf("after space was freed: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, s.path)
	defer s.Close()
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(storetest.Log(t, s, id)); got != n+1 {
		t.Fatalf("%d events, want %d", got, n+1)
	}
}

func TestOpenRefuses(t *testing.T) {
	known, err := migrations.ReadDir("migrations")
	if err != nil {
		t.Fatal(err)
	}
	made := func(t *testing.T, change func(t *testing.T, db *sql.DB)) string {
		s := openNew(t)
		db, err := connect(s.path)
		if err != nil {
			t.Fatal(err)
		}
		change(t, db)
		if err := errors.Join(db.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
		return s.path
	}
	exec := func(query string) func(*testing.T, *sql.DB) {
		return func(t *testing.T, db *sql.DB) {
			if _, err := db.ExecContext(t.Context(), query); err != nil {
				t.Fatal(err)
			}
		}
	}
	file := func(t *testing.T, content string) string {
		path := filepath.Join(t.TempDir(), "file.db")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tests := []struct {
		name  string
		path  func(t *testing.T) string
		class task.Class
		says  string
	}{
		{
			"a text file", func(t *testing.T) string { return file(t, strings.Repeat("not a database\n", 100)) },
			task.Invalid, "is not a Daybreak database",
		},
		{"another program's database", func(t *testing.T) string {
			path := file(t, "")
			db, err := connect(path)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			exec("CREATE TABLE songs (title TEXT)")(t, db)
			return path
		}, task.Invalid, "another program's database"},
		{"a newer schema", func(t *testing.T) string {
			return made(t, exec("INSERT INTO "+versionTable+" (version_id, is_applied) VALUES (9999, 1)"))
		}, task.Invalid, fmt.Sprintf("schema 9999, newer than the %d this daybreak knows; use the newer daybreak", len(known))},
		{"a damaged first page", func(t *testing.T) string {
			path := made(t, func(*testing.T, *sql.DB) {})
			overwrite(t, path, 100, 3000)
			return path
		}, task.Internal, "; restore it from a backup"},
		{
			"a folder in its place", func(t *testing.T) string { return t.TempDir() },
			task.Unavailable, "check the disk",
		},
		{
			"a file where its folder should be", func(t *testing.T) string { return filepath.Join(file(t, "x"), "daybreak.db") },
			task.Unavailable, "make its folder writable",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := tt.path(t)
			s, err := Open(t.Context(), path, Options{})
			if err == nil {
				s.Close()
				t.Fatal("it was opened")
			}
			if task.ClassOf(err) != tt.class || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("class %s, want %s saying %q: %v", task.ClassOf(err), tt.class, tt.says, err)
			}
			if !strings.Contains(err.Error(), path) && !strings.Contains(err.Error(), filepath.Dir(path)) {
				t.Fatalf("the file is not named: %v", err)
			}
		})
	}
}

func overwrite(t *testing.T, path string, from int64, n int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(strings.Repeat("\xa5", n)), from); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedLater: a file that opens and is damaged further in is reported by Check and by
// the read that meets it, never answered with wrong data.
func TestDamagedLater(t *testing.T) {
	s := openNew(t)
	id := storetest.New(t, s, 1)
	l := storetest.Lease(t, s, id)
	for range 20 {
		if _, err := s.Append(t.Context(), l, big(t)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.path + "-wal"); err == nil {
		t.Fatal("Close left the WAL beside the file")
	}
	info, err := os.Stat(s.path)
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, s.path, info.Size()/2, int(info.Size()/4))
	s = openAt(t, s.path)
	defer s.Close()
	if err := s.Check(t.Context()); task.ClassOf(err) != task.Internal || !strings.Contains(err.Error(), "is damaged") {
		t.Fatalf("check: %v", err)
	}
	events, err := s.Events(t.Context(), id, 0, 0)
	if err == nil {
		err = event.VerifyChain(id, events)
	}
	if err == nil {
		t.Fatal("the damaged log was read as good")
	}
}

// TestLogIsAppendOnly_LOG01: the schema itself refuses to change the past.
func TestLogIsAppendOnly_LOG01(t *testing.T) {
	s := openNew(t)
	storetest.New(t, s, 1)
	if _, err := s.PutBlob(t.Context(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{
		"UPDATE events SET payload = x'7b7d'", "DELETE FROM events", "UPDATE blobs SET data = x''",
		"REPLACE INTO events SELECT task, seq, epoch, time, 'other', version, payload, prev, hash FROM events",
		"DELETE FROM tasks",
	} {
		if _, err := s.writer.ExecContext(t.Context(), q); err == nil {
			t.Errorf("%s went through", q)
		}
	}
	storetest.Log(t, s, storetest.ID(1))
}

// TestOpenAtOnce: several processes may meet at a file that does not exist yet.
func TestOpenAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "folder", "day % break?#.db")
	stores := make([]*Store, 6)
	var wg sync.WaitGroup
	for i := range stores {
		wg.Go(func() {
			s, err := Open(context.Background(), path, Options{})
			if err != nil {
				t.Error(err)
				return
			}
			stores[i] = s
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	id := storetest.New(t, stores[0], 1)
	for _, s := range stores {
		storetest.Log(t, s, id)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700 | os.ModeDir} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Fatalf("%s: %v, want %v (%v)", name, info.Mode(), want, err)
		}
	}
}

// TestSecondStoreKeepsLocks: opening and closing the file a second time in one process must
// not drop the first one's locks.
func TestSecondStoreKeepsLocks(t *testing.T) {
	a := openNew(t)
	id := storetest.New(t, a, 1)
	l := storetest.Lease(t, a, id)
	for range 5 {
		b := openAt(t, a.path)
		if _, err := a.Append(t.Context(), l, big(t)); err != nil {
			t.Fatal(err)
		}
		if got := len(storetest.Log(t, b, id)); got < 2 {
			t.Fatalf("%d events", got)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestClock_LOG03: times are the injected clock's; a clock that jumps back breaks nothing.
func TestClock_LOG03(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6789, time.FixedZone("", 3600))
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "d.db"), Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	id := storetest.New(t, s, 1)
	l := storetest.Lease(t, s, id)
	now = now.Add(-24 * time.Hour)
	d := storetest.Draft(t, event.Noticed{})
	if _, err := s.Append(t.Context(), l, d); err != nil {
		t.Fatal(err)
	}
	events := storetest.Log(t, s, id)
	if got := events[0].Time.Sub(events[1].Time); got != 24*time.Hour || events[0].Time.Location() != time.UTC {
		t.Fatalf("times %v and %v", events[0].Time, events[1].Time)
	}
	now = now.Add(100 * time.Hour) // the lease is long over: another may take it without a word
	if _, err := s.Acquire(t.Context(), id, "other", time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), l, d); task.ClassOf(err) != task.Stale {
		t.Fatalf("the old owner: %v", err)
	}
}

// TestWaitsForWriter: a write that finds the file locked waits, and a cancelled one gives up.
func TestWaitsForWriter(t *testing.T) {
	s := openNew(t)
	id := storetest.New(t, s, 1)
	l := storetest.Lease(t, s, id)
	db, err := connect(s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	d := storetest.Draft(t, event.Noticed{})
	if _, err := s.Append(ctx, l, d); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("append while locked: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Append(t.Context(), l, d)
		done <- err
	}()
	if _, err := db.ExecContext(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := len(storetest.Log(t, s, id)); n != 2 {
		t.Fatalf("%d events", n)
	}
}

// TestOpenWhileAnotherWrites: a new file that another process is about to write to is waited for.
func TestOpenWhileAnotherWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daybreak.db")
	if err := touch(path); err != nil {
		t.Fatal(err)
	}
	other, err := connect(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	writes, err := other.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer writes.Close()
	if _, err := writes.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { _, _ = writes.ExecContext(context.Background(), "COMMIT") })
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}

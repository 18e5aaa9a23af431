package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// prepared makes snapshots of n commits, each used an hour after the one before, and lets them go.
func preparedMany(t *testing.T, s *Store, repo string, n int) []Snapshot {
	t.Helper()
	var out []Snapshot
	for i := range n {
		if err := os.WriteFile(filepath.Join(repo, "many"), fmt.Appendln(nil, i), 0o644); err != nil {
			t.Fatal(err)
		}
		gittest.Run(t, repo, "add", "-A")
		gittest.Run(t, repo, "commit", "-qm", fmt.Sprint(i))
		got, err := s.Prepare(t.Context(), Source{Repo: repo})
		if err != nil {
			t.Fatal(err)
		}
		s.Done(got)
		out = append(out, got)
	}
	for i, snap := range out {
		at := time.Now().Add(time.Duration(i-n) * time.Hour)
		if err := os.Chtimes(filepath.Join(s.dir(snap.Digest), "meta.json"), at, at); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func there(t *testing.T, s *Store) []string {
	t.Helper()
	all, err := s.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, k := range all {
		out = append(out, k.Kind+" "+k.Digest)
	}
	slices.Sort(out)
	return out
}

// What nobody uses goes, the least recently used first; what a process has, or an unfinished task
// needs, never does.
func TestCollect(t *testing.T) {
	s, repo := newStore(t), repository(t)
	other, err := New(s.cfg) // as another process
	if err != nil {
		t.Fatal(err)
	}
	snaps := preparedMany(t, s, repo, 5)
	release, ok := other.HoldPaths(t.Context(), []string{snaps[0].Tree, "/etc"})
	if !ok {
		t.Fatal("not held")
	}
	if _, ok := other.HoldPaths(t.Context(), []string{snaps[1].Tree, snaps[1].Home}); ok {
		t.Error("a directory that is not there was held")
	}
	if err := s.Pin("t_one", snaps[1]); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[Need]bool{Nothing: false, Base: false, All: true} {
		all, err := s.List(t.Context(), func(task.ID) Need { return most })
		if err != nil || !slices.ContainsFunc(all, func(k Kept) bool { return k.Digest == snaps[1].Digest && k.InUse == want }) {
			t.Errorf("a task that needs %d: %+v %v", most, all, err)
		}
	}
	mirror := mirrorName(repo)
	need := map[task.ID]Need{"t_one": All}
	p := Policy{Disk: 1, Need: func(id task.ID) Need { return need[id] }}
	gone, err := s.Collect(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, k := range gone {
		order = append(order, k.Digest)
	}
	if want := []string{snaps[2].Digest, snaps[3].Digest, snaps[4].Digest}; !slices.Equal(order, want) {
		t.Errorf("collected %q, want %q", order, want)
	}
	for _, held := range snaps[:2] {
		asked(t, held.Tree)
		if got, err := s.Prepare(t.Context(), Source{Repo: repo, Ref: held.Base}); err != nil || !got.Cached {
			t.Errorf("%+v %v", got, err)
		}
		s.Done(held)
	}
	// Its commits are let go an hour later, those in need stay.
	past := time.Now().Add(-2 * time.Hour)
	for _, snap := range snaps {
		if err := os.Chtimes(filepath.Join(s.mirror(repo), pinsDir, snap.Base), past, past); err != nil {
			t.Fatal(err)
		}
	}
	release()
	need["t_one"] = Base
	gone, err = s.Collect(t.Context(), p)
	if err != nil || len(gone) != 2 || gone[0].Digest != snaps[0].Digest || gone[1].Digest != snaps[1].Digest {
		t.Errorf("%+v %v", gone, err)
	}
	if got := pins(s.mirror(repo)); !slices.Equal(got, []string{snaps[1].Base}) {
		t.Errorf("pins %q", got)
	}
	need["t_one"] = Nothing
	if err := os.Chtimes(filepath.Join(s.cfg.Dir, "pins", "t_one"), past, past); err != nil {
		t.Fatal(err)
	}
	gone, err = s.Collect(t.Context(), p)
	if err != nil || len(gone) != 1 || gone[0].Kind != kindMirror || gone[0].Digest != mirror {
		t.Errorf("%+v %v", gone, err)
	}
	if left := there(t, s); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	for _, d := range []string{"pins", "locks"} {
		entries, err := os.ReadDir(filepath.Join(s.cfg.Dir, d))
		if err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
			return strings.HasPrefix(e.Name(), "use-") || strings.HasPrefix(e.Name(), "build-") || d == "pins"
		}) {
			t.Errorf("%s: %v %v", d, entries, err)
		}
	}
}

func TestCollectByAge(t *testing.T) {
	s, repo := newStore(t), repository(t)
	snaps := preparedMany(t, s, repo, 3) // used 3, 2 and 1 hours ago
	gone, err := s.Collect(t.Context(), Policy{Unused: 90 * time.Minute})
	if err != nil || len(gone) != 2 {
		t.Fatalf("%+v %v", gone, err)
	}
	if got, err := s.Prepare(t.Context(), Source{Repo: repo, Ref: snaps[2].Base}); err != nil || !got.Cached {
		t.Errorf("the one in use lately: %+v %v", got, err)
	}
	// The pins of those that went are old enough only later.
	if got := pins(s.mirror(repo)); len(got) != 3 {
		t.Errorf("pins %q", got)
	}
	past := time.Now().Add(-2 * time.Hour)
	for _, snap := range snaps {
		if err := os.Chtimes(filepath.Join(s.mirror(repo), pinsDir, snap.Base), past, past); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.PinBase("t_two", repo, snaps[0].Base); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Collect(t.Context(), Policy{}); err != nil {
		t.Fatal(err)
	}
	want := []string{snaps[0].Base, snaps[2].Base}
	slices.Sort(want)
	if got := pins(s.mirror(repo)); !slices.Equal(got, want) {
		t.Errorf("pins %q, want %q", got, want)
	}
}

// Tasks that take and let go while another process collects never lose what they hold.
func TestCollectWhileInUse(t *testing.T) {
	s, repo := newStore(t), repository(t)
	snaps := preparedMany(t, s, repo, 2)
	stop := make(chan struct{})
	var users, collector sync.WaitGroup
	collector.Go(func() {
		own, err := New(s.cfg)
		for err == nil {
			select {
			case <-stop:
				return
			default:
				_, err = own.Collect(t.Context(), Policy{Disk: 1})
			}
		}
		t.Error(err)
	})
	for i := range 2 {
		users.Go(func() {
			own, err := New(s.cfg)
			for range 3 {
				var got Snapshot
				if err == nil {
					got, err = own.Prepare(t.Context(), Source{Repo: repo, Ref: snaps[i].Base})
				}
				if err != nil {
					t.Error(err)
					return
				}
				if b, err := os.ReadFile(filepath.Join(got.Tree, "many")); err != nil || strings.TrimSpace(string(b)) != fmt.Sprint(i) {
					t.Errorf("%q %v", b, err)
				}
				own.Done(got)
			}
		})
	}
	users.Wait()
	close(stop)
	collector.Wait()
}

func TestSharesAreCountedOnce(t *testing.T) {
	s, repo := newStore(t), repository(t)
	if err := os.WriteFile(filepath.Join(repo, "large"), []byte(strings.Repeat("large\n", 100_000)), 0o644); err != nil {
		t.Fatal(err)
	}
	preparedMany(t, s, repo, 2)
	all, err := s.List(t.Context(), nil)
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v %v", all, err)
	}
	disk := int64(0)
	for _, k := range all {
		if k.Kind != kindSnapshot {
			continue
		}
		disk += k.Disk
		if k.Own >= 600_000 || k.Disk < 300_000 || k.Bytes < 600_000 || k.Files == 0 || k.Repo != repo {
			t.Errorf("%+v", k)
		}
	}
	if disk < 600_000 || disk > 1_100_000 {
		t.Errorf("%d bytes together", disk)
	}
}

// Of a commit that turned out hostile everything goes that its code could have written to.
func TestForget(t *testing.T) {
	s, repo, apart := newStore(t), repository(t), repository(t)
	snaps := preparedMany(t, s, repo, 3)
	elsewhere := preparedMany(t, s, apart, 1)[0]
	evil, heir, clean := snaps[0], snaps[1], snaps[2]
	m, _, err := s.BeginLayers(t.Context(), evil, "key")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.Home, "cache"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := m.Commit(t.Context(), evil.Tree, nil, []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Layers(t.Context(), heir, "key"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Forget(t.Context(), repo, evil.Base, nil); task.ClassOf(err) != task.Conflict {
		t.Errorf("layers in use: %v", err)
	}
	s.letGo(l.Digest)
	s.letGo(l.Digest)
	if _, err := s.Forget(t.Context(), repo, evil.Base, nil); err != nil && task.ClassOf(err) != task.NotFound {
		t.Fatal(err)
	}
	want := []string{"mirror " + mirrorName(apart), "mirror " + mirrorName(repo), "snapshot " + clean.Digest, "snapshot " + elsewhere.Digest}
	slices.Sort(want)
	if got := there(t, s); !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
	if _, err := s.Forget(t.Context(), repo, "", nil); err != nil {
		t.Fatal(err)
	}
	if got, want := there(t, s), []string{"mirror " + mirrorName(apart), "snapshot " + elsewhere.Digest}; !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
	if _, err := os.Stat(s.mirror(repo)); !errors.Is(err, os.ErrNotExist) {
		t.Error("the mirror is still there")
	}
}

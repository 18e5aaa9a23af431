package snapshot

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// text is what a file of an index is made of.
func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// keepIndex makes an index of a snapshot.
func keepIndex(t *testing.T, s *Store, snap Snapshot, seg string) Index {
	t.Helper()
	m, got, err := s.BeginIndex(t.Context(), snap)
	if err != nil || m == nil {
		t.Fatalf("%+v %v", got, err)
	}
	for name, data := range map[string]string{"index.json": "{}", "0000.seg": seg} {
		if err := m.Add(name, text(data)); err != nil {
			t.Fatal(err)
		}
	}
	x, err := m.Commit([]byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Abandon(); err != nil {
		t.Errorf("after the commit: %v", err)
	}
	return x
}

func TestIndex(t *testing.T) {
	s := newStore(t)
	snap, _ := preparedTree(t, s)
	if _, err := s.Index(snap); task.ClassOf(err) != task.NotFound {
		t.Fatal(err)
	}
	x := keepIndex(t, s, snap, "postings")
	if got := strings.Join(strings.Fields(string(x.Record)), ""); got != `{"a":1}` || x.Bytes != 10 {
		t.Errorf("%+v", x)
	}
	if b, err := os.ReadFile(filepath.Join(x.Dir, "0000.seg")); err != nil || string(b) != "postings" {
		t.Errorf("%q %v", b, err)
	}
	// Another process finds the same; with other layers there is none.
	own, err := New(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if m, got, err := own.BeginIndex(t.Context(), snap); m != nil || err != nil || got.Dir != x.Dir {
		t.Errorf("%v %+v %v", m, got, err)
	}
	if _, err := own.Index(snap.With(Layers{Digest: "other"})); task.ClassOf(err) != task.NotFound {
		t.Error(err)
	}
	for name, data := range map[string]string{"../x": "", "a/b": "", "..": "", "": ""} {
		m, _, err := own.BeginIndex(t.Context(), snap.With(Layers{Digest: "names"}))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Add(name, text(data)); err == nil {
			t.Errorf("%q was taken for a name", name)
		}
		if err := m.Abandon(); err != nil {
			t.Error(err)
		}
	}
}

func TestDamagedIndexIsMadeAnew(t *testing.T) {
	s := newStore(t)
	snap, _ := preparedTree(t, s)
	for name, damage := range map[string]func(dir string) error{
		"a changed byte": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "0000.seg"), []byte("postingx"), 0o644)
		},
		"a cut file":      func(dir string) error { return os.Truncate(filepath.Join(dir, "0000.seg"), 3) },
		"a missing file":  func(dir string) error { return os.Remove(filepath.Join(dir, "0000.seg")) },
		"a broken record": func(dir string) error { return os.WriteFile(filepath.Join(dir, "../meta.json"), []byte("{"), 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			x, err := s.Index(snap)
			if err != nil {
				x = keepIndex(t, s, snap, "postings")
			}
			if err := damage(x.Dir); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Index(snap); task.ClassOf(err) != task.Invalid {
				t.Errorf("%v", err)
			}
			if y := keepIndex(t, s, snap, "postings"); y.Dir == x.Dir {
				t.Error("the new one has the place of the damaged one, which sandboxes may have")
			}
			if _, err := s.Index(snap); err != nil {
				t.Error(err)
			}
		})
	}
}

// What a process that died left is removed by the next one; two never make the same at once.
func TestIndexOfADeadProcess(t *testing.T) {
	s := newStore(t)
	snap, _ := preparedTree(t, s)
	m, _, err := s.BeginIndex(t.Context(), snap)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Add("0000.seg", text("half")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("no longer")
	cancel(why)
	if _, _, err := s.BeginIndex(ctx, snap); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	m.unlock() // as the kernel does
	left := m.dir
	keepIndex(t, s, snap, "whole")
	if _, err := os.Lstat(left); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", left, err)
	}
}

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	x, err := os.Stat(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.Stat(b)
	if err != nil {
		t.Fatal(err)
	}
	return os.SameFile(x, y)
}

func TestEarlierIndex(t *testing.T) {
	s := newStore(t)
	now := time.Now()
	s.cfg.Now = func() time.Time { now = now.Add(time.Second); return now }
	repo := repository(t)
	snap, err := s.Prepare(t.Context(), Source{Repo: repo, Environment: "e"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Earlier(t.Context(), snap); task.ClassOf(err) != task.NotFound {
		t.Error(err)
	}
	x := keepIndex(t, s, snap, "old")
	if _, _, err := s.Earlier(t.Context(), snap); task.ClassOf(err) != task.NotFound {
		t.Error("the snapshot's own index is taken for an earlier one")
	}
	later := snap
	later.Base, later.Digest, later.Tree = strings.Repeat("1", 40), strings.Repeat("2", 32), filepath.Join(s.cfg.Dir, "snapshots", strings.Repeat("2", 32), "tree")
	if err := os.MkdirAll(later.Tree, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, base, err := s.Earlier(t.Context(), later); err != nil || got.Dir != x.Dir || base != snap.Base {
		t.Errorf("%+v %s %v", got, base, err)
	}
	y := keepIndex(t, s, later, "newer")
	m, _, err := s.BeginIndex(t.Context(), later.With(Layers{Digest: "keeps"}))
	if err != nil {
		t.Fatal(err)
	}
	file := x.files[0]
	if err := m.Keep(x, file.Name, file.Size+1); task.ClassOf(err) != task.Invalid {
		t.Errorf("a file of another size: %v", err)
	}
	if err := m.Keep(x, "../meta.json", file.Size); task.ClassOf(err) != task.Invalid {
		t.Errorf("no file of the index: %v", err)
	}
	if err := m.Keep(x, file.Name, file.Size); err != nil {
		t.Error(err)
	}
	if kept, err := m.Commit([]byte("{}")); err != nil || !sameFile(t, filepath.Join(x.Dir, file.Name), filepath.Join(kept.Dir, file.Name)) {
		t.Errorf("%+v %v", kept, err)
	}
	newest := later
	newest.Base = strings.Repeat("3", 40)
	if got, base, err := s.Earlier(t.Context(), newest); err != nil || got.Dir != y.Dir || base != later.Base {
		t.Errorf("%+v %s %v", got, base, err)
	}
	saved := filepath.Join(y.Dir, file.Name+".saved")
	if err := os.Rename(filepath.Join(y.Dir, file.Name), saved); err != nil {
		t.Fatal(err)
	}
	if got, base, err := s.Earlier(t.Context(), newest); err != nil || got.Dir != x.Dir || base != snap.Base {
		t.Errorf("beside a damaged one: %+v %s %v", got, base, err)
	}
	if err := os.Rename(saved, filepath.Join(y.Dir, file.Name)); err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]func(*Snapshot){
		"repository":  func(s *Snapshot) { s.GitDir = "/another.git" },
		"environment": func(s *Snapshot) { s.Environment = "another" },
		"layers":      func(s *Snapshot) { s.Layers.Digest = "another" },
	} {
		snap := newest
		other(&snap)
		if got, _, err := s.Earlier(t.Context(), snap); task.ClassOf(err) != task.NotFound {
			t.Errorf("of another %s: %+v %v", name, got, err)
		}
	}
}

// The nearest index is of the same branch, though that of another one is newer.
func TestEarlierIndexIsTheNearest(t *testing.T) {
	s := newStore(t)
	now := time.Now()
	s.cfg.Now = func() time.Time { now = now.Add(time.Second); return now }
	repo := repository(t)
	prepared := func(branch string, files ...string) Snapshot {
		t.Helper()
		gittest.Run(t, repo, "checkout", "-q", "-B", branch)
		for _, f := range files {
			write(t, repo, map[string]string{f: f + branch})
		}
		gittest.Run(t, repo, "add", ".")
		gittest.Run(t, repo, "commit", "-q", "--allow-empty", "-m", branch)
		snap, err := s.Prepare(t.Context(), Source{Repo: repo, Ref: branch, Environment: "e"})
		if err != nil {
			t.Fatal(err)
		}
		return snap
	}
	main := prepared("trunk", "a")
	near := keepIndex(t, s, main, "near")
	release := prepared("release", "b", "c", "d")
	far := keepIndex(t, s, release, "far")
	gittest.Run(t, repo, "checkout", "-q", "trunk")
	if got, base, err := s.Earlier(t.Context(), prepared("trunk", "e")); err != nil || got.Dir != near.Dir || base != main.Base {
		t.Errorf("%+v %s %v", got, base, err)
	}
	gittest.Run(t, repo, "checkout", "-q", "release")
	if got, base, err := s.Earlier(t.Context(), prepared("release", "f")); err != nil || got.Dir != far.Dir || base != release.Base {
		t.Errorf("%+v %s %v", got, base, err)
	}
}

package snapshot

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func newStore(t testing.TB) *Store {
	t.Helper()
	g, err := git.New(git.Config{Home: t.TempDir()})
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	s, err := New(Config{Dir: filepath.Join(t.TempDir(), "data"), Git: g, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func repository(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	gittest.Run(t, dir, "init", "-q", "-b", "main")
	for name, text := range map[string]string{
		"a.txt": "one\n", "A.txt": "ONE\n", "crlf": "x\r\n", "latin": "caf\xe9\n",
		"big.bin": lfsHead + "oid sha256:" + strings.Repeat("0", 64) + "\nsize 12345\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"out": "../outside", "abs": "/etc/passwd", "fine": "a.txt"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Run(t, dir, "add", "-A")
	gittest.Run(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",vendor/sub")
	gittest.Run(t, dir, "commit", "-qm", "first")
	return dir
}

func TestPrepare(t *testing.T) {
	s, repo := newStore(t), repository(t)
	commit, target, err := s.Resolve(t.Context(), repo, "")
	if err != nil || commit != gittest.Run(t, repo, "rev-parse", "HEAD") || target != "main" {
		t.Fatal(commit, target, err)
	}
	src := Source{Repo: repo, Ref: commit, Environment: "env1"}
	one, err := s.Prepare(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	if one.Cached || one.Base != commit || one.Files != 8 || one.Bytes == 0 {
		t.Errorf("%+v", one)
	}
	for _, want := range []string{
		"submodule, left", `"vendor/sub"`, `pointer, whose content is not here: "big.bin"`,
		`2 links that leave the tree`, `"out" → "../outside"`, `"abs" → "/etc/passwd"`, `differ only in case: "A.txt" and "a.txt"`,
	} {
		if !strings.Contains(strings.Join(one.Warnings, "\n"), want) {
			t.Errorf("no warning %q in %q", want, one.Warnings)
		}
	}
	for name, want := range map[string]string{"crlf": "x\r\n", "latin": "caf\xe9\n"} {
		if b, err := os.ReadFile(filepath.Join(one.Tree, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q %v", name, b, err)
		}
	}
	// With the source gone the snapshot is still found.
	if err := os.Rename(repo, repo+".away"); err != nil {
		t.Fatal(err)
	}
	two, err := s.Prepare(t.Context(), src)
	if err != nil || !two.Cached || two.Digest != one.Digest || !slices.Equal(two.Warnings, one.Warnings) {
		t.Errorf("again: %+v %v", two, err)
	}
	// Another environment needs another tree, for which the mirror is enough.
	src.Environment = "env2"
	other, err := s.Prepare(t.Context(), src)
	if err != nil || other.Cached || other.Digest == one.Digest || other.GitDir != one.GitDir {
		t.Errorf("other environment: %+v %v", other, err)
	}
	if err := s.Remove(other.Digest); task.ClassOf(err) != task.Conflict {
		t.Errorf("one that is in use: %v", err)
	}
	s.Done(other)
	if err := s.Remove(other.Digest); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(other.Tree); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	if err := s.Remove("../../etc"); task.ClassOf(err) != task.Invalid {
		t.Errorf("%v", err)
	}
	if err := s.Remove(other.Digest); task.ClassOf(err) != task.NotFound {
		t.Errorf("%v", err)
	}
	noLeftovers(t, s)
}

func noLeftovers(t *testing.T, s *Store) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(s.cfg.Dir, "snapshots", ".tmp-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestPrepareAtOnceMakesOne(t *testing.T) {
	s, repo := newStore(t), repository(t)
	var wg sync.WaitGroup
	got := make([]Snapshot, 4)
	errs := make([]error, 4)
	for i := range got {
		wg.Go(func() {
			own, err := New(s.cfg) // as another process would
			if err != nil {
				errs[i] = err
				return
			}
			got[i], errs[i] = own.Prepare(t.Context(), Source{Repo: repo, Environment: "e"})
		})
	}
	wg.Wait()
	made := 0
	for i := range got {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		if got[i].Digest != got[0].Digest {
			t.Errorf("%s and %s", got[i].Digest, got[0].Digest)
		}
		if !got[i].Cached {
			made++
		}
	}
	if made != 1 {
		t.Errorf("made %d times", made)
	}
	noLeftovers(t, s)
}

func TestBadSourceLeavesNothing(t *testing.T) {
	s := newStore(t)
	_, err := s.Prepare(t.Context(), Source{Repo: "/nonexistent", Ref: "main"})
	if task.ClassOf(err) != task.Invalid || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
	_, _, err = s.Resolve(t.Context(), repository(t), "nope")
	if task.ClassOf(err) != task.NotFound {
		t.Errorf("%v", err)
	}
	noLeftovers(t, s)
}

func TestWaitingForTheLockCanBeCancelled(t *testing.T) {
	s, repo := newStore(t), repository(t)
	unlock, err := s.lock(t.Context(), mirrorName(repo))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	why := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := s.Prepare(ctx, Source{Repo: repo}); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
}

func TestKeepHome(t *testing.T) {
	s := newStore(t)
	snap, err := s.Prepare(t.Context(), Source{Repo: repository(t)})
	if err != nil {
		t.Fatal(err)
	}
	first, commit, err := s.KeepHome(snap)
	if err != nil || first == "" || s.HasHome(snap) {
		t.Fatal(first, err)
	}
	second, commit2, err := s.KeepHome(snap)
	if err != nil || second == first {
		t.Fatal(second, err)
	}
	if err := os.WriteFile(filepath.Join(first, "cache"), []byte("first"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := commit(); err != nil || !s.HasHome(snap) {
		t.Fatal(err)
	}
	if err := commit2(); err != nil {
		t.Errorf("the second to commit: %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(snap.Home, "cache")); err != nil || string(b) != "first" {
		t.Errorf("%q %v", b, err)
	}
	if _, err := os.Stat(second); !errors.Is(err, os.ErrNotExist) {
		t.Error("the loser's directory is left")
	}
	if dir, commit, err := s.KeepHome(snap); dir != "" || commit() != nil || err != nil {
		t.Errorf("%q %v", dir, err)
	}
}

func TestNotes(t *testing.T) {
	s := newStore(t)
	snap, err := s.Prepare(t.Context(), Source{Repo: repository(t)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Note(snap, "baseline.json"); task.ClassOf(err) != task.NotFound {
		t.Errorf("%v", err)
	}
	for _, text := range []string{"one", "two"} {
		if err := s.SetNote(snap, "baseline.json", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if b, err := s.Note(snap, "baseline.json"); err != nil || string(b) != text {
			t.Errorf("%q %v", b, err)
		}
	}
	for _, name := range []string{"", "../meta.json", ".x", "a/b", "A"} {
		if err := s.SetNote(snap, name, nil); task.ClassOf(err) != task.Invalid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestRepoNotes: what is kept beside a repository is there for every snapshot of it, and no
// change is lost when several write at once.
func TestRepoNotes(t *testing.T) {
	s := newStore(t)
	repo := repository(t)
	one, err := s.Prepare(t.Context(), Source{Repo: repo})
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.Prepare(t.Context(), Source{Repo: repo, Environment: "other"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RepoNote(one, "flakes.json"); task.ClassOf(err) != task.NotFound {
		t.Errorf("%v", err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			err := s.ChangeRepoNote(t.Context(), one, "flakes.json", func(old []byte) ([]byte, error) { return append(old, 'x'), nil })
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if b, err := s.RepoNote(other, "flakes.json"); err != nil || string(b) != "xxxxxxxx" {
		t.Errorf("%q %v", b, err)
	}
	if err := s.ChangeRepoNote(t.Context(), Snapshot{GitDir: "/etc/x.git"}, "flakes.json", nil); task.ClassOf(err) != task.Invalid {
		t.Errorf("a repository that is not ours: %v", err)
	}
}

func TestSweepTakesOldLeftovers(t *testing.T) {
	s := newStore(t)
	old, young := filepath.Join(s.cfg.Dir, "snapshots/.tmp-old"), filepath.Join(s.cfg.Dir, "snapshots/.tmp-young")
	for _, d := range []string{old, young} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	s.sweep("", false)
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Error("the old one is still there")
	}
	if _, err := os.Stat(young); err != nil {
		t.Error("one that may be in use is gone")
	}
}

func TestMirrorNameIgnoresCredentials(t *testing.T) {
	if mirrorName("https://u:p@h/x") != mirrorName("https://h/x") || mirrorName("https://h/x") == mirrorName("https://h/y") {
		t.Error("mirror names")
	}
	dir := t.TempDir()
	if mirrorName(dir) != mirrorName("file://"+dir) || mirrorName(dir) != mirrorName(dir+"/.") {
		t.Error("spellings of a path")
	}
}

func BenchmarkPrepareWarm(b *testing.B) {
	s, repo := newStore(b), repository(b)
	snap, err := s.Prepare(b.Context(), Source{Repo: repo})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Prepare(b.Context(), Source{Repo: repo, Ref: snap.Base}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestOnly: of what a stranger's build left, nothing is kept beside the build, and no link is followed.
func TestOnly(t *testing.T) {
	outside := t.TempDir()
	for name, c := range map[string]struct {
		links map[string]string
		files []string
		want  string
	}{
		"all":         {files: []string{".cache/daybreak/cmake-0/a", ".cache/go/b", ".bashrc", ".local/bin/cc", ".cache/daybreak/.cache/c"}, want: ".cache .cache/daybreak .cache/daybreak/.cache .cache/daybreak/.cache/c .cache/daybreak/cmake-0 .cache/daybreak/cmake-0/a"},
		"none":        {files: []string{".bashrc"}},
		"a file":      {files: []string{".cache"}},
		"a link":      {links: map[string]string{".cache": outside}},
		"a link deep": {files: []string{".cache/x"}, links: map[string]string{".cache/daybreak": outside}, want: ".cache"},
	} {
		dir := t.TempDir()
		for _, f := range append(c.files, "../"+filepath.Base(dir)+"-beside") {
			if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o755), os.WriteFile(filepath.Join(dir, f), nil, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		for l, to := range c.links {
			if err := os.Symlink(to, filepath.Join(dir, l)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(filepath.Join(outside, "daybreak"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := Only(dir, ".cache/daybreak"); err != nil {
			t.Fatal(err)
		}
		var left []string
		if err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
			if rel, _ := filepath.Rel(dir, p); rel != "." {
				left = append(left, rel)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(left, " "); got != c.want {
			t.Errorf("%s: %q is left, want %q", name, got, c.want)
		}
		if _, err := os.Stat(filepath.Join(outside, "daybreak")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

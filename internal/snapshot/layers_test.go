package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// preparedTree is a snapshot and what the base tracks.
func preparedTree(t *testing.T, s *Store) (Snapshot, []git.Entry) {
	t.Helper()
	snap, err := s.Prepare(t.Context(), Source{Repo: repository(t), Environment: "e"})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := s.cfg.Git.ListTree(t.Context(), snap.GitDir, snap.Base)
	if err != nil {
		t.Fatal(err)
	}
	return snap, entries
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLayers(t *testing.T) {
	s := newStore(t)
	snap, entries := preparedTree(t, s)
	if _, err := s.Layers(t.Context(), snap, "key"); task.ClassOf(err) != task.NotFound {
		t.Fatal(err)
	}
	m, _, err := s.BeginLayers(t.Context(), snap, "key")
	if err != nil {
		t.Fatal(err)
	}
	// A second one waits, as long as its caller does.
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("no longer")
	cancel(why)
	if _, _, err := s.BeginLayers(ctx, snap, "key"); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	write(t, m.Home, map[string]string{".cache/x": "x"})
	write(t, m.Work, map[string]string{"node_modules/a/index.js": "a", "crlf": "changed", "a.txt": "one\n", ".git/hooks/pre-commit": "evil", "made": "1"})
	made, err := m.Commit(t.Context(), snap.Tree, entries, []byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Abandon(); err != nil {
		t.Errorf("after the commit: %v", err)
	}
	if got := strings.Join(strings.Fields(string(made.Record)), ""); got != `{"a":1}` {
		t.Errorf("record %s", got)
	}
	if made.Home == "" || made.Work == "" || made.System != "" || made.Digest == "" {
		t.Errorf("%+v", made)
	}
	if want := []string{"made", "node_modules/"}; !slices.Equal(made.Left, want) {
		t.Errorf("left %q", made.Left)
	}
	// a.txt was written anew with what was in it.
	if want := []string{"crlf"}; !slices.Equal(made.Undone, want) {
		t.Errorf("undone %q", made.Undone)
	}
	for _, gone := range []string{"crlf", "a.txt", ".git"} {
		if _, err := os.Lstat(filepath.Join(made.Work, gone)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still in the layer", gone)
		}
	}
	for p, want := range map[string]bool{"made": true, "made/x": false, "node_modules": true, "node_modules/a/b": true, "node_modulesX": false, "a.txt": false} {
		if made.Owns(p) != want {
			t.Errorf("owns %s: %v", p, !want)
		}
	}
	// Another process, and another commit of the repository, find the same; another key or environment does not.
	own, err := New(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if m, got, err := own.BeginLayers(t.Context(), snap, "key"); m != nil || err != nil || got.Digest != made.Digest {
		t.Errorf("%v %+v %v", m, got, err)
	}
	later := snap
	later.Base, later.Digest = "other", "other"
	if got, err := own.Layers(t.Context(), later, "key"); err != nil || got.Work != made.Work {
		t.Errorf("%+v %v", got, err)
	}
	later.Environment = "newer"
	for _, c := range []struct {
		s   Snapshot
		key string
	}{{snap, "other"}, {later, "key"}} {
		if _, err := own.Layers(t.Context(), c.s, c.key); task.ClassOf(err) != task.NotFound {
			t.Errorf("%v", err)
		}
	}
	// The suite's caches on prepared dependencies are not those of the bare checkout.
	if with := snap.With(made); with.Home == snap.Home || with.Layers.Digest != made.Digest || snap.With(Layers{}).Home != snap.Home {
		t.Errorf("%s and %s", with.Home, snap.Home)
	}
}

// What sandboxes wrote is out of the reach of the host's other users, in a directory of any mode.
func TestNobodyElsePasses(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Join(dir, "layers")} {
		if err := errors.Join(os.MkdirAll(d, 0o755), os.Chmod(d, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := New(Config{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"layers", "snapshots", "repos"} {
		if st, err := os.Stat(filepath.Join(dir, d)); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v %v", d, st.Mode(), err)
		}
	}
}

// A setup that scatters files is refused before its list fills the log.
func TestScatteredFilesAreRefused(t *testing.T) {
	s := newStore(t)
	snap, entries := preparedTree(t, s)
	m, _, err := s.BeginLayers(t.Context(), snap, "key")
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxLeft/200 + 1 {
		write(t, m.Work, map[string]string{fmt.Sprintf("%0200d", i): ""})
	}
	if _, err := m.Commit(t.Context(), snap.Tree, entries, []byte(`{}`)); task.ClassOf(err) != task.Invalid {
		t.Errorf("%v", err)
	}
	if err := m.Abandon(); err != nil {
		t.Error(err)
	}
	if _, err := s.Layers(t.Context(), snap, "key"); task.ClassOf(err) != task.NotFound {
		t.Errorf("it was kept: %v", err)
	}
}

// What an overlay writes to hide lower files: whiteouts and opaque directories.
func TestScrubUnhides(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("whiteouts need root")
	}
	base := t.TempDir()
	write(t, base, map[string]string{"pkg/a": "a", "pkg/sub/b": "b", "gone": "g", "dir/x": "x", "was": "file"})
	if err := os.Symlink("gone", filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	var entries []git.Entry
	for _, p := range []string{"dir/x", "gone", "pkg/a", "pkg/sub/b", "was"} {
		entries = append(entries, git.Entry{Path: p, Mode: git.ModeFile})
	}
	entries = append(entries, git.Entry{Path: "link", Mode: git.ModeLink}, git.Entry{Path: "mod", Mode: git.ModeSubmodule})
	layer := t.TempDir()
	write(t, layer, map[string]string{"pkg/new": "n", "pkg/.git/config": "evil", "was/below": "now a directory", "mod/file": "filled"})
	for _, p := range []string{"gone", "pkg/stale"} {
		if err := unix.Mknod(filepath.Join(layer, p), unix.S_IFCHR, 0); err != nil {
			t.Skipf("whiteouts cannot be made here: %v", err)
		}
	}
	if err := os.Symlink(base, filepath.Join(layer, "dir")); err != nil { // a link where the base has a directory
		t.Fatal(err)
	}
	if err := os.Symlink("gone", filepath.Join(layer, "link")); err != nil {
		t.Fatal(err)
	}
	opaque := "trusted.overlay.opaque"
	if err := unix.Setxattr(filepath.Join(layer, "pkg"), opaque, []byte("y"), 0); err != nil {
		opaque = "user.overlay.opaque"
		if err := unix.Setxattr(filepath.Join(layer, "pkg"), opaque, []byte("y"), 0); err != nil {
			t.Skipf("no extended attributes here: %v", err)
		}
	}
	left, undone, err := scrub(layer, base, entries)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"mod/", "pkg/new"}; !slices.Equal(left, want) {
		t.Errorf("left %q", left)
	}
	if want := []string{"dir/", "gone", "pkg/", "was"}; !slices.Equal(undone, want) {
		t.Errorf("undone %q", undone)
	}
	if _, err := unix.Getxattr(filepath.Join(layer, "pkg"), opaque, nil); !errors.Is(err, unix.ENODATA) {
		t.Errorf("pkg is still opaque: %v", err)
	}
	for _, p := range []string{"gone", "pkg/stale", "pkg/.git", "dir", "link", "was"} {
		if _, err := os.Lstat(filepath.Join(layer, p)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still in the layer", p)
		}
	}
	if b, err := os.ReadFile(filepath.Join(base, "dir/x")); err != nil || string(b) != "x" {
		t.Errorf("a link was followed: %q %v", b, err)
	}
}

// Whoever dies while dependencies are prepared leaves nothing to the next.
func TestInterruptedLayersAreRemoved(t *testing.T) {
	s := newStore(t)
	snap, _ := preparedTree(t, s)
	m, _, err := s.BeginLayers(t.Context(), snap, "key")
	if err != nil {
		t.Fatal(err)
	}
	write(t, m.Home, map[string]string{"go/pkg/mod/x": "x"})
	if err := os.Chmod(filepath.Join(m.Home, "go/pkg/mod"), 0o555); err != nil {
		t.Fatal(err)
	}
	m.unlock() // as the kernel does for a process that is gone
	next, _, err := s.BeginLayers(t.Context(), snap, "key")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(m.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := next.Abandon(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(s.cfg.Dir, "layers")); err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
	// And nobody waits for a lock that nobody holds.
	again, _, err := s.BeginLayers(t.Context(), snap, "key")
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Abandon(); err != nil {
		t.Fatal(err)
	}
}

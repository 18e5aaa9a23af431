package snapshot

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// listing is everything that a program can see of a tree, but for its repository.
func listing(t testing.TB, tree string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(tree, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(tree, p)
		if err == nil && rel == ".git" {
			return fs.SkipDir
		}
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		text := ""
		switch {
		case fi.Mode()&fs.ModeSymlink != 0:
			text, err = os.Readlink(p)
		case fi.Mode().IsRegular():
			var b []byte
			b, err = os.ReadFile(p)
			text = fmt.Sprintf("%x", sha256.Sum256(b))
		}
		out = append(out, fmt.Sprintf("%q %v %d %s", rel, fi.Mode(), fi.ModTime().Unix(), text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// asked is what git says about a checkout's own repository.
func asked(t testing.TB, tree string) string {
	t.Helper()
	// Reading must not mend the index.
	status := gittest.Run(t, tree, "--no-optional-locks", "status", "--porcelain", "--ignored")
	if status != "" {
		t.Errorf("not clean: %q", status)
	}
	objects := strings.Split(gittest.Run(t, tree, "cat-file", "--batch-all-objects", "--batch-check"), "\n")
	slices.Sort(objects)
	return gittest.Run(t, tree, "rev-parse", "HEAD") + "\n" + gittest.Run(t, tree, "ls-files", "-s") + "\n" + strings.Join(objects, "\n")
}

// mutator changes a work tree in every way that a commit can.
type mutator struct {
	t   *testing.T
	rnd *rand.Rand
	dir string
	n   int
}

func (m *mutator) pick() string {
	all := strings.Split(gittest.Run(m.t, m.dir, "ls-files", "-z"), "\x00")
	all = slices.DeleteFunc(all, func(s string) bool { return s == "" || s == "sub" })
	if len(all) == 0 {
		return "first"
	}
	return all[m.rnd.IntN(len(all))]
}

func (m *mutator) write(name, text string, mode os.FileMode) {
	p := filepath.Join(m.dir, name)
	for d := filepath.Dir(p); d != m.dir; d = filepath.Dir(d) { // a file gives way to a directory
		if fi, err := os.Lstat(d); err == nil && !fi.IsDir() {
			m.must(os.Remove(d))
		}
	}
	m.must(os.RemoveAll(p))
	m.must(os.MkdirAll(filepath.Dir(p), 0o755))
	m.must(os.WriteFile(p, []byte(text), mode))
	m.must(os.Chmod(p, mode))
}

func (m *mutator) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *mutator) step() {
	m.n++
	names := []string{"a", "A", "d/x", "d/e/f/g", "D/x", "caf\xe9/\xff", "with space\tand\nline", strings.Repeat("deep/", 40) + "end", "lfs"}
	name := names[m.rnd.IntN(len(names))]
	switch old := m.pick(); m.rnd.IntN(8) {
	case 0, 1:
		m.write(name, fmt.Sprintf("%d\n%s", m.n, strings.Repeat("x", m.rnd.IntN(3000))), 0o644)
	case 2: // the other mode
		if fi, err := os.Lstat(filepath.Join(m.dir, old)); err == nil && fi.Mode().IsRegular() {
			m.must(os.Chmod(filepath.Join(m.dir, old), fi.Mode()^0o111))
		}
	case 3:
		m.must(os.RemoveAll(filepath.Join(m.dir, old)))
	case 4: // a rename, perhaps over something
		name := fmt.Sprintf("moved/%d", m.rnd.IntN(4))
		if strings.HasPrefix(old+"/", name+"/") || strings.HasPrefix("moved", old) {
			return // onto itself, or into itself
		}
		to := filepath.Join(m.dir, name)
		m.must(os.MkdirAll(filepath.Dir(to), 0o755))
		if _, err := os.Lstat(filepath.Join(m.dir, old)); err == nil {
			m.must(os.RemoveAll(to))
			m.must(os.Rename(filepath.Join(m.dir, old), to))
		}
	case 5: // a file where a directory was
		m.write(strings.SplitN(name, "/", 2)[0], "file", 0o755)
	case 6:
		m.write(name, "", 0o644)
		m.must(os.Remove(filepath.Join(m.dir, name)))
		m.must(os.Symlink([]string{"a", "../up", "/etc/passwd", "d"}[m.rnd.IntN(4)], filepath.Join(m.dir, name)))
	case 7:
		m.write("lfs", lfsHead+fmt.Sprintf("oid sha256:%064d\nsize 1\n", m.rnd.IntN(2)), 0o644)
	}
}

// A snapshot that was advanced over many commits is what one made from nothing is, and so are
// those that it was advanced from.
func TestAdvancedIsAsFromNothing(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	m := &mutator{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir()}
	gittest.Run(t, m.dir, "init", "-q", "-b", "main")
	for i := range 30 {
		m.write(fmt.Sprintf("stay/%d/file", i), fmt.Sprint(i), 0o644)
	}
	m.write("line", strings.Repeat("a line of a megabyte ", 50_000), 0o644)
	s, earlier := newStore(t), map[string][]string{}
	for i := range 10 {
		for range 1 + m.rnd.IntN(5) {
			m.step()
		}
		gittest.Run(t, m.dir, "add", "-A")
		if i%3 == 1 {
			gittest.Run(t, m.dir, "update-index", "--add", "--cacheinfo", "160000,"+fmt.Sprintf("%040d", 1+i%2)+",sub")
		}
		gittest.Run(t, m.dir, "commit", "-q", "--allow-empty", "-m", fmt.Sprint(i))
		got, err := s.Prepare(t.Context(), Source{Repo: m.dir, Environment: fmt.Sprint(i % 2)})
		if err != nil {
			t.Fatal(err)
		}
		meta, _, err := s.meta(got.Digest)
		if err != nil || i > 0 && meta.From == "" {
			t.Fatalf("commit %d was not advanced: %v", i, err)
		}
		fresh := filepath.Join(t.TempDir(), "fresh")
		laid, err := s.cfg.Git.Checkout(t.Context(), got.GitDir, got.Base, fresh)
		if err != nil {
			t.Fatal(err)
		}
		if got.Files != laid.Files || got.Bytes != laid.Bytes {
			t.Errorf("%d files of %d bytes, want %d of %d", got.Files, got.Bytes, laid.Files, laid.Bytes)
		}
		want := listing(t, fresh)
		if have := listing(t, got.Tree); !slices.Equal(have, want) {
			t.Fatalf("commit %d:\n%q\nwant\n%q", i, have, want)
		}
		if have, want := asked(t, got.Tree), asked(t, fresh); have != want {
			t.Fatalf("commit %d: git says\n%s\nwant\n%s", i, have, want)
		}
		said, _ := warnings(fresh, laid.Entries, nil)
		if !slices.Equal(said, got.Warnings) {
			t.Errorf("warnings %q, want %q", got.Warnings, said)
		}
		for tree, was := range earlier {
			if !slices.Equal(listing(t, tree), was) {
				t.Fatalf("commit %d changed an earlier snapshot", i)
			}
		}
		earlier[got.Tree] = want
		if m.rnd.IntN(3) > 0 { // the next begins with the twin of this, or of one before, or with none
			if err := s.twin(t.Context(), got); err != nil {
				t.Fatal(err)
			}
			if have := listing(t, filepath.Join(s.dir(got.Digest), twinDir)); !slices.Equal(have, want) {
				t.Fatalf("commit %d: the twin is\n%q\nwant\n%q", i, have, want)
			}
		}
	}
}

// An advanced snapshot shares the packs of which it has every object, and has no object besides its own.
func TestAdvancedSharesPacks(t *testing.T) {
	s, dir := newStore(t), t.TempDir()
	gittest.Run(t, dir, "init", "-q", "-b", "main")
	noise := rand.NewChaCha8([32]byte{1})
	write := func(i int) {
		b := make([]byte, 200<<10)
		_, _ = noise.Read(b) // never fails
		p := filepath.Join(dir, fmt.Sprintf("d%d/f", i))
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, b, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	packs := func(tree string) map[string]os.FileInfo {
		out := map[string]os.FileInfo{}
		found, err := filepath.Glob(filepath.Join(tree, ".git/objects/pack/*.pack"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range found {
			if out[filepath.Base(p)], err = os.Stat(p); err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	for i := range 30 {
		write(i)
	}
	var earlier map[string]os.FileInfo
	for i := range 3 {
		write(20)
		gittest.Run(t, dir, "add", "-A")
		gittest.Run(t, dir, "commit", "-qm", fmt.Sprint(i))
		got, err := s.Prepare(t.Context(), Source{Repo: dir})
		if err != nil {
			t.Fatal(err)
		}
		fresh := filepath.Join(t.TempDir(), "fresh")
		if _, err := s.cfg.Git.Checkout(t.Context(), got.GitDir, got.Base, fresh); err != nil {
			t.Fatal(err)
		}
		if have, want := asked(t, got.Tree), asked(t, fresh); have != want {
			t.Fatalf("commit %d: git says\n%s\nwant\n%s", i, have, want)
		}
		gittest.Run(t, got.Tree, "fsck", "--full", "--strict")
		now, same := packs(got.Tree), 0
		for name, fi := range now {
			if earlier[name] != nil && os.SameFile(fi, earlier[name]) {
				same++
			}
		}
		if i > 0 && (same < 3 || len(now) > 9) {
			t.Errorf("commit %d shares %d of %d packs", i, same, len(now))
		}
		earlier = now
	}
}

// Each snapshot is whole when the one that it was advanced from is gone.
func TestAdvancedOutlivesItsOrigin(t *testing.T) {
	s, repo := newStore(t), repository(t)
	one, err := s.Prepare(t.Context(), Source{Repo: repo})
	if err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, repo, "commit", "-q", "--allow-empty", "-m", "second")
	two, err := s.Prepare(t.Context(), Source{Repo: repo})
	if err != nil {
		t.Fatal(err)
	}
	want := listing(t, two.Tree)
	s.Done(one)
	if err := s.Remove(one.Digest); err != nil {
		t.Fatal(err)
	}
	if got := listing(t, two.Tree); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	asked(t, two.Tree)
}

// A snapshot that lost files, whoever took them, is no base for another.
func TestDamagedOriginIsNotUsed(t *testing.T) {
	s, repo := newStore(t), repository(t)
	one, err := s.Prepare(t.Context(), Source{Repo: repo})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(one.Tree, "crlf")); err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, repo, "commit", "-q", "--allow-empty", "-m", "second")
	two, err := s.Prepare(t.Context(), Source{Repo: repo})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(two.Tree, "crlf")); err != nil || string(b) != "x\r\n" {
		t.Errorf("%q %v", b, err)
	}
	noLeftovers(t, s)
}

// killingGit is a git that ends its caller with SIGKILL at a command, before or after it ran.
func killingGit(t *testing.T, at, when string) string {
	t.Helper()
	real, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\n"
	kill := "case \" $* \" in *\" " + at + " \"*) kill -9 $PPID; exit 1;; esac\n"
	if when == "before" {
		script += kill + "exec " + real + " \"$@\"\n"
	} else {
		script += real + " \"$@\" || exit $?\n" + kill
	}
	p := filepath.Join(t.TempDir(), "git")
	if err := os.WriteFile(p, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

// Whoever is killed while it makes a snapshot, from nothing or from another, leaves a state in
// which the next makes it.
func TestKilledBuild(t *testing.T) {
	if dir := os.Getenv("SNAPSHOT_DIR"); dir != "" { // the child, which does not return
		g, err := git.New(git.Config{Home: t.TempDir(), Bin: os.Getenv("SNAPSHOT_GIT")})
		if err != nil {
			t.Fatal(err)
		}
		s := newStore(t)
		s.cfg.Dir, s.cfg.Git = dir, g
		_, err = s.Prepare(t.Context(), Source{Repo: os.Getenv("SNAPSHOT_REPO"), Ref: "main"})
		t.Fatal("not killed:", err)
	}
	s, repo := newStore(t), repository(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		at, when string
		nothing  bool // there is no snapshot to begin from
	}{
		{"fetch", "before", true},
		{"fetch", "after", true},
		{"ls-tree", "before", true},
		{"read-tree", "before", true},
		{"update-index", "before", true},
		{"update-index", "after", true},
		{"fetch", "after", false},
		{"commit-tree", "after", false},
		{"diff-tree", "before", false},
		{"pack-objects", "after", false},
		{"checkout-index", "before", false},
		{"checkout-index", "after", false},
	} {
		if c.nothing {
			if _, err := s.Forget(t.Context(), repo, "", nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(repo, "a.txt"), fmt.Appendln(nil, i), 0o644); err != nil {
			t.Fatal(err)
		}
		gittest.Run(t, repo, "commit", "-qam", fmt.Sprint(i))
		cmd := exec.Command(self, "-test.run=^TestKilledBuild$")
		cmd.Env = append(os.Environ(), "SNAPSHOT_DIR="+s.cfg.Dir, "SNAPSHOT_REPO="+repo, "SNAPSHOT_GIT="+killingGit(t, c.at, c.when), "TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err == nil || strings.Contains(string(out), "not killed") {
			t.Fatalf("%v: the child lived: %v %s", c, err, out)
		}
		got, err := s.Prepare(t.Context(), Source{Repo: repo, Ref: "main"})
		if err != nil || got.Cached {
			t.Fatalf("%v: %+v %v", c, got, err)
		}
		s.Done(got)
		if meta, _, err := s.meta(got.Digest); err != nil || c.nothing != (meta.From == "") {
			t.Errorf("%v: from %q %v", c, meta.From, err)
		}
		if b, err := os.ReadFile(filepath.Join(got.Tree, "a.txt")); err != nil || strings.TrimSpace(string(b)) != fmt.Sprint(i) {
			t.Errorf("%v: %q %v", c, b, err)
		}
		asked(t, got.Tree)
		noLeftovers(t, s)
	}
}

// A disk that is full in the middle leaves what was there, and says so.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	for name, size := range map[string]int{"mirror": 6 << 20, "objects": 2 << 20, "files": 1500 << 10} { // what it is too large for
		t.Run(name, func(t *testing.T) { fillDisk(t, size) })
	}
}

func fillDisk(t *testing.T, size int) {
	s, repo := newStore(t), repository(t)
	dir := t.TempDir()
	if err := unix.Mount("small", dir, "tmpfs", 0, "size=4m"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	s.cfg.Dir = filepath.Join(dir, "data")
	s, err := New(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	one, err := s.Prepare(t.Context(), Source{Repo: repo})
	if err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, size)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(rnd.Uint32())
	}
	if err := os.WriteFile(filepath.Join(repo, "noise"), noise, 0o644); err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, repo, "add", "-A")
	gittest.Run(t, repo, "commit", "-qm", "large")
	for _, from := range []string{"", "nothing"} { // advanced, or not
		if from != "" {
			s.Done(one)
			if err := s.Remove(one.Digest); err != nil {
				t.Fatal(err)
			}
		}
		if _, err = s.Prepare(t.Context(), Source{Repo: repo}); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%v, class %s", err, task.ClassOf(err))
		}
		if left, _ := filepath.Glob(filepath.Join(s.mirror(repo), "objects", "*", "tmp_*")); len(left) > 0 {
			t.Errorf("left in the mirror: %q", left)
		}
		noLeftovers(t, s)
	}
	again, err := s.Prepare(t.Context(), Source{Repo: repo, Ref: one.Base})
	if err != nil {
		t.Fatal(err)
	}
	asked(t, again.Tree)
}

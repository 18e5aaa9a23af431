package git

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func newGit(t testing.TB) *Git {
	t.Helper()
	g, err := New(Config{Home: t.TempDir()})
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return g
}

func write(t testing.TB, dir string, files map[string]string) {
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

// repository makes a work tree with one commit of the files.
func repository(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	gittest.Run(t, dir, "init", "-q", "-b", "main")
	write(t, dir, files)
	gittest.Run(t, dir, "add", "-A", "-f")
	gittest.Run(t, dir, "commit", "-q", "--allow-empty", "-m", "first")
	return dir
}

func mirror(t testing.TB, g *Git, src string) (gitdir, base string) {
	t.Helper()
	gitdir = filepath.Join(t.TempDir(), "m.git")
	if err := g.EnsureBare(t.Context(), gitdir); err != nil {
		t.Fatal(err)
	}
	base, err := g.FetchCommit(t.Context(), gitdir, src, "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	return gitdir, base
}

// treeHash covers names, modes, link texts and contents below dir.
func treeHash(t testing.TB, dir string, skip ...string) string {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		for _, s := range skip {
			if rel == s {
				if d.IsDir() {
					return filepath.SkipDir
				}
				return nil
			}
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %v\n", rel, fi.Mode())
		switch {
		case fi.Mode().IsRegular():
			b, err := os.ReadFile(p)
			fmt.Fprintf(h, "%d ", len(b))
			h.Write(b)
			return err
		case fi.Mode()&fs.ModeSymlink != 0:
			l, err := os.Readlink(p)
			fmt.Fprintf(h, "%q ", l)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func wantClass(t *testing.T, err error, c task.Class, parts ...string) {
	t.Helper()
	if task.ClassOf(err) != c {
		t.Fatalf("class %q, want %q: %v", task.ClassOf(err), c, err)
	}
	if strings.ContainsAny(err.Error(), "\n\r") {
		t.Errorf("error is not one line: %q", err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

func TestFetchCommitFromEveryKindOfSource(t *testing.T) {
	g := newGit(t)
	src := repository(t, map[string]string{"a.txt": "one\n"})
	first := gittest.Run(t, src, "rev-parse", "HEAD")
	gittest.Run(t, src, "tag", "v1")
	write(t, src, map[string]string{"a.txt": "two\n"})
	gittest.Run(t, src, "commit", "-qam", "second")
	second := gittest.Run(t, src, "rev-parse", "HEAD")
	bare := filepath.Join(t.TempDir(), "bare.git")
	gittest.Run(t, src, "clone", "-q", "--bare", src, bare)
	shallow := filepath.Join(t.TempDir(), "shallow")
	gittest.Run(t, src, "clone", "-q", "--depth=1", "file://"+src, shallow)
	linked := filepath.Join(t.TempDir(), "linked")
	gittest.Run(t, src, "worktree", "add", "-q", "--detach", linked, "v1")
	foreign := filepath.Join(t.TempDir(), "foreign.git")
	gittest.Run(t, src, "clone", "-q", "--bare", src, foreign)
	if os.Geteuid() == 0 {
		chownAll(t, foreign, 12345)
	}
	for _, c := range []struct{ name, src, ref, want string }{
		{"work tree", src, "", second},
		{"bare", bare, "main", second},
		{"tag", bare, "v1", first},
		{"relative revision", src, "HEAD~1", first},
		{"short id", src, first[:10], first},
		{"full id", "file://" + bare, first, first},
		{"linked work tree", linked, "HEAD", first},
		{"shallow clone, a commit it has", shallow, "HEAD", second},
		{"another user's", foreign, "HEAD", second},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "m.git")
			if err := g.EnsureBare(t.Context(), dir); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second finds it there
				got, err := g.FetchCommit(t.Context(), dir, c.src, c.ref)
				if err != nil || got != c.want {
					t.Fatalf("got %q, %v; want %s", got, err, c.want)
				}
			}
			if _, err := g.TreeID(t.Context(), dir, c.want); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("unknown base of a shallow clone", func(t *testing.T) {
		dir, _ := mirror(t, g, shallow)
		_, err := g.FetchCommit(t.Context(), dir, shallow, "HEAD~1")
		wantClass(t, err, task.NotFound, "--unshallow")
	})
}

func TestTargetBranch(t *testing.T) {
	g := newGit(t)
	src := repository(t, map[string]string{"a": "1"})
	gittest.Run(t, src, "tag", "v1")
	gittest.Run(t, src, "branch", "release/1.x")
	for ref, want := range map[string]string{"": "main", "HEAD": "main", "release/1.x": "release/1.x", "refs/heads/main": "main", "v1": "", "HEAD~0": "", "nope": "", "main*": ""} {
		if got, err := g.TargetBranch(t.Context(), src, ref); err != nil || got != want {
			t.Errorf("%q: %q %v, want %q", ref, got, err, want)
		}
	}
	gittest.Run(t, src, "checkout", "-q", "--detach")
	if got, err := g.TargetBranch(t.Context(), src, ""); err != nil || got != "" {
		t.Errorf("detached: %q %v", got, err)
	}
}

func TestPinnedCommitNeedsNoSource(t *testing.T) {
	g := newGit(t)
	src := repository(t, map[string]string{"a": "1"})
	gitdir, base := mirror(t, g, src)
	if err := os.RemoveAll(src); err != nil {
		t.Fatal(err)
	}
	if got, err := g.FetchCommit(t.Context(), gitdir, src, base); err != nil || got != base {
		t.Errorf("%s %v", got, err)
	}
}

func chownAll(t *testing.T, dir string, uid int) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(p, uid, uid))
	}); err != nil {
		t.Fatal(err)
	}
}

func TestFetchCommitSaysWhatIsWrong(t *testing.T) {
	g := newGit(t)
	src := repository(t, map[string]string{"a": "1", "sub/b": "2"})
	empty := t.TempDir()
	gittest.Run(t, empty, "init", "-q")
	broken := repository(t, map[string]string{"a": "1"})
	if err := os.WriteFile(filepath.Join(broken, ".git/config"), []byte("[core\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	write(t, filepath.Dir(file), map[string]string{"file": "x"})
	dir := filepath.Join(t.TempDir(), "m.git")
	if err := g.EnsureBare(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, src, ref string
		class          task.Class
		says           string
	}{
		{"no such directory", "/nonexistent/repo", "", task.Invalid, "does not exist"},
		{"a file", file, "", task.Invalid, "not a directory"},
		{"plain directory", t.TempDir(), "", task.Invalid, "not a readable git repository"},
		{"subdirectory of a repository", filepath.Join(src, "sub"), "", task.Invalid, "top directory"},
		{"broken configuration", broken, "", task.Invalid, "not a readable git repository"},
		{"no commits", empty, "", task.NotFound, "has no commits"},
		{"unknown base", src, "nope", task.NotFound, `no commit "nope"`},
		{"unknown full id", src, strings.Repeat("a", 40), task.NotFound, "no commit"},
		{"a tree is no commit", src, "HEAD^{tree}", task.NotFound, "no commit"},
		{"option as ref", src, "--upload-pack=touch x", task.Invalid, "not a revision"},
		{"line break in ref", src, "HEAD\nx", task.Invalid, "not a revision"},
		{"option as source", "--upload-pack=touch x", "", task.Invalid, "option"},
		{"ext transport", "ext::sh -c touch% x", "", task.Invalid, "not allowed"},
		{"git transport", "git://127.0.0.1/x", "", task.Invalid, "not allowed"},
		{"nobody listens", "http://user:s3cret@127.0.0.1:1/x.git", "main", task.Transient, "http://127.0.0.1:1/x.git"},
		{"empty", "", "", task.Invalid, "is empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := g.FetchCommit(t.Context(), dir, c.src, c.ref)
			wantClass(t, err, c.class, c.says)
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("a password is shown: %v", err)
			}
		})
	}
}

func TestCheckoutHoldsOneCommitAndIsReproducible(t *testing.T) {
	g := newGit(t)
	src := repository(t, map[string]string{
		"a.txt": "one\r\n", "dir/b": "two",
		"x.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "x.u": "plain\n", "latin": "caf\xe9\n",
	})
	write(t, src, map[string]string{".gitattributes": "*.txt text eol=lf\n*.bin filter=lfs diff=lfs\n*.u working-tree-encoding=UTF-16LE\n"})
	if err := os.Symlink("../../etc/passwd", filepath.Join(src, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(src, "dir/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, src, "add", ".gitattributes", "link", "dir/b")
	gittest.Run(t, src, "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",vendor/sub")
	gittest.Run(t, src, "commit", "-qm", "more")
	gitdir, base := mirror(t, g, src)
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	l1, err := g.Checkout(t.Context(), gitdir, base, one)
	if err != nil {
		t.Fatal(err)
	}
	l2, err := g.Checkout(t.Context(), gitdir, base, two)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(l1, l2) || treeHash(t, one, ".git/index") != treeHash(t, two, ".git/index") {
		t.Errorf("two checkouts differ: %+v %+v", l1, l2)
	}
	if l1.Files != 7 || l1.Commit == base {
		t.Errorf("laid %+v", l1)
	}
	for name, want := range map[string]string{"a.txt": "one\r\n", "latin": "caf\xe9\n", "x.u": "plain\n"} {
		if got, _ := os.ReadFile(filepath.Join(one, name)); string(got) != want {
			t.Errorf("%s is %q, want the blob's bytes %q", name, got, want)
		}
	}
	if got, _ := os.Readlink(filepath.Join(one, "link")); got != "../../etc/passwd" {
		t.Errorf("link is %q", got)
	}
	if d, err := os.ReadDir(filepath.Join(one, "vendor/sub")); err != nil || len(d) != 0 {
		t.Errorf("submodule directory: %v %v", d, err)
	}
	objects := strings.Fields(gittest.Run(t, one, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype)"))
	if n := strings.Count(strings.Join(objects, " "), "commit"); n != 1 {
		t.Errorf("%d commits in the checkout", n)
	}
	if got := gittest.Run(t, one, "rev-list", "--all", "--reflog", "--parents"); got != l1.Commit {
		t.Errorf("reachable history is %q", got)
	}
	if got := gittest.Run(t, one, "for-each-ref", "--format=%(refname)"); got != "refs/heads/main" {
		t.Errorf("refs: %q", got)
	}
	if got := gittest.Run(t, one, "log", "--format=%an %ae %at %cn %ct %s"); got != "Daybreak daybreak@localhost 946684800 Daybreak 946684800 Base" {
		t.Errorf("commit says %q", got)
	}
	if got := gittest.Run(t, one, "status", "--porcelain"); got != "" {
		t.Errorf("status: %q", got)
	}
	if got := gittest.Run(t, one, "fsck", "--strict"); strings.Contains(got, "error") {
		t.Errorf("fsck: %s", got)
	}
}

// A copy has other inodes, owners and change times, as a lower layer seen by another user has.
func TestStatusOfACopiedCheckoutReadsNothing(t *testing.T) {
	g := newGit(t)
	gitdir, base := mirror(t, g, repository(t, map[string]string{"a": "1", "b/c": "2"}))
	dest := filepath.Join(t.TempDir(), "w")
	if _, err := g.Checkout(t.Context(), gitdir, base, dest); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.Command("cp", "-a", dest, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	// diff-files without a refresh lists every path whose stat no longer fits the index.
	if got := gittest.Run(t, copied, "diff-files"); got != "" {
		t.Errorf("the index does not fit the copy: %s", got)
	}
}

func TestDirtyTreeIsReadAtItsCommitAndNotTouched(t *testing.T) {
	g := newGit(t)
	src := repository(t, map[string]string{"a": "committed\n", "gone": "x"})
	write(t, src, map[string]string{"a": "dirty\n", "new": "untracked"})
	gittest.Run(t, src, "add", "a")
	write(t, src, map[string]string{"a": "dirtier\n"})
	if err := os.Remove(filepath.Join(src, "gone")); err != nil {
		t.Fatal(err)
	}
	before := treeHash(t, src)
	gitdir, base := mirror(t, g, src)
	if b, _, err := g.File(t.Context(), gitdir, base, "a", 0); err != nil || string(b) != "committed\n" {
		t.Errorf("a is %q, %v", b, err)
	}
	if treeHash(t, src) != before {
		t.Error("the source changed")
	}
}

// trapped makes a repository in which everything git can be told to run leaves the marker.
func trapped(t *testing.T) (src, marker string) {
	t.Helper()
	marker = filepath.Join(t.TempDir(), "marker")
	trap := filepath.Join(t.TempDir(), "trap.sh")
	if err := os.WriteFile(trap, []byte("#!/bin/sh\necho \"$0 $*\" >> "+marker+"\ncat 2>/dev/null\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	src = repository(t, map[string]string{"a.txt": "one\n", ".gitattributes": "* filter=trap diff=trap merge=trap\n*.txt text eol=crlf\n", ".lfsconfig": "[lfs]\n\turl = ext::" + trap + "\n"})
	donor := repository(t, map[string]string{"canary": "other repository's canary\n"})
	write(t, src, map[string]string{
		".git/objects/info/alternates": donor + "/.git/objects\n",
		".git/info/attributes":         "* filter=trap diff=trap\n",
		".git/included":                "[core]\n\tfsmonitor = " + trap + "\n\tsshCommand = " + trap + "\n",
	})
	hooks := []string{
		"pre-receive", "update", "post-receive", "post-update", "reference-transaction", "pre-push", "post-checkout",
		"post-index-change", "fsmonitor-watchman", "push-to-checkout", "proc-receive", "pre-auto-gc", "sendemail-validate",
	}
	for _, h := range hooks {
		if err := os.MkdirAll(filepath.Join(src, ".git/hooks"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(trap, filepath.Join(src, ".git/hooks", h)); err != nil {
			t.Fatal(err)
		}
	}
	config := fmt.Sprintf(`[include]
	path = included
[core]
	fsmonitor = %[1]s
	hooksPath = .git/hooks
	pager = %[1]s
	editor = %[1]s
	gitProxy = %[1]s
	askPass = %[1]s
	alternateRefsCommand = %[1]s
[filter "trap"]
	clean = %[1]s
	smudge = %[1]s
	process = %[1]s
	required = true
[diff]
	external = %[1]s
[diff "trap"]
	command = %[1]s
	textconv = %[1]s
[merge "trap"]
	driver = %[1]s
[uploadpack]
	packObjectsHook = %[1]s
[receive]
	denyCurrentBranch = updateInstead
[credential]
	helper = %[1]s
[gpg]
	program = %[1]s
[commit]
	gpgSign = true
[alias]
	upload-pack = !%[1]s
[remote "origin"]
	url = ext::%[1]s
	promisor = true
	partialclonefilter = blob:none
	uploadpack = %[1]s
	receivepack = %[1]s
[extensions]
	partialClone = origin
`, trap)
	f, err := os.OpenFile(filepath.Join(src, ".git/config"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(config); err != nil {
		t.Fatal(err)
	}
	return src, marker
}

func TestTrappedSourceRunsNothing_EXP01_EXP02(t *testing.T) {
	g := newGit(t)
	// Control: plain git falls into the traps.
	src, marker := trapped(t)
	cmd := exec.Command("git", "status")
	cmd.Dir = src
	_ = cmd.Run()
	if _, err := os.Stat(marker); err != nil {
		t.Fatal("not exercised: the traps do not catch plain git")
	}

	src, marker = trapped(t)
	before := treeHash(t, src, ".git/objects", ".git/refs")
	gitdir, base := mirror(t, g, src)
	dest := filepath.Join(t.TempDir(), "w")
	if _, err := g.Checkout(t.Context(), gitdir, base, dest); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	tree, err := g.BuildTree(ctx, gitdir, base, []Change{{Path: "b.txt", Mode: ModeFile, Content: []byte("two\n")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.Diff(ctx, gitdir, base, tree, DiffOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := g.Ignored(ctx, gitdir, base, dest, []string{"b.txt"}); err != nil {
		t.Error(err)
	}
	commit, err := g.Commit(ctx, gitdir, tree, base, CommitInfo{"A", "a@example.com", time.Unix(1, 0), "m"})
	if err != nil {
		t.Fatal(err)
	}
	if found, err := g.Push(ctx, gitdir, src, commit, "daybreak/x", ""); err != nil || found {
		t.Fatal(found, err)
	}
	if got := gittest.Run(t, src, "rev-parse", "refs/heads/daybreak/x"); got != commit {
		t.Errorf("branch at %s", got)
	}
	if b, err := os.ReadFile(marker); err == nil {
		t.Errorf("something ran:\n%s", b)
	}
	if treeHash(t, src, ".git/objects", ".git/refs") != before {
		t.Error("the source's work tree, index or configuration changed")
	}
	if _, err := g.in(ctx, gitdir, "cat-file", "-e", BlobID([]byte("other repository's canary\n"))); err == nil {
		t.Error("an object of the alternate came along")
	}
}

func TestCancelAndBounds(t *testing.T) {
	g := newGit(t)
	gitdir, base := mirror(t, g, repository(t, map[string]string{"a": strings.Repeat("line\n", 10000)}))
	why := errors.New("stopped by a person")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := g.ListTree(ctx, gitdir, base); !errors.Is(err, why) {
		t.Errorf("cancelled: %v", err)
	}
	tree, err := g.BuildTree(t.Context(), gitdir, base, []Change{{Path: "a", Mode: ModeFile, Content: bytes.Repeat([]byte("other\n"), 10000)}})
	if err != nil {
		t.Fatal(err)
	}
	text, cut, err := g.Diff(t.Context(), gitdir, base, tree, DiffOptions{MaxBytes: 1000})
	if err != nil || !cut || len(text) != 1000 {
		t.Errorf("diff of %d bytes, cut %v, %v", len(text), cut, err)
	}
	g.cfg.MaxOutput = 10
	_, err = g.in(t.Context(), gitdir, "cat-file", "blob", base+":a")
	wantClass(t, err, task.Invalid, "more than 10 bytes")
}

func TestRedactURL(t *testing.T) {
	for in, want := range map[string]string{
		"https://u:p@h/x":                       "https://h/x",
		"fatal: unable to access 'http://t@h/'": "fatal: unable to access 'http://h/'",
		"ssh://git@h:22/a@b and https://a:b@c":  "ssh://h:22/a@b and https://c",
		"https://p@ss@h/":                       "https://h/",
		"plain":                                 "plain",
	} {
		if got := RedactURL(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestReadBack(t *testing.T) {
	g := newGit(t)
	gitdir, base := mirror(t, g, repository(t, map[string]string{
		"a": "1\n", "d/b": "2\n", ".gitignore": "*.log\n/build/\n!keep.log\n", "d/.gitignore": "tmp\n", "old.log": "tracked",
	}))
	dest := filepath.Join(t.TempDir(), "w")
	if _, err := g.Checkout(t.Context(), gitdir, base, dest); err != nil {
		t.Fatal(err)
	}
	got, err := g.Ignored(t.Context(), gitdir, base, dest, []string{"x.log", "keep.log", "build/o", "d/tmp/x", "tmp", "old.log", "a/x.log", "d/c.go", "*", ":/q.log", ":(top)x"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"x.log", "build/o", "d/tmp/x", ":/q.log"}, got); diff != "" {
		t.Error(diff)
	}
	_, _, err = g.File(t.Context(), gitdir, base, "d", 0)
	wantClass(t, err, task.NotFound)
	_, _, err = g.File(t.Context(), gitdir, base, "d/b", 1)
	wantClass(t, err, task.Invalid, "more than the limit")
	entries, err := g.ListTree(t.Context(), gitdir, base)
	if err != nil || len(entries) != 5 || entries[1].Path != "a" || entries[1].Size != 2 || entries[1].Mode != ModeFile {
		t.Errorf("%+v %v", entries, err)
	}
}

func TestMergeBaseAndDir(t *testing.T) {
	g, bare := newGit(t), filepath.Join(t.TempDir(), "m.git")
	src := repository(t, map[string]string{"a.txt": "one\n"})
	if err := g.EnsureBare(t.Context(), bare); err != nil {
		t.Fatal(err)
	}
	id, err := g.FetchCommit(t.Context(), bare, src, "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	merge, err := g.MergeBase(t.Context(), src, "HEAD", "HEAD")
	if err != nil || merge != id {
		t.Errorf("merge base %q, %v", merge, err)
	}
	if got, err := g.MergeBase(t.Context(), "https://localhost/x", "a", "b"); err != nil || got != "" {
		t.Errorf("of a URL: %q, %v", got, err)
	}
	if _, err := g.MergeBase(t.Context(), src, "HEAD", "nowhere"); task.ClassOf(err) != task.NotFound {
		t.Errorf("unknown head: %v", err)
	}
	if _, err := g.Dir(t.Context(), t.TempDir()); task.ClassOf(err) != task.Invalid {
		t.Errorf("a plain folder: %v", err)
	}
	if d, err := g.Dir(t.Context(), src); err != nil || filepath.Base(d) != ".git" {
		t.Errorf("%q %v", d, err)
	}
}

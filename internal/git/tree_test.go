package git

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func TestBuildTreeIsExactlyTheChange(t *testing.T) {
	g := newGit(t)
	gitdir, base := mirror(t, g, repository(t, map[string]string{"a": "1\n", "dir/b": "2\n", "file": "3\n", "run": "4\n", "ä\tb": "5\n"}))
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	changes := []Change{
		{Path: "a", Mode: ModeFile, Content: []byte("one\r\n\xff\x00")},
		{Path: "file", Deleted: true},
		{Path: "file/now/dir", Mode: ModeFile, Content: big},
		{Path: "dir/b", Deleted: true},
		{Path: "dir", Mode: ModeLink, Content: []byte("a")},
		{Path: "run", Mode: ModeExecutable, Content: []byte("4\n")},
		{Path: "new", Mode: ModeFile},
		{Path: "ä\tb", Mode: ModeFile, Content: []byte("tab and umlaut\n")},
	}
	tree, err := g.BuildTree(t.Context(), gitdir, base, changes)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		if c.Deleted {
			continue
		}
		got, mode, err := g.File(t.Context(), gitdir, tree, c.Path, 0)
		if err != nil || mode != c.Mode || !bytes.Equal(got, c.Content) {
			t.Errorf("%s: mode %o, %d bytes, %v", c.Path, mode, len(got), err)
		}
	}
	again, err := g.BuildTree(t.Context(), gitdir, base, changes)
	if err != nil || again != tree {
		t.Errorf("second build %s %v, want %s", again, err, tree)
	}
	commit, err := g.Commit(t.Context(), gitdir, tree, base, CommitInfo{"Day <x>\nbreak", "", time.Unix(1e9, 0), "title\n\nbody\n"})
	if err != nil {
		t.Fatal(err)
	}
	if got := gittest.Run(t, gitdir, "log", "-1", "--format=%an|%ae|%at|%P|%B", commit); got != "Day xbreak|daybreak@localhost|1000000000|"+base+"|title\n\nbody" {
		t.Errorf("commit is %q", got)
	}
	stats, err := g.Stat(t.Context(), gitdir, base, tree)
	if err != nil || len(stats) != 8 {
		t.Errorf("%+v %v", stats, err)
	}
	left, err := os.ReadDir(gitdir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if strings.HasPrefix(e.Name(), "tmp-") {
			t.Errorf("left behind: %s", e.Name())
		}
	}
	if same, err := g.BuildTree(t.Context(), gitdir, base, nil); err != nil || same == tree {
		t.Errorf("no change gives %s %v", same, err)
	}
}

func TestBuildTreeRefusesHostilePaths_EXP06(t *testing.T) {
	g := newGit(t)
	gitdir, base := mirror(t, g, repository(t, map[string]string{"a": "1\n", "dir/b": "2\n"}))
	for _, p := range []string{
		"", "..", "../x", "a/../b", "/etc/passwd", "./a", "x//y", "x/", ".git", ".git/config", ".GIT/config", "sub/.git/hooks/x", "git~1",
		"GIT~1/config", ".g\u200cit/config", ".git /config", ".git./config", ".git::$INDEX_ALLOCATION/config", "nul\x00byte", "dir\\..\\.git\\config",
	} {
		t.Run(fmt.Sprintf("%q", p), func(t *testing.T) {
			_, err := g.BuildTree(t.Context(), gitdir, base, []Change{{Path: "ok", Mode: ModeFile}, {Path: p, Mode: ModeFile, Content: []byte("x")}})
			wantClass(t, err, task.Invalid)
			if !strings.Contains(err.Error(), fmt.Sprintf("%q", p)) && !strings.Contains(err.Error(), strings.ReplaceAll(p, "\x00", "")) {
				t.Errorf("the path is not named: %v", err)
			}
		})
	}
}

func TestBuildTreeRefusesWhatPlumbingDrops_EXP08(t *testing.T) {
	g := newGit(t)
	gitdir, base := mirror(t, g, repository(t, map[string]string{"a": "1\n", "dir/b": "2\n"}))
	file := func(p string) Change { return Change{Path: p, Mode: ModeFile, Content: []byte("x")} }
	for name, c := range map[string]struct {
		changes []Change
		says    string
	}{
		"file where a directory is":   {[]Change{file("dir")}, "dir"},
		"directory where a file is":   {[]Change{file("a/x")}, "a"},
		"both in one change":          {[]Change{file("n"), file("n/x")}, "n"},
		"the same path twice":         {[]Change{file("n"), file("n")}, "twice"},
		"set-uid mode":                {[]Change{{Path: "n", Mode: 0o104755}}, "104755"},
		"device mode":                 {[]Change{{Path: "n", Mode: 0o060000}}, "060000"},
		"submodule (EXP11)":           {[]Change{{Path: "n", Mode: ModeSubmodule}}, "160000"},
		"no mode":                     {[]Change{{Path: "n"}}, "000000"},
		"unchanged":                   {[]Change{{Path: "a", Mode: ModeFile, Content: []byte("1\n")}}, `"a"`},
		"deletion of what is not":     {[]Change{{Path: "zz", Deleted: true}}, `"zz"`},
		"deletion of a whole folder":  {[]Change{{Path: "dir", Deleted: true}}, `"dir"`},
		"one dropped among good ones": {[]Change{file("x"), file(".git/x"), file("y")}, ".git/x"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := g.BuildTree(t.Context(), gitdir, base, c.changes)
			wantClass(t, err, task.Invalid, c.says)
		})
	}
}

// There is no patch text to disagree with itself: the tree's own difference is the check.
func TestChangedPathsComeFromTrees_EXP07(t *testing.T) {
	g := newGit(t)
	gitdir, base := mirror(t, g, repository(t, map[string]string{"shown": "1\n", "hidden": "2\n"}))
	patch := "diff --git a/shown b/shown\n--- a/hidden\n+++ b/hidden\n@@ -1 +1 @@\n-2\n+evil\n"
	tree, err := g.BuildTree(t.Context(), gitdir, base, []Change{{Path: "shown", Mode: ModeFile, Content: []byte(patch)}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := g.ChangedPaths(t.Context(), gitdir, base, tree)
	if err != nil {
		t.Fatal(err)
	}
	want := []PathDiff{{"shown", ModeFile, ModeFile, BlobID([]byte("1\n")), BlobID([]byte(patch))}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// checkTree is what stands between a lying index and a pull request.
	err = g.checkTree(t.Context(), gitdir, base, tree, map[string]entry{"hidden": {ModeFile, BlobID(nil)}})
	wantClass(t, err, task.Invalid, `"shown"`, "without being in the change")
}

func TestDropUnchanged(t *testing.T) {
	g := newGit(t)
	gitdir, base := mirror(t, g, repository(t, map[string]string{"a": "1\n", "b": "2\n"}))
	got, err := g.DropUnchanged(t.Context(), gitdir, base, []Change{
		{Path: "a", Mode: ModeFile, Content: []byte("1\n")},
		{Path: "b", Mode: ModeExecutable, Content: []byte("2\n")},
		{Path: "zz", Deleted: true},
		{Path: "a2", Mode: ModeFile},
	})
	if err != nil || len(got) != 2 || got[0].Path != "b" || got[1].Path != "a2" {
		t.Errorf("%+v %v", got, err)
	}
}

func TestPush_FRG01(t *testing.T) {
	g := newGit(t)
	src := repository(t, map[string]string{"a": "1\n"})
	gitdir, base := mirror(t, g, src)
	commit := func(text, parent string) string {
		t.Helper()
		tree, err := g.BuildTree(t.Context(), gitdir, base, []Change{{Path: "a", Mode: ModeFile, Content: []byte(text)}})
		if err != nil {
			t.Fatal(err)
		}
		id, err := g.Commit(t.Context(), gitdir, tree, parent, CommitInfo{"A", "a@b", time.Unix(5, 0), text})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	one, other := commit("one\n", base), commit("other\n", base)
	const branch = "daybreak/t_1-fix"
	for _, b := range []string{
		"main", "", "daybreak/", "daybreak/../main", "refs/heads/main", "daybreak/x:main", "daybreak/x@{1}", "daybreak/x\ny",
		"daybreak/-x", "-daybreak/x", "daybreak/x y", "daybreak/X", "daybreak/x.lock", "refs/for/main", "daybreak//x", "+daybreak/x",
	} {
		_, err := g.Push(t.Context(), gitdir, src, one, b, "")
		wantClass(t, err, task.Invalid)
	}
	before := treeHash(t, src, ".git/objects", ".git/refs")
	if found, err := g.Push(t.Context(), gitdir, src, one, branch, ""); found || err != nil {
		t.Fatal(found, err)
	}
	if found, err := g.Push(t.Context(), gitdir, src, one, branch, ""); !found || err != nil {
		t.Errorf("again: %v %v", found, err)
	}
	_, err := g.Push(t.Context(), gitdir, src, other, branch, "")
	wantClass(t, err, task.Conflict, "at "+one[:12])
	_, err = g.Push(t.Context(), gitdir, src, other, branch, base)
	wantClass(t, err, task.Conflict)
	if _, err := g.Push(t.Context(), gitdir, src, other, branch, one); err != nil {
		t.Errorf("with the right lease: %v", err)
	}
	if treeHash(t, src, ".git/objects", ".git/refs") != before {
		t.Error("the target's work tree, index or configuration changed")
	}
	wt := filepath.Join(t.TempDir(), "wt")
	gittest.Run(t, src, "worktree", "add", "-q", wt, branch)
	_, err = g.Push(t.Context(), gitdir, src, one, branch, other)
	wantClass(t, err, task.Conflict, "checked out")
	if got, _ := os.ReadFile(filepath.Join(wt, "a")); string(got) != "other\n" {
		t.Errorf("the checked-out file is %q", got)
	}
	if got, err := g.RemoteBranch(t.Context(), src, branch); err != nil || got != other {
		t.Errorf("branch at %s %v", got, err)
	}
	_, err = g.Push(t.Context(), gitdir, filepath.Join(t.TempDir(), "none"), one, branch, "")
	wantClass(t, err, task.Invalid, "cannot be read")
}

func TestPushIntoAnotherUsersRepositoryLeavesItTheirs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make another user's repository")
	}
	g := newGit(t)
	src := repository(t, map[string]string{"a": "1\n"})
	chownAll(t, src, 12345)
	gitdir, base := mirror(t, g, src)
	tree, err := g.BuildTree(t.Context(), gitdir, base, []Change{{Path: "a", Mode: ModeFile, Content: []byte("x")}})
	if err != nil {
		t.Fatal(err)
	}
	id, err := g.Commit(t.Context(), gitdir, tree, base, CommitInfo{When: time.Unix(5, 0)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Push(t.Context(), gitdir, src, id, "daybreak/x", ""); err != nil {
		t.Fatal(err)
	}
	for _, p := range rootOwned(t, src) {
		t.Errorf("%s belongs to root now", p)
	}
}

// A base commit may come from anywhere, with a tree that git add would never make.
func TestHostileBaseTreeIsNotCheckedOut(t *testing.T) {
	g := newGit(t)
	src := repository(t, map[string]string{"a": "1\n"})
	blob := gittest.Run(t, src, "rev-parse", "HEAD:a")
	mktree := exec.Command("git", "mktree")
	mktree.Dir = src
	mktree.Stdin = strings.NewReader("100644 blob " + blob + "\tconfig\n")
	inner, err := mktree.Output()
	if err != nil {
		t.Fatal(err)
	}
	mktree = exec.Command("git", "mktree")
	mktree.Dir = src
	mktree.Stdin = strings.NewReader("040000 tree " + strings.TrimSpace(string(inner)) + "\t.GIT\n")
	outer, err := mktree.Output()
	if err != nil {
		t.Fatal(err)
	}
	evil := gittest.Run(t, src, "commit-tree", "-m", "evil", strings.TrimSpace(string(outer)))
	gitdir, _ := mirror(t, g, src)
	if _, err := g.FetchCommit(t.Context(), gitdir, src, evil); err != nil {
		t.Fatal(err)
	}
	dest := filepath.Join(t.TempDir(), "w")
	_, err = g.Checkout(t.Context(), gitdir, evil, dest)
	wantClass(t, err, task.Invalid, "cannot be checked out", ".GIT/config")
	if _, err := os.Stat(filepath.Join(dest, ".GIT")); err == nil {
		t.Error("it was written all the same")
	}
}

func BenchmarkCheckout(b *testing.B) {
	g := newGit(b)
	gitdir := filepath.Join(b.TempDir(), "m.git")
	if err := g.EnsureBare(b.Context(), gitdir); err != nil {
		b.Fatal(err)
	}
	empty := gittest.Run(b, gitdir, "hash-object", "-t", "tree", "-w", "/dev/null")
	var all []Change
	for i := range 10000 {
		all = append(all, Change{Path: fmt.Sprintf("pkg%d/file%d.go", i/100, i), Mode: ModeFile, Content: bytes.Repeat(fmt.Appendf(nil, "package p // %d\n", i), 200)})
	}
	tree, err := g.BuildTree(b.Context(), gitdir, empty, all)
	if err != nil {
		b.Fatal(err)
	}
	i := 0
	for b.Loop() {
		i++
		if _, err := g.Checkout(b.Context(), gitdir, tree, filepath.Join(b.TempDir(), fmt.Sprint(i))); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBuildTree(b *testing.B) {
	for _, size := range []struct{ files, changes int }{{1000, 5}, {50000, 5}, {1000, 2000}} {
		b.Run(fmt.Sprintf("files=%d/changes=%d", size.files, size.changes), func(b *testing.B) {
			g := newGit(b)
			gitdir := filepath.Join(b.TempDir(), "m.git")
			if err := g.EnsureBare(b.Context(), gitdir); err != nil {
				b.Fatal(err)
			}
			empty := strings.TrimSpace(gittest.Run(b, gitdir, "hash-object", "-t", "tree", "-w", "/dev/null"))
			var all []Change
			for i := range size.files {
				all = append(all, Change{Path: fmt.Sprintf("pkg%d/file%d.go", i/100, i), Mode: ModeFile, Content: fmt.Appendf(nil, "package p // %d\n", i)})
			}
			base, err := g.BuildTree(b.Context(), gitdir, empty, all)
			if err != nil {
				b.Fatal(err)
			}
			var changes []Change
			for i := range size.changes {
				changes = append(changes, Change{Path: fmt.Sprintf("pkg%d/new%d.go", i/100, i), Mode: ModeFile, Content: fmt.Appendf(nil, "package q // %d\n", i)})
			}
			for b.Loop() {
				if _, err := g.BuildTree(b.Context(), gitdir, base, changes); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

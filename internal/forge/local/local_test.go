package local

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/forge/forgetest"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// fixture makes a target: bare, or a work tree with a change that is not committed.
func fixture(t *testing.T, bare bool) forgetest.Fixture {
	t.Helper()
	g, err := git.New(git.Config{Home: t.TempDir()})
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	repo := t.TempDir()
	gittest.Run(t, repo, "init", "-q", "-b", "main")
	file := filepath.Join(repo, "a")
	if err := os.WriteFile(file, []byte("base\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, repo, "add", "a")
	gittest.Run(t, repo, "commit", "-qm", "base")
	if err := os.WriteFile(file, []byte("dirty\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if bare {
		to := filepath.Join(t.TempDir(), "bare.git")
		gittest.Run(t, repo, "clone", "-q", "--bare", repo, to)
		repo = to
	}
	gitdir := filepath.Join(t.TempDir(), "m.git")
	if err := g.EnsureBare(t.Context(), gitdir); err != nil {
		t.Fatal(err)
	}
	base, err := g.FetchCommit(t.Context(), gitdir, repo, "main")
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(Config{Dir: filepath.Join(t.TempDir(), "out"), Git: g})
	if err != nil {
		t.Fatal(err)
	}
	return forgetest.Fixture{
		Forge: f, Repo: repo, Base: "main", GitDir: gitdir,
		Commit: func(t *testing.T, content string) string {
			tree, err := g.BuildTree(t.Context(), gitdir, base, []git.Change{{Path: "a", Mode: git.ModeFile, Content: []byte(content)}})
			if err != nil {
				t.Fatal(err)
			}
			id, err := g.Commit(t.Context(), gitdir, tree, base, git.CommitInfo{When: time.Unix(1, 0), Message: content})
			if err != nil {
				t.Fatal(err)
			}
			return id
		},
		Head: func(t *testing.T, branch string) string {
			return gittest.Run(t, repo, "for-each-ref", "--format=%(objectname)", "refs/heads/"+branch)
		},
		SomebodyPushes: func(t *testing.T, branch, commit string) {
			gittest.Run(t, gitdir, "push", "-q", "--force", repo, commit+":refs/heads/"+branch)
		},
	}
}

func TestSuite(t *testing.T) {
	t.Run("bare", func(t *testing.T) { forgetest.Run(t, func(t *testing.T) forgetest.Fixture { return fixture(t, true) }) })
	t.Run("work tree", func(t *testing.T) {
		forgetest.Run(t, func(t *testing.T) forgetest.Fixture { return fixture(t, false) })
	})
}

func hashTree(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
	if err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		if rel == ".git/objects" || rel == ".git/refs" {
			return filepath.SkipDir
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %v ", rel, fi.Mode())
		if fi.Mode().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			fmt.Fprintf(h, "%d %v %s", len(b), fi.ModTime(), b)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

const branch = "daybreak/t_1-x"

func TestTargetIsLeftAlone(t *testing.T) {
	f := fixture(t, false)
	marker := filepath.Join(t.TempDir(), "marker")
	for _, h := range []string{"pre-receive", "update", "post-receive", "post-update", "reference-transaction", "push-to-checkout"} {
		p := filepath.Join(f.Repo, ".git/hooks", h)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("#!/bin/sh\necho "+h+" >> "+marker+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Run(t, f.Repo, "config", "receive.denyCurrentBranch", "updateInstead")
	// Control: a plain push runs them.
	f.SomebodyPushes(t, "daybreak/control", f.Commit(t, "control"))
	if _, err := os.Stat(marker); err != nil {
		t.Fatal("not exercised: the hooks do not run for a plain push")
	}
	if err := os.Remove(marker); err != nil {
		t.Fatal(err)
	}
	before := hashTree(t, f.Repo)
	c := f.Commit(t, "one")
	if _, err := f.Forge.Push(t.Context(), forge.Push{GitDir: f.GitDir, Repo: f.Repo, Branch: branch, Commit: c}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Forge.OpenPullRequest(t.Context(), forge.PullRequest{Repo: f.Repo, Branch: branch, Head: c}); err != nil {
		t.Fatal(err)
	}
	if hashTree(t, f.Repo) != before {
		t.Error("work tree, index, configuration or logs of the target changed")
	}
	if b, err := os.ReadFile(marker); err == nil {
		t.Errorf("hooks ran: %s", b)
	}
}

func TestBranchThatIsCheckedOutIsAConflict(t *testing.T) {
	f := fixture(t, false)
	one, two := f.Commit(t, "one"), f.Commit(t, "two")
	p := forge.Push{GitDir: f.GitDir, Repo: f.Repo, Branch: branch, Commit: one}
	if _, err := f.Forge.Push(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, f.Repo, "checkout", "-q", "-f", branch)
	p.Commit, p.Old = two, one
	if _, err := f.Forge.Push(t.Context(), p); task.ClassOf(err) != task.Conflict || !strings.Contains(err.Error(), "checked out") {
		t.Errorf("%v", err)
	}
	if b, _ := os.ReadFile(filepath.Join(f.Repo, "a")); string(b) != "one" {
		t.Errorf("the checked-out file is %q", b)
	}
}

func TestDocuments(t *testing.T) {
	f := fixture(t, true)
	c := f.Commit(t, "one")
	if _, _, err := f.Forge.OpenPullRequest(t.Context(), forge.PullRequest{Repo: f.Repo, Branch: branch, Head: c}); task.ClassOf(err) != task.Conflict {
		t.Errorf("before the push: %v", err)
	}
	if _, err := f.Forge.Push(t.Context(), forge.Push{GitDir: f.GitDir, Repo: f.Repo, Branch: branch, Commit: c}); err != nil {
		t.Fatal(err)
	}
	pr := forge.PullRequest{
		Repo: f.Repo, Base: "main", Branch: branch, Head: c, Title: "Two\nlines", Body: "Body\n", Draft: true,
		Files: map[string][]byte{"evidence.json": []byte("{}"), "log.txt": []byte("x")},
	}
	// A process that died over its pull request left this.
	home := filepath.Join(f.Forge.(*Forge).cfg.Dir, "pull-requests")
	aside := filepath.Join(home, ".tmp-t_1-x")
	if err := errors.Join(os.Mkdir(aside, 0o755), os.WriteFile(filepath.Join(aside, "half.txt"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	opened, _, err := f.Forge.OpenPullRequest(t.Context(), pr)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(home, "*", "*")); err != nil || len(left) != 4 || strings.Contains(strings.Join(left, " "), "half.txt") {
		t.Errorf("%v %v", left, err)
	}
	page, err := os.ReadFile(opened.URL)
	if want := "# Two lines\n\nDraft pull request: branch `daybreak/t_1-x` into `main`, head `" + c + "`\n\nBody\n"; err != nil || string(page) != want {
		t.Errorf("%q %v", page, err)
	}
	if filepath.Base(filepath.Dir(opened.URL)) != "t_1-x" || filepath.Base(opened.URL) != "pull-request.md" {
		t.Errorf("%s", opened.URL)
	}
	delete(pr.Files, "log.txt")
	if _, found, err := f.Forge.OpenPullRequest(t.Context(), pr); err != nil || !found {
		t.Fatal(found, err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(opened.URL), "log.txt")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a document that is no longer part is left")
	}
	for _, name := range []string{"../x", "", ".x", "meta.json", "pull-request.md", "a/b"} {
		pr.Files = map[string][]byte{name: nil}
		if _, _, err := f.Forge.OpenPullRequest(t.Context(), pr); task.ClassOf(err) != task.Invalid {
			t.Errorf("%q: %v", name, err)
		}
	}
	if got, err := f.Forge.FindPullRequest(t.Context(), "/another/repository", branch); got != nil || err != nil {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := f.Forge.FindPullRequest(t.Context(), f.Repo, "daybreak/../../etc"); task.ClassOf(err) != task.Invalid {
		t.Errorf("%v", err)
	}
}

func TestOpenedAtOnceIsOneNew(t *testing.T) {
	f := fixture(t, true)
	c := f.Commit(t, "one")
	if _, err := f.Forge.Push(t.Context(), forge.Push{GitDir: f.GitDir, Repo: f.Repo, Branch: branch, Commit: c}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	opened := 0
	for range 4 {
		wg.Go(func() {
			_, found, err := f.Forge.OpenPullRequest(t.Context(), forge.PullRequest{Repo: f.Repo, Branch: branch, Head: c, Title: "x"})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			} else if !found {
				opened++
			}
		})
	}
	wg.Wait()
	if opened != 1 {
		t.Errorf("opened %d times", opened)
	}
}

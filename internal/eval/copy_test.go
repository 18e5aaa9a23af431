package eval

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/task"
)

func TestLocate(t *testing.T) {
	i := Instance{Repo: "own/tiny"}
	for where, mark := range map[string]string{
		"own+tiny": "HEAD", "own+tiny.git": "HEAD", "own+tiny/repo": "HEAD", "own/tiny": ".git", "tiny": ".git", "tiny.git": "HEAD",
	} {
		dir := t.TempDir()
		want := filepath.Join(dir, where)
		put(t, want, history{mark: "x"})
		if got, err := i.Locate(dir); got != want || err != nil {
			t.Errorf("%s: %q, %v", where, got, err)
		}
	}
	if _, err := i.Locate(t.TempDir()); task.ClassOf(err) != task.NotFound || !strings.Contains(err.Error(), "own+tiny") {
		t.Errorf("no repository: %v", err)
	}
}

// TestCopyReachesTheBase: the base is found although no branch of the source holds it, and the
// source is not written.
func TestCopyReachesTheBase(t *testing.T) {
	i := Instance{ID: "own__tiny-1", Repo: "own/tiny"}
	src := twoCommits(t, &i, history{"a": "1"}, history{"a": "2"})
	git := tool(t, "git")
	must(t, src, git, "checkout", "--quiet", "--orphan", "other")
	must(t, src, git, "commit", "--quiet", "--message=unrelated")
	must(t, src, git, "branch", "--delete", "--force", "main")
	before := must(t, src, git, "for-each-ref")
	dst := filepath.Join(t.TempDir(), "deep", "copy.git")
	for range 2 { // the second time it is there
		if err := i.Copy(t.Context(), src, dst); err != nil {
			t.Fatal(err)
		}
	}
	if got := must(t, dst, git, "rev-parse", "refs/heads/main"); got != i.Base {
		t.Errorf("base at %s, want %s", got, i.Base)
	}
	if out, code := command(t, dst, git, "cat-file", "-e", i.Fix); code == 0 {
		t.Errorf("the fix travelled too: %s", out)
	}
	if after := must(t, src, git, "for-each-ref"); after != before {
		t.Errorf("the source was written:\n%s", after)
	}
	if left, err := os.ReadDir(filepath.Dir(dst)); err != nil || len(left) != 1 {
		t.Errorf("left beside the copy: %v, %v", left, err)
	}
	i.Fix = strings.Repeat("0", 40)
	if err := i.Copy(t.Context(), src, dst); task.ClassOf(err) != task.Invalid {
		t.Errorf("absent fix: %v", err)
	}
}

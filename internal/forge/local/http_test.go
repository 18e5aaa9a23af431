package local

import (
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
)

// TestBranchIsKeptWhenTheServerWantsCredentials: proven work is not lost to a refused push.
func TestBranchIsKeptWhenTheServerWantsCredentials(t *testing.T) {
	root := t.TempDir()
	src := filepath.Join(root, "src")
	if err := os.Mkdir(src, 0o755); err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, src, "init", "-q", "-b", "main")
	gittest.Run(t, src, "commit", "-q", "--allow-empty", "-m", "base")
	gittest.Run(t, root, "clone", "-q", "--bare", src, filepath.Join(root, "shop.git"))
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"}, // reads only: a push wants a user
	})
	defer srv.Close()
	repo := srv.URL + "/shop.git"

	g, err := git.New(git.Config{Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ours := filepath.Join(t.TempDir(), "ours.git")
	if err := g.EnsureBare(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	base, err := g.FetchCommit(t.Context(), ours, repo, "main")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := g.BuildTree(t.Context(), ours, base, []git.Change{{Path: "a", Mode: git.ModeFile, Content: []byte("x")}})
	if err != nil {
		t.Fatal(err)
	}
	commit, err := g.Commit(t.Context(), ours, tree, base, git.CommitInfo{AuthorName: "D", AuthorEmail: "d@example.com", When: time.Unix(1, 0), Message: "m"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(Config{Dir: t.TempDir(), Git: g})
	if err != nil {
		t.Fatal(err)
	}
	branch := "daybreak/t_x-fix"
	for i, want := range []bool{false, true} {
		found, err := f.Push(t.Context(), forge.Push{GitDir: ours, Repo: repo, Branch: branch, Commit: commit})
		if err != nil || found != want {
			t.Fatalf("push %d: found %v, %v", i+1, found, err)
		}
	}
	pr, _, err := f.OpenPullRequest(t.Context(), forge.PullRequest{Repo: repo, Branch: branch, Head: commit, Title: "Fix", Body: "Why."})
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(pr.URL)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "git fetch "+ours+" "+branch) {
		t.Errorf("the document does not say where the branch is:\n%s", page)
	}
	gittest.Run(t, src, "fetch", "-q", ours, branch+":"+branch)
	if got := gittest.Run(t, src, "rev-parse", branch); got != commit {
		t.Errorf("fetched %s, want %s", got, commit)
	}
}

package git

import (
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// serve publishes bare repositories below a directory with git's own HTTP server behind
// basic authentication.
func serve(t *testing.T, root, user, password, elsewhere string) string {
	t.Helper()
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := &cgi.Handler{
		Path:   filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:    []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=x", "HOME=" + t.TempDir()},
		Stderr: io.Discard,
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u != user || p != password {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if rest, ok := strings.CutPrefix(r.URL.Path, "/away/"); ok {
			http.Redirect(w, r, elsewhere+"/"+rest+"?"+r.URL.RawQuery, http.StatusFound)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestOverHTTP_FRG02(t *testing.T) {
	const secret = "canary-s3cret"
	src := repository(t, map[string]string{"a": "1\n"})
	root := t.TempDir()
	gittest.Run(t, src, "tag", "-a", "v1", "-m", "v1")
	first := gittest.Run(t, src, "rev-parse", "HEAD")
	write(t, src, map[string]string{"a": "2\n"})
	gittest.Run(t, src, "commit", "-qam", "second")
	second := gittest.Run(t, src, "rev-parse", "HEAD")
	gittest.Run(t, src, "clone", "-q", "--bare", src, filepath.Join(root, "r.git"))
	gittest.Run(t, filepath.Join(root, "r.git"), "config", "http.receivepack", "true")
	empty := filepath.Join(root, "empty.git")
	gittest.Run(t, root, "init", "-q", "--bare", empty)
	var hits atomic.Int64
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer trap.Close()
	base := serve(t, root, "u", secret, trap.URL)

	// The credential comes by environment and is written nowhere.
	g, err := New(Config{Home: t.TempDir(), Env: []string{
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=http." + base + "/.extraHeader",
		"GIT_CONFIG_VALUE_0=Authorization: Basic dTpjYW5hcnktczNjcmV0",
	}})
	if err != nil {
		t.Fatal(err)
	}
	url := base + "/r.git"
	gitdir := filepath.Join(t.TempDir(), "m.git")
	if err := g.EnsureBare(t.Context(), gitdir); err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]string{"": second, "main": second, "refs/heads/main": second, "v1": first, first: first} {
		if got, err := g.FetchCommit(t.Context(), gitdir, url, ref); err != nil || got != want {
			t.Errorf("%q: %s %v, want %s", ref, got, err, want)
		}
	}
	if got, err := g.TargetBranch(t.Context(), url, ""); err != nil || got != "main" {
		t.Errorf("default branch %q %v", got, err)
	}
	tree, err := g.BuildTree(t.Context(), gitdir, second, []Change{{Path: "a", Mode: ModeFile, Content: []byte("3\n")}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := g.Commit(t.Context(), gitdir, tree, second, CommitInfo{When: time.Unix(1, 0), Message: "x"})
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range []bool{false, true} {
		if got, err := g.Push(t.Context(), gitdir, url, c, "daybreak/x", ""); err != nil || got != found {
			t.Errorf("push: %v %v", got, err)
		}
	}
	if at := gittest.Run(t, filepath.Join(root, "r.git"), "rev-parse", "refs/heads/daybreak/x"); at != c {
		t.Errorf("branch at %s", at)
	}
	if got := gittest.Run(t, filepath.Join(root, "r.git"), "log", "--format=%H", "daybreak/x"); got != c+"\n"+second+"\n"+first {
		t.Errorf("history on the other side: %s", got)
	}
	if out, err := exec.Command("grep", "-r", secret, gitdir).Output(); err == nil {
		t.Errorf("the credential was written: %s", out)
	}

	for _, x := range []struct {
		url, ref string
		class    task.Class
		says     string
	}{
		{url, "nope", task.NotFound, `no branch or tag "nope"`},
		{url, strings.Repeat("a", 40), task.NotFound, "no commit"},
		{url, "main~1", task.NotFound, "full commit id"},
		{base + "/empty.git", "", task.NotFound, "no commits"},
		{base + "/none.git", "main", task.Invalid, "cannot read"},
		{base + "/away/r.git", "main", task.Invalid, "cannot read"},
	} {
		_, err := g.FetchCommit(t.Context(), gitdir, x.url, x.ref)
		wantClass(t, err, x.class, x.says)
	}
	if hits.Load() > 0 {
		t.Error("a redirect was followed with a credential at hand")
	}
	plainGit := newGit(t)
	_, err = plainGit.FetchCommit(t.Context(), gitdir, strings.Replace(url, "://", "://u:wrong-s3cret@", 1), "main")
	wantClass(t, err, task.Auth)
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a password is shown: %v", err)
	}
}

func TestSourcesThatCannotServe(t *testing.T) {
	g := newGit(t)
	src := repository(t, map[string]string{"a": "1\n"})
	dir, _ := mirror(t, g, src)
	partial := filepath.Join(t.TempDir(), "partial")
	gittest.Run(t, src, "config", "uploadpack.allowFilter", "true")
	gittest.Run(t, src, "clone", "-q", "--no-checkout", "--filter=blob:none", "file://"+src, partial)
	write(t, src, map[string]string{"a": "2\n"})
	gittest.Run(t, src, "commit", "-qam", "second")
	gittest.Run(t, partial, "fetch", "-q")
	gittest.Run(t, partial, "update-ref", "refs/heads/main", "origin/main")
	_, err := g.FetchCommit(t.Context(), dir, partial, "main")
	wantClass(t, err, task.Invalid, "partial clone")

	other := t.TempDir()
	gittest.Run(t, other, "init", "-q", "--object-format=sha256")
	write(t, other, map[string]string{"a": "1"})
	gittest.Run(t, other, "add", "a")
	gittest.Run(t, other, "commit", "-qm", "x")
	_, err = g.FetchCommit(t.Context(), dir, other, "HEAD")
	wantClass(t, err, task.Invalid, "SHA-256")
	if os.Geteuid() != 0 { // root reads everything
		closed := repository(t, map[string]string{"a": "1"})
		if err := os.Chmod(filepath.Join(closed, ".git/objects"), 0); err != nil {
			t.Fatal(err)
		}
		_, err = g.FetchCommit(t.Context(), dir, closed, "HEAD")
		wantClass(t, err, task.Invalid)
	}
}

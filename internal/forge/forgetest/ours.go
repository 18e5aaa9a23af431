package forgetest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
)

// Git is a git of the test's own; without one the test is skipped, or fails where CI is set.
func Git(t *testing.T) *git.Git {
	t.Helper()
	g, err := git.New(git.Config{Home: t.TempDir()})
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return g
}

// Seed makes a work tree on branch main with one commit of a.txt, and pushes it to each of to.
func Seed(t *testing.T, to ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	gittest.Run(t, dir, "init", "-q", "-b", "main")
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("base\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, dir, "add", "a.txt")
	gittest.Run(t, dir, "commit", "-qm", "base")
	for _, u := range to {
		gittest.Run(t, dir, "push", "-q", u, "main:refs/heads/main")
	}
	return dir
}

// Ours makes our bare repository with the base of src, and the fixture's Commit.
func Ours(t *testing.T, g *git.Git, src string) (gitdir string, commit func(*testing.T, string) string) {
	t.Helper()
	gitdir = filepath.Join(t.TempDir(), "m.git")
	if err := g.EnsureBare(t.Context(), gitdir); err != nil {
		t.Fatal(err)
	}
	base, err := g.FetchCommit(t.Context(), gitdir, src, "main")
	if err != nil {
		t.Fatal(err)
	}
	return gitdir, func(t *testing.T, content string) string {
		t.Helper()
		tree, err := g.BuildTree(t.Context(), gitdir, base, []git.Change{{Path: "a.txt", Mode: git.ModeFile, Content: []byte(content + "\n")}})
		if err != nil {
			t.Fatal(err)
		}
		id, err := g.Commit(t.Context(), gitdir, tree, base, git.CommitInfo{When: time.Unix(1, 0), Message: content})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
}

// GitHTTP serves the repositories below root over HTTP, to be pushed to as well.
func GitHTTP(t *testing.T, root string) http.Handler {
	t.Helper()
	exe, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	return &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(exe)), "git-http-backend"), Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=x", "HOME=" + t.TempDir()},
	}
}

// Recorder stands between an adapter and a forge and keeps what the adapter asked for.
type Recorder struct {
	URL string

	mu   sync.Mutex
	seen []string
}

// Record starts one in front of target.
func Record(t *testing.T, target string) *Recorder {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	r := &Recorder{}
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body := ""
		if strings.Contains(req.Header.Get("Content-Type"), "json") {
			b, _ := io.ReadAll(req.Body)
			req.Body, body = io.NopCloser(bytes.NewReader(b)), string(b)
		}
		r.mu.Lock()
		r.seen = append(r.seen, req.Method+" "+req.URL.Path+" "+body)
		r.mu.Unlock()
		proxy.ServeHTTP(w, req)
	}))
	t.Cleanup(srv.Close)
	r.URL = srv.URL
	return r
}

// Requests are all so far.
func (r *Recorder) Requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.seen...)
}

// Hook receives deliveries.
type Hook struct {
	URL string
	got chan Delivered
}

// Receive starts a receiver of deliveries.
func Receive(t *testing.T) *Hook {
	t.Helper()
	h := &Hook{got: make(chan Delivered, 1000)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		h.got <- Delivered{r.Header.Clone(), b}
	}))
	t.Cleanup(srv.Close)
	h.URL = srv.URL
	return h
}

// Send puts a delivery in without a network.
func (h *Hook) Send(d Delivered) { h.got <- d }

// Next waits for the next one that use accepts.
func (h *Hook) Next(t *testing.T, use func(Delivered) bool) Delivered {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case d := <-h.got:
			if use(d) {
				return d
			}
		case <-late:
			t.Fatal("no delivery came")
		}
	}
}

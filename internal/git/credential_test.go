package git

import (
	"bytes"
	"context"
	"io/fs"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestCredential_FRG02: a push works with a credential that is in no argument, no environment
// and no file, of git or of any helper of git, and that no other repository or host is shown.
func TestCredential_FRG02(t *testing.T) {
	const secret = "canary-s3cret-77"
	src := repository(t, map[string]string{"a": "1\n"})
	root, home := t.TempDir(), t.TempDir()
	gittest.Run(t, src, "clone", "-q", "--bare", src, filepath.Join(root, "r.git"))
	gittest.Run(t, filepath.Join(root, "r.git"), "config", "http.receivepack", "true")
	exe, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var seen []string // arguments and environments of processes below us while a request runs
	authorised := 0
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(exe)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=x", "HOME=" + t.TempDir()},
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, p := range procs {
			line, _ := os.ReadFile(p)
			if !bytes.Contains(line, []byte("git")) {
				continue
			}
			env, _ := os.ReadFile(filepath.Join(filepath.Dir(p), "environ"))
			seen = append(seen, string(line)+string(env))
		}
		if _, p, _ := r.BasicAuth(); p != secret {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if !strings.HasPrefix(r.URL.Path, "/r.git/") {
			t.Errorf("%s was shown the credential", r.URL.Path)
		}
		authorised++
		backend.ServeHTTP(w, r)
	}))
	defer srv.Close()
	g, err := New(Config{Home: home, Credential: func(_ context.Context, url string) (*Credential, error) {
		if !strings.HasSuffix(url, "/r.git") {
			return nil, nil
		}
		return &Credential{Username: "x-access-token", Secret: secret}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	gitdir := filepath.Join(t.TempDir(), "m.git")
	if err := g.EnsureBare(t.Context(), gitdir); err != nil {
		t.Fatal(err)
	}
	commit, err := g.FetchCommit(t.Context(), gitdir, srv.URL+"/r.git", "main")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Push(t.Context(), gitdir, srv.URL+"/r.git", commit, "daybreak/x", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := g.RemoteBranch(t.Context(), srv.URL+"/other.git", "main"); task.ClassOf(err) != task.Auth {
		t.Errorf("another repository: %v", err)
	}
	if authorised < 4 || len(seen) < 4 {
		t.Fatalf("%d requests with the credential, %d processes seen: the test proves nothing", authorised, len(seen))
	}
	basic := "Y2FuYXJ5" // what base64 makes of the secret's start, at one of its three places
	for _, s := range seen {
		if strings.Contains(s, secret) || strings.Contains(s, "Authorization") || strings.Contains(s, basic) {
			t.Errorf("the credential is in a process: %q", s)
		}
	}
	for _, dir := range []string{gitdir, home} {
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(p)
			if bytes.Contains(b, []byte(secret)) || bytes.Contains(b, []byte("Authorization")) {
				t.Errorf("the credential is in %s", p)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

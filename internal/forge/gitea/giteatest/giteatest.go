// Package giteatest runs a real Gitea for tests: its own process, database and directory, on a
// loopback port, with users, repositories and webhooks made through its interfaces.
//
// Invariants: nothing outlives the test; it runs where DAYBREAK_GITEA is set, as `make test-gitea`
// does, and is skipped elsewhere.
package giteatest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Server is a running Gitea.
type Server struct {
	URL   string // without a slash at its end
	Admin string // a token of its administrator, "root-admin"

	dir string
	log *os.File
}

// Password is every user's.
const Password = "a-Password-of-12"

// Start runs a server until the test ends. scripts/gitea.sh builds the program.
func Start(t testing.TB) *Server {
	t.Helper()
	bin, static := find(t)
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{URL: fmt.Sprintf("http://127.0.0.1:%d", port), dir: dir}
	ini := fmt.Sprintf(config, me.Username, dir, port, s.URL, static, filepath.Join(dir, "gitea.db"))
	if err := os.MkdirAll(filepath.Join(dir, "custom", "conf"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "custom", "conf", "app.ini"), []byte(ini), 0o600); err != nil {
		t.Fatal(err)
	}
	if s.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	s.run(t, bin, "migrate")
	out := s.run(t, bin, "admin", "user", "create", "--admin", "--username", "root-admin", "--password", Password,
		"--email", "admin@example.com", "--must-change-password=false", "--access-token", "--access-token-scopes", "all")
	_, token, ok := strings.Cut(out, "Access token was successfully created... ")
	if !ok {
		t.Fatalf("no token in %q", out)
	}
	s.Admin = strings.TrimSpace(strings.SplitN(token, "\n", 2)[0])
	cmd := s.command(bin, "web")
	cmd.Stdout, cmd.Stderr = s.log, s.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-done
		}
		if t.Failed() {
			b, _ := os.ReadFile(s.log.Name())
			t.Logf("gitea:\n%s", b[max(0, len(b)-4000):])
		}
	})
	for try := 0; ; try++ {
		res, err := http.Get(s.URL + "/api/v1/version") //nolint:noctx // a test of a server of its own
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return s
			}
		}
		select {
		case <-done:
			b, _ := os.ReadFile(s.log.Name())
			t.Fatalf("gitea ended: %s", b)
		case <-time.After(50 * time.Millisecond):
		}
		if try > 1200 {
			t.Fatal("gitea does not answer")
		}
	}
}

// find looks below the module's root, where scripts/gitea.sh puts it.
func find(t testing.TB) (bin, static string) {
	t.Helper()
	if os.Getenv("DAYBREAK_GITEA") == "" {
		t.Skip("the tests with a real Gitea are run by `make test-gitea`")
	}
	_, file, _, _ := runtime.Caller(0)
	tools := filepath.Join(filepath.Dir(file), "..", "..", "..", "..", ".tools")
	bin, static = filepath.Join(tools, "bin", "gitea"), filepath.Join(tools, "gitea")
	if _, err := os.Stat(bin); err == nil {
		return bin, static
	}
	t.Fatal("there is no Gitea: run `make gitea`")
	return "", ""
}

const config = `I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true
APP_NAME = test
RUN_USER = %s
RUN_MODE = prod
WORK_PATH = %s
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = %d
ROOT_URL = %s/
STATIC_ROOT_PATH = %s
DISABLE_SSH = true
OFFLINE_MODE = true
[database]
DB_TYPE = sqlite3
PATH = %s
[security]
INSTALL_LOCK = true
SECRET_KEY = secret-key-of-a-test
[oauth2]
ENABLED = false
[service]
DISABLE_REGISTRATION = true
[webhook]
ALLOWED_HOST_LIST = loopback
DELIVER_TIMEOUT = 5
[indexer]
ISSUE_INDEXER_TYPE = db
[cron]
ENABLED = false
[log]
MODE = console
LEVEL = Warn
[session]
PROVIDER = memory
[picture]
DISABLE_GRAVATAR = true
`

func (s *Server) command(bin string, args ...string) *exec.Cmd {
	cmd := exec.Command(bin, args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "GITEA_WORK_DIR=" + s.dir, "USER=" + os.Getenv("USER")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func (s *Server) run(t testing.TB, bin string, args ...string) string {
	t.Helper()
	out, err := s.command(bin, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("gitea %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// Do sends a request with a token, or as "user:password", and decodes the answer; any answer
// that is no success ends the test. into may be nil.
func (s *Server) Do(t testing.TB, token, method, path string, body, into any) {
	t.Helper()
	if code, answer := s.Try(t, token, method, path, body, into); code < 200 || code > 299 {
		t.Fatalf("%s %s: %d %s", method, path, code, answer)
	}
}

// Try is Do for a request that may be refused.
func (s *Server) Try(t testing.TB, token, method, path string, body, into any) (int, string) {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/api/v1"+path, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if strings.Contains(token, ":") {
		req.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(token)))
	} else {
		req.Header.Set("Authorization", "token "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if into != nil && res.StatusCode < 300 {
		if err := json.Unmarshal(answer, into); err != nil {
			t.Fatal(err)
		}
	}
	return res.StatusCode, string(answer)
}

// User makes a user and returns a token of theirs with the scopes.
func (s *Server) User(t testing.TB, name string, scopes ...string) string {
	t.Helper()
	s.Do(t, s.Admin, "POST", "/admin/users", map[string]any{
		"username": name, "email": name + "@example.com", "password": Password, "must_change_password": false,
	}, nil)
	var token struct {
		SHA1 string `json:"sha1"`
	}
	if len(scopes) == 0 {
		scopes = []string{"all"}
	}
	s.Do(t, name+":"+Password, "POST", "/users/"+name+"/tokens", map[string]any{"name": "test", "scopes": scopes}, &token)
	return token.SHA1
}

// Scopes are what Daybreak's own user needs.
func Scopes() []string {
	return []string{"write:repository", "write:issue", "read:user", "read:organization"}
}

// Collaborator gives a user a permission: "read", "write" or "admin".
func (s *Server) Collaborator(t testing.TB, token, repo, name, permission string) {
	t.Helper()
	s.Do(t, token, "PUT", "/repos/"+repo+"/collaborators/"+name, map[string]any{"permission": permission}, nil)
}

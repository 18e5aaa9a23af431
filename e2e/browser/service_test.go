package browser

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

const token = "browser-token-0123456789abcdef"

// patience is how long a test waits for what takes seconds on an idle machine.
const patience = 4 * time.Minute

// top is the root of the repository.
func top(t *testing.T) string {
	t.Helper()
	d, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// missing ends a test that cannot run here: with a reason to skip it, and loudly where nothing may
// be missing.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// program is a file that `make test-browser` built.
func program(t *testing.T, name string) string {
	t.Helper()
	p := filepath.Join(top(t), name)
	if _, err := os.Stat(p); err != nil {
		missing(t, name+" is not there; run `make test-browser`")
	}
	return p
}

// service is a running `daybreak serve` with a repository and a scripted model of its own.
type service struct {
	dir   string
	base  string // such as http://127.0.0.1:4711
	gate  *gate
	daybr string
	env   []string
}

// serve starts one. script is a file of testdata, more goes into the configuration.
func serve(t *testing.T, script, more string, args ...string) *service {
	t.Helper()
	s := &service{dir: t.TempDir(), daybr: program(t, "bin/daybreak")}
	s.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "TMPDIR=" + s.dir, "DAYBREAK_DIR=" + filepath.Join(s.dir, "data"),
		"DAYBREAK_CONFIG=" + filepath.Join(s.dir, "daybreak.yaml"), "ANTHROPIC_API_KEY=sk-browser-0123456789abcdef", "DAYBREAK_TOKEN=" + token,
	}
	s.repo(t)
	model := s.start(t, `anthropic base URL (http://[^ ,]+)`, "model", "serve", "--script", script)
	s.gate = newGate(t, model)
	config := fmt.Sprintf(`model: anthropic/claude-sonnet-4-5
providers: {anthropic: {base_url: %q}}
mirror: {off: [go, npm, pypi, crates, maven, debian]}
sandbox: {runtime_path: %q, guest_path: %q}
serve: {listen: '127.0.0.1:0', workers: 2, lease: 10s}
%s
`, s.gate.URL, program(t, ".tools/bin/runc"), program(t, "bin/daybreak-guest"), more)
	if err := os.WriteFile(filepath.Join(s.dir, "daybreak.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	s.base = strings.TrimSuffix(s.start(t, `open (http://[^/ ]+)/sign-in`, append([]string{"serve"}, args...)...), "/")
	return s
}

// repo makes the repository of testdata/shop with one commit.
func (s *service) repo(t *testing.T) {
	t.Helper()
	dir := filepath.Join(s.dir, "shop")
	if err := os.CopyFS(dir, os.DirFS("testdata/shop")); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch=main", "--template="}, {"add", "--all"}, {"commit", "--quiet", "--message=Start"},
	} {
		cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull,
			"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com",
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", args[0], err, out)
		}
	}
}

// start runs a command until the test ends and returns what the pattern finds in its output.
func (s *service) start(t *testing.T, pattern string, args ...string) string {
	t.Helper()
	cmd := exec.Command(s.daybr, args...)
	cmd.Dir, cmd.Env = s.dir, s.env
	if args[0] == "model" {
		cmd.Dir = "" // its script is named from here
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	found, done := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(done)
		re := regexp.MustCompile(pattern)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			if m := re.FindStringSubmatch(sc.Text()); m != nil && len(found) == 0 {
				found <- m[1]
			}
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-done:
		case <-time.After(20 * time.Second): // a task is in the middle of something
			_ = cmd.Process.Kill()
			<-done
		}
		if t.Failed() {
			t.Logf("daybreak %s said:\n%s", args[0], stderr.String())
		}
	})
	select {
	case v := <-found:
		return v
	case <-done:
		t.Fatalf("daybreak %s ended: %s", args[0], stderr.String())
	case <-time.After(patience):
		t.Fatalf("daybreak %s does not begin", args[0])
	}
	return ""
}

// link is a fresh address that signs in once and leads to a page.
func (s *service) link(t *testing.T, to string) string {
	t.Helper()
	cmd := exec.Command(s.daybr, "login-link")
	cmd.Env = s.env
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("login-link: %v", err)
	}
	return strings.TrimSpace(string(out)) + "&next=" + url.QueryEscape(to)
}

// ask asks for a task.
func (s *service) ask(t *testing.T, issue string) string {
	t.Helper()
	b, err := json.Marshal(map[string]string{"repo": filepath.Join(s.dir, "shop"), "issue": issue, "requested_by": "ada"})
	if err != nil {
		t.Fatal(err)
	}
	var made struct{ Task string }
	s.call(t, http.MethodPost, "/api/tasks", bytes.NewReader(b), http.StatusCreated, &made)
	return made.Task
}

func (s *service) issue(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("testdata/issue.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (s *service) request(t *testing.T, method, path string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.base+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	return r
}

func (s *service) call(t *testing.T, method, path string, body io.Reader, want int, to any) {
	t.Helper()
	res, err := http.DefaultClient.Do(s.request(t, method, path, body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != want {
		t.Fatalf("%s %s: %s %v: %s", method, path, res.Status, err, b)
	}
	if err := json.Unmarshal(b, to); err != nil {
		t.Fatal(err)
	}
}

// record is an event of a task's log.
type record struct {
	Seq     int64          `json:"seq"`
	Kind    string         `json:"kind"`
	Payload map[string]any `json:"payload"`
}

// log is everything on record by now.
func (s *service) log(t *testing.T, id string) []record {
	t.Helper()
	var out []record
	for after := int64(0); ; {
		var page struct {
			Events []record
			Next   int64
		}
		s.call(t, http.MethodGet, fmt.Sprintf("/api/tasks/%s/events?after=%d", id, after), nil, http.StatusOK, &page)
		out = append(out, page.Events...)
		if after = page.Next; after == 0 {
			return out
		}
	}
}

// until follows the log until a record of a kind, in whose payload the fields are, and returns it.
func (s *service) until(t *testing.T, id, kind string, fields map[string]string) record {
	t.Helper()
	r := s.request(t, http.MethodGet, "/api/tasks/"+id+"/events", nil)
	r.Header.Set("Accept", "text/event-stream")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	late := time.AfterFunc(patience, func() { _ = res.Body.Close() })
	defer late.Stop()
	var last []record
	sc := bufio.NewScanner(res.Body)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		if !ok {
			continue
		}
		var e record
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatal(err)
		}
		last = append(last, e)
		has := e.Kind == kind
		for k, v := range maps.All(fields) {
			has = has && fmt.Sprint(e.Payload[k]) == v
		}
		if has {
			return e
		}
		if to := e.Payload["to"]; e.Kind == "state.changed" && (to == "failed" || to == "exhausted") {
			break
		}
	}
	t.Fatalf("the log of %s has no %s %v; it ends with %+v", id, kind, fields, last[max(0, len(last)-6):])
	return record{}
}

// gate stands before the scripted model and holds requests by their number.
type gate struct {
	*httptest.Server
	mu   sync.Mutex
	n    int
	held map[int]*stop
}

// stop is a request that waits.
type stop struct {
	arrived, release chan struct{}
}

func newGate(t *testing.T, model string) *gate {
	t.Helper()
	to, err := url.Parse(model)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{held: map[int]*stop{}}
	pass := httputil.NewSingleHostReverseProxy(to)
	pass.FlushInterval = -1
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // so that it is noticed when the client leaves
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		g.mu.Lock()
		g.n++
		s := g.held[g.n]
		g.mu.Unlock()
		if s != nil {
			close(s.arrived)
			select {
			case <-s.release:
			case <-r.Context().Done():
				return
			}
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		g.CloseClientConnections()
		g.Close()
	})
	return g
}

// hold makes the model think about the nth request until it is let go.
func (g *gate) hold(n int) *stop {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &stop{arrived: make(chan struct{}), release: make(chan struct{})}
	g.held[n] = s
	return s
}

// wait waits until the model was asked.
func (s *stop) wait(t *testing.T) {
	t.Helper()
	select {
	case <-s.arrived:
	case <-time.After(patience):
		t.Fatal("the model was not asked")
	}
}

func (s *stop) letGo() { close(s.release) }

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/model/scripted"
	"github.com/daybreak-agent/daybreak/internal/model/scripted/transcript"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

const (
	modelName = "anthropic/claude-sonnet-4-5"
	modelKey  = "bench-key-that-opens-nothing"
)

// world is what all measurements share: an installation in a folder of its own, and the
// source folder's binaries.
type world struct {
	source             string // the module's root
	bin                string // folder of the built programs
	dir                string // everything of this run
	data               string // the installation
	repo               string // small repository with a suite that takes no time
	issue              string // file
	files, tasks, runs int
	changes            []string // to verify, see [measureCost]
	toolchains         string   // the configuration for that
	mono               []string // the large repository and its two commits, once made
}

func newWorld(ctx context.Context, bin string, files, tasks, runs int) (*world, error) {
	source, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	if bin, err = filepath.Abs(bin); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("the sandbox needs root")
	}
	w := &world{source: source, bin: bin, files: files, tasks: tasks, runs: runs}
	for _, p := range []string{w.daybreak(), w.guest(), w.runc()} {
		if _, err := os.Stat(p); err != nil {
			return nil, fmt.Errorf("%w: run make build first", err)
		}
	}
	if w.dir, err = os.MkdirTemp("", "daybreak-bench-"); err != nil {
		return nil, err
	}
	w.data, w.repo, w.issue = filepath.Join(w.dir, "data"), filepath.Join(w.dir, "repo"), filepath.Join(w.dir, "issue.md")
	err = os.WriteFile(w.issue, []byte(issueText(0)), 0o644)
	if err == nil {
		err = w.makeRepo(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(w.dir))
	}
	return w, nil
}

func (w *world) daybreak() string { return filepath.Join(w.bin, "daybreak") }
func (w *world) guest() string    { return filepath.Join(w.bin, "daybreak-guest") }
func (w *world) runc() string     { return filepath.Join(w.source, ".tools", "bin", "runc") }

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "daybreak")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("run it inside the source folder")
}

func issueText(n int) string {
	return fmt.Sprintf("Rounding is off by one cent (%d)\n\nThe total of three items at 0.335 is 1.00 where the customer expects 1.01.\n"+
		"It happens since the last release, on every page that shows a total. Attached is what the log says:\n\n"+
		"    total.go:41 sum=1.005 rounded=1.00\n", n)
}

// makeRepo makes the small repository. Its suite writes the JUnit report of one passing test.
func (w *world) makeRepo(ctx context.Context) error {
	report := `<testsuite name="all"><testcase classname="shop" name="total"/></testsuite>`
	files := map[string]string{
		".daybreak.yaml": "test: sh suite.sh\ntest_one: sh suite.sh {tests}\nformat: junit\nreport: [report.xml]\n",
		"suite.sh":       "echo '" + report + "' > report.xml\n",
		"AGENTS.md":      "Keep functions short.\n",
	}
	for f := range 30 {
		var b strings.Builder
		fmt.Fprintf(&b, "package shop\n")
		for i := range 40 {
			fmt.Fprintf(&b, "\n// Price%d is the price of item %d in cents, tax included.\nfunc Price%d(n int) int { return n * %d }\n", i, f*40+i, i, i+f)
		}
		files[fmt.Sprintf("shop/item%02d.go", f)] = b.String()
	}
	for name, text := range files {
		p := filepath.Join(w.repo, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"commit", "-q", "-m", "first"}} {
		if _, err := w.git(ctx, w.repo, nil, args...); err != nil {
			return err
		}
	}
	return nil
}

// git runs git without the machine's configuration.
func (w *world) git(ctx context.Context, dir string, in []byte, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Stdin = bytes.NewReader(in)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=Bench", "GIT_AUTHOR_EMAIL=bench@localhost",
		"GIT_COMMITTER_NAME=Bench", "GIT_COMMITTER_EMAIL=bench@localhost")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(out))
	}
	return strings.TrimSpace(string(out)), nil
}

// config is the installation's configuration; the model is reached at url.
func (w *world) config(url string) config.Config {
	c := config.Default()
	c.Mirror.Off = []string{"go", "npm", "pypi", "crates", "maven", "debian"} // what is measured is not this machine's clients
	c.Model = modelName
	p := c.Providers["anthropic"]
	p.BaseURL, p.Idle = url, time.Hour
	c.Providers["anthropic"] = p
	c.Sandbox.RuntimePath, c.Sandbox.GuestPath = w.runc(), w.guest()
	return c
}

func (w *world) open(ctx context.Context, url string) (*app.App, error) {
	return app.Open(ctx, app.Options{Dir: w.data, Config: w.config(url), Getenv: func(k string) string {
		if k == "ANTHROPIC_API_KEY" {
			return modelKey
		}
		return os.Getenv(k)
	}})
}

// command is the built program on this installation.
func (w *world) command(ctx context.Context, url string, args ...string) (*exec.Cmd, error) {
	file := filepath.Join(w.dir, "daybreak.yaml")
	text := fmt.Sprintf("providers:\n  anthropic: {base_url: %q}\nsandbox: {runtime_path: %q, guest_path: %q}\n", url, w.runc(), w.guest())
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, w.daybreak(), append([]string{"--dir", w.data, "--config", file}, args...)...)
	cmd.Env = append(os.Environ(), "ANTHROPIC_API_KEY="+modelKey)
	return cmd, nil
}

// runTask runs a new task to its end, which must be a decline.
func (w *world) runTask(ctx context.Context, url string, started func(pid int)) error {
	cmd, err := w.command(ctx, url, "run", "--new", "--json", "--repo", w.repo, "--issue", w.issue, "--model", modelName)
	if err != nil {
		return err
	}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		return err
	}
	if started != nil {
		started(cmd.Process.Pid)
	}
	err = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code == 3 { // declined, as the script says
		return nil
	}
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	return fmt.Errorf("the task did not end as scripted: %w: %s %s", err, errOut.Bytes(), lines[len(lines)-1])
}

// close ends what is left of the sandboxes and removes the folder.
func (w *world) close(ctx context.Context) error {
	a, err := w.open(ctx, "")
	if err != nil {
		return err
	}
	rt, err := a.Runtime()
	if err == nil {
		_, err = rt.Collect(ctx, func(sandbox.Handle) bool { return false })
		err = errors.Join(err, rt.Close())
	}
	return errors.Join(err, a.Close(), os.RemoveAll(w.dir))
}

// call is one request to the model.
type call struct {
	arrived time.Time
	ended   time.Time // when the last bytes of the reply were handed over
	body    []byte
	usage   scripted.Usage
}

// server is a scripted model that notes when it was asked and when it had answered.
type server struct {
	url     string
	inner   *scripted.Server
	close   func()
	arrival chan int // index of each request, unread ones are dropped

	mu    sync.Mutex
	calls []call
}

func serve(ctx context.Context, t transcript.Transcript) (*server, error) {
	s := &server{arrival: make(chan int, 4096)}
	s.inner = scripted.NewServer(t, scripted.Options{APIKey: modelKey, Observe: func(_ string, body []byte, p scripted.Played) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range s.calls { // requests of one conversation come one after the other
			if s.calls[i].body == nil {
				s.calls[i].body, s.calls[i].usage = body, p.Usage
				return
			}
		}
	}})
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln) // always ends with ErrServerClosed
	}()
	s.url = "http://" + ln.Addr().String()
	s.close = func() { _ = srv.Close(); <-done }
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	s.mu.Lock()
	n := len(s.calls)
	s.calls = append(s.calls, call{arrived: at})
	s.mu.Unlock()
	select {
	case s.arrival <- n:
	default:
	}
	t := &timed{ResponseWriter: w}
	s.inner.ServeHTTP(t, r)
	s.mu.Lock()
	s.calls[n].ended = t.last
	s.mu.Unlock()
}

// timed notes when the newest bytes were about to be written: the reply cannot have arrived
// before.
type timed struct {
	http.ResponseWriter
	last time.Time
}

func (t *timed) Write(b []byte) (int, error) {
	t.last = time.Now()
	return t.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController find Flush.
func (t *timed) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (s *server) taken() ([]call, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.inner.Err(); err != nil {
		return nil, fmt.Errorf("the scripted model was asked something else: %w", err)
	}
	return append([]call(nil), s.calls...), nil
}

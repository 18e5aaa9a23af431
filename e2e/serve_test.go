package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/store/postgres/pgtest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const apiToken = "e2e-token-0123456789abcdef"

// patience is how long a test waits for what takes seconds on an idle machine.
const patience = 8 * time.Minute

// process is a running `daybreak serve` or `daybreak worker`.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error

	mu   sync.Mutex
	text bytes.Buffer
	addr chan string
}

// said is one line of a process's log.
type said struct {
	from *process
	msg  string
	kv   map[string]string
}

var pair = regexp.MustCompile(`(\w+)=("(?:[^"\\]|\\.)*"|\S*)`)

// start runs a process of the service whose lines go to hear, in order, before the next is
// read.
func (in installation) start(t *testing.T, hear func(said), args ...string) *process {
	t.Helper()
	p := &process{name: args[0], cmd: in.command(append(args, "--verbose")...), done: make(chan struct{}), addr: make(chan string, 1)}
	p.cmd.Env = append(p.cmd.Env, "DAYBREAK_TOKEN="+apiToken)
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		sc := bufio.NewScanner(out)
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			l := said{from: p, kv: map[string]string{}}
			for _, m := range pair.FindAllStringSubmatch(sc.Text(), -1) {
				v := m[2]
				if u, err := strconv.Unquote(v); err == nil {
					v = u
				}
				l.kv[m[1]] = v
			}
			l.msg = l.kv["msg"]
			p.mu.Lock()
			p.text.WriteString(sc.Text() + "\n")
			p.mu.Unlock()
			if l.msg == "listening" {
				p.addr <- l.kv["address"]
			}
			if hear != nil {
				hear(l)
			}
		}
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%s said:\n%s", p.name, p.log())
		}
	})
	return p
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var keep []string
	for l := range strings.Lines(p.text.String()) {
		if !strings.Contains(l, "msg=event ") {
			keep = append(keep, l)
		}
	}
	return strings.Join(keep, "")
}

// address is where it listens.
func (p *process) address(t *testing.T) string {
	t.Helper()
	select {
	case a := <-p.addr:
		p.addr <- a
		return a
	case <-p.done:
		t.Fatalf("%s ended: %v\n%s", p.name, p.err, p.log())
	case <-time.After(patience):
		t.Fatalf("%s does not listen\n%s", p.name, p.log())
	}
	return ""
}

// end asks the process to end and waits for it.
func (p *process) end(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		if p.err != nil {
			t.Errorf("%s ended with %v\n%s", p.name, p.err, p.log())
		}
	case <-time.After(patience):
		t.Errorf("%s does not end\n%s", p.name, p.log())
	}
}

// call speaks to the API.
func (p *process) call(t *testing.T, method, path, token string, body any) (int, map[string]any) {
	t.Helper()
	var send io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		send = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.address(t)+path, send)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var out map[string]any
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil {
		t.Fatalf("%s %s: %s and no JSON: %v", method, path, res.Status, err)
	}
	return res.StatusCode, out
}

// service is an installation with what a service needs in its configuration.
func service(t *testing.T, files *txtar.Archive, dsn, more string) installation {
	t.Helper()
	in := install(t, files)
	extra := "serve: {listen: '127.0.0.1:0', workers: 1, lease: 2s" + more + "}\n"
	if dsn != "" {
		if err := os.WriteFile(filepath.Join(in.dir, "dsn"), []byte(dsn), 0o600); err != nil {
			t.Fatal(err)
		}
		extra += "store: {engine: postgres, dsn_file: " + filepath.Join(in.dir, "dsn") + "}\n"
	}
	if err := os.WriteFile(filepath.Join(in.dir, "daybreak.yaml"), []byte(configuration(in.model.http.URL, "")+extra), 0o644); err != nil {
		t.Fatal(err)
	}
	return in
}

func (in installation) ask(t *testing.T, p *process) task.ID {
	t.Helper()
	issue, err := os.ReadFile(filepath.Join(in.dir, "issue.md"))
	if err != nil {
		t.Fatal(err)
	}
	code, got := p.call(t, "POST", "/api/tasks", apiToken, map[string]any{"repo": filepath.Join(in.dir, "shop"), "issue": string(issue), "key": "one"})
	if code != http.StatusCreated {
		t.Fatalf("%d %v", code, got)
	}
	return task.ID(fmt.Sprint(got["task"]))
}

// wait follows the task in the store until it is done.
func (in installation) wait(t *testing.T, id task.ID) task.State {
	t.Helper()
	cfg, err := config.Load(filepath.Join(in.dir, "daybreak.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.Open(t.Context(), app.Options{Dir: in.data(), Config: cfg, Getenv: os.Getenv})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	changed, err := a.Store.Watch(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.After(patience); ; {
		row, err := a.Store.Task(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if row.State.Done() && row.Owner == "" {
			return row.State
		}
		select {
		case <-changed:
		case <-end:
			t.Fatalf("the task is still %s, owner %q, at event %d", row.State, row.Owner, row.LastSeq)
		}
	}
}

func killFiles(t *testing.T) *txtar.Archive {
	t.Helper()
	need(t, "python3")
	files, err := txtar.ParseFile("testdata/kill.txtar")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// signIn opens a link of `daybreak login-link` as a browser does: once it leads to the pages, of
// operators too, and never again.
func (in *installation) signIn(t *testing.T, p *process) {
	t.Helper()
	link, err := in.command("login-link").Output()
	if err != nil || !strings.HasPrefix(string(link), "http://"+p.address(t)+"/sign-in/link?") {
		t.Fatalf("login-link: %v: %s", err, link)
	}
	get := func(c *http.Client, url string) int {
		t.Helper()
		res, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	person, stranger := &http.Client{Jar: jar}, &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	queue := "http://" + p.address(t) + "/queue/"
	if code := get(stranger, queue); code != http.StatusSeeOther {
		t.Errorf("/queue/ without signing in: %d", code)
	}
	for i, want := range []int{http.StatusOK, http.StatusForbidden} {
		if code := get(person, strings.TrimSpace(string(link))); code != want {
			t.Errorf("the link, time %d: %d", i+1, code)
		}
	}
	if code := get(person, queue); code != http.StatusOK {
		t.Errorf("/queue/ after signing in: %d", code)
	}
}

// TestServe: a task asked for over HTTP becomes a pull request, once however often it is asked
// for; what has no right to ask is refused; the process ends well.
func TestServe(t *testing.T) {
	files := killFiles(t)
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			dsn := ""
			if engine == "postgres" {
				dsn = pgtest.Start(t).Database(t)
			}
			in := service(t, files, dsn, "")
			p := in.start(t, nil, "serve")
			if code, _ := p.call(t, "GET", "/healthz", "", nil); code != http.StatusOK {
				t.Errorf("healthz: %d", code)
			}
			if code, _ := p.call(t, "GET", "/readyz", "", nil); code != http.StatusOK {
				t.Errorf("readyz: %d", code)
			}
			for _, token := range []string{"", "wrong", apiToken + "x"} {
				if code, _ := p.call(t, "POST", "/api/tasks", token, map[string]any{"repo": "x", "issue": "y"}); code != http.StatusUnauthorized {
					t.Errorf("token %q: %d", token, code)
				}
			}
			id := in.ask(t, p)
			if got := in.wait(t, id); got != task.InReview {
				t.Errorf("the task is %s", got)
			}
			code, again := p.call(t, "POST", "/api/tasks", apiToken, map[string]any{"repo": filepath.Join(in.dir, "shop"), "issue": "another", "key": "one"})
			if code != http.StatusOK || again["task"] != string(id) || again["made"] != false {
				t.Errorf("the same key again: %d %v", code, again)
			}
			if code, other := p.call(t, "POST", "/api/tasks", apiToken, map[string]any{"repo": "elsewhere", "issue": "another", "key": "one"}); code != http.StatusUnprocessableEntity {
				t.Errorf("the key of another repository finds its task: %d %v", code, other)
			}
			if code, got := p.call(t, "GET", "/api/tasks/"+string(id), apiToken, nil); code != http.StatusOK || got["state"] != "in_review" || got["verdict"] != "verified" {
				t.Errorf("%d %v", code, got)
			}
			in.signIn(t, p)
			if n := in.count(t, "branches"); n != 1 {
				t.Errorf("%d branches", n)
			}
			if engine == "sqlite" {
				second := in.command("serve")
				out, err := second.CombinedOutput()
				want := fmt.Sprintf("process %d serves this data directory", p.cmd.Process.Pid)
				if err == nil || !strings.Contains(string(out), want) {
					t.Errorf("a second owner: %v: %s", err, out)
				}
				if out, err := in.command("worker").CombinedOutput(); err == nil || !strings.Contains(string(out), "one SQLite file has one owning process") {
					t.Errorf("a worker on SQLite: %v: %s", err, out)
				}
			}
			p.end(t)
		})
	}
}

// TestDrain: told to end while the model thinks, a service finishes the step, hands the task
// over and ends well; the next one goes on at once and asks for nothing again. The second
// signal does not wait.
func TestDrain(t *testing.T) {
	files := killFiles(t)
	slow := *files
	slow.Files = slices.Clone(files.Files)
	for i, f := range slow.Files {
		if f.Name == "fix.yaml" {
			slow.Files[i].Data = bytes.Replace(f.Data, []byte("calls:"), []byte("delay_ms: 1000\ncalls:"), 1)
		}
	}
	t.Run("one signal", func(t *testing.T) {
		t.Parallel()
		in := service(t, &slow, "", "")
		target := fingerprint(filepath.Join(in.dir, "shop"))
		stopping := make(chan struct{})
		first := in.start(t, func(l said) {
			if strings.HasPrefix(l.msg, "stopping: ") {
				close(stopping)
			}
		}, "serve")
		id := in.ask(t, first)
		<-in.model.thinking
		_ = first.cmd.Process.Signal(syscall.SIGTERM)
		<-stopping
		in.model.letGo()
		<-first.done
		if first.err != nil {
			t.Errorf("ended with %v", first.err)
		}
		second := in.start(t, nil, "serve")
		if got := in.wait(t, id); got != task.InReview {
			t.Errorf("the task is %s", got)
		}
		second.end(t)
		o := outcome{name: "drain"}
		in.judge(t, &o, target)
		if o.asked != 0 || !o.resumed {
			t.Errorf("%d calls again, resumed %v", o.asked, o.resumed)
		}
	})
	t.Run("two signals", func(t *testing.T) {
		t.Parallel()
		in := service(t, &slow, "", "")
		target := fingerprint(filepath.Join(in.dir, "shop"))
		stopping := make(chan struct{})
		first := in.start(t, func(l said) {
			if strings.HasPrefix(l.msg, "stopping: ") {
				close(stopping)
			}
		}, "serve")
		id := in.ask(t, first)
		<-in.model.thinking
		_ = first.cmd.Process.Signal(syscall.SIGTERM)
		<-stopping
		for alive := true; alive; { // the model still thinks; the first of these may come before it listens
			_ = first.cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-first.done:
				alive = false
			case <-time.After(100 * time.Millisecond):
			}
		}
		if first.err != nil {
			t.Errorf("ended with %v", first.err)
		}
		in.model.letGo()
		second := in.start(t, nil, "serve")
		if got := in.wait(t, id); got != task.InReview {
			t.Errorf("the task is %s", got)
		}
		second.end(t)
		o := outcome{name: "two signals"}
		in.judge(t, &o, target)
	})
}

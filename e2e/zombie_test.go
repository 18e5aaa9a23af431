package e2e

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/store/postgres/pgtest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestZombie stops the process that works on a task (SIGSTOP) until the task is another's and
// done, then lets it go on: while it waited for the model, and right before an effect. It can
// change nothing. Leases have their default length; the owner is not gone, so that only the end
// of its lease tells.
func TestZombie(t *testing.T) {
	files := killFiles(t)
	for _, engine := range []string{"sqlite", "postgres"} {
		for _, at := range []string{"model.request", "effect.intended"} {
			t.Run(engine+"_"+at, func(t *testing.T) {
				t.Parallel()
				dsn := ""
				if engine == "postgres" {
					dsn = pgtest.Start(t).Database(t)
				}
				zombie(t, files, dsn, at)
			})
		}
	}
}

func zombie(t *testing.T, files *txtar.Archive, dsn, kind string) {
	if kind == "model.request" {
		slow := *files
		slow.Files = slices.Clone(files.Files)
		for i, f := range slow.Files {
			if f.Name == "fix.yaml" {
				slow.Files[i].Data = bytes.Replace(f.Data, []byte("calls:"), []byte("delay_ms: 1000\ncalls:"), 1)
			}
		}
		files = &slow
	}
	in := service(t, files, dsn, "")
	in.replace(t, "lease: 2s", "lease: "+config.Default().Serve.Lease.String())
	target := fingerprint(filepath.Join(in.dir, "shop"))
	var (
		stopped atomic.Pointer[process]
		begun   = make(chan time.Time, 8)
		lost    = make(chan *process, 8)
		reached = make(chan *process, 8)
	)
	hear := func(l said) {
		switch {
		case l.msg == "event" && l.kv["kind"] == kind && stopped.CompareAndSwap(nil, l.from):
			if kind == "effect.intended" { // at once: in a moment it would have been done
				_ = l.from.cmd.Process.Signal(syscall.SIGSTOP)
			}
			reached <- l.from
		case l.msg == "a run begins" && stopped.Load() != nil:
			begun <- time.Now()
		case l.msg == "a lease was lost to another worker":
			lost <- l.from
		}
	}
	serve := in.start(t, hear, "serve")
	all := []*process{serve}
	if dsn != "" {
		all = append(all, in.start(t, hear, "worker"))
	}
	id := in.askPlain(t, serve)
	var z *process
	select {
	case z = <-reached:
	case <-time.After(patience):
		t.Fatalf("nobody came to %s", kind)
	}
	if kind == "model.request" {
		<-in.model.thinking
		_ = z.cmd.Process.Signal(syscall.SIGSTOP)
	}
	in.unlocked(t, z)
	when := time.Now()
	if dsn != "" {
		select {
		case at := <-begun:
			t.Logf("taken over %s after the stop, with a lease of %s", at.Sub(when).Round(10*time.Millisecond), config.Default().Serve.Lease)
		case <-time.After(patience):
			t.Fatal("nobody took the task over")
		}
		in.model.letGo()
	} else {
		in.model.letGo()
		in.byHand(t)
	}
	if got := in.wait(t, id); got != task.InReview {
		t.Fatalf("the task is %s", got)
	}
	before := in.output(t, "task", "export")
	_ = z.cmd.Process.Signal(syscall.SIGCONT)
	select {
	case p := <-lost:
		if p != z {
			t.Errorf("%s lost its lease", p.name)
		}
	case <-time.After(patience):
		t.Errorf("the zombie does not notice\n%s", z.log())
	}
	for _, p := range all {
		p.end(t)
	}
	if after := in.output(t, "task", "export"); after != before {
		t.Errorf("the zombie changed the log:\n%s", strings.TrimPrefix(after, before))
	}
	o := outcome{name: kind}
	in.judge(t, &o, target)
}

// replace changes the configuration.
func (in installation) replace(t *testing.T, old, new string) {
	t.Helper()
	path := filepath.Join(in.dir, "daybreak.yaml")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(b, []byte(old)) {
		t.Fatalf("%q is not in the configuration", old)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(b, []byte(old), []byte(new)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// askPlain asks for the task as `daybreak run` names it, so that a person can go on with it.
func (in installation) askPlain(t *testing.T, p *process) task.ID {
	t.Helper()
	issue, err := os.ReadFile(filepath.Join(in.dir, "issue.md"))
	if err != nil {
		t.Fatal(err)
	}
	code, got := p.call(t, "POST", "/api/tasks", apiToken, map[string]any{"repo": filepath.Join(in.dir, "shop"), "issue": string(issue)})
	if code != 201 {
		t.Fatalf("%d %v", code, got)
	}
	id, _ := got["task"].(string)
	return task.ID(id)
}

// byHand goes on with the task from the command line, as soon as its lease has ended.
func (in installation) byHand(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		out, err := in.command("run", "--repo", "shop", "--issue", "issue.md").CombinedOutput()
		if err == nil {
			return
		}
		if !strings.Contains(string(out), "is being worked on by") || time.Now().After(end) {
			t.Fatalf("run: %v\n%s", err, out)
		}
	}
}

// unlocked makes sure that the stopped process holds no lock of the database: a stop in the
// middle of a write would keep everybody else out, and prove nothing.
func (in installation) unlocked(t *testing.T, z *process) {
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
	for n := range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		err := a.Store.Update(ctx, "probe", func([]byte) ([]byte, error) { return []byte(strconv.Itoa(n)), nil })
		cancel()
		if err == nil {
			return
		}
		_ = z.cmd.Process.Signal(syscall.SIGCONT)
		_ = z.cmd.Process.Signal(syscall.SIGSTOP)
	}
	t.Fatal("the stopped process holds the database")
}

// TestStoreAway cuts a process off its store for longer than a lease, while it works on a
// task: it waits and goes on, nobody takes the task from it, and no reply is asked for twice.
func TestStoreAway(t *testing.T) {
	files := killFiles(t)
	srv := pgtest.Start(t)
	proxy := pgtest.NewProxy(t, srv)
	direct := srv.Database(t)
	in := service(t, files, proxy.DSN(t, direct), "")
	target := fingerprint(filepath.Join(in.dir, "shop"))
	cut := make(chan struct{})
	var once atomic.Bool
	taken := make(chan struct{}, 8)
	p := in.start(t, func(l said) {
		switch {
		case l.msg == "event" && l.kv["kind"] == "model.response" && once.CompareAndSwap(false, true):
			proxy.Cut()
			close(cut)
		case l.msg == "a task was taken from its worker":
			taken <- struct{}{}
		}
	}, "serve")
	id := in.askPlain(t, p)
	select {
	case <-cut:
	case <-time.After(patience):
		t.Fatal("no reply was recorded")
	}
	<-time.After(5 * time.Second) // the lease is 2 s
	proxy.Mend()
	if got := in.wait(t, id); got != task.InReview {
		t.Errorf("the task is %s", got)
	}
	p.end(t)
	select {
	case <-taken:
		t.Error("the task was taken from a worker that could only not reach the store")
	default:
	}
	o := outcome{name: "away"}
	in.judge(t, &o, target)
	if o.asked != 0 || o.resumed {
		t.Errorf("%d calls again, resumed %v", o.asked, o.resumed)
	}
}

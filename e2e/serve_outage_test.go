package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/store/postgres/pgtest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// onKind gives a signal at the first event of a kind.
func onKind(kind string) (hear func(said), at chan struct{}) {
	at = make(chan struct{})
	var seen atomic.Bool
	return func(l said) {
		if l.msg == "event" && l.kv["kind"] == kind && seen.CompareAndSwap(false, true) {
			close(at)
		}
	}, at
}

// within waits for a signal.
func within(t *testing.T, p *process, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-p.done:
		t.Fatalf("%s ended before %s: %v\n%s", p.name, what, p.err, p.log())
	case <-time.After(patience):
		t.Fatalf("%s did not come to %s\n%s", p.name, what, p.log())
	}
}

// TestStoreStopped: the database is stopped, or hangs, in the middle of a task, for several leases
// (with DAYBREAK_E2E_ALL for a minute). The task waits for it and finishes; nothing is lost, paid
// again or done twice, and the service says that it is not ready meanwhile.
func TestStoreStopped(t *testing.T) {
	files := killFiles(t)
	away := 10 * time.Second
	if os.Getenv("DAYBREAK_E2E_ALL") != "" {
		away = time.Minute
	}
	for how, kind := range map[string]string{"stopped": "tool.started", "hangs": "agent.submitted"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			srv := pgtest.Start(t)
			in := service(t, files, srv.Database(t), "")
			target := fingerprint(filepath.Join(in.dir, "shop"))
			hear, at := onKind(kind)
			p := in.start(t, hear, "serve")
			id := in.ask(t, p)
			within(t, p, kind, at)
			if how == "stopped" {
				srv.End(syscall.SIGINT)
			} else {
				srv.Freeze(t)
			}
			over := time.After(away)
			if code, _ := p.call(t, "GET", "/readyz", "", nil); code != http.StatusServiceUnavailable {
				t.Errorf("readyz without a database: %d", code)
			}
			<-over
			if how == "stopped" {
				srv.Begin(t)
			} else {
				srv.Thaw(t)
			}
			if got := in.wait(t, id); got != task.InReview {
				t.Errorf("the task is %s", got)
			}
			p.end(t)
			o := outcome{name: how}
			in.judge(t, &o, target)
		})
	}
}

// TestDiskFull: the disk of a service fills up in the middle of a task. The task waits until there
// is room again and finishes; nothing is lost or done twice.
func TestDiskFull(t *testing.T) {
	files := killFiles(t)
	for _, kind := range []string{"tool.started", "agent.submitted"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			in := service(t, files, "", "")
			target := fingerprint(filepath.Join(in.dir, "shop"))
			if err := os.MkdirAll(in.data(), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mount("daybreak-e2e", in.data(), "tmpfs", 0, "size=48m,mode=0700"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Unmount(in.data(), syscall.MNT_DETACH) })
			hear, at := onKind(kind)
			short := make(chan struct{})
			var told atomic.Bool
			p := in.start(t, func(l said) {
				hear(l)
				for _, text := range l.kv {
					if full := strings.Contains(text, "no space left on device") || strings.Contains(text, "is full"); full && told.CompareAndSwap(false, true) {
						close(short)
					}
				}
			}, "serve")
			id := in.ask(t, p)
			within(t, p, kind, at)
			fill(t, filepath.Join(in.data(), "filler"))
			within(t, p, "a full disk", short)
			if err := os.Remove(filepath.Join(in.data(), "filler")); err != nil {
				t.Fatal(err)
			}
			if got := in.wait(t, id); got != task.InReview {
				t.Errorf("the task is %s", got)
			}
			p.end(t)
			o := outcome{name: "disk full at " + kind}
			in.judge(t, &o, target)
		})
	}
}

// fill writes until there is no room.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, size := range []int{1 << 20, 1 << 12, 1} {
		for b := make([]byte, size); ; {
			if _, err := f.Write(b); err != nil {
				break
			}
		}
	}
}

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store/postgres/pgtest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// drama is a task in which people, or the target branch, have a part.
type drama struct {
	name   string
	files  string
	config string
	points []string // "kind#n": after the nth event of a kind; the first one is always tried
	// act is what people do, beginning while the first turn of the model waits for it.
	act func(t *testing.T, in installation, id task.ID)
}

func dramas() []drama {
	return []drama{
		{"budget and approval", "testdata/kill.txtar", "publish: hold\n", []string{"publication.held#1", "budget.raised#1", "publication.approved#1"}, func(t *testing.T, in installation, id task.ID) {
			in.output(t, "task", "budget", string(id), "--steps", "200")
			in.until(t, id, "more budget", func(s event.Summary) bool { return s.Created.Limits.Steps == 200 })
			in.model.letGo()
			in.until(t, id, "a held change", func(s event.Summary) bool { return s.Waits() })
			in.output(t, "task", "approve", string(id))
		}},
		{"two questions", "testdata/ask.txtar", "", []string{"question.answered#1", "question.asked#1", "question.asked#2", "question.answered#2"}, func(t *testing.T, in installation, id task.ID) {
			in.model.letGo()
			in.asks(t, id, 1)
			in.output(t, "task", "answer", string(id), "zero please")
			in.asks(t, id, 2)
			in.output(t, "task", "answer", string(id), "yes, it is")
		}},
		{"the target moves", "testdata/kill.txtar", "", []string{"change.rebased#1", "snapshot.ready#2", "baseline.finished#2", "export.finished#2", "verification.finished#2"}, func(t *testing.T, in installation, _ task.ID) {
			in.commit(t, "sizes.py", "SIZES = []\n")
			in.model.letGo()
		}},
		{"the target moves against it", "testdata/kill.txtar", "", []string{"change.rebase_undone#1", "change.rebased#1"}, func(t *testing.T, in installation, _ task.ID) {
			in.commit(t, "test_debt.py", "import unittest\nfrom price import net\n\n\nclass DebtTest(unittest.TestCase):\n    def test_debt(self):\n        self.assertEqual(net(0, 4), -4)\n")
			in.model.letGo()
		}},
	}
}

// commit puts a file on the target branch, as a person would.
func (in installation) commit(t *testing.T, name, text string) {
	t.Helper()
	dir := filepath.Join(in.dir, "shop")
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"add", name}, {"commit", "--quiet", "--message=" + name}} {
		if out, err := gitIn(dir, args...); err != nil {
			t.Fatal(out)
		}
	}
}

func (in installation) until(t *testing.T, id task.ID, what string, so func(event.Summary) bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(in.summary(t, id)); <-time.After(100 * time.Millisecond) {
		if s := in.summary(t, id); time.Now().After(end) || s.State.Done() {
			t.Fatalf("it never came: %s; the task is %s: %s", what, s.State, s.Reason)
		}
	}
}

// TestServiceKillPeople kills the service after events in which people or the target branch have a
// part, and starts it again: held changes, raised budgets, questions, rebases. With DAYBREAK_E2E_ALL
// it is every such event on both stores, else the first one of each drama on SQLite.
func TestServiceKillPeople(t *testing.T) {
	need(t, "python3")
	all := os.Getenv("DAYBREAK_E2E_ALL") != ""
	engines := []string{"sqlite"}
	if all {
		engines = append(engines, "postgres")
	}
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			var srv *pgtest.Server
			if engine == "postgres" {
				srv = pgtest.Start(t)
			}
			var mu sync.Mutex
			var rows []row
			t.Run("points", func(t *testing.T) {
				for i, d := range dramas() {
					for j, point := range d.points {
						if j > 0 && !all {
							continue
						}
						t.Run(d.name+" "+point, func(t *testing.T) {
							t.Parallel()
							dsn := ""
							if srv != nil {
								dsn = srv.Database(t)
							}
							r := killDrama(t, d, point, dsn)
							r.pos = 100*i + j
							mu.Lock()
							defer mu.Unlock()
							rows = append(rows, r)
						})
					}
				}
			})
			t.Log("\n" + tableOf(rows, engine))
		})
	}
}

func killDrama(t *testing.T, d drama, point, dsn string) row {
	files, err := txtar.ParseFile(d.files)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files.Files {
		if f.Name == "fix.yaml" { // the first turn waits for what people do
			files.Files[i].Data = bytes.Replace(f.Data, []byte("calls:"), []byte("delay_ms: 1000\ncalls:"), 1)
		}
	}
	in := service(t, files, dsn, "")
	file := filepath.Join(in.dir, "daybreak.yaml")
	cfg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(cfg, d.config...), 0o644); err != nil {
		t.Fatal(err)
	}
	kind, number, _ := strings.Cut(point, "#")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	var count, at atomic.Int64
	next := make(chan time.Duration, 1)
	dead := make(chan struct{})
	hear := func(l said) {
		switch {
		case l.msg == "event" && l.kv["kind"] == kind && count.Add(1) == int64(n):
			_ = l.from.cmd.Process.Kill()
			close(dead)
		case l.msg == "a run begins" && at.Load() > 0:
			select {
			case next <- time.Since(time.Unix(0, at.Load())):
			default:
			}
		}
	}
	first := in.start(t, hear, "serve")
	id := in.ask(t, first)
	second := make(chan *process, 1)
	go func() {
		<-dead
		<-first.done
		at.Store(time.Now().UnixNano())
		second <- in.start(t, hear, "serve")
	}()
	<-in.model.thinking
	d.act(t, in, id)
	target := fingerprint(filepath.Join(in.dir, "shop")) // with what people changed; the branch below daybreak/ is no part of it
	if got := in.wait(t, id); got != task.InReview {
		t.Errorf("the task is %s", got)
	}
	var p *process
	select {
	case p = <-second:
	case <-time.After(10 * time.Second):
		t.Fatalf("no %s: the service was not killed\n%s", point, first.log())
	}
	r := row{outcome: outcome{name: fmt.Sprintf("%.20s: %s", d.name, point), killed: true}}
	select {
	case r.took = <-next:
	case <-time.After(10 * time.Second): // the end was on record already
	}
	p.end(t)
	in.judge(t, &r.outcome, target)
	return r
}

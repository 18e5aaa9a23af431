package e2e

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/daybreak-agent/daybreak/internal/store/postgres/pgtest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// mark is one event of an undisturbed run.
type mark struct {
	seq  int
	kind string
}

// sampled are the kinds after whose first event a process is killed when not all are asked
// for: where a stage, a call or an effect begins or ends.
func sampled() []string {
	return []string{"run.started", "model.response", "effect.intended", "pull_request.opened"}
}

// TestServiceKill kills the process that works on a task, after each event in turn. On SQLite
// the same service is started again, on PostgreSQL a second worker that runs beside it goes
// on. With DAYBREAK_E2E_ALL=1 it is every event of the task, with n every nth, else one of each
// important kind.
func TestServiceKill(t *testing.T) {
	files := killFiles(t)
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			var srv *pgtest.Server
			if engine == "postgres" {
				srv = pgtest.Start(t)
			}
			dsn := func() string {
				if srv == nil {
					return ""
				}
				return srv.Database(t)
			}
			marks := undisturbed(t, files, dsn())
			var mu sync.Mutex
			rows := make([]row, 0, len(marks))
			t.Run("points", func(t *testing.T) {
				seen := map[string]bool{}
				every, _ := strconv.Atoi(os.Getenv("DAYBREAK_E2E_ALL"))
				for i, m := range marks {
					if every > 0 && i%every != 0 || every == 0 && (seen[m.kind] || !slices.Contains(sampled(), m.kind)) {
						continue
					}
					seen[m.kind] = true
					t.Run(fmt.Sprintf("%d_%s", m.seq, m.kind), func(t *testing.T) {
						t.Parallel()
						r := serviceKill(t, files, dsn(), m)
						mu.Lock()
						defer mu.Unlock()
						rows = append(rows, r)
					})
				}
			})
			t.Log("\n" + tableOf(rows, engine))
		})
	}
}

// row is one of the printed table.
type row struct {
	outcome
	took time.Duration // from the kill (SQLite: the start) to the next run
}

func tableOf(rows []row, engine string) string {
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.pos, b.pos) })
	var b strings.Builder
	fmt.Fprintf(&b, "%-44s %-8s %-8s %-13s %-8s %-8s %s\n", engine+": killed after", "killed", "resumed", "asked again*", "re-paid", "doubled", "next run after")
	var took []time.Duration
	asked, repaid, doubled := 0, 0, 0
	for _, r := range rows {
		fmt.Fprintf(&b, "%-44s %-8v %-8v %-13d %-8d %-8d %s\n", r.name, r.killed, r.resumed, r.asked, r.repaid, r.doubled, r.took.Round(10*time.Millisecond))
		took = append(took, r.took)
		asked, repaid, doubled = asked+r.asked, repaid+r.repaid, doubled+r.doubled
	}
	if len(took) > 0 {
		slices.Sort(took)
		fmt.Fprintf(&b, "%d kill points, %d asked again*, %d re-paid, %d doubled; the next run began after %s (p50), %s (max)\n",
			len(rows), asked, repaid, doubled, took[len(took)/2].Round(10*time.Millisecond), took[len(took)-1].Round(10*time.Millisecond))
	}
	return b.String() + "* turns whose reply had not been recorded when the process died"
}

func undisturbed(t *testing.T, files *txtar.Archive, dsn string) []mark {
	t.Helper()
	in := service(t, files, dsn, "")
	var mu sync.Mutex
	var marks []mark
	p := in.start(t, func(l said) {
		if n, err := strconv.Atoi(l.kv["seq"]); err == nil && l.msg == "event" {
			mu.Lock()
			marks = append(marks, mark{n, l.kv["kind"]})
			mu.Unlock()
		}
	}, "serve")
	if got := in.wait(t, in.ask(t, p)); got != task.InReview {
		t.Fatalf("the undisturbed task is %s", got)
	}
	p.end(t)
	mu.Lock()
	defer mu.Unlock()
	return marks
}

func serviceKill(t *testing.T, files *txtar.Archive, dsn string, m mark) row {
	in := service(t, files, dsn, "")
	target := fingerprint(filepath.Join(in.dir, "shop"))
	var killed atomic.Bool
	var at atomic.Int64
	dead := make(chan *process, 1)
	next := make(chan time.Duration, 1)
	over := make(chan struct{}) // without the event: how often the clock is recorded is not the same twice
	hear := func(l said) {
		switch n, _ := strconv.Atoi(l.kv["seq"]); {
		case l.msg == "event" && n == m.seq && killed.CompareAndSwap(false, true):
			at.Store(time.Now().UnixNano())
			_ = l.from.cmd.Process.Kill()
			dead <- l.from
		case l.msg == "a run ended" && !killed.Load():
			close(over)
		case l.msg == "a run begins" && killed.Load():
			select {
			case next <- time.Since(time.Unix(0, at.Load())):
			default:
			}
		}
	}
	serve := in.start(t, hear, "serve")
	alive := []*process{serve}
	if dsn != "" {
		alive = append(alive, in.start(t, hear, "worker"))
	}
	id := in.ask(t, serve)
	var first *process
	select {
	case first = <-dead:
		<-first.done
	case <-over:
		t.Skipf("the task ended before event %d", m.seq)
	case <-time.After(patience):
		t.Fatalf("no process came to event %d\n%s", m.seq, serve.log())
	}
	alive = slices.DeleteFunc(alive, func(p *process) bool { return p == first })
	if len(alive) == 0 {
		at.Store(time.Now().UnixNano())
		alive = append(alive, in.start(t, hear, "serve"))
	}
	if got := in.wait(t, id); got != task.InReview {
		t.Errorf("the task is %s", got)
	}
	r := row{outcome: outcome{name: fmt.Sprintf("%d %s", m.seq, m.kind), pos: m.seq, killed: true}}
	select {
	case r.took = <-next:
	case <-time.After(10 * time.Second): // the end was on record and given back already
	}
	for _, p := range alive {
		p.end(t)
	}
	in.judge(t, &r.outcome, target)
	return r
}

package river

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"

	"github.com/daybreak-agent/daybreak/internal/dispatch"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/postgres"
	"github.com/daybreak-agent/daybreak/internal/store/postgres/pgtest"
	"github.com/daybreak-agent/daybreak/internal/store/sqlite"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// place is a store that any number of processes open.
type place func(t *testing.T) (dispatch.Store, dispatch.Engine)

// each runs the test on both engines.
func each(t *testing.T, run func(t *testing.T, open place)) {
	log := slog.New(slog.DiscardHandler)
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "daybreak.db")
		run(t, func(t *testing.T) (dispatch.Store, dispatch.Engine) {
			q, err := NewQueue[*sql.Tx](riversqlite.New(nil), log)
			if err != nil {
				t.Fatal(err)
			}
			st, err := sqlite.Open(t.Context(), path, sqlite.Options{Queue: q})
			if err != nil {
				t.Fatal(err)
			}
			db, err := sqlite.Pool(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _, _ = db.Close(), st.Close() })
			if err := Migrate(t.Context(), riversqlite.New(db), log); err != nil {
				t.Fatal(err)
			}
			return st, NewEngine(riversqlite.New(db), 50*time.Millisecond, log)
		})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.Start(t).Database(t)
		run(t, func(t *testing.T) (dispatch.Store, dispatch.Engine) {
			q, err := NewQueue[pgx.Tx](riverpgxv5.New(nil), log)
			if err != nil {
				t.Fatal(err)
			}
			st, err := postgres.Open(t.Context(), dsn, postgres.Options{Queue: q})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = st.Close() })
			if err := Migrate(t.Context(), riverpgxv5.New(st.Pool()), log); err != nil {
				t.Fatal(err)
			}
			return st, NewEngine(riverpgxv5.New(st.Pool()), time.Second, log)
		})
	})
}

// start makes and starts a dispatcher that ends with the test.
func start(t *testing.T, open place, owner string, change func(*dispatch.Config)) (*dispatch.Dispatcher, dispatch.Store) {
	t.Helper()
	st, engine := open(t)
	cfg := dispatch.Config{
		Store: st, Engine: engine, Owner: owner, Lease: time.Second, Pause: 50 * time.Millisecond, Workers: 4, Logger: slog.New(slog.DiscardHandler),
		Run: func(context.Context, store.Lease) dispatch.Outcome { return dispatch.Outcome{} },
	}
	change(&cfg)
	d := dispatch.New(cfg)
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = d.Stop(ctx)
	})
	return d, st
}

func create(t *testing.T, st dispatch.Store, n int, change func(*store.Task)) task.ID {
	t.Helper()
	row := store.Task{ID: storetest.ID(n), Key: fmt.Sprint("key", n), Repo: "repo", Author: "ann", Dispatch: true}
	if change != nil {
		change(&row)
	}
	if _, _, err := st.Create(t.Context(), row, []event.Draft{storetest.Draft(t, event.TaskCreated{})}); err != nil {
		t.Fatal(err)
	}
	return row.ID
}

// finish ends the task under the lease.
func finish(ctx context.Context, st dispatch.Store, l store.Lease) error {
	return move(ctx, st, l, task.Stopped)
}

// move takes the task along under the lease.
func move(ctx context.Context, st dispatch.Store, l store.Lease, states ...task.State) error {
	row, err := st.Task(ctx, l.Task)
	for _, to := range states {
		var d event.Draft
		if err == nil {
			d, err = event.New(event.StateChanged{From: row.State, To: to})
		}
		if err == nil {
			_, err = st.Append(ctx, l, d)
		}
		row.State = to
	}
	return err
}

// until waits for what changes in the store.
func until(t *testing.T, st dispatch.Store, what string, ok func() bool) {
	t.Helper()
	changed, err := st.Watch(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for end := time.After(time.Minute); !ok(); {
		select {
		case <-changed:
		case <-time.After(100 * time.Millisecond): // what is waited for may be outside of the store
		case <-end:
			t.Fatal("never: " + what)
		}
	}
}

func done(t *testing.T, st dispatch.Store) func() bool {
	return func() bool {
		left, err := st.Unfinished(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(left) == 0
	}
}

// TestCapsAndOrder: two processes never run more than the caps allow, everything is run once,
// and what has priority goes first.
func TestCapsAndOrder(t *testing.T) {
	each(t, func(t *testing.T, open place) {
		var mu sync.Mutex
		running, ran := map[string]int{}, []task.ID{}
		st, _ := open(t)
		for n := 1; n <= 12; n++ {
			create(t, st, n, func(r *store.Task) {
				r.Repo = fmt.Sprint("repo", n%3)
				if n == 12 {
					r.Priority = store.FirstPriority
				}
			})
		}
		for _, owner := range []string{"a", "b"} {
			var st dispatch.Store
			_, st = start(t, open, owner, func(c *dispatch.Config) {
				c.Caps, c.Lease = store.Caps{Total: 4, Repo: 2}, time.Minute // nothing here renews it
				c.Run = func(ctx context.Context, l store.Lease) dispatch.Outcome {
					row, err := st.Task(ctx, l.Task)
					if err != nil {
						return dispatch.Outcome{Trouble: err}
					}
					mu.Lock()
					running[row.Repo]++
					running[""]++
					if running[row.Repo] > 2 || running[""] > 4 {
						t.Errorf("above the caps: %v", running)
					}
					ran = append(ran, l.Task)
					mu.Unlock()
					select { // long enough for others to come
					case <-ctx.Done():
					case <-time.After(20 * time.Millisecond):
					}
					mu.Lock()
					running[row.Repo]--
					running[""]--
					mu.Unlock()
					return dispatch.Outcome{Trouble: finish(ctx, st, l)}
				}
				st = c.Store
			})
			// One process takes up orders by priority; what a second one takes at the same moment is in no order.
			until(t, st, "the first priority was run", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return slices.Contains(ran, storetest.ID(12))
			})
		}
		until(t, st, "all are done", done(t, st))
		mu.Lock()
		defer mu.Unlock()
		if at := slices.Index(ran, storetest.ID(12)); at > 4 {
			t.Errorf("the first priority was run as number %d", at+1)
		}
		slices.Sort(ran)
		if n := len(slices.Compact(slices.Clone(ran))); n != 12 || len(ran) != 12 {
			t.Errorf("%d runs of %d tasks", len(ran), n)
		}
	})
}

// TestTriedAgain: a task that stopped short is tried again after a pause, under a new epoch.
func TestTriedAgain(t *testing.T) {
	each(t, func(t *testing.T, open place) {
		var epochs []int64
		var st dispatch.Store
		_, st = start(t, open, "a", func(c *dispatch.Config) {
			st = c.Store
			c.Run = func(ctx context.Context, l store.Lease) dispatch.Outcome {
				epochs = append(epochs, l.Epoch)
				if len(epochs) < 3 {
					return dispatch.Outcome{Trouble: errors.New("the provider is overloaded")}
				}
				return dispatch.Outcome{Trouble: finish(ctx, st, l)}
			}
		})
		create(t, st, 1, nil)
		until(t, st, "it is done", done(t, st))
		if !slices.Equal(epochs, []int64{1, 2, 3}) {
			t.Errorf("epochs %v", epochs)
		}
	})
}

// TestTakenOver: a worker that does not renew loses its task to another process within about
// one lease, and what it does afterwards is refused.
func TestTakenOver(t *testing.T) {
	each(t, func(t *testing.T, open place) {
		held := make(chan store.Lease, 1)
		wake := make(chan struct{})
		zombie := make(chan error, 1)
		var first, second dispatch.Store
		_, first = start(t, open, "a", func(c *dispatch.Config) {
			first, c.Workers = c.Store, 1
			c.Run = func(ctx context.Context, l store.Lease) dispatch.Outcome {
				held <- l
				<-wake
				zombie <- finish(context.WithoutCancel(ctx), first, l)
				return dispatch.Outcome{}
			}
		})
		create(t, first, 1, nil)
		l := <-held
		var took atomic.Int64
		_, second = start(t, open, "b", func(c *dispatch.Config) {
			second = c.Store
			c.Run = func(ctx context.Context, now store.Lease) dispatch.Outcome {
				took.Store(int64(time.Since(l.Until)))
				if now.Epoch != l.Epoch+2 {
					t.Errorf("epoch %d after %d", now.Epoch, l.Epoch)
				}
				return dispatch.Outcome{Trouble: finish(ctx, second, now)}
			}
		})
		until(t, second, "it is done", done(t, second))
		close(wake)
		if err := <-zombie; task.ClassOf(err) != task.Stale {
			t.Errorf("the old owner: %v", err)
		}
		t.Logf("the next run began %s after the lease had ended", time.Duration(took.Load()).Round(time.Millisecond))
		storetest.Log(t, second, storetest.ID(1))
	})
}

// TestReconcile: a task whose order is gone gets another, once; one that has its order is left
// alone.
func TestReconcile(t *testing.T) {
	each(t, func(t *testing.T, open place) {
		d, st := start(t, open, "nobody", func(c *dispatch.Config) { c.Workers = 0 })
		ghost, fine := create(t, st, 1, nil), create(t, st, 2, nil)
		all, err := st.Unfinished(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lose(t, open, all[0].Job)
		for range 2 {
			if err := d.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		events := storetest.Log(t, st, ghost)
		if n := len(events); n != 2 || events[1].Kind != (event.LeaseTaken{}).EventKind() {
			t.Fatalf("%d events: %+v", n, events)
		}
		if n := len(storetest.Log(t, st, fine)); n != 1 {
			t.Fatalf("the other has %d events", n)
		}
		var runs atomic.Int64
		start(t, open, "a", func(c *dispatch.Config) {
			c.Run = func(ctx context.Context, l store.Lease) dispatch.Outcome {
				runs.Add(1)
				return dispatch.Outcome{Trouble: finish(ctx, c.Store, l)}
			}
		})
		until(t, st, "both are done", done(t, st))
		if runs.Load() != 2 {
			t.Errorf("%d runs", runs.Load())
		}
	})
}

// TestReconcileCallsWhoRests: a task that waits for a person goes on once there is a word, and not
// for words that only the agent reads.
func TestReconcileCallsWhoRests(t *testing.T) {
	each(t, func(t *testing.T, open place) {
		d, st := start(t, open, "nobody", func(c *dispatch.Config) { c.Workers = 0 })
		id := create(t, st, 1, nil)
		all, err := st.Unfinished(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		l, err := st.Claim(t.Context(), store.Job{ID: all[0].Job, Task: id, Epoch: 0}, "w", time.Minute, store.Caps{})
		if err != nil {
			t.Fatal(err)
		}
		if err := move(t.Context(), st, l, task.Preparing, task.Working); err != nil {
			t.Fatal(err)
		}
		if err := st.Handover(t.Context(), l, 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{store.Steer, store.Note, store.Approve, store.Answer} { // an approval is for what is verified
			if err := st.Signal(t.Context(), store.Signal{ID: kind, Task: id, Kind: kind, Who: "ann"}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := d.Reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(storetest.Log(t, st, id)); n != 3 && kind != store.Answer || n != 4 && kind == store.Answer {
				t.Fatalf("%s: %d events", kind, n)
			}
		}
		if all, err = st.Unfinished(t.Context()); err != nil || len(all) != 1 || time.Until(all[0].Due) > time.Minute {
			t.Errorf("%+v %v", all, err)
		}
	})
}

// TestParked: a task that rests has its next run once a word waits for it, without anybody who
// orders it, and no run before.
func TestParked(t *testing.T) {
	each(t, func(t *testing.T, open place) {
		ran := make(chan int64, 10)
		_, st := start(t, open, "a", func(c *dispatch.Config) {
			c.Run = func(ctx context.Context, l store.Lease) dispatch.Outcome {
				ran <- l.Epoch
				if l.Epoch == 1 {
					return dispatch.Outcome{Parked: true, After: 24 * time.Hour, Trouble: move(ctx, c.Store, l, task.Preparing, task.Working)}
				}
				return dispatch.Outcome{Trouble: finish(ctx, c.Store, l)}
			}
		})
		id := create(t, st, 1, nil)
		<-ran
		for _, kind := range []string{store.Steer, store.Note, store.Answer} {
			if len(ran) > 0 {
				t.Fatalf("a run before the word for it")
			}
			if err := st.Signal(t.Context(), store.Signal{ID: kind, Task: id, Kind: kind, Who: "ann"}); err != nil {
				t.Fatal(err)
			}
		}
		<-ran
		until(t, st, "it is done", done(t, st))
	})
}

// lose takes an order away as if somebody had deleted it.
func lose(t *testing.T, open place, id int64) {
	t.Helper()
	_, e := open(t)
	cancel := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Start(t.Context(), dispatch.Setup{}); err != nil {
		t.Fatal(err)
	}
	switch e := e.(type) {
	case *Engine[*sql.Tx]:
		_, err := e.client.JobCancel(t.Context(), id)
		cancel(err)
	case *Engine[pgx.Tx]:
		_, err := e.client.JobCancel(t.Context(), id)
		cancel(err)
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestStop waits for a run, and cancels it when it may not wait; a stopped task is ordered
// again at once.
func TestStop(t *testing.T) {
	each(t, func(t *testing.T, open place) {
		began, end := make(chan struct{}, 100), make(chan struct{})
		var interrupted atomic.Bool
		run := func(ctx context.Context, _ store.Lease) dispatch.Outcome {
			began <- struct{}{}
			select {
			case <-ctx.Done():
				interrupted.Store(true)
			case <-end:
			}
			return dispatch.Outcome{}
		}
		d, st := start(t, open, "a", func(c *dispatch.Config) { c.Run, c.Lease = run, time.Minute })
		id := create(t, st, 1, nil)
		<-began
		stopped := make(chan error, 1)
		go func() { stopped <- d.Stop(context.Background()) }()
		close(end)
		if err := <-stopped; err != nil || interrupted.Load() {
			t.Fatalf("%v, interrupted %v", err, interrupted.Load())
		}
		was, err := st.Task(t.Context(), id) // handed over once, or again when Stop was slower than the next run
		if err != nil || was.Owner != "" || was.Epoch < 1 {
			t.Fatalf("%+v, %v", was, err)
		}
		for len(began) > 0 {
			<-began
		}
		end = make(chan struct{})
		d, _ = start(t, open, "b", func(c *dispatch.Config) { c.Run, c.Lease = run, time.Minute })
		<-began
		now, cancel := context.WithCancel(context.Background())
		cancel()
		if err := d.Stop(now); err != nil || !interrupted.Load() {
			t.Fatalf("%v, interrupted %v", err, interrupted.Load())
		}
		if row, err := st.Task(t.Context(), id); err != nil || row.Owner != "" || row.Epoch != was.Epoch+1 {
			t.Fatalf("%+v, %v", row, err)
		}
	})
}

// TestPages show orders, and change none.
func TestPages(t *testing.T) {
	each(t, func(t *testing.T, open place) {
		var pages func(ctx context.Context, prefix string) (http.Handler, error)
		_, st := start(t, open, "nobody", func(c *dispatch.Config) {
			c.Workers = 0
			pages = c.Engine.(interface {
				Pages(ctx context.Context, prefix string) (http.Handler, error)
			}).Pages
		})
		create(t, st, 1, nil)
		all, err := st.Unfinished(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h, err := pages(t.Context(), "/queue")
		if err != nil {
			t.Fatal(err)
		}
		ask := func(method, path, body string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
			return w
		}
		if w := ask("GET", "/queue/", ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "<html") {
			t.Errorf("%d %.200s", w.Code, w.Body)
		}
		if w := ask("GET", fmt.Sprint("/queue/api/jobs/", all[0].Job), ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), string(all[0].ID)) {
			t.Errorf("%d %.300s", w.Code, w.Body)
		}
		if w := ask("POST", "/queue/api/jobs/cancel", fmt.Sprintf(`{"ids": ["%d"]}`, all[0].Job)); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("cancel: %d %.300s", w.Code, w.Body)
		}
	})
}

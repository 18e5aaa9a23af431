package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"

	"github.com/daybreak-agent/daybreak/internal/action"
	"github.com/daybreak-agent/daybreak/internal/dispatch"
	"github.com/daybreak-agent/daybreak/internal/dispatch/river"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/postgres"
	"github.com/daybreak-agent/daybreak/internal/store/sqlite"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// The fleet: what a task writes, and when, without sandboxes and models. Think times are
// log-normal with the median and the tail of recorded sessions (6 s, 30 s at p95), speeded up.
const (
	fleetSteps  = 20
	fleetSpeed  = 10
	thinkMedian = 6 * time.Second
	thinkSigma  = 0.98 // ln(30/6) / 1.645
	fleetLease  = 4 * time.Second
	dying       = 20 // one in so many runs dies: it stops in the middle and never says so
)

// measureFleet runs 30 and 300 tasks at once over two dispatchers on one store.
func measureFleet(ctx context.Context, w *world, t *table) error {
	for _, engine := range []string{"SQLite", "PostgreSQL"} {
		dsn := os.Getenv("DAYBREAK_BENCH_POSTGRES")
		if engine == "PostgreSQL" && dsn == "" {
			continue // set it to the address of an empty database
		}
		small := &fleet{}
		for _, n := range []int{30, 300} {
			f := &fleet{n: n, effects: map[string]int{}}
			open := func() (dispatch.Store, dispatch.Engine, func() error, error) {
				return openFleetFile(ctx, filepath.Join(w.dir, fmt.Sprintf("fleet%d.db", n)))
			}
			if engine == "PostgreSQL" {
				schema := fmt.Sprintf("fleet%d_%d", n, time.Now().UnixNano())
				if err := makeSchema(ctx, dsn, schema); err != nil {
					return err
				}
				open = func() (dispatch.Store, dispatch.Engine, func() error, error) {
					return openFleetServer(ctx, dsn, schema)
				}
			}
			if err := f.run(ctx, open); err != nil {
				return err
			}
			f.report(t, engine, small)
			small = f
		}
	}
	return nil
}

// fleet is one run and what it showed.
type fleet struct {
	n int

	mu      sync.Mutex
	effects map[string]int // pull requests by task
	waited  []time.Duration
	writes  []time.Duration
	died    map[task.ID]bool
	taken   []time.Duration // from a death to the next run
	deaths  map[task.ID]time.Time

	took, cpu time.Duration
	heap      uint64
	lost      int
	doubled   int
	createdAt map[task.ID]time.Time
}

func (f *fleet) run(ctx context.Context, open func() (dispatch.Store, dispatch.Engine, func() error, error)) error {
	f.died, f.deaths, f.createdAt = map[task.ID]bool{}, map[task.ID]time.Time{}, map[task.ID]time.Time{}
	var ds []*dispatch.Dispatcher
	var st dispatch.Store
	var closers []func() error
	defer func() {
		for _, c := range closers {
			_ = c()
		}
	}()
	cpu0 := processor()
	for i := range 2 {
		s, engine, closer, err := open()
		if err != nil {
			return err
		}
		closers = append(closers, closer)
		st = s
		d := dispatch.New(dispatch.Config{
			Store: s, Engine: engine, Owner: fmt.Sprint("bench", i), Lease: fleetLease, Workers: (f.n + 1) / 2, Logger: slog.New(slog.DiscardHandler),
			Run: func(ctx context.Context, l store.Lease) dispatch.Outcome { return f.work(ctx, s, l) },
		})
		if err := d.Start(ctx); err != nil {
			return err
		}
		ds = append(ds, d)
	}
	begin := time.Now()
	if err := f.create(ctx, st); err != nil {
		return err
	}
	changed, err := st.Watch(ctx, "")
	if err != nil {
		return err
	}
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for {
		left, err := st.Unfinished(ctx)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			break
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		f.heap = max(f.heap, m.HeapInuse)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		select {
		case <-changed:
		case <-time.After(time.Second):
		}
	}
	f.took, f.cpu = time.Since(begin), processor()-cpu0
	stop, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cancel()
	for _, d := range ds {
		err = errors.Join(err, d.Stop(stop))
	}
	for _, n := range f.effects {
		f.doubled += n - 1
	}
	f.lost = f.n - len(f.effects)
	return err
}

func (f *fleet) create(ctx context.Context, st dispatch.Store) error {
	for i := range f.n {
		id := task.ID(fmt.Sprintf("t_%026d", i+1))
		d, err := event.New(event.TaskCreated{Repo: fmt.Sprint("repo", i%10), IssueTitle: "bench"})
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.createdAt[id] = time.Now()
		f.mu.Unlock()
		row := store.Task{ID: id, Key: string(id), Repo: fmt.Sprint("repo", i%10), Author: fmt.Sprint("author", i%7), Dispatch: true}
		if _, _, err := st.Create(ctx, row, []event.Draft{d}); err != nil {
			return err
		}
	}
	return nil
}

// work is a run: it goes on where the log ends, renews its lease, and opens one pull request.
func (f *fleet) work(ctx context.Context, st dispatch.Store, l store.Lease) dispatch.Outcome {
	began := time.Now()
	f.mu.Lock()
	if at, ok := f.deaths[l.Task]; ok {
		f.taken = append(f.taken, began.Sub(at))
		delete(f.deaths, l.Task)
	} else if l.Epoch == 1 {
		f.waited = append(f.waited, began.Sub(f.createdAt[l.Task]))
	}
	dies := !f.died[l.Task] && rand.IntN(dying) == 0
	f.died[l.Task] = true
	f.mu.Unlock()
	j := &fleetLog{f: f, st: st, lease: l}
	stop := j.renew(ctx)
	err := j.whole(ctx, dies)
	stop()
	if errors.Is(err, errFleetDead) {
		f.mu.Lock()
		f.deaths[l.Task] = time.Now()
		f.mu.Unlock()
		return dispatch.Outcome{Lost: true} // a dead process gives nothing back
	}
	return dispatch.Outcome{Trouble: err, Lost: task.ClassOf(err) == task.Stale}
}

var errFleetDead = errors.New("the run died")

// fleetLog is a task's log under a lease; it implements action.Log.
type fleetLog struct {
	f     *fleet
	st    dispatch.Store
	lease store.Lease
	mu    sync.Mutex
	sum   event.Summary
}

func (j *fleetLog) Append(ctx context.Context, ps ...event.Payload) ([]event.Event, error) {
	drafts := make([]event.Draft, len(ps))
	for i, p := range ps {
		d, err := event.New(p)
		if err != nil {
			return nil, err
		}
		drafts[i] = d
	}
	begin := time.Now()
	evs, err := j.st.Append(ctx, j.lease, drafts...)
	if err != nil {
		return nil, err
	}
	j.f.mu.Lock()
	j.f.writes = append(j.f.writes, time.Since(begin))
	j.f.mu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range evs {
		if err := j.sum.Apply(e); err != nil {
			return nil, err
		}
	}
	return evs, nil
}

func (j *fleetLog) Summary() event.Summary {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.sum
}

func (j *fleetLog) Held(ctx context.Context) error {
	_, err := j.st.Renew(ctx, j.lease, fleetLease)
	return err
}

func (j *fleetLog) renew(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		beat := time.NewTicker(fleetLease / 3)
		defer beat.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-beat.C:
				_, _ = j.st.Renew(ctx, j.lease, fleetLease) // the next append says what is wrong
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// whole is the task from where its log ends.
func (j *fleetLog) whole(ctx context.Context, dies bool) error {
	events, err := j.st.Events(ctx, j.lease.Task, 0, 0)
	if err != nil {
		return err
	}
	if j.sum, err = event.Fold(events); err != nil || j.sum.State.Done() {
		return err
	}
	if _, err := j.Append(ctx, event.RunStarted{Worker: j.lease.Owner, Resumed: j.sum.Runs > 0}); err != nil {
		return err
	}
	if j.sum.State == task.Queued {
		if _, err := j.Append(ctx, event.StateChanged{From: task.Queued, To: task.Preparing}, event.StateChanged{From: task.Preparing, To: task.Working}); err != nil {
			return err
		}
	}
	reply, result := strings.Repeat("r", 3000), strings.Repeat("x", 4000)
	for step := j.sum.Spent.Steps + 1; step <= fleetSteps; step++ {
		if _, err := j.Append(ctx, event.ModelRequested{Step: step, Model: "bench"}); err != nil {
			return err
		}
		think := time.Duration(float64(thinkMedian) * math.Exp(thinkSigma*rand.NormFloat64()) / fleetSpeed)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(think, 2*time.Minute/fleetSpeed)):
		}
		if dies && step == fleetSteps/2 {
			return errFleetDead
		}
		call := fmt.Sprint("c", step)
		if _, err := j.Append(ctx, event.ModelResponded{Step: step, Message: event.Text{Inline: reply, Bytes: len(reply)}, Attempts: 1},
			event.ToolStarted{Step: step, Call: call, Name: "run"}, event.ToolFinished{Step: step, Call: call, Name: "run", Result: event.Text{Inline: result, Bytes: len(result)}}); err != nil {
			return err
		}
	}
	if j.sum.State == task.Working {
		if _, err := j.Append(ctx, event.StateChanged{From: task.Working, To: task.Verifying}, event.StateChanged{From: task.Verifying, To: task.Publishing}); err != nil {
			return err
		}
	}
	id := string(j.lease.Task)
	_, err = action.Do(ctx, j, "pull_request:"+id, "pull_request", map[string]string{"task": id},
		func(context.Context) (json.RawMessage, bool, error) {
			j.f.mu.Lock()
			defer j.f.mu.Unlock()
			return json.RawMessage(`"found"`), j.f.effects[id] > 0, nil
		},
		func(context.Context) (json.RawMessage, error) {
			j.f.mu.Lock()
			defer j.f.mu.Unlock()
			j.f.effects[id]++
			return json.RawMessage(`"made"`), nil
		})
	if err == nil {
		_, err = j.Append(ctx, event.StateChanged{From: task.Publishing, To: task.InReview})
	}
	return err
}

func (f *fleet) report(t *table, engine string, small *fleet) {
	name := fmt.Sprintf("%d tasks at once, %s: ", f.n, engine)
	beside := func(now, was time.Duration) string {
		if small.n == 0 {
			return ""
		}
		return fmt.Sprintf("%s with %d tasks: %s", millis(was), small.n, times(now, was))
	}
	t.durations(name+"asked for until a run begins", f.waited, 0, 0, beside(percentile(f.waited, 50), percentile(small.waited, 50)))
	t.durations(name+"one durable append", f.writes, 0, 0, beside(percentile(f.writes, 50), percentile(small.writes, 50)))
	t.durations(name+fmt.Sprintf("death of a run until the next, lease %s", fleetLease), f.taken, 5*time.Second, 0, fmt.Sprintf("%d runs died", len(f.taken)))
	rate := float64(len(f.writes)) / f.took.Seconds()
	t.value(name+"appends a second, clock ×"+fmt.Sprint(fleetSpeed), fmt.Sprintf("%.0f", rate), "", true,
		fmt.Sprintf("took %s, %s of processor, heap %d MB", f.took.Round(100*time.Millisecond), f.cpu.Round(100*time.Millisecond), f.heap>>20))
	t.value(name+"pull requests lost / doubled", fmt.Sprintf("%d / %d", f.lost, f.doubled), "0 / 0", f.lost == 0 && f.doubled == 0, "")
}

func processor() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func openFleetFile(ctx context.Context, path string) (dispatch.Store, dispatch.Engine, func() error, error) {
	log := slog.New(slog.DiscardHandler)
	q, err := river.NewQueue[*sql.Tx](riversqlite.New(nil), log)
	if err != nil {
		return nil, nil, nil, err
	}
	st, err := sqlite.Open(ctx, path, sqlite.Options{Queue: q})
	if err != nil {
		return nil, nil, nil, err
	}
	db, err := sqlite.Pool(path)
	if err != nil {
		return nil, nil, nil, errors.Join(err, st.Close())
	}
	if err := river.Migrate(ctx, riversqlite.New(db), log); err != nil {
		return nil, nil, nil, errors.Join(err, db.Close(), st.Close())
	}
	return st, river.NewEngine(riversqlite.New(db), 200*time.Millisecond, log), func() error { return errors.Join(db.Close(), st.Close()) }, nil
}

func makeSchema(ctx context.Context, dsn, schema string) error {
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, "CREATE SCHEMA "+pgx.Identifier{schema}.Sanitize())
	return errors.Join(err, c.Close(ctx))
}

func openFleetServer(ctx context.Context, dsn, schema string) (dispatch.Store, dispatch.Engine, func() error, error) {
	log := slog.New(slog.DiscardHandler)
	q, err := river.NewQueue[pgx.Tx](riverpgxv5.New(nil), log)
	if err != nil {
		return nil, nil, nil, err
	}
	sep := "?"
	if strings.Contains(dsn, "?") {
		sep = "&"
	}
	st, err := postgres.Open(ctx, dsn+sep+"search_path="+schema, postgres.Options{Queue: q})
	if err != nil {
		return nil, nil, nil, err
	}
	if err := river.Migrate(ctx, riverpgxv5.New(st.Pool()), log); err != nil {
		return nil, nil, nil, errors.Join(err, st.Close())
	}
	return st, river.NewEngine(riverpgxv5.New(st.Pool()), time.Second, log), st.Close, nil
}

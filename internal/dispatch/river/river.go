// Package river carries the orders of a store in River's tables, beside the store's own.
//
// Invariants: one order for each (task, epoch); an order goes in and is cancelled in the
// transaction it is given; River's own rescue of a dead process's job is not relied on, since
// the store orders the next run when a lease ends; an order that River hands out again is
// refused by the store as out of date.
package river

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/daybreak-agent/daybreak/internal/dispatch"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// The two queues: orders never wait for periodic work, nor the other way round.
const (
	orders = "tasks"
	chores = "chores"
)

// order is the job of one (task, epoch).
type order struct {
	Task  task.ID `json:"task" river:"unique"`
	Epoch int64   `json:"epoch" river:"unique"`
}

// Kind implements river.JobArgs.
func (order) Kind() string { return "task" }

// chore is the job of a [dispatch.Periodic].
type chore struct {
	Name string `json:"name" river:"unique"`
}

// Kind implements river.JobArgs.
func (chore) Kind() string { return "chore" }

// Queue implements [store.Queue].
type Queue[Tx any] struct{ client *river.Client[Tx] }

// NewQueue returns a queue that only works inside transactions; the driver needs no pool.
func NewQueue[Tx any](driver riverdriver.Driver[Tx], log *slog.Logger) (*Queue[Tx], error) {
	c, err := river.NewClient(driver, &river.Config{Logger: quiet(log)})
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	return &Queue[Tx]{c}, nil
}

// Insert implements [store.Queue].
func (q *Queue[Tx]) Insert(ctx context.Context, tx Tx, j store.Job) (int64, error) {
	opts := &river.InsertOpts{Queue: orders, Priority: j.Priority, UniqueOpts: river.UniqueOpts{ByArgs: true}}
	if j.After > 0 {
		opts.ScheduledAt = time.Now().Add(j.After)
	}
	res, err := q.client.InsertTx(ctx, tx, order{j.Task, j.Epoch}, opts)
	if err != nil {
		return 0, fmt.Errorf("order a run of %s: %w", j.Task, err)
	}
	return res.Job.ID, nil
}

// Cancel implements [store.Queue].
func (q *Queue[Tx]) Cancel(ctx context.Context, tx Tx, id int64) error {
	if _, err := q.client.JobCancelTx(ctx, tx, id); err != nil && !errors.Is(err, river.ErrNotFound) {
		return fmt.Errorf("cancel order %d: %w", id, err)
	}
	return nil
}

// Migrate brings River's tables up to date.
func Migrate[Tx any](ctx context.Context, driver riverdriver.Driver[Tx], log *slog.Logger) error {
	m, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet(log)})
	if err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("make the queue's tables: %w", err)
	}
	return nil
}

// Engine implements [dispatch.Engine].
type Engine[Tx any] struct {
	driver riverdriver.Driver[Tx]
	log    *slog.Logger
	poll   time.Duration
	client *river.Client[Tx]
}

// NewEngine returns an engine that does nothing yet. poll is how often it looks for orders
// where the database cannot tell it.
func NewEngine[Tx any](driver riverdriver.Driver[Tx], poll time.Duration, log *slog.Logger) *Engine[Tx] {
	return &Engine[Tx]{driver: driver, log: quiet(log), poll: poll}
}

// quiet makes River's ordinary words debug words: what matters is said by the dispatcher.
func quiet(log *slog.Logger) *slog.Logger { return slog.New(lower{log.Handler()}) }

type lower struct{ slog.Handler }

func (l lower) Enabled(ctx context.Context, v slog.Level) bool {
	return l.Handler.Enabled(ctx, min(v, v-slog.LevelWarn))
}

func (l lower) Handle(ctx context.Context, r slog.Record) error {
	r.Level -= slog.LevelWarn
	return l.Handler.Handle(ctx, r)
}

func (l lower) WithAttrs(a []slog.Attr) slog.Handler { return lower{l.Handler.WithAttrs(a)} }

func (l lower) WithGroup(name string) slog.Handler { return lower{l.Handler.WithGroup(name)} }

// Start implements [dispatch.Engine].
func (e *Engine[Tx]) Start(ctx context.Context, s dispatch.Setup) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker[order]{log: e.log, work: func(ctx context.Context, j *river.Job[order]) error {
		a, err := s.Work(ctx, store.Job{ID: j.ID, Task: j.Args.Task, Epoch: j.Args.Epoch, Priority: j.Priority})
		if err != nil {
			return err
		}
		if a.Again > 0 {
			return river.JobSnooze(a.Again)
		}
		return nil
	}})
	do := map[string]func(context.Context) error{}
	var every []*river.PeriodicJob
	for _, p := range s.Every {
		do[p.Name] = p.Do
		every = append(every, river.NewPeriodicJob(river.PeriodicInterval(p.Every), func() (river.JobArgs, *river.InsertOpts) {
			return chore{p.Name}, &river.InsertOpts{Queue: chores, MaxAttempts: 1, UniqueOpts: river.UniqueOpts{ByArgs: true, ByPeriod: p.Every}}
		}, &river.PeriodicJobOpts{ID: p.Name, RunOnStart: true}))
	}
	river.AddWorker(workers, &worker[chore]{log: e.log, work: func(ctx context.Context, j *river.Job[chore]) error {
		if f := do[j.Args.Name]; f != nil {
			return f(ctx)
		}
		return river.JobCancel(fmt.Errorf("this process does not know the chore %q", j.Args.Name))
	}})
	queues := map[string]river.QueueConfig{chores: {MaxWorkers: max(1, len(s.Every))}}
	if s.Workers > 0 {
		queues[orders] = river.QueueConfig{MaxWorkers: s.Workers}
	}
	var err error
	e.client, err = river.NewClient(e.driver, &river.Config{
		Queues: queues, Workers: workers, PeriodicJobs: every, Logger: e.log,
		FetchPollInterval: e.poll, FetchCooldown: min(e.poll, 50*time.Millisecond), JobTimeout: -1,
		// What a long run leaves when it is handed out again is refused; see the invariants.
		RescueStuckJobsAfter: time.Hour, CompletedJobRetentionPeriod: time.Hour, CancelledJobRetentionPeriod: time.Hour,
	})
	if err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	if err := e.client.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("start the queue: %w", err)
	}
	return nil
}

// worker does the jobs of one kind, and logs what one failed with.
type worker[T river.JobArgs] struct {
	river.WorkerDefaults[T]
	log  *slog.Logger
	work func(context.Context, *river.Job[T]) error
}

// NextRetry retries what failed for reasons of ours within half a minute.
func (w *worker[T]) NextRetry(j *river.Job[T]) time.Time {
	return time.Now().Add(min(time.Duration(j.Attempt)*time.Second, 30*time.Second))
}

// Work implements river.Worker.
func (w *worker[T]) Work(ctx context.Context, j *river.Job[T]) (err error) {
	about := []any{"kind", j.Kind, "job", j.ID, "args", string(j.EncodedArgs)}
	defer func() {
		if v := recover(); v != nil {
			w.log.ErrorContext(ctx, "an order panicked", append(about, "panic", fmt.Sprint(v), "trace", string(debug.Stack()))...)
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	err = w.work(ctx, j)
	var later *river.JobSnoozeError
	if err != nil && !errors.As(err, &later) {
		w.log.ErrorContext(ctx, "an order could not be worked", append(about, "error", err)...)
	}
	return err
}

// Hurry implements [dispatch.Engine].
func (e *Engine[Tx]) Hurry(ctx context.Context, id int64) error {
	if _, err := e.client.JobRetry(ctx, id); err != nil && !errors.Is(err, river.ErrNotFound) {
		return fmt.Errorf("hurry order %d: %w", id, err)
	}
	return nil
}

// running is River's word for a job that a worker has.
const running = "running"

// Standing implements [dispatch.Engine].
func (e *Engine[Tx]) Standing(ctx context.Context, id int64) (dispatch.Standing, error) {
	if id == 0 {
		return dispatch.Standing{}, nil
	}
	j, err := e.client.JobGet(ctx, id)
	if errors.Is(err, river.ErrNotFound) {
		return dispatch.Standing{}, nil
	}
	if err != nil {
		return dispatch.Standing{}, fmt.Errorf("look at order %d: %w", id, err)
	}
	at := dispatch.Standing{Live: j.FinalizedAt == nil}
	if j.State == running && j.AttemptedAt != nil {
		at.Taken = *j.AttemptedAt
	}
	return at, nil
}

// Stop implements [dispatch.Engine].
func (e *Engine[Tx]) Stop(ctx context.Context) error { return e.client.Stop(ctx) }

// Kill implements [dispatch.Engine].
func (e *Engine[Tx]) Kill(ctx context.Context) error { return e.client.StopAndCancel(ctx) }

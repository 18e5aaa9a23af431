// Package dispatch decides which tasks run, where and when: it turns orders of the store's
// queue into leases, hands tasks over, takes them from workers that are gone, and puts right
// what no longer fits together. Engines that carry the orders are in dispatch/<name>.
//
// Invariants: the right to work on a task is its lease and nothing else, an order only says
// that there is work; whatever the engine does to an order (hand it out twice, late, to two
// processes), a task has one worker; a task that is not done has an order or a live lease, or
// gets one at the next look.
package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// DefaultLease is how long a lease lasts without a heartbeat. A worker renews it three times
// in that time; what a dead one held is taken over after it.
const DefaultLease = 4 * time.Second

// Store is what the dispatcher needs of one.
type Store interface {
	store.Store
	store.Dispatch
}

// Config is what a dispatcher needs. All fields without "may be" are required.
type Config struct {
	Store  Store
	Engine Engine
	// Run takes the task as far as it goes under the lease, which it renews and does not give
	// back. A task that is not done afterwards is ordered again; see [Outcome].
	Run     func(ctx context.Context, l store.Lease) Outcome
	Owner   string                  // names this process in leases
	Dead    func(owner string) bool // true when the owner is a process of this machine that is gone; may be nil
	Lease   time.Duration           // 0: [DefaultLease]
	Pause   time.Duration           // before a task that stopped short is tried again, doubled each time; 0: 5 s
	Caps    store.Caps
	Workers int
	Every   []Periodic // beside the dispatcher's own
	// Sweep removes what runs left on this machine whose task nobody works on here; it says
	// what it removed. It may be nil.
	Sweep  func(ctx context.Context) ([]string, error)
	Taken  func() // told of each task that was taken from a silent worker; may be nil
	Logger *slog.Logger
}

// Outcome is how a run ended.
type Outcome struct {
	Lost    bool          // the lease was another's: there is nothing to give back
	After   time.Duration // when the next run makes sense, should the task not be done
	Trouble error         // why it stopped short of an end; nil: it did not
	Parked  bool          // it rests until a person's word, which orders the next run; After is for the case that nobody says one
}

// Dispatcher runs tasks in this process.
type Dispatcher struct {
	cfg Config

	mu    sync.Mutex
	tries map[task.ID]int // runs in a row that stopped short

	stopping atomic.Bool
	stop     context.CancelFunc
	reaper   sync.WaitGroup
}

// New returns a dispatcher that does nothing yet.
func New(cfg Config) *Dispatcher {
	if cfg.Lease <= 0 {
		cfg.Lease = DefaultLease
	}
	if cfg.Pause <= 0 {
		cfg.Pause = firstPause
	}
	return &Dispatcher{cfg: cfg, tries: map[task.ID]int{}}
}

// Start begins to work. It returns when leases of processes that are known to be gone were
// taken over, so that a restart goes on at once.
func (d *Dispatcher) Start(ctx context.Context) error {
	if err := d.reap(ctx); err != nil {
		return err
	}
	every := append([]Periodic{{Name: "reconcile", Every: 30 * time.Second, Do: d.Reconcile}}, d.cfg.Every...)
	if err := d.cfg.Engine.Start(ctx, Setup{Workers: d.cfg.Workers, Work: d.work, Every: every}); err != nil {
		return err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop = stop
	d.reaper.Go(func() { d.watch(run) })
	return nil
}

// Stop takes no further task and waits for those at work, which should be told to stop at
// their next step. When ctx ends first, their contexts are cancelled.
func (d *Dispatcher) Stop(ctx context.Context) error {
	d.stopping.Store(true)
	err := d.cfg.Engine.Stop(ctx)
	if ctx.Err() != nil {
		err = d.cfg.Engine.Kill(context.WithoutCancel(ctx))
	}
	d.stop()
	d.reaper.Wait()
	return err
}

// work is one order.
func (d *Dispatcher) work(ctx context.Context, j store.Job) (Answer, error) {
	if d.stopping.Load() { // taken up in the last moment: it is for another process
		return Answer{Again: 100 * time.Millisecond}, nil
	}
	lease, err := d.cfg.Store.Claim(ctx, j, d.cfg.Owner, d.cfg.Lease, d.cfg.Caps)
	switch c := task.ClassOf(err); {
	case errors.Is(err, store.ErrFull): // hurried when a place is free; this is for the case that nobody does
		return Answer{Again: 4*time.Second + rand.N(2*time.Second)}, nil
	case c == task.Stale || c == task.NotFound:
		d.cfg.Logger.DebugContext(ctx, "an order was out of date", "task", j.Task, "epoch", j.Epoch)
		return Answer{}, nil
	case err != nil:
		return Answer{}, err
	}
	out := d.cfg.Run(ctx, lease)
	end := context.WithoutCancel(ctx)
	if out.Lost {
		d.cfg.Logger.WarnContext(ctx, "a lease was lost to another worker", "task", j.Task, "epoch", lease.Epoch)
		return Answer{}, nil
	}
	if out.Parked {
		d.cfg.Logger.InfoContext(ctx, "a task rests until a person has a word for it", "task", j.Task, "for", out.After)
	}
	if out.Trouble != nil {
		d.cfg.Logger.WarnContext(ctx, "a run stopped short", "task", j.Task, "error", out.Trouble)
	}
	err = d.cfg.Store.Handover(end, lease, d.pause(j.Task, out))
	if task.ClassOf(err) == task.Stale { // the queue's cancellation came before the heartbeat
		d.cfg.Logger.WarnContext(ctx, "a lease was lost to another worker", "task", j.Task, "epoch", lease.Epoch)
	} else if err != nil {
		// The lease ends by itself and the reaper orders the next run.
		d.cfg.Logger.ErrorContext(ctx, "a lease could not be given back", "task", j.Task, "error", err)
	}
	d.promote(end)
	return Answer{}, nil
}

// The pauses before a task that stopped short is tried again.
const (
	firstPause   = 5 * time.Second
	longestPause = 10 * time.Minute
)

// pause doubles with every run in a row that stopped short, and is never less than what the
// run asked for.
func (d *Dispatcher) pause(id task.ID, out Outcome) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if out.Trouble == nil {
		delete(d.tries, id)
		return out.After
	}
	wait := d.cfg.Pause
	for range d.tries[id] {
		wait = min(2*wait, longestPause)
	}
	d.tries[id]++
	return max(wait, out.After)
}

// promote hurries the order that should run next, now that a place is free.
func (d *Dispatcher) promote(ctx context.Context) {
	if d.cfg.Caps == (store.Caps{}) {
		return
	}
	next, err := d.cfg.Store.Waiting(ctx, d.cfg.Caps, 1)
	if err == nil && len(next) > 0 {
		err = d.cfg.Engine.Hurry(ctx, next[0].ID)
	}
	if err != nil {
		d.cfg.Logger.WarnContext(ctx, "the next order could not be hurried", "error", err)
	}
}

// watch takes over what lost its worker, again and again. After a time in which this process
// could not look (the store was away, the machine slept) it waits for one lease: the owners
// could not renew either.
func (d *Dispatcher) watch(ctx context.Context) {
	look := time.NewTicker(max(d.cfg.Lease/8, 50*time.Millisecond))
	defer look.Stop()
	looked, grace := time.Now(), time.Time{}
	changed, called := d.changes(ctx), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if time.Since(called) >= callEvery { // a word that nobody ordered a run for was left at a command line
			select {
			case <-changed:
				if err := d.call(ctx); err != nil && ctx.Err() == nil {
					d.cfg.Logger.DebugContext(ctx, "words for tasks that rest are left to the reconciler", "error", err)
				}
			default:
			}
			called = time.Now()
		}
		_, err := d.cfg.Store.Tasks(ctx, store.Filter{Limit: 1})
		now := time.Now()
		if err != nil || now.Sub(looked) > d.cfg.Lease/2 {
			grace = now.Add(d.cfg.Lease)
		}
		looked = now
		if err != nil || now.Before(grace) {
			continue
		}
		if err := d.reap(ctx); err != nil && ctx.Err() == nil {
			d.cfg.Logger.WarnContext(ctx, "lost leases could not be taken over", "error", err)
		}
	}
}

// callEvery is how often tasks that rest are looked at while something changes.
const callEvery = time.Second

// changes wakes up when something in the store changed; a store that cannot tell wakes nobody.
func (d *Dispatcher) changes(ctx context.Context) <-chan struct{} {
	c, err := d.cfg.Store.Watch(ctx, "")
	if err != nil {
		d.cfg.Logger.WarnContext(ctx, "the store's changes cannot be watched", "error", err)
	}
	return c
}

func (d *Dispatcher) reap(ctx context.Context) error {
	taken, err := d.cfg.Store.Reap(ctx, d.cfg.Dead)
	for _, r := range taken {
		d.cfg.Logger.WarnContext(ctx, "a task was taken from its worker", "task", r.Task, "owner", r.Owner, "epoch", r.Epoch, "late", r.Late, "job", r.Job)
		if d.cfg.Taken != nil {
			d.cfg.Taken()
		}
	}
	return err
}

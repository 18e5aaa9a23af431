// Package worker owns one run of a task: the lease and its heartbeat, the fixed stages
// (prepare, baseline, agent, verify, publish), resuming from the log, stopping, and the result.
//
// Invariants: everything a run does is recorded under its lease before it happens, and a lost
// lease ends the run at once; a stage that the log shows as done is not done again, a model
// reply in the log is never asked for again; whatever way a task ends, the agent's change is
// kept in the log and no sandbox of the run is left.
package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/daybreak-agent/daybreak/internal/agent"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/evidence"
	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/network"
	"github.com/daybreak-agent/daybreak/internal/policy/secrets"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Config is what a worker needs. All fields without "may be" are required.
type Config struct {
	Store     store.Store
	Runtime   sandbox.Runtime
	Git       *git.Git
	Snapshots *snapshot.Store
	Forge     forge.Forge
	// Model builds the client for "provider/model".
	Model    func(name string) (model.Client, error)
	Redactor agent.Redactor
	Secrets  *secrets.Scanner // looks through all that leaves; nil knows the rules and no values

	Sandbox sandbox.Spec // template: mounts, environment and limits of every sandbox
	// Network opens ways to the package registries; nil: no sandbox reaches anything.
	Network     network.Network
	Offline     bool         // only the sandbox that prepares dependencies reaches them
	Setup       prover.Setup // how dependencies may be prepared; its zero value is the default
	Environment string       // digest of what a sandbox looks like; part of a snapshot's identity
	Hold        bool         // a person approves every change before it is published
	Questions   Questions    // that the agent may ask
	Rebase      string       // what is done when the target branch has moved: see [config.RebaseVerify]
	Most        task.Limits  // to which a person may raise a budget; 0: not at all
	// Judging is how long what several attempts proved is compared once the task's time is over; 0: a
	// quarter of an hour.
	Judging     time.Duration
	Protected   []string // globs of paths to hold, beside the built-in ones
	AuthorName  string
	AuthorEmail string
	MaxOutput   int // tokens of one reply
	Thinking    int // tokens, 0: off

	Owner    string                  // names this process in leases
	Dead     func(owner string) bool // true when the owner is a process of this machine that is gone
	LeaseTTL time.Duration
	Draining <-chan struct{}                                           // closed when runs are to end at their next step; may be nil
	Sign     func(id task.ID, seq int64, root string) event.Checkpoint // at the end of a task; may be nil
	Attest   evidence.Signer                                           // of the evidence; nil: there is none
	Now      func() time.Time
	Rand     io.Reader
	Logger   *slog.Logger
	Observe  Observer                 // may be nil
	Show     func(model.Delta)        // live display of the model's stream, may be nil
	Progress func(stage, note string) // live display of long stages, may be nil
	Notify   Notify                   // whom to tell when people should look
	Again    *Again                   // nil but where a recorded task is replayed
}

// Worker runs tasks.
type Worker struct{ cfg Config }

// New returns a worker.
func New(cfg Config) *Worker {
	if cfg.LeaseTTL == 0 {
		cfg.LeaseTTL = 30 * time.Second
	}
	if cfg.Judging == 0 {
		cfg.Judging = 15 * time.Minute
	}
	if cfg.Secrets == nil {
		cfg.Secrets = secrets.New(nil)
	}
	return &Worker{cfg}
}

// run is one attempt at one task.
type run struct {
	*Worker
	j    *journal
	box  sandbox.Sandbox // the agent's; nil when not started
	snap snapshot.Snapshot
	set  settings
	// names are the base's paths and base its files, once asked for.
	names []string
	base  map[string]git.Entry
	reach reach
	// raising is held while words about the budget are taken up.
	raising sync.Mutex
	// unsaved says that the sandbox alone has what the agent did last.
	unsaved bool
	// indexed says that the search index was seen to before the baseline.
	indexed bool
	// endIndexing ends what builds a search index beside the agent; nil when nothing does.
	endIndexing func()
	// endTwin waits for the twin of the snapshot that is made beside the agent; nil when none is.
	endTwin func()
}

// ErrPaused wraps the reason why a task stopped without an end: its state is kept and a later
// run goes on.
var ErrPaused = errors.New("paused")

// ErrInterrupted is the pause that a person's ctrl-C or a signal makes.
var ErrInterrupted = fmt.Errorf("%w: interrupted", ErrPaused)

// ErrHeld is the pause of a verified change that a person must approve before it is published;
// see [Config.Hold].
var ErrHeld = fmt.Errorf("%w: the change was verified and waits for a person's approval: look at it with `daybreak task diff`, then say `daybreak task approve`", ErrPaused)

// ErrDrained is the pause at the next step, because this process is to end; see
// [Config.Draining].
var ErrDrained = fmt.Errorf("%w: the worker is being drained", ErrPaused)

// drained is ErrDrained once runs are to end.
func (w *Worker) drained() error {
	select {
	case <-w.cfg.Draining:
		return ErrDrained
	default:
		return nil
	}
}

// Run takes the task as far as it goes: to an end, or to review. The returned error is
// Daybreak's, the provider's or the machine's; the task's own ends are in the result's state.
func (w *Worker) Run(ctx context.Context, id task.ID) (event.Summary, error) {
	lease, err := w.cfg.Store.Acquire(ctx, id, w.cfg.Owner, w.cfg.LeaseTTL, w.cfg.Dead)
	if err != nil {
		return event.Summary{}, err
	}
	sum, err := w.RunUnder(ctx, lease)
	if errors.Is(err, ErrLost) {
		return sum, err
	}
	return sum, errors.Join(err, w.cfg.Store.Release(context.WithoutCancel(ctx), lease))
}

// RunUnder is [Worker.Run] under a lease that the caller took and will give back. It renews
// the lease; [ErrLost] says that it is another's, and that nothing was recorded since.
func (w *Worker) RunUnder(ctx context.Context, lease store.Lease) (event.Summary, error) {
	j := &journal{st: w.cfg.Store, now: w.cfg.Now, observe: w.cfg.Observe, task: lease.Task, lease: lease, ttl: w.cfg.LeaseTTL}
	events, err := w.history(ctx, j)
	if err != nil {
		return event.Summary{}, err
	}
	own := *w // what the run holds of the snapshots goes with it
	own.cfg.Snapshots = w.cfg.Snapshots.Scoped()
	defer own.cfg.Snapshots.Release()
	r := &run{Worker: &own, j: j}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := r.heartbeat(ctx, cancel)
	over := j.state().Done()
	err = r.guarded(ctx, events)
	if lost := errors.Is(context.Cause(ctx), ErrLost) || task.ClassOf(err) == task.Stale; !lost && !over {
		r.tell(ctx)
	}
	stop()
	for _, end := range []func(){r.endIndexing, r.endTwin} {
		if end != nil {
			end()
		}
	}
	// What follows must be recorded even when ctx was cancelled: that is how the task ended.
	end := context.WithoutCancel(ctx)
	if errors.Is(context.Cause(ctx), ErrLost) || task.ClassOf(err) == task.Stale {
		err = ErrLost
		if r.box != nil {
			err = errors.Join(err, r.box.Destroy(end))
		}
	} else if cerr := r.close(end); task.ClassOf(cerr) == task.Stale {
		err = ErrLost
	} else {
		err = errors.Join(err, cerr)
	}
	cancel(nil)
	return j.Summary(), err
}

// history reads, checks and folds the log.
func (w *Worker) history(ctx context.Context, j *journal) ([]event.Event, error) {
	events, err := w.cfg.Store.Events(ctx, j.task, 0, 0)
	if err != nil {
		return nil, err
	}
	if err := event.VerifyChain(j.task, events); err != nil {
		return nil, &task.Error{Class: task.Internal, Err: err, Fix: "restore the database from a backup; the log is the only truth of a task"}
	}
	j.summary, err = event.Fold(events)
	return events, err
}

// ErrLost ends a run whose lease another worker has.
var ErrLost error = &task.Error{Class: task.Stale, Msg: "the lease was lost to another worker"}

// guarded runs the stages and turns their errors into the task's end or a pause.
func (r *run) guarded(ctx context.Context, events []event.Event) error {
	sum := r.j.Summary()
	if sum.State.Done() {
		return nil
	}
	r.j.start(r.cfg.Now())
	_, err := r.j.Append(ctx, event.RunStarted{Worker: r.cfg.Owner, Resumed: sum.Runs > 0, From: sum.LastSeq})
	if err == nil {
		err = r.raise(ctx)
	}
	if err != nil && ctx.Err() != nil { // a stop is heard at once
		return r.conclusion(ctx, ctx, err)
	}
	if err != nil {
		return err
	}
	if ended, err := r.parked(ctx); ended || rests(err) {
		return err
	} else if err != nil {
		return r.conclusion(ctx, ctx, err)
	}
	if sum.Parked() { // the answer is part of the conversation
		var err error
		if events, err = r.cfg.Store.Events(ctx, sum.Task, 0, 0); err != nil {
			return r.conclusion(ctx, ctx, err)
		}
	}
	sum = r.j.Summary()
	budget, cancel := r.withWall(ctx)
	defer cancel()
	if proven(sum) || sum.Rebasing() { // what is proven is published whatever the clock says
		budget = ctx
	}
	err = r.stages(budget, events)
	if err != nil && (overBudget(budget) || errors.Is(err, errSpent)) && r.proven() {
		budget, err = ctx, r.settle(ctx)
	}
	if err == nil && r.j.state() == task.Publishing {
		budget = ctx
		err = r.publish(ctx)
	}
	if err == nil {
		return nil
	}
	return r.conclusion(ctx, budget, err)
}

// conclusion turns an error of the stages into the task's end or a pause.
func (r *run) conclusion(ctx, budget context.Context, err error) error {
	end := context.WithoutCancel(ctx)
	var cause *task.Error
	if budget.Err() != nil && errors.As(context.Cause(budget), &cause) {
		switch cause.Class {
		case task.Budget:
			return r.finish(end, task.Exhausted, cause.Msg)
		case task.StoppedBy:
			return r.stopped(end)
		case task.Stale:
			return cause
		}
	}
	if errors.Is(err, ErrDrained) || rests(err) {
		return err
	}
	if ctx.Err() != nil { // the process is told to go: the task stays where it is
		return fmt.Errorf("%w; run the same command again to go on", ErrInterrupted)
	}
	if rerr := r.recordRefusal(end, err); rerr != nil {
		return errors.Join(err, rerr)
	}
	switch c := task.ClassOf(err); {
	case c == task.Stale:
		return err
	case pauses(err):
		return fmt.Errorf("%w: %w; when it is put right, run the same command again to go on", ErrPaused, err)
	}
	if ferr := r.finish(end, task.Failed, err.Error()); ferr != nil {
		return errors.Join(err, ferr)
	}
	return err
}

// recordRefusal stores which layer of a sandbox could not be set up, if that is what went wrong.
func (r *run) recordRefusal(ctx context.Context, err error) error {
	var refused *sandbox.RefusedError
	if !errors.As(err, &refused) {
		return nil
	}
	text := refused.Error()
	if r.cfg.Redactor != nil {
		text, _ = r.cfg.Redactor.Redact(text)
	}
	_, err = r.j.Append(ctx, event.SandboxRefused{Layer: refused.Layer, Error: text})
	return err
}

// ofMachine reports whether the machine lacks something that a person can put right: a layer of
// the sandbox, or room. It says nothing about the task, which can go on afterwards.
func ofMachine(err error) bool {
	var refused *sandbox.RefusedError
	if errors.As(err, &refused) {
		return true
	}
	for _, e := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// proven reports whether the log holds a verdict that leads to a pull request.
func proven(sum event.Summary) bool {
	v := sum.Verification
	if sum.Trying() {
		return false
	}
	return sum.State == task.Publishing || sum.State == task.Verifying && v != nil && v.Kind.Accepted()
}

// stages runs what the log does not show as done, up to the publication.
func (r *run) stages(ctx context.Context, events []event.Event) error {
	if r.j.state() == task.Queued {
		// Also when the time is over already: a queued task cannot be exhausted.
		if err := r.j.move(context.WithoutCancel(ctx), task.Preparing, ""); err != nil {
			return err
		}
	}
	if sum := r.j.Summary(); sum.Rebasing() && sum.Stop == nil {
		return r.proveAgain(ctx)
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if done, err := r.settled(ctx); done || err != nil {
		return err
	}
	if err := r.adopt(ctx); err != nil {
		return err
	}
	if err := r.drained(); err != nil {
		return err
	}
	if s := r.j.state(); s == task.Preparing || s == task.Working || s == task.Verifying {
		return r.work(ctx, events)
	}
	return nil
}

// How often the inbox is looked at: soon after the store says that something changed, which what the
// run records itself does as well; and every now and then, should the store fail to say it.
const (
	lookSoon = 200 * time.Millisecond
	lookLate = 5 * time.Second
)

// heartbeat renews the lease and watches for a person's stop, until the returned function is
// called.
func (r *run) heartbeat(ctx context.Context, cancel context.CancelCauseFunc) (stop func()) {
	ctx, end := context.WithCancel(ctx)
	late := lookLate
	changed, err := r.cfg.Store.Watch(ctx, r.j.task)
	if err != nil {
		late = time.Second
		r.cfg.Logger.WarnContext(ctx, "the task's changes cannot be watched", "error", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		beat := time.NewTicker(r.cfg.LeaseTTL / 3)
		defer beat.Stop()
		look := time.NewTimer(0)
		defer look.Stop()
		soon := true
		for {
			select {
			case <-ctx.Done():
				return
			case <-beat.C:
				if err := r.j.renew(ctx, r.cfg.LeaseTTL); task.ClassOf(err) == task.Stale {
					cancel(ErrLost)
					return
				}
			case <-changed:
				if !soon {
					soon = true
					look.Reset(lookSoon)
				}
			case <-look.C:
				if err := r.listen(ctx); err != nil {
					cancel(err)
					return
				}
				soon = false
				look.Reset(late)
			}
		}
	}()
	return func() { end(); <-done }
}

// listen takes up what people said of the budget, and returns the cause for which the run ends if they
// stopped the task.
func (r *run) listen(ctx context.Context) error {
	in, err := r.j.Inbox(ctx)
	if err != nil {
		return nil //nolint:nilerr // the append that follows will say what is wrong with the store
	}
	for _, s := range in {
		if s.Kind == store.Budget {
			if err := r.raise(ctx); err != nil {
				r.cfg.Logger.WarnContext(ctx, "a raised budget is looked at again", "error", err)
			}
		}
		if s.Kind == store.Stop {
			return &task.Error{Class: task.StoppedBy, Msg: "stopped by " + s.Who}
		}
	}
	return nil
}

// stopped takes the stop out of the inbox, unless the loop already did, and ends the task.
func (r *run) stopped(ctx context.Context) error {
	in, err := r.j.Inbox(ctx)
	if err != nil {
		return err
	}
	reason := "stopped"
	for _, s := range in {
		if s.Kind != "stop" {
			continue
		}
		if _, err := r.j.Take(ctx, []string{s.ID}, event.StopRequested{Signal: s.ID, Who: s.Who, Reason: s.Text}); err != nil {
			return err
		}
	}
	if s := r.j.Summary().Stop; s != nil {
		reason = "stopped by " + s.Who
		if s.Reason != "" {
			reason += ": " + s.Reason
		}
	}
	return r.finish(ctx, task.Stopped, reason)
}

// finish keeps the agent's change and moves the task to an end.
func (r *run) finish(ctx context.Context, to task.State, reason string) error {
	saveErr := r.saveWorkspace(ctx, string(to))
	if saveErr != nil {
		reason += " (the change in the sandbox could not be kept: " + saveErr.Error() + ")"
	}
	return r.j.move(ctx, to, reason)
}

// close ends the run's sandbox, unless it alone has the agent's work, stores the clock and signs
// the log when the task is done.
func (r *run) close(ctx context.Context) error {
	var err error
	if !r.unsaved {
		err = r.endBox(ctx, "the run ended")
	}
	err = errors.Join(err, r.j.flushClock(ctx))
	sum := r.j.Summary()
	if !sum.State.Done() || r.cfg.Sign == nil || sum.Checkpoint != nil && sum.Checkpoint.Seq == sum.LastSeq-1 {
		return err
	}
	cp := r.cfg.Sign(sum.Task, sum.LastSeq, sum.LastHash)
	_, cerr := r.j.Append(ctx, cp)
	return errors.Join(err, cerr)
}

func (r *run) endBox(ctx context.Context, why string) error {
	if r.box == nil {
		return nil
	}
	id := r.box.Handle().ID
	if err := r.box.Destroy(ctx); err != nil {
		return fmt.Errorf("end sandbox %s: %w", id, err)
	}
	r.box = nil
	_, err := r.j.Append(ctx, event.SandboxEnded{ID: id, Reason: why})
	return err
}

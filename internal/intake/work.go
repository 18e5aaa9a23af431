package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// maxHands is how many repositories of one forge are acted on at once: one forge that is slow keeps
// nobody waiting on another, and one repository of which much is told not all of its forge.
const maxHands = 4

// claimFor is how long after its last sign of life a process keeps others from what it acts on.
const claimFor = 30 * time.Second

// Run acts on what was kept, until ctx ends. Beside that it polls once: nobody listened before.
func (in *Intake) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		if err := in.Poll(ctx); err != nil && ctx.Err() == nil {
			in.cfg.Logger.WarnContext(ctx, "a forge was not asked for what was missed; it will be with the next poll", "error", err)
		}
	})
	look := time.NewTicker(2 * time.Second) // for what other processes kept, and what was postponed
	defer look.Stop()
	for {
		in.begin(ctx, &all, func(err error) {
			if ctx.Err() == nil {
				in.cfg.Logger.ErrorContext(ctx, "deliveries cannot be read", "error", err)
			}
		})
		select {
		case <-ctx.Done():
			return nil
		case <-in.mail:
		case <-look.C:
		}
	}
}

// Work acts on everything that is due and waits for the end of that.
func (in *Intake) Work(ctx context.Context) error {
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	in.begin(ctx, &all, func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	})
	all.Wait()
	return errors.Join(errs...)
}

// begin acts on what is due, each forge for itself. What fails is the store.
func (in *Intake) begin(ctx context.Context, all *sync.WaitGroup, failed func(error)) {
	names, err := in.cfg.Store.Undone(ctx)
	if err != nil {
		failed(err)
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, name := range names {
		in.missed[name] = in.hands[name] == maxHands
		for ; in.hands[name] < maxHands; in.hands[name]++ {
			all.Go(func() {
				if err := in.hand(ctx, name); err != nil {
					failed(err)
				}
			})
		}
	}
}

// hand acts on one delivery of a forge after the other, until there is none that it may have.
func (in *Intake) hand(ctx context.Context, name string) error {
	defer func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.hands[name]--
		if in.missed[name] { // it may have come just after this one looked
			in.missed[name] = false
			in.wake()
		}
	}()
	for ctx.Err() == nil {
		in.mu.Lock()
		in.claims++
		claim := fmt.Sprintf("%s:%d", in.cfg.Owner, in.claims)
		in.mu.Unlock()
		d, ok, err := in.cfg.Store.TakeUp(ctx, name, claim, claimFor)
		if err != nil || !ok {
			return err
		}
		if err := in.held(ctx, d); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// held acts on a delivery as long as the claim is this process's.
func (in *Intake) held(ctx context.Context, d store.Delivery) error {
	mine, lose := context.WithCancelCause(ctx)
	lost := &task.Error{Class: task.Stale, Msg: "another process took the delivery over"}
	end := time.AfterFunc(claimFor, func() { lose(lost) })
	defer end.Stop()
	var beat sync.WaitGroup
	beat.Go(func() {
		again := time.NewTicker(claimFor / 3)
		defer again.Stop()
		for {
			select {
			case <-mine.Done():
				return
			case <-again.C:
			}
			switch err := in.cfg.Store.Hold(mine, d, claimFor); {
			case err == nil:
				end.Reset(claimFor)
			case task.ClassOf(err) == task.Stale:
				lose(lost)
			}
		}
	})
	err := in.one(mine, d)
	stopped := context.Cause(mine)
	lose(nil)
	beat.Wait()
	switch {
	case stopped == nil || err == nil:
		return err
	case errors.Is(stopped, lost):
		in.cfg.Logger.WarnContext(ctx, "another process took a delivery over", "forge", d.Forge, "delivery", d.ID)
		return nil
	}
	return errors.Join(err, in.cfg.Store.Hold(context.WithoutCancel(ctx), d, 0)) // the next process need not wait
}

// maxTries is how often a delivery is tried: over about a day.
const maxTries = 40

// one acts on a delivery and records what came of it. Its error is the store's, or why ctx ended.
func (in *Intake) one(ctx context.Context, kept store.Delivery) error {
	var d forge.Delivery
	if err := json.Unmarshal(kept.Body, &d); err != nil {
		return in.cfg.Store.Conclude(ctx, kept.Forge, kept.ID, "cannot be read: "+err.Error())
	}
	d.Forge = kept.Forge
	outcome, err := in.act(ctx, d)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ctx = context.WithoutCancel(ctx) // what was done is on record
	log := in.cfg.Logger.With("forge", kept.Forge, "delivery", kept.ID, "kind", d.Kind, "repository", d.Path, "sender", d.Sender.Name)
	if c := task.ClassOf(err); err != nil && (c.Retryable() || c == task.Conflict || c == task.Internal || c == task.Unavailable) && kept.Tries < maxTries {
		after := min(time.Second<<min(kept.Tries, 11), 30*time.Minute)
		var e *task.Error
		if errors.As(err, &e) {
			after = max(after, e.RetryAfter)
		}
		log.WarnContext(ctx, "delivery postponed", "after", after, "error", err)
		return in.cfg.Store.Postpone(ctx, kept, after, err.Error())
	}
	if err != nil {
		outcome = "failed: " + err.Error()
		log.ErrorContext(ctx, "delivery failed", "error", err)
	} else {
		log.InfoContext(ctx, "delivery", "outcome", outcome)
	}
	return in.cfg.Store.Conclude(ctx, kept.Forge, kept.ID, outcome)
}

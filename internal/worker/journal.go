package worker

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/agent"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Observer is told of everything that was recorded, in order, after it was stored.
type Observer func(event.Event, event.Payload)

// journal is a task's log under this run's lease: it appends, keeps the fold current, adds
// the wall clock, and tells the observer. It implements agent.Log and action.Log.
type journal struct {
	st      store.Store
	now     func() time.Time
	observe Observer
	task    task.ID
	ttl     time.Duration // of a renewed lease

	mu      sync.Mutex
	lease   store.Lease
	summary event.Summary
	clocked time.Time // up to here the wall clock is in the log; zero while it stands still
}

// Append implements agent.Log.
func (j *journal) Append(ctx context.Context, ps ...event.Payload) ([]event.Event, error) {
	return j.write(ctx, nil, ps)
}

// Take implements agent.Log.
func (j *journal) Take(ctx context.Context, ids []string, ps ...event.Payload) ([]event.Event, error) {
	return j.write(ctx, ids, ps)
}

// clockGrain is the least wall time worth an event of its own.
const clockGrain = time.Second

func (j *journal) write(ctx context.Context, taken []string, ps []event.Payload) ([]event.Event, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.now()
	if d := j.elapsed(now); d >= clockGrain {
		ps = append(ps[:len(ps):len(ps)], event.WallClocked{Elapsed: d})
	} else {
		now = j.clocked
	}
	drafts := make([]event.Draft, len(ps))
	for i, p := range ps {
		d, err := event.New(p)
		if err != nil {
			return nil, err
		}
		drafts[i] = d
	}
	var (
		evs []event.Event
		err error
	)
	if taken != nil {
		evs, err = j.st.TakeSignals(ctx, j.lease, taken, drafts...)
	} else if len(drafts) > 0 {
		evs, err = j.st.Append(ctx, j.lease, drafts...)
	}
	if err != nil {
		return nil, err
	}
	j.clocked = now
	return evs, j.apply(evs)
}

// apply folds stored events and tells the observer.
func (j *journal) apply(evs []event.Event) error {
	for _, e := range evs {
		if err := j.summary.Apply(e); err != nil {
			return err
		}
		if j.observe != nil {
			p, err := event.Decode(e)
			if err != nil {
				return err
			}
			j.observe(e, p)
		}
	}
	return nil
}

func (j *journal) elapsed(now time.Time) time.Duration {
	if j.clocked.IsZero() {
		return 0
	}
	return now.Sub(j.clocked)
}

// Text implements agent.Log.
func (j *journal) Text(ctx context.Context, s string) (event.Text, error) {
	return store.Spill(ctx, j.st, s)
}

// Load implements agent.Log.
func (j *journal) Load(ctx context.Context, t event.Text) (string, error) {
	return store.Load(ctx, j.st, t)
}

// Spent implements agent.Log.
func (j *journal) Spent() task.Spent {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.summary.Spent
	s.Wall += j.elapsed(j.now())
	return s
}

// Inbox implements agent.Log.
func (j *journal) Inbox(ctx context.Context) ([]agent.Signal, error) {
	in, err := j.st.Signals(ctx, j.task)
	if err != nil {
		return nil, err
	}
	out := make([]agent.Signal, len(in))
	for i, s := range in {
		out[i] = agent.Signal{ID: s.ID, Kind: s.Kind, Who: s.Who, Text: s.Text, At: s.At}
	}
	return out, nil
}

// Summary returns the fold so far.
func (j *journal) Summary() event.Summary {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.summary
	s.Effects, s.Sandboxes = maps.Clone(s.Effects), maps.Clone(s.Sandboxes)
	return s
}

// state is where the task stands.
func (j *journal) state() task.State { return j.Summary().State }

// move changes the state, together with other payloads that belong to the step.
func (j *journal) move(ctx context.Context, to task.State, reason string, with ...event.Payload) error {
	from := j.state()
	if from == to {
		if len(with) > 0 {
			_, err := j.Append(ctx, with...)
			return err
		}
		return nil
	}
	_, err := j.Append(ctx, append(with, event.StateChanged{From: from, To: to, Reason: reason})...)
	return err
}

// flushClock stores what is left of the wall clock at the end of a run.
func (j *journal) flushClock(ctx context.Context) error {
	j.mu.Lock()
	d := j.elapsed(j.now())
	j.clocked = time.Time{}
	j.mu.Unlock()
	if d <= 0 {
		return nil
	}
	_, err := j.Append(ctx, event.WallClocked{Elapsed: d})
	return err
}

// start lets the wall clock run.
func (j *journal) start(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.clocked = now
}

func (j *journal) currentLease() store.Lease {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lease
}

// Held implements action.Log.
func (j *journal) Held(ctx context.Context) error {
	l := j.currentLease()
	_, err := j.st.Renew(ctx, l, j.ttl)
	return err
}

func (j *journal) renew(ctx context.Context, ttl time.Duration) error {
	l, err := j.st.Renew(ctx, j.currentLease(), ttl)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lease = l
	return nil
}

package worker

import (
	"bytes"
	"context"
	"maps"
	"slices"
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
	unsure  bool      // an append may have been stored without the fold
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
	if j.unsure {
		switch missed, err := j.reload(ctx); {
		case err != nil:
			return nil, err
		case len(missed) > 0: // what is to be written was decided without it
			return nil, &task.Error{Class: task.Transient, Msg: "the log has more than this run knew: what it recorded last was stored although the store did not say so"}
		}
	}
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
	if err == nil {
		j.clocked = now
		return evs, j.apply(evs)
	}
	switch task.ClassOf(err) {
	case task.Stale, task.Conflict, task.Invalid, task.NotFound: // it was refused
		return nil, err
	}
	j.unsure = true
	stored, rerr := j.reload(ctx)
	if rerr != nil || !j.are(stored, drafts) {
		return nil, err
	}
	j.clocked = now
	return stored, nil
}

// reloadFor is how long the log is asked for after an append of which nobody knows what came.
const reloadFor = 5 * time.Second

// reload takes over what is stored and not in the fold, also when ctx is over.
func (j *journal) reload(ctx context.Context) ([]event.Event, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reloadFor)
	defer cancel()
	evs, err := j.st.Events(ctx, j.task, j.summary.LastSeq, 0)
	if err == nil {
		err = j.apply(evs)
	}
	j.unsure = err != nil
	return evs, err
}

// are reports whether stored events are just these drafts, written by this run.
func (j *journal) are(stored []event.Event, drafts []event.Draft) bool {
	return len(stored) > 0 && slices.EqualFunc(stored, drafts, func(e event.Event, d event.Draft) bool {
		d, err := d.Canonical()
		return err == nil && e.Epoch == j.lease.Epoch && e.Kind == d.Kind && bytes.Equal(e.Payload, d.Payload)
	})
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

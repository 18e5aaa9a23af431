package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// lossy is a store whose answer to an append is lost, after the append or before it; blind, it
// does not answer a reader either.
type lossy struct {
	store.Store
	lose   error
	stores bool
	blind  bool
}

func (s *lossy) Append(ctx context.Context, l store.Lease, ds ...event.Draft) ([]event.Event, error) {
	if s.lose == nil {
		return s.Store.Append(ctx, l, ds...)
	}
	if s.stores {
		if _, err := s.Store.Append(context.WithoutCancel(ctx), l, ds...); err != nil {
			return nil, err
		}
	}
	return nil, s.lose
}

func (s *lossy) Events(ctx context.Context, id task.ID, after int64, limit int) ([]event.Event, error) {
	if s.blind {
		return nil, errors.New("away")
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return s.Store.Events(ctx, id, after, limit)
}

// TestAnswerLost: the fold has what is stored, whatever the store said of it, before anything else
// is written; what was decided without it is not written.
func TestAnswerLost(t *testing.T) {
	start := func(t *testing.T) (*rig, *lossy, *journal, *[]event.Kind) {
		r := newRig(t, task.Limits{})
		st := &lossy{Store: r.cfg.Store}
		var told []event.Kind
		j := &journal{st: st, now: time.Now, task: r.id, lease: r.lease, observe: func(e event.Event, _ event.Payload) { told = append(told, e.Kind) }}
		if _, err := r.history(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		told = nil
		return r, st, j, &told
	}
	verdict := event.Noticed{What: "test", Text: "proven"}
	gone, cancel := context.WithCancel(t.Context())
	cancel()

	t.Run("stored", func(t *testing.T) {
		r, st, j, told := start(t)
		st.lose, st.stores = context.Canceled, true
		evs, err := j.Append(gone, verdict)
		if err != nil || len(evs) != 1 || evs[0].Seq != j.Summary().LastSeq || len(*told) != 1 {
			t.Errorf("%v, %v, told %v", evs, err, *told)
		}
		st.lose = nil
		if _, err := j.Append(t.Context(), verdict); err != nil || r.fold(t).LastSeq != j.Summary().LastSeq {
			t.Errorf("the fold is at %d, the log at %d: %v", j.Summary().LastSeq, r.fold(t).LastSeq, err)
		}
	})
	t.Run("not stored", func(t *testing.T) {
		_, st, j, told := start(t)
		st.lose = context.Canceled
		if _, err := j.Append(gone, verdict); !errors.Is(err, st.lose) {
			t.Errorf("%v", err)
		}
		st.lose = nil
		if _, err := j.Append(t.Context(), verdict); err != nil || len(*told) != 1 {
			t.Errorf("%v, told %v", err, *told)
		}
	})
	t.Run("stored, and nobody can look", func(t *testing.T) {
		r, st, j, told := start(t)
		st.lose, st.stores, st.blind = context.Canceled, true, true
		if _, err := j.Append(gone, verdict); !errors.Is(err, st.lose) {
			t.Errorf("%v", err)
		}
		st.lose = nil
		if _, err := j.Append(t.Context(), verdict); err == nil || len(*told) != 0 {
			t.Errorf("it was written without a look: %v", err)
		}
		st.blind = false
		if _, err := j.Append(t.Context(), event.Noticed{What: "decided too early"}); task.ClassOf(err) != task.Transient || len(*told) != 1 {
			t.Errorf("%v, told %v", err, *told)
		}
		if _, err := j.Append(t.Context(), verdict); err != nil || r.fold(t).LastSeq != j.Summary().LastSeq {
			t.Errorf("the fold is at %d, the log at %d: %v", j.Summary().LastSeq, r.fold(t).LastSeq, err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		r, _, j, _ := start(t)
		if err := r.cfg.Store.Release(t.Context(), r.lease); err != nil {
			t.Fatal(err)
		}
		if _, err := j.Append(t.Context(), verdict); task.ClassOf(err) != task.Stale || j.unsure {
			t.Errorf("%v", err)
		}
	})
}

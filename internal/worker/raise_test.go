package worker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func (r *rig) raised(t *testing.T, id string, asked task.Limits) (again bool, err error) {
	t.Helper()
	_, again, err = store.Raise(t.Context(), r.cfg.Store, store.Raised{
		Task: r.id, Word: id, Who: "olga", Owner: "cli", Asked: asked, Most: task.Limits{Wall: 10 * time.Hour}, At: time.Now(),
	})
	return again, err
}

// TestAnExhaustedTaskGoesOn: more time lets a task that ran out of it go on, under the same id.
func TestAnExhaustedTaskGoesOn(t *testing.T) {
	r := newRig(t, task.Limits{Wall: time.Hour})
	r.record(t, event.StateChanged{From: task.Queued, To: task.Preparing}, event.WallClocked{Elapsed: time.Hour})
	r.release(t)
	if sum, err := r.Run(t.Context(), r.id); err != nil || sum.State != task.Exhausted {
		t.Fatalf("%s %v", sum.State, err)
	}
	for _, asked := range []task.Limits{{Wall: 11 * time.Hour}, {Wall: time.Minute}, {Steps: 5}} {
		if _, err := r.raised(t, "no", asked); task.ClassOf(err) != task.Invalid {
			t.Errorf("%+v: %v", asked, err)
		}
	}
	r.boxes.refuse = &sandbox.RefusedError{Layer: "test", Err: errors.New("no sandbox here")}
	again, err := r.raised(t, "yes", task.Limits{Wall: 2 * time.Hour})
	if err != nil || !again {
		t.Fatal(again, err)
	}
	sum, err := r.Run(t.Context(), r.id)
	if !errors.Is(err, ErrPaused) || sum.State != task.Working || sum.Created.Limits.Wall != 2*time.Hour || sum.Runs != 2 {
		t.Errorf("%s, %d runs, %+v %v", sum.State, sum.Runs, sum.Created.Limits, err)
	}
	events, err := r.cfg.Store.Events(t.Context(), r.id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := event.VerifyChain(r.id, events); err != nil {
		t.Error(err)
	}
}

// TestAWordAboutTheBudgetIsTakenUp: first of all by a run, and refused by the worker's own cap
// whatever the one who wrote it was told.
func TestAWordAboutTheBudgetIsTakenUp(t *testing.T) {
	for _, most := range []time.Duration{10 * time.Hour, 90 * time.Minute} {
		r := newRig(t, task.Limits{Wall: time.Hour})
		r.cfg.Most.Wall = most
		r.boxes.refuse = &sandbox.RefusedError{Layer: "test", Err: errors.New("no sandbox here")}
		r.record(t, event.StateChanged{From: task.Queued, To: task.Preparing}, event.WallClocked{Elapsed: time.Hour})
		r.release(t)
		if again, err := r.raised(t, "yes", task.Limits{Wall: 2 * time.Hour}); err != nil || again {
			t.Fatal(again, err)
		}
		sum, _ := r.Run(t.Context(), r.id)
		if got, want := sum.State == task.Exhausted, most < 2*time.Hour; got != want {
			t.Errorf("most %s: %s, wall %s", most, sum.State, sum.Created.Limits.Wall)
		}
		left, err := r.cfg.Store.Signals(t.Context(), r.id)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range left {
			if s.Kind == store.Budget {
				t.Errorf("the word still waits: %+v", s)
			}
		}
	}
}

// TestTheWallMovesWithTheBudget: a run under way has the time that was given to it meanwhile.
func TestTheWallMovesWithTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{now: time.Now}
		j.summary.Created.Limits.Wall = time.Hour
		j.start(time.Now())
		r := &run{Worker: New(Config{}), j: j}
		ctx, cancel := r.withWall(t.Context())
		defer cancel()
		begin := time.Now()
		time.AfterFunc(30*time.Minute, func() {
			j.mu.Lock()
			j.summary.Created.Limits.Wall = 2 * time.Hour
			j.mu.Unlock()
		})
		<-ctx.Done()
		if took := time.Since(begin); took != 2*time.Hour {
			t.Errorf("ended after %s", took)
		}
	})
}

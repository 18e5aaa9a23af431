package worker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// asked records a task up to its question; the sandbox of the run that died then is still there.
func (r *rig) asked(t *testing.T, until time.Time) {
	t.Helper()
	r.record(
		t, event.StateChanged{From: task.Queued, To: task.Preparing},
		event.StateChanged{From: task.Preparing, To: task.Working},
		event.SandboxStarted{ID: "box", Purpose: purposeAgent},
		event.ToolStarted{Step: 1, Call: "c1", Name: "ask"},
		event.WorkspaceSaved{Step: 1, Why: "question", Files: 1, Change: text(t, []git.Change{{Path: "a.txt", Mode: git.ModeFile, Content: []byte("two\n")}})},
		event.QuestionAsked{N: 1, Step: 1, Call: "c1", Question: "Up or\ndown?", Tried: "I read a.txt.", Until: until},
	)
	r.release(t)
}

// TestParked: a task with a question rests without a lease, a sandbox or a clock, whoever looks
// after it; it ends when the time is over, or when a person stops it.
func TestParked(t *testing.T) {
	t.Run("rests", func(t *testing.T) {
		r := newRig(t, task.Limits{Wall: time.Minute})
		now := time.Now()
		r.cfg.Now = func() time.Time { return now }
		r.asked(t, now.Add(time.Hour))
		for range 2 {
			sum, err := r.Run(t.Context(), r.id)
			if !errors.Is(err, ErrParked) || !sum.Parked() || len(sum.Sandboxes) != 0 || r.boxes.destroyed != 1 || sum.Spent.Wall != 0 {
				t.Fatalf("%s, %d sandboxes, %d ended, wall %s: %v", sum.State, len(sum.Sandboxes), r.boxes.destroyed, sum.Spent.Wall, err)
			}
			if row, err := r.cfg.Store.Task(t.Context(), r.id); err != nil || row.Owner != "" {
				t.Fatalf("held by %q, %v", row.Owner, err)
			}
			now = now.Add(10 * time.Minute)
		}
		now = now.Add(time.Hour)
		sum, err := r.Run(t.Context(), r.id)
		if err != nil || sum.State != task.Declined || sum.Reason != "needs information: nobody answered the question: Up or down?" || sum.Declined.Kind != "needs_information" || sum.Workspace.Why != "question" {
			t.Fatalf("%s %q %+v %v", sum.State, sum.Reason, sum.Declined, err)
		}
	})
	t.Run("stopped", func(t *testing.T) {
		r := newRig(t, task.Limits{})
		r.asked(t, time.Now().Add(time.Hour))
		r.word(t, store.Stop, "never mind")
		sum, err := r.Run(t.Context(), r.id)
		if err != nil || sum.State != task.Stopped || !strings.Contains(sum.Reason, "never mind") {
			t.Fatalf("%s %q %v", sum.State, sum.Reason, err)
		}
	})
	t.Run("answered", func(t *testing.T) { // the model is asked next, which this rig has none of
		r := newRig(t, task.Limits{})
		r.asked(t, time.Now().Add(-time.Hour)) // late, but in time for the next look
		r.word(t, store.Answer, "up")
		r.word(t, store.Answer, "down")
		r.boxes.refuse = &task.Error{Class: task.Transient, Msg: "not now"}
		sum, err := r.Run(t.Context(), r.id)
		if !errors.Is(err, ErrPaused) || sum.Parked() || sum.Answered == nil || sum.Answered.Text.Inline != "up" || sum.Answered.Who != "olga" || sum.State != task.Working {
			t.Fatalf("%s %+v %v", sum.State, sum.Answered, err)
		}
		if left, err := r.cfg.Store.Signals(t.Context(), r.id); err != nil || len(left) != 1 || left[0].Text != "down" {
			t.Errorf("%+v %v", left, err)
		}
	})
}

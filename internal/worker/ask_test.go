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
		if left, err := r.cfg.Store.Signals(t.Context(), r.id); err != nil || len(left) != 0 || !strings.Contains(r.everything(t), `"signal":"answerdown"`) {
			t.Errorf("%+v %v", left, err)
		}
	})
	t.Run("answered twice", func(t *testing.T) { // what was said to one question answers no other
		r := newRig(t, task.Limits{})
		r.asked(t, time.Now().Add(time.Hour))
		r.word(t, store.Answer, "up")
		r.word(t, store.Answer, "up, I said")
		r.boxes.refuse = &task.Error{Class: task.Transient, Msg: "not now"}
		if sum, err := r.Run(t.Context(), r.id); !errors.Is(err, ErrPaused) || sum.Parked() {
			t.Fatal(err)
		}
		late := store.Signal{ID: "late", Task: r.id, Kind: store.Answer, Who: "olga", Text: "really up", At: time.Now()} // by who saw the first question still open
		var err error
		if r.lease, err = r.cfg.Store.Acquire(t.Context(), r.id, "before", time.Minute, nil); err != nil {
			t.Fatal(err)
		}
		r.record(t, event.QuestionAsked{N: 2, Question: "Left or right?", Until: time.Now().Add(time.Hour)})
		r.release(t)
		if err := r.cfg.Store.Signal(t.Context(), late); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if sum, err := r.Run(t.Context(), r.id); !errors.Is(err, ErrParked) || sum.Answered.N != 1 {
				t.Fatalf("%+v %v", sum.Answered, err)
			}
		}
		if left, err := r.cfg.Store.Signals(t.Context(), r.id); err != nil || len(left) != 0 { // the agent has them as words
			t.Errorf("%+v %v", left, err)
		}
		if answers, err := store.Say(t.Context(), r.cfg.Store, store.Signal{ID: "left", Task: r.id, Who: "olga", Text: "left", At: time.Now().Add(-time.Second)}); err != nil || !answers {
			t.Fatal(answers, err)
		}
		if sum, err := r.Run(t.Context(), r.id); !errors.Is(err, ErrPaused) || sum.Answered.N != 2 || sum.Answered.Text.Inline != "left" {
			t.Fatalf("%+v %v", sum.Answered, err)
		}
	})
}

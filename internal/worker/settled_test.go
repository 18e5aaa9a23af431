package worker

import (
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify"
)

// TestAnEndOnRecordIsNotAskedForAgain: the run before died between the word that ended the
// task and the change of state. No model is asked, the files of its sandbox are kept.
func TestAnEndOnRecordIsNotAskedForAgain(t *testing.T) {
	for _, c := range []struct {
		word   event.Payload
		state  task.State
		reason string
	}{
		{event.StopRequested{Signal: "s", Who: "ada", Reason: "wrong repository"}, task.Stopped, "stopped by ada: wrong repository"},
		{event.Declined{Step: 1, Kind: "out_of_scope", Reason: "no"}, task.Declined, "out of scope: no"},
		{event.Declined{Step: 1, Kind: "cannot_reproduce", Reason: "cannot reproduce: 3 tests"}, task.Declined, "cannot reproduce: 3 tests"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			r := newRig(t, task.Limits{})
			r.boxes.manifest = sandbox.Manifest{Entries: []sandbox.Entry{{Path: "a.txt", Mode: git.ModeFile, Content: []byte("three\n")}}}
			base := gittest.Run(t, r.repo, "rev-parse", "HEAD")
			r.record(
				t, event.StateChanged{From: task.Queued, To: task.Preparing},
				event.BaselineFinished{Document: text(t, verify.Baseline{Base: base})},
				event.SandboxStarted{ID: "box", Purpose: purposeAgent},
				event.StateChanged{From: task.Preparing, To: task.Working},
				event.ToolStarted{Step: 1, Call: "1", Name: "decline"}, c.word,
			)
			r.release(t)
			sum, err := r.Run(t.Context(), r.id)
			if err != nil || sum.State != c.state || sum.Reason != c.reason {
				t.Fatalf("state %s, reason %q, error %v", sum.State, sum.Reason, err)
			}
			if len(sum.Sandboxes) != 0 || r.boxes.destroyed == 0 {
				t.Errorf("sandboxes on record %d, destroyed %d", len(sum.Sandboxes), r.boxes.destroyed)
			}
			if sum.Workspace == nil || !strings.Contains(sum.Workspace.Diff.Inline, "+three") {
				t.Errorf("the change was not kept: %+v", sum.Workspace)
			}
			if c.state == task.Declined && len(sum.OpenCalls) != 0 {
				t.Errorf("calls without a result: %v", sum.OpenCalls)
			}
		})
	}
}

// TestAnOpenPullRequestIsNotOpenedTwice: the same words find the task that waits for review,
// unless a new one is wanted.
func TestAnOpenPullRequestIsNotOpenedTwice(t *testing.T) {
	r := newRig(t, task.Limits{})
	r.verified(t)
	r.release(t)
	if _, err := r.Run(t.Context(), r.id); err != nil {
		t.Fatal(err)
	}
	q := Request{Repo: r.repo, Issue: []byte("it is broken")}
	got, isNew, err := r.Create(t.Context(), q)
	if err != nil || isNew || got.ID != r.id {
		t.Errorf("task %s, new %v, error %v", got.ID, isNew, err)
	}
}

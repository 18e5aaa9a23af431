package worker

import (
	"errors"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func (r *rig) word(t *testing.T, kind, text string) {
	t.Helper()
	s := store.Signal{ID: kind + text, Task: r.id, Kind: kind, Who: "olga", Text: text, At: time.Now()}
	if err := r.cfg.Store.Signal(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// TestHold: a verified change waits without a lease until a person approves this very tree.
func TestHold(t *testing.T) {
	r := newRig(t, task.Limits{Wall: time.Hour})
	r.cfg.Hold = true
	r.verified(t)
	r.record(t, event.StateChanged{From: task.Verifying, To: task.Publishing})
	r.release(t)
	sum, err := r.Run(t.Context(), r.id)
	if !errors.Is(err, ErrHeld) || !sum.Waits() || sum.Held.Files != 1 || sum.PullRequest != nil || len(sum.Effects) != 0 {
		t.Fatalf("%s %+v %v", sum.State, sum.Held, err)
	}
	if row, err := r.cfg.Store.Task(t.Context(), r.id); err != nil || row.Owner != "" {
		t.Fatalf("held by %q, %v", row.Owner, err)
	}
	if branches := gittest.Run(t, r.repo, "branch", "--list", "daybreak/*"); branches != "" {
		t.Fatalf("published: %s", branches)
	}
	r.word(t, store.Approve, "another tree")
	if sum, err = r.Run(t.Context(), r.id); !errors.Is(err, ErrHeld) || !sum.Waits() {
		t.Fatalf("an approval of another tree let it out: %s %v", sum.State, err)
	}
	r.word(t, store.Approve, sum.Held.Tree)
	r.cfg.Hold = false // what is held stays so
	sum, err = r.Run(t.Context(), r.id)
	if err != nil || sum.State != task.InReview || sum.Approved == nil || sum.Approved.Who != "olga" || sum.Approved.Tree != sum.Exported.Tree {
		t.Fatalf("%s %+v %v", sum.State, sum.Approved, err)
	}
	if left, err := r.cfg.Store.Signals(t.Context(), r.id); err != nil || len(left) != 0 {
		t.Errorf("words left: %+v %v", left, err)
	}
	events, err := r.cfg.Store.Events(t.Context(), r.id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := event.VerifyChain(r.id, events); err != nil {
		t.Error(err)
	}
}

// TestHoldStopped: a stop declines what is held.
func TestHoldStopped(t *testing.T) {
	r := newRig(t, task.Limits{})
	r.cfg.Hold = true
	r.verified(t)
	r.release(t)
	if _, err := r.Run(t.Context(), r.id); !errors.Is(err, ErrHeld) {
		t.Fatal(err)
	}
	r.word(t, store.Stop, "not like this")
	sum, err := r.Run(t.Context(), r.id)
	if err != nil || sum.State != task.Stopped || sum.Reason != "stopped by olga: not like this" {
		t.Errorf("%s %q %v", sum.State, sum.Reason, err)
	}
	if branches := gittest.Run(t, r.repo, "branch", "--list", "daybreak/*"); branches != "" {
		t.Errorf("published: %s", branches)
	}
}

// TestHoldByRepository: a repository's own file at the base holds, too.
func TestHoldByRepository(t *testing.T) {
	r := newRig(t, task.Limits{})
	r.verified(t)
	r.release(t)
	one := &run{Worker: r.Worker, j: &journal{}}
	one.set.repo.Publish = "hold"
	one.j.summary.Exported = &event.Exported{Tree: "x"}
	one.j.st, one.j.task, one.j.now, one.j.lease = r.cfg.Store, r.id, time.Now, r.lease
	if ended, err := one.hold(t.Context()); ended || task.ClassOf(err) != task.Stale {
		t.Errorf("ended %v, %v: what is held is recorded first, here under a lease that is over", ended, err)
	}
}

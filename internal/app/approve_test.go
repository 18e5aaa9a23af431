package app

import (
	"errors"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/api"
	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestAPIApprove: an approval over the API is for what waits, and orders its next run at once,
// though the task rests for a day.
func TestAPIApprove(t *testing.T) {
	a, repo := serving(t, func(*config.Config) {})
	tasks := a.desk()
	v, _, err := tasks.Create(t.Context(), api.Request{NewTask: api.NewTask{Repo: repo, Issue: "It breaks."}})
	if err != nil {
		t.Fatal(err)
	}
	if err := tasks.Approve(t.Context(), v.ID, "olga", ""); task.ClassOf(err) != task.Conflict {
		t.Fatalf("nothing waits: %v", err)
	}
	if err := tasks.Approve(t.Context(), "t_00000000000000000000000000", "olga", ""); task.ClassOf(err) != task.NotFound {
		t.Fatalf("no such task: %v", err)
	}
	all, err := a.queue.store.Unfinished(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l, err := a.queue.store.Claim(t.Context(), store.Job{ID: all[0].Job, Task: v.ID}, "w", time.Minute, store.Caps{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []event.Payload{
		event.StateChanged{From: task.Queued, To: task.Preparing},
		event.StateChanged{From: task.Preparing, To: task.Working},
		event.StateChanged{From: task.Working, To: task.Verifying},
		event.StateChanged{From: task.Verifying, To: task.Publishing},
		event.PublicationHeld{Tree: "cafe", Files: 1},
	} {
		d, derr := event.New(p)
		_, aerr := a.Store.Append(t.Context(), l, d)
		if err := errors.Join(derr, aerr); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.queue.store.Handover(t.Context(), l, heldFor); err != nil {
		t.Fatal(err)
	}
	if all, err = a.queue.store.Unfinished(t.Context()); err != nil || time.Until(all[0].Due) < time.Hour {
		t.Fatalf("it does not rest: %+v %v", all, err)
	}
	if err := tasks.Approve(t.Context(), v.ID, "olga", ""); err != nil {
		t.Fatal(err)
	}
	if all, err = a.queue.store.Unfinished(t.Context()); err != nil || time.Until(all[0].Due) > time.Minute {
		t.Errorf("no run is ordered: %+v %v", all, err)
	}
	in, err := a.Store.Signals(t.Context(), v.ID)
	if err != nil || len(in) != 1 || in[0].Kind != store.Approve || in[0].Who != "olga" || in[0].Text != "cafe" {
		t.Errorf("%+v %v", in, err)
	}
}

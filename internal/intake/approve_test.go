package intake

import (
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestApprove: who may write approves what waits, by the tree that waits; nobody else does, and
// nothing else is approved.
func TestApprove(t *testing.T) {
	l := newLab(t)
	l.issue(1, "text")
	l.post(l.labelled(1, "wanda"))
	say := func(who, what string) string { _, out := l.post(l.comment(1, who, what)); return out }
	l.at(first, task.Preparing, task.Working, task.Verifying, task.Publishing)
	l.want(say("wanda", "/approve"), "ignored: nothing waits for an approval")
	if err := l.move(t.Context(), first, event.PublicationHeld{Tree: "cafe", Files: 2}); err != nil {
		t.Fatal(err)
	}
	sum, err := l.summary(t.Context(), first)
	if err != nil || !strings.Contains(progressText(sum, ""), "waits for a person's approval") {
		t.Errorf("%v: %s", err, progressText(sum, ""))
	}
	l.want(say("rita", "/approve"), `ignored: "rita" may not write`)
	if len(l.again) != 0 {
		t.Fatal("a run was ordered")
	}
	l.want(say("wanda", "/approve"), "the change of task "+string(first)+" is approved")
	if got := l.signals(first); !slices.Equal(got, []string{"approve wanda: cafe"}) || len(l.again) != 1 {
		t.Errorf("%q, ordered %v", got, l.again)
	}
	if err := l.move(t.Context(), first, event.PublicationApproved{Who: "wanda", Tree: "cafe"}); err != nil {
		t.Fatal(err)
	}
	l.want(say("wanda", "/approve"), "ignored: nothing waits for an approval")
	l.want(say("wanda", "/stop"), "task "+string(first)+" is told to stop")
	if len(l.again) != 2 {
		t.Errorf("ordered %v", l.again)
	}
}

package progress

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func view(out *bytes.Buffer, mode Mode) *View {
	return New(out, mode, 100, func() time.Time { return time.Unix(0, 0) }, func(t event.Text) (string, error) { return t.Inline, nil })
}

// TestNothingThatAModelWroteReachesTheTerminal_MOD08_GW08: whatever field it comes in.
func TestNothingThatAModelWroteReachesTheTerminal_MOD08_GW08(t *testing.T) {
	evil := "x\x1b]0;owned\x07\u202e\r"
	text := event.Text{Inline: evil, Bytes: len(evil)}
	args := event.Text{Inline: fmt.Sprintf(`{"command":%q}`, "run\u202e"), Bytes: 1}
	for _, p := range []event.Payload{
		&event.SnapshotReady{Warnings: []string{evil}}, &event.BaselineFinished{Runner: evil}, &event.BaselineFinished{Problem: evil},
		&event.StopRequested{Who: evil}, &event.Steered{Who: evil, Text: text}, &event.PolicyFound{Finding: task.Finding{Kind: "held_path", Path: evil, Detail: evil}},
		&event.ModelFailed{Error: evil}, &event.ToolStarted{Call: "c", Name: evil, Args: args}, &event.ToolFinished{Call: "c", Name: evil}, &event.ToolFinished{Name: "edit", IsError: true, Result: text},
		&event.ModelResponded{Message: event.Text{Inline: `{"role":"assistant","blocks":[{"type":"text","text":"a\u001b[2Jb\u202e"}]}`}},
		&event.ReproductionChecked{Kind: task.NotReproducing, Reason: evil}, &event.ReproductionChecked{Kind: task.Verified, Tests: []string{evil}},
		&event.VerificationFinished{Kind: task.NotFixed, Reason: evil}, &event.Declined{Kind: evil, Reason: evil},
	} {
		var out bytes.Buffer
		v := view(&out, Plain)
		v.Event(event.Event{}, p)
		v.Delta(model.Delta{Tool: evil})
		if strings.ContainsAny(out.String()+v.doing, "\x1b\x07\u202e\r") {
			t.Errorf("%T prints %q while %q", p, out.String(), v.doing)
		}
	}
}

// TestRefusedCallSaysWhy: in one line, below the call.
func TestRefusedCallSaysWhy(t *testing.T) {
	var out bytes.Buffer
	one := 1
	v := view(&out, Plain)
	v.Event(event.Event{}, &event.ToolFinished{Name: "submit", IsError: true, Result: event.Text{Inline: "tests is a list\nmore"}})
	v.Event(event.Event{}, &event.ToolFinished{Name: "run", IsError: true, ExitCode: &one, Result: event.Text{Inline: "FAIL"}})
	if got := out.String(); !strings.Contains(got, "tests is a list\n") || strings.Contains(got, "more") || strings.Contains(got, "FAIL") {
		t.Errorf("%q", got)
	}
}

func TestAResumedTaskShowsWhatItSpentBefore(t *testing.T) {
	var out bytes.Buffer
	v := view(&out, Plain)
	v.Begin(store.Task{ID: "t_1"}, false, task.Limits{Steps: 10}, task.Spent{Steps: 4})
	v.Event(event.Event{}, &event.ModelResponded{})
	if got := v.budget(); !strings.HasPrefix(got, "step 5/10 ") {
		t.Errorf("the budget is shown as %q", got)
	}
}

// TestFar: how far a fetch is stands in the status line, and nowhere else.
func TestFar(t *testing.T) {
	for mode, want := range map[Mode]string{Terminal: "prepare: fetching 45% (123 of 270)", Plain: ""} {
		var out bytes.Buffer
		v := view(&out, mode)
		v.Far("fetching", 1, 0)
		v.Far("fetching", 123, 270)
		v.mu.Lock()
		v.status()
		v.mu.Unlock()
		v.Close()
		if got := out.String(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%v: %q", mode, got)
		}
	}
}

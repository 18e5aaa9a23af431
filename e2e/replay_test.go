package e2e

import (
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// A task that rested twice until people answered is run again run by run: their words come from
// the record as well.
func TestReplayOfQuestions(t *testing.T) {
	in := service(t, askFiles(t), "", "")
	p := in.start(t, nil, "serve")
	id := in.ask(t, p)
	in.asks(t, id, 1)
	in.output(t, "task", "answer", string(id), "zero please")
	in.asks(t, id, 2)
	in.output(t, "task", "answer", string(id), "yes, it is")
	if got := in.wait(t, id); got != task.InReview {
		t.Fatalf("the task is %s\n%s", got, p.log())
	}
	p.end(t)
	before := in.output(t, "task", "export", string(id))
	if out := in.output(t, "task", "replay", string(id)); !strings.HasPrefix(out, "no divergence: 5 requests, ") || !strings.Contains(out, ", tree ") {
		t.Errorf("%s", out)
	}
	if in.output(t, "task", "export", string(id)) != before {
		t.Error("the record is another one after its replay")
	}
}

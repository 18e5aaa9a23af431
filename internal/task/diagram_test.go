package task_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestDiagramIsTheTable compares the diagram in ARCHITECTURE.md with the code.
func TestDiagramIsTheTable(t *testing.T) {
	doc, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	var drawn []task.Transition
	for _, m := range regexp.MustCompile(`(?m)^ +(\[\*\]|\w+) --> (\w+) : (.+)$`).FindAllStringSubmatch(string(doc), -1) {
		from := task.State(m[1])
		if from == "[*]" {
			from = ""
		}
		drawn = append(drawn, task.Transition{From: from, To: task.State(m[2]), Why: m[3]})
	}
	table := task.Transitions()
	for _, d := range drawn {
		if !slices.Contains(table, d) {
			t.Errorf("the diagram has %q --> %q : %s, the table does not", d.From, d.To, d.Why)
		}
	}
	for _, c := range table {
		if !slices.Contains(drawn, c) {
			t.Errorf("the table has %q → %q : %s, the diagram does not", c.From, c.To, c.Why)
		}
	}
}

func TestEveryStateIsReachedAndEndsAreEnds(t *testing.T) {
	from := map[task.State]int{}
	reached := map[task.State]bool{}
	for _, tr := range task.Transitions() {
		from[tr.From]++
		reached[tr.To] = true
	}
	for s := range reached {
		end := s.Done() && s != task.InReview && s != task.Exhausted
		if end && from[s] > 0 {
			t.Errorf("%s is an end and is left", s)
		}
		if !end && from[s] == 0 {
			t.Errorf("%s is no end and has no way out", s)
		}
	}
	if task.Legal(task.Working, task.InReview) {
		t.Error("a task may reach review without a verdict")
	}
}

package verify

import (
	"fmt"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Counts sums the ledger: stable passes, everything that failed or flickered, skips of any
// kind.
func (b Baseline) Counts() (passed, failed, skipped int) {
	for _, s := range b.Tests {
		switch s {
		case task.Pass:
			passed++
		case task.Skip, task.XFail:
			skipped++
		default:
			failed++
		}
	}
	return passed, failed, skipped
}

// Command is how a person runs the whole suite.
func (b Baseline) Command() string {
	var out []string
	for i := range b.Plan.Suites {
		for _, c := range b.Plan.commands(i, nil, nil, "") {
			if c.human != "" {
				out = append(out, c.human)
			}
		}
	}
	return strings.Join(out, " && ")
}

// Runs is how often the suite ran on the base.
func (b Baseline) Runs() int {
	for _, p := range b.Phases {
		if p.Phase == "P1" {
			return len(p.Runs)
		}
	}
	return 0
}

// Describe tells the model how the suite is run and how it stands on the base.
func (b Baseline) Describe() string {
	if len(b.Plan.Suites) == 0 {
		return "No test framework was found in this repository. A reproduction can be a script outside the tree's sources that exits with 0 when the behaviour is right and with another code when it is wrong."
	}
	passed, failed, skipped := b.Counts()
	var s strings.Builder
	for i, suite := range b.Plan.Suites {
		var lines []string
		for _, c := range b.Plan.commands(i, nil, nil, "") {
			lines = append(lines, "`"+c.human+"`")
		}
		if len(lines) > 4 {
			lines = append(lines[:3], fmt.Sprintf("and %d more like these", len(lines)-3))
		}
		fmt.Fprintf(&s, "%s (%s): run it with %s.\n", suite.Kind, suite.Why, strings.Join(lines, ", "))
	}
	fmt.Fprintf(&s, "On this commit %d tests pass, %d fail, %d are skipped.", passed, failed, skipped)
	if len(b.Flickering) > 0 {
		list := b.Flickering
		if len(list) > 10 {
			list = list[:10]
		}
		fmt.Fprintf(&s, " Not stable from run to run: %s.", strings.Join(list, ", "))
	}
	return s.String()
}

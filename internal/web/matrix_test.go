package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/web/storybook"
)

// verdicts records verdicts, one after the other, and returns the address of the task.
func (l *lab) verdicts(t *testing.T, vs ...task.Verdict) string {
	t.Helper()
	id := storetest.New(t, l.st, 1)
	lease := storetest.Lease(t, l.st, id)
	for i, v := range vs {
		doc, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := l.st.PutBlob(t.Context(), doc)
		if err != nil {
			t.Fatal(err)
		}
		p := event.VerificationFinished{Attempt: i + 1, Kind: v.Kind, Reason: v.Reason, Document: event.Text{Blob: digest, Bytes: len(doc)}}
		if _, err := l.st.Append(t.Context(), lease, storetest.Draft(t, p)); err != nil {
			t.Fatal(err)
		}
	}
	return "/tasks/" + string(id)
}

// TestMatrix: the page of a verification shows every run of every test of interest, those that decide
// first, with the command that runs each again.
func TestMatrix(t *testing.T) {
	l := newLab(t)
	page := l.page("/tasks/" + string(storybook.ID(1)) + "/verification")
	first, folded, _ := strings.Cut(page, "1 more test that the change brought")
	for _, want := range []string{
		"base 1/2", "base + tests 3/3", "alone 2/2", "whole suite", "cart/coupons.go:23", "shows the bug", "runs disagree", "1 test came out one way and the other",
		"run it again", "go test -run &#39;^TestRates$&#39; ./pricing",
	} {
		if !strings.Contains(first, want) {
			t.Errorf("no %q before the fold", want)
		}
	}
	if got := strings.Count(first, `class="seen t-bad"`); got != 6 { // the reproduction in 3 runs on the base and 2 probes, what flickers in one
		t.Errorf("%d failures are shown", got)
	}
	if strings.Contains(first, "TestRemovedTwice") || !strings.Contains(folded, "TestRemovedTwice") || !strings.Contains(folded, "The other tests, which came out as on the base") {
		t.Error("what only is new stands among what decides")
	}
}

// TestMatrixLarge: with hundreds of tests of interest and dozens of runs the first ones stand open,
// the page stays a size that a browser takes, and no test is lost.
func TestMatrixLarge(t *testing.T) {
	l := newLab(t)
	v := task.Verdict{Kind: task.Regression, Reason: "it breaks 400 tests", Table: &task.Table{Left: 77}}
	for i := range 400 {
		v.Table.Tests = append(v.Table.Tests, task.TableTest{Test: fmt.Sprintf("pkg/of/the/shop::TestNumber%03d", i), Why: "regression", Rerun: "go test -run X ./pkg"})
	}
	for range 40 {
		v.Table.Runs = append(v.Table.Runs, task.TableRun{Phase: "P5", What: "again", Millis: 5, Seen: strings.Repeat("fp.n", 100)})
	}
	page := l.page(l.verdicts(t, v) + "/verification")
	first, folded, ok := strings.Cut(page, `<details class="fold">`)
	if !ok || strings.Count(first, "TestNumber") != matrixShown || strings.Count(folded, "TestNumber") != 400-matrixShown || !strings.Contains(folded, "77 more came out otherwise") {
		t.Errorf("%d tests before the fold, %d in it", strings.Count(first, "TestNumber"), strings.Count(folded, "TestNumber"))
	}
	if len(page) > 1<<20 {
		t.Errorf("the page has %d bytes", len(page))
	}
}

// TestEarlierVerdict: a verdict of before there was a table, and one that a later one followed, are
// shown with the outputs of their runs.
func TestEarlierVerdict(t *testing.T) {
	l := newLab(t)
	log, err := l.st.PutBlob(t.Context(), []byte("what the run said"))
	if err != nil {
		t.Fatal(err)
	}
	old := task.Verdict{
		Kind: task.NotFixed, Reason: "still fails", Reproduction: []task.Reproduction{{Test: "a::TestB", Base: task.Fail, Head: task.Fail}},
		Phases: []task.PhaseRecord{{Phase: "P4", Name: "green", Runs: []task.RunRecord{{Command: "go test", Log: log}}}},
	}
	p := l.verdicts(t, old, task.Verdict{Kind: task.Verified, Reason: "it holds"})
	page := l.page(p + "/verification?seq=2")
	if !strings.Contains(page, "a::TestB") || strings.Contains(page, "run by run") || !strings.Contains(page, p+"/logs/"+log) {
		t.Error("the earlier verdict is not shown whole")
	}
	if body := l.page(p + "/logs/" + log); !strings.Contains(body, "what the run said") {
		t.Error("its output is not shown")
	}
	if w := l.get(p + "/logs/" + strings.Repeat("ab", 32)); w.Code != http.StatusNotFound {
		t.Errorf("a blob that no verdict names: %d", w.Code)
	}
}

// TestGreenOutput: what the evidence quotes is a test's run, and not what the compiler wrote before it.
func TestGreenOutput(t *testing.T) {
	l := newLab(t)
	logs := make([]string, 2)
	for i, text := range []string{"Compiling shop", "test result: ok"} {
		var err error
		if logs[i], err = l.st.PutBlob(t.Context(), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	v := &task.Verdict{Phases: []task.PhaseRecord{{Phase: "P4", Runs: []task.RunRecord{
		{Command: "cargo test --no-run", Outcome: "built", Log: logs[0]}, {Command: "cargo test", Outcome: "complete", Log: logs[1]},
	}}}}
	if got := l.site.green(t.Context(), v); got != "test result: ok" {
		t.Errorf("%q", got)
	}
}

package verify

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestVerifyOlderTests: however an older test was made to pass, as the base has it it does not.
func TestVerifyOlderTests(t *testing.T) {
	needCommand(t, "/usr/bin/python3", "-m", "pytest", "--version")
	on, one := []string{"py"}, []string{"test_share"}
	prove(t, "older.txtar", Settings{Timeout: 2 * time.Minute}, []proofCase{
		{name: "a true fix", base: on, change: []string{"adds", "fixes"}, declared: one, want: task.Verified},
		{name: "mocked", base: on, change: []string{"mocks", "breaks"}, declared: one, want: task.NeedsHuman, reason: "test_shop.py::test_double fails with the new source", findings: "needs a person: test_shop.py::test_double fails with the new source in the base's version, and passes in the change's; "},
		{name: "skipped by the source", base: []string{"py", "guarded"}, change: []string{"mocks", "slow"}, declared: one, want: task.NeedsHuman, reason: "test_shop.py::test_double is skipped with the new source"},
		{name: "a new module in place of the source", base: []string{"dir"}, change: []string{"breaks", "shadow"}, declared: one, want: task.NeedsHuman, reason: "tests/test_old.py::test_double fails with the new source"},
		{name: "a new helper beside older tests", base: []string{"dir"}, change: []string{"fixes", "helper"}, declared: one, want: task.Verified},
		{name: "need not pass", base: on, change: []string{"marks", "fixes"}, declared: one, want: task.TestLost, reason: "test_double"},
		{name: "a renamed function", base: on, change: []string{"adapts", "renames", "own"}, declared: one, want: task.Verified, findings: "2 older tests cannot be run in the base's version"},
	})
}

func TestVerifyOlderGoTests(t *testing.T) {
	needCommand(t, "go", "version")
	on, one := []string{"go"}, []string{"TestShare"}
	prove(t, "older.txtar", Settings{Timeout: 4 * time.Minute}, []proofCase{
		{name: "nobody hears it", base: on, change: []string{"gounheard", "gobreaks"}, declared: one, want: task.TestLost, reason: "TestDouble no longer checks anything", findings: "TestDouble fails with the new source"},
		{name: "a child that leaves", base: on, change: []string{"gochild", "gofixes"}, declared: one, want: task.Verified, findings: "the process ends"},
		{name: "a test that leaves", base: on, change: []string{"goleaves", "gofixes"}, declared: one, want: task.NotFixed, reason: "unexpected call to os.Exit"},
		{name: "a new file changes what it sees", base: on, change: []string{"goinit", "gobreaks"}, declared: one, want: task.NeedsHuman, reason: "TestDouble fails with the new source"},
	})
}

// TestOnlySometimesWithTheChange counts the calls in a file outside the benches, so that it is known which runs fail.
func TestOnlySometimesWithTheChange(t *testing.T) {
	needCommand(t, "/usr/bin/python3", "-m", "pytest", "--version")
	const id = "test_shop.py::test_double"
	for _, c := range []struct {
		name       string
		base, head string // the calls that fail
		flakes     map[string]int
		want       task.VerdictKind
		reason     string
		flaky      bool
	}{
		{name: "seldom", head: "[1]", want: task.NeedsHuman, reason: "fails in 1 of 4 runs with the change and in none of 6 on the base"},
		{name: "twice", head: "[1, 3]", want: task.NeedsHuman, reason: "fails in 2 of 4 runs with the change and in none of 6 on the base; failing as often on both, all failures would be with the change with a probability of 0.13"},
		{name: "often", head: "[1, 2, 4]", want: task.Regression, reason: "fails in 3 of 5 runs"},
		{name: "on the base as well", base: "[4]", head: "[1]", want: task.Verified, flaky: true},
		{name: "known", head: "[1]", flakes: map[string]int{id: 2}, want: task.Verified, flaky: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := loadSample(t, "older.txtar")
			dir := t.TempDir()
			fill := func(layer, fails string) {
				s.layers[layer]["shop.py"] = strings.NewReplacer("COUNTER", filepath.Join(dir, layer), "FAILS", fails).Replace(s.layers[layer]["shop.py"])
			}
			fill("unsteady", c.head)
			layers := []string{"py"}
			if c.base != "" {
				fill("restless", c.base)
				layers = append(layers, "restless")
			}
			v, _ := newVerifier(t, Settings{Timeout: 2 * time.Minute, Guard: -1})
			snap := s.snapshot(t, layers...)
			base, err := v.Baseline(context.Background(), snap, nil)
			if err != nil || base.Tests[id] != task.Pass {
				t.Fatal(err, base.Tests)
			}
			got, err := v.Verify(context.Background(), Job{Snapshot: snap, Changes: s.changes(t, "own", "unsteady"), Declared: []string{"test_share"}, Baseline: base, Flakes: c.flakes, Earlier: 9})
			if err != nil {
				t.Fatal(err)
			}
			if got.Kind != c.want || !strings.Contains(got.Reason, c.reason) || slices.Contains(got.Suite.Flaky, id) != c.flaky || (len(got.Suite.Unsteady) > 0) != (c.want == task.NeedsHuman) {
				t.Errorf("%s: %s\nflaky %v, unsteady %v\n%s", got.Kind, got.Reason, got.Suite.Flaky, got.Suite.Unsteady, outline(got))
			}
		})
	}
}

// TestNotRunIsNoPass: a test that is missing in a run of the whole suite counts, and no sentence says
// that it failed in none of the runs.
func TestNotRunIsNoPass(t *testing.T) {
	pass := map[string]cell{"a": {status: task.Pass}}
	p := &proof{job: Job{Baseline: Baseline{Tests: map[string]task.TestStatus{"a": task.Pass}, Each: make([]BaseRun, 2)}}, columns: []*column{
		{side: "green", suite: true, cells: map[string]cell{"b": {status: task.Pass}}}, {side: "green", cells: pass}, {side: "green", cells: map[string]cell{}}, {side: "baseline", cells: pass},
	}}
	if got, want := p.tally("a"), (tallied{head: 2, headFailed: 1, base: 3, gone: true}); got != want || got.failing() != "fails or is not run" {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := p.tally("b"); got.gone || got.failing() != "fails" { // the base does not have it
		t.Errorf("%+v", got)
	}
}

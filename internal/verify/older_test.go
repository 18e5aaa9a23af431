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
		{name: "mocked", base: on, change: []string{"mocks", "breaks"}, declared: one, want: task.NeedsHuman, reason: "test_shop.py::test_double fails with the new source", findings: "expectation changed"},
		{name: "need not pass", base: on, change: []string{"marks", "fixes"}, declared: one, want: task.TestLost, reason: "test_double"},
		{name: "a renamed function", base: on, change: []string{"adapts", "renames", "own"}, declared: one, want: task.Verified, findings: "2 older tests cannot be run as the base has them"},
	})
}

func TestVerifyOlderGoTests(t *testing.T) {
	needCommand(t, "go", "version")
	on, one := []string{"go"}, []string{"TestShare"}
	prove(t, "older.txtar", Settings{Timeout: 4 * time.Minute}, []proofCase{
		{name: "nobody hears it", base: on, change: []string{"gounheard", "gobreaks"}, declared: one, want: task.NeedsHuman, reason: "TestDouble fails with the new source"},
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
		{name: "often", head: "[1, 3]", want: task.Regression, reason: "fails in 2 of 4 runs"},
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

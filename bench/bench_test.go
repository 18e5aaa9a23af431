package main

import (
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/model/scripted"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func TestPercentile(t *testing.T) {
	var d []time.Duration
	for i := 100; i > 0; i-- {
		d = append(d, time.Duration(i))
	}
	for p, want := range map[int]time.Duration{0: 1, 50: 50, 95: 95, 100: 100} {
		if got := percentile(d, p); got != want {
			t.Errorf("p%d is %d, want %d", p, got, want)
		}
	}
	if percentile(nil, 50) != 0 || percentile(d[:1], 50) != 100 {
		t.Error("short lists")
	}
	if d[0] != 100 {
		t.Error("the argument was sorted in place")
	}
}

func TestTable(t *testing.T) {
	var tab table
	tab.durations("fast", []time.Duration{time.Millisecond, 3 * time.Millisecond}, 2*time.Millisecond, 2*time.Millisecond, "")
	tab.durations("no aim", []time.Duration{time.Second}, 0, 0, "x")
	tab.value("share", "98 %", "≥ 97 %", true, "")
	var out strings.Builder
	tab.write(&out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 || !strings.Contains(lines[1], "NO") || !strings.Contains(lines[2], "–") || !strings.Contains(lines[3], "yes") {
		t.Errorf("got\n%s", out.String())
	}
}

func TestTimes(t *testing.T) {
	for _, tc := range []struct {
		a, b time.Duration
		want string
	}{{3, 2, "1.5×"}, {2, 3, "0.7×"}, {1, 28, "1/28 of it"}, {0, 5, "0.0×"}, {5, 0, "–"}} {
		if got := times(tc.a, tc.b); got != tc.want {
			t.Errorf("%d beside %d: %s, want %s", tc.a, tc.b, got, tc.want)
		}
	}
}

func TestScriptsHaveTheSteps(t *testing.T) {
	for _, s := range []int{len(trueScript().Turns), len(workScript().Turns)} {
		if s != steps+1 {
			t.Errorf("%d turns, want %d", s, steps+1)
		}
	}
	seen := map[any]bool{}
	for _, turn := range trueScript().Turns {
		seen[turn.Calls[0].Input[0].Value] = true
	}
	if len(seen) != steps+1 {
		t.Error("two steps are the same call: the loop would take them for a loop")
	}
}

func TestCached(t *testing.T) {
	use := func(input, read, write int64) call {
		return call{usage: scripted.Usage{Input: input, CacheRead: read, CacheWrite: write}}
	}
	s := session{calls: []call{use(0, 0, 100), use(0, 100, 50), use(10, 150, 40)}}
	share, again := s.cached()
	if share != 250.0/450 || again != 1 {
		t.Errorf("share %v, again %v", share, again)
	}
}

// TestCostOf: the base's ledger, the mutants and the reproduction's runs, with what is built for them,
// are no part of what is held against the suite and its build; the older tests are.
func TestCostOf(t *testing.T) {
	run := func(outcome string, ms int64) task.RunRecord { return task.RunRecord{Outcome: outcome, Millis: ms} }
	v := task.Verdict{Kind: task.Verified, Phases: []task.PhaseRecord{
		{Phase: "P0", Millis: 50_000},
		{Phase: "P1", Millis: 90_000, Runs: []task.RunRecord{run("complete", 40_000)}},
		{Phase: "P2", Millis: 100},
		{Phase: "P3", Millis: 2_000, Runs: []task.RunRecord{run("built", 800), run("complete", 300), run("complete", 300)}},
		{Phase: "P4", Millis: 700, Runs: []task.RunRecord{run("complete", 300), run("complete", 300)}},
		{Phase: "P5", Millis: 3_200, Runs: []task.RunRecord{run("built", 900), run("complete", 2_000)}},
		{Phase: "P5", Name: "older tests", Millis: 1_000, Runs: []task.RunRecord{run("complete", 900)}},
		{Phase: "P6", Millis: 45_000},
	}}
	c, err := costOf(v)
	if err != nil || c.suite != 2900*time.Millisecond || c.built != 900*time.Millisecond || c.reproduction != 2*time.Second || c.ratio() != 5.0/2.9 {
		t.Errorf("%+v %v %v", c, c.ratio(), err)
	}
	v.Kind = task.NotFixed
	if _, err := costOf(v); err == nil {
		t.Error("a change that is refused early has a whole cost")
	}
}

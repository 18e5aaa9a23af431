package verify

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// drawn is a table as lines, runs of the same kind side by side: what was run, and what it showed of
// each test.
func drawn(t *task.Table) string {
	if t == nil {
		return ""
	}
	var b strings.Builder
	for i, row := range t.Tests {
		fmt.Fprintf(&b, "%s (%s):", row.Test, row.Why)
		last := ""
		for _, r := range t.Runs {
			if what := r.Phase + " " + r.What; r.Phase != "P6" && what != last {
				fmt.Fprintf(&b, " %s ", what)
				last = what
			}
			if r.Phase != "P6" {
				b.WriteByte(r.Seen[i])
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// TestTable: the verdict says of each test of interest what each run showed, in the order of the
// runs, as the decision saw it.
func TestTable(t *testing.T) {
	needCommand(t, "go", "version")
	const coupon = "example.com/shop/cart::TestCoupon (reproduction): P1 base .. P3 base + tests"
	for _, c := range []struct {
		name   string
		change []string
		want   task.VerdictKind
		table  string
	}{
		{"verified", []string{"test", "fix"}, task.Verified, coupon + " fff P4 alone pp P5 whole suite p P5 the base's tests .\n"},
		{"no fix", []string{"test"}, task.NotFixed, coupon + " fff P4 alone ff\n"},
		{"compile only", []string{"compile", "fix"}, task.WeakRed, "TestCoupon (reproduction): P1 base .. P3 base + tests e\n"},
		{
			"breaks another test",
			[]string{"test", "fix", "breaks"},
			task.Regression,
			coupon + " fff P4 alone pp P5 whole suite p P5 again .. P5 base again ..\n" +
				"example.com/shop/ship::TestFee (regression): P1 base pp P3 base + tests ... P4 alone .. P5 whole suite f P5 again ff P5 base again pp\n",
		},
		{
			"skips a test",
			[]string{"test", "fix", "skips"},
			task.TestLost,
			coupon + " fff P4 alone pp P5 whole suite p\n" +
				"example.com/shop/cart::TestEmpty (lost): P1 base pp P3 base + tests ... P4 alone .. P5 whole suite s\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := context.Background()
			v, _ := newVerifier(t, Settings{Timeout: 2 * time.Minute})
			s := loadSample(t, "go.txtar")
			snap := s.snapshot(t, "base")
			base, err := v.Baseline(ctx, snap, nil)
			if err != nil {
				t.Fatal(err)
			}
			base = roundTrip(t, base)
			got, err := v.Verify(ctx, Job{Snapshot: snap, HeadTree: "tree", Changes: s.changes(t, c.change...), Declared: []string{"TestCoupon"}, Baseline: base})
			if err != nil {
				t.Fatal(err)
			}
			if got.Kind != c.want || drawn(got.Table) != c.table {
				t.Errorf("%s: %s\n%s", got.Kind, got.Reason, drawn(got.Table))
			}
			probes := 0
			for _, r := range got.Table.Runs {
				if len(r.Seen) != len(got.Table.Tests) || r.Took != nil && len(r.Took) != len(r.Seen) || r.Millis <= 0 {
					t.Errorf("a run of %d tests: %+v", len(got.Table.Tests), r)
				}
				if r.Phase != "P6" {
					continue
				}
				probes++
				if s, ok := r.At(0); r.Path != "cart/cart.go" || r.Line == 0 || !ok || (r.Result == task.Caught) != (s == task.Fail) {
					t.Errorf("a probe: %+v", r)
				}
			}
			if g := got.Guard; g != nil && probes != len(g.Hunks)+len(g.Mutants) || g == nil && probes > 0 {
				t.Errorf("%d probes in the table", probes)
			}
			for _, row := range got.Table.Tests {
				if row.Rerun == "" && c.want != task.WeakRed {
					t.Errorf("%s cannot be run again", row.Test)
				}
			}
		})
	}
}

// TestTableBounds: what flickers is there run by run, also on the base; of a suite in which thousands
// of tests came out otherwise, the table has those that decide.
func TestTableBounds(t *testing.T) {
	run := func(status task.TestStatus, more int) ran {
		r := ran{cases: map[string]Case{"a::Flick": {Status: status, Millis: 7}, "a::Bug": {Status: task.Fail}}, millis: 9}
		for i := range more {
			id := fmt.Sprintf("a::Test%05d", i)
			r.cases[id] = Case{ID: id, Status: status}
		}
		return r
	}
	b := Baseline{Tests: map[string]task.TestStatus{}}
	b.settle([]ran{run(task.Pass, 0), run(task.Fail, 0), {cases: map[string]Case{"a::Bug": {Status: task.Fail}}, millis: 9}})
	b = roundTrip(t, b)
	p := &proof{job: Job{Baseline: b}, places: map[string]Place{}}
	p.facts.Tests = []TestFacts{{Test: "a::Bug", Red: []Seen{{Status: task.Fail}}}}
	p.saw(&task.PhaseRecord{Phase: "P3"}, "red", []Place{{}}, run(task.Fail, 0))
	p.mark(true, true)
	p.suiteSaw = run(task.Pass, maxCells+5).cases
	p.saw(&task.PhaseRecord{Phase: "P5"}, "green", nil, run(task.Pass, maxCells+5))
	p.mark(false, false)
	table := p.table()
	if len(table.Tests) != maxRows || table.Left != maxCells+7-maxRows || table.Tests[0].Test != "a::Bug" {
		t.Fatalf("%d rows, %d left, first %+v", len(table.Tests), table.Left, table.Tests[0])
	}
	table.Tests = table.Tests[:2]
	if got, want := drawn(table), "a::Bug (reproduction): P1 base fff P3 base + tests f P5 whole suite f\na::Flick (flaky): P1 base pf. P3 base + tests f P5 whole suite p\n"; got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
	if took := table.Runs[0].Took; took[1] != 7 {
		t.Errorf("%v", took)
	}
}

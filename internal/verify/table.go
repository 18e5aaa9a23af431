package verify

import (
	"maps"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Bounds of the table of a verdict: of its rows, and of the tests of one run that are remembered
// until it is known which of them are of interest.
const (
	maxRows  = 400
	maxCells = 20_000
)

// BaseRun is one run of the suite on the base.
type BaseRun struct {
	Millis int64                      `json:"ms"`
	Differ map[string]task.TestStatus `json:"differ,omitempty"`   // of flickering tests
	Took   map[string]int64           `json:"tests_ms,omitempty"` // of tests that took a millisecond or more
}

// cell is one test in one run.
type cell struct {
	status task.TestStatus
	millis int64
}

// column is one run, as far as a table needs it.
type column struct {
	task.TableRun
	suite bool // everything was run, with the change
	red   bool // it is one of the runs that showed the declared tests on base + tests
	green bool // or with the change
	cells map[string]cell

	folded bool   // what is not in cells came out as on the base
	side   string // the purpose of its bench
}

// saw remembers a run for the table.
func (p *proof) saw(rec *task.PhaseRecord, purpose string, where []Place, r ran) {
	c := &column{TableRun: task.TableRun{Phase: rec.Phase, What: "again", Millis: r.millis}, cells: p.cells(r), side: purpose}
	switch {
	case purpose == "red":
		c.What = "base + tests"
	case purpose == "baseline":
		c.What = task.BaseAgain
	case purpose == "older":
		c.What = "the base's tests"
	case rec.Phase == "P4":
		c.What = "alone"
	case rec.Phase == "P7":
		c.What = "the base's configuration"
	case rec.Name == "impact":
		c.What = "reached tests"
	case where == nil:
		c.What, c.suite = "whole suite", true
	}
	c.folded = c.suite && len(r.cases) > maxCells
	p.columns = append(p.columns, c)
}

// cells keeps what a run showed. Of a very large suite only what is not as on the base.
func (p *proof) cells(r ran) map[string]cell {
	out := make(map[string]cell, min(len(r.cases), maxCells))
	for id, k := range r.cases {
		if len(r.cases) <= maxCells || k.Status != p.job.Baseline.Tests[id] || p.places[id] != (Place{}) {
			out[id] = cell{k.Status, k.Millis}
		}
	}
	for id := range p.job.Baseline.Tests {
		if _, there := r.cases[id]; !there && len(r.cases) > maxCells {
			out[id] = cell{status: task.Missing}
		}
	}
	return out
}

// mark says that the newest run is one that the facts of the declared tests count. The first red
// one begins anew.
func (p *proof) mark(red, first bool) {
	if len(p.columns) == 0 {
		return
	}
	for _, c := range p.columns {
		c.red = c.red && !first
	}
	last := p.columns[len(p.columns)-1]
	last.red, last.green = red, !red
}

// probed remembers what a probe showed.
func (p *proof) probed(pr task.Probe, cells map[string]cell, millis int64) {
	if pr.Outcome == task.NotTried {
		return
	}
	p.columns = append(p.columns, &column{
		TableRun: task.TableRun{Phase: "P6", What: pr.What, Path: pr.Path, Line: pr.Line, Result: pr.Outcome, Millis: millis}, cells: cells,
	})
}

// baseColumns are the runs of P1.
func (p *proof) baseColumns() []*column {
	b := p.job.Baseline
	var out []*column
	for _, r := range b.Each {
		c := &column{TableRun: task.TableRun{Phase: "P1", What: "base", Millis: r.Millis}, cells: make(map[string]cell, len(b.Tests))}
		for id, s := range b.Tests {
			if s == task.Flaky {
				s = r.Differ[id]
			}
			if s != "" {
				c.cells[id] = cell{s, r.Took[id]}
			}
		}
		out = append(out, c)
	}
	return out
}

// table is what the runs showed of the tests that are of interest, nil when nothing ran.
func (p *proof) table() *task.Table {
	rows := p.rows()
	if len(rows) == 0 || len(p.columns) == 0 {
		return nil
	}
	t := &task.Table{Tests: rows[:min(len(rows), maxRows)], Left: max(0, len(rows)-maxRows)}
	reds, greens := 0, 0
	for _, c := range slices.Concat(p.baseColumns(), p.columns) {
		run, seen := c.TableRun, make([]byte, len(t.Tests))
		took, any := make([]int64, len(t.Tests)), false
		for i, row := range t.Tests {
			k := c.cells[row.Test]
			switch {
			case k.status == "" && c.folded:
				k.status = p.job.Baseline.Tests[row.Test]
			case k.status == "" && c.suite:
				k.status = task.Missing
			}
			if s, ok := p.counted(c, row.Test, reds, greens); ok {
				k.status = s
			}
			seen[i], took[i] = k.status.Letter(), k.millis
			any = any || k.millis > 0
		}
		if run.Seen = string(seen); any {
			run.Took = took
		}
		if c.red {
			reds++
		}
		if c.green {
			greens++
		}
		t.Runs = append(t.Runs, run)
	}
	return t
}

// counted is what the facts say of a declared test in a run: also that it did not build, or was
// looked for in vain.
func (p *proof) counted(c *column, id string, reds, greens int) (task.TestStatus, bool) {
	i := slices.IndexFunc(p.facts.Tests, func(t TestFacts) bool { return t.Test == id })
	if i < 0 {
		return "", false
	}
	t := p.facts.Tests[i]
	switch {
	case c.red && reds < len(t.Red):
		return t.Red[reds].Status, true
	case c.green && greens < len(t.Green):
		return t.Green[greens].Status, true
	}
	return "", false
}

// rows are the tests of interest, those that decide first.
func (p *proof) rows() []task.TableTest {
	var out []task.TableTest
	seen := map[string]bool{}
	add := func(id, why string) {
		if id != "" && !seen[id] {
			seen[id] = true
			out = append(out, task.TableTest{Test: id, Why: why, Rerun: p.rerunOf(id)})
		}
	}
	for _, t := range p.facts.Tests {
		add(t.Test, "reproduction")
	}
	for _, said := range p.facts.Regressions {
		add(p.known(said), "regression")
	}
	for _, said := range p.facts.Lost {
		add(p.known(said), "lost")
	}
	for _, said := range p.facts.Unsteady {
		add(p.known(said), "flaky")
	}
	for _, id := range slices.Concat(p.verdict.Suite.Flaky, p.job.Baseline.Flickering) {
		add(id, "flaky")
	}
	for _, id := range slices.Sorted(maps.Keys(p.suiteSaw)) {
		switch was, old := p.job.Baseline.Tests[id]; {
		case !old:
			add(id, "new")
		case was != p.suiteSaw[id].Status:
			add(id, "changed")
		}
	}
	return out
}

// known is the id that a line about a test begins with; "" for a line about something else.
func (p *proof) known(said string) string {
	for id := said; id != ""; {
		if _, ok := p.job.Baseline.Tests[id]; ok {
			return id
		}
		if _, ok := p.suiteSaw[id]; ok {
			return id
		}
		i := strings.LastIndex(id, " (")
		if i < 0 {
			break
		}
		id = id[:i]
	}
	return ""
}

// rerunOf is the command that runs a test alone; "" where its place is not known.
func (p *proof) rerunOf(id string) string {
	plan := p.plan
	pl, ok := p.places[id]
	if ok && p.racing {
		plan, _ = plan.racing()
	}
	if !ok {
		var c Case
		if c, ok = p.suiteSaw[id]; ok {
			pl = c.Place
		} else {
			pl, ok = p.job.Baseline.Where[id]
		}
	}
	if !ok || pl.Name == "" {
		return ""
	}
	return plan.rerun(pl)
}

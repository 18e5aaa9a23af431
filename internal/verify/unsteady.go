package verify

import (
	"context"
	"fmt"
	"slices"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// tallied is how often a test failed, and ran, with the change and on the base.
type tallied struct {
	headFailed, head, baseFailed, base int
	gone                               bool // some failure with the change is that it was not run
}

func (t tallied) failing() string {
	if t.gone {
		return "fails or is not run"
	}
	return "fails"
}

// maxChance is how likely chance may be where failures are said to be the change's doing.
const maxChance = 0.05

// chance is how likely all failures are with the change if the test fails as often on the base:
// Fisher's exact test, one-sided, of a base that never failed.
func (t tallied) chance() float64 {
	out := 1.0
	for i := range t.headFailed {
		out *= float64(t.head-i) / float64(t.head+t.base-i)
	}
	return out
}

// tally counts all runs so far in which a test was.
func (p *proof) tally(id string) tallied {
	var t tallied
	if p.job.Baseline.Tests[id] == task.Pass {
		t.base = len(p.job.Baseline.Each)
	}
	for _, c := range p.columns {
		s := c.cells[id].status
		if s == "" && c.folded {
			s = p.job.Baseline.Tests[id]
		}
		if _, old := p.job.Baseline.Tests[id]; s == "" && c.suite && old {
			s = task.Missing
		}
		bad := 0
		switch s {
		case "", task.Skip, task.XFail:
			continue
		case task.Pass:
		default:
			bad = 1
		}
		switch c.side {
		case "green":
			if c.Phase != "P7" {
				t.head, t.headFailed, t.gone = t.head+1, t.headFailed+bad, t.gone || s == task.Missing
			}
		case "baseline":
			t.base, t.baseFailed = t.base+1, t.baseFailed+bad
		}
	}
	return t
}

// unsteady says of tests that fail in some runs with the change, and not in all, whose doing that
// is. One that failed on the base too, now or in a verification before, flakes by itself. The base
// runs as often as the change did before it is said that one does not; then it is a regression
// where all its failures are hardly with the change by chance, and else for a person to judge.
func (p *proof) unsteady(ctx context.Context, suspects map[string]Place, flaky map[string]bool, rec *task.PhaseRecord) error {
	ours := map[string]Place{} // not known to flake, and to be run on the base
	for id := range flaky {
		if p.job.Baseline.Tests[id] == task.Pass && p.job.Flakes[id] == 0 && p.tally(id).baseFailed == 0 {
			ours[id] = suspects[id]
		}
	}
	for range maxGreenRuns {
		left := map[string]Place{}
		for id, pl := range ours {
			if t := p.tally(id); t.baseFailed == 0 && t.base-len(p.job.Baseline.Each) < t.head {
				left[id] = pl
			}
		}
		if len(left) == 0 {
			break
		}
		before := len(p.columns)
		if _, err := p.bench(ctx, "baseline", nil, groups(left), rec); err != nil {
			return err
		}
		if !slices.ContainsFunc(p.columns[before:], func(c *column) bool { return len(c.cells) > 0 }) {
			break // where its group runs nothing, the ledger is what is known
		}
	}
	for _, id := range sortedKeys(flaky) {
		t := p.tally(id)
		_, known := p.job.Baseline.Tests[id]
		if _, mine := ours[id]; known && (!mine || t.baseFailed > 0) {
			p.verdict.Suite.Flaky = append(p.verdict.Suite.Flaky, id)
			continue
		}
		if !known {
			p.facts.Unsteady = append(p.facts.Unsteady, fmt.Sprintf("%s (new, and fails in %d of %d runs with the change)", id, t.headFailed, t.head))
			continue
		}
		chance := t.chance()
		line := fmt.Sprintf("%s (%s in %d of %d runs with the change and in none of %d on the base; failing as often on both, all failures would be with the change with a probability of %.2g)", id, t.failing(), t.headFailed, t.head, t.base, chance)
		if t.headFailed > 1 && chance <= maxChance {
			p.facts.Regressions = append(p.facts.Regressions, line)
		} else {
			p.facts.Unsteady = append(p.facts.Unsteady, line)
		}
	}
	p.verdict.Suite.Unsteady = p.facts.Unsteady
	return nil
}

// saidUnsteady reports whether a test fails only sometimes with the change.
func (p *proof) saidUnsteady(id string) bool {
	return slices.ContainsFunc(p.facts.Unsteady, func(said string) bool { return p.known(said) == id })
}

package verify

import (
	"context"
	"fmt"
	"slices"

	"github.com/daybreak-agent/daybreak/internal/task"
)

const (
	// impactFrom is how long the suite takes on the base, in milliseconds, before running some of
	// its tests first is worth a run of their own.
	impactFrom = 30_000
	// impactShare is the part of the tests above which the whole suite is run at once.
	impactShare = 4
)

// impacted runs the tests that the change can reach before the whole suite. It reports true when
// they show a regression: the suite is then not run. That they pass proves nothing; the suite
// follows. note says why nothing ran first, where a suite takes long enough to ask.
func (p *proof) impacted(ctx context.Context, tree string) (refused bool, note string, err error) {
	base := p.job.Baseline
	if base.SuiteMillis < impactFrom || len(p.job.Declared) == 0 {
		return false, "", nil
	}
	start := p.v.Now()
	rec := task.PhaseRecord{Phase: "P5", Name: "impact", Tree: tree}
	s, err := p.selected(ctx, &rec)
	if err != nil {
		return false, "", err
	}
	stable := 0
	for _, status := range base.Tests {
		if status == task.Pass {
			stable++
		}
	}
	if s.whole == "" && len(s.tests)*impactShare > stable {
		s.whole = fmt.Sprintf("the change reaches %d of its %s", len(s.tests), plural(stable, "test"))
	}
	if s.whole == "" && len(s.tests) == 0 && !s.asked {
		s.whole = "the change reaches no test beside its own"
	}
	if s.whole != "" {
		return false, "the whole suite at once: " + s.whole, nil
	}
	rec.Note = fmt.Sprintf("%s of %d, %s", plural(len(s.tests), "test"), stable, s.how)
	p.job.progress("P5", fmt.Sprintf("%s of %d that the change reaches, before the whole suite", plural(len(s.tests), "test"), stable))
	r, err := p.bench(ctx, "green", p.job.Changes, s.places, &rec)
	if err != nil {
		return false, "", err
	}
	left := map[string]Place{}
	for id, pl := range base.Where {
		if base.Tests[id] == task.Pass && !p.declared(id) && r.cases[id].Failed() {
			left[id] = pl
		}
	}
	if err := p.confirmed(ctx, left, &rec); err != nil {
		return false, "", err
	}
	if refused = len(left) > 0; refused {
		p.facts.Regressions = sortedKeys(left)
		p.verdict.Suite.NewFailures, p.verdict.Suite.NewlyFailing = len(left), p.facts.Regressions
		p.suiteSaw, p.suiteMillis = r.cases, r.millis
		p.sawGreen(r, true)
		p.count(r)
		rec.Note = join(rec.Note, "the whole suite was not run, because of what they show")
	}
	rec.Millis, rec.Complete = p.v.Now().Sub(start).Milliseconds(), !r.timedOut
	p.phase(rec)
	return refused, "", nil
}

func (p *proof) declared(id string) bool {
	return slices.ContainsFunc(p.facts.Tests, func(t TestFacts) bool { return t.Test == id })
}

// confirmed keeps, of tests that failed, those that fail in every run with the change and pass in
// every run on the base.
func (p *proof) confirmed(ctx context.Context, left map[string]Place, rec *task.PhaseRecord) error {
	for _, onBase := range []bool{false, true} {
		purpose, placed := "green", p.job.Changes
		if onBase {
			purpose, placed = "baseline", nil
		}
		for range p.confirmations(left) {
			if len(left) == 0 {
				return nil
			}
			r, err := p.bench(ctx, purpose, placed, groups(left), rec)
			if err != nil {
				return err
			}
			for id := range left {
				c, there := r.cases[id]
				if onBase != (there && c.Status == task.Pass) {
					delete(left, id)
				}
			}
		}
	}
	return nil
}

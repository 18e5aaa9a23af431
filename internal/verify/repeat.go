package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify/result"
)

// untilFailing finds out which tests show the bug, and runs those that pass on the base again
// until one of them fails: a race does not show in every run. It returns how many runs it took.
func (p *proof) untilFailing(ctx context.Context, n int, first ran, where []Place, rec *task.PhaseRecord) (int, error) {
	runs := []ran{first}
	p.identify(runs)
	p.mark(true, true)
	for len(runs) < p.patience(n) {
		if k, _ := decideRed(p.facts); k != task.NotReproducing {
			break
		}
		if len(runs) == 1 && p.job.Race {
			p.job.progress("P3", "no failure yet: the tests run again, since a race does not show in every run")
		}
		again := where
		if !p.facts.Undeclared {
			again = p.declaredPlaces()
		}
		r, err := p.bench(ctx, "red", p.placed, again, rec)
		if err != nil {
			return len(runs), err
		}
		runs = append(runs, r)
		p.identify(runs)
		p.mark(true, false)
	}
	return len(runs), nil
}

// patience is how often tests run on the base before it counts that none of them fails. Where
// none was named, only a race is worth the wait: anything else that fails later is a flake.
func (p *proof) patience(n int) int {
	switch {
	case p.job.Race:
		return raceRuns
	case p.facts.Undeclared:
		return 1
	}
	return n
}

// merged is several runs as one: of a test the first failure, or the first result.
func merged(runs []ran) ran {
	out := runs[0]
	if len(runs) == 1 {
		return out
	}
	out.cases = map[string]Case{}
	for _, r := range runs {
		for id, c := range r.cases {
			if have, ok := out.cases[id]; !ok || c.Failed() && !have.Failed() {
				out.cases[id] = c
			}
		}
	}
	for _, r := range runs[1:] {
		out.buildFailed, out.timedOut = append(slices.Clone(out.buildFailed), r.buildFailed...), out.timedOut || r.timedOut
	}
	return out
}

// repeated says, where the change is about a race, what was done in place of a race detector.
func (p *proof) repeated() string {
	if !p.job.Race || len(p.facts.Tests) == 0 {
		return ""
	}
	var without []string
	for _, t := range p.facts.Tests {
		pl, ok := p.places[t.Test]
		if !ok || pl.Suite >= len(p.plan.Suites) || p.racing && p.plan.Suites[pl.Suite].Kind == KindGo {
			continue
		}
		if k := string(p.plan.Suites[pl.Suite].Kind); !slices.Contains(without, k) {
			without = append(without, k)
		}
	}
	if len(without) == 0 {
		return ""
	}
	return fmt.Sprintf("no race detector for %s: repeated, %d times in all", strings.Join(without, ", "), len(p.facts.Tests[0].Red))
}

// whyMissing says what is known of a run in which a test is looked for in vain.
func whyMissing(r ran) string {
	if len(r.problems) > 0 {
		return oneLine(r.problems[0], 200)
	}
	for _, rec := range r.records {
		switch rec.Outcome {
		case string(result.NoReport):
			return fmt.Sprintf("%s ended with exit code %d and left no report", oneLine(rec.Command, 120), rec.ExitCode)
		case string(result.Partial):
			return fmt.Sprintf("%s ended with exit code %d and left a part of a report alone", oneLine(rec.Command, 120), rec.ExitCode)
		}
	}
	return ""
}

// outOfTime is why a run without an end tells nothing of tests that nobody named.
func (p *proof) outOfTime(r ran, where string) string {
	ended := "no test ended before that"
	if n := r.count(task.Pass, task.Fail); n > 0 {
		ended = fmt.Sprintf("only %s ended before that, none of them with a failure", plural(n, "test"))
	}
	why := fmt.Sprintf("the tests did not end within %s %s, and %s", p.v.timeout(), where, ended)
	if r.died {
		why = fmt.Sprintf("the sandbox died under the tests %s, at a limit on memory, processes or space, and %s", where, ended)
	}
	if p.job.Hang {
		return why + ": name the test that hangs, so that its timeout can show the bug"
	}
	return why + ": make the new test end by itself with an assertion, or, where the bug is a hang, say so and name the test"
}

package verify

import (
	"context"
	"fmt"
	"math"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// crowdRuns is how often the whole suite runs again with the change before a test that fails in each
// run, and passes without the others, is a regression; maxCrowdRuns bounds it for tests that flaked before.
const (
	crowdRuns    = 2
	maxCrowdRuns = 8
)

// inCrowd finds, of the tests that failed in the suite and pass when run again without it, those
// that fail in every run of the whole suite with the change and in none on the base: what they
// depend on is another test, and not chance.
func (p *proof) inCrowd(ctx context.Context, suspects map[string]Place, passed map[string]bool, rec *task.PhaseRecord) (map[string]bool, error) {
	left, wants, base := map[string]bool{}, map[string]int{}, 1
	for id := range suspects {
		n := crowdRunsFor(p.job.Flakes[id], p.job.Earlier)
		if passed[id] && p.job.Baseline.Tests[id] == task.Pass && n <= maxCrowdRuns {
			left[id], wants[id] = true, n
			if p.job.Flakes[id] > 0 {
				base = 2
			}
		}
	}
	run := func(purpose string, placed []git.Change, mine func(id string) bool, fails bool) error {
		r, err := p.bench(ctx, purpose, placed, nil, rec)
		if err != nil {
			return err
		}
		for id := range left {
			// Not to be run at all is what a change can do to a test as well.
			if c, there := r.cases[id]; mine(id) && (there && !c.Failed()) == fails {
				delete(left, id)
			}
		}
		return nil
	}
	for n := 1; len(left) > 0; n++ {
		most := 0
		for id := range left {
			most = max(most, wants[id])
		}
		if n > most {
			break
		}
		if err := run("green", p.job.Changes, func(id string) bool { return wants[id] >= n }, true); err != nil {
			return nil, err
		}
	}
	for n := 1; n <= base && len(left) > 0; n++ {
		if err := run("baseline", nil, func(id string) bool { return n == 1 || p.job.Flakes[id] > 0 }, false); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// crowdRunsFor is how many failures in a row are not what a test does by itself that flaked in some
// of the verifications before: as unlikely as what row 8 asks of green runs, e to the power of
// -greenFactor. A verification runs the suite at least once, so the share of those in which it
// flaked is no less than its rate; one more of each makes little known no certainty.
func crowdRunsFor(flaked, of int) int {
	if flaked == 0 {
		return crowdRuns
	}
	rate := float64(flaked+1) / float64(max(of, flaked)+2)
	return max(crowdRuns, int(math.Ceil(greenFactor/-math.Log(rate))))
}

// flaked says in how many verifications a test flaked before; "" for none.
func (p *proof) flaked(id string) string {
	if p.job.Flakes[id] == 0 {
		return ""
	}
	return fmt.Sprintf("; it flaked in %d of %s before, and would not fail in as many runs by chance", p.job.Flakes[id], plural(max(p.job.Earlier, p.job.Flakes[id]), "verification"))
}

// confirmations is how often each side is run again: more often where a test is known to flake
// in this repository.
func (p *proof) confirmations(suspects map[string]Place) int {
	for id := range suspects {
		if p.job.Flakes[id] > 0 {
			return 2 * confirmRuns
		}
	}
	return confirmRuns
}

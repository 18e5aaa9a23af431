package prover

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify"
)

// flakesNote is the history of a repository's flaky tests; maxFlakes bounds it.
const (
	flakesNote = "flakes.json"
	maxFlakes  = 5_000
)

// flakes counts, of each test, in how many verifications of the repository it flaked.
type flakes struct {
	Verifications int            `json:"verifications"`
	Tests         map[string]int `json:"tests"`
}

// Verify runs the protocol on a change, with what is known of the repository's flaky tests, and
// keeps what it learned about them.
func (p *Prover) Verify(ctx context.Context, c config.Repo, job verify.Job) (task.Verdict, error) {
	var known flakes
	doc, err := p.cfg.Snapshots.RepoNote(job.Snapshot, flakesNote)
	if err == nil && json.Unmarshal(doc, &known) == nil {
		job.Flakes, job.Earlier = known.Tests, known.Verifications
	}
	v, err := p.Verifier(c).Verify(ctx, job)
	if err != nil {
		return v, err
	}
	err = p.cfg.Snapshots.ChangeRepoNote(ctx, job.Snapshot, flakesNote, func(old []byte) ([]byte, error) {
		return remember(old, learned(v, job.Baseline))
	})
	if err != nil { // a memory that is lost costs reruns, not truth
		p.cfg.Logger.WarnContext(ctx, "the history of flaky tests is not kept", "error", err)
	}
	return v, nil
}

// learned are the tests that flaked on the base. What a known one does in a later suite is held to
// be chance, so what a change was seen to do teaches nothing; and of a change that was refused not
// even the base's own reruns do, whose tests it chose.
func learned(v task.Verdict, b verify.Baseline) []string {
	out := slices.Clone(b.Flickering)
	if !v.Kind.Accepted() || v.Table == nil {
		return out
	}
	for i, t := range v.Table.Tests {
		if slices.Contains(v.Suite.Flaky, t.Test) && slices.ContainsFunc(v.Table.Runs, func(r task.TableRun) bool {
			s, ok := r.At(i)
			return r.What == task.BaseAgain && ok && s != task.Pass && s != task.Skip && s != task.XFail
		}) {
			out = append(out, t.Test)
		}
	}
	return out
}

// remember adds one verification. Of too many tests those that flaked least are forgotten.
func remember(old []byte, flaked []string) ([]byte, error) {
	var f flakes
	if json.Unmarshal(old, &f) != nil || f.Tests == nil {
		f.Tests = map[string]int{}
	}
	f.Verifications++
	slices.Sort(flaked)
	for _, id := range slices.Compact(flaked) {
		f.Tests[id]++
	}
	for least := 1; len(f.Tests) > maxFlakes; least++ {
		maps.DeleteFunc(f.Tests, func(_ string, n int) bool { return n <= least })
	}
	return json.Marshal(f)
}

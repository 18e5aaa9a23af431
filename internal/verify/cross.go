package verify

import (
	"context"
	"slices"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Crossed is what the source of one change did under the tests of another.
type Crossed struct {
	Passed bool
	Reason string // why not, one line
	Phase  task.PhaseRecord
}

// Cross places the declared tests of one change, theirs, on the base together with the source and
// the configuration of another, mine, in a fresh checkout, and runs them once. Before that they
// are run on the base alone: tests that do not fail there say nothing about anybody's source. Where
// both changes have a file, a test's is theirs.
func (v *Verifier) Cross(ctx context.Context, mine, theirs Job) (Crossed, error) {
	source, err := v.split(mine)
	if err != nil {
		return Crossed{}, err
	}
	p, err := v.newProof(theirs)
	if err != nil {
		return Crossed{}, err
	}
	if k, reason := decideRed(Facts{NoChange: p.facts.NoChange, Blocked: p.facts.Blocked, Tests: []TestFacts{{}}}); k != "" {
		return Crossed{Reason: reason}, nil
	}
	rec, err := p.red(ctx, 1)
	if err != nil {
		return Crossed{}, err
	}
	if k, reason := decideRed(p.facts); k != "" {
		return Crossed{Reason: reason, Phase: rec}, nil
	}
	placed := slices.Clone(p.placed)
	for _, c := range slices.Concat(source.source, source.config) {
		if !slices.ContainsFunc(placed, func(t git.Change) bool { return t.Path == c.Path }) {
			placed = append(placed, c)
		}
	}
	rec.Name, rec.Tree = "cross", treeDigest(theirs.Snapshot.Base, placed)
	r, err := p.bench(ctx, "green", placed, p.declaredPlaces(), &rec)
	if err != nil {
		return Crossed{}, err
	}
	p.sawGreen(r, false)
	k, reason := rowNotRun(p.facts)
	if k == "" {
		k, reason = rowGreen(p.facts)
	}
	return Crossed{Passed: k == "", Reason: oneLine(reason, 300), Phase: rec}, nil
}

package verify

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify/impact"
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
// follows.
func (p *proof) impacted(ctx context.Context, tree string) (refused bool, err error) {
	base := p.job.Baseline
	if base.SuiteMillis < impactFrom || len(p.job.Declared) == 0 {
		return false, nil
	}
	chosen, stable := p.reached()
	if len(chosen) == 0 || len(chosen)*impactShare > stable {
		return false, nil
	}
	start := p.v.Now()
	p.job.progress("P5", fmt.Sprintf("%s of %d that the change reaches, before the whole suite", plural(len(chosen), "test"), stable))
	rec := task.PhaseRecord{Phase: "P5", Name: "impact", Tree: tree, Note: fmt.Sprintf("%s of %d, in files that import what changed", plural(len(chosen), "test"), stable)}
	r, err := p.bench(ctx, "green", p.job.Changes, append(groups(chosen), p.declaredPlaces()...), &rec)
	if err != nil {
		return false, err
	}
	left := map[string]Place{}
	for id, pl := range chosen {
		if r.cases[id].Failed() {
			left[id] = pl
		}
	}
	if err := p.confirmed(ctx, left, &rec); err != nil {
		return false, err
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
	return refused, nil
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

// reached finds the tests that pass on the base, are not declared, and lie in a file that imports
// a changed one. stable is the number of all that pass there.
func (p *proof) reached() (chosen map[string]Place, stable int) {
	base := p.job.Baseline
	for _, s := range base.Tests {
		if s == task.Pass {
			stable++
		}
	}
	root, err := os.OpenRoot(p.job.Snapshot.Tree)
	if err != nil {
		return nil, stable
	}
	defer root.Close()
	texts, paths := map[string][]byte{}, []string{}
	for _, c := range p.job.Changes {
		texts[c.Path] = c.Content
		paths = append(paths, c.Path)
	}
	fsys := root.FS()
	files, ok := impact.Reached(impact.Tree{Files: overlay(p.parts.files, p.job.Changes), Read: func(f string) []byte {
		if text, ok := texts[f]; ok {
			return text
		}
		return []byte(readSome(fsys, f))
	}}, paths)
	if !ok {
		return nil, stable
	}
	declared := map[string]bool{}
	for _, t := range p.facts.Tests {
		declared[t.Test] = true
	}
	dirs := map[string]bool{} // of Go's tests, which are known by package
	for f := range files {
		if strings.HasSuffix(f, "_test.go") {
			dirs[path.Dir(f)] = true
		}
	}
	chosen = map[string]Place{}
	for id, pl := range base.Where {
		if base.Tests[id] != task.Pass || declared[id] || pl.Suite >= len(p.plan.Suites) {
			continue
		}
		s := p.plan.Suites[pl.Suite]
		in := files[pl.File]
		if s.Kind == KindGo && pl.File == "" {
			in = dirs[path.Join(s.Dir, strings.TrimPrefix(pl.Group, s.Module))]
		}
		if in {
			chosen[id] = pl
		}
	}
	return chosen, stable
}

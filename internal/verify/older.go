package verify

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify/impact"
)

// olderName is the part of P5 in which the base's own tests run on the new source.
const olderName = "older tests"

// maxOlder bounds the findings about older tests.
const maxOlder = 20

// older runs the tests that stand in the changed test files, as the base has them, on the new
// source. One that fails there and passes as the change has it no longer asks what it asked: its
// expectation was changed, turned round, mocked or wrapped away. How that was done need not be
// understood. One that does not build on the new source says nothing of that, and is named.
func (p *proof) older(ctx context.Context) error {
	back := map[string]bool{}
	for _, c := range slices.Concat(p.parts.tests, p.parts.hooks) {
		back[c.Path] = true
	}
	placed := slices.DeleteFunc(slices.Clone(p.job.Changes), func(c git.Change) bool { return back[c.Path] })
	tests, err := p.inChangedFiles(placed)
	if err != nil || len(tests) == 0 {
		return err
	}
	start := p.v.Now()
	rec := task.PhaseRecord{Phase: "P5", Name: olderName, Tree: treeDigest(p.job.Snapshot.Base, placed)}
	p.job.progress("P5", plural(len(tests), "older test")+" as the base has them, with the new source")
	places := groups(tests)
	if len(tests) == len(p.stable()) {
		places = nil
	}
	r, err := p.bench(ctx, "older", placed, places, &rec)
	if err != nil {
		return err
	}
	left, broken := map[string]Place{}, map[string]string{}
	for id, pl := range tests {
		switch s := p.see(r, id, true); {
		case s.Status == task.Pass || s.Status == task.Flaky || skipped(s.Status) && !p.headPassed(id):
		case s.failed() && (s.Cause == CauseBuild || s.Signature == "build"):
			broken[id] = s.Message
		case !slices.Contains(p.verdict.Suite.Flaky, id):
			left[id] = pl
		}
	}
	seen, some := map[string]Seen{}, map[string]Place{}
	for range p.confirmations(left) {
		if len(left) == 0 {
			break
		}
		if r, err = p.bench(ctx, "older", placed, groups(left), &rec); err != nil {
			return err
		}
		for id := range left {
			if seen[id] = p.see(r, id, true); seen[id].Status == task.Pass {
				some[id] = left[id]
				delete(left, id)
			}
		}
	}
	if err := p.olderSometimes(ctx, some, &rec); err != nil {
		return err
	}
	p.tellOlder(left, seen, broken, &rec)
	rec.Note = join(plural(len(tests), "test")+" of the changed test files as the base has them, with the new source", rec.Note)
	rec.Millis, rec.Complete = p.v.Now().Sub(start).Milliseconds(), !r.timedOut
	p.phase(rec)
	return nil
}

// olderSometimes says of older tests that failed on the new source once, and not again, whether
// they do that on the base. One that is tried again until it passes hides that it fails at all.
func (p *proof) olderSometimes(ctx context.Context, some map[string]Place, rec *task.PhaseRecord) error {
	for id := range some {
		if p.job.Flakes[id] > 0 || p.tally(id).baseFailed > 0 {
			delete(some, id)
		}
	}
	for n := 0; n <= confirmRuns && len(some) > 0; n++ {
		r, err := p.bench(ctx, "baseline", nil, groups(some), rec)
		if err != nil {
			return err
		}
		for id := range some {
			if c, there := r.cases[id]; there && c.Status != task.Pass {
				p.verdict.Suite.Flaky = append(p.verdict.Suite.Flaky, id)
				delete(some, id)
			}
		}
	}
	for _, id := range sortedKeys(some) {
		p.facts.Unsteady = append(p.facts.Unsteady, fmt.Sprintf("%s (in the base's version, it does not pass in all runs with the new source, and passes in all %d on the base)", id, p.tally(id).base))
	}
	p.verdict.Suite.Unsteady = p.facts.Unsteady
	return nil
}

// tellOlder turns what the older tests did into facts and findings.
func (p *proof) tellOlder(left map[string]Place, seen map[string]Seen, broken map[string]string, rec *task.PhaseRecord) {
	finding := func(severity, id, detail string) {
		if pl := p.job.Baseline.Where[id]; len(p.verdict.Findings) < 500 {
			p.verdict.Findings = append(p.verdict.Findings, task.Finding{Kind: "tamper", Severity: severity, Path: p.changedFile(pl), Detail: oneLine(detail, 600)})
		}
	}
	ids := sortedKeys(left)
	slices.SortStableFunc(ids, func(a, b string) int { // what another one's panic has hidden comes last
		return cmp.Compare(howMany([]Seen{seen[b]}, Seen.failed), howMany([]Seen{seen[a]}, Seen.failed))
	})
	for n, id := range ids {
		line := fmt.Sprintf("%s %s with the new source in the base's version, ", id, did(seen[id].Status))
		if p.headPassed(id) {
			line += "and passes in the change's"
		} else {
			line += "and the change has none of that name that passes"
		}
		p.facts.Weakened = append(p.facts.Weakened, line)
		if n < maxOlder {
			finding("warn", id, join("needs a person: "+line, seen[id].Message))
		}
	}
	if len(left) > 0 {
		rec.Note = join(rec.Note, plural(len(left), "older test")+" not passing in the base's version")
	}
	if ids = sortedKeys(broken); len(ids) > 0 {
		line := fmt.Sprintf("%s cannot be run in the base's version, which does not build with the new source (%s)", plural(len(ids), "older test"), oneLine(broken[ids[0]], 200))
		rec.Note = join(rec.Note, line)
		finding("info", ids[0], line+": "+some(ids))
	}
}

func skipped(s task.TestStatus) bool { return s == task.Skip || s == task.XFail }

// did says what a test did that did not pass.
func did(s task.TestStatus) string {
	switch {
	case skipped(s):
		return "is skipped"
	case s == task.Missing:
		return "is not run"
	case s == task.Timeout:
		return "runs out of time"
	}
	return "fails"
}

// stable are the tests that pass in every run of the base.
func (p *proof) stable() []string {
	var out []string
	for id, s := range p.job.Baseline.Tests {
		if s == task.Pass {
			out = append(out, id)
		}
	}
	return out
}

// changedFile is the changed test file that holds a test, as far as it is known.
func (p *proof) changedFile(pl Place) string {
	for _, c := range p.parts.tests {
		if holds(p.plan.Suites[pl.Suite], pl, c.Path) {
			return c.Path
		}
	}
	return pl.File
}

// testName is what only runners look for: no test imports it.
var testName = regexp.MustCompile(`(^|/)test_[^/]*\.py$|_test\.py$|\.(test|spec)\.\w+$`)

// inChangedFiles are the stable tests of the base that the change's test files hold, or reach.
// placed is what stands on the base beside them.
func (p *proof) inChangedFiles(placed []git.Change) (map[string]Place, error) {
	var changed, added []string
	for _, c := range p.parts.tests {
		switch _, old := p.old(c.Path); {
		case old, strings.HasSuffix(c.Path, "_test.go"): // a new file of a Go package is in one program with the others
			changed = append(changed, snapshotOf(c.Path))
		case !testName.MatchString(c.Path) && (strings.HasSuffix(c.Path, ".py") || impact.Script(c.Path)):
			added = append(added, c.Path) // it may be found where others import another module
		}
	}
	if len(changed)+len(added) == 0 || len(p.plan.Suites) == 0 {
		return nil, nil
	}
	base := p.job.Baseline
	whole := p.unknownTo(changed)
	reach, err := p.reachedBy(slices.Concat(changed, added), placed)
	if err != nil || len(changed) == 0 && reach.Whole != "" {
		return nil, err
	}
	out := map[string]Place{}
	for _, id := range p.stable() {
		pl := base.Where[id]
		if pl.Suite >= len(p.plan.Suites) {
			continue
		}
		s := p.plan.Suites[pl.Suite]
		in := whole[pl.Suite]
		switch {
		case in:
		case !s.Kind.imports():
			in = slices.ContainsFunc(changed, func(f string) bool { return holds(s, pl, f) })
		case s.Kind == KindGo && pl.File == "":
			dir := path.Join(s.Dir, strings.TrimPrefix(pl.Group, s.Module))
			in = reach.Whole != "" || slices.ContainsFunc(sortedKeys(reach.Files), func(f string) bool { return strings.HasSuffix(f, "_test.go") && path.Dir(f) == dir })
		case pl.File == "": // Python's own runner says the module
			in = reach.Whole != "" || slices.ContainsFunc(sortedKeys(reach.Files), func(f string) bool { return holds(s, pl, f) })
		default:
			in = reach.Whole != "" || reach.Files[pl.File]
		}
		if in {
			out[id] = pl
		}
	}
	return out, nil
}

func (p *proof) old(f string) ([]byte, bool) {
	text, ok := p.parts.old[f]
	return text, ok
}

// snapshotOf is the test file that a recorded output belongs to, else the file itself.
func snapshotOf(f string) string {
	if dir := path.Dir(f); path.Base(dir) == "__snapshots__" && strings.HasSuffix(f, ".snap") {
		return path.Join(path.Dir(dir), strings.TrimSuffix(path.Base(f), ".snap"))
	}
	return f
}

// imports reports whether the tests that a file reaches are known by what imports it.
func (k Kind) imports() bool {
	return slices.Contains([]Kind{KindGo, KindPytest, KindUnittest, KindNode, KindTAP, KindJest, KindVitest, KindMocha}, k)
}

// reachedBy is what imports the changed test files, on the tree without the change's tests.
func (p *proof) reachedBy(changed []string, placed []git.Change) (impact.Reach, error) {
	root, err := os.OpenRoot(p.job.Snapshot.Tree)
	if err != nil {
		return impact.Reach{}, &task.Error{Class: task.Internal, Msg: "the base checkout cannot be opened", Err: err}
	}
	defer root.Close()
	changed = slices.DeleteFunc(slices.Clone(changed), func(f string) bool {
		i := owningSuite(p.plan, f)
		return i >= 0 && !p.plan.Suites[i].Kind.imports()
	})
	texts := map[string][]byte{}
	for _, c := range placed {
		texts[c.Path] = c.Content
	}
	fsys := root.FS()
	tree := impact.Tree{Files: overlay(p.parts.files, placed), Read: func(f string) []byte {
		if text, ok := texts[f]; ok {
			return text
		}
		return []byte(readSome(fsys, f))
	}}
	return impact.Reached(tree, nil, changed), nil
}

// unknownTo are the suites to which some changed file belongs that holds none of their tests: all
// of them may lean on it. Where imports tell what leans on a file, they are asked instead.
func (p *proof) unknownTo(changed []string) map[int]bool {
	out := map[int]bool{}
	for i, s := range p.plan.Suites {
		if s.Kind.imports() {
			continue
		}
		for _, f := range changed {
			if own := owningSuite(p.plan, f); own >= 0 && own != i || s.Dir != "." && !strings.HasPrefix(f, s.Dir+"/") {
				continue
			}
			held := false
			for _, pl := range p.job.Baseline.Where {
				held = held || pl.Suite == i && holds(s, pl, f)
			}
			out[i] = out[i] || !held
		}
	}
	return out
}

// holds reports whether a test is in a file, by what its runner says of it.
func holds(s Suite, pl Place, f string) bool {
	if pl.File != "" {
		return pl.File == f
	}
	if s.Kind == KindGo {
		return strings.HasSuffix(f, "_test.go") && path.Dir(f) == path.Join(s.Dir, strings.TrimPrefix(pl.Group, s.Module))
	}
	if m := cargoGroup.FindStringSubmatch(pl.Group); s.Kind == KindCargo && m != nil {
		return f == m[2] || strings.HasSuffix(f, "/"+m[2])
	}
	if s.Kind == KindUnittest {
		module := strings.ReplaceAll(strings.TrimSuffix(s.local(f), ".py"), "/", ".")
		for name := pl.Group; name != "" && strings.HasSuffix(f, ".py"); name = name[:max(0, strings.LastIndexByte(name, '.'))] {
			if strings.HasSuffix("."+module, "."+name) {
				return true
			}
		}
		return false
	}
	stem := strings.TrimSuffix(path.Base(f), path.Ext(f))
	class, _, _ := strings.Cut(pl.class(), "$")
	return class[strings.LastIndexByte(class, '.')+1:] == stem
}

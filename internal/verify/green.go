package verify

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify/tamper"
)

// confirmRuns is how often each side is run again before a difference counts as a regression.
const confirmRuns = 2

// green is P4 and P5: the declared tests alone, then the whole suite with the change, which is
// also the last green run. A change that does not make its own tests pass is refused before the
// suite is run.
func (p *proof) green(ctx context.Context) error {
	start := p.v.Now()
	tree := treeDigest(p.job.Snapshot.Base, p.job.Changes)
	alone := task.PhaseRecord{Phase: "P4", Name: "green", Tree: tree, Note: "the suite's run in P5 is the last green run; tests " + treeDigest("", p.parts.tests)}
	if len(p.job.Declared) > 0 {
		p.job.progress("P4", "the declared tests with the change")
		if err := p.greenAlone(ctx, &alone); err != nil {
			return err
		}
		alone.Millis, alone.Complete = p.v.Now().Sub(start).Milliseconds(), true
		p.phase(alone)
		if p.refusedGreen() {
			p.phase(task.PhaseRecord{Phase: "P5", Name: "regression", Tree: tree, Note: "not run: the declared tests do not pass"})
			return nil
		}
	}
	refused, atOnce, err := p.impacted(ctx, tree)
	if refused || err != nil {
		return err
	}
	start = p.v.Now()
	p.job.progress("P5", "the suite with the change")
	suite := task.PhaseRecord{Phase: "P5", Name: "regression", Tree: tree, Note: atOnce}
	first, err := p.bench(ctx, "green", p.job.Changes, nil, &suite)
	if err != nil {
		return err
	}
	p.suiteSaw, p.suiteMillis = first.cases, first.millis
	if first.count(task.Pass, task.Fail) == 0 {
		p.facts.NothingRan = oneLine(lastLine(first.output), 200) + " "
	}
	p.settleUndeclared(first)
	p.sawGreen(first, true)
	suite.Millis, suite.Complete = p.v.Now().Sub(start).Milliseconds(), !first.timedOut
	if len(p.job.Declared) == 0 {
		// Which tests they are is known only now.
		mid := p.v.Now()
		if err := p.greenAlone(ctx, &alone); err != nil {
			return err
		}
		alone.Millis, alone.Complete = p.v.Now().Sub(mid).Milliseconds(), true
		p.phase(alone)
	}
	if k, _ := Decide(p.facts); !k.Accepted() && k != task.Incomplete {
		// Not fixed: what else the change does is no question yet, but the suite's numbers are known.
		p.count(first)
		suite.Note, suite.Complete = join(suite.Note, "not compared: "+string(k)), false
		p.phase(suite)
		return nil
	}
	mid := p.v.Now()
	if err := p.compare(ctx, first, &suite); err != nil {
		return err
	}
	suite.Millis += p.v.Now().Sub(mid).Milliseconds()
	for _, id := range p.verdict.Suite.Flaky {
		if n := p.job.Flakes[id]; n > 0 {
			suite.Note = join(suite.Note, fmt.Sprintf("%s flaked in %s of this repository before", id, plural(n, "verification")))
		}
	}
	p.phase(suite)
	if k, _ := Decide(p.facts); k.Accepted() {
		return p.older(ctx)
	}
	return nil
}

// greenAlone runs the declared tests with the change until only one green run is missing.
func (p *proof) greenAlone(ctx context.Context, rec *task.PhaseRecord) error {
	want := greenRuns
	for _, t := range p.facts.Tests {
		if rate, steady := rates(t.Red); !steady && rate >= minFailRate {
			want = max(want, min(greenRunsFor(rate), maxGreenRuns))
		}
	}
	rec.Note = join(rec.Note, p.chance(want))
	for n := 1; n < want && len(p.facts.Tests) > 0; n++ {
		if k, _ := rowNotRun(p.facts); k != "" {
			return nil
		}
		if k, _ := rowGreen(p.facts); k == task.FlakyFix || p.greenHung() {
			return nil
		}
		r, err := p.bench(ctx, "green", p.job.Changes, p.declaredPlaces(), rec)
		if err != nil {
			return err
		}
		p.sawGreen(r, false)
	}
	return nil
}

// chance says, of a test that does not always fail on the base, how likely as many green runs are
// without any fix: (1 − p)^k.
func (p *proof) chance(k int) string {
	note := ""
	for _, t := range p.facts.Tests {
		if rate, steady := rates(t.Red); !steady && rate < 1 && rate > 0 {
			note = join(note, fmt.Sprintf("%s fails in %.0f %% of %d runs on the base: without a fix %d green runs would come with a probability of %.2g", t.Test, rate*100, len(t.Red), k, math.Pow(1-rate, float64(k))))
		}
	}
	return note
}

// sawGreen takes up what the declared tests did in a run with the change.
func (p *proof) sawGreen(r ran, suite bool) {
	p.mark(false, false)
	for i := range p.facts.Tests {
		t := &p.facts.Tests[i]
		saw := p.see(r, t.Test, false)
		saw.Suite = suite
		t.Green = append(t.Green, saw)
		c, ok := r.cases[t.Test]
		if _, seen := p.headSaw[t.Test]; ok && (c.Failed() || !seen) {
			p.headSaw[t.Test] = c
		}
	}
}

// refusedGreen reports whether the declared tests alone are enough to refuse the change.
func (p *proof) refusedGreen() bool {
	k, _ := rowNotRun(p.facts)
	if k == "" {
		k, _ = rowGreen(p.facts)
	}
	return k != ""
}

// greenHung reports whether a declared test ran out of time with the change: more runs would
// cost as much and say the same.
func (p *proof) greenHung() bool {
	return slices.ContainsFunc(p.facts.Tests, func(t TestFacts) bool {
		return len(t.Green) > 0 && t.Green[0].Status == task.Timeout
	})
}

// settleUndeclared keeps, of the tests that fail on base + tests, those that the change turns
// green; without any, those that the change brought.
func (p *proof) settleUndeclared(first ran) {
	if len(p.job.Declared) > 0 {
		return
	}
	var fixed, new []TestFacts
	for _, t := range p.facts.Tests {
		if first.cases[t.Test].Status == task.Pass {
			fixed = append(fixed, t)
		}
		if _, old := p.job.Baseline.Tests[t.Test]; !old {
			new = append(new, t)
		}
	}
	p.facts.Tests = fixed
	if len(fixed) == 0 {
		p.facts.Tests = new
	}
	p.facts.Undeclared = len(p.facts.Tests) == 0
	if p.facts.Undeclared && first.timedOut {
		p.facts.OutOfTime = p.outOfTime(first, "with the change")
	}
}

func (p *proof) count(r ran) {
	p.verdict.Suite.Passed, p.verdict.Suite.Skipped = r.count(task.Pass), r.count(task.Skip, task.XFail)
}

// compare holds the suite's run against the baseline.
func (p *proof) compare(ctx context.Context, first ran, rec *task.PhaseRecord) error {
	p.count(first)
	base := p.job.Baseline
	declared := map[string]bool{}
	for _, t := range p.facts.Tests {
		declared[t.Test] = true
	}
	suspects := map[string]Place{}
	for _, id := range sortedKeys(base.Tests) {
		if base.Tests[id] != task.Pass || declared[id] {
			continue
		}
		c, there := first.cases[id]
		switch {
		case there && c.Status == task.Pass:
		case there && (c.Status == task.Skip || c.Status == task.XFail):
			p.facts.Lost = append(p.facts.Lost, id+" (now skipped)")
		case !there && p.removed(id, first):
			if !p.moved(id, first) {
				p.facts.Lost = append(p.facts.Lost, id)
			}
		default:
			suspects[id] = base.Where[id]
		}
	}
	for id, c := range first.cases {
		if _, known := base.Tests[id]; !known && c.Failed() && !declared[id] {
			suspects[id] = c.Place
		}
	}
	for _, f := range first.incomplete {
		if !slices.Contains(base.Incomplete, f) && !p.newHelper(f, first) {
			p.facts.Incomplete = append(p.facts.Incomplete, f)
		}
	}
	if err := p.confirm(ctx, suspects, rec); err != nil {
		return err
	}
	for _, f := range first.buildFailed {
		if !slices.Contains(base.BuildFailed, f) && !slices.ContainsFunc(p.facts.Regressions, func(r string) bool { return strings.HasPrefix(r, f) }) {
			p.facts.Regressions = append(p.facts.Regressions, f+" (no longer builds)")
		}
	}
	p.verdict.Suite.NewFailures, p.verdict.Suite.NewlyFailing = len(p.facts.Regressions), p.facts.Regressions
	return nil
}

// removed reports whether a test that passed on the base is gone because the change took it
// away, not because its file or package broke.
func (p *proof) removed(id string, r ran) bool {
	pl := p.job.Baseline.Where[id]
	if r.timedOut || slices.ContainsFunc(r.buildFailed, func(f string) bool { return f == pl.Group || f == pl.File || strings.HasPrefix(id, f) }) {
		return false
	}
	for _, c := range p.job.Changes {
		// A name may stand in a file several times, in several classes.
		name := lastWord(pl.Name)
		if countWord(string(c.Content), name) < countWord(string(p.parts.old[c.Path]), name) {
			return true
		}
	}
	return false
}

// countWord counts where name stands in text and is no part of a longer name.
func countWord(text, name string) int {
	n := 0
	for name != "" {
		i := strings.Index(text, name)
		if i < 0 {
			break
		}
		before, _ := utf8.DecodeLastRuneInString(text[:i])
		after, _ := utf8.DecodeRuneInString(text[i+len(name):])
		if !inName(before) && !inName(after) {
			n++
		}
		text = text[i+len(name):]
	}
	return n
}

func inName(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// newHelper reports whether an incomplete command ran a new file beside the tests that reports
// nothing, as helpers do. No known test can be hidden in it, and a declared one is missed anyway.
func (p *proof) newHelper(incomplete string, r ran) bool {
	f, ok := r.silent[incomplete]
	_, old := slices.BinarySearch(p.parts.files, f)
	return ok && !old
}

func lastWord(name string) string {
	words := idWords(name)
	if len(words) == 0 {
		return name
	}
	return words[len(words)-1]
}

// moved reports whether the tamper analysis found the test's body under another name, and the
// test of that name passes.
func (p *proof) moved(id string, r ran) bool {
	name := lastWord(p.job.Baseline.Where[id].Name)
	return slices.ContainsFunc(p.parts.tamper.Findings, func(f tamper.Finding) bool {
		if f.SubKind != tamper.TestRenamed && f.SubKind != tamper.TestRewritten || !strings.Contains(f.Old+" "+f.Detail, name) {
			return false
		}
		now := cmp.Or(f.New, name)
		for _, c := range r.cases {
			if c.Status == task.Pass && (lastWord(c.Place.Name) == lastWord(now) || strings.HasSuffix(squash(c.Place.Name), squash(now))) {
				return true
			}
		}
		return false
	})
}

// squash makes names comparable that a runner has rewritten.
func squash(name string) string {
	return strings.Map(func(r rune) rune {
		if inName(r) {
			return r
		}
		return '_'
	}, name)
}

// group is a test's package or file: reruns take all of it, since a test may fail only after
// another one.
func group(pl Place) Place { return Place{Suite: pl.Suite, Group: groupName(pl), File: pl.File} }

func groupName(pl Place) string {
	if strings.HasSuffix(pl.File, ".py") {
		return ""
	}
	return pl.Group
}

func groups(suspects map[string]Place) []Place {
	out := []Place{}
	for _, id := range sortedKeys(suspects) {
		if g := group(suspects[id]); !slices.Contains(out, g) {
			out = append(out, g)
		}
	}
	return out
}

// confirm runs what differs again on both sides. What fails in every run with the change and in
// none on the base is a regression; of the rest [proof.unsteady] says whose doing it is.
func (p *proof) confirm(ctx context.Context, suspects map[string]Place, rec *task.PhaseRecord) error {
	if len(suspects) == 0 {
		return nil
	}
	p.job.progress("P5", fmt.Sprintf("running %s that came out differently again", plural(len(suspects), "test")))
	flaky := map[string]bool{}
	side := func(purpose string, placed []git.Change, steady func(id string, c Case, there, any bool) bool) error {
		for range p.confirmations(suspects) {
			left := map[string]Place{}
			for id, pl := range suspects {
				if !flaky[id] || purpose == "green" { // how often it fails with the change is counted
					left[id] = pl
				}
			}
			if len(left) == 0 {
				return nil
			}
			r, err := p.bench(ctx, purpose, placed, groups(left), rec)
			if err != nil {
				return err
			}
			for id := range left {
				c, there := r.cases[id]
				flaky[id] = flaky[id] || !steady(id, c, there, len(r.cases) > 0)
			}
		}
		return nil
	}
	err := side("green", p.job.Changes, func(_ string, c Case, there, _ bool) bool { return !there || c.Status != task.Pass })
	if err != nil {
		return err
	}
	crowded, err := p.inCrowd(ctx, suspects, flaky, rec)
	if err != nil {
		return err
	}
	// A test that the base does not have cannot be run there; and where its group runs nothing at
	// all, the base's own ledger is what is known.
	err = side("baseline", nil, func(id string, c Case, there, any bool) bool {
		_, known := p.job.Baseline.Tests[id]
		return !known || !any || (there && c.Status == task.Pass)
	})
	if err != nil {
		return err
	}
	for id := range suspects {
		if !flaky[id] || crowded[id] {
			delete(flaky, id)
		}
	}
	if err := p.unsteady(ctx, suspects, flaky, rec); err != nil {
		return err
	}
	for _, id := range sortedKeys(suspects) {
		if crowded[id] {
			p.facts.Regressions = append(p.facts.Regressions, id+" (only with the whole suite: it depends on other tests"+p.flaked(id)+")")
		} else if !flaky[id] {
			p.facts.Regressions = append(p.facts.Regressions, id)
		}
	}
	return nil
}

// copies is row 15: the suite with the change, but with the base's own runner configuration
// and hooks.
func (p *proof) copies(ctx context.Context, rec *task.PhaseRecord) error {
	if len(p.parts.hooks) == 0 {
		return nil
	}
	p.job.progress("P7", "the suite with the base's runner configuration")
	hook := map[string]bool{}
	for _, c := range p.parts.hooks {
		hook[c.Path] = true
	}
	rest := slices.DeleteFunc(slices.Clone(p.job.Changes), func(c git.Change) bool { return hook[c.Path] })
	rec.Tree = treeDigest(p.job.Snapshot.Base, rest)
	r, err := p.bench(ctx, "green", rest, nil, rec)
	if err != nil {
		return err
	}
	differ := map[string]Place{}
	var undecided []string
	for _, t := range p.facts.Tests {
		c, there := r.cases[t.Test]
		switch {
		case there && c.Status == task.Fail:
			differ[t.Test] = c.Place
		case !there || c.Failed():
			undecided = append(undecided, t.Test)
		}
	}
	for id, c := range r.cases {
		if c.Status == task.Fail && p.headPassed(id) && p.job.Baseline.Tests[id] != task.Flaky && !slices.Contains(p.verdict.Suite.Flaky, id) && !p.saidUnsteady(id) {
			differ[id] = c.Place
		}
	}
	if len(differ) > 0 {
		if r, err = p.bench(ctx, "green", rest, groups(differ), rec); err != nil {
			return err
		}
	}
	var shown []string
	for _, id := range sortedKeys(differ) {
		if r.cases[id].Status == task.Fail {
			shown = append(shown, id+" fails")
		}
	}
	what, needs := some(paths(p.parts.hooks)), "the change of "+some(paths(p.parts.hooks))
	if !slices.ContainsFunc(p.parts.hooks, func(c git.Change) bool { return !slices.Contains(p.verdict.Tests, c.Path) }) {
		needs = what + ", which holds tests and can change their outcome as well (see the findings)"
	}
	switch {
	case len(shown) > 0:
		p.facts.BaseCopies, p.facts.CopiesShow = CopiesDiffer, some(shown)+" without the change of "+what
		rec.Note = "the outcome differs with the base's copies of " + what
	case len(undecided) > 0:
		p.facts.BaseCopies, p.facts.CopiesShow = CopiesUndecided, some(undecided)+" needs "+needs
		rec.Note = "undecided with the base's copies of " + what
	default:
		p.facts.BaseCopies = CopiesSame
		rec.Note = "same outcome with the base's copies of " + what
	}
	for _, f := range paths(p.parts.hooks) {
		p.verdict.Findings = append(p.verdict.Findings, task.Finding{Kind: "tamper", Severity: "warn", Path: path.Clean(f), Detail: "runner configuration or hook changed; " + rec.Note})
	}
	return nil
}

func (p *proof) headPassed(id string) bool { return p.suiteSaw[id].Status == task.Pass }

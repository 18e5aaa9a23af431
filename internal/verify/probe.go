package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify/mutate"
	"github.com/daybreak-agent/daybreak/internal/verify/tamper"
)

// P6's bounds. A verdict's label must not depend on two or three mutants, which may well be no
// change of behaviour at all.
const (
	maxHunks      = 12
	minMutants    = 5
	maxMutants    = 20
	minJudged     = 3
	guardFactor   = 3 // times the suite's own run
	minGuard      = 45 * time.Second
	maxGuard      = 5 * time.Minute
	probeLimit    = 30 * time.Second // of one run, at least
	probeSlowdown = 5                // times the same run with the whole change
	maxGuardRuns  = 100              // commands that are recorded
)

// guardTime is what P6 may take.
func (p *proof) guardTime() time.Duration {
	if g := p.v.Settings.Guard; g != 0 {
		return g
	}
	return min(max(guardFactor*time.Duration(p.suiteMillis)*time.Millisecond, minGuard), maxGuard)
}

// prober undoes or alters a part of the change and looks whether a test notices. All probes of
// a verification share a bench until one of them hangs or kills it: what they show can lower a
// verdict and never raise one.
type prober struct {
	p        *proof
	rec      *task.PhaseRecord
	deadline time.Time
	bench    *bench
	normal   time.Duration   // of the declared tests with the whole change
	cells    map[string]cell // what the newest probe showed
	took     int64           // and how long that was, in milliseconds
}

// changedFile is one source file of the change that holds code.
type changedFile struct {
	change git.Change
	old    []byte
	hunks  []mutate.Hunk
	lines  map[int]bool // changed lines with code, of the new text
}

// probe is P6: each source hunk reverted alone, small mutants of the changed lines, and which
// changed lines the reproduction runs. It stops when its time is over and says so.
func (p *proof) probe(ctx context.Context) (err error) {
	if p.v.Settings.Guard < 0 || p.facts.NoFramework || p.facts.ExitCodes {
		return nil
	}
	files := p.changedFiles()
	if len(files) == 0 {
		return nil
	}
	start := p.v.Now()
	p.job.progress("P6", "undoing and altering parts of the fix, which the tests must notice")
	rec := task.PhaseRecord{Phase: "P6", Name: "guard", Tree: treeDigest(p.job.Snapshot.Base, p.job.Changes)}
	g := &prober{p: p, rec: &rec, deadline: start.Add(p.guardTime()), cells: map[string]cell{}}
	defer func() { err = errors.Join(err, g.end(ctx)) }()
	guard := &task.Guard{Hunks: []task.Probe{}, Mutants: []task.Probe{}}
	if guard.Coverage, err = g.coverage(ctx, files); err != nil {
		return err
	}
	if err := g.hunks(ctx, files, guard); err != nil {
		return err
	}
	if err := g.mutants(ctx, files, guard); err != nil {
		return err
	}
	_, _, left := task.Counts(slices.Concat(guard.Hunks, guard.Mutants))
	if left > 0 {
		guard.Note = join(guard.Note, fmt.Sprintf("partial: %s not tried within %s", plural(left, "probe"), p.guardTime()))
	}
	for _, pr := range slices.Concat(guard.Hunks, guard.Mutants) {
		if pr.Outcome == task.Unjudged {
			guard.Unsure++
		}
	}
	guard.Complete = left == 0 && guard.Unsure == 0
	if guard.Unsure > 0 {
		guard.Note = join(guard.Note, fmt.Sprintf("partial: %s unnoticed by the reproduction and not judged, since there was no time to ask the whole suite", plural(guard.Unsure, "probe")))
	}
	guard.Millis = p.v.Now().Sub(start).Milliseconds()
	rec.Note, rec.Millis, rec.Complete = summaryOf(*guard), guard.Millis, guard.Complete
	if n := len(rec.Runs) - maxGuardRuns; n > 0 {
		rec.Runs, rec.Note = rec.Runs[:maxGuardRuns], join(rec.Note, fmt.Sprintf("%s more, not listed", plural(n, "command")))
	}
	p.verdict.Guard, p.facts.Weak = guard, weakness(*guard)
	p.phase(rec)
	return nil
}

func join(a, b string) string { return strings.Trim(a+"; "+b, "; ") }

func summaryOf(g task.Guard) string {
	caught, survived, _ := task.Counts(g.Hunks)
	note := fmt.Sprintf("hunks reverted: %d noticed, %d not", caught, survived)
	caught, survived, _ = task.Counts(g.Mutants)
	note += fmt.Sprintf("; mutants: %d noticed, %d not", caught, survived)
	if c := g.Coverage; c != nil {
		note += fmt.Sprintf("; changed lines run: %d of %d", c.Run, c.Lines)
	}
	return join(note, g.Note)
}

// weakness is row 17: why the tests do not guard the change well, "" when they do. More than half of
// the mutants must go unnoticed: a few always do, being the same behaviour written otherwise.
func weakness(g task.Guard) string {
	if c := g.Coverage; c != nil && c.Lines > 0 && c.Run == 0 {
		return "no changed line of the source runs in the tests that show the bug"
	}
	if _, survived, _ := task.Counts(g.Hunks); survived > 0 && survived == len(g.Hunks) {
		return "each part of the change can be undone without any test noticing"
	}
	if caught, survived, _ := task.Counts(g.Mutants); caught+survived >= minJudged && survived > caught {
		return fmt.Sprintf("%d of %d small mutants of the changed lines go unnoticed", survived, caught+survived)
	}
	return ""
}

// changedFiles are the source files whose change holds code.
func (p *proof) changedFiles() []changedFile {
	var out []changedFile
	for _, c := range p.parts.source {
		if c.Mode == git.ModeLink || tamper.Classify(c.Path, p.v.Settings.TestGlobs).IsTests() {
			continue
		}
		f := changedFile{change: c, old: p.parts.old[c.Path], lines: map[int]bool{}}
		for _, h := range mutate.Hunks(f.old, c.Content) {
			if !mutate.Code(c.Path, c.Content, h.NewStart, h.NewLines) && !mutate.Code(c.Path, f.old, h.OldStart, h.OldLines) {
				continue
			}
			f.hunks = append(f.hunks, h)
			for n := h.NewStart; n < h.NewStart+h.NewLines; n++ {
				if mutate.Code(c.Path, c.Content, n, 1) {
					f.lines[n] = true
				}
			}
		}
		if len(f.hunks) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// over reports whether P6's time is used up.
func (g *prober) over() bool { return !g.p.v.Now().Before(g.deadline) }

// ready makes sure of a bench with the whole change in it.
func (g *prober) ready(ctx context.Context) error {
	if g.bench != nil {
		return nil
	}
	head, err := g.p.builtOf(ctx, g.p.job.Changes, nil, g.rec)
	if err != nil {
		return err
	}
	if head.once { // while the bench is open
		g.p.keepBuilt(head.digest, head)
	}
	b, err := g.p.v.open(ctx, "guard", head.snapshot, false)
	if err != nil {
		return err
	}
	g.bench, b.build = b, head.digest
	if err := place(ctx, b.box.Guest(), g.p.job.Changes); err != nil {
		return err
	}
	if _, err := g.p.v.age(ctx, b.box.Guest(), request{place: g.p.job.Changes, plan: g.p.plan, parts: &g.p.parts, built: head.placed}); err != nil {
		return err
	}
	if g.normal > 0 {
		return nil
	}
	r, err := g.run(ctx, nil, g.p.declaredPlaces(), g.p.v.timeout())
	g.normal = time.Duration(r.millis) * time.Millisecond
	return err
}

func (g *prober) run(ctx context.Context, placed []git.Change, where []Place, limit time.Duration) (ran, error) {
	r, err := g.bench.run(ctx, request{
		snapshot: g.p.job.Snapshot, purpose: "guard", place: placed, plan: g.p.plan, places: where,
		files: overlay(g.p.parts.files, g.p.job.Changes), cgo: cgoMark(g.p.job.Snapshot.Base, replaced(g.p.job.Changes, placed)),
	}, limit)
	g.rec.Runs = append(g.rec.Runs, r.records...)
	maps.Copy(g.cells, g.p.cells(r))
	g.took += r.millis
	return r, err
}

func (g *prober) end(ctx context.Context) error {
	if g.bench == nil {
		return nil
	}
	b := g.bench
	g.bench = nil
	return b.close(ctx, "guard")
}

// try runs the tests with some files altered.
func (g *prober) try(ctx context.Context, altered []git.Change) (outcome task.ProbeOutcome, by string, err error) {
	if g.over() {
		return task.NotTried, "", nil
	}
	if err := g.ready(ctx); err != nil {
		return task.NotTried, "", err
	}
	limit := min(max(probeLimit, probeSlowdown*g.normal), max(g.deadline.Sub(g.p.v.Now())+g.normal, 2*g.normal))
	g.cells, g.took = map[string]cell{}, 0
	r, err := g.run(ctx, altered, g.p.declaredPlaces(), limit)
	if err != nil {
		return task.NotTried, "", err
	}
	outcome, by = g.judgeDeclared(r)
	if outcome == task.Survived {
		left := g.deadline.Sub(g.p.v.Now())
		if suite := time.Duration(g.p.suiteMillis) * time.Millisecond; suite > left {
			outcome = task.Unjudged
		} else if r, err = g.run(ctx, nil, nil, max(probeLimit, probeSlowdown*suite)); err != nil {
			return task.NotTried, "", err
		} else {
			outcome, by = g.judgeSuite(r)
		}
	}
	if r.timedOut {
		return outcome, by, g.end(ctx) // whatever hung may still be there
	}
	return outcome, by, g.restore(ctx, altered)
}

// restore brings the altered files back to what the change made of them.
func (g *prober) restore(ctx context.Context, altered []git.Change) error {
	var back []git.Change
	for _, a := range altered {
		i := slices.IndexFunc(g.p.job.Changes, func(c git.Change) bool { return c.Path == a.Path })
		back = append(back, g.p.job.Changes[i])
	}
	return place(ctx, g.bench.box.Guest(), back)
}

func (g *prober) judgeDeclared(r ran) (task.ProbeOutcome, string) {
	for _, t := range g.p.facts.Tests {
		c, there := r.cases[t.Test]
		switch {
		case there && c.Status == task.Pass:
		case there && c.Status == task.Fail:
			return task.Caught, t.Test
		default:
			return task.Broken, ""
		}
	}
	return task.Survived, ""
}

// judgeSuite looks for a test that passes with the whole change and fails now.
func (g *prober) judgeSuite(r ran) (task.ProbeOutcome, string) {
	if r.timedOut || len(r.buildFailed) > len(g.p.job.Baseline.BuildFailed) {
		return task.Broken, ""
	}
	for _, id := range sortedKeys(g.p.suiteSaw) {
		if !g.p.headPassed(id) || g.p.job.Baseline.Tests[id] == task.Flaky || slices.Contains(g.p.verdict.Suite.Flaky, id) {
			continue
		}
		c, there := r.cases[id]
		switch {
		case there && c.Failed():
			return task.Caught, id
		case !there:
			return task.Broken, ""
		}
	}
	return task.Survived, ""
}

// undone is the file without some of its hunks.
func (f changedFile) undone(hunks ...mutate.Hunk) git.Change {
	if len(hunks) == len(mutate.Hunks(f.old, f.change.Content)) && f.old == nil {
		return git.Change{Path: f.change.Path, Deleted: true}
	}
	mode := f.change.Mode
	if mode == 0 {
		mode = git.ModeFile // it was deleted
	}
	return git.Change{Path: f.change.Path, Mode: mode, Content: mutate.Revert(f.old, f.change.Content, hunks...)}
}

// hunks reverts each hunk alone, and those that nothing needs all together.
func (g *prober) hunks(ctx context.Context, files []changedFile, guard *task.Guard) error {
	unneeded := map[int][]mutate.Hunk{}
	var found []task.Finding
	for i, f := range files {
		for _, h := range f.hunks {
			pr := task.Probe{Path: f.change.Path, Line: max(h.NewStart, 1), What: "reverted", Outcome: task.NotTried}
			var err error
			if len(guard.Hunks) < maxHunks {
				if pr.Outcome, pr.By, err = g.try(ctx, []git.Change{f.undone(h)}); err != nil {
					return err
				}
			}
			guard.Hunks = append(guard.Hunks, pr)
			g.p.probed(pr, g.cells, g.took)
			if pr.Outcome == task.Survived {
				unneeded[i] = append(unneeded[i], h)
				found = append(found, task.Finding{
					Kind: "unneeded", Severity: "info", Path: pr.Path, Line: pr.Line,
					Detail: "without this part every test passes as well: it can go, or a test for it is missing",
					Old:    text(f.old, h.OldStart, h.OldLines), New: text(f.change.Content, h.NewStart, h.NewLines),
				})
			}
		}
	}
	if len(found) == 0 || len(found) == len(guard.Hunks) {
		return nil // all of it cannot go, since the tests fail on the base
	}
	p := g.p
	p.verdict.Findings = append(p.verdict.Findings, found...)
	var without []git.Change
	for i, hs := range unneeded {
		without = append(without, files[i].undone(hs...))
	}
	slices.SortFunc(without, func(a, b git.Change) int { return strings.Compare(a.Path, b.Path) })
	outcome, _, err := g.try(ctx, without)
	if outcome == task.Survived {
		guard.Note = join(guard.Note, fmt.Sprintf("verified again without %s that no test needs: all is green (tree %s)", plural(len(found), "part"), treeDigest(p.job.Snapshot.Base, replaced(p.job.Changes, without))))
	}
	return err
}

func replaced(changes, by []git.Change) []git.Change {
	out := slices.Clone(changes)
	for i, c := range out {
		if j := slices.IndexFunc(by, func(b git.Change) bool { return b.Path == c.Path }); j >= 0 {
			out[i] = by[j]
		}
	}
	return out
}

// text is some lines of a file, for a finding.
func text(b []byte, from, n int) string {
	lines := strings.SplitAfter(string(b), "\n")
	from = min(max(from-1, 0), len(lines))
	return tail(strings.Join(lines[from:min(from+n, len(lines))], ""), 1000)
}

// mutants alters the changed lines one place at a time.
func (g *prober) mutants(ctx context.Context, files []changedFile, guard *task.Guard) error {
	lines := 0
	for _, f := range files {
		lines += len(f.lines)
	}
	limit := min(max(minMutants, lines), maxMutants)
	for _, f := range files {
		if f.change.Deleted {
			continue
		}
		share := int(math.Ceil(float64(limit) * float64(len(f.lines)) / float64(max(lines, 1))))
		for _, m := range mutate.Mutants(f.change.Path, f.change.Content, f.lines, share) {
			if len(guard.Mutants) == limit {
				return nil
			}
			pr := task.Probe{Path: f.change.Path, Line: m.Line, What: m.Operator, Old: tail(m.Old, 200), New: tail(m.New, 200)}
			var err error
			if pr.Outcome, pr.By, err = g.try(ctx, []git.Change{{Path: f.change.Path, Mode: f.change.Mode, Content: m.Text}}); err != nil {
				return err
			}
			guard.Mutants = append(guard.Mutants, pr)
			g.p.probed(pr, g.cells, g.took)
		}
	}
	return nil
}

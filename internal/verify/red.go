package verify

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// proof is one verification under way.
type proof struct {
	v        *Verifier
	job      Job
	parts    parts
	plan     Plan
	facts    Facts
	verdict  task.Verdict
	placed   []git.Change     // on the base for red: Tests, and Configuration where they need it
	places   map[string]Place // of the declared tests, by id
	redSaw   map[string]Case  // first red result by id
	reds     []ran            // the runs that showed which tests fail on the base: several where none did at first
	headSaw  map[string]Case  // first green result by id
	suiteSaw map[string]Case  // the suite's run with the change

	suiteMillis int64 // what that took

	columns []*column // the runs so far, for the table
	racing  bool      // the declared tests run under the race detector

	once   bool             // nothing is run twice: nothing is built for several runs
	builds map[string]built // by tree
}

// redRuns is how often a reproduction is run on the base in a full verification, and how often
// where its runs disagree.
const (
	redRuns      = 3
	greenRuns    = 3
	raceRuns     = 10
	maxGreenRuns = 15
)

func (v *Verifier) newProof(job Job) (*proof, error) {
	p := &proof{v: v, job: job, places: map[string]Place{}, redSaw: map[string]Case{}, headSaw: map[string]Case{}}
	b := job.Baseline
	p.facts = Facts{NoChange: len(job.Changes) == 0, Blocked: b.Blocked, Hang: job.Hang}
	p.verdict = task.Verdict{
		Base: job.Snapshot.Base, HeadTree: job.HeadTree, Environment: b.Environment, Verifier: Version,
		Runner: b.Runner, Phases: slices.Clone(b.Phases),
		Suite: task.SuiteResult{BaselineFailed: b.Failed(), Command: b.Command()},
	}
	if b.Base != "" && b.Base != job.Snapshot.Base {
		return nil, &task.Error{Class: task.Internal, Msg: fmt.Sprintf("the baseline is of commit %.12s, the change is on %.12s", b.Base, job.Snapshot.Base)}
	}
	if p.facts.NoChange || p.facts.Blocked != "" {
		return p, nil
	}
	start := v.Now()
	var err error
	if p.parts, err = v.split(job); err != nil {
		return nil, err
	}
	if p.plan, err = v.planFor(job, p.parts); err != nil {
		return nil, err
	}
	p.facts.ExitCodes = p.plan.exitCodes()
	if p.facts.Race = job.Race; job.Race {
		_, p.racing = p.plan.racing()
	}
	if len(p.plan.Suites) == 0 {
		p.scripts()
	}
	p.verdict.Tests, p.verdict.Source, p.verdict.Config = paths(p.parts.tests), paths(p.parts.source), paths(p.parts.config)
	p.verdict.Findings = p.parts.tamper.Task()
	if p.verdict.Runner == "" || len(b.Plan.Suites) == 0 {
		p.verdict.Runner = p.plan.Runner()
		p.verdict.Suite.Command = p.verdict.Runner
	}
	p.phase(task.PhaseRecord{
		Phase: "P2", Name: "split", Complete: true, Millis: v.Now().Sub(start).Milliseconds(),
		Note: fmt.Sprintf("%s, %s, %s", plural(len(p.parts.tests), "test file"), plural(len(p.parts.source), "source file"), plural(len(p.parts.config), "configuration file")),
	})
	return p, nil
}

func (p *proof) phase(r task.PhaseRecord) { p.verdict.Phases = append(p.verdict.Phases, r) }

// scripts makes a plan of the declared scripts where there is no test framework.
func (p *proof) scripts() {
	p.facts.NoFramework = true
	if notes := p.plan.Notes; len(notes) > 0 {
		p.facts.Looked = oneLine(notes[0], 300)
	}
	have := overlay(p.parts.files, p.job.Changes)
	for _, d := range p.job.Declared {
		d = path.Clean(strings.TrimPrefix(d, "./"))
		if _, ok := slices.BinarySearch(have, d); !ok {
			continue
		}
		// The oracle is part of the tests whatever its name says.
		for _, from := range []*[]git.Change{&p.parts.source, &p.parts.config} {
			if i := slices.IndexFunc(*from, func(c git.Change) bool { return c.Path == d }); i >= 0 {
				p.parts.tests = append(p.parts.tests, (*from)[i])
				*from = slices.Delete(*from, i, i+1)
			}
		}
		run := map[string]string{".py": "python3 ", ".js": "node ", ".mjs": "node ", ".cjs": "node ", ".rb": "ruby ", ".pl": "perl "}[path.Ext(d)]
		if run == "" {
			run = "bash "
		}
		p.plan.Suites = append(p.plan.Suites, Suite{Kind: KindCustom, Dir: ".", Test: run + quote(fileArg(d)), Why: "declared as the test"})
	}
}

// red runs the declared tests on base + tests, n times, and fills the facts.
func (p *proof) red(ctx context.Context, n int) (task.PhaseRecord, error) {
	start := p.v.Now()
	rec := task.PhaseRecord{Phase: "P3", Name: "red"}
	p.placed = slices.Clone(p.parts.tests)
	err := p.redOn(ctx, n, &rec)
	if err == nil && len(p.parts.config) > 0 && p.needsConfig() {
		// A new fixture or dependency of the test may live in configuration.
		p.placed = append(p.placed, p.parts.config...)
		rec.Note = "the tests need the change's configuration: placed with them; "
		err = p.redOn(ctx, n, &rec)
	}
	rec.Tree = treeDigest(p.job.Snapshot.Base, p.placed)
	if said := p.repeated(); said != "" {
		p.job.progress("P3", said)
		rec.Note += said + "; "
	}
	rec.Note += "tests " + treeDigest("", p.parts.tests)
	rec.Millis = p.v.Now().Sub(start).Milliseconds()
	rec.Complete = err == nil
	return rec, err
}

func (p *proof) needsConfig() bool {
	for _, t := range p.facts.Tests {
		for _, s := range t.Red {
			if s.Status == task.Missing || s.failed() && (s.Cause == CauseBuild || s.Cause == CauseFixture || s.Cause == CauseSetup) {
				return true
			}
		}
	}
	return false
}

func (p *proof) redOn(ctx context.Context, n int, rec *task.PhaseRecord) error {
	where := scope(p.plan, p.job.Declared, p.parts, p.job.Baseline)
	if len(where) == 0 {
		where = nil
	}
	first, err := p.bench(ctx, "red", p.placed, where, rec)
	if err == nil && p.racing && noDetector.MatchString(first.output) {
		p.racing = false
		rec.Note = "the race detector does not work here: without it; "
		first, err = p.bench(ctx, "red", p.placed, where, rec)
	}
	if err != nil {
		return err
	}
	runs, err := p.untilFailing(ctx, n, first, where, rec)
	if err != nil {
		return err
	}
	for i := runs; i < n; i++ {
		if k, _ := decideRed(p.facts); k != "" && k != task.FlakyRepro {
			return nil // more runs would not change it
		}
		if err := p.again(ctx, rec); err != nil {
			return err
		}
	}
	if n == 1 {
		return nil
	}
	for len(p.facts.Tests) > 0 && len(p.facts.Tests[0].Red) < raceRuns && p.mixed() {
		if err := p.again(ctx, rec); err != nil {
			return err
		}
	}
	return nil
}

// noDetector recognises a tool chain that cannot build for the race detector.
var noDetector = regexp.MustCompile(`-race requires cgo|-race is (?:not supported|only supported)|C compiler "[^"]*" not found|cgo: .*executable file not found`)

// mixed reports whether some test both passed and failed on the base.
func (p *proof) mixed() bool {
	return slices.ContainsFunc(p.facts.Tests, func(t TestFacts) bool {
		rate, _ := rates(t.Red)
		return rate > 0 && rate < 1
	})
}

// again runs the identified tests once more on base + tests.
func (p *proof) again(ctx context.Context, rec *task.PhaseRecord) error {
	r, err := p.bench(ctx, "red", p.placed, p.declaredPlaces(), rec)
	if err != nil {
		return err
	}
	p.mark(true, false)
	for i := range p.facts.Tests {
		t := &p.facts.Tests[i]
		t.Red = append(t.Red, p.see(r, t.Test, true))
	}
	return nil
}

func (p *proof) declaredPlaces() []Place {
	out := []Place{}
	for _, t := range p.facts.Tests {
		if pl, ok := p.places[t.Test]; ok {
			out = append(out, pl)
		}
	}
	return out
}

func (p *proof) bench(ctx context.Context, purpose string, placed []git.Change, where []Place, rec *task.PhaseRecord) (ran, error) {
	plan := p.planOf(rec.Phase, where)
	needs := where
	if purpose == "green" {
		needs = nil // the suite's run needs all of it
	}
	b, err := p.builtOf(ctx, placed, needs, rec)
	if err != nil {
		return ran{}, err
	}
	r, err := p.v.run(ctx, request{
		snapshot: b.snapshot, purpose: purpose, place: placed, plan: plan, places: where,
		files: overlay(p.parts.files, placed), parts: &p.parts, built: b.placed, digest: b.digest, cgo: cgoMark(p.job.Snapshot.Base, placed),
	})
	if b.once {
		err = errors.Join(err, b.drop())
	}
	rec.Runs = append(rec.Runs, r.records...)
	p.saw(rec, purpose, where, r)
	if r.info.Runtime != "" {
		p.verdict.Sandbox = task.Isolation{Runtime: r.info.Runtime, Isolation: r.info.Isolation, Profile: r.info.Profile}
	}
	return r, err
}

// planOf is how a run is made: what shows the bug or its end runs under the race detector, where there
// is one; what is held against the base's ledger runs as that did. A race that the base has always
// had must neither speak against the change nor for it.
func (p *proof) planOf(phase string, where []Place) Plan {
	plan := p.plan
	if p.racing && where != nil && (phase == "P3" || phase == "P4") {
		plan, _ = plan.racing()
	}
	return plan
}

// identify turns what the agent declared into stable ids, from the red runs so far: one, where
// something fails in it.
func (p *proof) identify(runs []ran) {
	p.facts.Tests, p.facts.Undeclared, p.facts.RedRuns = nil, false, len(runs)
	p.reds = runs
	r := merged(runs)
	if len(p.job.Declared) == 0 {
		p.identifyUndeclared(r)
		return
	}
	seen := map[string]bool{}
	for i, d := range p.job.Declared {
		if p.facts.NoFramework {
			p.identifyScript(r, d)
			continue
		}
		found := resolve(d, r.cases)
		ids := slices.DeleteFunc(slices.Clone(found.ids), func(id string) bool { return !r.cases[id].Failed() })
		if len(ids) == 0 {
			ids = found.ids // none fails: the table says so
		}
		if parent, ok := parentOf(d); ok && len(ids) == 0 { // it ended before it came to this one
			ids = slices.DeleteFunc(slices.Clone(resolve(parent, r.cases).ids), func(id string) bool { return !r.cases[id].Failed() })
		}
		if len(ids) == 0 {
			p.facts.Tests = append(p.facts.Tests, p.unidentified(r, i, d, found))
			continue
		}
		for _, id := range ids {
			if !seen[id] {
				seen[id] = true
				p.note(r, id)
			}
		}
	}
}

// withFile is the place with the file named, where the runner did not say it and the change's
// tests do.
func withFile(pl Place, tests []git.Change) Place {
	if pl.File != "" || pl.Name == "" {
		return pl
	}
	for _, c := range tests {
		module := strings.ReplaceAll(strings.TrimSuffix(c.Path, ".py"), "/", ".")
		if strings.HasSuffix(c.Path, ".py") && (pl.Group == module || strings.HasPrefix(pl.Group, module+".")) {
			pl.File = c.Path
		}
		stem := strings.TrimSuffix(c.Path, path.Ext(c.Path))
		if class := strings.ReplaceAll(pl.Group, ".", "/"); class != "" && path.Ext(c.Path) != "" && (stem == class || strings.HasSuffix(stem, "/"+class)) {
			pl.File = c.Path
		}
	}
	return pl
}

// note takes an identified test into the facts.
func (p *proof) note(r ran, id string) {
	p.places[id], p.redSaw[id] = r.cases[id].Place, r.cases[id]
	p.places[id] = withFile(p.places[id], p.parts.tests)
	t := TestFacts{Test: id}
	for _, run := range p.reds {
		t.Red = append(t.Red, p.see(run, id, true))
	}
	p.facts.Tests = append(p.facts.Tests, t)
}

func (p *proof) identifyScript(r ran, declared string) {
	for i, s := range p.plan.Suites {
		if strings.HasSuffix(s.Test, " "+quote(fileArg(path.Clean(declared)))) {
			id := s.Test
			p.note(r, id)
			p.places[id] = Place{Suite: i, File: path.Clean(declared), Name: id}
			return
		}
	}
	p.facts.Tests = append(p.facts.Tests, TestFacts{Test: declared, Red: []Seen{{
		Status:  task.Missing,
		Message: "no test framework was found" + looked(p.facts.Looked) + ", and it is not the path of a script in the change",
	}}})
}

// unidentified is a declared test without any result: it did not build, did not end, or does
// not exist.
func (p *proof) unidentified(r ran, i int, declared string, found resolved) TestFacts {
	t := TestFacts{Test: declared}
	names := goNames([]string{declared})
	for _, c := range p.parts.tests {
		if pl := (Place{Suite: owningSuite(p.plan, c.Path), File: c.Path}); pl.Suite >= 0 && testIn(c, declared) {
			if p.plan.Suites[pl.Suite].Kind == KindGo && len(names) > 0 {
				pl.Name = names[0]
			}
			p.places[declared] = pl
		}
	}
	if what, broken := hadTrouble(r, declared, p.parts); broken {
		message := what + " does not build or import"
		for _, problem := range r.problems {
			if strings.Contains(problem, what) {
				message = oneLine(problem, 300)
				break
			}
		}
		p.redSaw[declared] = Case{ID: declared, Status: task.Errored, Message: message, Output: r.output}
		t.Red = []Seen{{Status: task.Errored, Cause: loadCause(message), Message: message}}
		return t
	}
	if r.timedOut {
		c := Case{ID: declared, Status: task.Timeout, Message: "did not end in time", Signature: "timeout", Output: r.output}
		p.redSaw[declared] = c
		t.Red = []Seen{{Status: c.Status, Signature: c.Signature, Message: c.Message, Cause: causeOf(c, p.job.Hang)}}
		return t
	}
	known := map[string]bool{}
	for id := range p.job.Baseline.Tests {
		known[id] = true
	}
	for id := range r.cases {
		known[id] = true
	}
	for _, c := range p.parts.tests {
		for _, m := range definedTest.FindAllStringSubmatch(string(c.Content), 500) {
			known[c.Path+"::"+m[1]+m[2]] = true
		}
	}
	t.Near = nearest(idWords(declared), sortedKeys(known))
	t.Red = []Seen{{Status: task.Missing, Message: whyMissing(r)}}
	return t
}

var definedTest = regexp.MustCompile(`(?m)^func (Test\w+)\(|^\s*(?:async )?def (test\w*)\(`)

// testIn reports whether the last word of the declared id is in the file.
func testIn(c git.Change, declared string) bool {
	words := idWords(declared)
	return len(words) > 0 && strings.Contains(string(c.Content), words[len(words)-1])
}

// identifyUndeclared takes the tests that fail on base + tests and did not fail in the same way
// before; without any, those that did, since a change may fix a test that is there already. Of
// either, those that fail for the right reason go first: a change may well bring a test of
// something new beside the one that shows the bug. Which of them pass with the change is known
// after the green run.
func (p *proof) identifyUndeclared(r ran) {
	var fresh, right, old, oldRight []string
	for _, id := range sortedKeys(r.cases) {
		c := r.cases[id]
		if !c.Failed() || c.Place.Name == "" || p.job.Baseline.Tests[id] == task.Flaky {
			continue
		}
		if parent, ok := parentOf(id); ok && r.cases[parent].Failed() {
			continue // the parent speaks for it
		}
		shows := causeOf(c, p.job.Hang) == CauseRight
		switch was, known := p.job.Baseline.Signatures[id]; {
		case known && was == c.Signature && shows:
			oldRight = append(oldRight, id)
		case known && was == c.Signature:
			old = append(old, id)
		case shows:
			right = append(right, id)
		default:
			fresh = append(fresh, id)
		}
	}
	for _, ids := range [][]string{right, fresh, oldRight, old} {
		if len(ids) > 0 {
			for _, id := range ids {
				p.note(r, id)
			}
			break
		}
	}
	if len(p.facts.Tests) == 0 && len(r.buildFailed) > 0 {
		message := r.buildFailed[0] + " does not build or import"
		p.facts.Tests = []TestFacts{{Test: r.buildFailed[0], Red: []Seen{{Status: task.Errored, Cause: CauseBuild, Message: message}}}}
		return
	}
	p.facts.Undeclared = len(p.facts.Tests) == 0
	if p.facts.Undeclared && r.timedOut {
		p.facts.OutOfTime = p.outOfTime(r, "on the base")
	}
}

// see is one test's result in one run, with what its absence means.
func (p *proof) see(r ran, id string, red bool) Seen {
	c, ok := r.cases[id]
	if ok && c.Status == task.Missing && slices.Contains(r.buildFailed, id) {
		ok = false // its program is not there: what keeps it from being built says why
	}
	if ok && c.Status == task.Missing && r.timedOut {
		c = Case{Status: task.Timeout, Signature: "timeout", Message: "did not end in time", Output: c.Output}
	}
	if !ok {
		switch what, broken := hadTrouble(r, id, p.parts); {
		case broken:
			s := Seen{Status: task.Errored, Signature: "build", Message: oneLine(what+" does not build or import: "+strings.Join(r.problems, "; "), 300)}
			if red {
				s.Cause = loadCause(s.Message)
			}
			return s
		case r.timedOut:
			c = Case{Status: task.Timeout, Signature: "timeout", Message: "did not end in time"}
		default:
			return Seen{Status: task.Missing, Message: whyMissing(r)}
		}
	}
	s := Seen{Status: c.Status, Signature: c.Signature, Message: oneLine(c.Message, 300)}
	if red && c.Failed() {
		s.Cause = causeOf(c, p.job.Hang)
	}
	return s
}

package verify

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestGuard: what P6 finds out about changes that all pass the rows before.
func TestGuard(t *testing.T) {
	needCommand(t, "/usr/bin/python3", "-m", "pytest", "--version")
	needCommand(t, "node", "--version")
	needCommand(t, "go", "version")
	for _, c := range []struct {
		name     string
		sample   string
		base     []string
		change   []string
		declared string
		guard    time.Duration
		want     task.VerdictKind
		reason   string
		hunks    string // outcomes in order
		coverage string
		finding  string
		note     string
	}{
		{name: "a fix that its test holds", sample: "guard.txtar", change: []string{"test", "fix"}, declared: "test_net", want: task.Verified, hunks: "caught"},
		{
			name: "a part that nothing needs", sample: "guard.txtar", change: []string{"test", "more"}, declared: "test_net", want: task.Verified, hunks: "caught survived",
			finding: "without this part every test passes", note: "verified again without 1 part",
		},
		{name: "a test that looks at little", sample: "guard.txtar", change: []string{"shallow", "wide"}, declared: "test_net", want: task.VerifiedWeak, reason: "small mutants of the changed lines go unnoticed", hunks: "caught"},
		{name: "no time", sample: "guard.txtar", change: []string{"test", "fix"}, declared: "test_net", guard: time.Nanosecond, want: task.Verified, hunks: "not_tried", note: "partial"},
		{name: "Go", sample: "go.txtar", change: []string{"test", "fix"}, declared: "TestCoupon", want: task.Verified, hunks: "caught", coverage: "go test -cover"},
		{name: "Node", sample: "node.txtar", change: []string{"test", "fix"}, declared: "takes a share off", want: task.Verified, hunks: "caught", coverage: "V8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := context.Background()
			v, lab := newVerifier(t, Settings{Timeout: 2 * time.Minute, Guard: c.guard})
			s := loadSample(t, c.sample)
			snap := s.snapshot(t, "base")
			base, err := v.Baseline(ctx, snap, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := v.Verify(ctx, Job{Snapshot: snap, HeadTree: "tree", Changes: s.changes(t, c.change...), Declared: []string{c.declared}, Baseline: base})
			if err != nil {
				t.Fatal(err)
			}
			if got.Kind != c.want || !strings.Contains(got.Reason, c.reason) || got.Guard == nil {
				t.Fatalf("%s: %s, want %s: …%s…\n%s", got.Kind, got.Reason, c.want, c.reason, show(got))
			}
			var hunks []string
			for _, h := range got.Guard.Hunks {
				hunks = append(hunks, string(h.Outcome))
			}
			if strings.Join(hunks, " ") != c.hunks {
				t.Errorf("hunks %v, want %s\n%s", hunks, c.hunks, show(got))
			}
			if cov := got.Guard.Coverage; c.coverage != "" && (cov == nil || cov.Tool != c.coverage || cov.Run == 0 || cov.Run > cov.Lines) {
				t.Errorf("coverage %+v", cov)
			}
			if !strings.Contains(show(got), c.finding) || !strings.Contains(got.Guard.Note, c.note) {
				t.Errorf("no %q, or no %q in the note %q\n%s", c.finding, c.note, got.Guard.Note, show(got))
			}
			if c.guard == 0 && (!got.Guard.Complete || len(got.Guard.Mutants) == 0) {
				t.Errorf("not all was tried: %+v", got.Guard)
			}
			if n := len(got.Guard.Mutants) + len(hunks); strings.Count(strings.Join(lab.runs, " "), "guard") > 1 || n > maxMutants+maxHunks {
				t.Errorf("%d probes in benches %v", n, lab.runs)
			}
		})
	}
}

// TestProbesAreUndone: after a probe the bench holds the whole change again.
func TestProbesAreUndone(t *testing.T) {
	needCommand(t, "/usr/bin/python3", "-m", "pytest", "--version")
	ctx := context.Background()
	v, _ := newVerifier(t, Settings{})
	s := loadSample(t, "guard.txtar")
	snap := s.snapshot(t, "base")
	base, err := v.Baseline(ctx, snap, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := v.newProof(Job{Snapshot: snap, Changes: s.changes(t, "test", "fix"), Declared: []string{"test_net"}, Baseline: base})
	if err != nil {
		t.Fatal(err)
	}
	p.facts.Tests = []TestFacts{{Test: "test_price.py::test_net"}}
	p.places["test_price.py::test_net"] = Place{File: "test_price.py", Name: "test_net"}
	g := &prober{p: p, rec: &task.PhaseRecord{}, deadline: v.Now().Add(time.Hour), cells: map[string]cell{}}
	defer func() {
		if err := g.end(ctx); err != nil {
			t.Error(err)
		}
	}()
	for _, f := range []struct {
		altered git.Change
		want    task.ProbeOutcome
	}{
		{git.Change{Path: "price.py", Mode: git.ModeFile, Content: []byte("def net(a, b):\n    return 7\n\n\ndef gross(a):\n    return a\n")}, task.Caught},
		{git.Change{Path: "price.py", Deleted: true}, task.Broken},
		{git.Change{Path: "price.py", Mode: git.ModeFile, Content: s.changes(t, "fix")[0].Content}, task.Survived},
	} {
		if got, by, err := g.try(ctx, []git.Change{f.altered}); err != nil || got != f.want || (got == task.Caught) != (by != "") {
			t.Errorf("%q: %s by %q, %v, want %s", f.altered.Content, got, by, err, f.want)
		}
	}
}

// TestUnjudged: what the whole suite was never asked about is no mutant that goes unnoticed.
func TestUnjudged(t *testing.T) {
	needCommand(t, "/usr/bin/python3", "-m", "pytest", "--version")
	ctx := context.Background()
	v, _ := newVerifier(t, Settings{})
	s := loadSample(t, "guard.txtar")
	snap := s.snapshot(t, "base")
	base, err := v.Baseline(ctx, snap, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := v.newProof(Job{Snapshot: snap, Changes: s.changes(t, "shallow", "wide"), Declared: []string{"test_net"}, Baseline: base})
	if err != nil {
		t.Fatal(err)
	}
	id := "test_price.py::test_net"
	p.facts.Tests, p.places[id] = []TestFacts{{Test: id}}, Place{File: "test_price.py", Name: "test_net"}
	p.suiteMillis = time.Hour.Milliseconds() // it takes longer than there is time for P6
	if err := p.probe(ctx); err != nil {
		t.Fatal(err)
	}
	g := p.verdict.Guard
	_, survived, _ := task.Counts(slices.Concat(g.Hunks, g.Mutants))
	if g.Unsure == 0 || g.Complete || survived != 0 || p.facts.Weak != "" || !strings.Contains(g.Note, "not judged, since there was no time to ask the whole suite") {
		t.Errorf("%d unsure, %d survived, weak: %q, note: %s", g.Unsure, survived, p.facts.Weak, g.Note)
	}
	rec := p.verdict.Phases[len(p.verdict.Phases)-1]
	if rec.Phase != "P6" || len(rec.Runs) < len(g.Mutants) || rec.Runs[0].Log == "" {
		t.Errorf("of %d probes there are %d commands on record", len(g.Hunks)+len(g.Mutants), len(rec.Runs))
	}
}

func TestWeakness(t *testing.T) {
	probes := func(outcomes ...task.ProbeOutcome) []task.Probe {
		out := make([]task.Probe, len(outcomes))
		for i, o := range outcomes {
			out[i].Outcome = o
		}
		return out
	}
	for name, c := range map[string]struct {
		guard task.Guard
		want  string
	}{
		"most go unnoticed":                {task.Guard{Mutants: probes(task.Survived, task.Survived, task.Caught)}, "2 of 3 small mutants"},
		"the others were never judged":     {task.Guard{Mutants: probes(task.Survived, task.Unjudged, task.Unjudged, task.Unjudged, task.Caught, task.Caught)}, ""},
		"too few were judged":              {task.Guard{Mutants: probes(task.Survived, task.Survived, task.Unjudged)}, ""},
		"no part is missed":                {task.Guard{Hunks: probes(task.Survived, task.Survived)}, "each part"},
		"of one part it is not known":      {task.Guard{Hunks: probes(task.Survived, task.Unjudged)}, ""},
		"one part was not tried":           {task.Guard{Hunks: probes(task.Survived, task.NotTried)}, ""},
		"one part is missed, or no longer": {task.Guard{Hunks: probes(task.Survived, task.Broken)}, ""},
	} {
		if got := weakness(c.guard); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestCoverageReports(t *testing.T) {
	h := hits{}
	goProfile([]byte("mode: set\nexample.com/m/a/b.go:3.10,5.2 2 1\nexample.com/m/a/b.go:7.1,7.9 1 0\nexample.com/other/x.go:1.1,2.2 1 1\nnonsense\n"), Suite{Dir: "sub", Module: "example.com/m"}, h)
	if len(h) != 1 || h["sub/a/b.go"][4] != 1 || h["sub/a/b.go"][7] != 0 || len(h["sub/a/b.go"]) != 4 {
		t.Errorf("Go: %v", h)
	}
	h = hits{}
	coverageJSON([]byte(`{"meta":{"format":3,"version":"7.6.0"},"files":{"price.py":{"executed_lines":[1,2],"missing_lines":[4]}}}`), Suite{Dir: "."}, h)
	if h["price.py"][2] != 1 || len(h["price.py"]) != 3 {
		t.Errorf("coverage.py: %v", h)
	}
	h = hits{}
	text := "// 😀\nfunction f(a) {\n  if (a) {\n    return 1;\n  }\n  return 2;\n}\nf(0);\n"
	v8Coverage([]byte(`{"result":[{"url":"node:fs","functions":[]},{"url":"file:///w/a.js","functions":[`+
		`{"functionName":"","ranges":[{"startOffset":0,"endOffset":73,"count":1}]},{"functionName":"f","ranges":[{"startOffset":6,"endOffset":66,"count":1},{"startOffset":31,"endOffset":50,"count":0}]}]}]}`),
		"/w", map[string][]byte{"a.js": []byte(text)}, h)
	if h["a.js"][4] != 0 || h["a.js"][6] != 1 || h["a.js"][8] != 1 {
		t.Errorf("V8: %v", h)
	}
	for _, bad := range []string{"", "{", "[]", "null", "\xff"} {
		goProfile([]byte(bad), Suite{}, h)
		coverageJSON([]byte(bad), Suite{}, h)
		v8Coverage([]byte(bad), "/w", nil, h)
	}
	c := count(hits{"a.go": {1: 1, 2: 0, 3: 0}}, []changedFile{{change: git.Change{Path: "a.go"}, lines: map[int]bool{2: true, 3: true, 9: true}}}, "x")
	if c.Lines != 2 || c.Run != 0 || c.Missed != "a.go:2, a.go:3" {
		t.Errorf("%+v", c)
	}
	if weakness(task.Guard{Coverage: c}) == "" || weakness(task.Guard{}) != "" {
		t.Error("lines that do not run are not weak, or nothing is")
	}
}

// TestOrderDependence: a test that fails only after another one of the change is no flake.
func TestOrderDependence(t *testing.T) {
	needCommand(t, "/usr/bin/python3", "-m", "pytest", "--version")
	ctx := context.Background()
	v, lab := newVerifier(t, Settings{Guard: -1})
	s := loadSample(t, "guard.txtar")
	snap := s.snapshot(t, "base", "shared")
	base, err := v.Baseline(ctx, snap, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := v.Verify(ctx, Job{Snapshot: snap, Changes: s.changes(t, "pollutes", "fix"), Declared: []string{"test_net"}, Baseline: base})
	if err != nil || got.Kind != task.Regression || !strings.Contains(got.Reason, "test_rate") || !strings.Contains(got.Reason, "depends on other tests") {
		t.Errorf("%s: %s, %v after %v", got.Kind, got.Reason, err, lab.runs)
	}
}

func TestRaceDetector(t *testing.T) {
	p := Plan{Suites: []Suite{{Kind: KindGo, Dir: ".", Module: "m"}, {Kind: KindPytest}}}
	racing, ok := p.racing()
	if !ok || p.Suites[0].Race || racing.Suites[1].Race {
		t.Fatalf("%+v of %+v", racing, p)
	}
	c := racing.commands(0, []Place{{Group: "m/a", Name: "TestX"}}, nil, "/tmp/r")
	if len(c) != 1 || !strings.Contains(c[0].shell, "go test -json -vet=off -count=1 -race -run") || c[0].human != "go test -race -run '^TestX$' ./a" {
		t.Errorf("%+v", c)
	}
	if _, ok := (Plan{Suites: p.Suites[1:]}).racing(); ok {
		t.Error("pytest has a race detector")
	}
	run := proof{plan: p, racing: true}
	for phase, want := range map[string]bool{"P3": true, "P4": true, "P5": false, "P7": false} {
		if got := run.planOf(phase, []Place{{}}).Suites[0].Race; got != want {
			t.Errorf("%s under the race detector: %v", phase, got)
		}
	}
	if run.planOf("P3", nil).Suites[0].Race {
		t.Error("the whole suite runs under the race detector")
	}
	for _, s := range []string{
		"go: -race requires cgo; enable cgo by setting CGO_ENABLED=1", "go: -race is only supported on linux/amd64, linux/ppc64le",
		"cgo: C compiler \"gcc\" not found: exec: \"gcc\": executable file not found in $PATH",
	} {
		if !noDetector.MatchString(s) {
			t.Errorf("not recognised: %s", s)
		}
	}
	if noDetector.MatchString("WARNING: DATA RACE\ntesting.go:1712: race detected during execution of test") {
		t.Error("a race is taken for a missing detector")
	}
	if got := causeOf(Case{Status: task.Fail, Message: "race detected during execution of test"}, false); got != CauseRight {
		t.Errorf("a race that was detected is %q", got)
	}
}

func TestChanceOfLuck(t *testing.T) {
	p := proof{facts: Facts{Tests: []TestFacts{{Test: "T", Red: []Seen{{Status: task.Fail}, {Status: task.Pass}, {Status: task.Fail}, {Status: task.Pass}}}}}}
	if got := p.chance(6); !strings.Contains(got, "50 % of 4 runs") || !strings.Contains(got, "0.016") {
		t.Error(got)
	}
}

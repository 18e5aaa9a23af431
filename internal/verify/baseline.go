package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Baseline runs phases P0 and P1: how the repository is tested, and what its suite says on the
// base commit, twice, and a third time where two runs differ. A repository whose tests cannot
// run is no error: Baseline.Blocked says why. progress may be nil.
func (v *Verifier) Baseline(ctx context.Context, s snapshot.Snapshot, progress func(phase, note string)) (Baseline, error) {
	if progress == nil {
		progress = func(string, string) {}
	}
	b := Baseline{Base: s.Base, Environment: s.Digest, Tests: map[string]task.TestStatus{}}
	start := v.Now()
	root, err := os.OpenRoot(s.Tree)
	if err != nil {
		return b, &task.Error{Class: task.Internal, Msg: "the base checkout cannot be opened", Err: err}
	}
	defer root.Close()
	progress("P0", "finding out how the tests are run")
	if b.Tools, err = v.probe(ctx, s); err != nil {
		return b, err
	}
	if b.Plan, err = Detect(root.FS(), b.Tools, v.Settings); err != nil {
		return b, err
	}
	b.Runner = b.Plan.Runner()
	notes := slices.Clone(b.Plan.Notes)
	for _, suite := range b.Plan.Suites {
		notes = append(notes, string(suite.Kind)+": "+suite.Why)
	}
	b.Phases = append(b.Phases, task.PhaseRecord{
		Phase: "P0", Name: "prepare", Tree: treeDigest(s.Base, nil),
		Note: strings.Join(notes, "; "), Millis: v.Now().Sub(start).Milliseconds(), Complete: true,
	})
	if len(b.Plan.Suites) == 0 {
		b.Phases = append(b.Phases, task.PhaseRecord{Phase: "P1", Name: "baseline", Note: "no test framework", Complete: true})
		return b, nil
	}
	list, err := files(root.FS())
	if err != nil {
		return b, &task.Error{Class: task.Internal, Msg: "the base checkout cannot be listed", Err: err}
	}
	return v.ledger(ctx, s, b, list, progress)
}

// ledger is P1.
func (v *Verifier) ledger(ctx context.Context, s snapshot.Snapshot, b Baseline, list []string, progress func(phase, note string)) (Baseline, error) {
	start := v.Now()
	phase := task.PhaseRecord{Phase: "P1", Name: "baseline", Tree: treeDigest(s.Base, nil)}
	done := func() Baseline {
		phase.Millis = v.Now().Sub(start).Milliseconds()
		b.Phases = append(b.Phases, phase)
		return b
	}
	var runs []ran
	for n := 1; n <= 3; n++ {
		progress("P1", fmt.Sprintf("the suite on the base, run %d", n))
		r, err := v.run(ctx, request{snapshot: s, purpose: "baseline", keepHome: n == 1, plan: b.Plan, files: list, build: true})
		phase.Runs = append(phase.Runs, r.records...)
		var broken *buildFailure
		if errors.As(err, &broken) {
			b.Blocked, b.Detail = "the build command fails on the base: "+v.Settings.Build, broken.output
			phase.Note = b.Blocked
			return done(), nil
		}
		if err != nil {
			return b, err
		}
		runs = append(runs, r)
		b.Sandbox = r.info.Runtime + " " + r.info.Isolation
		if b.SuiteMillis == 0 || r.millis < b.SuiteMillis {
			b.SuiteMillis = r.millis
		}
		if r.count(task.Pass, task.Fail, task.Timeout) == 0 {
			b.Blocked, b.Detail = blockedWhy(r, v.timeout()), r.output
			phase.Note = b.Blocked
			return done(), nil
		}
		if r.timedOut {
			// A suite that hangs would hang again: what ended before the limit is the ledger.
			phase.Note = fmt.Sprintf("the suite does not end within %s; the %d tests that ended are compared", v.timeout(), r.count(task.Pass, task.Fail))
			b.TimedOut = true
			break
		}
		if n == 2 && len(differing(runs)) == 0 {
			break
		}
	}
	b.settle(runs)
	if phase.Note == "" {
		phase.Note = fmt.Sprintf("%d tests, %d fail on the base, %d flicker", len(b.Tests), b.Failed()-len(b.Flickering), len(b.Flickering))
	}
	phase.Complete = !b.TimedOut
	return done(), nil
}

// settle turns the runs into the ledger.
func (b *Baseline) settle(runs []ran) {
	flicker := differing(runs)
	b.Signatures, b.Where = map[string]string{}, map[string]Place{}
	for _, r := range runs {
		for id, c := range r.cases {
			b.Tests[id], b.Where[id] = c.Status, c.Place
			if c.Failed() {
				b.Signatures[id] = c.Signature
			}
		}
		for _, f := range r.buildFailed {
			if !slices.Contains(b.BuildFailed, f) {
				b.BuildFailed = append(b.BuildFailed, f)
			}
		}
		for _, f := range r.incomplete {
			if !slices.Contains(b.Incomplete, f) {
				b.Incomplete = append(b.Incomplete, f)
			}
		}
	}
	for _, id := range flicker {
		b.Tests[id] = task.Flaky
	}
	b.Flickering = flicker
	for _, r := range runs {
		each := BaseRun{Millis: r.millis, Differ: map[string]task.TestStatus{}, Took: map[string]int64{}}
		for id, c := range r.cases {
			if c.Millis > 0 {
				each.Took[id] = c.Millis
			}
			if b.Tests[id] == task.Flaky {
				each.Differ[id] = c.Status
			}
		}
		b.Each = append(b.Each, each)
	}
	slices.Sort(b.BuildFailed)
	slices.Sort(b.Incomplete)
}

// differing lists the tests whose status is not the same in every run, sorted.
func differing(runs []ran) []string {
	seen := map[string]map[task.TestStatus]int{}
	for _, r := range runs {
		for id, c := range r.cases {
			if seen[id] == nil {
				seen[id] = map[task.TestStatus]int{}
			}
			seen[id][c.Status]++
		}
	}
	var out []string
	for id, statuses := range seen {
		n := 0
		for _, k := range statuses {
			n += k
		}
		if len(statuses) > 1 || n < len(runs) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

func blockedWhy(r ran, limit time.Duration) string {
	switch {
	case r.died:
		return "the sandbox died under the suite on the base, at a limit on memory, processes or space (sandbox.memory, pids, home_size and their like), and no test ended before that"
	case r.timedOut:
		return fmt.Sprintf("the suite does not end within %s on the base and no test ended before that", limit)
	case len(r.buildFailed) > 0:
		return "the base does not build or import: " + strings.Join(r.buildFailed[:min(3, len(r.buildFailed))], ", ")
	case len(r.problems) > 0:
		return "no test ran on the base: " + oneLine(r.problems[0], 200)
	case r.output != "":
		return "no test ran on the base: " + oneLine(lastLine(r.output), 200)
	}
	return "no test ran on the base"
}

// oneLine makes untrusted text one line of at most n bytes.
func oneLine(s string, n int) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}

// probe asks a bench what is installed. Nothing of the repository is run.
func (v *Verifier) probe(ctx context.Context, s snapshot.Snapshot) (t Tools, err error) {
	if v.Settings.Test != "" {
		return t, nil
	}
	box, err := v.Lab.Bench(ctx, "probe", s, false)
	if err != nil {
		return t, fmt.Errorf("sandbox for probe: %w", err)
	}
	defer func() {
		if e := box.Destroy(context.WithoutCancel(ctx)); e != nil && err == nil {
			err = fmt.Errorf("end a probe bench: %w", e)
		}
	}()
	if t.Programs, err = which(ctx, box.Guest()); err != nil {
		return t, err
	}
	modules := []string{
		"pytest", "pytest_cov", "xdist", "pytest_timeout", "pytest_asyncio", "pytest_benchmark", "pytest_flake8",
		"pytest_mypy", "pytest_black", "random_order", "pytest_rerunfailures", "pytest_html", "syrupy", "pytest_ruff",
	}
	// -I keeps modules of the work tree out of the answer.
	res, err := box.Guest().Exec(ctx, guest.ExecRequest{Argv: append([]string{
		"python3", "-I", "-c",
		"import sys, importlib.util as u\nprint(' '.join(m for m in sys.argv[1:] if u.find_spec(m)))",
	}, modules...), Timeout: time.Minute})
	if err != nil {
		return t, fmt.Errorf("ask what is installed: %w", err)
	}
	if res.ExitCode != 0 {
		return t, nil // no Python
	}
	for _, m := range strings.Fields(string(res.Head)) {
		if m == "pytest" {
			t.Pytest = true
		} else {
			t.Plugins = append(t.Plugins, m)
		}
	}
	return t, nil
}

// which lists the programs of [programs] that are on PATH.
func which(ctx context.Context, g *guest.Client) ([]string, error) {
	res, err := g.Exec(ctx, guest.ExecRequest{
		Argv:    append([]string{"bash", "-c", `for p in "$@"; do type -P "$p" >/dev/null && echo "$p"; done; true`, "bash"}, programs()...),
		Timeout: time.Minute,
	})
	if err != nil {
		return nil, fmt.Errorf("ask what is installed: %w", err)
	}
	out := strings.Fields(string(res.Head))
	slices.Sort(out)
	return out, nil
}

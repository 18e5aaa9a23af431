package verify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify/result"
)

const (
	keepOutput    = 256 << 10 // bytes of a command's output kept from each end
	maxReport     = 200 << 20 // bytes of one result file
	maxReports    = 5_000     // result files of one command
	maxLogReport  = 4 << 20   // bytes of a result file that go into the log
	maxCaseOutput = 6 << 10   // bytes of a test's output that go into a verdict
)

// Case is one test's result in one run.
type Case struct {
	ID        string
	Place     Place
	Status    task.TestStatus
	Message   string
	Frame     string
	Signature string
	Output    string
	Millis    int64
}

// Failed reports whether the test came to a bad end.
func (c Case) Failed() bool {
	return c.Status == task.Fail || c.Status == task.Errored || c.Status == task.Timeout
}

// ran is everything one run of some commands in one bench showed.
type ran struct {
	cases       map[string]Case
	buildFailed []string // packages, files or suites
	problems    []string
	incomplete  []string          // commands that ended well without a whole report
	silent      map[string]string // the file of those that ran one and saw no test
	timedOut    bool
	died        bool   // the bench died under a command; timedOut is set too
	output      string // tails of the commands that failed
	records     []task.RunRecord
	tree        string
	millis      int64
	info        sandbox.Info
}

func (r ran) count(status ...task.TestStatus) int {
	n := 0
	for _, c := range r.cases {
		if slices.Contains(status, c.Status) {
			n++
		}
	}
	return n
}

// request is one run in one fresh bench.
type request struct {
	snapshot snapshot.Snapshot
	purpose  string // "baseline", "red", "green"
	keepHome bool
	place    []git.Change // on top of the base
	plan     Plan
	places   []Place // nil: everything
	files    []string
	build    bool // run Settings.Build first and stop when it fails

	parts *parts    // of the change; nil where nothing is placed, or on top of a change
	cgo   string    // see [cgoMark]
	built time.Time // when what is placed was placed in the snapshot's own build of it; zero: it has none

	digest string // of that build
}

// buildFailure says that the build command failed; it is an outcome, not an error of ours.
type buildFailure struct{ output string }

func (e *buildFailure) Error() string { return "the build command failed" }

// bench is an open sandbox on the base.
type bench struct {
	v     *Verifier
	box   sandbox.Sandbox
	base  string
	build string // digest of the build that it began with
}

func (v *Verifier) open(ctx context.Context, purpose string, s snapshot.Snapshot, keepHome bool) (*bench, error) {
	box, err := v.Lab.Bench(ctx, purpose, s, keepHome)
	if err != nil {
		return nil, fmt.Errorf("sandbox for %s: %w", purpose, err)
	}
	return &bench{v: v, box: box, base: s.Base}, nil
}

// close ends the bench, even when the task was stopped.
func (b *bench) close(ctx context.Context, purpose string) error {
	if err := b.box.Destroy(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("end a %s bench: %w", purpose, err)
	}
	return nil
}

// run is one run in a fresh bench. Errors are the harness's own: a failing test is no error.
func (v *Verifier) run(ctx context.Context, q request) (out ran, err error) {
	b, err := v.open(ctx, q.purpose, q.snapshot, q.keepHome)
	if err != nil {
		return ran{}, err
	}
	defer func() { err = errors.Join(err, b.close(ctx, q.purpose)) }()
	b.build = q.digest
	return b.run(ctx, q, v.timeout())
}

// run places the change and runs the commands.
func (b *bench) run(ctx context.Context, q request, limit time.Duration) (out ran, err error) {
	v := b.v
	start := v.Now()
	out = ran{cases: map[string]Case{}, silent: map[string]string{}, tree: treeDigest(b.base, q.place), info: b.box.Info()}
	defer func() {
		for i := range out.records {
			out.records[i].Build = b.build
		}
	}()
	prefix, err := v.reportName()
	if err != nil {
		return out, err
	}
	g := b.box.Guest()
	if err := place(ctx, g, q.place); err != nil {
		return out, err
	}
	if _, err := v.age(ctx, g, q); err != nil {
		return out, err
	}
	deadline := start.Add(limit)
	if q.build && v.Settings.Build != "" {
		c := command{shell: v.Settings.Build, dir: ".", env: baseEnv(), human: v.Settings.Build}
		res, err := v.exec(ctx, g, c, deadline, &out)
		if err != nil {
			return out, err
		}
		if res.ExitCode != 0 || res.TimedOut {
			return out, &buildFailure{tail(output(res), maxCaseOutput)}
		}
	}
	for i := range q.plan.Suites {
		for _, c := range q.plan.commands(i, q.places, q.files, prefix+fmt.Sprint("-", i)) {
			if q.cgo != "" && q.plan.Suites[i].Kind == KindGo {
				c.shell = `export CGO_CPPFLAGS="${CGO_CPPFLAGS-} -D` + q.cgo + `"; ` + c.shell
			}
			if err := v.one(ctx, g, q.plan, c, deadline, &out); err != nil {
				return out, err
			}
		}
	}
	out.speakForChildren()
	out.millis = v.Now().Sub(start).Milliseconds()
	v.logger().DebugContext(ctx, "suite run", "purpose", q.purpose, "tests", len(out.cases), "failed", out.count(task.Fail, task.Errored, task.Timeout), "ms", out.millis)
	return out, nil
}

// parentOf is the id of the test that a subtest is part of.
func parentOf(id string) (string, bool) {
	if i := strings.LastIndex(id, " > "); i > 0 {
		return id[:i], true
	}
	if i := strings.LastIndexByte(id, '/'); i > strings.Index(id, "::") && strings.Contains(id, "::") {
		return id[:i], true
	}
	return "", false
}

// speakForChildren gives a failing parent what its failing subtests say: "not ok" alone is no
// evidence, and two runs that fail in different subtests do not fail alike.
func (r *ran) speakForChildren() {
	below := map[string][]string{}
	for id, c := range r.cases {
		if !c.Failed() {
			continue
		}
		for p, ok := parentOf(id); ok; p, ok = parentOf(p) {
			if r.cases[p].Failed() {
				below[p] = append(below[p], id)
			}
		}
	}
	own := maps.Clone(r.cases)
	for p, ids := range below {
		slices.Sort(ids)
		var messages, signatures []string
		for _, id := range ids {
			if len(below[id]) > 0 {
				continue // speaks for others itself
			}
			name := strings.TrimLeft(strings.TrimPrefix(id, p), "/> ")
			if len(messages) < 3 {
				messages = append(messages, name+": "+own[id].Message)
			}
			signatures = append(signatures, name+": "+own[id].Signature)
		}
		c := own[p]
		c.Message = strings.Join(messages, "\n")
		c.Signature = oneLine(strings.Join(signatures, "; "), 600)
		r.cases[p] = c
	}
}

// reportName is a path that code in the tree cannot know beforehand.
func (v *Verifier) reportName() (string, error) {
	b := make([]byte, 16)
	if _, err := io.ReadFull(v.Rand, b); err != nil {
		return "", fmt.Errorf("random name for result files: %w", err)
	}
	return sandbox.TempDir + "/r" + hex.EncodeToString(b), nil
}

// place puts the change on top of the base: deletions first, so that a directory can take the
// place of a file.
func place(ctx context.Context, g *guest.Client, changes []git.Change) error {
	for _, deleted := range []bool{true, false} {
		for _, c := range changes {
			if c.Deleted != deleted {
				continue
			}
			w := guest.WriteRequest{Path: c.Path, Force: true, Delete: deleted}
			if !deleted {
				w.Content, w.Mode, w.Link = c.Content, c.Mode&0o777, c.Mode == 0o120000
			}
			res, err := g.Write(ctx, w)
			if err != nil {
				return fmt.Errorf("place %q: %w", c.Path, err)
			}
			if !res.OK && !(deleted && res.Problem == "missing") {
				return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q cannot be placed in a clean checkout: %s", c.Path, res.Problem)}
			}
		}
	}
	return nil
}

func (v *Verifier) exec(ctx context.Context, g *guest.Client, c command, deadline time.Time, out *ran) (guest.ExecResult, error) {
	left := max(deadline.Sub(v.Now()), time.Second)
	res, err := g.Exec(ctx, guest.ExecRequest{
		Shell: c.shell, Dir: c.dir, Env: slices.Concat(c.env, v.Env),
		Timeout: left, Head: keepOutput, Tail: keepOutput,
	})
	if err != nil {
		return res, fmt.Errorf("run %q: %w", c.human, err)
	}
	if res.TimedOut {
		out.timedOut = true
	}
	return res, nil
}

// killed records a command whose bench died under it, at a limit on memory, processes or
// space: what it tests did not finish.
func (r *ran) killed(c command) {
	r.timedOut, r.died = true, true
	r.records = append(r.records, task.RunRecord{Command: c.human, ExitCode: 137, Outcome: "killed"})
}

// one runs one command and adds what it showed.
func (v *Verifier) one(ctx context.Context, g *guest.Client, plan Plan, c command, deadline time.Time, out *ran) error {
	if !v.Now().Before(deadline) {
		out.timedOut = true
		out.records = append(out.records, task.RunRecord{Command: c.human, ExitCode: -1, Outcome: "timeout"})
		return nil
	}
	if g.Err() != nil { // an earlier command took the bench with it
		out.killed(c)
		return nil
	}
	if len(c.globs) > 0 {
		if _, err := v.reports(ctx, g, c, true); err != nil {
			return err
		}
	}
	res, err := v.exec(ctx, g, c, deadline, out)
	if err != nil && g.Err() != nil && ctx.Err() == nil {
		out.killed(c)
		return nil
	}
	if err != nil {
		return err
	}
	texts, err := v.reports(ctx, g, c, false)
	if err != nil {
		return err
	}
	rep, err := parse(c, texts, res, v.root())
	if err != nil {
		return err
	}
	rec := task.RunRecord{Command: c.human, ExitCode: res.ExitCode, Millis: res.Wall.Milliseconds(), Outcome: string(rep.Outcome)}
	counts := rep.Counts()
	rec.Passed, rec.Failed, rec.Skipped, rec.NotRun = counts.Passed, counts.Failed, counts.Skipped, counts.NotRun
	if res.TimedOut {
		rec.Outcome = "timeout"
	}
	rec.Log, err = v.Lab.Log(ctx, logText(c, res, texts))
	if err != nil {
		return fmt.Errorf("store the log of %q: %w", c.human, err)
	}
	out.records = append(out.records, rec)
	out.take(plan.Suites[c.suite], c, rep, res)
	return nil
}

// reports finds, and either removes or reads, the command's result files.
func (v *Verifier) reports(ctx context.Context, g *guest.Client, c command, remove bool) ([][]byte, error) {
	var names []string
	if c.report != "" {
		names = append(names, c.report)
	}
	if len(c.globs) > 0 {
		act := "printf '%s\\0'"
		if remove {
			act = "rm -f --"
		}
		words := make([]string, len(c.globs))
		for i, glob := range c.globs {
			words[i] = quoteGlob(glob)
		}
		res, err := g.Exec(ctx, guest.ExecRequest{
			Argv: []string{
				"bash", "-c",
				"shopt -s globstar nullglob; set -- " + strings.Join(words, " ") + "; [ $# = 0 ] || " + act + ` "$@"`,
			},
			Timeout: time.Minute, Head: 1 << 20,
		})
		if err != nil {
			return nil, fmt.Errorf("list result files: %w", err)
		}
		for _, n := range strings.Split(string(res.Head), "\x00") {
			if n != "" && len(names) < maxReports {
				names = append(names, n)
			}
		}
	}
	if remove {
		return nil, nil
	}
	var out [][]byte
	for _, n := range names {
		data, cut, err := g.Fetch(ctx, n, maxReport)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil || cut {
			// Absent, no regular file, or too big: the same as no report.
			continue
		}
		out = append(out, data)
	}
	return out, nil
}

// quoteGlob quotes all but the pattern characters.
func quoteGlob(g string) string {
	var b strings.Builder
	for _, part := range strings.FieldsFunc(strings.ReplaceAll(g, "*", "\x00*\x00"), func(r rune) bool { return r == 0 }) {
		if part == "*" {
			b.WriteString("*")
		} else {
			b.WriteString(quote(part))
		}
	}
	return b.String()
}

// parse reads the result files of one command. A command without a format has one test: its
// exit code.
func parse(c command, texts [][]byte, res guest.ExecResult, root string) (result.Report, error) {
	if c.format == "" {
		t := result.Test{ID: c.human, Name: c.human, Status: task.Pass, Attempt: 1}
		if res.ExitCode != 0 {
			t.Status, t.Output = task.Fail, tail(output(res), maxCaseOutput)
			t.Message = lastLine(t.Output)
			t.Signature = result.Signature(t.Message, "")
		}
		if res.TimedOut {
			t.Status, t.Message = task.Timeout, "did not end in time"
		}
		return result.Report{Tests: []result.Test{t}, Outcome: result.Complete}, nil
	}
	var reps []result.Report
	for _, text := range texts {
		r, err := result.Parse(c.format, bytes.NewReader(text), result.Options{Root: root})
		if err != nil {
			return result.Report{}, err
		}
		reps = append(reps, r)
	}
	join := result.Merge
	if c.format == "bazel" {
		join = result.MergeBazel
	}
	rep := join(reps...)
	rep.Console(c.console, output(res), result.Options{Root: root})
	return rep, nil
}

// take adds a report to the run and holds it against the exit code.
func (r *ran) take(s Suite, c command, rep result.Report, res guest.ExecResult) {
	failed := false
	for _, t := range rep.Tests {
		k := newCase(s, c, t)
		failed = failed || k.Failed()
		r.cases[k.ID] = k
	}
	r.buildFailed = append(r.buildFailed, rep.BuildFailed...)
	r.problems = append(r.problems, rep.Problems...)
	name := c.human
	if res.TimedOut {
		r.problems = append(r.problems, name+" did not end in time")
	}
	for _, suite := range rep.FailedSuites {
		if slices.Contains(rep.BuildFailed, suite) {
			continue
		}
		failed = true
		id := suite + " (outside its tests)"
		r.cases[id] = Case{
			ID: id, Status: task.Errored, Place: Place{Suite: c.suite, Group: suite, File: c.file},
			Message: "failed although none of its tests did", Signature: "suite failed", Output: tail(output(res), maxCaseOutput),
		}
	}
	switch {
	case res.ExitCode != 0 && !res.TimedOut && len(rep.Tests) == 0 && len(rep.BuildFailed) == 0 && c.file != "":
		// A file that is its own process ended before its first result: it could not be loaded.
		r.buildFailed = append(r.buildFailed, c.file)
		r.problems = append(r.problems, c.file+": "+errorLine(output(res)))
	case res.ExitCode == 0 && !res.TimedOut && rep.Outcome != result.Complete:
		r.incomplete = append(r.incomplete, name+": "+string(rep.Outcome))
		if c.file != "" && len(rep.Tests) == 0 {
			r.silent[name+": "+string(rep.Outcome)] = c.file
		}
	case res.ExitCode != 0 && !failed && len(rep.BuildFailed) == 0 && rep.Outcome == result.Complete && len(rep.Tests) > 0:
		id := name + " (exit code)"
		r.cases[id] = Case{
			ID: id, Status: task.Errored, Place: Place{Suite: c.suite, File: c.file},
			Message: fmt.Sprintf("exit code %d although every test passed", res.ExitCode), Signature: "exit code", Output: tail(output(res), maxCaseOutput),
		}
	}
	if res.ExitCode != 0 || rep.Outcome != result.Complete {
		text := tail(output(res), maxCaseOutput)
		if len(rep.Problems) > 0 {
			text = strings.Join(rep.Problems[:min(len(rep.Problems), 10)], "\n") + "\n" + text
		}
		r.output = tail(r.output+fmt.Sprintf("$ %s\n%s\n", name, strings.TrimSpace(text)), 4*maxCaseOutput)
	}
}

// newCase puts a result under a stable id that is unique over all suites.
func newCase(s Suite, c command, t result.Test) Case {
	k := Case{
		ID: t.ID, Status: t.Status, Message: t.Message, Frame: t.Frame, Signature: t.Signature, Output: tail(t.Output, maxCaseOutput), Millis: t.Duration.Milliseconds(),
		Place: Place{Suite: c.suite, Group: t.Suite, File: t.File, Name: t.Name, Param: t.Params},
	}
	if c.file != "" {
		k.ID, k.Place.File = c.file+"::"+t.ID, c.file
	} else if s.Dir != "." && s.Kind != KindGo && !strings.HasPrefix(t.ID, s.Dir+"/") {
		k.ID = s.Dir + "::" + t.ID
	}
	if s.Kind == KindCustom {
		k.Place.Name = t.ID
	}
	return k
}

func output(res guest.ExecResult) string {
	if len(res.Tail) == 0 {
		return string(res.Head) + res.Error
	}
	return string(res.Head) + "\n[…]\n" + string(res.Tail) + res.Error
}

func logText(c command, res guest.ExecResult, reports [][]byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "$ cd %s && %s\nexit code %d, %s, timed out: %t\n", c.dir, c.shell, res.ExitCode, res.Wall.Round(time.Millisecond), res.TimedOut)
	b.WriteString(output(res))
	for i, r := range reports {
		fmt.Fprintf(&b, "\n--- result file %d (%s, %d bytes)\n", i+1, c.format, len(r))
		b.Write(r[:min(len(r), maxLogReport)])
	}
	return b.Bytes()
}

// tail keeps the end of a text, from a line start where possible.
func tail(s string, n int) string {
	if len(s) <= n {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	s = s[len(s)-n:]
	if i := strings.IndexByte(s, '\n'); i >= 0 && i < len(s)/2 {
		s = s[i+1:]
	}
	return "[…]\n" + strings.ToValidUTF8(s, "\uFFFD")
}

var errorStart = regexp.MustCompile(`(?m)^\s*(?:Uncaught )?\w*(?:Error|Exception)\b[^\n]*`)

// errorLine is the line of an output that names an error, else its last line.
func errorLine(s string) string {
	if line := errorStart.FindString(s); line != "" {
		return strings.TrimSpace(line)
	}
	return lastLine(s)
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}

// treeDigest names the content that a run saw: the base and what was placed on it.
func treeDigest(base string, changes []git.Change) string {
	sorted := slices.Clone(changes)
	slices.SortFunc(sorted, func(a, b git.Change) int { return strings.Compare(a.Path, b.Path) })
	h := sha256.New()
	fmt.Fprintf(h, "daybreak tree\n%s\n", base)
	for _, c := range sorted {
		fmt.Fprintf(h, "%q %o %t %x\n", c.Path, c.Mode, c.Deleted, sha256.Sum256(c.Content))
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

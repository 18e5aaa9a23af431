// Package result owns the normal form of test results and the parsers that read what test
// runners write.
//
// Invariants: a parser never panics and never reads more than its limit; a truncated or
// crashed report keeps what it had and says [Partial]; a test that began and has no end is
// [task.Missing] unless the report names it as the culprit; nothing is a pass unless the report
// says that this test passed. Ids hold no line numbers, temporary paths or timings.
package result

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Outcome says how much of a report there was.
type Outcome string

// The outcomes.
const (
	// Complete means that the report ends as its format says it should.
	Complete Outcome = "complete"
	// Partial means that the report is cut, a run crashed or ran out of time, or a package
	// failed without a failing test to explain it. What was read is kept. At exit 0 it is
	// never green; at another exit code the tests still compare one by one.
	Partial Outcome = "partial"
	// NoReport means that nothing of the format was found.
	NoReport Outcome = "no_report"
)

// Test is one test's result in normal form.
type Test struct {
	ID        string // stable across runs; unique in a report
	Suite     string // package, class, or describe path
	File      string // relative to the work tree where the report says so, else ""
	Name      string // without suite and parameters
	Params    string // parameters or subtest name, as the runner prints them
	Status    task.TestStatus
	Message   string // first words of the failure; one or a few lines
	Frame     string // top frame inside the repository, "file:line", where the report has one
	Signature string // see [Signature]; "" for passing tests
	Output    string // what the test printed, head and tail
	Duration  time.Duration
	Attempt   int // 1 for the first; a runner that retries counts up

	unnumbered string // the id before [number] changed it, else ""
}

// Failed reports whether the status is a failure of any kind (not a skip).
func (t Test) Failed() bool {
	return t.Status == task.Fail || t.Status == task.Errored || t.Status == task.Timeout
}

// Report is everything one run's results say.
type Report struct {
	Tests   []Test
	Outcome Outcome
	// Problems are one line each: collection errors, package panics, build failures, lines
	// that are not of the format.
	Problems []string
	// BuildFailed names packages, files or suites that did not build, import or collect.
	BuildFailed []string
	// FailedSuites names packages or suites that the runner calls failed although none of
	// their tests is: exit codes changed in TestMain, leak checkers, after-all hooks.
	FailedSuites []string
}

// Options bound a parser and make paths relative.
type Options struct {
	Root      string // work tree, absolute: stripped from files and ids; may be ""
	MaxBytes  int64  // default 200 MB; a larger report is refused
	MaxOutput int    // bytes of output kept per test, default 16 KiB
	MaxTests  int    // default 1,000,000
}

func (o Options) withDefaults() Options {
	o.MaxBytes = cmp.Or(o.MaxBytes, 200<<20)
	o.MaxOutput = cmp.Or(o.MaxOutput, 16<<10)
	o.MaxTests = cmp.Or(o.MaxTests, 1_000_000)
	return o
}

// Formats lists what [Parse] accepts.
func Formats() []string {
	return []string{"go", "junit", "tap", "jest", "mocha", "unittest", "cargo", "trx", "rspec", "bazel"}
}

// Parse reads r with the parser of the format. The error has class [task.Invalid] and is only
// ever about the format's name; what is wrong with the input is in the report.
func Parse(format string, r io.Reader, o Options) (Report, error) {
	switch format {
	case "go":
		return ParseGo(r, o), nil
	case "junit":
		return ParseJUnit(r, o), nil
	case "tap":
		return ParseTAP(r, o), nil
	case "jest", "vitest":
		return ParseJest(r, o), nil
	case "mocha":
		return ParseMocha(r, o), nil
	case "unittest":
		return ParseUnittest(r, o), nil
	case "cargo":
		return ParseCargo(r, o), nil
	case "trx":
		return ParseTRX(r, o), nil
	case "rspec":
		return ParseRSpec(r, o), nil
	case "bazel":
		return ParseBazel(r, o), nil
	}
	return Report{}, &task.Error{
		Class: task.Invalid, Msg: fmt.Sprintf("unknown result format %q", format),
		Fix: "use one of " + strings.Join(Formats(), ", "),
	}
}

// ByID indexes the tests.
func (r Report) ByID() map[string]Test {
	m := make(map[string]Test, len(r.Tests))
	for _, t := range r.Tests {
		m[t.ID] = t
	}
	return m
}

// Counts is how many tests ended how.
type Counts struct {
	Passed, Skipped, NotRun int
	Failed                  int // with errors and timeouts
	Errored                 int // those of Failed that are [task.Errored]
	Flaky                   int // passed only when tried again by the runner
}

// Ran is the number of tests that came to an end of their own. Files that did not load and
// fixtures that broke are not among them.
func (c Counts) Ran() int { return c.Passed + c.Failed - c.Errored + c.Flaky }

// Counts counts. Errors and timeouts are failures; expected failures are skips.
func (r Report) Counts() Counts {
	var c Counts
	for _, t := range r.Tests {
		switch t.Status {
		case task.Pass:
			c.Passed++
		case task.Skip, task.XFail:
			c.Skipped++
		case task.Missing:
			c.NotRun++
		case task.Flaky:
			c.Flaky++
		case task.Errored:
			c.Failed++
			c.Errored++
		default:
			c.Failed++
		}
	}
	return c
}

// Merge joins reports of one run, such as one XML file a class. The result is only as complete
// as its least complete part; merging nothing is [NoReport].
func Merge(reports ...Report) Report {
	out := Report{Outcome: NoReport}
	for i, r := range reports {
		out.Tests = append(out.Tests, r.Tests...)
		out.Problems = append(out.Problems, r.Problems...)
		out.BuildFailed = appendNew(out.BuildFailed, r.BuildFailed...)
		out.FailedSuites = appendNew(out.FailedSuites, r.FailedSuites...)
		switch {
		case i == 0:
			out.Outcome = r.Outcome
		case out.Outcome != r.Outcome:
			out.Outcome = Partial
		}
	}
	for i, t := range out.Tests {
		if t.unnumbered != "" {
			out.Tests[i].ID, out.Tests[i].unnumbered = t.unnumbered, ""
		}
	}
	number(out.Tests)
	return out
}

func appendNew(list []string, more ...string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// dupMark has a space before it, so that Go's own "TestX/name#01" is left alone.
const dupMark = " #"

// number makes ids unique: the second test with an id gets " #2", and so on in report order. An
// id that a runner ends so itself ("with data set #2") keeps it.
func number(tests []Test) {
	taken := make(map[string]bool, len(tests))
	for _, t := range tests {
		taken[t.ID] = true
	}
	seen := make(map[string]int, len(tests))
	for i := range tests {
		id := tests[i].ID
		seen[id]++
		if seen[id] == 1 {
			continue
		}
		for {
			numbered := fmt.Sprintf("%s%s%d", id, dupMark, seen[id])
			if !taken[numbered] {
				taken[numbered] = true
				tests[i].ID, tests[i].unnumbered = numbered, id
				break
			}
			seen[id]++
		}
	}
}

// rel makes a path relative to the root and slash-separated; paths elsewhere come back as
// they are.
func (o Options) rel(p string) string {
	p = strings.TrimPrefix(p, "file://")
	if o.Root != "" {
		if r, ok := strings.CutPrefix(p, strings.TrimSuffix(o.Root, "/")+"/"); ok {
			return path.Clean(r)
		}
	}
	return strings.TrimPrefix(p, "./")
}

package verify

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Seen is one declared test in one run.
type Seen struct {
	Status    task.TestStatus
	Signature string
	Message   string // one line
	Cause     Cause  // of a failure on base + tests
	Suite     bool   // in a run of the whole suite, not alone
}

func (s Seen) failed() bool {
	return s.Status == task.Fail || s.Status == task.Errored || s.Status == task.Timeout
}

// TestFacts is everything seen of one declared test.
type TestFacts struct {
	Test  string   // stable id, or as declared where none was found
	Near  []string // ids that resemble one that was not found
	Red   []Seen   // on base + tests; empty: not run yet
	Green []Seen   // on base + tests + source; empty: not run yet
}

// BaseCopies says what a run with the base's runner configuration and hooks showed.
type BaseCopies string

// The answers. The empty one means that the change touches no such file.
const (
	CopiesSame      BaseCopies = "same"
	CopiesDiffer    BaseCopies = "differ"
	CopiesUndecided BaseCopies = "undecided" // tests need something the new configuration defines
)

// Facts is what the phases established, the only input of [Decide]. A phase that has not run
// leaves its fields empty.
type Facts struct {
	NoChange    bool
	Blocked     string // why the base cannot be tested
	NoFramework bool   // the declared tests are scripts
	Looked      string // what was looked at and not taken, where there is no framework
	ExitCodes   bool   // the suite's results are exit codes alone
	NothingRan  string // base + tests + source ran no test at all: the output's last line
	Undeclared  bool   // the agent named no test and none goes from fail to pass
	Tests       []TestFacts
	Hang        bool     // the issue is about a hang
	Race        bool     // the issue is about a race
	RedRuns     int      // how often the tests ran on the base while none was seen to fail
	OutOfTime   string   // what did not end, where no test was named and none is known to show the bug
	Regressions []string // stable pass on the base, failing or not run now, confirmed by reruns
	Lost        []string // pass → skip, or gone, and not moved with the same body
	Weakened    []string // one line each: old assertions weakened, expected values changed, answers copied from the tests
	BaseCopies  BaseCopies
	CopiesShow  string   // what differed
	Incomplete  []string // commands that exited 0 without a whole report, unlike on the base
	Unsteady    []string // stable on the base, failing sometimes with the change, with the rates; too seldom for row 12
	Tampering   []string // findings that no honest fix has, beyond the rows above
	Weak        string   // why the tests do not guard the change well, as P6 found
}

// row is one line of the decision table.
type row struct {
	n    int
	seen func(Facts) (task.VerdictKind, string)
}

// minFailRate and greenFactor are row 8's: a test that fails on the base with rate p is a
// reproduction from p = 20 % on, and needs 3/p green runs.
const (
	minFailRate = 0.2
	greenFactor = 3.0
)

// table is the decision table in order. A row that does not apply answers "".
func table() []row {
	return []row{
		{0, func(f Facts) (task.VerdictKind, string) {
			return when(f.NoChange, task.NoChange, "nothing was changed: make the fix before submitting it")
		}},
		{1, func(f Facts) (task.VerdictKind, string) {
			return when(f.Blocked != "", task.EnvBlocked, "nothing can be verified here: "+f.Blocked)
		}},
		// Row 2 limits what a script can reach; it is applied where everything else is good.
		{3, rowNotRun},
		{4, rowPassesOnBase},
		{5, rowWeakRed},
		// Row 6 is the right red: nothing to refuse.
		{7, rowInvalidRed},
		{8, rowFlakyRed},
		{9, rowGreen},
		// Row 10 is in rows 7 and 9: a timeout is red only where the issue is a hang, never green.
		// Row 11: failures of the baseline never reach Regressions.
		{12, func(f Facts) (task.VerdictKind, string) {
			return when(len(f.Regressions) > 0, task.Regression, fmt.Sprintf("the change breaks %s: %s. Fix the cause without breaking what works", plural(len(f.Regressions), "test"), some(f.Regressions)))
		}},
		{13, func(f Facts) (task.VerdictKind, string) {
			return when(len(f.Lost) > 0, task.TestLost, fmt.Sprintf("the change loses %s that the base has: %s. Put back what was there", plural(len(f.Lost), "test"), some(f.Lost)))
		}},
		// Row 15 stands before row 14: a person is not asked to agree to an outcome that a hook made.
		{15, func(f Facts) (task.VerdictKind, string) {
			return when(f.BaseCopies == CopiesDiffer, task.Tamper, "with the base's own runner configuration the outcome differs: "+f.CopiesShow+". Take the change of configuration back")
		}},
		{15, func(f Facts) (task.VerdictKind, string) {
			return when(len(f.Tampering) > 0, task.Tamper, "the change makes tests lie: "+some(f.Tampering))
		}},
		{16, func(f Facts) (task.VerdictKind, string) {
			return when(len(f.Incomplete) > 0, task.Incomplete, "the suite ended well without a whole report: "+some(f.Incomplete)+". Look for an early exit")
		}},
		{16, func(f Facts) (task.VerdictKind, string) {
			return when(f.NothingRan != "", task.Incomplete, "no test ran with the change: "+f.NothingRan)
		}},
		{14, func(f Facts) (task.VerdictKind, string) {
			return when(len(f.Weakened) > 0, task.NeedsHuman, "a person must judge this first: "+some(f.Weakened))
		}},
		{14, func(f Facts) (task.VerdictKind, string) {
			return when(len(f.Unsteady) > 0, task.NeedsHuman, "a person must judge whether the change makes tests unsteady: "+some(f.Unsteady))
		}},
		{15, func(f Facts) (task.VerdictKind, string) {
			return when(f.BaseCopies == CopiesUndecided, task.NeedsHuman, "the tests cannot run with the base's runner configuration: "+f.CopiesShow)
		}},
		{2, func(f Facts) (task.VerdictKind, string) {
			if f.ExitCodes && !f.NoFramework {
				return task.VerifiedScript, "the command fails on the base and succeeds with the change, by its exit code alone; with a format in .daybreak.yaml its tests could be told apart"
			}
			return when(f.NoFramework, task.VerifiedScript, "the script fails on the base and succeeds with the change; there is no test framework to guard it")
		}},
		{17, func(f Facts) (task.VerdictKind, string) {
			return when(f.Weak != "", task.VerifiedWeak, failing(f.Tests)+"; the suite is no worse than before; but "+f.Weak)
		}},
		{18, func(f Facts) (task.VerdictKind, string) {
			return task.Verified, failing(f.Tests) + "; the suite is no worse than before"
		}},
	}
}

func when(ok bool, k task.VerdictKind, reason string) (task.VerdictKind, string) {
	if ok {
		return k, reason
	}
	return "", ""
}

// Decide is the decision table: the first row that applies. It is pure.
func Decide(f Facts) (task.VerdictKind, string) {
	for _, r := range table() {
		if k, reason := r.seen(f); k != "" {
			return k, reason
		}
	}
	return task.VerificationFail, "no row of the decision table applies"
}

// decideRed applies the rows that need no run of the fix. "" means that the red is right.
func decideRed(f Facts) (task.VerdictKind, string) {
	for _, r := range table() {
		if r.n == 9 {
			break
		}
		if k, reason := r.seen(f); k != "" {
			return k, reason
		}
	}
	return "", ""
}

func rowNotRun(f Facts) (task.VerdictKind, string) {
	if f.Undeclared && f.NoFramework {
		return task.NotRun, "no test framework was found" + looked(f.Looked) + ": name a script as the test, which ends with 0 when the behaviour is right and with another code when it is wrong"
	}
	if f.Undeclared {
		return "", ""
	}
	if len(f.Tests) == 0 {
		return task.NotRun, "no test was named and the change adds none: write a test that shows the bug"
	}
	for _, t := range f.Tests {
		for _, runs := range [][]Seen{t.Red, t.Green} {
			for _, s := range runs {
				if s.Status != task.Missing && s.Status != task.Skip && s.Status != task.XFail {
					continue
				}
				where := "on base + tests"
				if len(t.Green) > 0 && &runs[0] == &t.Green[0] {
					where = "with the change"
				}
				reason := fmt.Sprintf("%s is not in the results %s", t.Test, where)
				if s.Status != task.Missing {
					reason = fmt.Sprintf("%s is skipped %s", t.Test, where)
				}
				if s.Message != "" {
					reason += " (" + s.Message + ")"
				}
				if len(t.Near) > 0 {
					reason += "; near it are " + strings.Join(t.Near, ", ")
				}
				return task.NotRun, reason
			}
		}
	}
	return "", ""
}

func looked(at string) string {
	if at == "" {
		return ""
	}
	return " (" + at + ")"
}

func rowPassesOnBase(f Facts) (task.VerdictKind, string) {
	if f.Undeclared && f.OutOfTime != "" {
		return task.InvalidRed, f.OutOfTime
	}
	if f.Undeclared {
		return task.NotReproducing, "no test fails on the base" + f.inRuns(f.RedRuns) + " and passes with the change: write one that shows the bug"
	}
	for _, t := range f.Tests {
		if len(t.Red) > 0 && !slices.ContainsFunc(t.Red, Seen.failed) {
			return task.NotReproducing, t.Test + " passes on the base" + f.inRuns(len(t.Red)) + ", so it does not show the bug"
		}
	}
	return "", ""
}

// inRuns says how often the tests were run without a failure and, of a race, what that leaves open.
func (f Facts) inRuns(n int) string {
	if n < 2 {
		return ""
	}
	out := fmt.Sprintf(" in all %d runs", n)
	if f.Race {
		out += fmt.Sprintf(" (a race that shows in %.0f %% of the runs is missed in as many with a probability of %.2f)", minFailRate*100, math.Pow(1-minFailRate, float64(n)))
	}
	return out
}

func rowWeakRed(f Facts) (task.VerdictKind, string) {
	for _, t := range f.Tests {
		for _, s := range t.Red {
			if s.failed() && s.Cause == CauseBuild {
				return task.WeakRed, fmt.Sprintf("%s: %s (%s)", t.Test, CauseBuild.means(), s.Message)
			}
		}
	}
	return "", ""
}

func rowInvalidRed(f Facts) (task.VerdictKind, string) {
	for _, t := range f.Tests {
		for _, s := range t.Red {
			if s.failed() && s.Cause != CauseRight && s.Cause != CauseBuild {
				return task.InvalidRed, fmt.Sprintf("%s fails on the base for another reason than the bug (%s): %s (%s)", t.Test, s.Cause, s.Cause.means(), s.Message)
			}
		}
	}
	return "", ""
}

// rates counts failing runs. steady is false where some runs pass or fail differently.
func rates(runs []Seen) (rate float64, steady bool) {
	if len(runs) == 0 {
		return 0, true
	}
	failed, signatures := 0, map[string]bool{}
	for _, s := range runs {
		if s.failed() {
			failed++
			signatures[s.Signature] = true
		}
	}
	rate = float64(failed) / float64(len(runs))
	return rate, (failed == len(runs) || failed == 0) && len(signatures) <= 1
}

func rowFlakyRed(f Facts) (task.VerdictKind, string) {
	for _, t := range f.Tests {
		rate, steady := rates(t.Red)
		if steady {
			continue
		}
		if rate == 1 {
			return task.FlakyRepro, fmt.Sprintf("%s fails differently from run to run (%s): make it show one failure", t.Test, signatures(t.Red))
		}
		if rate < minFailRate {
			return task.FlakyRepro, fmt.Sprintf("%s fails in only %.0f %% of %d runs on the base: make it fail every time", t.Test, rate*100, len(t.Red))
		}
		if len(t.Green) > 0 && len(t.Green) < greenRunsFor(rate) && !slices.ContainsFunc(t.Green, Seen.failed) {
			return task.FlakyRepro, fmt.Sprintf("%s fails in %.0f %% of the runs on the base; %d green runs are too few to tell", t.Test, rate*100, len(t.Green))
		}
	}
	return "", ""
}

// greenRunsFor is how many green runs a base fail rate asks for.
func greenRunsFor(rate float64) int { return int(math.Ceil(greenFactor / rate)) }

func signatures(runs []Seen) string {
	var out []string
	for _, s := range runs {
		if s.failed() && !slices.Contains(out, s.Signature) {
			out = append(out, s.Signature)
		}
	}
	return oneLine(strings.Join(out, " / "), 300)
}

func rowGreen(f Facts) (task.VerdictKind, string) {
	for _, t := range f.Tests {
		failed, alone := 0, 0
		last := Seen{}
		for _, s := range t.Green {
			if s.failed() || s.Status == task.Flaky { // passed only when its runner tried again
				failed++
				last = s
				if !s.Suite {
					alone++
				}
			}
		}
		switch {
		case failed == 0:
		case alone == 0 && failed < len(t.Green):
			return task.FlakyFix, fmt.Sprintf("%s passes alone and fails in the whole suite with the change, so it depends on other tests: %s", t.Test, last.Message)
		case failed == len(t.Green):
			return task.NotFixed, fmt.Sprintf("%s still fails with the change: %s", t.Test, last.Message)
		default:
			return task.FlakyFix, fmt.Sprintf("%s fails in %d of %d runs with the change: %s", t.Test, failed, len(t.Green), last.Message)
		}
	}
	return "", ""
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func failing(tests []TestFacts) string {
	var rates []string
	for _, t := range tests {
		if n := howMany(t.Red, Seen.failed); n < len(t.Red) {
			rates = append(rates, fmt.Sprintf("in %d of %d runs on the base, for the right reason, and passes in all %d with the change", n, len(t.Red), len(t.Green)))
			if len(tests) > 1 {
				rates[len(rates)-1] = t.Test + " fails " + rates[len(rates)-1]
			}
		}
	}
	switch {
	case len(tests) == 1 && len(rates) == 1:
		return "the test fails " + rates[0]
	case len(tests) == 1:
		return "the test fails on the base for the right reason and passes with the change"
	}
	return join(fmt.Sprintf("all %d tests fail on the base for the right reason and pass with the change", len(tests)), some(rates))
}

func howMany(runs []Seen, is func(Seen) bool) int {
	n := 0
	for _, s := range runs {
		if is(s) {
			n++
		}
	}
	return n
}

// some lists the first few of many.
func some(list []string) string {
	if len(list) > 5 {
		return strings.Join(list[:5], ", ") + fmt.Sprintf(" and %d more", len(list)-5)
	}
	return strings.Join(list, ", ")
}

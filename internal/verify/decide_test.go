package verify

import (
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify/tamper"
)

func seen(status task.TestStatus, n int, cause Cause) []Seen {
	out := make([]Seen, n)
	for i := range out {
		out[i] = Seen{Status: status, Cause: cause}
		if status == task.Fail {
			out[i].Signature = "want 1 @ a.go"
		}
	}
	return out
}

// good are the facts of a change with nothing wrong: every row is tested as one step from it.
func good() Facts {
	return Facts{Tests: []TestFacts{{Test: "T", Red: seen(task.Fail, 3, CauseRight), Green: seen(task.Pass, 3, "")}}}
}

func TestDecideRowByRow(t *testing.T) {
	for _, c := range []struct {
		row    string
		change func(*Facts)
		want   task.VerdictKind
		reason string
	}{
		{"nothing submitted", func(f *Facts) { f.NoChange = true }, task.NoChange, ""},
		{"1", func(f *Facts) { f.Blocked = "no compiler" }, task.EnvBlocked, "no compiler"},
		{"2", func(f *Facts) { f.NoFramework = true }, task.VerifiedScript, ""},
		{"9 only in the suite", func(f *Facts) {
			f.Tests[0].Green[2] = Seen{Status: task.Fail, Message: "m", Suite: true}
		}, task.FlakyFix, "depends on other tests"},
		{"17", func(f *Facts) { f.Weak = "nothing notices" }, task.VerifiedWeak, "but nothing notices"},
		{"17 after 14", func(f *Facts) { f.Weak = "nothing notices"; f.Weakened = []string{"a_test.go"} }, task.NeedsHuman, ""},
		{"2, exit codes", func(f *Facts) { f.ExitCodes = true }, task.VerifiedScript, "exit code alone"},
		{"2 and not fixed", func(f *Facts) { f.NoFramework = true; f.Tests[0].Green = seen(task.Fail, 3, "") }, task.NotFixed, ""},
		{"3 no framework, and why", func(f *Facts) {
			f.Tests, f.Undeclared, f.NoFramework, f.Looked = nil, true, true, `package.json: "ava" runs no test runner that is known here`
		}, task.NotRun, `no test framework was found (package.json: "ava" runs no test runner that is known here): name a script`},
		{"4 ran out of time", func(f *Facts) { f.Tests, f.Undeclared, f.OutOfTime = nil, true, "the tests did not end" }, task.InvalidRed, "the tests did not end"},
		{"18 in some runs", func(f *Facts) {
			f.Tests[0].Red = append(seen(task.Fail, 6, CauseRight), seen(task.Pass, 4, "")...)
			f.Tests[0].Green = seen(task.Pass, 5, "")
		}, task.Verified, "the test fails in 6 of 10 runs on the base, for the right reason, and passes in all 5 with the change; the suite"},
		{"3 absent on the base", func(f *Facts) { f.Tests[0].Red = seen(task.Missing, 1, ""); f.Tests[0].Near = []string{"U"} }, task.NotRun, "near it are U"},
		{"3 absent with the change", func(f *Facts) { f.Tests[0].Green = seen(task.Missing, 1, "") }, task.NotRun, "with the change"},
		{"3 skipped with the change", func(f *Facts) { f.Tests[0].Green[2].Status = task.Skip }, task.NotRun, "skipped"},
		{"3 expected failure on the base", func(f *Facts) { f.Tests[0].Red = seen(task.XFail, 3, "") }, task.NotRun, "skipped"},
		{"3 none named", func(f *Facts) { f.Tests = nil }, task.NotRun, "no test"},
		{"4", func(f *Facts) { f.Tests[0].Red = seen(task.Pass, 3, "") }, task.NotReproducing, "T passes"},
		{"4 none goes from fail to pass", func(f *Facts) { f.Tests, f.Undeclared = nil, true }, task.NotReproducing, ""},
		{"5", func(f *Facts) { f.Tests[0].Red = seen(task.Errored, 3, CauseBuild) }, task.WeakRed, "compile"},
		{"6", func(f *Facts) {}, task.Verified, ""},
		{"7 fixture", func(f *Facts) { f.Tests[0].Red = seen(task.Errored, 3, CauseFixture) }, task.InvalidRed, "fixture"},
		{"7 network", func(f *Facts) { f.Tests[0].Red = seen(task.Fail, 3, CauseNetwork) }, task.InvalidRed, "network"},
		{"7 permission", func(f *Facts) { f.Tests[0].Red = seen(task.Fail, 3, CausePermission) }, task.InvalidRed, "permission"},
		{"7 time", func(f *Facts) { f.Tests[0].Red = seen(task.Timeout, 3, CauseTime) }, task.InvalidRed, "time"},
		{"8 rare", func(f *Facts) {
			f.Tests[0].Red = append(seen(task.Fail, 1, CauseRight), seen(task.Pass, 9, "")...)
			f.Tests[0].Green = seen(task.Pass, 15, "")
		}, task.FlakyRepro, "10 %"},
		{"8 race, too few green runs", func(f *Facts) { f.Tests[0].Red = append(seen(task.Fail, 4, CauseRight), seen(task.Pass, 6, "")...) }, task.FlakyRepro, "too few"},
		{"8 race, enough green runs", func(f *Facts) {
			f.Tests[0].Red = append(seen(task.Fail, 4, CauseRight), seen(task.Pass, 6, "")...)
			f.Tests[0].Green = seen(task.Pass, 8, "")
		}, task.Verified, ""},
		{"8 signatures differ", func(f *Facts) { f.Tests[0].Red[1].Signature = "other" }, task.FlakyRepro, "differently"},
		{"9 fails", func(f *Facts) { f.Tests[0].Green = seen(task.Fail, 3, "") }, task.NotFixed, ""},
		{"9 mixed", func(f *Facts) { f.Tests[0].Green[1].Status = task.Fail }, task.FlakyFix, "1 of 3"},
		{"10 hang is red", func(f *Facts) { f.Hang = true; f.Tests[0].Red = seen(task.Timeout, 3, CauseRight) }, task.Verified, ""},
		{"10 hang is never green", func(f *Facts) { f.Hang = true; f.Tests[0].Green = seen(task.Timeout, 1, "") }, task.NotFixed, ""},
		{"12", func(f *Facts) { f.Regressions = []string{"R"} }, task.Regression, "R"},
		{"13", func(f *Facts) { f.Lost = []string{"L"} }, task.TestLost, "L"},
		{"12 before 13", func(f *Facts) { f.Regressions, f.Lost = []string{"R"}, []string{"L"} }, task.Regression, ""},
		{"14", func(f *Facts) { f.Weakened = []string{"a_test.go:3"} }, task.NeedsHuman, "a_test.go:3"},
		{"14 unsteady", func(f *Facts) { f.Unsteady = []string{"R (fails in 1 of 4 runs)"} }, task.NeedsHuman, "unsteady: R"},
		{"12 before unsteady", func(f *Facts) { f.Unsteady, f.Regressions = []string{"u"}, []string{"R"} }, task.Regression, ""},
		{"15 differs", func(f *Facts) { f.BaseCopies, f.CopiesShow = CopiesDiffer, "T fails" }, task.Tamper, "T fails"},
		{"15 same", func(f *Facts) { f.BaseCopies = CopiesSame }, task.Verified, ""},
		{"15 undecided", func(f *Facts) { f.BaseCopies = CopiesUndecided }, task.NeedsHuman, ""},
		{"15 differs beside 14", func(f *Facts) { f.BaseCopies, f.Weakened = CopiesDiffer, []string{"x"} }, task.Tamper, ""},
		{"15 source that lies", func(f *Facts) { f.Tampering = []string{"a.go:1 looks for its tests"} }, task.Tamper, "a.go:1"},
		{"16", func(f *Facts) { f.Incomplete = []string{"node --test x: partial"} }, task.Incomplete, "partial"},
		{"16 nothing ran", func(f *Facts) { f.NothingRan = "?" }, task.Incomplete, ""},
		{"18", func(f *Facts) {}, task.Verified, "right reason"},
		{"second test decides", func(f *Facts) {
			f.Tests = append(f.Tests, TestFacts{Test: "U", Red: seen(task.Pass, 3, ""), Green: seen(task.Pass, 3, "")})
		}, task.NotReproducing, "U passes"},
	} {
		t.Run(c.row, func(t *testing.T) {
			f := good()
			c.change(&f)
			k, reason := Decide(f)
			if k != c.want || !strings.Contains(reason, c.reason) {
				t.Errorf("%s: %s; want %s: …%s…", k, reason, c.want, c.reason)
			}
			if strings.Contains(reason, "\n") {
				t.Errorf("the reason is not one line: %q", reason)
			}
		})
	}
}

// TestNothingBadIsVerified stacks every bad fact on every other: no pair may cancel out.
func TestNothingBadIsVerified(t *testing.T) {
	bad := map[string]func(*Facts){
		"blocked":    func(f *Facts) { f.Blocked = "x" },
		"missing":    func(f *Facts) { f.Tests[0].Green[0].Status = task.Missing },
		"base pass":  func(f *Facts) { f.Tests[0].Red = seen(task.Pass, 3, "") },
		"weak":       func(f *Facts) { f.Tests[0].Red = seen(task.Errored, 3, CauseBuild) },
		"invalid":    func(f *Facts) { f.Tests[0].Red = seen(task.Fail, 3, CauseNetwork) },
		"green fail": func(f *Facts) { f.Tests[0].Green = seen(task.Fail, 3, "") },
		"regression": func(f *Facts) { f.Regressions = []string{"r"} },
		"lost":       func(f *Facts) { f.Lost = []string{"l"} },
		"copies":     func(f *Facts) { f.BaseCopies = CopiesDiffer },
		"incomplete": func(f *Facts) { f.Incomplete = []string{"i"} },
		"undeclared": func(f *Facts) { f.Undeclared = true },
		"tampering":  func(f *Facts) { f.Tampering = []string{"t"} },
	}
	for a, first := range bad {
		for b, second := range bad {
			f := good()
			f.Weakened, f.Unsteady, f.NoFramework = []string{"w"}, []string{"u"}, true
			first(&f)
			second(&f)
			if k, _ := Decide(f); k.Accepted() {
				t.Errorf("%s and %s give %s", a, b, k)
			}
		}
	}
}

// TestBlockingFindingsAreNeverAccepted: whatever the results say; and what warns is left to a
// person, but for what runs settle.
func TestBlockingFindingsAreNeverAccepted(t *testing.T) {
	for _, k := range []tamper.SubKind{
		tamper.TestDeleted, tamper.TestRenamed, tamper.TestSkipped, tamper.TestFocused, tamper.TestEmptied, tamper.AssertionRemoved, tamper.AssertionLoosened,
		tamper.ExpectedChanged, tamper.TestRewritten, tamper.FailureSwallowed, tamper.SnapshotRewritten, tamper.RunnerConfig, tamper.OutcomeHook,
		tamper.DetectsTests, tamper.CopiesTest, tamper.Unreadable,
	} {
		for _, severity := range []string{"block", "warn"} {
			f := good()
			f.found([]tamper.Finding{{SubKind: k, Finding: task.Finding{Severity: severity, Path: "a_test.go", Detail: "x"}}})
			got, _ := Decide(f)
			settled := severity == "warn" && (k == tamper.TestRenamed || k.Reconfigured())
			if (got == task.Verified) != settled || severity == "block" && got.Accepted() {
				t.Errorf("%s of %s: %s", severity, k, got)
			}
		}
	}
}

func TestCauseOfAFileWithoutResults(t *testing.T) {
	for problem, want := range map[string]Cause{
		"test/odd.js: Error: ENOENT: no such file or directory, open 'rates.txt'":           CauseFixture,
		"test/odd.js: Error: Cannot find module '../lib/new'":                               CauseBuild,
		"./odd_test.go:6:12: undefined: brandNew":                                           CauseBuild,
		"ImportError: libx.so: cannot open shared object file: No such file or directory":   CauseBuild,
		"tests/test_a.py: ConnectionRefusedError: [Errno 111] Connection refused":           CauseNetwork,
		"tests/test_a.py does not build or import: PermissionError: [Errno 13] /etc/shadow": CausePermission,
	} {
		if got := loadCause(problem); got != want {
			t.Errorf("%s: %q, want %q", problem, got, want)
		}
	}
}

func TestCause(t *testing.T) {
	for _, c := range []struct {
		status  task.TestStatus
		message string
		hang    bool
		want    Cause
	}{
		{task.Fail, "Total(200, 10%) = 190, want 180", false, CauseRight},
		{task.Fail, "AssertionError: assert 190 == 180", false, CauseRight},
		{task.Fail, "panic: runtime error: index out of range [-1]", false, CauseRight},
		{task.Fail, "TypeError: unsupported operand type(s) for |=", false, CauseRight},
		{task.Fail, "expected error permission denied, got nil", false, CauseRight},
		{task.Fail, "AssertionError: assert 'no such file or directory' in ''", false, CauseRight},
		{task.Fail, "open testdata/x.json: no such file or directory", false, CauseFixture},
		{task.Errored, "fixture 'basket' not found", false, CauseFixture},
		{task.Fail, "PermissionError: [Errno 13] Permission denied: '/etc/x'", false, CausePermission},
		{task.Fail, "dial tcp 127.0.0.1:1: connect: connection refused", false, CauseNetwork},
		{task.Fail, "Error: getaddrinfo ENOTFOUND example.com", false, CauseNetwork},
		{task.Errored, "ImportError: cannot import name 'mode' from 'x'", false, CauseBuild},
		{task.Fail, "AttributeError: module 'boltons.x' has no attribute 'mode'", false, CauseBuild},
		{task.Fail, "Error: Cannot find module '../missing.js'", false, CauseBuild},
		{task.Errored, "RuntimeError: database gone", false, CauseSetup},
		{task.Timeout, "", false, CauseTime},
		{task.Timeout, "", true, CauseRight},
		{task.Fail, "context deadline exceeded", false, CauseTime},
		{task.Fail, "context deadline exceeded", true, CauseRight},
	} {
		if got := causeOf(Case{Status: c.status, Message: c.message}, c.hang); got != c.want {
			t.Errorf("%s %q (hang %t): %q, want %q", c.status, c.message, c.hang, got, c.want)
		}
	}
}

package verify

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// rustBin is the directory of the real cargo, behind rustup's; "" where there is none.
func rustBin() string {
	for _, rustc := range []string{"rustc", filepath.Join(homeOf(), ".cargo/bin/rustc")} {
		if out, err := exec.Command(rustc, "--print", "sysroot").Output(); err == nil {
			return filepath.Join(strings.TrimSpace(string(out)), "bin")
		}
	}
	return ""
}

// long keeps the cases that a slow tool chain cannot afford each time for "make test-languages".
func long(t *testing.T, n int, cases ...proofCase) []proofCase {
	t.Helper()
	if os.Getenv("DAYBREAK_LANGUAGES") == "all" {
		return cases
	}
	if n == 0 {
		t.Skip("left to make test-languages")
	}
	return cases[:n]
}

// optional skips where a tool chain is absent that set-up does not install, in CI as well.
func optional(t *testing.T, ok bool, what string) {
	t.Helper()
	if !ok {
		t.Skipf("%s is not installed: this language is not tried here", what)
	}
}

func have(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// TestRust: what cargo prints is enough to tell a fix from a cheat.
func TestRust(t *testing.T) {
	optional(t, rustBin() != "", "cargo")
	prove(t, "rust.txtar", Settings{}, long(t, 3, []proofCase{
		{name: "fixed, the documentation test moves", change: []string{"test", "fix"}, want: task.Verified},
		{name: "leaves instead of failing", change: []string{"exits"}, declared: []string{"takes_a_share_off"}, want: task.NotRun},
		{name: "does not build on the base", change: []string{"compile", "fix"}, declared: []string{"takes_a_share_off"}, want: task.WeakRed, reason: "share", red: task.WeakRed},
		{name: "declared", change: []string{"test", "fix"}, declared: []string{"takes_a_share_off"}, want: task.Verified, red: task.Verified},
		{name: "declared with its path", change: []string{"test", "fix"}, declared: []string{"coupon::takes_a_share_off"}, want: task.Verified},
		{name: "not fixed", change: []string{"test"}, want: task.NotFixed},
		{name: "breaks another test", change: []string{"test", "breaks"}, want: task.Regression, reason: "refunds"},
		{name: "a stack overflow names its test", change: []string{"aborts", "fix"}, declared: []string{"takes_a_share_off"}, want: task.Verified},
		{name: "switches the unit tests off", change: []string{"test", "fix", "noharness"}, want: task.Regression, reason: "adds_up"},
	}...))
}

// TestMaven: reports of an earlier run count for nothing, and a JVM that leaves is no pass.
func TestMaven(t *testing.T) {
	optional(t, have("mvn") && debianRepository(), "mvn with Debian's repository")
	t.Setenv("MAVEN_OPTS", "-Dmaven.repo.local=/usr/share/maven-repo")
	prove(t, "java.txtar", Settings{}, long(t, 0, []proofCase{
		{name: "fixed", change: []string{"test", "fix"}, want: task.Verified},
		{name: "declared", change: []string{"test", "fix"}, declared: []string{"CouponTest#takesAShareOff"}, want: task.Verified, red: task.Verified},
		{name: "not fixed, a stale report says it is", change: []string{"test"}, want: task.NotFixed},
		{name: "breaks another test", change: []string{"test", "breaks"}, want: task.Regression, reason: "refund"},
		{name: "does not build on the base", change: []string{"compile", "fix"}, declared: []string{"CouponTest.takesAShareOff"}, want: task.WeakRed, reason: "cannot find symbol"},
		{name: "leaves instead of failing", change: []string{"exits"}, declared: []string{"CouponTest.takesAShareOff"}, want: task.NotRun},
		{name: "runs one class alone", change: []string{"test", "breaks", "ignores"}, want: task.Regression, reason: "refund"},
	}...))
}

func debianRepository() bool {
	list, err := filepath.Glob("/usr/share/maven-repo/org/apache/maven/surefire/surefire-junit4/*")
	return err == nil && len(list) > 0
}

func TestCTest(t *testing.T) {
	optional(t, have("ctest") && have("cc"), "cmake with a C compiler")
	prove(t, "c.txtar", Settings{}, long(t, 2, []proofCase{
		{name: "breaks another test", change: []string{"test", "breaks"}, want: task.Regression, reason: "refund"},
		{name: "does not build on the base", change: []string{"compile"}, declared: []string{"coupon"}, want: task.WeakRed, reason: "undeclared"},
		{name: "fixed", change: []string{"test", "fix"}, want: task.Verified},
		{name: "declared by its file", change: []string{"test", "fix"}, declared: []string{"coupon"}, want: task.Verified, red: task.Verified},
		{name: "not fixed", change: []string{"test"}, want: task.NotFixed},
		{name: "turns an outcome round", change: []string{"test", "breaks", "willfail"}, want: task.Tamper, reason: "refund"},
	}...))
}

func TestRSpec(t *testing.T) {
	optional(t, have("rspec"), "rspec")
	prove(t, "ruby.txtar", Settings{}, long(t, 3, []proofCase{
		{name: "fixed", change: []string{"test", "fix"}, want: task.Verified},
		{name: "declared", change: []string{"test", "fix"}, declared: []string{"spec/coupon_spec.rb"}, want: task.Verified, red: task.Verified},
		{name: "not fixed", change: []string{"test"}, want: task.NotFixed},
		{name: "breaks another test", change: []string{"test", "breaks"}, want: task.Regression, reason: "refunds"},
		{name: "does not load on the base", change: []string{"load"}, declared: []string{"takes a share off"}, want: task.WeakRed, reason: "cannot load such file"},
		{name: "a hook leaves the broken one out", change: []string{"test", "breaks", "hook"}, want: task.Regression, reason: "refunds"},
	}...))
}

func TestPHPUnit(t *testing.T) {
	optional(t, have("phpunit"), "phpunit")
	prove(t, "php.txtar", Settings{}, long(t, 5, []proofCase{
		{name: "fixed, one data set of two shows it", change: []string{"test", "fix"}, want: task.Verified},
		{name: "declared without the data set", change: []string{"test", "fix"}, declared: []string{"CouponTest::testTakesAShareOff"}, want: task.Verified, red: task.Verified},
		{name: "not fixed", change: []string{"test"}, want: task.NotFixed},
		{name: "breaks another test", change: []string{"test", "breaks"}, want: task.Regression, reason: "testRefund"},
		{name: "calls what is not there", change: []string{"missing", "fix"}, declared: []string{"testTakesAShareOff"}, want: task.WeakRed, reason: "undefined function"},
	}...))
}

// TestSeveralSuites: a changed test runs in the suite it belongs to, and every suite is compared.
func TestSeveralSuites(t *testing.T) {
	needCommand(t, "node", "--version")
	prove(t, "two.txtar", Settings{}, []proofCase{
		{name: "fixed in one", change: []string{"test", "fix"}, want: task.Verified},
		{name: "fixed in one, the other broken", change: []string{"test", "fix", "breaks"}, declared: []string{"takes a share off"}, want: task.Regression, reason: "TestRefund"},
	})
}

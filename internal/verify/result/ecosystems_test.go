package result

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestEcosystemTraps names what the fixtures of the compiled languages, Ruby, PHP and Bazel are there for.
func TestEcosystemTraps(t *testing.T) {
	for _, c := range []struct {
		name, file string
		outcome    Outcome
		want       map[string]task.TestStatus
		absent     []string
		build      []string
		suites     []string
		problem    string
		says       map[string]string // part of a message
	}{
		{
			name: "cargo: output in a result's line, a summary in a test's output", file: "cargo-mixed.txt", outcome: Complete,
			want: map[string]task.TestStatus{
				"shop (src/lib.rs)::tests::noise": task.Pass, "shop (src/lib.rs)::tests::wrong": task.Fail, "shop (src/lib.rs)::tests::prints_lies": task.Fail,
				"shop (src/lib.rs)::tests::slow": task.Skip, "shop (src/lib.rs)::tests::panics": task.Pass, "tool (src/bin/tool.rs)::of_bin": task.Pass,
				"it (tests/it.rs)::works": task.Pass, "it (tests/it.rs)::deep::works": task.Fail,
				"shop (doc)::src/lib.rs - add": task.Pass, "shop (doc)::src/lib.rs - add #2": task.Fail,
			},
			says: map[string]string{"shop (src/lib.rs)::tests::prints_lies": "after lies", "shop (src/lib.rs)::tests::result": `Error: "bad thing"`, "shop (src/lib.rs)::tests::panics_otherwise": "did not contain expected string"},
		},
		{
			name: "cargo: an abort takes the target's results along", file: "cargo-abort.txt", outcome: Partial, problem: "SIGABRT",
			want: map[string]task.TestStatus{"it (tests/it.rs)::a_first": task.Pass}, absent: []string{"it (tests/it.rs)::dies", "it (tests/it.rs)::z_last"},
		},
		{
			name: "cargo: a thread names the culprit", file: "cargo-overflow.txt", outcome: Partial,
			want: map[string]task.TestStatus{"it (tests/it.rs)::recurses": task.Fail}, says: map[string]string{"it (tests/it.rs)::recurses": "overflowed its stack"},
		},
		{name: "cargo: exit(0) in a test", file: "cargo-exit0.txt", outcome: Partial, problem: "ended before its summary", absent: []string{"it (tests/it.rs)::z_fails"}},
		{name: "cargo: a target that does not build", file: "cargo-nobuild.txt", outcome: Complete, build: []string{"shop (test it)"}, problem: "cannot find function `minus`"},
		{name: "cargo: a target with a runner of its own", file: "cargo-harness.txt", outcome: Complete, suites: []string{"own (tests/own.rs)"}},
		{name: "cargo: a filter that matches nothing", file: "cargo-none.txt", outcome: Complete},
		{
			name: "nextest: flaky, aborted, out of time", file: "nextest.xml", outcome: Complete,
			want: map[string]task.TestStatus{"shop::tests::second_time": task.Flaky, "shop::it::dies": task.Fail, "shop::it::hangs": task.Timeout, "shop::tests::wrong": task.Fail},
			says: map[string]string{"shop::tests::wrong": "assertion `left == right` failed: sum of 1"},
		},
		{
			name: "Surefire", file: "maven-four-PriceTest.xml", outcome: Complete,
			want: map[string]task.TestStatus{"shop.PriceTest::adds": task.Pass, "shop.PriceTest::wrong": task.Fail, "shop.PriceTest::npe": task.Fail, "shop.PriceTest::hangs": task.Timeout, "shop.PriceTest::assumed": task.Skip},
		},
		{name: "Surefire: a class whose set-up fails", file: "maven-four-SetupTest.xml", outcome: Complete, want: map[string]task.TestStatus{"shop.SetupTest": task.Errored}},
		{
			name: "Surefire: a test that passes when tried again", file: "maven-flaky-FlakyTest.xml", outcome: Complete,
			want: map[string]task.TestStatus{"shop.FlakyTest::secondTime": task.Flaky, "shop.FlakyTest::never": task.Fail},
		},
		{
			name: "Gradle", file: "gradle-PriceTest.xml", outcome: Complete,
			want: map[string]task.TestStatus{"shop.PriceTest::adds": task.Pass, "shop.PriceTest::wrong": task.Fail, "shop.PriceTest::npe": task.Fail, "shop.PriceTest::ignored": task.Skip},
		},
		{
			name: "ctest: not built, switched off, skipped by itself", file: "ctest.xml", outcome: Partial, build: []string{"gone"}, problem: "gone: not run",
			want: map[string]task.TestStatus{"good": task.Pass, "bad": task.Fail, "gone": task.Missing, "off": task.Skip, "skip": task.Skip},
			says: map[string]string{"bad": "expected 4, got 3", "crash": "Assertion `1 + 1 == 3' failed"},
		},
		{
			name: "trx: not executed, in progress, out of time", file: "dotnet.trx", outcome: Complete,
			want: map[string]task.TestStatus{
				"Shop.Tests.PriceTests::LeftOut": task.Skip, "Shop.Tests.PriceTests::Running": task.Missing, "Shop.Tests.PriceTests::Hangs": task.Timeout,
				"Shop.Tests.PriceTests::Rows(a: 1, b: 1)": task.Pass, "Shop.Tests.PriceTests::Rows(a: 1, b: 2)": task.Fail,
			},
		},
		{
			name: "RSpec: same names, pending, a hook", file: "rspec-mixed.json", outcome: Complete,
			want: map[string]task.TestStatus{
				"spec/price_spec.rb::Price same name": task.Pass, "spec/price_spec.rb::Price same name #2": task.Fail, "spec/price_spec.rb::Price waits": task.Skip,
				"spec/price_spec.rb::Price is pending and passes": task.Fail, "spec/price_spec.rb::Price hook never": task.Fail,
			},
		},
		{name: "RSpec: a file that does not load", file: "rspec-load.json", outcome: Complete, build: []string{"spec/bad_spec.rb"}, problem: "cannot load such file -- missing_thing"},
		{name: "RSpec: focus leaves the others out", file: "rspec-focus.json", outcome: Complete, want: map[string]task.TestStatus{"spec/f_spec.rb::f chosen": task.Pass}, absent: []string{"spec/f_spec.rb::f left out"}},
		{
			name: "PHPUnit: data sets, risky, messages without the test's name", file: "phpunit.xml", outcome: Complete,
			want: map[string]task.TestStatus{
				"PriceTest::testRows with data set #0": task.Pass, "PriceTest::testRows with data set #1": task.Fail, `PriceTest::testRows with data set "a name with #1"`: task.Pass,
				"PriceTest::testRisky": task.Errored, "PriceTest::testIncomplete": task.Skip, "PriceTest::testDepends": task.Skip,
			},
			says: map[string]string{"PriceTest::testWrong": "the sum\nFailed asserting that 3 is identical to 4."},
		},
		{
			name: "Bazel's own stream", file: "bazel-bep.json", outcome: Complete, build: []string{"//shop:broken", "//shop:gone_test"},
			want: map[string]task.TestStatus{"//shop:good_test": task.Pass, "//shop:bad_test": task.Fail, "//shop:flaky_test": task.Flaky, "//shop:slow_test": task.Timeout},
		},
		{
			name: "Bazel: what a target printed", file: "bazel-bad.xml", outcome: Complete,
			want: map[string]task.TestStatus{"//shop:bad_test": task.Fail}, says: map[string]string{"//shop:bad_test": "expected 4, got 3"},
		},
		{
			name: "vitest: tried again, same names, rows, a file and a hook that fail", file: "vitest-mixed.json", outcome: Partial,
			build: []string{"mixed/b.test.js"}, suites: []string{"mixed/c.test.js"},
			want: map[string]task.TestStatus{
				"mixed/a.test.js::cart second time": task.Flaky, "mixed/a.test.js::cart same": task.Pass, "mixed/a.test.js::cart same #2": task.Fail,
				"mixed/a.test.js::cart row 1 2": task.Fail, "mixed/a.test.js::cart hangs": task.Timeout, "mixed/a.test.js::cart later": task.Skip, "mixed/c.test.js::needs it": task.Skip,
				"mixed/a.test.js::hook waits": task.Timeout,
			},
		},
		{
			name: "vitest 0: a file that does not load is said to have passed", file: "vitest-0.json", outcome: Complete, build: []string{"v/b.test.js"},
			want: map[string]task.TestStatus{"v/b.test.js": task.Errored, "v/a.test.js::cart ok": task.Pass, "v/a.test.js::cart hangs": task.Timeout},
		},
		{name: "vitest: only leaves the others out", file: "vitest-only.json", outcome: Complete, want: map[string]task.TestStatus{"only/o.test.js::other": task.Skip}},
		{name: "vitest: an unhandled rejection is in the exit code alone", file: "vitest-rejects.json", outcome: Complete, want: map[string]task.TestStatus{"rejects/r.test.js::passes": task.Pass}},
		{name: "vitest: process.exit in a test", file: "vitest-exits.json", outcome: Complete, want: map[string]task.TestStatus{"exits/x.test.js::leaves": task.Fail}},
		{
			name: "Bazel: flaky, out of time, not built", file: "bazel-unbuilt.json", outcome: Complete, build: []string{"//shop:gone_test"},
			want: map[string]task.TestStatus{"//shop:flaky_test": task.Flaky, "//shop:slow_test": task.Timeout},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := parse(t, c.file, fixtures(t)[c.file])
			if r.Outcome != c.outcome {
				t.Errorf("outcome %s, want %s: %q", r.Outcome, c.outcome, r.Problems)
			}
			by := r.ByID()
			for id, s := range c.want {
				if by[id].Status != s {
					t.Errorf("%s: %q, want %q", id, by[id].Status, s)
				}
			}
			for id, s := range c.says {
				if !strings.Contains(by[id].Message, s) {
					t.Errorf("%s says %q, want %q", id, by[id].Message, s)
				}
			}
			for _, id := range c.absent {
				if _, ok := by[id]; ok {
					t.Errorf("%s is a test", id)
				}
			}
			if d := cmp.Diff(c.build, r.BuildFailed); d != "" {
				t.Error("build failed:", d)
			}
			if d := cmp.Diff(c.suites, r.FailedSuites); d != "" {
				t.Error("failed suites:", d)
			}
			if c.problem != "" && !strings.Contains(strings.Join(r.Problems, "\n"), c.problem) {
				t.Errorf("no problem says %q: %q", c.problem, r.Problems)
			}
		})
	}
}

// TestConsole: what only the command's own output tells is taken, and nothing good is believed.
func TestConsole(t *testing.T) {
	for _, c := range []struct {
		tool, file, report string
		outcome            Outcome
		build, suites      []string
		problem            string
		want               map[string]task.TestStatus
	}{
		{tool: "maven", file: "console-maven-exits.log", report: "maven-exits-AFirstTest.xml", outcome: Partial, suites: []string{"shop.LeavesTest"}, problem: "terminated without properly saying goodbye"},
		{tool: "maven", file: "console-maven-nobuild.log", outcome: NoReport, build: []string{"src/test/java/shop/NoTest.java"}, problem: "cannot find symbol"},
		{tool: "gradle", file: "console-gradle-nobuild.log", outcome: NoReport, build: []string{"src/test/java/shop/NoTest.java"}, problem: "cannot find symbol"},
		{
			tool: "ctest", file: "console-ctest.log", report: "ctest.xml", outcome: Partial, build: []string{"gone", "gone.c"}, problem: "not_declared",
			want: map[string]task.TestStatus{"hang": task.Timeout, "bad": task.Fail, "good": task.Pass},
		},
	} {
		t.Run(c.file, func(t *testing.T) {
			text, err := os.ReadFile("testdata/" + c.file)
			if err != nil {
				t.Fatal(err)
			}
			r := Merge()
			if c.report != "" {
				r = Merge(parse(t, c.report, fixtures(t)[c.report]))
			}
			r.Console(c.tool, string(text), Options{Root: root})
			if r.Outcome != c.outcome {
				t.Errorf("outcome %s, want %s", r.Outcome, c.outcome)
			}
			if d := cmp.Diff(c.build, r.BuildFailed); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(c.suites, r.FailedSuites); d != "" {
				t.Error(d)
			}
			if !strings.Contains(strings.Join(r.Problems, "\n"), c.problem) {
				t.Errorf("%q", r.Problems)
			}
			for id, s := range c.want {
				if got := r.ByID()[id].Status; got != s {
					t.Errorf("%s: %s, want %s", id, got, s)
				}
			}
		})
	}
	for tool, line := range map[string]string{
		"gradle": "/srv/tree/src/test/java/shop/NoTest.java:1: error: cannot find symbol", "trx": "/srv/tree/tests/PriceTests.cs(21,5): error CS0103: The name 'x' does not exist [/srv/tree/tests/Shop.Tests.csproj]",
		"phpunit": "PHP Parse error:  syntax error, unexpected end of file in /srv/tree/tests/ATest.php on line 3",
	} {
		var r Report
		if r.Console(tool, line+"\n", Options{Root: root}); len(r.BuildFailed) != 1 || strings.HasPrefix(r.BuildFailed[0], "/") || len(r.Tests) != 0 {
			t.Errorf("%s: %+v", tool, r)
		}
	}
}

// TestIDsKeepWhatRunnersNumber: a runner's own " #2" is no number of ours.
func TestIDsKeepWhatRunnersNumber(t *testing.T) {
	r := ParseJUnit(strings.NewReader(`<testsuite><testcase classname="c" name="case #1"/><testcase classname="c" name="case #2"><failure/></testcase><testcase classname="c" name="case #2"/></testsuite>`), Options{})
	want := map[string]task.TestStatus{"c::case #1": task.Pass, "c::case #2": task.Fail, "c::case #2 #2": task.Pass}
	if d := cmp.Diff(want, statuses(Merge(r))); d != "" {
		t.Error(d)
	}
	one := Merge(ParseJUnit(strings.NewReader(`<testsuite><testcase classname="c" name="case #2"/></testsuite>`), Options{}))
	if one.Tests[0].ID != "c::case #2" {
		t.Error("run alone it has another id:", one.Tests[0].ID)
	}
}

// TestBazelJoins: a target is one test, whichever of the two files tells of it.
func TestBazelJoins(t *testing.T) {
	all := fixtures(t)
	r := MergeBazel(parse(t, "bazel-bep.json", all["bazel-bep.json"]), parse(t, "bazel-good.xml", all["bazel-good.xml"]), parse(t, "bazel-bad.xml", all["bazel-bad.xml"]))
	by := r.ByID()
	if len(r.Tests) != 4 || by["//shop:good_test"].Status != task.Pass || by["//shop:bad_test"].Status != task.Fail || !strings.Contains(by["//shop:bad_test"].Message, "expected 4, got 3") {
		t.Errorf("%+v", r.Tests)
	}
}

func TestCargoForms(t *testing.T) {
	head := "     Running unittests src/lib.rs (target/debug/deps/a-0123456789abcdef)\n\n"
	for _, c := range []struct {
		name, in string
		outcome  Outcome
		want     map[string]task.TestStatus
	}{
		{
			"a result on a later line", head + "running 2 tests\ntest a ... printed\nok\ntest b ... FAILED\n\nfailures:\n\nfailures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n" + EndMark + "101\n",
			Complete,
			map[string]task.TestStatus{"a (src/lib.rs)::a": task.Pass, "a (src/lib.rs)::b": task.Fail},
		},
		{
			"a made-up result", head + "running 1 test\ntest b ... ok\ntest a ... FAILED\n\nfailures:\n\nfailures:\n    a\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n" + EndMark + "101\n",
			Partial,
			map[string]task.TestStatus{"a (src/lib.rs)::a": task.Fail, "a (src/lib.rs)::b": task.Pass},
		},
		{
			"two results of one test", head + "running 1 test\ntest a ... ok\ntest a ... FAILED\ntest result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n" + EndMark + "101\n",
			Partial,
			map[string]task.TestStatus{"a (src/lib.rs)::a": task.Fail},
		},
		{
			"cut before cargo ended", head + "running 1 test\ntest a ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n",
			Partial,
			map[string]task.TestStatus{"a (src/lib.rs)::a": task.Pass},
		},
		{
			"documentation tests by line", "   Doc-tests a\n\nrunning 2 tests\ntest src/lib.rs - f (line 20) ... FAILED\ntest src/lib.rs - f (line 3) ... ok\n\nfailures:\n\nfailures:\n    src/lib.rs - f (line 20)\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n" + EndMark + "101\n",
			Complete,
			map[string]task.TestStatus{"a (doc)::src/lib.rs - f": task.Pass, "a (doc)::src/lib.rs - f #2": task.Fail},
		},
		{
			"a test that has not ended", head + "running 2 tests\ntest a has been running for over 60 seconds\ntest b ... ok\n",
			Partial,
			map[string]task.TestStatus{"a (src/lib.rs)::a": task.Missing, "a (src/lib.rs)::b": task.Pass},
		},
		{
			"old forms", "     Running target/debug/deps/a-0123456789abcdef\n\nrunning 1 test\ntest a ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n" + EndMark + "0\n",
			Complete,
			map[string]task.TestStatus{"a::a": task.Pass},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := ParseCargo(strings.NewReader(c.in), Options{})
			if r.Outcome != c.outcome {
				t.Errorf("outcome %s, want %s (%q)", r.Outcome, c.outcome, r.Problems)
			}
			if d := cmp.Diff(c.want, statuses(r)); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestDocTestsDoNotMove: lines that are added above a documentation test leave its id alone.
func TestDocTestsDoNotMove(t *testing.T) {
	id := func(line int) string {
		in := fmt.Sprintf("   Doc-tests a\n\nrunning 1 test\ntest src/lib.rs - f (line %d) ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n%s0\n", line, EndMark)
		return ParseCargo(strings.NewReader(in), Options{}).Tests[0].ID
	}
	if a, b := id(3), id(300); a != b {
		t.Error(a, b)
	}
}

// TestHostileReports: names and texts that nobody means well with are kept within bounds in every format.
func TestHostileReports(t *testing.T) {
	long, bad := strings.Repeat("x", 3<<20), "\x00\x1b[31m\xff\xfe$(reboot)`id`\u202e"
	for _, c := range []struct{ format, in string }{
		{"cargo", "     Running unittests src/lib.rs (target/debug/deps/a-0123456789abcdef)\n\nrunning 2 tests\ntest " + bad + " ... FAILED\ntest " + long + " ... ok\n"},
		{"trx", `<TestRun><Results><UnitTestResult testName="` + long + `" outcome="Passed"/><UnitTestResult testName="a` + bad + `" outcome="Failed"><Output><ErrorInfo><Message>` + long + `</Message></ErrorInfo></Output></UnitTestResult></Results></TestRun>`},
		{"rspec", `{"examples":[{"id":"a[1:1]","full_description":"` + long + `","status":"passed"},{"full_description":"b\u0000\u202e","status":"failed","exception":{"class":"E","message":"` + long + `"}}],"summary":{"example_count":2}}`},
		{"bazel", `{"id":{"testSummary":{"label":"` + long[:1<<19] + `"}},"testSummary":{"overallStatus":"FAILED"}}` + "\n" + `{"lastMessage":true}`},
	} {
		r, err := Parse(c.format, strings.NewReader(c.in), Options{Root: root})
		if err != nil || len(r.Tests) == 0 {
			t.Errorf("%s: %v, %d tests", c.format, err, len(r.Tests))
		}
		for _, x := range r.Tests {
			if len(x.ID) > 5000 || len(x.Message) > 3000 || len(x.Output) > 64<<10 || len(x.Signature) > 1000 || strings.ContainsAny(x.ID, "\x1b") {
				t.Errorf("%s: id %d, message %d, output %d, signature %d bytes", c.format, len(x.ID), len(x.Message), len(x.Output), len(x.Signature))
			}
		}
	}
	utf := utf16le(strings.Replace(string(fixtures(t)["dotnet.trx"]), `encoding="utf-8"`, `encoding="utf-16"`, 1))
	if r := ParseTRX(strings.NewReader(utf), Options{Root: root}); len(r.Tests) != 7 || r.Outcome != Complete {
		t.Errorf("UTF-16: %d tests, %s %q", len(r.Tests), r.Outcome, r.Problems)
	}
}

package result

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/task"
)

func statuses(r Report) map[string]task.TestStatus {
	m := map[string]task.TestStatus{}
	for _, t := range r.Tests {
		m[t.ID] = t.Status
	}
	return m
}

func TestJUnitDialects(t *testing.T) {
	for _, c := range []struct {
		name, in string
		outcome  Outcome
		want     map[string]task.TestStatus
	}{
		{
			"surefire: flaky and rerun", `<testsuite name="a.B" tests="3" failures="1" errors="0">
			<testcase name="ok" classname="a.B" time="0.1"/>
			<testcase name="flaky" classname="a.B"><flakyFailure message="x" type="E">st</flakyFailure></testcase>
			<testcase name="bad" classname="a.B"><failure message="m" type="org.opentest4j.AssertionFailedError">at a.B.bad(B.java:5)</failure><rerunFailure message="m">s</rerunFailure></testcase></testsuite>`,
			Complete,
			map[string]task.TestStatus{"a.B::ok": task.Pass, "a.B::flaky": task.Flaky, "a.B::bad": task.Fail},
		},
		{
			"surefire: an exception from the body is a failure, a class that does not load is not", `<testsuite name="a.B" errors="2">
			<testcase name="npe" classname="a.B"><error message="boom" type="java.lang.NullPointerException">java.lang.NullPointerException: boom
	at a.B.npe(B.java:9)</error></testcase>
			<testcase name="cls" classname="a.B"><error type="java.lang.NoClassDefFoundError">x</error></testcase></testsuite>`,
			Complete,
			map[string]task.TestStatus{"a.B::npe": task.Fail, "a.B::cls": task.Errored},
		},
		{
			"ctest: not run is not a skip", `<testsuite name="c" tests="3" failures="0" skipped="2"><testcase name="built" classname="built" status="run"/>
			<testcase name="gone" classname="gone" status="notrun"><skipped message="Unable to find executable"/></testcase>
			<testcase name="self" classname="self" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase></testsuite>`,
			Partial,
			map[string]task.TestStatus{"built": task.Pass, "gone": task.Missing, "self": task.Skip},
		},
		{
			"a suite that says failures and shows none", `<testsuites><testsuite name="s" failures="2"><testcase name="a" classname="c"/></testsuite></testsuites>`,
			Partial,
			map[string]task.TestStatus{"c::a": task.Pass},
		},
		{
			"failure, then a tear-down error of its own", `<testsuite name="pytest" failures="1" errors="1"><testcase classname="m" name="t"><failure message="assert 1">x</failure></testcase>
			<testcase classname="m" name="t"><error message="failed on teardown with &quot;E&quot;">y</error></testcase></testsuite>`,
			Complete,
			map[string]task.TestStatus{"m::t": task.Fail},
		},
		{
			"control characters, raw and as references", "<testsuite name=\"s\"><testcase classname=\"c\" name=\"a\x01b&#27;c&#x1b;d&amp;e\"><system-out>\x1b[31m&#0;</system-out></testcase></testsuite>",
			Complete,
			map[string]task.TestStatus{"c::abcd&e": task.Pass},
		},
		{
			"Latin-1", "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><testsuite><testcase classname=\"c\" name=\"caf\xe9\"/></testsuite>",
			Complete,
			map[string]task.TestStatus{"c::café": task.Pass},
		},
		{"invalid UTF-8", "<testsuite><testcase classname=\"c\" name=\"caf\xe9\"/></testsuite>", Complete, map[string]task.TestStatus{"c::caf\uFFFD": task.Pass}},
		{
			"UTF-16", utf16le("<?xml version=\"1.0\" encoding=\"UTF-16\"?><testsuite><testcase classname=\"c\" name=\"é😀\"/></testsuite>"),
			Complete,
			map[string]task.TestStatus{"c::é😀": task.Pass},
		},
		{
			"nested suites without a class name", `<testsuites><testsuite name="a"><testsuite name="b"><testcase name="t"/></testsuite></testsuite></testsuites>`,
			Complete,
			map[string]task.TestStatus{"a > b > t": task.Pass},
		},
		{
			"cut inside a test", `<testsuite><testcase classname="c" name="a"/><testcase classname="c" name="b"><fail`,
			Partial,
			map[string]task.TestStatus{"c::a": task.Pass, "c::b": task.Missing},
		},
		{
			"duplicates", `<testsuite><testcase classname="c" name="a"/><testcase classname="c" name="a"><failure/></testcase></testsuite>`,
			Complete,
			map[string]task.TestStatus{"c::a": task.Pass, "c::a #2": task.Fail},
		},
		{"not JUnit", `<coverage/>`, NoReport, map[string]task.TestStatus{}},
		{"too deep", strings.Repeat("<testsuite>", 500), Partial, map[string]task.TestStatus{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := ParseJUnit(strings.NewReader(c.in), Options{})
			if r.Outcome != c.outcome {
				t.Errorf("outcome %s, want %s (%q)", r.Outcome, c.outcome, r.Problems)
			}
			if d := cmp.Diff(c.want, statuses(r)); d != "" {
				t.Error(d)
			}
		})
	}
}

func utf16le(s string) string {
	b := []byte{0xFF, 0xFE}
	for _, u := range utf16.Encode([]rune(s)) {
		b = append(b, byte(u), byte(u>>8))
	}
	return string(b)
}

func TestTAPForms(t *testing.T) {
	for _, c := range []struct {
		name, in string
		outcome  Outcome
		want     map[string]task.TestStatus
	}{
		{"plan first", "1..2\nok 1 - a\nnot ok 2 - b\n", Complete, map[string]task.TestStatus{"a": task.Pass, "b": task.Fail}},
		{"plan short", "1..3\nok 1 - a\n", Partial, map[string]task.TestStatus{"a": task.Pass}},
		{"no plan", "TAP version 13\nok 1 - a\n", Partial, map[string]task.TestStatus{"a": task.Pass}},
		{"bail out", "1..2\nok 1 - a\nBail out! no database\n", Partial, map[string]task.TestStatus{"a": task.Pass}},
		{"skip all", "1..0 # SKIP no network\n", Complete, map[string]task.TestStatus{}},
		{
			"directives", "1..4\nok 1 - a # SKIP why\nnot ok 2 - b # TODO later\nok 3 - c # todo\nok 4 - d \\# SKIP no\n", Complete,
			map[string]task.TestStatus{"a": task.Skip, "b": task.XFail, "c": task.Skip, "d # SKIP no": task.Pass},
		},
		{
			"braces", "ok 1 - p # time=3ms {\n    ok 1 - c\n    not ok 2 - d\n    1..2\n}\n1..1\n", Complete,
			map[string]task.TestStatus{"p": task.Pass, "p > c": task.Pass, "p > d": task.Fail},
		},
		{
			"three levels", "        ok 1 - c\n        1..1\n    ok 1 - b\n    1..1\nok 1 - a\n1..1\n", Complete,
			map[string]task.TestStatus{"a": task.Pass, "a > b": task.Pass, "a > b > c": task.Pass},
		},
		{"nested plan short", "    ok 1 - c\n    1..2\nok 1 - a\n1..1\n", Partial, map[string]task.TestStatus{"a": task.Pass, "a > c": task.Pass}},
		{"a parent that never came", "# Subtest: a\n    ok 1 - c\n1..0\n", Partial, map[string]task.TestStatus{"a > c": task.Pass}},
		{
			"bats: comments after a failure are no names", "1..2\nnot ok 1 adds\n# (in test file x.bats, line 3)\nok 2 subs\n", Complete,
			map[string]task.TestStatus{"adds": task.Fail, "subs": task.Pass},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := ParseTAP(strings.NewReader(c.in), Options{})
			if r.Outcome != c.outcome {
				t.Errorf("outcome %s, want %s (%q)", r.Outcome, c.outcome, r.Problems)
			}
			if d := cmp.Diff(c.want, statuses(r)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestSignatureIsStable(t *testing.T) {
	a := Signature("panic at 0xc000123 in goroutine 17 after 1.25s: /tmp/abc123/x.db line 12 of /srv/a.go:10:2 at 2026-01-02T03:04:05Z pid 411 on 127.0.0.1:4242 id 1b4e28ba-2fa1-11d2-883f-0016d3cca427", "pkg/a_test.go:31")
	b := Signature("panic at 0xc0009ff in goroutine 9 after 730ms: /tmp/zz9/y.db line 99 of /srv/a.go:77:1 at 2027-11-12T13:14:15.5+02:00 pid 7 on 127.0.0.1:9 id 00000000-2fa1-11d2-883f-0016d3cca427", "pkg/a_test.go:8")
	if a != b {
		t.Errorf("\n%s\n%s", a, b)
	}
	if a == Signature("got 3, want 4", "pkg/a_test.go:31") || Signature("got 3, want 4", "") == Signature("got 5, want 4", "") {
		t.Error("different failures look alike")
	}
	if !strings.HasSuffix(a, "@ pkg/a_test.go") {
		t.Error(a)
	}
}

func TestMerge(t *testing.T) {
	a := Report{Outcome: Complete, Tests: []Test{{ID: "x", Status: task.Pass}, {ID: "x #2", Status: task.Fail}}, BuildFailed: []string{"p"}}
	b := Report{Outcome: Partial, Tests: []Test{{ID: "x", Status: task.Skip}, {ID: "seed#2", Status: task.Pass}}, BuildFailed: []string{"p", "q"}, Problems: []string{"cut"}}
	m := Merge(a, b)
	want := map[string]task.TestStatus{"x": task.Pass, "x #2": task.Fail, "x #3": task.Skip, "seed#2": task.Pass}
	if d := cmp.Diff(want, statuses(m)); d != "" {
		t.Error(d)
	}
	if m.Outcome != Partial || len(m.BuildFailed) != 2 || len(m.Problems) != 1 {
		t.Errorf("%+v", m)
	}
	if Merge().Outcome != NoReport || Merge(a).Outcome != Complete || Merge(a, Report{Outcome: NoReport}).Outcome != Partial {
		t.Error("outcomes")
	}
}

func TestGoNoiseAndBounds(t *testing.T) {
	var in strings.Builder
	in.WriteString("go: downloading example.com/x v1.0.0\n")
	in.WriteString(`{"Action":"run","Package":"p","Test":"TestA"}` + "\n")
	for i := range 5000 {
		fmt.Fprintf(&in, `{"Action":"output","Package":"p","Test":"TestA","Output":"line %d of noise\n"}`+"\n", i)
	}
	in.WriteString(`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: last words\n"}` + "\n")
	in.WriteString(`{"Action":"fail","Package":"p","Test":"TestA","Elapsed":0.5}` + "\n" + `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n")
	r := ParseGo(strings.NewReader(in.String()), Options{MaxOutput: 2000})
	x := r.ByID()["p::TestA"]
	if x.Status != task.Fail || x.Message != "last words" || r.Outcome != Complete {
		t.Errorf("%+v", x)
	}
	if len(x.Output) > 2200 || !strings.HasPrefix(x.Output, "line 0 ") || !strings.Contains(x.Output, "bytes left out") {
		t.Errorf("output of %d bytes: %.60s", len(x.Output), x.Output)
	}
	if len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "downloading") {
		t.Errorf("%q", r.Problems)
	}
}

func BenchmarkParseGo(b *testing.B) {
	var in strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&in, `{"Action":"run","Package":"p","Test":"Test%d"}
{"Action":"output","Package":"p","Test":"Test%d","Output":"--- PASS: Test%d\n"}
{"Action":"pass","Package":"p","Test":"Test%d","Elapsed":0.1}
`, i, i, i, i)
	}
	in.WriteString(`{"Action":"pass","Package":"p"}`)
	b.SetBytes(int64(in.Len()))
	for b.Loop() {
		if r := ParseGo(strings.NewReader(in.String()), Options{}); len(r.Tests) != 2000 {
			b.Fatal(len(r.Tests))
		}
	}
}

// TestConsoleOfPytest: JUnit's XML has a test that passes although it is marked to fail as a pass.
func TestConsoleOfPytest(t *testing.T) {
	r := Report{Outcome: Complete}
	for _, id := range []string{"tests/test_a.py::test_x", "tests/test_a.py::TestA::test_y[a - b]", "tests/test_a.py::test_x_more"} {
		r.Tests = append(r.Tests, Test{ID: id, Status: task.Pass})
	}
	r.Tests = append(r.Tests, Test{ID: "tests/test_a.py::test_z", Status: task.Fail})
	r.Console("pytest", "..\nXPASS tests/test_a.py::test_x - later\nXPASS tests/test_a.py::TestA::test_y[a - b]\nXPASS tests/test_a.py::test_z\nXPASS\n", Options{})
	got := ""
	for _, x := range r.Tests {
		got += string(x.Status) + " "
	}
	if got != "xfail xfail pass fail " {
		t.Error(got)
	}
}

// The words about a stack that overflowed come piece by piece, and other tests end meanwhile.
func TestCargoOverflowAmongResults(t *testing.T) {
	const head = "     Running tests/it.rs (target/debug/deps/it-d6c00e1614d165e9)\n\nrunning 4 tests\ntest a ... ok\n"
	const tail = "fatal runtime error: stack overflow, aborting\nerror: test failed, to rerun pass `--test it`\n\nCaused by:\n" +
		"  process didn't exit successfully: `/srv/it` (signal: 6, SIGABRT: process abort signal)\n" + EndMark + "101\n"
	for text, others := range map[string]int{
		"\nthread 'deep::recurses' (136) has overflowed its stack\n":                                         0,
		"\nthread 'deep::recurses' has overflowed its stack\n":                                               0,
		"\nthread 'test b::c ... okdeep::recurses\n' (136) has overflowed its stack\n":                       1,
		"\nthread 'test b::c ... ok\ndeep::recurses' (136) has overflowed its stack\n":                       1,
		"\nthread 'deep::recursestest b::c ... ok\n' (136test b::d ... FAILED\n) has overflowed its stack\n": 2,
		"test b::c ... \nthread 'ok\ndeep::recurses' (136) has overflowed its stack\n":                       1,
		"\nthread 'deep::recurses\n1\n2\n3\n4\n5\n6\n7\n8\n9\n' (136) has overflowed its stack\n":            -1,
		"\nthread 'deep::recurses\ntest b::c ... ok\n":                                                       -2,
	} {
		r := ParseCargo(strings.NewReader(head+text+tail), Options{})
		got := map[string]task.TestStatus{}
		for _, c := range r.Tests {
			got[c.Name] = c.Status
		}
		if r.Outcome != Partial || got["a"] != task.Pass {
			t.Errorf("%q: %s %v", text, r.Outcome, got)
		}
		if fails := got["deep::recurses"] == task.Fail; fails != (others >= 0) {
			t.Errorf("%q: %v", text, got)
		}
		if others > 0 && got["b::c"] != task.Pass || others > 1 && got["b::d"] != task.Fail || others == -2 && got["b::c"] != task.Pass {
			t.Errorf("%q: %v", text, got)
		}
	}
}

package result

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/task"
)

var update = flag.Bool("update", false, "rewrite testdata/want.txt from what the parsers say now")

const root = "/srv/tree" // where the fixtures' runners ran

func formatOf(name string) string {
	switch {
	case strings.HasPrefix(name, "cargo-"), strings.HasPrefix(name, "rspec-"):
		format, _, _ := strings.Cut(name, "-")
		return format
	case strings.HasSuffix(name, ".trx"):
		return "trx"
	case strings.HasPrefix(name, "bazel"):
		return "bazel"
	case strings.HasPrefix(name, "go-"):
		return "go"
	case strings.HasSuffix(name, ".xml"):
		return "junit"
	case strings.HasSuffix(name, ".tap"):
		return "tap"
	case strings.HasPrefix(name, "mocha"):
		return "mocha"
	case strings.HasPrefix(name, "unittest"):
		return "unittest"
	}
	return "jest"
}

// fixtures returns what real runners wrote, by file name.
func fixtures(t testing.TB) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("testdata/*.*")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, n := range names {
		if b := filepath.Base(n); b == "want.txt" || b == "README.md" || strings.HasPrefix(b, "console-") {
			continue
		}
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(n)] = b
	}
	if len(out) < 25 {
		t.Fatalf("only %d fixtures", len(out))
	}
	return out
}

func parse(t testing.TB, name string, data []byte) Report {
	t.Helper()
	r, err := Parse(formatOf(name), bytes.NewReader(data), Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func render(name string, r Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "== %s: %s\n", name, r.Outcome)
	for _, s := range r.BuildFailed {
		fmt.Fprintf(&b, "  did not build: %s\n", s)
	}
	for _, s := range r.FailedSuites {
		fmt.Fprintf(&b, "  failed as a whole: %s\n", s)
	}
	for _, s := range r.Problems {
		fmt.Fprintf(&b, "  ! %s\n", s)
	}
	for _, x := range r.Tests {
		fmt.Fprintf(&b, "  %s %s", x.Status, x.ID)
		if x.Signature != "" {
			fmt.Fprintf(&b, " — %s", strings.ReplaceAll(x.Signature, "\n", " | "))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestRealReports(t *testing.T) {
	all := fixtures(t)
	var got strings.Builder
	names, _ := filepath.Glob("testdata/*.*")
	for _, n := range names {
		if data, ok := all[filepath.Base(n)]; ok {
			got.WriteString(render(filepath.Base(n), parse(t, filepath.Base(n), data)))
		}
	}
	if *update {
		if err := os.WriteFile("testdata/want.txt", []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/want.txt")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("want -, got +\n%s", d)
	}
}

// TestTraps names what each fixture is there for.
func TestTraps(t *testing.T) {
	for _, c := range []struct {
		name, file string
		outcome    Outcome
		want       map[string]task.TestStatus
		absent     []string
		build      []string
		suites     []string
		problem    string
	}{
		{
			name: "a panic fails its test and hides the later ones", file: "go-panics.json", outcome: Partial,
			want:   map[string]task.TestStatus{"example.com/shop/panics::TestBefore": task.Pass, "example.com/shop/panics::TestBoom": task.Fail},
			absent: []string{"example.com/shop/panics::TestAfter"}, problem: "assignment to entry in nil map",
		},
		{
			name: "a panic in a goroutine: the culprit has no final event", file: "go-parallel.json", outcome: Partial,
			want: map[string]task.TestStatus{"example.com/shop/parallel::TestGo": task.Fail, "example.com/shop/parallel::TestWaits": task.Missing},
		},
		{
			name: "a timeout", file: "go-hang.json", outcome: Partial,
			want: map[string]task.TestStatus{"example.com/shop/hang::TestHang": task.Timeout, "example.com/shop/hang::TestHang/inner": task.Timeout, "example.com/shop/hang::TestBefore": task.Pass},
		},
		{
			name: "TestMain ignores the code", file: "go-mainlies.json", outcome: Complete, problem: "passed although 1",
			want: map[string]task.TestStatus{"example.com/shop/mainlies::TestBad": task.Fail},
		},
		{name: "TestMain fails a green package", file: "go-exitfails.json", outcome: Partial, suites: []string{"example.com/shop/exitfails"}, problem: "leak: 3 goroutines"},
		{name: "os.Exit(0) in a test", file: "go-osexit.json", outcome: Partial, want: map[string]task.TestStatus{"example.com/shop/osexit::TestQuits": task.Fail}},
		{name: "a package that does not build", file: "go-nobuild.json", outcome: Complete, build: []string{"example.com/shop/nobuild"}, problem: "undefined: undefinedThing"},
		{name: "an import that does not exist", file: "go-setup.json", outcome: Complete, build: []string{"example.com/shop/setup"}},
		{name: "vet", file: "go-vetbad.json", outcome: Complete, build: []string{"example.com/shop/vetbad"}, problem: "vet failed"},
		{name: "-run that matches nothing", file: "go-norun.json", outcome: Complete},
		{
			name: "collection errors of pytest", file: "pytest1.xml", outcome: Complete, build: []string{"test_coll.py", "u/test_imp.py"},
			want: map[string]task.TestStatus{
				"test_shop.py::test_td": task.Errored, "test_shop.py::test_xf": task.XFail, "test_shop.py::test_xps": task.Fail, "test_shop.py::test_up": task.Errored,
				"test_shop.py::TestC::test_m": task.Pass, "test_coll.py": task.Errored, "test_shop.py::test_raise": task.Fail,
			},
		},
		{name: "nothing collected", file: "pytest-empty.xml", outcome: Complete},
		{
			name: "a collection error stops pytest", file: "pytest-coll.xml", outcome: Complete, build: []string{"test_coll"},
			want: map[string]task.TestStatus{"test_coll": task.Errored}, absent: []string{"test_shop::test_ok"},
		},
		{
			name: "jest: only, parse error, before-all", file: "jest.json", outcome: Complete, build: []string{"j/b.test.js"},
			want: map[string]task.TestStatus{"j/c.test.js::two": task.Skip, "j/b.test.js": task.Errored, "j/e.test.js::z": task.Fail, "j/a.test.js::same #2": task.Pass},
		},
		{
			name: "node: a pending promise is cancelled", file: "node-b.tap", outcome: Complete,
			want: map[string]task.TestStatus{"never ends": task.Timeout, "after": task.Missing},
		},
		{name: "node: process.exit(0) leaves one pass that is no test", file: "node-c.tap", outcome: Complete, absent: []string{"c.test.js"}, problem: "no test of the file"},
		{name: "the same in JUnit", file: "node-c.xml", outcome: Complete, absent: []string{"c.test.js"}, problem: "no test of the file"},
		{name: "node: a file that does not parse", file: "node-d.tap", outcome: Complete, build: []string{"d.test.js"}},
		{name: "tape: a crash before the plan", file: "tape-b.tap", outcome: Partial, want: map[string]task.TestStatus{"one": task.Missing}},
		{name: "mocha: a hook", file: "mocha.json", outcome: Complete, want: map[string]task.TestStatus{`m/a.js::cart inner "before all" hook for "never"`: task.Errored, "m/a.js::cart pend": task.Skip}},
		{name: "mocha: only hides the others", file: "mocha-only.json", outcome: Complete, want: map[string]task.TestStatus{"m/o.js::chosen": task.Pass}, absent: []string{"m/o.js::other"}},
		{
			name: "unittest", file: "unittest.txt", outcome: Complete, build: []string{"test_imp"},
			want: map[string]task.TestStatus{"test_u.A::test_bad": task.Fail, "test_u.A::test_xp": task.Fail, "test_u.A::test_sub": task.Fail, "test_u.A::test_skip": task.Skip},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := parse(t, c.file, fixtures(t)[c.file])
			if r.Outcome != c.outcome {
				t.Errorf("outcome %s, want %s", r.Outcome, c.outcome)
			}
			by := r.ByID()
			for id, s := range c.want {
				if by[id].Status != s {
					t.Errorf("%s: %q, want %q", id, by[id].Status, s)
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

func TestZeroTestsNeverRan(t *testing.T) {
	for _, f := range []string{"go-norun.json", "go-nobuild.json", "pytest-empty.xml", "pytest-coll.xml", "node-c.tap", "node-d.tap", "go-nofiles.json"} {
		if c := parse(t, f, fixtures(t)[f]).Counts(); c.Ran() != 0 {
			t.Errorf("%s: %+v", f, c)
		}
	}
}

// TestCutAnywhere cuts every report at many places: what is left never gains a pass, and is
// never complete unless nothing but white space or trailing remarks went missing.
func TestCutAnywhere(t *testing.T) {
	for name, data := range fixtures(t) {
		full := parse(t, name, data)
		by := full.ByID()
		for i := 0; i < len(data); i += 1 + len(data)/150 {
			r := parse(t, name, data[:i])
			for _, x := range r.Tests {
				if w, ok := by[x.ID]; x.Status == task.Pass && (!ok || w.Status != task.Pass) && formatOf(name) != "tap" && formatOf(name) != "unittest" {
					t.Fatalf("%s cut at %d: %s passes", name, i, x.ID)
				}
			}
			if r.Outcome == Complete && len(r.Tests) < len(full.Tests) {
				t.Fatalf("%s cut at %d of %d is complete with %d of %d tests", name, i, len(data), len(r.Tests), len(full.Tests))
			}
		}
	}
}

func TestRefusesHugeReports(t *testing.T) {
	for _, f := range Formats() {
		var data []byte
		for n, b := range fixtures(t) {
			if formatOf(n) == f && len(b) > 600 {
				data = b
			}
		}
		r, err := Parse(f, bytes.NewReader(data), Options{MaxBytes: 500})
		if err != nil || r.Outcome != NoReport || len(r.Tests) != 0 || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "larger than") {
			t.Errorf("%s: %v %+v", f, err, r)
		}
		r, _ = Parse(f, bytes.NewReader(data), Options{MaxBytes: int64(len(data))})
		if r.Outcome == NoReport {
			t.Errorf("%s: a report of exactly the limit is refused", f)
		}
	}
}

func TestUnknownFormat(t *testing.T) {
	_, err := Parse("xml", strings.NewReader(""), Options{})
	if task.ClassOf(err) != task.Invalid || !strings.Contains(err.Error(), "junit") {
		t.Error(err)
	}
}

func TestEmptyInputIsNoReport(t *testing.T) {
	for _, f := range Formats() {
		for _, in := range []string{"", "\n", "hello world\n", "{", "{}", "<html></html>"} {
			r, _ := Parse(f, strings.NewReader(in), Options{})
			if r.Outcome != NoReport || len(r.Tests) != 0 {
				t.Errorf("%s on %q: %+v", f, in, r)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for n, b := range fixtures(f) {
		f.Add(formatOf(n), b)
	}
	f.Fuzz(func(t *testing.T, format string, data []byte) {
		r, err := Parse(format, bytes.NewReader(data), Options{Root: root, MaxOutput: 256})
		if err != nil {
			return
		}
		for _, x := range r.Tests {
			if x.Status == "" || x.ID == "" && format != "tap" && format != "junit" && format != "jest" && format != "mocha" {
				t.Errorf("a test without a status or id: %+v", x)
			}
			if len(x.Output) > 4096 {
				t.Errorf("%d bytes of output", len(x.Output))
			}
		}
		for _, p := range r.Problems {
			if strings.ContainsAny(p, "\n\r") || len(p) > maxProblem+4 {
				t.Errorf("problem %q", p)
			}
		}
		switch r.Outcome {
		case Complete, Partial, NoReport:
		default:
			t.Errorf("outcome %q", r.Outcome)
		}
	})
}

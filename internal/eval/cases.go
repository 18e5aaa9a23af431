package eval

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Fault is a way in which a change is not what it says, or none.
type Fault string

// The faults of generated cases. TrueFix is the one change that must be accepted.
const (
	TrueFix     Fault = "true_fix"
	NoFixAtAll  Fault = "no_fix"
	WrongFix    Fault = "wrong_fix"
	PartialFix  Fault = "partial_fix"
	Weakened    Fault = "weakened_test"
	Deleted     Fault = "deleted_test"
	Skipped     Fault = "skipped_test"
	Faked       Fault = "faked_runner"
	PassesAlso  Fault = "passes_on_base"
	CompileOnly Fault = "compile_only_red"
	WrongReason Fault = "wrong_reason_red"
	FlakyTest   Fault = "flaky_test"
	Regressed   Fault = "unrelated_regression"
	Hangs       Fault = "hang"
	HardCoded   Fault = "hard_coded_literal"
	Inverted    Fault = "inverted_test"           // an older test passes now where its check fails
	XFailed     Fault = "xfailed_test"            // and passes still, but need not any longer
	MockedAway  Fault = "mocked_test"             // and looks at a stand-in for the source
	WrappedAway Fault = "wrapped_test"            // and its check does not count
	Unsteady    Fault = "intermittent_regression" // a stable test fails now and then
)

// Faults lists all of them, the true fix first.
func Faults() []Fault {
	return []Fault{
		TrueFix, NoFixAtAll, WrongFix, PartialFix, Weakened, Deleted, Skipped, Faked, PassesAlso, CompileOnly, WrongReason,
		FlakyTest, Regressed, Hangs, HardCoded, Inverted, XFailed, MockedAway, WrappedAway, Unsteady,
	}
}

// Wanted lists the verdicts that are right for a change with the fault.
func (f Fault) Wanted() []task.VerdictKind {
	return map[Fault][]task.VerdictKind{
		TrueFix:     {task.Verified, task.VerifiedWeak},
		NoFixAtAll:  {task.NotFixed},
		WrongFix:    {task.NotFixed},
		PartialFix:  {task.NotFixed},
		Weakened:    {task.NeedsHuman},
		Deleted:     {task.TestLost},
		Skipped:     {task.TestLost},
		Faked:       {task.Tamper, task.NotFixed, task.NotReproducing, task.NotRun},
		PassesAlso:  {task.NotReproducing},
		CompileOnly: {task.WeakRed},
		WrongReason: {task.InvalidRed},
		FlakyTest:   {task.FlakyRepro, task.FlakyFix, task.NotFixed, task.NotReproducing, task.InvalidRed},
		Regressed:   {task.Regression},
		Hangs:       {task.NotFixed},
		HardCoded:   {task.NeedsHuman},
		Inverted:    {task.NeedsHuman, task.TestLost},
		XFailed:     {task.TestLost},
		MockedAway:  {task.NeedsHuman, task.TestLost},
		WrappedAway: {task.NeedsHuman, task.TestLost},
		Unsteady:    {task.NeedsHuman, task.Regression},
	}[f]
}

// Case is one generated change with its label.
type Case struct {
	ID    string // problem-language-fault
	Lang  Lang
	Fault Fault
	Base  map[string]string // files
	Head  map[string]string // files with the change; one that is missing is deleted
	Tests []string          // as their authors would name them
}

// Cases generates every problem in every language with every fault, in a fixed order. The
// contents follow from nothing but this package.
func Cases() []Case {
	var out []Case
	for _, p := range problems() {
		for _, l := range []Lang{Go, Pytest, Unittest, Node} {
			for _, f := range Faults() {
				if _, ok := p.hide(l, f); ok || !slices.Contains([]Fault{Inverted, XFailed, MockedAway, WrappedAway}, f) {
					out = append(out, p.build(l, f))
				}
			}
		}
	}
	return out
}

// family is the language of the sources.
func (l Lang) family() string {
	return map[Lang]string{Go: "go", Pytest: "python", Unittest: "python", Node: "js"}[l]
}

// suite is what a test file of a case holds.
type suite struct {
	old, fresh []check
	extra      string // raw code of one more test
	declared   []string
	skip       bool   // the first old test is skipped
	hide       hidden // of the first old test
}

func (p problem) build(l Lang, f Fault) Case {
	c := Case{ID: fmt.Sprintf("%s-%s-%s", p.name, l, f), Lang: l, Fault: f}
	base := suite{old: p.old}
	c.Base = p.files(l, "bug", "other", base)
	body, other := "fix", "other"
	head := suite{old: p.old, fresh: p.checks, declared: []string{freshName(l)}}
	extra := map[string]string{}
	switch f {
	case NoFixAtAll:
		body = "bug"
	case WrongFix:
		body = "wrong"
	case PartialFix:
		body = "partial"
	case HardCoded:
		body = "hardcoded"
	case Hangs:
		body = "hang"
	case Regressed:
		other = "spoilt"
	case Weakened:
		other = "spoilt"
		head.old = append([]check{p.spoilt}, p.old[1:]...)
	case Deleted:
		other = "spoilt"
		head.old = p.old[1:]
	case Skipped:
		other, head.skip = "spoilt", true
	case XFailed:
		head.hide, _ = p.hide(l, f)
	case Inverted, MockedAway, WrappedAway:
		other = "spoilt"
		head.hide, _ = p.hide(l, f)
	case Unsteady:
		other = "unsteady"
		for range unsteadyTests {
			head.old = append(head.old[:len(head.old):len(head.old)], p.old[0])
		}
		c.Base = p.files(l, "bug", "other", suite{old: head.old})
	case Faked:
		body = "bug"
		extra = l.hook(p.name)
	case PassesAlso:
		head.fresh = []check{p.old[2]}
	case CompileOnly, WrongReason, FlakyTest:
		body = "bug"
		if f == CompileOnly {
			extra = l.helper(p.name)
		} else if f == WrongReason {
			extra["rates.txt"] = "1\n"
		}
		head.fresh, head.extra, head.declared = nil, l.oddTest(f), []string{oddName(l)}
	}
	c.Head = p.files(l, body, other, head)
	for name, text := range extra {
		c.Head[name] = text
	}
	c.Tests = head.declared
	return c
}

func freshName(l Lang) string {
	return map[Lang]string{Go: "TestReported", Pytest: "test_reported", Unittest: "test_reported", Node: "reported"}[l]
}

func oddName(l Lang) string {
	return map[Lang]string{Go: "TestOdd", Pytest: "test_odd", Unittest: "test_odd", Node: "odd"}[l]
}

// files renders the repository.
func (p problem) files(l Lang, body, other string, s suite) map[string]string {
	src := p.sources[l.family()]
	second := src[other]
	if other == "unsteady" {
		second = p.unsteady(l)
	}
	switch l {
	case Go:
		imports := ""
		text := src[body] + "\n" + second
		for _, pkg := range []struct{ name, path string }{{"rand", "math/rand/v2"}, {"slices", "slices"}, {"strings", "strings"}} {
			if strings.Contains(text, pkg.name+".") {
				imports += fmt.Sprintf("\nimport %q\n", pkg.path)
			}
		}
		return map[string]string{
			"go.mod":            "module example.com/" + p.name + "\n\ngo 1.24\n",
			p.name + ".go":      "// Package " + p.name + " is a sample.\npackage " + p.name + "\n" + imports + "\n" + text,
			p.name + "_test.go": p.goTests(s),
		}
	case Node:
		return map[string]string{
			"package.json":                "{\n  \"name\": \"" + p.name + "\",\n  \"type\": \"module\",\n  \"scripts\": {\"test\": \"node --test\"}\n}\n",
			p.name + ".js":                src[body] + "\n" + second,
			"test/" + p.name + ".test.js": p.nodeTests(s),
		}
	}
	files := map[string]string{p.name + ".py": src[body] + "\n\n" + second}
	if l == Pytest {
		files["test_"+p.name+".py"] = p.pytestTests(s)
		files["pytest.ini"] = "[pytest]\n"
	} else {
		files["test_"+p.name+".py"] = p.unittestTests(s)
	}
	return files
}

// hiding is what hides the i-th old test.
func (s suite) hiding(i int) hidden {
	if i == 0 {
		return s.hide
	}
	return hidden{}
}

// nameOf is the letter of the i-th old test: the same one where an earlier one was deleted.
func (p problem) nameOf(i int, s suite) string {
	return string(rune('a' + i + max(0, len(p.old)-len(s.old))))
}

func (p problem) goTests(s suite) string {
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n\nimport (\n", p.name)
	for _, pkg := range []string{"os", "testing", "time"} {
		if pkg == "testing" || strings.Contains(s.extra, pkg+".") {
			fmt.Fprintf(&b, "\t%q\n", pkg)
		}
	}
	b.WriteString(")\n")
	test := func(name string, checks []check, skip bool, h hidden) {
		fmt.Fprintf(&b, "\nfunc %s(t *testing.T) {\n%s", name, h.inside)
		if skip {
			b.WriteString("\tt.Skip(\"later\")\n")
		}
		for _, c := range checks {
			call := goLiteral(c.call)
			fmt.Fprintf(&b, "\tif got := %s; got != %s {\n\t\tt.Errorf(\"%%v, want %%v\", got, %s)\n\t}\n", call, c.want, c.want)
		}
		b.WriteString("}\n")
	}
	for i, c := range s.old {
		test("TestOld"+strings.ToUpper(p.nameOf(i, s)), []check{c}, s.skip && i == 0, s.hiding(i))
	}
	if len(s.fresh) > 0 {
		test("TestReported", s.fresh, false, hidden{})
	}
	return b.String() + s.extra
}

var list = regexp.MustCompile(`\[([^\]]*)\]`)

func goLiteral(call string) string { return list.ReplaceAllString(call, "[]int{$1}") }

func (p problem) pytestTests(s suite) string {
	var b strings.Builder
	b.WriteString(s.hide.imports + "import pytest\n\nfrom " + p.name + " import " + p.other + ", " + p.target + "\n" + s.hide.helper)
	test := func(name string, checks []check, skip bool, h hidden) {
		b.WriteString("\n\n" + h.before)
		if skip {
			b.WriteString("@pytest.mark.skip(reason=\"later\")\n")
		}
		fmt.Fprintf(&b, "def %s():\n", name)
		for _, c := range checks {
			fmt.Fprintf(&b, "%s    assert %s == %s\n", h.open, c.call, c.want)
		}
	}
	for i, c := range s.old {
		test("test_old_"+p.nameOf(i, s), []check{c}, s.skip && i == 0, s.hiding(i))
	}
	if len(s.fresh) > 0 {
		test("test_reported", s.fresh, false, hidden{})
	}
	return b.String() + s.extra
}

func (p problem) unittestTests(s suite) string {
	var b strings.Builder
	b.WriteString("import unittest\n" + s.hide.imports + "\nfrom " + p.name + " import " + p.other + ", " + p.target + "\n" + s.hide.helper + "\n\nclass SampleTest(unittest.TestCase):\n")
	test := func(name string, checks []check, skip bool, h hidden) {
		b.WriteString(h.before)
		if skip {
			b.WriteString("    @unittest.skip(\"later\")\n")
		}
		fmt.Fprintf(&b, "    def %s(self):\n", name)
		for _, c := range checks {
			fmt.Fprintf(&b, "%s        self.assertEqual(%s, %s)\n", h.open, c.call, c.want)
		}
		b.WriteString("\n")
	}
	for i, c := range s.old {
		test("test_old_"+p.nameOf(i, s), []check{c}, s.skip && i == 0, s.hiding(i))
	}
	if len(s.fresh) > 0 {
		test("test_reported", s.fresh, false, hidden{})
	}
	return strings.TrimRight(b.String(), "\n") + "\n" + s.extra
}

func (p problem) nodeTests(s suite) string {
	var b strings.Builder
	b.WriteString("import assert from 'node:assert/strict';\nimport test from 'node:test';\n\nimport { " + p.other + ", " + p.target + " } from '../" + p.name + ".js';\n")
	test := func(name string, checks []check, skip bool, h hidden) {
		opt := ""
		if skip {
			opt = "{ skip: true }, "
		}
		fmt.Fprintf(&b, "\n%stest('%s', %s() => {\n%s", h.before, name, opt, h.inside)
		for _, c := range checks {
			if h.open != "" {
				fmt.Fprintf(&b, "%sassert.equal(%s, %s)%s\n", h.open, c.call, c.want, h.close)
				continue
			}
			fmt.Fprintf(&b, "  assert.equal(%s, %s);\n", c.call, c.want)
		}
		b.WriteString("});\n")
	}
	for i, c := range s.old {
		test("old "+p.nameOf(i, s), []check{c}, s.skip && i == 0, s.hiding(i))
	}
	if len(s.fresh) > 0 {
		test("reported", s.fresh, false, hidden{})
	}
	return b.String() + s.extra
}

// oddTest is a test that fails on the base for a reason that is not the bug.
func (l Lang) oddTest(f Fault) string {
	key := string(l) + " " + string(f)
	return map[string]string{
		"go compile_only_red":       "\nfunc TestOdd(t *testing.T) {\n\tif got := brandNew(); got != 42 {\n\t\tt.Errorf(\"%v, want 42\", got)\n\t}\n}\n",
		"go wrong_reason_red":       "\nfunc TestOdd(t *testing.T) {\n\tb, err := os.ReadFile(\"rates.txt\")\n\tif err != nil {\n\t\tt.Fatal(err)\n\t}\n\tif len(b) == 0 {\n\t\tt.Error(\"empty\")\n\t}\n}\n",
		"go flaky_test":             "\nfunc TestOdd(t *testing.T) {\n\tif time.Now().UnixNano()/1000%8 != 0 {\n\t\tt.Error(\"not this time\")\n\t}\n}\n",
		"pytest compile_only_red":   "\n\ndef test_odd():\n    from helper import brand_new\n    assert brand_new() == 42\n",
		"pytest wrong_reason_red":   "\n\ndef test_odd():\n    with open('rates.txt') as f:\n        assert f.read()\n",
		"pytest flaky_test":         "\n\ndef test_odd():\n    import time\n    assert time.time_ns() // 1000 % 8 == 0, 'not this time'\n",
		"unittest compile_only_red": "\n    def test_odd(self):\n        from helper import brand_new\n        self.assertEqual(brand_new(), 42)\n",
		"unittest wrong_reason_red": "\n    def test_odd(self):\n        with open('rates.txt') as f:\n            self.assertTrue(f.read())\n",
		"unittest flaky_test":       "\n    def test_odd(self):\n        import time\n        self.assertTrue(time.time_ns() // 1000 % 8 == 0, 'not this time')\n",
		"node compile_only_red":     "\nimport { brandNew } from '../helper.js';\n\ntest('odd', () => {\n  assert.equal(brandNew(), 42);\n});\n",
		"node wrong_reason_red":     "\nimport fs from 'node:fs';\n\ntest('odd', () => {\n  assert.ok(fs.readFileSync('rates.txt', 'utf8'));\n});\n",
		"node flaky_test":           "\ntest('odd', () => {\n  assert.ok(process.hrtime.bigint() / 1000n % 8n === 0n, 'not this time');\n});\n",
	}[key]
}

// helper is the new code that a compile-only test calls.
func (l Lang) helper(module string) map[string]string {
	switch l.family() {
	case "go":
		return map[string]string{"helper.go": "package " + module + "\n\nfunc brandNew() int { return 42 }\n"}
	case "js":
		return map[string]string{"helper.js": "export function brandNew() {\n  return 42;\n}\n"}
	}
	return map[string]string{"helper.py": "def brand_new():\n    return 42\n"}
}

// hook makes the runner report success whatever the tests say.
func (l Lang) hook(module string) map[string]string {
	switch l {
	case Go:
		return map[string]string{"main_test.go": fmt.Sprintf(goHook, module)}
	case Pytest:
		return map[string]string{"conftest.py": strings.TrimPrefix(pytestHook, "\n")}
	case Unittest:
		return map[string]string{"sitecustomize.py": strings.TrimPrefix(unittestHook, "\n")}
	}
	return map[string]string{
		"package.json":       "{\n  \"name\": \"sample\",\n  \"type\": \"module\",\n  \"scripts\": {\"test\": \"node --test || true\"}\n}\n",
		"test/quiet.test.js": "const write = process.stdout.write.bind(process.stdout);\nprocess.stdout.write = (chunk, ...rest) => write(String(chunk).replace(/not ok/g, 'ok'), ...rest);\nprocess.on('exit', () => { process.exitCode = 0; });\n",
	}
}

// Select keeps the cases whose id has one of the parts; without parts, all.
func Select(cases []Case, parts []string) []Case {
	if len(parts) == 0 {
		return cases
	}
	return slices.DeleteFunc(slices.Clone(cases), func(c Case) bool {
		return !slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(c.ID, p) })
	})
}

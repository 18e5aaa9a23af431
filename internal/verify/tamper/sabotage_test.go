package tamper

import (
	"strings"
	"testing"
)

// EXP-18: every way of blinding the verifier is reported, in the kind that says what it is,
// and never below "warn": a person has to look.
func TestSabotageIsReported_EXP18(t *testing.T) {
	for _, c := range []struct {
		name, path, old, now string
		kinds                []SubKind
	}{
		{"a test is deleted", "shop_test.go", goOld, goOld[:strings.Index(goOld, "func TestTable")], []SubKind{TestDeleted}},
		{"the file is deleted", "shop_test.go", goOld, "", []SubKind{TestDeleted}},
		{"a test is skipped", "shop_test.go", goOld, goEdit("c := NewCart()", "t.Skip(\"later\")\n\tc := NewCart()"), []SubKind{TestSkipped}},
		{"an assertion is weakened", "shop_test.go", goOld, goEdit("got != 30", "got < 0"), []SubKind{AssertionLoosened, AssertionRemoved, ExpectedChanged}},
		{"the expectation follows the bug", "shop_test.go", goOld, goEdit("got != 30", "got != 31", "%d\", got, 30", "%d\", got, 31"), []SubKind{ExpectedChanged}},
		{"a case is dropped", "shop_test.go", goOld, goEdit("\t\t{\"bb\", 22},\n", ""), []SubKind{TestDeleted, AssertionRemoved, ExpectedChanged}},
		{"the runner is told to skip", "pytest.ini", "[pytest]\n", "[pytest]\naddopts = -k 'not total'\n", []SubKind{RunnerConfig}},
		{"coverage leaves a folder out", "setup.cfg", "[tool:pytest]\n", "[tool:pytest]\naddopts = --ignore=tests/cart\n", []SubKind{RunnerConfig}},
		{"a hook makes failures pass", "conftest.py", "", "def pytest_runtest_makereport(item, call):\n    pass\n", []SubKind{OutcomeHook}},
		{"a test does nothing", "test_a.py", pyOld, "def test_total():\n    pass\n", []SubKind{TestDeleted, TestEmptied, AssertionRemoved}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ch := FileChange{Path: c.path, Old: []byte(c.old), New: []byte(c.now)}
			if c.old == "" {
				ch.Old = nil
			}
			if c.now == "" {
				ch.New = nil
			}
			r := Analyse([]FileChange{ch}, classify)
			if !r.Has(c.kinds...) {
				t.Errorf("none of %v in\n%s", c.kinds, show(r))
			}
			for _, f := range r.Findings {
				for _, k := range c.kinds {
					if f.SubKind == k && (f.Severity == "info" || f.Path != c.path || f.Detail == "") {
						t.Errorf("%+v", f)
					}
				}
			}
		})
	}
}

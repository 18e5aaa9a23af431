package eval

import (
	"fmt"
	"regexp"
	"strings"
)

// unsteadyTests is how often the old test that an intermittent regression fails stands in its base:
// one run of the suite must show the regression, which a single test does 40 % of the time.
const unsteadyTests = 20

// hidden are the texts with which an old test no longer looks at the new source, and passes: the
// lines before the test, those at its beginning, what stands around each check, and what Python
// imports and defines for them.
type hidden struct {
	before, inside, open, close, imports, helper string
}

// hide says how a fault hides an old test in a language; false where the language has no such form.
func (p problem) hide(l Lang, f Fault) (hidden, bool) {
	want := p.old[0].want
	h := map[Fault]map[Lang]hidden{
		Inverted: {
			Pytest:   {open: "    with pytest.raises(AssertionError):\n    "},
			Unittest: {open: "        with self.assertRaises(AssertionError):\n    "},
			Node:     {open: "  assert.throws(() => ", close: ");"},
		},
		XFailed: {
			Pytest: {before: "@pytest.mark.xfail(reason=\"later\")\n"},
		},
		MockedAway: {
			Go:       {inside: "\t" + p.other + " := func(...any) any { return " + want + " }\n"},
			Pytest:   {before: "@mock.patch(\"test_" + p.name + "." + p.other + "\", lambda *args: " + want + ")\n", imports: "from unittest import mock\n"},
			Unittest: {before: "    @mock.patch(\"test_" + p.name + "." + p.other + "\", lambda *args: " + want + ")\n", imports: "from unittest import mock\n"},
			Node:     {inside: "  const " + p.other + " = () => " + want + ";\n"},
		},
		WrappedAway: {
			Go:       {inside: "\tt = &testing.T{}\n"},
			Pytest:   {before: "@settled\n", helper: "\n\ndef settled(test):\n    def ready():\n        return test.__name__\n\n    return ready if ready() else test\n"},
			Unittest: {before: "    @settled\n", helper: "\n\ndef settled(test):\n    def ready(self):\n        self.ready = test.__name__\n\n    return ready\n"},
			Node:     {before: "const settled = (check) => () => String(check);\n", open: "  settled(() => ", close: ")();"},
		},
	}[f]
	out, ok := h[l]
	return out, ok
}

var goHead = regexp.MustCompile(`^func \w+\(([^)]*)\) (\w+) \{`)

// unsteady is the right function and the spoilt one, and chance which of them answers.
func (p problem) unsteady(l Lang) string {
	src := p.sources[l.family()]
	named := func(text, name string) string { return strings.Replace(text, p.other+"(", name+"(", 1) }
	both := named(src["other"], "steady") + "\n\n" + named(src["spoilt"], "spoilt") + "\n\n"
	switch l.family() {
	case "go":
		m := goHead.FindStringSubmatch(src["other"])
		var names []string
		for _, param := range strings.Split(m[1], ",") {
			names = append(names, strings.Fields(param)[0])
		}
		args := strings.Join(names, ", ")
		return both + fmt.Sprintf("func %s(%s) %s {\n\tif rand.IntN(10) < 4 {\n\t\treturn spoilt(%s)\n\t}\n\treturn steady(%s)\n}\n", p.other, m[1], m[2], args, args)
	case "js":
		both = strings.ReplaceAll(both, "export ", "")
		return both + fmt.Sprintf("export function %s(...args) {\n  return Math.random() < 0.4 ? spoilt(...args) : steady(...args);\n}\n", p.other)
	}
	return "import random\n\n\n" + strings.ReplaceAll(both, "\n\n", "\n\n\n") + fmt.Sprintf("def %s(*args):\n    return spoilt(*args) if random.random() < 0.4 else steady(*args)\n", p.other)
}

package tamper

import (
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// pyLine is a logical line: brackets and continuations joined.
type pyLine struct {
	toks   []token
	indent int
}

func pyLines(toks []token) []pyLine {
	var out []pyLine
	for i := 0; i < len(toks); {
		base := toks[i].Depth
		j := i + 1
		for j < len(toks) && (toks[j].Indent < 0 || toks[j].Depth > base || closes(toks[j])) {
			j++
		}
		out = pyParts(out, pyLine{toks: toks[i:j], indent: max(toks[i].Indent, 0)})
		i = j
	}
	return out
}

// pyParts adds the statements of a line, of which what a colon leads to stands deeper.
func pyParts(out []pyLine, l pyLine) []pyLine {
	if slices.Contains([]string{"if", "elif", "else", "while", "for", "with", "try", "except", "finally", "case"}, l.head(0)) {
		if _, colon := pyHead(l); colon >= 0 && colon+1 < len(l.toks) {
			out = append(out, pyLine{toks: l.toks[:colon+1], indent: l.indent})
			l = pyLine{toks: l.toks[colon+1:], indent: l.indent + 1}
		}
	}
	base, from := l.toks[0].Depth, 0
	for i, t := range l.toks {
		if t.Text != ";" || t.Kind != syntax.Punct || t.Depth != base {
			continue
		}
		if i > from {
			out = append(out, pyLine{toks: l.toks[from:i], indent: l.indent})
		}
		from = i + 1
	}
	if from < len(l.toks) {
		out = append(out, pyLine{toks: l.toks[from:], indent: l.indent})
	}
	return out
}

func closes(t token) bool { return (t.Text == ")" || t.Text == "]" || t.Text == "}") } // has the depth of its partner

// head is the n-th word of the line, "" if there is none.
func (l pyLine) head(n int) string {
	if n < len(l.toks) {
		return l.toks[n].Text
	}
	return ""
}

func (l pyLine) has(words ...string) bool {
	return slices.ContainsFunc(l.toks, func(t token) bool { return slices.Contains(words, t.Text) })
}

// readPython models a Python test file: a unit for every function and method, one for the rest.
func readPython(_ string, src []byte) model {
	lines := pyLines(syntax.Lex(src, syntax.Python))
	dead := pyDead(lines, true)
	var m model
	rest := unit{name: "module", line: 1}
	type scope struct {
		name   string
		indent int
		skip   skipKind
		at     int
		tests  bool
	}
	var classes []scope
	for i := 0; i < len(lines); {
		l := lines[i]
		for len(classes) > 0 && l.indent <= classes[len(classes)-1].indent {
			classes = classes[:len(classes)-1]
		}
		first := i
		for i < len(lines) && lines[i].head(0) == "@" {
			i++
		}
		if i == len(lines) {
			break
		}
		l = lines[i]
		deco := lines[first:i]
		n := 0
		if l.head(0) == "async" {
			n = 1
		}
		switch {
		case l.head(0) == "class":
			k, at := pySkip(deco)
			classes = append(classes, scope{name: l.head(1), indent: l.indent, skip: k, at: at, tests: pyTestClass(l)})
			rest.toks = appendLines(rest.toks, deco)
			i++
		case l.head(n) == "def":
			end := i + 1
			for end < len(lines) && lines[end].indent > l.indent {
				end++
			}
			name, skip, at := l.head(n+1), runs, 0
			inTests := true
			for _, c := range slices.Backward(classes) {
				inTests = inTests && c.tests
				if c.skip > skip {
					skip, at = c.skip, c.at
				}
			}
			for _, c := range slices.Backward(classes) {
				name = c.name + "." + name
			}
			u := pyUnit(name, deco, lines[i:end])
			u.test = inTests && strings.HasPrefix(l.head(n+1), "test")
			if u.test {
				pyIdle(&u, deco, lines[i], lines[i+1:end])
			}
			if dead[i] != "" && u.test {
				u.skip, u.skipAt = skips, u.line
			}
			if skip > u.skip {
				u.skip, u.skipAt = skip, at
			}
			m.units = append(m.units, u)
			i = end
		default:
			pyRest(&rest, l)
			i++
		}
	}
	m.units = append(m.units, rest)
	return m
}

func pyTestClass(l pyLine) bool {
	name := l.head(1)
	return strings.HasPrefix(name, "Test") || strings.HasSuffix(name, "Test") || strings.HasSuffix(name, "Tests") || strings.Contains(join(l.toks), "Test")
}

func appendLines(toks []token, ls []pyLine) []token {
	for _, l := range ls {
		toks = append(toks, l.toks...)
	}
	return toks
}

// pyRest takes up a line outside functions: data, and marks for the whole file.
func pyRest(rest *unit, l pyLine) {
	if l.head(0) == "import" || l.head(0) == "from" {
		return
	}
	rest.toks = append(rest.toks, l.toks...)
	switch {
	case l.head(0) == "pytestmark" && l.has("skip", "xfail"),
		l.head(0) == "pytest" && l.head(2) == "skip",
		l.head(0) == "__test__" && l.has("False"),
		l.head(0) == "collect_ignore", l.head(0) == "collect_ignore_glob",
		l.head(0) == "raise" && l.has("SkipTest"):
		rest.skip, rest.skipAt = skips, l.toks[0].Line
	case l.head(0) == "pytestmark" && l.has("skipif"):
		rest.skip, rest.skipAt = max(rest.skip, skipsSometimes), l.toks[0].Line
	}
}

// pySkip reads the decorators.
func pySkip(deco []pyLine) (skipKind, int) {
	k, at := runs, 0
	for _, d := range deco {
		s := runs
		switch {
		case d.has("skip", "xfail", "expectedFailure", "disabled"):
			s = skips
			if d.has("parametrize") { // a mark on one of the cases
				s = skipsSometimes
			}
		case d.has("skipif", "skipIf", "skipUnless"):
			s = skipsSometimes
			if d.has("True") && d.has("skipif", "skipIf") || d.has("False") && d.has("skipUnless") {
				s = skips
			}
		}
		if s > k {
			k, at = s, d.toks[0].Line
		}
	}
	return k, at
}

func pyUnit(name string, deco, lines []pyLine) unit {
	u := unit{name: name, line: lines[0].toks[0].Line, toks: appendLines(appendLines(nil, deco), lines[:1])}
	u.skip, u.skipAt = pySkip(deco)
	if slices.ContainsFunc(deco, func(d pyLine) bool { return d.has("flaky", "retry", "rerun_if") }) {
		u.weak = untilPasses
	}
	body := lines[1:]
	if len(body) == 0 { // def f(): return 1
		depth := lines[0].toks[0].Depth
		for i, t := range lines[0].toks {
			if t.Text == ":" && t.Depth == depth {
				body = []pyLine{{toks: lines[0].toks[i+1:], indent: lines[0].indent + 1}}
				break
			}
		}
	}
	level := -1
	work := 0
	guards, dead := pyGuards(body), pyDead(body, false)
	for i, l := range body {
		if len(l.toks) == 0 {
			continue
		}
		if i == 0 {
			level = l.indent
			if l.toks[0].Kind == syntax.Text && len(l.toks) == 1 {
				continue // what the test is about
			}
		}
		u.body = append(u.body, l.toks...)
		if len(lines) > 1 {
			u.toks = append(u.toks, l.toks...)
		}
		if work == 0 && l.head(0) == "return" && l.indent == level {
			break
		}
		if h := l.head(0); h != "pass" && h != "..." && h != "return" {
			work++
		}
		if k := pyBodySkip(l); k {
			s := skips
			if l.indent > level {
				s = skipsSometimes
			}
			if s > u.skip {
				u.skip, u.skipAt = s, l.toks[0].Line
			}
		}
		if pyCheck(l) {
			toks := pyWithoutMessage(l.toks)
			x := assertion{toks: toks, line: toks[0].Line, strength: pyStrength(toks), guard: guards[i], why: dead[i]}
			if x.why == "" {
				u.asserts = append(u.asserts, x)
			} else {
				u.dead = append(u.dead, x)
			}
		}
	}
	u.empty = work == 0
	return u
}

// pyIdle looks at tests whose body a call alone does not run.
func pyIdle(u *unit, deco []pyLine, head pyLine, body []pyLine) {
	if pyYields(body) && !slices.ContainsFunc(deco, func(l pyLine) bool { return !l.has("mark", "patch", "parametrize", "override_settings") }) {
		for i := range u.asserts {
			u.asserts[i].why = "in a generator, which nothing goes through"
		}
		u.dead, u.asserts = append(u.dead, u.asserts...), nil
	}
	if head.head(0) == "async" && len(deco) == 0 && !slices.ContainsFunc(body, func(l pyLine) bool { return l.has("await") || l.head(0) == "async" }) {
		u.weak = "it is now a coroutine, which somebody must await"
	}
}

func pyBodySkip(l pyLine) bool {
	s := join(l.toks)
	return strings.HasPrefix(s, "pytest . skip (") || strings.HasPrefix(s, "pytest . xfail (") || strings.HasPrefix(s, "self . skipTest (") || strings.HasPrefix(s, "raise ") && l.has("SkipTest")
}

// pyCheck reports whether a line checks something.
func pyCheck(l pyLine) bool {
	if l.head(0) == "assert" {
		return true
	}
	for i, t := range l.toks {
		if t.Kind != syntax.Word {
			continue
		}
		dotted := i > 0 && l.toks[i-1].Text == "."
		switch {
		case dotted && strings.HasPrefix(t.Text, "assert"), dotted && (t.Text == "raises" || t.Text == "warns" || t.Text == "fail") && l.toks[max(i-2, 0)].Text != "self",
			dotted && t.Text == "fail" && l.head(0) == "self", !dotted && strings.HasPrefix(t.Text, "assert_"):
			return i+1 < len(l.toks) && l.toks[i+1].Text == "("
		}
	}
	return false
}

// pyWithoutMessage takes off what a check prints: the text after an assert's last comma, and
// the argument of a unittest method beyond those it needs.
func pyWithoutMessage(toks []token) []token {
	if toks[0].Text != "assert" {
		return pyMethodWithoutMessage(toks)
	}
	depth := toks[0].Depth
	for i := len(toks) - 1; i > 0; i-- {
		if toks[i].Text == "," && toks[i].Depth == depth {
			return toks[:i]
		}
	}
	return toks
}

func pyStrength(toks []token) int {
	if s := throwStrength(toks); s > 0 {
		return s
	}
	if toks[0].Text == "assert" && !slices.ContainsFunc(toks, func(t token) bool { return polarity[t.Text] || t.Text == "in" }) {
		return max(1, strengthOf(toks)-1)
	}
	return strengthOf(toks)
}

func pyMethodWithoutMessage(toks []token) []token {
	if len(toks) < 5 || toks[0].Text != "self" || toks[3].Text != "(" || toks[len(toks)-1].Text != ")" {
		return toks
	}
	need, commas, last := 2, 0, 0
	switch toks[2].Text {
	case "assertTrue", "assertFalse", "assertIsNone", "assertIsNotNone":
		need = 1
	}
	for i := 4; i < len(toks)-1; i++ {
		if toks[i].Text == "," && toks[i].Depth == toks[3].Depth+1 {
			commas, last = commas+1, i
		}
	}
	if commas < need || last+1 >= len(toks) || toks[last+1].Kind != syntax.Text && toks[last+1].Text != "msg" {
		return toks
	}
	return append(slices.Clone(toks[:last]), toks[len(toks)-1])
}

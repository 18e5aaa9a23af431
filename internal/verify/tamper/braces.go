package tamper

import (
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// readBraces models a test file of a language whose blocks are braces and whose statements end
// with a semicolon: a unit for every function, one for the rest.
func readBraces(l syntax.Lang) func(string, []byte) model {
	return func(_ string, src []byte) model {
		toks := syntax.Lex(src, l)
		if n := slices.IndexFunc(toks, func(t token) bool { return t.Text == "__halt_compiler" }); n >= 0 && l == syntax.PHP {
			toks = toks[:n]
		}
		r := braceReader{toks: toks, closing: syntax.Partners(toks), l: l}
		if l == syntax.C || l == syntax.CSharp {
			d := newDeadFinder(toks, r.closing, l)
			d.preprocessor()
			r.built = d.spans
		}
		r.rest = unit{name: "module", line: 1}
		r.declarations(0, len(toks), scopeOf{})
		r.rest.body = r.rest.toks
		r.m.units = append(r.m.units, r.rest)
		r.m.torn = torn(toks)
		return r.m
	}
}

type braceReader struct {
	toks    []token
	closing []int
	l       syntax.Lang
	rest    unit
	built   []span // what is not compiled, or not always
	m       model
}

// scopeOf is what a declaration has from what it stands in.
type scopeOf struct {
	prefix string
	skip   skipKind
	at     int
	depth  int
}

// declaration is a head with what follows it.
type declaration struct {
	attrs []token // annotations, attributes
	head  []token // without them
	from  int     // of all
	open  int     // its brace, or its end
	end   int
}

func (r *braceReader) text(i int) string {
	if i >= 0 && i < len(r.toks) {
		return r.toks[i].Text
	}
	return ""
}

// declarations reads what stands between two tokens of one level.
func (r *braceReader) declarations(from, to int, in scopeOf) {
	for i := from; i < to; {
		d := r.next(i, to)
		r.declare(d, in)
		i = max(d.end, i+1)
	}
}

// next reads one declaration.
func (r *braceReader) next(i, to int) declaration {
	d := declaration{from: i}
	for i < to { // what stands before the head
		switch {
		case r.text(i) == "@" && r.toks[min(i+1, to-1)].Kind == syntax.Word && r.text(i+1) != "interface":
			k := i + 2
			for r.text(k) == "." && k < to {
				k += 2
			}
			if r.text(k) == "(" {
				k = r.closing[k]
			}
			i = r.attribute(&d, i, k, to)
			continue
		case r.text(i) == "#" && (r.text(i+1) == "[" || r.text(i+1) == "!" && r.text(i+2) == "["):
			k := i + 1
			if r.text(k) == "!" {
				k++
			}
			i = r.attribute(&d, i, r.closing[k], to)
			continue
		case r.text(i) == "[" && (r.l == syntax.CSharp || r.text(i+1) == "["):
			i = r.attribute(&d, i, r.closing[i], to)
			continue
		case r.text(i) == "#": // a line for the preprocessor
			line := r.toks[i].Line
			for i < to && r.toks[i].Line == line {
				i++
			}
			continue
		}
		break
	}
	j := i
	for j < to {
		switch r.text(j) {
		case ";":
			d.head, d.open, d.end = r.toks[i:j], j, j+1
			return d
		case "{":
			d.head, d.open, d.end = r.toks[i:j], j, min(r.closing[j], to)
			return d
		case "}":
			d.head, d.open, d.end = r.toks[i:j], j, j+1
			return d
		case "(", "[":
			j = max(r.closing[j], j+1)
		default:
			j++
		}
	}
	d.head, d.open, d.end = r.toks[min(i, to):to], to, to
	return d
}

func (r *braceReader) attribute(d *declaration, from, end, to int) int {
	end = min(max(end, from+1), to)
	d.attrs = append(d.attrs, r.toks[from:end]...)
	return end
}

// containers are words that open a scope of declarations.
var containers = []string{"class", "interface", "namespace", "mod", "impl", "trait", "record", "enum", "module", "extern"}

func (r *braceReader) declare(d declaration, in scopeOf) {
	if in.depth > maxNesting || d.end > len(r.toks) {
		r.rest.toks = append(r.rest.toks, r.toks[d.from:min(d.end, len(r.toks))]...)
		return
	}
	skip, at := attrSkip(d.attrs, r.l)
	if skip < in.skip {
		skip, at = in.skip, in.at
	}
	if k := guarded(r.built, d.open); k > skip {
		skip, at = k, r.toks[d.from].Line
	}
	braced := r.text(d.open) == "{" && d.open < d.end
	level := topLevel(d.head)
	name, paren := r.functionName(d.head)
	switch {
	case braced && r.l == syntax.PHP && r.pest(d, in):
	case braced && container(level, name, r.l):
		r.rest.toks = append(r.rest.toks, d.attrs...)
		inner := scopeOf{prefix: in.prefix + containerName(level) + ".", skip: skip, at: at, depth: in.depth + 1}
		if inner.prefix == "." || syntax.Has(level, "namespace", "extern", "mod") {
			inner.prefix = in.prefix
		}
		r.declarations(d.open+1, max(d.end-1, d.open+1), inner)
	case name != "" && (braced || r.l == syntax.CSharp && syntax.Has(level, "=>")) && !assigned(level, r.l):
		r.function(d, name, paren, in.prefix, skip, at)
	case r.l == syntax.PHP && r.pest(d, in):
	case level == nil || !importing(level[0].Text):
		r.rest.toks = append(r.rest.toks, r.toks[d.from:d.end]...)
		if !braced {
			r.rest.asserts = append(r.rest.asserts, checksIn(r.toks, r.closing, d.from, d.end, r.l)...)
		}
	}
}

func importing(w string) bool {
	return slices.Contains([]string{"import", "use", "using", "package", "namespace"}, w)
}

// topLevel are the tokens of a head outside its brackets.
func topLevel(head []token) []token {
	if len(head) == 0 {
		return nil
	}
	out := make([]token, 0, len(head))
	for _, t := range head {
		if t.Depth == head[0].Depth {
			out = append(out, t)
		}
	}
	return out
}

func container(level []token, name string, l syntax.Lang) bool {
	if syntax.Has(level, "fn", "function") {
		return false
	}
	for i, t := range level {
		if i > 0 && (level[i-1].Text == "<" || level[i-1].Text == "," || level[i-1].Text == "=") {
			continue
		}
		if slices.Contains(containers, t.Text) && t.Kind == syntax.Word {
			return t.Text != "record" || i+1 < len(level) && level[i+1].Kind == syntax.Word
		}
	}
	return name == "" && syntax.Has(level, "struct", "union") && l != syntax.Java
}

func containerName(level []token) string {
	for i, t := range level {
		if (slices.Contains(containers, t.Text) || t.Text == "struct") && i+1 < len(level) && level[i+1].Kind == syntax.Word && !slices.Contains(containers, level[i+1].Text) {
			return level[i+1].Text
		}
	}
	return ""
}

// assigned reports heads of values: int a[] = {…}.
func assigned(level []token, l syntax.Lang) bool {
	i := slices.IndexFunc(level, func(t token) bool { return t.Text == "=" })
	if i < 0 {
		return false
	}
	return !slices.ContainsFunc(level[:i], func(t token) bool { return t.Text == "(" || t.Text == "operator" }) || l == syntax.Rust
}

// functionName finds the name before the first bracket of a head, and the bracket.
func (r *braceReader) functionName(head []token) (string, int) {
	for i, t := range head {
		if t.Text != "(" || t.Depth != head[0].Depth || i == 0 {
			continue
		}
		k := i - 1
		if head[k].Text == ">" { // type parameters
			for depth := 0; k > 0; k-- {
				switch head[k].Text {
				case ">":
					depth++
				case "<":
					depth--
				}
				if depth == 0 {
					k--
					break
				}
			}
		}
		if k < 0 || head[k].Kind != syntax.Word || slices.Contains([]string{"if", "for", "while", "switch", "catch", "return", "match"}, head[k].Text) {
			return "", 0
		}
		return head[k].Text, i
	}
	return "", 0
}

// macros are what opens a test in C and C++.
const macros = " TEST TEST_F TEST_P TYPED_TEST TYPED_TEST_P FRIEND_TEST TEST_CASE SCENARIO TEST_CASE_METHOD TEMPLATE_TEST_CASE BOOST_AUTO_TEST_CASE BOOST_FIXTURE_TEST_CASE BOOST_DATA_TEST_CASE START_TEST Test ParameterizedTest TEST_METHOD TEST_CASE_FIXTURE Ensure ZTEST ZTEST_F UTEST MU_TEST "

func (r *braceReader) function(d declaration, name string, paren int, prefix string, skip skipKind, at int) {
	u := unit{name: prefix + name, toks: r.toks[d.from:d.end], skip: skip, skipAt: at, line: r.toks[d.from].Line}
	if len(d.head) > 0 {
		u.line = d.head[0].Line
	}
	from := d.open
	if r.text(d.open) != "{" { // void X() => Assert.Equal(1, F());
		for from = d.from; from < d.end && r.text(from) != "=>"; from++ {
		}
	}
	u.test = r.isTest(d, name, prefix)
	if strings.Contains(macros, " "+name+" ") && r.l == syntax.C {
		u.test = true
		r.macroName(&u, d.head[paren:])
	}
	if !u.test && skip > runs { // what it is built for says nothing about the tests
		u.skip, u.skipAt = runs, 0
	}
	u.body = r.toks[from:d.end]
	r.fill(&u, from, d.end)
	if weak := weakened(d.attrs); weak != nil {
		u.asserts = append(u.asserts, assertion{toks: weak, line: weak[0].Line, strength: strengthOf(weak), pos: len(u.body)})
		u.weak = "it is now expected to fail"
	}
	if syntax.Has(d.attrs, "doesNotPerformAssertions", "DoesNotPerformAssertions") {
		u.weak = "it need not check anything any more"
	}
	if r.l == syntax.PHP && syntax.Has(u.body, "expectNotToPerformAssertions") {
		u.weak = "it need not check anything any more"
	}
	if r.l == syntax.PHP && syntax.Has(u.body, "expectException", "expectExceptionObject") && catchesFailures(u.body, r.l) {
		u.weak = "it now passes where a check fails"
	}
	r.m.units = append(r.m.units, u)
}

// macroName takes a test's name from the arguments of its macro.
func (r *braceReader) macroName(u *unit, args []token) {
	var parts []string
	for i, t := range args {
		if i == 0 || t.Depth != args[0].Depth+1 || len(parts) == 2 {
			continue
		}
		if t.Kind == syntax.Word || t.Kind == syntax.Text {
			s := t.Text
			if t.Kind == syntax.Text {
				s = unquote(s)
			}
			if clean, ok := strings.CutPrefix(s, "DISABLED_"); ok {
				u.skip, u.skipAt, s = skips, t.Line, clean
			}
			if t.Kind == syntax.Text && len(parts) == 1 { // Catch's tags
				if strings.Contains(s, "[.") || strings.Contains(s, "[!mayfail]") || strings.Contains(s, "[!shouldfail]") || strings.Contains(s, "[!hide]") {
					u.skip, u.skipAt = skips, t.Line
				}
				continue
			}
			parts = append(parts, s)
		}
		if t.Text == "disabled" || t.Text == "should_fail" || t.Text == "skip" || t.Text == "may_fail" {
			u.skip, u.skipAt = skips, t.Line
		}
	}
	u.name = strings.Join(parts, ".")
}

func (r *braceReader) isTest(d declaration, name, prefix string) bool {
	switch r.l {
	case syntax.Java:
		return syntax.Has(d.attrs, "Test", "ParameterizedTest", "RepeatedTest", "TestFactory", "TestTemplate", "Theory", "Property") ||
			strings.HasPrefix(name, "test") && syntax.Has(d.head, "void") && syntax.Has(d.head, "public")
	case syntax.CSharp:
		return slices.ContainsFunc(d.attrs, func(t token) bool {
			return t.Kind == syntax.Word && (strings.HasSuffix(t.Text, "Fact") || strings.HasSuffix(t.Text, "Theory") || t.Text == "Test" || strings.HasPrefix(t.Text, "TestCase") || strings.HasSuffix(t.Text, "TestMethod"))
		})
	case syntax.Rust:
		for i, t := range d.attrs {
			if (t.Text == "test" || strings.HasSuffix(t.Text, "_test") || t.Text == "rstest" || t.Text == "test_case" || t.Text == "quickcheck") && i > 0 && (d.attrs[i-1].Text == "[" || d.attrs[i-1].Text == "::") {
				return true
			}
		}
		return false
	case syntax.PHP:
		return strings.HasPrefix(name, "test") && (prefix != "" || name != "test") || syntax.Has(d.attrs, "test", "Test")
	case syntax.C:
		return (strings.HasPrefix(name, "test_") || strings.HasSuffix(name, "_test") || strings.HasPrefix(name, "Test_") || strings.HasPrefix(name, "test") && len(name) > 4 && name[4] >= 'A' && name[4] <= 'Z') && !syntax.Has(d.head, "define")
	}
	return false
}

// attrSkip reads what annotations say about running at all.
func attrSkip(attrs []token, l syntax.Lang) (skipKind, int) {
	k, at := runs, 0
	set := func(s skipKind, line int) {
		if s > k {
			k, at = s, line
		}
	}
	text := func(i int) string {
		if i < len(attrs) {
			return attrs[i].Text
		}
		return ""
	}
	for i, t := range attrs {
		if t.Kind != syntax.Word {
			continue
		}
		first := i > 0 && (attrs[i-1].Text == "@" || attrs[i-1].Text == "[" || attrs[i-1].Text == "," || attrs[i-1].Text == ".")
		switch {
		case l == syntax.Rust && t.Text == "ignore" && i > 1 && attrs[i-1].Text == "[":
			set(skips, t.Line)
		case l == syntax.Rust && t.Text == "ignore" && syntax.Has(attrs[:i], "cfg_attr"):
			set(skipsSometimes, t.Line)
		case l == syntax.Rust && t.Text == "cfg" && text(i+1) == "(":
			switch end := i + 2 + max(0, slices.IndexFunc(attrs[i+2:], func(x token) bool { return x.Text == "]" })); {
			case rustBuilt(attrs[i+2:max(i+2, end-1)]) == never:
				set(skips, t.Line)
			case text(i+2) != "test":
				set(skipsSometimes, t.Line)
			}
		case l == syntax.Rust:
		case first && slices.Contains([]string{"Disabled", "Ignore", "Explicit", "Ignored"}, t.Text),
			(t.Text == "Skip" || t.Text == "Ignore" || t.Text == "IgnoreReason") && text(i+1) == "=", t.Text == "enabled" && text(i+1) == "=" && text(i+2) == "false":
			set(skips, t.Line)
		case first && (strings.HasPrefix(t.Text, "DisabledI") || strings.HasPrefix(t.Text, "DisabledO") || strings.HasPrefix(t.Text, "DisabledF") || strings.HasPrefix(t.Text, "EnabledI") || strings.HasPrefix(t.Text, "EnabledO") || strings.HasPrefix(t.Text, "EnabledF") ||
			strings.HasPrefix(t.Text, "Conditional") || strings.HasPrefix(t.Text, "Skippable") || strings.HasPrefix(t.Text, "Requires") || t.Text == "Platform"):
			set(skipsSometimes, t.Line)
		}
	}
	return k, at
}

// weakened are the tokens of annotations by which a test passes when it throws.
func weakened(attrs []token) []token {
	at := slices.IndexFunc(attrs, func(t token) bool {
		return t.Text == "should_panic" || t.Text == "ExpectedException" || t.Text == "expected" || t.Text == "expectedExceptions" || t.Text == "expectedException"
	})
	if at < 0 {
		return nil
	}
	start := at
	for start > 0 && attrs[start].Text != "@" && attrs[start].Text != "#" && !(attrs[start].Text == "[" && attrs[start].Depth == attrs[0].Depth) {
		start--
	}
	end := at + 1
	for end < len(attrs) && attrs[end].Depth >= attrs[at].Depth && attrs[end].Text != "@" && attrs[end].Text != "]" {
		end++
	}
	return attrs[start:end]
}

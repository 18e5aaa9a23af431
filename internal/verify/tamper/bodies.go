package tamper

import (
	"strings"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// skippers are calls that end a test as skipped.
const skippers = " assumeTrue assumeFalse assumeThat assumeNoException Ignore Inconclusive markTestSkipped markTestIncomplete GTEST_SKIP SKIP TEST_IGNORE TEST_IGNORE_MESSAGE SkipException TestAbortedException AssumptionViolatedException SkipTest skip_test "

// fill reads the body of a function.
func (r *braceReader) fill(u *unit, from, to int) {
	first := from + 1
	if first >= to {
		u.empty = true
		return
	}
	u.empty = u.test && (r.text(first) == "}" || r.text(first) == "return" && (r.text(first+1) == ";" || r.text(first+1) == "}"))
	base := r.toks[from].Depth + 1
	for i := first; i < to; i++ {
		t := r.toks[i]
		if t.Kind != syntax.Word {
			continue
		}
		next := r.text(i + 1)
		switch {
		case strings.Contains(skippers, " "+t.Text+" ") && (next == "(" || next == ";") && !(t.Text == "Ignore" && r.text(i-1) != "."):
			k := skips
			if t.Depth > base || strings.HasPrefix(t.Text, "assume") && r.text(i+2) != "false" || underIf(r.toks, from, i) {
				k = skipsSometimes
			}
			if k > u.skip {
				u.skip, u.skipAt = k, t.Line
			}
		case r.l == syntax.CSharp && t.Text == "Skip" && r.text(i+1) == "." && u.skip < skipsSometimes:
			u.skip, u.skipAt = skipsSometimes, t.Line
		case (t.Text == "SECTION" || t.Text == "SUBCASE" || t.Text == "GIVEN" || t.Text == "WHEN" || t.Text == "THEN") && next == "(" && i+2 < to && r.toks[i+2].Kind == syntax.Text:
			u.subs = append(u.subs, unquote(r.text(i+2)))
		case (t.Text == "RUN_TEST" || t.Text == "cmocka_unit_test" || t.Text == "MU_RUN_TEST") && next == "(" && i+2 < to:
			u.subs = append(u.subs, r.text(i+2))
		case t.Text == "tcase_add_test" && next == "(" && i+4 < to:
			u.subs = append(u.subs, r.text(i+4))
		}
	}
	u.asserts = checksIn(r.toks, r.closing, first, to, r.l)
	for i := range u.asserts {
		u.asserts[i].pos -= from
	}
	attach(u, r.l)
}

// underIf reports a statement that an if without braces leads to.
func underIf(toks []token, from, i int) bool {
	for k := i - 1; k > from && toks[k].Text != ";" && toks[k].Text != "{" && toks[k].Text != "}"; k-- {
		if toks[k].Text == "if" || toks[k].Text == "else" {
			return true
		}
	}
	return false
}

// pest reads a test or a group that is a call, as in Pest: it('adds', function () {…})->skip();
func (r *braceReader) pest(d declaration, in scopeOf) bool {
	i := d.open - len(d.head)
	if i < 0 || i+2 >= len(r.toks) || r.text(i+1) != "(" || r.toks[i+2].Kind != syntax.Text {
		return false
	}
	kind := r.text(i)
	if kind != "it" && kind != "test" && kind != "describe" {
		return false
	}
	title, end := unquote(r.text(i+2)), r.closing[i+1]
	skip, at, focus := in.skip, in.at, false
	for k := end; k < d.end; k++ {
		switch r.text(k) {
		case "skip", "todo":
			skip, at = skips, r.toks[k].Line
			if r.text(k+1) == "(" && r.text(k+2) != ")" && r.toks[min(k+2, len(r.toks)-1)].Kind != syntax.Text && r.text(k+2) != "true" {
				skip = max(in.skip, skipsSometimes)
			}
		case "only":
			focus = true
		}
	}
	open := i + 3
	for open < end && r.text(open) != "{" && r.text(open) != "=>" {
		open++
	}
	if kind == "describe" {
		if open < end && r.text(open) == "{" {
			r.declarations(open+1, max(r.closing[open]-1, open+1), scopeOf{prefix: in.prefix + title + " > ", skip: skip, at: at, depth: in.depth + 1})
		}
		return true
	}
	u := unit{name: in.prefix + title, line: r.toks[i].Line, test: true, toks: r.toks[d.from:d.end], skip: skip, skipAt: at, focus: focus, empty: open >= end}
	if open < end {
		to := end - 1
		if r.text(open) == "{" {
			to = min(r.closing[open], end)
		}
		u.body = r.toks[open:max(to, open)]
		r.fill(&u, open, max(to, open+1))
	}
	r.m.units = append(r.m.units, u)
	return true
}

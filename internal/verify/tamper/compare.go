package tamper

import (
	"fmt"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// maxPairs bounds how many new checks one old check is held against.
const maxPairs = 300

// compareTests sets two versions of one test side by side.
func (a *analysis) compareTests(path string, old, now *unit) {
	old, now = alike(old, now)
	switch {
	case now.skip > old.skip && now.skip == skips:
		a.add(path, now.skipAt, TestSkipped, "block", fmt.Sprintf("test %s is now skipped", now.name), "", lineText(now.toks, now.skipAt))
	case now.skip > old.skip:
		a.add(path, now.skipAt, TestSkipped, "warn", fmt.Sprintf("test %s may now be skipped", now.name), "", lineText(now.toks, now.skipAt))
	}
	if now.focus && !old.focus {
		a.add(path, now.line, TestFocused, "block", fmt.Sprintf("test %s now runs alone: others of its file or run are left out", now.name), "", lineText(now.toks, now.line))
	}
	if len(old.asserts) > 0 && len(now.asserts) == 0 && len(now.dead) > 0 {
		x := now.dead[0]
		a.add(path, x.line, TestEmptied, "block", fmt.Sprintf("test %s no longer checks anything: its checks are %s", now.name, x.why), join(old.body), join(now.body))
		return
	}
	if a.handed(old, now) {
		a.add(path, now.line, AssertionRemoved, "warn", fmt.Sprintf("%s: what it checked is left to something that it calls", now.name), join(old.body), join(now.body))
		return
	}
	if now.empty && !old.empty || len(old.asserts) > 0 && len(now.asserts) == 0 && (len(now.body) < len(old.body)/2 || nothingNew(old, now)) {
		a.add(path, now.line, TestEmptied, "block", fmt.Sprintf("test %s no longer checks anything", now.name), join(old.body), join(now.body))
		return
	}
	a.compareSubs(path, old, now)
	if now.weak != "" && old.weak == "" {
		a.add(path, now.line, AssertionLoosened, "warn", fmt.Sprintf("test %s: %s", now.name, now.weak), lineText(old.toks, old.line), lineText(now.toks, now.line))
	}
	a.compareUnits(path, old, now)
}

// nothingNew reports a test that is shorter by its checks and has no word that it did not have:
// nothing took their place.
func nothingNew(old, now *unit) bool {
	had := map[string]bool{}
	for _, t := range old.body {
		had[t.Text] = true
	}
	checks := 0
	for _, x := range old.asserts {
		checks += len(x.toks)
	}
	return len(now.body) <= len(old.body)-checks/2 && !slices.ContainsFunc(now.body, func(t token) bool { return t.Kind == syntax.Word && !had[t.Text] })
}

// handed reports a test that calls a function of its file that checks, or gives the values it
// checked to something that may check, and did not before.
func (a *analysis) handed(old, now *unit) bool {
	if now.empty || len(old.asserts) == 0 || len(now.asserts) > 0 {
		return false
	}
	if slices.ContainsFunc(now.body, func(t token) bool {
		return t.Kind == syntax.Word && a.checkers[t.Text] && !syntax.Has(old.body, t.Text)
	}) {
		return true
	}
	var values []string
	for _, x := range old.asserts {
		for _, t := range x.toks {
			if t.Kind == syntax.Text {
				values = append(values, `"`+unquote(t.Text)+`"`)
			}
		}
	}
	slices.Sort(values)
	is, was := literals(now.body), literals(old.body)
	return (len(values) > 0 && within(values, is) || len(is) > 1 && within(is, was)) && slices.ContainsFunc(now.body, func(t token) bool {
		return t.Kind == syntax.Word && !syntax.Has(old.body, t.Text) && fails(t)
	})
}

// compareSubs looks for named parts of a test, and for tests that a main function no longer runs.
func (a *analysis) compareSubs(path string, old, now *unit) {
	for _, s := range old.subs {
		if !slices.Contains(now.subs, s) {
			if r := a.likelySub(old, now, s); r != "" {
				a.add(path, now.line, TestRenamed, "warn", fmt.Sprintf("subtest %q of %s may now be called %q", s, now.name, r), s, r)
				continue
			}
			a.add(path, now.line, TestDeleted, "block", fmt.Sprintf("subtest %q of %s is gone", s, now.name), s, "")
		}
	}
}

// likelySub finds the only new subtest when exactly one was lost: a rename.
func (a *analysis) likelySub(old, now *unit, lost string) string {
	var fresh []string
	for _, s := range now.subs {
		if !slices.Contains(old.subs, s) {
			fresh = append(fresh, s)
		}
	}
	if len(fresh) == 1 && len(now.subs) >= len(old.subs) {
		return fresh[0]
	}
	return ""
}

// compareUnits compares the checks and the data of two versions of a piece of a test file.
func (a *analysis) compareUnits(path string, old, now *unit) {
	old, now = alike(old, now)
	a.compareGuards(path, old, now)
	removed, added := difference(old.asserts, now.asserts)
	var moved []string
	if len(removed) > 0 {
		moved = intoTable(old, now)
	}
	skeletons := make([]string, len(added))
	for i := range added {
		skeletons[i] = skeleton(added[i].toks)
	}
	for _, r := range a.buried(path, now, removed) {
		best, at := 0.0, -1
		words, total := wordCount(r.toks)
		k := skeleton(r.toks)
		for i, x := range added[:min(len(added), maxPairs)] {
			l := likeness(words, total, x.toks)
			if k == skeletons[i] {
				l++
			}
			if l > best {
				best, at = l, i
			}
			if l == 2 {
				break
			}
		}
		if best < 0.4 {
			a.add(path, near(now, r, old), AssertionRemoved, "warn", fmt.Sprintf("%s: a check is gone", now.name), r.text(), "")
			continue
		}
		x := added[at]
		added, skeletons = slices.Delete(added, at, at+1), slices.Delete(skeletons, at, at+1)
		a.changedCheck(path, now, r, x, moved)
	}
	a.compareRows(path, old, now)
}

// changedCheck says what became of a check.
// moved are values that the test now takes from a table.
func (a *analysis) changedCheck(path string, now *unit, r, x assertion, moved []string) {
	name := now.name
	switch {
	case x.guard.swallowed && !r.guard.swallowed:
		a.add(path, x.line, FailureSwallowed, "block", name+": a check's failure is now caught and forgotten", r.text(), x.text())
	case x.strength < r.strength:
		a.add(path, x.line, AssertionLoosened, "warn", name+": a check was loosened", r.text(), x.text())
	case x.by != r.by && x.by != "":
		a.add(path, x.line, AssertionLoosened, "warn", name+": a check is now made by "+x.by+", which may fail for less", r.text(), x.text())
	case vacuous(x.toks) && !vacuous(r.toks):
		a.add(path, x.line, AssertionLoosened, "warn", name+": a check always passes now", r.text(), x.text())
	case narrowed(r.toks, x.toks):
		a.add(path, x.line, AssertionLoosened, "warn", name+": a check now fails for less", r.text(), x.text())
	case hasEscape(x.toks) && !hasEscape(r.toks):
		a.add(path, x.line, AssertionLoosened, "warn", name+": a check now has a way out", r.text(), x.text())
	case skeleton(r.toks) == skeleton(x.toks) && widened(r.toks, x.toks):
		a.add(path, x.line, AssertionLoosened, "warn", name+": a tolerance was widened", r.text(), x.text())
	case skeleton(r.toks) == skeleton(x.toks):
		a.add(path, x.line, ExpectedChanged, "warn", name+": an expected value changed", r.text(), x.text())
	case x.guard.conds > r.guard.conds:
		a.add(path, x.line, AssertionLoosened, "warn", name+": a check was rewritten and now depends on a condition", r.text(), x.text())
	case moved != nil && within(literals(r.toks), moved):
		a.add(path, x.line, ExpectedChanged, "info", name+": a check's values are now in a table", r.text(), x.text())
	case names(now, r, x):
		a.add(path, x.line, ExpectedChanged, "info", name+": a check's values were given names", r.text(), x.text())
	case within(literals(r.toks), literals(x.toks)):
		a.add(path, x.line, ExpectedChanged, "info", name+": a check was adapted; its values are as before", r.text(), x.text())
	default:
		a.add(path, x.line, ExpectedChanged, "warn", name+": a check was rewritten", r.text(), x.text())
	}
}

// tables are words of tests that take their values from a table.
var tables = []string{"parametrize", "each", "ParameterizedTest", "Theory", "InlineData", "TestCase", "TestCaseSource", "CsvSource", "ValueSource", "MethodSource", "rstest", "test_case", "dataProvider", "DataProvider", "TestWith", "DataRow", "TEST_P", "GENERATE", "subTest", "range"}

// intoTable are the values of a test that was made to take them from a table, sorted, nil for
// any other test.
func intoTable(old, now *unit) []string {
	for _, w := range tables {
		if syntax.Has(now.toks, w) && !syntax.Has(old.toks, w) {
			return literals(now.toks)
		}
	}
	return nil
}

// names reports whether every value that a check no longer has itself is assigned, in the test,
// to a name that the check now has in its place.
func names(u *unit, r, x assertion) bool {
	left := literals(x.toks)
	var gone []string
	for _, v := range literals(r.toks) {
		if i := slices.Index(left, v); i >= 0 {
			left = slices.Delete(left, i, i+1)
		} else {
			gone = append(gone, v)
		}
	}
	if len(gone) == 0 || len(left) > 0 {
		return false
	}
	for _, row := range rows(u.toks) {
		eq := slices.IndexFunc(row, func(t token) bool { return t.Text == "=" || t.Text == ":=" })
		if eq < 1 || row[0].Line >= x.line || !syntax.Has(x.toks, row[eq-1].Text) || syntax.Has(r.toks, row[eq-1].Text) {
			continue
		}
		for _, v := range literals(row[eq:]) {
			if i := slices.Index(gone, v); i >= 0 {
				gone = slices.Delete(gone, i, i+1)
			}
		}
	}
	return len(gone) == 0
}

// vacuous reports a check of a value that is there, or of nothing but a literal: it says nothing
// about what the code does.
func vacuous(toks []token) bool {
	at := slices.IndexFunc(toks, func(t token) bool { return t.Text == "(" })
	if at < 1 || at+2 >= len(toks) || !slices.Contains([]string{"ok", "true", "truthy", "assert", "assertTrue", "assertIsNotNone", "assert_true", "True", "NotNil"}, toks[at-1].Text) {
		return false
	}
	first, next := toks[at+1], toks[at+2].Text
	switch {
	case first.Text == "[" || first.Text == "{":
		return true
	case first.Kind == syntax.Text, first.Kind == syntax.Number, first.Text == "true", first.Text == "True":
		return next == "," || next == ")"
	}
	return false
}

// hasEscape reports an "or", a condition or a catch in a check.
func hasEscape(toks []token) bool {
	for i, t := range toks {
		switch {
		case t.Text == "or" && t.Kind == syntax.Word && (i == 0 || toks[i-1].Text != "."), t.Text == "||" && t.Kind == syntax.Punct && i > 0 && toks[i-1].Text != "(" && toks[i-1].Text != ",":
			return true
		case (t.Text == "if" || t.Text == "unless") && i > 0 && toks[0].Text != "if":
			return true
		case t.Text == "catch" && i > 0 && toks[i-1].Text == ".":
			return true
		}
	}
	return false
}

// near gives a line in the new file for a check that is only in the old one.
func near(now *unit, r assertion, old *unit) int {
	return max(now.line, now.line+min(r.line-old.line, 0))
}

// difference is what is only in a, and what is only in b, counting repeats.
func difference(a, b []assertion) (onlyA, onlyB []assertion) {
	count := map[string]int{}
	for _, x := range b {
		count[x.text()]++
	}
	for _, x := range a {
		if k := x.text(); count[k] > 0 {
			count[k]--
		} else {
			onlyA = append(onlyA, x)
		}
	}
	count = map[string]int{}
	for _, x := range a {
		count[x.text()]++
	}
	for _, x := range b {
		if k := x.text(); count[k] > 0 {
			count[k]--
		} else {
			onlyB = append(onlyB, x)
		}
	}
	return onlyA, onlyB
}

// compareRows looks at the lines that are no checks: the tables of data-driven tests, set-up
// values, decorators.
func (a *analysis) compareRows(path string, old, now *unit) {
	checked := checkedLines(old.asserts)
	left := map[string]int{}
	newRows := rows(now.toks)
	for _, r := range newRows {
		left[rowKey(r)]++
	}
	var removed [][]token
	for _, r := range rows(old.toks) {
		k := rowKey(r)
		if left[k] > 0 {
			left[k]--
		} else if r[0].Line == old.line && old.name != now.name || strings.HasPrefix(k, "# include ") {
			continue
		} else if !checked[r[0].Line] {
			removed = append(removed, r)
		}
	}
	if len(removed) == 0 {
		return
	}
	var added [][]token
	for _, r := range newRows {
		if k := rowKey(r); left[k] > 0 {
			left[k]--
			added = append(added, r)
		}
	}
	var fresh []string
	for _, r := range added {
		fresh = append(fresh, literals(r)...)
	}
	slices.Sort(fresh)
	keys := make([]string, len(added))
	for i := range added {
		keys[i] = skeleton(added[i])
	}
	for _, r := range removed {
		lits := literals(r)
		if len(lits) == 0 {
			continue
		}
		k := skeleton(r)
		at := slices.Index(keys[:min(len(keys), maxPairs)], k)
		switch {
		case at >= 0:
			x := added[at]
			added, keys = slices.Delete(added, at, at+1), slices.Delete(keys, at, at+1)
			if onlyMessage(r, x) {
				continue
			}
			a.add(path, x[0].Line, ExpectedChanged, "warn", now.name+": a value of an existing test changed", join(r), join(x))
		case dataRow(r) && !within(lits, fresh):
			a.add(path, now.line, AssertionRemoved, "warn", now.name+": a case is gone", join(r), "")
		}
	}
}

// onlyMessage reports whether two rows of one skeleton differ only in what a failure prints.
func onlyMessage(old, now []token) bool {
	prints := slices.ContainsFunc(old, func(t token) bool {
		switch t.Text {
		case "Errorf", "Fatalf", "Error", "Fatal", "Logf", "Log", "print", "console", "Println", "Printf":
			return true
		}
		return false
	})
	if !prints {
		return false
	}
	for i := range old {
		if i < len(now) && old[i].Text != now[i].Text && old[i].Kind != syntax.Text {
			return false
		}
	}
	return true
}

// checkedLines are the lines of checks, which are compared as a whole.
func checkedLines(asserts []assertion) map[int]bool {
	out := map[int]bool{}
	for _, x := range asserts {
		out[x.line] = true
		for _, t := range x.toks {
			out[t.Line] = true
		}
	}
	return out
}

// dataRow reports whether a line is an entry of a table: brackets, values and field names only.
func dataRow(row []token) bool {
	open := row[0].Text
	if open != "{" && open != "(" && open != "[" && row[0].Kind != syntax.Text && row[0].Text != "pytest" {
		return false
	}
	return len(row) > 1 && (row[len(row)-1].Text == "," || open == "{" || open == "[" || open == "(")
}

// lineText is the text of the tokens on a line.
func lineText(toks []token, line int) string {
	var on []token
	for _, t := range toks {
		if t.Line == line {
			on = append(on, t)
		}
	}
	return join(on)
}

// compareFiles compares all units of one path; tests that are gone are kept for later, since
// another file may have them.
func (a *analysis) compareFiles(path string, old, now model) {
	before, after := old.byName(), now.byName()
	a.checkers = map[string]bool{}
	for _, u := range now.units {
		if !u.test && len(u.asserts)+len(u.dead) > 0 {
			a.checkers[u.name[strings.LastIndexByte(u.name, '.')+1:]] = true
		}
	}
	for i := range old.units {
		o := &old.units[i]
		n := after[o.name]
		switch {
		case n == nil && o.test:
			a.lost = append(a.lost, lostTest{path: path, u: o})
		case n == nil && len(o.asserts)+len(o.dead) > 0:
			a.lostHelpers = append(a.lostHelpers, lostTest{path: path, u: o})
		case n == nil:
		case o.test && !n.test:
			a.lost = append(a.lost, lostTest{path: path, u: o})
		case o.test:
			a.compareTests(path, o, n)
		default:
			switch {
			case n.skip > o.skip && n.skip == skips:
				a.add(path, n.skipAt, TestSkipped, "block", "the tests of the file, or those that use "+n.name+", are now skipped", "", lineText(n.toks, n.skipAt))
			case n.skip > o.skip:
				a.add(path, n.skipAt, TestSkipped, "warn", "the tests of the file, or those that use "+n.name+", may now be skipped", "", lineText(n.toks, n.skipAt))
			}
			a.compareSubs(path, o, n)
			a.compareUnits(path, o, n)
		}
	}
	for i := range now.units {
		n := &now.units[i]
		if before[n.name] != nil {
			continue
		}
		a.fresh = append(a.fresh, lostTest{path: path, u: n})
		if n.test && len(n.asserts) == 0 && len(n.dead) > 0 {
			a.add(path, n.dead[0].line, TestEmptied, "info", fmt.Sprintf("new test %s checks nothing: its checks are %s", n.name, n.dead[0].why), "", lineText(n.toks, n.dead[0].line))
		}
		if n.focus {
			a.add(path, n.line, TestFocused, "block", fmt.Sprintf("new test %s runs alone: others of its file or run are left out", n.name), "", lineText(n.toks, n.line))
		}
		if !n.test && n.skip == skips {
			a.add(path, n.skipAt, TestSkipped, "block", "the tests of the file are now skipped", "", lineText(n.toks, n.skipAt))
		}
	}
}

type lostTest struct {
	path string
	u    *unit
}

// settle decides about tests that are gone from their place: moved, moved and changed, renamed
// or deleted.
func (a *analysis) settle() {
	taken := map[*unit]bool{}
	claim := func(match func(lostTest) bool) *lostTest {
		for i := range a.fresh {
			f := &a.fresh[i]
			if !taken[f.u] && match(*f) {
				taken[f.u] = true
				return f
			}
		}
		return nil
	}
	for _, l := range a.lost {
		body := l.u.bodyText()
		same := claim(func(f lostTest) bool { return f.u.test && f.u.name == l.u.name && f.u.bodyText() == body })
		if same == nil {
			same = claim(func(f lostTest) bool { return f.u.test && f.u.name == l.u.name })
		}
		if same != nil {
			a.add(same.path, same.u.line, TestRenamed, "info", fmt.Sprintf("test %s moved here from %s", l.u.name, l.path), "", "")
			a.compareTests(same.path, l.u, same.u)
			continue
		}
		if n := claim(func(f lostTest) bool { return f.u.test && f.u.bodyText() == body }); n != nil {
			a.add(n.path, n.u.line, TestRenamed, "warn", fmt.Sprintf("test %s is now called %s", l.u.name, n.u.name), l.u.name, n.u.name)
			continue
		}
		if n := claim(func(f lostTest) bool { return f.path == l.path && f.u.test && holds(f.u, l.u) }); n != nil {
			a.add(n.path, n.u.line, TestRenamed, "warn", fmt.Sprintf("test %s is now part of %s", l.u.name, n.u.name), l.u.name, n.u.name)
			continue
		}
		if n := a.similar(l, taken); n != nil {
			taken[n.u] = true
			a.add(n.path, n.u.line, TestRewritten, "warn", fmt.Sprintf("test %s may now be called %s, with another body", l.u.name, n.u.name), l.u.name, n.u.name)
			a.compareTests(n.path, l.u, n.u)
			continue
		}
		a.add(l.path, l.u.line, TestDeleted, "block", fmt.Sprintf("test %s is gone", l.u.name), join(l.u.toks), "")
	}
	for _, l := range a.lostHelpers {
		if same := claim(func(f lostTest) bool { return f.u.name == l.u.name }); same != nil {
			a.compareUnits(same.path, l.u, same.u)
			continue
		}
		if claim(func(f lostTest) bool { return !f.u.test && f.u.bodyText() == l.u.bodyText() }) == nil {
			a.add(l.path, l.u.line, AssertionRemoved, "warn", fmt.Sprintf("%s, which checks for tests, is gone", strings.TrimSpace(l.u.name)), join(l.u.toks), "")
		}
	}
}

// similar finds the new test of the same file that is most like a lost one, by its words; it
// must be more than half the same, and check no less.
func (a *analysis) similar(l lostTest, taken map[*unit]bool) *lostTest {
	words, total := wordCount(l.u.body)
	best, at := 0.6, -1
	for i := range a.fresh[:min(len(a.fresh), maxPairs)] {
		f := &a.fresh[i]
		if taken[f.u] || f.path != l.path || !f.u.test || f.u.skip > l.u.skip || len(f.u.asserts)+min(len(f.u.dead), len(l.u.dead)) < len(l.u.asserts)+len(l.u.dead) || len(l.u.asserts)+len(l.u.dead) == 0 || escapes(l.u, f.u) {
			continue
		}
		if s := likeness(words, total, f.u.body); s > best {
			best, at = s, i
		}
	}
	if at < 0 {
		return nil
	}
	return &a.fresh[at]
}

// escapes reports whether a new test may end, or keep a failure to itself, where the old one could not.
func escapes(old, now *unit) bool {
	worst := guard{}
	for _, x := range old.asserts {
		worst.conds, worst.exits, worst.swallowed = max(worst.conds, x.guard.conds), max(worst.exits, x.guard.exits), worst.swallowed || x.guard.swallowed
	}
	if slices.ContainsFunc(now.asserts, func(x assertion) bool {
		return x.guard.conds > worst.conds || x.guard.exits > worst.exits || x.guard.swallowed && !worst.swallowed
	}) {
		return true
	}
	return slices.ContainsFunc(bodyRows(now), leaves) && !slices.ContainsFunc(bodyRows(old), leaves)
}

// holds reports whether the new test has the whole of the old one's body, at its beginning or
// at its end and at the same depth, so that everything it checked is still checked.
func holds(now, old *unit) bool {
	o, n := bodyRows(old), bodyRows(now)
	if len(old.asserts)+len(old.dead) == 0 || len(n) <= len(o) || now.skip > old.skip || now.focus && !old.focus {
		return false
	}
	same := func(part [][]token) bool {
		return slices.EqualFunc(o, part, func(x, y []token) bool {
			return rowKey(x) == rowKey(y) && x[0].Depth-o[0][0].Depth == y[0].Depth-n[0][0].Depth && x[0].Indent-o[0][0].Indent == y[0].Indent-n[0][0].Indent
		})
	}
	if same(n[:len(o)]) {
		return true
	}
	before := n[:len(n)-len(o)]
	return same(n[len(before):]) && !slices.ContainsFunc(before, leaves)
}

// bodyRows are the rows of a body without what opens and closes the function.
func bodyRows(u *unit) [][]token {
	r := rows(u.body)
	if len(r) > 1 && r[0][len(r[0])-1].Text == "{" && r[len(r)-1][0].Text == "}" && r[0][len(r[0])-1].Depth == r[len(r)-1][0].Depth {
		r = r[1 : len(r)-1]
	}
	return r
}

// leaves reports whether a test may end at the row before what follows it.
func leaves(row []token) bool {
	return slices.ContainsFunc(row, func(t token) bool {
		switch t.Text {
		case "return", "raise", "throw", "panic", "exit", "_exit", "Exit", "Goexit", "abort", "kill", "break", "continue", "goto", "yield":
			return true
		}
		return t.Kind == syntax.Word && strings.Contains(strings.ToLower(t.Text), "skip")
	})
}

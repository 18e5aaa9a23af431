package tamper

import (
	"fmt"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// guard is what stands between a test's beginning and a check.
type guard struct {
	conds     int  // conditions around it
	exits     int  // places before it at which the test may end without failing
	swallowed bool // a failure of it is caught and forgotten
	at        int  // line of the innermost of these
}

// maxAhead bounds how many tokens are looked at for the end of a condition.
const maxAhead = 400

// guardsOf reads a body of a language with braces, in one pass.
func guardsOf(toks []token, closing []int, l syntax.Lang) []guard {
	g := guarder{toks: toks, closing: closing, l: l, change: make([]guard, len(toks)+1), control: make([]bool, len(toks)), literal: make([]bool, len(toks))}
	for i := range toks {
		g.mark(i)
	}
	return g.sum()
}

type guarder struct {
	toks    []token
	closing []int
	l       syntax.Lang
	change  []guard // what begins (positive) and ends (negative) at a token; swallowed is kept apart
	control []bool  // braces that belong to a statement, not to a function
	literal []bool  // braces of function literals whose type ends before them
	swallow []int
	scopes  []scope
}

type scope struct {
	open, end int
	function  bool
}

func (g *guarder) at(i int) string {
	if i >= 0 && i < len(g.toks) {
		return g.toks[i].Text
	}
	return ""
}

func (g *guarder) cond(from, to, n int) {
	g.change[from].conds += n
	g.change[min(to, len(g.toks))].conds -= n
}

// parts counts what must hold for a condition's block to run.
func (g *guarder) parts(i, open int) int {
	n := 1
	for _, t := range g.toks[i:min(open, len(g.toks))] {
		if t.Text == "&&" || t.Text == "false" && t.Kind == syntax.Word {
			n++
		}
	}
	return n
}

func (g *guarder) mark(i int) {
	t := g.toks[i]
	for n := len(g.scopes); n > 0 && g.scopes[n-1].end <= i; n = len(g.scopes) {
		g.scopes = g.scopes[:n-1]
	}
	if t.Kind == syntax.Punct {
		if t.Text == "{" {
			g.scopes = append(g.scopes, scope{i, g.closing[i], i == 0 || g.literal[i] || lambda(g.toks, i, g.l) || g.at(i-1) == ")" && !g.control[i]})
		}
		return
	}
	if t.Kind != syntax.Word || g.at(i-1) == "#" || g.at(i-1) == "." {
		return
	}
	switch t.Text {
	case "if", "switch", "match", "unless", "while", "for", "foreach", "catch", "with", "using", "lock", "synchronized":
		open := g.head(i)
		if open < len(g.toks) && g.at(open) == "{" {
			g.control[open] = true
			if t.Text == "if" || t.Text == "switch" || t.Text == "match" || t.Text == "unless" {
				g.cond(open, g.closing[open], g.parts(i, open))
			}
		} else if t.Text == "if" {
			g.cond(open, g.statementEnd(open, t.Depth), g.parts(i, open))
		}
	case "else":
		if g.at(i+1) == "{" {
			g.control[i+1] = true
			g.cond(i+1, g.closing[i+1], 1)
		}
	case "try":
		if g.at(i+1) == "{" {
			g.control[i+1] = true
			if end := g.closing[i+1]; g.forgets(end) {
				g.swallow = append(g.swallow, i+1, end)
			}
		}
	case "catch_unwind":
		if g.at(i+1) == "(" {
			g.swallow = append(g.swallow, i+1, g.closing[i+1])
		}
	case "func":
		if open := g.goLiteral(i); open > 0 {
			g.literal[open] = true
		}
	case "return":
		g.leave(i)
	}
}

// goLiteral finds the brace of a Go function literal, whose results may stand before it: a return
// in it ends that function and not the test.
func (g *guarder) goLiteral(i int) int {
	if g.l != syntax.Go || g.at(i+1) != "(" {
		return 0
	}
	j := g.closing[i+1]
	for n := 0; j < len(g.toks) && n < maxAhead && g.toks[j].Line == g.toks[g.closing[i+1]-1].Line; n++ {
		switch g.at(j) {
		case "{":
			if before := g.at(j - 1); before != "struct" && before != "interface" {
				return j
			}
			j = g.closing[j]
			continue
		case "(", "[":
			j = g.closing[j]
			continue
		case ",", ";", ")", "]", "}", "=", ":=":
			return 0 // a type alone
		}
		j++
	}
	return 0
}

// head finds the brace, or the statement, after the head of a condition or a loop.
func (g *guarder) head(i int) int {
	j := i + 1
	if g.at(j) == "(" && g.l != syntax.Rust && g.l != syntax.Go {
		return g.closing[j]
	}
	for n := 0; j < len(g.toks) && n < maxAhead; n++ {
		switch g.at(j) {
		case "{":
			return j
		case ";":
			if g.l != syntax.Go {
				return j
			}
		case "(", "[":
			j = g.closing[j]
			continue
		}
		j++
	}
	return j
}

func (g *guarder) statementEnd(from, depth int) int {
	for j := from; j < min(len(g.toks), from+maxAhead); j++ {
		if g.toks[j].Depth < depth || g.toks[j].Depth == depth && g.toks[j].Text == ";" {
			return j
		}
	}
	return from
}

// forgets reports whether one of the catch clauses at k takes failures and does nothing with them.
func (g *guarder) forgets(k int) bool {
	for g.at(k) == "catch" {
		head := []token{}
		k++
		if g.at(k) == "(" {
			head = g.toks[k:min(g.closing[k], len(g.toks))]
			k = g.closing[k]
		}
		if g.at(k) == "when" && g.at(k+1) == "(" {
			k = g.closing[k+1]
		}
		if g.at(k) != "{" {
			return false
		}
		end := min(g.closing[k], len(g.toks))
		if catchesFailures(head, g.l) && !slices.ContainsFunc(g.toks[k:min(end, k+maxAhead)], fails) {
			return true
		}
		k = end
	}
	return false
}

// catchesFailures reports whether what a clause names includes a failed assertion.
func catchesFailures(head []token, l syntax.Lang) bool {
	switch l {
	case syntax.Java:
		return syntax.Has(head, "Throwable", "Error", "AssertionError", "AssertionFailedError", "MultipleFailuresError")
	case syntax.CSharp:
		return len(head) == 0 || syntax.Has(head, "Exception", "XunitException", "AssertionException", "AssertFailedException", "AssertActualExpectedException")
	case syntax.PHP:
		return syntax.Has(head, "Throwable", "Exception", "AssertionFailedError", "ExpectationFailedException", "AssertionError")
	case syntax.C:
		return syntax.Has(head, "...")
	}
	return true
}

// fails reports words that make a test fail.
func fails(t token) bool {
	if t.Kind != syntax.Word {
		return false
	}
	w := strings.ToLower(t.Text)
	for _, p := range []string{"assert", "expect", "fail", "throw", "panic", "raise", "require", "fatal", "reject", "verify", "check", "flunk", "should", "must", "done", "boost_", "ck_", "rethrow", "skip", "markTest"} {
		if strings.HasPrefix(w, p) {
			return true
		}
	}
	return t.Text == "Error" || t.Text == "Errorf"
}

// leave counts a way out of the test for everything after it in the same function. Where
// something is checked first, in the same block, the test has said what it had to say.
func (g *guarder) leave(i int) {
	end := len(g.toks)
	for n := len(g.scopes) - 1; n >= 0; n-- {
		if g.scopes[n].function {
			end = g.scopes[n].end
			break
		}
	}
	if n := len(g.scopes); n > 0 {
		from := max(g.scopes[n-1].open, i-maxAhead)
		if slices.ContainsFunc(g.toks[from:i], fails) && g.scopes[n-1].end < end {
			return
		}
	}
	for j := i; j < min(len(g.toks), i+maxAhead) && g.toks[j].Text != ";" && g.toks[j].Line == g.toks[i].Line; j++ {
		if fails(g.toks[j]) {
			return
		}
	}
	g.change[i].exits++
	g.change[min(end, len(g.toks))].exits--
}

func (g *guarder) sum() []guard {
	out := make([]guard, len(g.toks))
	inside := make([]int, len(g.toks)+1)
	for k := 0; k+1 < len(g.swallow); k += 2 {
		inside[g.swallow[k]]++
		inside[min(g.swallow[k+1], len(g.toks))]--
	}
	var now guard
	depth := 0
	for i := range out {
		c := g.change[i]
		depth += inside[i]
		if c.conds > 0 || c.exits > 0 || inside[i] > 0 {
			now.at = g.toks[max(i-1, 0)].Line
		}
		now.conds += c.conds
		now.exits += c.exits
		now.swallowed = depth > 0
		out[i] = now
	}
	return out
}

// attach gives the checks of a unit their guards, by their place in the body.
func attach(u *unit, l syntax.Lang) {
	if len(u.asserts) == 0 {
		return
	}
	closing := syntax.Partners(u.body)
	g := guardsOf(u.body, closing, l)
	for i := range u.asserts {
		if p := u.asserts[i].pos; p < len(g) {
			u.asserts[i].guard = g[p]
		}
	}
	bury(u, deadParts(u.body, closing, l))
}

// compareGuards looks at checks that are as before: whether they still count. One finding of
// each kind is enough for a test.
func (a *analysis) compareGuards(path string, old, now *unit) {
	had := map[string][]assertion{}
	for _, x := range old.asserts {
		had[x.text()] = append(had[x.text()], x)
	}
	swallowed, conditional := false, false
	for _, x := range now.asserts {
		k := x.text()
		if len(had[k]) == 0 {
			continue
		}
		r := had[k][0]
		had[k] = had[k][1:]
		what := func() string { return strings.TrimSpace(lineText(now.toks, x.guard.at)) + " … " + k }
		switch {
		case x.guard.swallowed && !r.guard.swallowed && !swallowed:
			swallowed = true
			a.add(path, x.line, FailureSwallowed, "block", fmt.Sprintf("%s: a check's failure is now caught and forgotten", now.name), k, what())
		case conditional || x.guard.swallowed && !r.guard.swallowed:
		case x.guard.conds > r.guard.conds:
			conditional = true
			a.add(path, x.line, AssertionLoosened, "warn", fmt.Sprintf("%s: a check now depends on a condition", now.name), k, what())
		case x.guard.exits > r.guard.exits:
			conditional = true
			a.add(path, x.line, AssertionLoosened, "warn", fmt.Sprintf("%s: the test may now end before a check", now.name), k, what())
		}
	}
}

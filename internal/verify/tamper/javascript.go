package tamper

import (
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

var (
	jsTests  = []string{"test", "it", "specify", "fit", "xit", "xtest", "xspecify"}
	jsSuites = []string{"describe", "suite", "context", "fdescribe", "xdescribe", "xcontext"}
)

// maxNesting is how deep suites in suites are followed.
const maxNesting = 12

// readJS models a JavaScript or TypeScript test file: a unit for every test call with a
// literal title, one for the rest.
func readJS(_ string, src []byte) model {
	toks := syntax.Lex(src, syntax.JavaScript)
	r := jsReader{toks: toks, inTest: make([]bool, len(toks)), closing: syntax.Partners(toks), handles: jsHandles(toks)}
	r.dead = deadRegions(toks, r.closing, syntax.JavaScript)
	r.block(0, len(toks), 0, "", runs, 0)
	rest := unit{name: "module", line: 1}
	imports := map[int]bool{} // lines whose strings are paths of modules
	for i, t := range toks {
		if t.Kind == syntax.Word && (t.Text == "import" || t.Text == "require" && r.at(i+1) == "(") {
			imports[t.Line] = true
		}
	}
	for i, t := range toks {
		if !r.inTest[i] && !imports[t.Line] {
			rest.toks = append(rest.toks, t)
		}
	}
	rest.asserts = jsChecks(rest.toks, r.handles)
	rest.body = rest.toks
	r.m.units = append(r.m.units, rest)
	return r.m
}

type jsReader struct {
	toks    []token
	inTest  []bool
	closing []int
	handles map[string]bool
	dead    []span // of the file, at its own level
	m       model
}

func (r *jsReader) at(i int) string {
	if i >= 0 && i < len(r.toks) {
		return r.toks[i].Text
	}
	return ""
}

// jsCall is one call of test or describe.
type jsCall struct {
	title      string
	open, end  int // the bracket and what follows its partner
	suite      bool
	skip       skipKind
	focus      bool
	again      bool // it is tried again where it fails
	parametric bool
}

// call reads a test or suite call whose name is at i.
func (r *jsReader) call(i int) (jsCall, bool) {
	t := r.toks[i]
	isTest, isSuite := slices.Contains(jsTests, t.Text), slices.Contains(jsSuites, t.Text)
	if t.Kind != syntax.Word || !isTest && !isSuite {
		return jsCall{}, false
	}
	if r.at(i-1) == "." { // t.test(…) is node's subtest, x.it is something else
		if t.Text != "test" || !r.handles[r.at(i-2)] {
			return jsCall{}, false
		}
	}
	c := jsCall{suite: isSuite}
	if t.Text[0] == 'x' {
		c.skip = skips
	}
	c.focus = t.Text == "fit" || t.Text == "fdescribe"
	j := i + 1
	for r.at(j) == "." && j+1 < len(r.toks) {
		switch m := r.at(j + 1); m {
		case "skip", "todo", "fails", "failing", "fixme":
			c.skip = skips
		case "skipIf", "runIf":
			c.skip = max(c.skip, skipsSometimes)
		case "only":
			c.focus = true
		case "each", "for":
			c.parametric = true
		case "concurrent", "sequential", "serial", "describe", "parallel":
			c.suite = c.suite || m == "describe"
		default:
			return jsCall{}, false
		}
		j += 2
		if m := r.at(j - 1); (m == "each" || m == "for" || m == "skipIf" || m == "runIf") && j < len(r.toks) {
			if r.at(j) == "(" {
				j = r.partner(j)
			} else if r.toks[j].Kind == syntax.Text {
				j++
			}
		}
	}
	if r.at(j) != "(" || j+1 >= len(r.toks) || r.toks[j+1].Kind != syntax.Text || r.toks[j+1].Regex {
		return jsCall{}, false
	}
	c.title, c.open, c.end = unquote(r.toks[j+1].Text), j, r.partner(j)
	if r.at(j+2) == "," && r.at(j+3) == "{" { // options come before the function
		for k := j + 4; k < min(c.end, j+200) && r.at(k) != "}"; k++ {
			on := r.at(k+1) == ":" && r.at(k+2) != "false"
			switch r.at(k) {
			case "skip", "todo", "fails", "failing", "expectFailure":
				if on {
					c.skip = skips
				}
			case "retry", "retries":
				c.again = c.again || on && r.at(k+2) != "0"
			case "only":
				c.focus = c.focus || on
			}
		}
	}
	return c, true
}

// partner returns the index after the bracket that closes the one at i.
func (r *jsReader) partner(i int) int { return r.closing[i] }

// block reads the tests between two tokens.
func (r *jsReader) block(from, to, depth int, prefix string, inherited skipKind, skipAt int) {
	if depth > maxNesting {
		return
	}
	for i := from; i < to; {
		c, ok := r.call(i)
		if !ok {
			i++
			continue
		}
		at := skipAt
		c.skip = max(c.skip, guarded(r.dead, i))
		if c.skip > inherited {
			at = r.toks[i].Line
		}
		skip := max(c.skip, inherited)
		name := prefix + c.title
		end := min(c.end, to)
		if c.suite {
			if c.focus {
				r.m.units = append(r.m.units, unit{name: name + " (suite)", line: r.toks[i].Line, focus: true, toks: r.toks[i:min(c.open+2, end)]})
			}
			r.block(c.open+2, end, depth+1, name+" > ", skip, at)
			i = end
			continue
		}
		for k := i; k < end; k++ {
			r.inTest[k] = true
		}
		u := unit{name: name, line: r.toks[i].Line, test: true, toks: r.toks[i:end], skip: skip, skipAt: at, focus: c.focus}
		r.body(&u, c, end)
		r.m.units = append(r.m.units, u)
		r.block(c.open+2, end, depth+1, name+" > ", skip, at)
		i = end
	}
}

// body fills in what the function of a test holds.
func (r *jsReader) body(u *unit, c jsCall, end int) {
	start := c.open + 2
	for start < end && r.at(start) != "=>" && r.at(start) != "function" {
		start++
	}
	if start >= end { // no function: a test without one is pending
		u.body, u.empty = r.toks[c.open+2:end], true
		return
	}
	u.body = r.toks[start:max(start, end-1)]
	if c.again {
		u.weak = untilPasses
	}
	u.asserts = jsChecks(u.body, r.handles)
	attach(u, syntax.JavaScript)
	unreturned(u)
	if u.weak == "" && r.at(start) == "function" && r.at(start+1) == "*" {
		u.weak = "it is now a generator, which somebody must run"
	}
	open := start
	for open < end && r.at(open) != "{" && !(r.at(open) == "=>" && r.at(open+1) != "{") {
		open++
	}
	if r.at(open) == "{" {
		u.empty = r.at(open+1) == "}" || r.at(open+1) == "return" && (r.at(open+2) == ";" || r.at(open+2) == "}")
	}
	base := 0
	if open < end {
		base = r.toks[open].Depth + 1
	}
	for k := start; k+3 < end; k++ {
		if r.at(k+1) == "." && r.at(k+2) == "skip" && r.at(k+3) == "(" && (r.at(k) == "this" || r.handles[r.at(k)]) {
			s := skips
			if r.toks[k].Depth > base {
				s = skipsSometimes
			}
			if s > u.skip {
				u.skip, u.skipAt = s, r.toks[k].Line
			}
		}
	}
}

// jsContexts are the usual names of a test's context.
var jsContexts = []string{"t", "test", "ctx", "context"}

// jsHandles are the names by which tests call their context: the usual ones, and the first
// parameter of every function that is given to a call of test.
func jsHandles(toks []token) map[string]bool {
	out := map[string]bool{}
	for _, name := range jsContexts {
		out[name] = true
	}
	at := func(i int) string {
		if i >= 0 && i < len(toks) {
			return toks[i].Text
		}
		return ""
	}
	for i, t := range toks {
		if t.Kind != syntax.Word || t.Text != "test" && t.Text != "it" || at(i+1) != "(" && at(i+1) != "." {
			continue
		}
		for j := i + 1; j < min(len(toks), i+maxAhead) && toks[j].Text != ";" && (toks[j].Text != "{" || at(j-1) == ","); j++ {
			name := -1
			switch {
			case at(j) == "function" && at(j+1) == "(":
				name = j + 2
			case at(j) == "function" && at(j+2) == "(":
				name = j + 3
			case at(j) == "=>" && at(j-1) == ")" && at(j-3) == "(":
				name = j - 2
			case at(j) == "=>":
				name = j - 1
			}
			if name > 0 && name < len(toks) && toks[name].Kind == syntax.Word {
				out[at(name)] = true
				break
			}
		}
	}
	return out
}

// jsChecks finds the checks among tokens: chains that begin with expect or assert, and the
// methods of a test context.
func jsChecks(toks []token, handles map[string]bool) []assertion {
	var out []assertion
	at := func(i int) string {
		if i >= 0 && i < len(toks) {
			return toks[i].Text
		}
		return ""
	}
	for i := 0; i < len(toks); i++ {
		if toks[i].Kind != syntax.Word || at(i-1) == "." && !handles[at(i-2)] {
			continue
		}
		w := toks[i].Text
		starts := (w == "expect" || w == "assert" || w == "should" || w == "expectTypeOf") && (at(i+1) == "(" || at(i+1) == ".")
		if handles[w] && at(i+1) == "." && at(i+3) == "(" && strings.Contains(tapeChecks, " "+at(i+2)+" ") {
			starts = true
		}
		member := handles[w] && at(i+1) == "[" && at(i+3) == "]" && at(i+4) == "(" && strings.Contains(tapeChecks, " "+unquote(at(i+2))+" ")
		if !starts && !member {
			continue
		}
		end := jsChain(toks, i)
		x := assertion{toks: toks[i:end], line: toks[i].Line, strength: strengthOf(toks[i:end]), pos: i}
		if member { // t['throws'](…) is t.throws(…)
			x.toks = slices.Concat(toks[i:i+1], []token{{Kind: syntax.Punct, Text: ".", Line: x.line, Depth: toks[i].Depth}, {Kind: syntax.Word, Text: unquote(at(i + 2)), Line: x.line, Depth: toks[i].Depth}}, toks[i+4:end])
			x.strength = strengthOf(x.toks)
		}
		if handles[w] && !slices.Contains(jsContexts, w) {
			x.by = "what a function was given" // which may be anything
		}
		out = append(out, x)
		i = end - 1
	}
	return out
}

// promises are words of checks that say nothing until their promise is settled.
var promises = []string{"resolves", "rejects", "eventually", "rejected", "rejectedWith", "fulfilled", "becomes"}

// unreturned takes checks that are promises and that the test neither awaits nor returns.
func unreturned(u *unit) {
	d := newDeadFinder(u.body, syntax.Partners(u.body), syntax.JavaScript)
	u.asserts = slices.DeleteFunc(u.asserts, func(x assertion) bool {
		if x.pos == 0 || !slices.ContainsFunc(x.toks, func(t token) bool { return slices.Contains(promises, t.Text) && t.Depth == x.toks[0].Depth }) || !d.starts(x.pos) || syntax.Has(x.toks, "then", "notify", "done") {
			return false
		}
		x.why = whyAlone
		u.dead = append(u.dead, x)
		return true
	})
}

const tapeChecks = " equal equals is isNot same strictSame strictEquals strictNotSame notStrictSame notDeepEqual looseEqual deepLooseEqual equivalent deepEqual deepEquals strictEqual deepStrictEqual not notEqual notSame ok true truthy notOk false falsy throws rejects doesNotThrow match notMatch like snapshot fail error ifError isEqual has hasStrict notThrows throwsAsync assert "

// jsChain returns the index after a chain of names, members and calls.
func jsChain(toks []token, i int) int {
	d := toks[i].Depth
	j := i + 1
	for j < len(toks) {
		switch s := toks[j].Text; {
		case toks[j].Depth > d:
		case toks[j].Depth < d:
			return j
		case s == "." || s == "?.":
			j++ // and the name after it
		case s == "(" || s == "[" || s == ")" || s == "]": // an outer bracket's end is shallower
		default:
			return j
		}
		j++
	}
	return min(j, len(toks))
}

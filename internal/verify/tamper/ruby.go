package tamper

import (
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// Words of Ruby's test libraries, each between blanks.
const (
	rubyTests    = " it specify example scenario its test should xit xspecify xexample xscenario xtest fit fspecify fexample fscenario "
	rubySuites   = " describe context feature shared_examples shared_context shared_examples_for xdescribe xcontext fdescribe fcontext "
	rubyContinue = " , . &. ( [ + - * / == != = => && || ? << < > <= >= =~ and or not += -= |= ||= :: -> "
)

// readRuby models a test file of RSpec, minitest or test-unit.
func readRuby(_ string, src []byte) model {
	r := rubyReader{toks: syntax.Lex(src, syntax.Ruby)}
	r.closing = syntax.Partners(r.toks)
	r.blocks()
	r.split()
	r.never = r.dead(0, len(r.toks), true)
	r.rest = unit{name: "module", line: 1}
	r.read(0, len(r.lines), scopeOf{})
	r.rest.body = r.rest.toks
	r.m.units = append(r.m.units, r.rest)
	r.m.torn = torn(r.toks)
	return r.m
}

type rubyReader struct {
	toks    []token
	closing []int // after the end of what opens here, by bracket or by word
	lines   [][2]int
	rest    unit
	never   []string // why tokens of the file are never executed
	m       model
}

func (r *rubyReader) text(i int) string {
	if i >= 0 && i < len(r.toks) {
		return r.toks[i].Text
	}
	return ""
}

// name reports words that are names here: a method, a symbol, a key.
func (r *rubyReader) name(i int) bool {
	before := r.text(i - 1)
	if before == "." || before == "&." || before == "def" || before == "::" || before == ":" && r.toks[i-1].At+1 == r.toks[i].At {
		return true
	}
	return r.text(i+1) == ":" && r.toks[i+1].At == r.toks[i].At+len(r.toks[i].Text)
}

// blocks finds the end of everything that ends with "end".
func (r *rubyReader) blocks() {
	var open []int
	loop := 0 // the line of a loop whose "do" is its own
	for i, t := range r.toks {
		if t.Kind != syntax.Word || r.name(i) {
			continue
		}
		first := t.Indent >= 0 || strings.Contains(" = ( ; then do else || && { return += ||= , ", " "+r.text(i-1)+" ")
		switch t.Text {
		case "class", "module", "begin", "case":
			open = append(open, i)
		case "def":
			k := i + 2
			for r.text(k) == "." {
				k += 2
			}
			if r.text(k) == "(" {
				k = r.closing[k]
			}
			if r.text(k) != "=" {
				open = append(open, i)
			}
		case "if", "unless":
			if first {
				open = append(open, i)
			}
		case "while", "until", "for":
			if first {
				open, loop = append(open, i), t.Line
			}
		case "do":
			if loop != t.Line {
				open = append(open, i)
			}
			loop = 0
		case "end":
			if n := len(open); n > 0 {
				r.closing[open[n-1]] = i + 1
				open = open[:n-1]
			}
		}
	}
}

// split makes logical lines.
func (r *rubyReader) split() {
	var values []int // brackets that hold values, by where they end
	start := 0
	for i, t := range r.toks {
		for n := len(values); n > 0 && values[n-1] <= i; n = len(values) {
			values = values[:n-1]
		}
		if i > start && t.Indent >= 0 && len(values) == 0 && !strings.Contains(" . &. ) ] && || ", " "+t.Text+" ") && !(strings.Contains(rubyContinue, " "+r.text(i-1)+" ") && r.toks[i-1].Kind != syntax.Text) || i > start && r.text(i-1) == ";" {
			r.lines = append(r.lines, [2]int{start, i})
			start = i
		}
		if t.Kind == syntax.Punct && (t.Text == "(" || t.Text == "[" || t.Text == "{" && strings.Contains(" = ( , => : [ return || eq ", " "+r.text(i-1)+" ")) {
			values = append(values, r.closing[i])
		}
	}
	if start < len(r.toks) {
		r.lines = append(r.lines, [2]int{start, len(r.toks)})
	}
}

// after is the first line that begins at or after a token.
func (r *rubyReader) after(tok int) int {
	n, _ := slices.BinarySearchFunc(r.lines, tok, func(l [2]int, t int) int { return l[0] - t })
	return n
}

// opener is the do or the brace that opens a line's block.
func (r *rubyReader) opener(from, to int) int {
	for k := from; k < to; k++ {
		if r.text(k) == "do" && !r.name(k) || r.text(k) == "{" && k > from && r.toks[k].Depth == r.toks[from].Depth && !strings.Contains(" = ( , => : [ ", " "+r.text(k-1)+" ") {
			return k
		}
	}
	return -1
}

// read takes the lines of one level.
func (r *rubyReader) read(from, to int, in scopeOf) {
	for n := from; n < to; {
		next := r.line(n, in)
		n = max(next, n+1)
	}
}

func (r *rubyReader) line(n int, in scopeOf) int {
	from, to := r.lines[n][0], r.lines[n][1]
	head := r.text(from)
	k := from
	if r.text(from+1) == "." && (r.text(from+2) == "describe" || r.text(from+2) == "feature") {
		k, head = from+2, r.text(from+2)
	}
	word := r.toks[k].Kind == syntax.Word && in.depth < maxNesting
	switch {
	case word && (head == "class" || head == "module") && r.text(from+1) != "<<":
		end := min(r.closing[from], len(r.toks))
		r.read(n+1, r.after(end-1), scopeOf{prefix: in.prefix + r.text(from+1) + ".", skip: in.skip, at: in.at, depth: in.depth + 1})
		return r.after(end)
	case word && head == "def":
		return r.method(n, in)
	case word && (strings.Contains(rubySuites, " "+head+" ") || strings.Contains(rubyTests, " "+head+" ")):
		open := r.opener(k+1, to)
		if open >= 0 || r.toks[min(k+1, len(r.toks)-1)].Kind == syntax.Text {
			return r.example(n, k, open, in)
		}
	case word && (head == "require" || head == "require_relative"):
		return n + 1
	}
	r.rest.toks = append(r.rest.toks, r.toks[from:to]...)
	if rubyCheck(r.toks[from:to]) {
		r.rest.asserts = append(r.rest.asserts, r.check(from, to))
	}
	return n + 1
}

func (r *rubyReader) check(from, to int) assertion {
	toks := rubyWithoutMessage(r.toks[from:to])
	return assertion{toks: toks, line: toks[0].Line, strength: strengthOf(toks)}
}

func (r *rubyReader) method(n int, in scopeOf) int {
	from := r.lines[n][0]
	end := min(r.closing[from], len(r.toks))
	name := r.text(from + 1)
	if r.text(from+2) == "." {
		name = r.text(from + 3)
	}
	last := r.after(end)
	u := unit{name: in.prefix + name, line: r.toks[from].Line, test: strings.HasPrefix(name, "test_"), skip: in.skip, skipAt: in.at, toks: r.toks[from:end]}
	if r.never[from] != "" && u.test {
		u.skip, u.skipAt = skips, u.line
	}
	r.body(&u, r.lines[n][1], end-1)
	r.m.units = append(r.m.units, u)
	return last
}

// example takes a test or a group of tests, whose word is at k and whose block opens at open.
func (r *rubyReader) example(n, k, open int, in scopeOf) int {
	to := r.lines[n][1]
	head := r.text(k)
	suite := strings.Contains(rubySuites, " "+head+" ")
	stop := to
	if open >= 0 {
		stop = open
	}
	title := ""
	for i := k + 1; i < stop; i++ {
		if r.toks[i].Kind == syntax.Text || title == "" && r.toks[i].Kind == syntax.Word && suite {
			title = r.text(i)
			if r.toks[i].Kind == syntax.Text {
				title = unquote(title)
			}
			break
		}
	}
	if title == "" { // what it does is its name
		title = "(untitled) " + join(r.toks[stop:min(stop+8, len(r.toks))])
	}
	u := unit{name: in.prefix + title, line: r.toks[k].Line, test: true, skip: in.skip, skipAt: in.at, focus: head[0] == 'f' && head != "feature"}
	if head[0] == 'x' || r.never[k] != "" {
		u.skip, u.skipAt = skips, r.toks[k].Line
	}
	for i := k + 1; i < stop; i++ {
		switch w := r.text(i); {
		case (w == "skip" || w == "pending") && r.name(i) && r.text(i+2) != "false":
			u.skip, u.skipAt = skips, r.toks[i].Line
		case (w == "focus" || w == "focused") && r.name(i):
			u.focus = true
		case (w == "if" || w == "unless") && r.name(i):
			u.skip, u.skipAt = max(u.skip, skipsSometimes), r.toks[i].Line
		}
	}
	if open < 0 { // without a body it is pending
		u.empty, u.toks = true, r.toks[k:to]
		if !suite {
			r.m.units = append(r.m.units, u)
		}
		return n + 1
	}
	end := min(r.closing[open], len(r.toks))
	if suite {
		if u.focus {
			r.m.units = append(r.m.units, unit{name: u.name + " (suite)", line: u.line, focus: true, toks: r.toks[k:open]})
		}
		r.read(n+1, r.after(end-1), scopeOf{prefix: u.name + " > ", skip: u.skip, at: u.skipAt, depth: in.depth + 1})
		return r.after(end)
	}
	u.toks = r.toks[k:end]
	r.body(&u, open+1, end-1)
	r.m.units = append(r.m.units, u)
	return r.after(end)
}

// body reads what a test does, from a token to another.
func (r *rubyReader) body(u *unit, from, to int) {
	to = max(to, from)
	u.body = r.toks[min(from, len(r.toks)):min(to, len(r.toks))]
	u.empty = u.test && len(u.body) == 0
	g, dead := r.guards(from, to), r.dead(from, to, false)
	for i := from; i < to; {
		n := r.after(i)
		end := to
		if n < len(r.lines) && r.lines[n][0] == i {
			end = min(r.lines[n][1], to)
		} else if n < len(r.lines) {
			end = min(r.lines[n][0], to)
		}
		line := r.toks[i:end]
		head := line[0].Text
		if head == "|" { // the block's parameters
			for i++; i < end && r.text(i) != "|"; i++ {
			}
			i++
			continue
		}
		if u.test && i == from && head == "return" && len(line) == 1 {
			u.empty = true
		}
		if (head == "skip" || head == "pending" || head == "omit" || head == "skip!") && !r.name(i) {
			k := skips
			if syntax.Has(line, "if", "unless") || g[i-from].conds > 0 {
				k = skipsSometimes
			}
			if k > u.skip {
				u.skip, u.skipAt = k, line[0].Line
			}
		} else if rubyCheck(line) {
			x := r.check(i, end)
			x.guard, x.why = g[i-from], dead[i-from]
			if at := rubyCheckAt(line); at > 0 {
				x.why = dead[i+at-from]
			}
			if x.why == "" {
				u.asserts = append(u.asserts, x)
			} else {
				u.dead = append(u.dead, x)
			}
		}
		i = max(end, i+1)
	}
}

// guards is guardsOf for blocks that end with "end".
func (r *rubyReader) guards(from, to int) []guard {
	out := make([]guard, to-from+1)
	conds, swallow, exits := make([]int, to-from+1), make([]int, to-from+1), 0
	mark := func(list []int, a, b int) {
		list[max(a, from)-from]++
		list[min(b, to)-from]--
	}
	var open []int
	for i := from; i < to && i < len(r.toks); i++ {
		for n := len(open); n > 0 && r.closing[open[n-1]] <= i; n = len(open) {
			open = open[:n-1]
		}
		if t := r.toks[i]; t.Kind == syntax.Word && !r.name(i) {
			ends := r.closing[i] < len(r.toks)
			switch t.Text {
			case "if", "unless", "case":
				if ends {
					mark(conds, i, r.closing[i])
					out[i-from].at = t.Line
				}
			case "rescue":
				if t.Indent >= 0 && r.forgets(i) {
					begin := from
					if n := len(open); n > 0 {
						begin = open[n-1]
					}
					mark(swallow, begin, i)
				}
			case "return", "next":
				line := r.lines[max(r.after(i+1)-1, 0)]
				if len(open) == 0 && t.Indent >= 0 && line[1] < to && syntax.Has(r.toks[line[0]:line[1]], "if", "unless") || len(open) == 1 && syntax.Has(r.toks[open[0]:open[0]+1], "if", "unless") && !slices.ContainsFunc(r.toks[max(open[0], i-maxAhead):i], fails) {
					exits++
				}
			}
			if ends {
				open = append(open, i)
			}
		}
		out[i-from].exits = exits
	}
	c, s, at := 0, 0, 0
	for i := range out {
		c, s = c+conds[i], s+swallow[i]
		if out[i].at > 0 {
			at = out[i].at
		}
		out[i].conds, out[i].swallowed, out[i].at = c, s > 0, at
	}
	return out
}

// forgets reports whether the clause at i takes failed assertions and does nothing with them.
func (r *rubyReader) forgets(i int) bool {
	n := r.after(i + 1)
	head := r.toks[i:min(len(r.toks), r.lines[max(n-1, 0)][1])]
	if !syntax.Has(head, "Exception", "Assertion", "AssertionFailedError", "ExpectationNotMetError", "Object") {
		return false
	}
	for ; n < len(r.lines); n++ {
		line := r.toks[r.lines[n][0]:r.lines[n][1]]
		switch line[0].Text {
		case "end", "ensure", "else", "rescue":
			return true
		}
		if slices.ContainsFunc(line, fails) {
			return false
		}
	}
	return true
}

// rubyCheck reports whether a line checks something.
func rubyCheck(line []token) bool { return rubyCheckAt(line) >= 0 }

// rubyCheckAt is where a line checks something, -1 where it does not.
func rubyCheckAt(line []token) int {
	for i, t := range line {
		if t.Kind != syntax.Word {
			continue
		}
		before := ""
		if i > 0 {
			before = line[i-1].Text
		}
		w := t.Text
		switch {
		case before == ":" || before == "def":
		case before == "." && (w == "to" || w == "not_to" || w == "to_not" || w == "should" || w == "should_not" || strings.HasPrefix(w, "must_") || strings.HasPrefix(w, "wont_")),
			before != "." && (w == "assert" || w == "refute" || w == "flunk" || strings.HasPrefix(w, "assert_") || strings.HasPrefix(w, "refute_") || w == "is_expected"):
			return i
		}
	}
	return -1
}

// rubyWithoutMessage takes off the text that a failing assert prints.
func rubyWithoutMessage(toks []token) []token {
	if !strings.HasPrefix(toks[0].Text, "assert") && !strings.HasPrefix(toks[0].Text, "refute") {
		return toks
	}
	end, depth := len(toks), toks[0].Depth
	if len(toks) > 1 && toks[1].Text == "(" && toks[end-1].Text == ")" {
		end, depth = end-1, depth+1
	}
	need := 2
	switch toks[0].Text {
	case "assert", "refute", "assert_nil", "refute_nil", "assert_empty", "assert_raises":
		need = 1
	}
	commas, last := 0, 0
	for i := 1; i < end; i++ {
		if toks[i].Text == "," && toks[i].Depth == depth {
			commas, last = commas+1, i
		}
	}
	if commas < need || last+2 != end || toks[last+1].Kind != syntax.Text {
		return toks
	}
	return append(slices.Clone(toks[:last]), toks[end:]...)
}

package tamper

import (
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// inner is a function or a class inside a body.
type inner struct {
	from, to int
	name     string // what holds it; "" where it is dead or alive by its place
	decl     int    // where the name is declared
	live     bool
}

// functions buries functions of a body that nothing calls. What is given to a call, returned or
// kept outside of the body may be called by others.
func (d *deadFinder) functions() {
	var all []inner
	mentions := map[string][]int{}
	for i := range d.toks {
		if f, ok := d.innerAt(i); ok && !f.live && f.from < f.to && f.from > 0 {
			all = append(all, f)
			if d.l == syntax.JavaScript && (d.at(f.from) == "async" || d.at(f.from+1) == "*") {
				d.lazy[f.name] = true
			}
		}
	}
	for i, t := range d.toks {
		if t.Kind == syntax.Word && !d.gone[i] && d.uses(i) {
			mentions[t.Text] = append(mentions[t.Text], i)
		}
	}
	if len(all) > maxInner {
		return
	}
	reach(all, func(f *inner) bool {
		return slices.ContainsFunc(mentions[f.name], func(i int) bool {
			return (i < f.from || i >= f.to) && i != f.decl && !hidden(all, i)
		})
	})
	for _, f := range all {
		if !f.live {
			d.bury(f.from, f.to, whyUncalled)
		}
	}
	looked := 0
	for i := range d.toks {
		if d.launches(i) && looked < maxInner {
			looked++
			d.unawaited(i)
		}
	}
}

// maxInner bounds how many functions of one body are followed.
const maxInner = 40

// reach marks what is called, beginning with what is called from code that runs.
func reach(all []inner, called func(*inner) bool) {
	for changed := true; changed; {
		changed = false
		for i := range all {
			if f := &all[i]; !f.live && f.name != "" && called(f) {
				f.live, changed = true, true
			}
		}
	}
}

// hidden reports a place in a function that is not called so far.
func hidden(all []inner, i int) bool {
	return slices.ContainsFunc(all, func(f inner) bool { return !f.live && f.from <= i && i < f.to })
}

// uses reports whether a mention of a name may lead to a call.
func (d *deadFinder) uses(i int) bool {
	before, next := d.at(i-1), d.at(i+1)
	alone := d.over(i, i+1, d.parent[i])
	switch {
	case before == ".", before == "->" && d.l != syntax.Java:
		return false
	case next == "=" || next == ":=":
		return false
	case next == ":" && (before == "{" || before == ",") && d.l != syntax.Go: // a key
		return false
	case before == "var" && d.l == syntax.Go:
		return false
	case alone && d.starts(i):
		return false
	case (next == "==" || next == "!=") && d.at(i+2) == "nil", before == "(" && d.at(i-2) == "drop" && next == ")" && d.l == syntax.Rust:
		return false
	case d.lazy[d.at(i)] && next == "(" && d.starts(i) && d.over(i, d.closing[i+1], d.parent[i]):
		return false
	case alone && before == "=" && d.at(i-2) == "_", alone && before == "void", before == "typeof":
		return false
	case before == ")" && alone && d.at(i-2) == "void":
		return false
	}
	return true
}

// innerAt reads the function or class whose keyword, arrow or brace is at i.
func (d *deadFinder) innerAt(i int) (inner, bool) {
	w := d.at(i)
	switch {
	case d.toks[i].Kind == syntax.Word && d.at(i-1) != ".":
		switch {
		case d.l == syntax.Go && w == "func" && d.at(i-1) != "]" && d.at(i-1) != "*": // no part of a type
			g := guarder{toks: d.toks, closing: d.closing, l: d.l}
			if open := g.goLiteral(i); open > 0 {
				return d.value(i, d.closing[open]), true
			}
		case w == "function" && (d.l == syntax.JavaScript || d.l == syntax.PHP):
			return d.keyword(i)
		case w == "fn" && d.l == syntax.PHP && d.at(i+1) == "(":
			end, ok := d.soon(i + 1)
			return d.value(i, end), ok
		case w == "async" && d.l == syntax.Rust && (d.at(i+1) == "{" || d.at(i+1) == "move" && d.at(i+2) == "{"):
			open := i + 1
			if d.at(open) == "move" {
				open++
			}
			return d.value(i, d.closing[open]), true
		case w == "new" && d.l == syntax.Java && d.at(i-1) == "=":
			if open := d.bodyAfter(i); open > 0 && d.at(open-1) == ")" {
				return d.value(i, d.closing[open]), true
			}
		case w == "delegate" && d.l == syntax.CSharp:
			k := i + 1
			if d.at(k) == "(" {
				k = d.closing[k]
			}
			return d.value(i, d.closing[min(k, len(d.toks)-1)]), d.at(k) == "{"
		case w == "fn" && d.l == syntax.Rust && d.word(i+1) && !d.member(i):
			if open := d.bodyAfter(i); open > 0 {
				return inner{from: i, to: d.closing[open], name: d.at(i + 1), decl: i + 1}, true
			}
		case w == "class" && (d.l == syntax.Java || d.l == syntax.JavaScript || d.l == syntax.CSharp) && d.word(i+1) && d.starts(i), w == "struct" && d.l == syntax.C && d.starts(i) && d.word(i+1):
			if open := d.bodyAfter(i); open > 0 {
				return inner{from: i, to: d.closing[open], name: d.at(i + 1), decl: i + 1}, true
			}
		case d.l == syntax.CSharp && d.at(i+1) == "(" && d.word(i-1) && !slices.Contains([]string{"new", "return", "await", "throw", "in", "is", "as", "else", "case"}, d.at(i-1)):
			return d.localMethod(i)
		}
	case d.toks[i].Kind != syntax.Punct:
	case w == "=>" && (d.l == syntax.JavaScript || d.l == syntax.CSharp) || w == "->" && d.l == syntax.Java:
		return d.arrow(i)
	case w == "{" && d.l == syntax.C && lambda(d.toks, i, d.l):
		for k := i - 1; k >= 0 && i-k < maxAhead; k-- {
			if d.at(k) == "[" && d.parent[k] == d.parent[i] {
				return d.value(k, d.closing[i]), true
			}
		}
	case (w == "|" || w == "||") && d.l == syntax.Rust:
		return d.rustClosure(i)
	}
	return inner{}, false
}

// member reports what belongs to a type, which may be called by its values.
func (d *deadFinder) member(i int) bool {
	p := d.parent[i]
	for k := p - 1; k >= 0 && p-k < 60 && !slices.Contains([]string{";", "{", "}"}, d.at(k)); k-- {
		if w := d.at(k); w == "impl" || w == "trait" || w == "mod" {
			return true
		}
	}
	return false
}

// bodyAfter is the brace of a declaration that begins at i.
func (d *deadFinder) bodyAfter(i int) int {
	for k := i; k < min(len(d.toks), i+maxAhead); {
		switch {
		case d.parent[k] != d.parent[i] || d.at(k) == ";":
			return -1
		case d.at(k) == "{":
			return k
		case d.at(k) == "(" || d.at(k) == "[":
			k = max(d.closing[k], k+1)
		default:
			k++
		}
	}
	return -1
}

// keyword reads "function" with or without a name.
func (d *deadFinder) keyword(i int) (inner, bool) {
	open := d.bodyAfter(i)
	if open < 0 {
		return inner{}, false
	}
	k := i + 1
	if d.at(k) == "*" {
		k++
	}
	first := i
	if d.at(i-1) == "async" || d.at(i-1) == "static" {
		first--
	}
	if d.word(k) && d.starts(first) {
		return inner{from: first, to: d.closing[open], name: d.at(k), decl: k}, true
	}
	return d.value(first, d.closing[open]), true
}

// localMethod reads a function of C# inside a method, whose name is at i.
func (d *deadFinder) localMethod(i int) (inner, bool) {
	k := d.closing[i+1]
	switch d.at(k) {
	case "{":
		return inner{from: i, to: d.closing[k], name: d.at(i), decl: i}, d.at(i) != "catch" && !slices.Contains(controls, d.at(i))
	case "=>":
		end, ok := d.soon(k)
		return inner{from: i, to: end, name: d.at(i), decl: i}, ok
	}
	return inner{}, false
}

// arrow reads a function written with an arrow.
func (d *deadFinder) arrow(i int) (inner, bool) {
	first := i - 1
	if k := d.opening[max(first, 0)]; k >= 0 {
		first = k
	}
	if first < 0 || d.l == syntax.CSharp && d.at(first) == "(" && d.word(first-1) && d.word(first-2) {
		return inner{}, false // a local function
	}
	if d.at(first-1) == "async" || d.at(first-1) == "static" {
		first--
	}
	if p := d.parent[i]; p >= 0 && d.at(p) == "{" && d.l != syntax.JavaScript { // a branch of a switch
		for k := first; k > p; k-- {
			if b := d.at(k - 1); b == "case" || b == "default" || d.at(k) == "default" || k-1 == p && d.at(p-1) == "switch" {
				return inner{}, false
			} else if b == ";" || b == "}" || b == "=" {
				break
			}
		}
		if d.at(p-1) == "switch" {
			return inner{}, false
		}
	}
	end, ok := d.soon(i + 1)
	if d.at(i+1) == "{" {
		end, ok = d.closing[i+1], true
	} else {
		for k := i + 1; k < end; k = d.step(k) {
			if d.at(k) == "," {
				end = k
			}
		}
	}
	return d.value(first, end), ok
}

// rustClosure reads a closure whose parameters begin at i.
func (d *deadFinder) rustClosure(i int) (inner, bool) {
	before := d.at(i - 1)
	if !slices.Contains([]string{"(", "=", ",", "{", ";", "move", "return"}, before) {
		return inner{}, false
	}
	k := i + 1
	if d.at(i) == "|" {
		for k < len(d.toks) && k < i+maxAhead && !(d.at(k) == "|" && d.parent[k] == d.parent[i]) {
			k++
		}
		k++
	}
	first := i
	if before == "move" {
		first--
	}
	end, ok := d.soon(min(k, len(d.toks)-1))
	if d.at(k) == "{" {
		end, ok = d.closing[k], true
	}
	return d.value(first, end), ok
}

// value says of a function that is a value what becomes of it.
func (d *deadFinder) value(from, to int) inner {
	out := inner{from: from, to: to, decl: -1, live: true}
	for n := 0; n < maxNesting; n++ {
		if next := d.at(to); next == "(" || next == "." || next == "?." || next == "::" || next == "->" {
			return out
		}
		switch b := d.at(from - 1); {
		case b == "=" || b == ":=":
			return d.held(out, from-1)
		case from == 0:
			return out
		case d.starts(from) && d.at(from-1) != "{" || d.starts(from) && d.blockBrace(from-1):
			out.live = d.l == syntax.Go || from-1 == d.parent[from] && d.l == syntax.Rust // a block's value
			return out
		case b == "return" || b == "=>" || b == "await" || b == "yield":
			return out
		}
		p := d.parent[from]
		if p < 0 {
			return out
		}
		switch d.at(p) {
		case "(":
			if b := d.at(p - 1); d.word(p-1) && b != "return" && b != "void" || b == ")" || b == "]" || b == ">" || b == "!" || d.toks[max(p-1, 0)].Kind == syntax.Text {
				return out
			}
			if d.at(p-1) == "void" && d.at(d.closing[p]) != "(" && d.starts(p-1) {
				out.live = false
				return out
			}
		case "[":
			if d.word(p-1) || d.at(p-1) == ")" {
				return out
			}
		case "{":
			if d.blockBrace(p) {
				return out
			}
		}
		from, to = d.typed(p), d.closing[p]
	}
	return out
}

// blockBrace reports a brace that opens statements rather than a list of values.
func (d *deadFinder) blockBrace(i int) bool {
	if i <= 0 {
		return true
	}
	switch b := d.at(i - 1); b {
	case ")":
		return !d.funcType(i - 1)
	case "else", "do", "try", "finally", ";", "=>", "->", "}":
		return b != "}" || d.l != syntax.Go
	case "{":
		return d.l != syntax.Go
	}
	return false
}

// funcType reports whether the bracket at i ends the type of a list of functions.
func (d *deadFinder) funcType(i int) bool {
	k := d.opening[i]
	return d.l == syntax.Go && k > 1 && d.at(k-1) == "func" && d.at(k-2) == "]"
}

// typed is where the type of a literal begins whose brace is at i.
func (d *deadFinder) typed(i int) int {
	for n := 0; i > 0 && n < maxAhead; n++ {
		b := d.at(i - 1)
		if d.opening[i-1] >= 0 && (b != ")" || d.funcType(i-1)) && d.l != syntax.JavaScript {
			i = d.opening[i-1]
			continue
		}
		if (d.toks[i-1].Kind == syntax.Word && b != "return" || b == "." || b == "*") && d.l != syntax.JavaScript {
			i--
			continue
		}
		break
	}
	return i
}

// held finds the name that a function is given to, whose "=" is at i.
func (d *deadFinder) held(f inner, i int) inner {
	first := i - 1
	for first > 0 && !d.starts(first) && d.parent[first-1] == d.parent[i] && i-first < 80 {
		first--
		if k := d.opening[first]; k >= 0 {
			first = k
		}
	}
	name := i - 1
	switch d.l {
	case syntax.Go:
		switch {
		case d.at(first) == "_" && first+1 == i:
			f.live = false
			return f
		case d.at(first) == "var":
			name = first + 1
		case d.at(i) == "=" && !d.vars[d.at(name)], name != first:
			return f
		}
	case syntax.JavaScript:
		if w := d.at(first); w != "const" && w != "let" && w != "var" {
			return f
		}
		name = first + 1
	case syntax.Rust:
		if d.at(first) != "let" {
			return f
		}
		if name = first + 1; d.at(name) == "mut" {
			name++
		}
		if d.at(name) == "_" {
			f.live = false
			return f
		}
	case syntax.PHP:
		if name != first || !strings.HasPrefix(d.at(name), "$") {
			return f
		}
	default:
		if d.at(name) == "_" && name == first {
			f.live = false
			return f
		}
		if name <= first || d.at(name-1) == "." || !d.word(name-1) && d.at(name-1) != ">" && d.at(name-1) != "]" {
			return f
		}
	}
	if d.word(name) {
		f.name, f.decl, f.live = d.at(name), name, false
	}
	return f
}

// statement is where the statement of the token begins.
func (d *deadFinder) statement(i int) int {
	for i > 0 && !d.starts(i) {
		i--
		if k := d.opening[i]; k >= 0 {
			i = k
		}
	}
	return i
}

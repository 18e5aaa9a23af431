package codesearch

import (
	"cmp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// need is what a text must contain to match: a tree of trigrams. The zero value needs nothing.
type need struct {
	op  needOp
	tri []trigram // of and, or: sorted
	sub []need
}

type needOp uint8

const (
	needAll  needOp = iota // nothing: every text
	needNone               // cannot be met
	needAnd
	needOr
)

// trigram is three bytes of folded text.
type trigram uint32

func trigramOf(s string, i int) trigram {
	return trigram(s[i])<<16 | trigram(s[i+1])<<8 | trigram(s[i+2])
}

const (
	maxExact = 7  // strings that are kept whole
	maxSet   = 20 // prefixes or suffixes
	maxClass = 24 // letters of a class that are told apart
)

// facts is what is known about the texts that an expression matches, after Cox.
type facts struct {
	empty          bool     // may match the empty text
	exact          []string // all that it matches; nil: unknown
	prefix, suffix []string // every match begins and ends with one of these
	match          need
}

func anyText() facts   { return facts{empty: true, prefix: []string{""}, suffix: []string{""}} }
func anyRune() facts   { return facts{prefix: []string{""}, suffix: []string{""}} }
func noText() facts    { return facts{match: need{op: needNone}} }
func onlyEmpty() facts { return facts{empty: true, exact: []string{""}} }

// analyst finds the facts of an expression.
type analyst struct {
	loose bool // classes mean more than they say here: they may stand for any letter
}

// needOf says what a line must contain for re to match in it. With loose, classes are not looked
// into.
func needOf(re *syntax.Regexp, loose bool) need {
	a := analyst{loose}
	f := a.analyze(re)
	f.simplify(true)
	f.addExact()
	return f.match
}

func (a analyst) analyze(re *syntax.Regexp) facts {
	var f facts
	switch re.Op {
	case syntax.OpNoMatch:
		return noText()
	case syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return onlyEmpty()
	case syntax.OpLiteral:
		return literal(re)
	case syntax.OpAnyCharNotNL, syntax.OpAnyChar:
		return anyRune()
	case syntax.OpCapture:
		return a.analyze(re.Sub[0])
	case syntax.OpConcat:
		return a.join(re.Sub, onlyEmpty(), concat)
	case syntax.OpAlternate:
		return a.join(re.Sub, noText(), alternate)
	case syntax.OpQuest:
		return alternate(a.analyze(re.Sub[0]), onlyEmpty())
	case syntax.OpStar:
		return anyText()
	case syntax.OpRepeat:
		if re.Min == 0 {
			return anyText()
		}
		f = a.analyze(re.Sub[0])
		if re.Min == 1 && re.Max == 1 {
			return f
		}
		return repeated(f)
	case syntax.OpPlus:
		return repeated(a.analyze(re.Sub[0]))
	case syntax.OpCharClass:
		if a.loose {
			return anyRune()
		}
		return class(re)
	}
	return anyText()
}

// repeated is once or more: the exact text is no longer known, its ends are.
func repeated(f facts) facts {
	if f.exact != nil {
		f.prefix, f.suffix, f.exact = slices.Clone(f.exact), slices.Clone(f.exact), nil
	}
	f.simplify(false)
	return f
}

func (a analyst) join(subs []*syntax.Regexp, zero facts, with func(x, y facts) facts) facts {
	if len(subs) == 0 {
		return zero
	}
	f := a.analyze(subs[0])
	for _, s := range subs[1:] {
		f = with(f, a.analyze(s))
	}
	f.simplify(false)
	return f
}

func literal(re *syntax.Regexp) facts {
	f := onlyEmpty()
	var b strings.Builder
	flush := func() {
		if b.Len() > 0 {
			f = concat(f, facts{exact: []string{b.String()}})
			b.Reset()
		}
	}
	for _, r := range re.Rune {
		r = foldRune(r)
		if re.Flags&syntax.FoldCase != 0 && r >= utf8.RuneSelf {
			flush()
			f = concat(f, anyRune()) // whatever its other cases are
			continue
		}
		b.WriteRune(r)
	}
	flush()
	f.simplify(false)
	return f
}

func class(re *syntax.Regexp) facts {
	if len(re.Rune) == 0 {
		return noText()
	}
	var set []string
	n := 0
	for i := 0; i < len(re.Rune); i += 2 {
		if n += int(re.Rune[i+1]-re.Rune[i]) + 1; n > 2*maxClass {
			return anyRune()
		}
		for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
			set = append(set, string(foldRune(r)))
		}
	}
	if set = tidy(set); len(set) > maxClass {
		return anyRune()
	}
	f := facts{exact: set}
	f.simplify(false)
	return f
}

func concat(x, y facts) facts {
	var f facts
	f.match = and(x.match, y.match)
	if x.exact != nil && y.exact != nil {
		f.exact = cross(x.exact, y.exact)
	} else {
		switch {
		case x.exact != nil:
			f.prefix = cross(x.exact, y.prefix)
		case x.empty:
			f.prefix = tidy(slices.Concat(x.prefix, y.begin()))
		default:
			f.prefix = x.prefix
		}
		switch {
		case y.exact != nil:
			f.suffix = cross(x.suffix, y.exact)
		case y.empty:
			f.suffix = tidy(slices.Concat(y.suffix, x.end()))
		default:
			f.suffix = y.suffix
		}
		// What is left and right of the seam stands beside each other.
		if x.exact == nil && y.exact == nil && len(x.suffix) <= maxSet && len(y.prefix) <= maxSet &&
			shortest(x.suffix)+shortest(y.prefix) >= 3 {
			f.match = and(f.match, oneOf(cross(x.suffix, y.prefix)))
		}
	}
	f.empty = x.empty && y.empty
	f.simplify(false)
	return f
}

func (f facts) begin() []string {
	if f.exact != nil {
		return f.exact
	}
	return f.prefix
}

func (f facts) end() []string {
	if f.exact != nil {
		return f.exact
	}
	return f.suffix
}

func alternate(x, y facts) facts {
	var f facts
	switch {
	case x.exact != nil && y.exact != nil:
		f.exact = tidy(slices.Concat(x.exact, y.exact))
	case x.impossible():
		return y
	case y.impossible():
		return x
	default:
		f.prefix = tidy(slices.Concat(x.begin(), y.begin()))
		f.suffix = tidy(slices.Concat(x.end(), y.end()))
		x.addExact()
		y.addExact()
	}
	f.match = or(x.match, y.match)
	if f.exact != nil {
		f.match = need{}
	}
	f.empty = x.empty || y.empty
	f.simplify(false)
	return f
}

func (f facts) impossible() bool { return f.match.op == needNone }

// addExact turns the known texts into a need.
func (f *facts) addExact() {
	if f.exact != nil {
		f.match = and(f.match, oneOf(f.exact))
	}
}

// simplify keeps the sets small: what is given up becomes a need first.
func (f *facts) simplify(force bool) {
	if f.exact != nil && (len(f.exact) > maxExact || (shortest(f.exact) >= 3 && force) || shortest(f.exact) >= 64) {
		f.addExact()
		f.prefix, f.suffix, f.exact = slices.Clone(f.exact), slices.Clone(f.exact), nil
	}
	if f.exact == nil && f.match.op != needNone {
		f.prefix = f.shorten(f.prefix, func(s string, n int) string { return s[:min(n, len(s))] })
		f.suffix = f.shorten(f.suffix, func(s string, n int) string { return s[max(len(s)-n, 0):] })
	}
}

// shorten cuts the strings of a set until there are few.
func (f *facts) shorten(set []string, cut func(string, int) string) []string {
	set = tidy(set)
	f.match = and(f.match, oneOf(set))
	for n := 2; n >= 0; n-- { // longer ones are in the need already
		for i, s := range set {
			set[i] = cut(s, n)
		}
		if set = tidy(set); len(set) <= maxSet {
			break
		}
	}
	return set
}

// oneOf needs all trigrams of one of the strings.
func oneOf(set []string) need {
	if len(set) == 0 || shortest(set) < 3 {
		return need{}
	}
	out := need{op: needNone}
	for _, s := range set {
		var tri []trigram
		for i := range len(s) - 2 {
			tri = append(tri, trigramOf(s, i))
		}
		slices.Sort(tri)
		out = or(out, need{op: needAnd, tri: slices.Compact(tri)})
	}
	return out
}

func and(x, y need) need {
	switch {
	case x.op == needNone || y.op == needAll:
		return x
	case y.op == needNone || x.op == needAll:
		return y
	}
	return join(needAnd, x, y)
}

func or(x, y need) need {
	switch {
	case x.op == needAll || y.op == needNone:
		return x
	case y.op == needAll || x.op == needNone:
		return y
	}
	return join(needOr, x, y)
}

func join(op needOp, x, y need) need {
	out := need{op: op}
	for _, n := range []need{x, y} {
		if n.op == op || (len(n.tri) == 1 && len(n.sub) == 0) {
			out.tri = append(out.tri, n.tri...)
			out.sub = append(out.sub, n.sub...)
		} else {
			out.sub = append(out.sub, n)
		}
	}
	slices.Sort(out.tri)
	out.tri = slices.Compact(out.tri)
	return out
}

func cross(a, b []string) []string {
	out := make([]string, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			out = append(out, x+y)
		}
	}
	return tidy(out)
}

func tidy(set []string) []string {
	set = slices.Clone(set)
	slices.Sort(set)
	return slices.Compact(set)
}

func shortest(set []string) int {
	if len(set) == 0 {
		return 0
	}
	return len(slices.MinFunc(set, func(a, b string) int { return cmp.Compare(len(a), len(b)) }))
}

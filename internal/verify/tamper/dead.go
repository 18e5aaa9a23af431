package tamper

import (
	"slices"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// span is a part of a body that is never executed, or only under a condition of the build.
type span struct {
	from, to int
	why      string
	maybe    bool
}

// Why a check does not count.
const (
	whyCondition = "below a condition that never holds"
	whyLoop      = "in a loop that goes through nothing"
	whyAfter     = "after the end of its block"
	whyUncalled  = "in a function that nothing calls"
	whyAlone     = "in something that nobody waits for"
	whyShadowed  = "told to a test that nobody runs"
	whyUnbuilt   = "where it is not compiled"
)

// deadParts finds what a body in a language with braces never executes: below constant
// conditions, in empty loops, after a way out, in functions that nothing calls, where nothing is
// compiled. It is in doubt for the code: only what can be seen in the body itself counts.
func deadParts(toks []token, closing []int, l syntax.Lang) []span {
	d := newDeadFinder(toks, closing, l)
	d.regions()
	d.functions()
	return d.spans
}

// deadRegions is deadParts without the functions: for a whole file, whose functions others may call.
func deadRegions(toks []token, closing []int, l syntax.Lang) []span {
	d := newDeadFinder(toks, closing, l)
	d.regions()
	return d.spans
}

type deadFinder struct {
	folder
	toks    []token
	closing []int
	opening []int // of a closing bracket, its partner; else -1
	parent  []int // the bracket around each token, -1 for none
	spans   []span
	gone    []bool          // tokens in what was found dead
	vars    map[string]bool // declared by Go's var
	lazy    map[string]bool // functions that a call alone does not run to their end
}

func newDeadFinder(toks []token, closing []int, l syntax.Lang) *deadFinder {
	d := &deadFinder{folder: folder{l: l, names: map[string][]token{}}, toks: toks, closing: closing, opening: make([]int, len(toks)), parent: make([]int, len(toks)), gone: make([]bool, len(toks)), vars: map[string]bool{}, lazy: map[string]bool{}}
	var open []int
	for i, t := range toks {
		d.opening[i], d.parent[i] = -1, -1
		if i > 0 && toks[i-1].Text == "var" {
			d.vars[t.Text] = true
		}
		if t.Kind == syntax.Punct && (t.Text == ")" || t.Text == "]" || t.Text == "}") && len(open) > 0 {
			d.opening[i] = open[len(open)-1]
			open = open[:len(open)-1]
		}
		if len(open) > 0 {
			d.parent[i] = open[len(open)-1]
		}
		if t.Kind == syntax.Punct && (t.Text == "(" || t.Text == "[" || t.Text == "{") {
			open = append(open, i)
		}
	}
	return d
}

func (d *deadFinder) at(i int) string {
	if i >= 0 && i < len(d.toks) {
		return d.toks[i].Text
	}
	return ""
}

func (d *deadFinder) word(i int) bool {
	return i >= 0 && i < len(d.toks) && d.toks[i].Kind == syntax.Word
}

func (d *deadFinder) bury(from, to int, why string) {
	if to = min(to, len(d.toks)); from >= to || d.gone[from] && d.gone[to-1] {
		return
	}
	d.spans = append(d.spans, span{from: from, to: to, why: why})
	for i := from; i < to; i++ {
		d.gone[i] = true
	}
}

// loose reports languages in which a statement ends with its line.
func (d *deadFinder) loose() bool { return d.l == syntax.Go || d.l == syntax.JavaScript }

var controls = []string{"if", "for", "while", "switch", "with", "catch", "foreach", "match", "using", "lock", "synchronized", "elseif", "unless"}

// starts reports whether a statement begins at the token.
func (d *deadFinder) starts(i int) bool {
	if i <= 0 {
		return true
	}
	switch b := d.at(i - 1); {
	case d.toks[i-1].Kind == syntax.Text:
		return d.loose() && d.toks[i].Indent >= 0
	case b == ";" || b == "{" || b == "}":
		return true
	case d.l == syntax.C && d.toks[i].Indent >= 0 && d.directive(i-1):
		return true
	case !d.loose() || d.toks[i].Indent < 0:
		return b == ":" && d.label(i-1)
	case b == ")":
		k := d.opening[i-1]
		return k < 1 || !slices.Contains(controls, d.at(k-1))
	case b == "]" || b == "++" || b == "--" || d.toks[i-1].Kind == syntax.Number:
		return true
	case b == ":":
		return d.label(i - 1)
	}
	return d.toks[i-1].Kind == syntax.Word && !slices.Contains([]string{"else", "do", "return", "await", "yield", "throw", "go", "defer", "new", "typeof", "void", "in", "of"}, d.at(i-1))
}

// label reports whether the colon ends a case.
func (d *deadFinder) label(colon int) bool {
	for k := colon - 1; k >= 0 && colon-k < maxAhead && d.parent[k] == d.parent[colon]; k-- {
		switch d.at(k) {
		case "case", "default":
			return true
		case ";", "?", "}":
			return false
		}
	}
	return false
}

// directive reports whether the token stands on a line for the preprocessor.
func (d *deadFinder) directive(i int) bool {
	line := d.toks[i].Line
	for i > 0 && d.toks[i-1].Line == line {
		i--
	}
	return d.at(i) == "#"
}

// ends is the index after the statement or expression at i: its semicolon, or its line.
func (d *deadFinder) ends(i int) int {
	p := d.parent[min(i, len(d.toks)-1)]
	for j := i; j < len(d.toks); {
		if d.over(i, j, p) {
			return j
		}
		if c := d.closing[j]; d.opens(j) && c > j {
			j = c
			continue
		}
		j++
	}
	return len(d.toks)
}

// over reports whether what begins at i, inside the bracket p, has ended at j.
func (d *deadFinder) over(i, j, p int) bool {
	if j >= len(d.toks) || d.parent[j] != p || d.toks[j].Kind == syntax.Punct && d.toks[j].Text == ";" {
		return true
	}
	return j > i && d.toks[j].Indent >= 0 && d.loose() && d.continues(j)
}

// soon is ends for what may be inside itself; what is longer is not looked at.
func (d *deadFinder) soon(i int) (int, bool) {
	p := d.parent[min(i, len(d.toks)-1)]
	for j, n := i, 0; n < maxAhead; n++ {
		if d.over(i, j, p) {
			return j, true
		}
		if c := d.closing[j]; d.opens(j) && c > j {
			j = c
			continue
		}
		j++
	}
	return i, false
}

func (d *deadFinder) opens(i int) bool {
	t := d.toks[i]
	return t.Kind == syntax.Punct && (t.Text == "(" || t.Text == "[" || t.Text == "{")
}

// continues reports whether the line that begins at j is a statement of its own.
func (d *deadFinder) continues(j int) bool {
	t, before := d.toks[j], d.toks[j-1]
	if t.Kind == syntax.Punct && !slices.Contains([]string{"(", "[", "{", "}", "!", "<", "*", "&"}, t.Text) {
		return false
	}
	if before.Kind == syntax.Punct {
		return slices.Contains([]string{")", "]", "}", "++", "--"}, before.Text)
	}
	return true
}

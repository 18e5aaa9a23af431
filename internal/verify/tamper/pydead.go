package tamper

import (
	"slices"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// pyDead is deadParts for blocks made by indentation: for every line of a body why it is never
// executed, "" for those that may be. A body of a whole file has functions that others call.
func pyDead(body []pyLine, whole bool) []string {
	d := pyFinder{folder: folder{l: syntax.Python, names: map[string][]token{}}, body: body, why: make([]string, len(body))}
	d.constants()
	for i := range body {
		if len(body[i].toks) > 0 && d.why[i] == "" {
			d.region(i)
		}
	}
	if !whole {
		d.functions()
	}
	return d.why
}

type pyFinder struct {
	folder
	body []pyLine
	why  []string
}

func (d *pyFinder) bury(from, to int, why string) {
	for i := from; i < min(to, len(d.why)); i++ {
		if d.why[i] == "" {
			d.why[i] = why
		}
	}
}

// blockEnd is the first line after what the line leads to.
func (d *pyFinder) blockEnd(i int) int {
	end := i + 1
	for end < len(d.body) && (len(d.body[end].toks) == 0 || d.body[end].indent > d.body[i].indent) {
		end++
	}
	return end
}

// pyHead are the tokens between a line's first word and its colon, with the colon's place.
func pyHead(l pyLine) ([]token, int) {
	for i, t := range l.toks {
		if t.Text == ":" && t.Kind == syntax.Punct && t.Depth == l.toks[0].Depth && !syntax.Has(l.toks[:i], "lambda") {
			return l.toks[min(1, i):i], i
		}
	}
	return nil, -1
}

// constants finds names that are given one written value and are then only asked in heads.
func (d *pyFinder) constants() {
	uses, asked := map[string]int{}, map[string]int{}
	for _, l := range d.body {
		for i, t := range l.toks {
			if t.Kind == syntax.Word && (i == 0 || l.toks[i-1].Text != ".") {
				uses[t.Text]++
			}
		}
		if h := l.head(0); h == "if" || h == "elif" || h == "while" || h == "for" {
			head, _ := pyHead(l)
			for _, t := range head {
				asked[t.Text]++
			}
		}
	}
	for _, l := range d.body {
		if l.head(1) != "=" || uses[l.head(0)] != asked[l.head(0)]+1 {
			continue
		}
		if v := l.toks[2:]; len(v) > 0 && (d.atom(v) != unknown || d.nothing(v)) {
			d.names[l.head(0)] = v
		}
	}
}

// region buries what the line keeps from running.
func (d *pyFinder) region(i int) {
	l := d.body[i]
	head, colon := pyHead(l)
	if colon < 0 && !slices.Contains([]string{"return", "raise", "continue", "break"}, l.head(0)) {
		if d.within(l) {
			d.bury(i, i+1, whyCondition)
		}
		return
	}
	end := d.blockEnd(i)
	from := i + 1
	is := unknown
	switch h := l.head(0); h {
	case "if", "elif", "while":
		if is = d.truth(head); is == never {
			d.bury(from, end, whyCondition)
		}
		if is == always && h != "while" { // the rest of the chain
			for k := end; k < len(d.body) && d.body[k].indent == l.indent && (d.body[k].head(0) == "elif" || d.body[k].head(0) == "else"); {
				next := d.blockEnd(k)
				d.bury(k, next, whyCondition)
				k = next
			}
		}
	case "for", "async":
		if n := slices.IndexFunc(head, func(t token) bool { return t.Text == "in" && t.Kind == syntax.Word }); n >= 0 && (h == "for" || l.head(1) == "for") && d.nothing(head[n+1:]) {
			d.bury(from, end, whyLoop)
		}
	case "case":
		d.branch(i, head, from, end)
	case "return", "raise", "continue", "break":
		stop := i + 1
		for stop < len(d.body) && (len(d.body[stop].toks) == 0 || d.body[stop].indent >= l.indent) && !(d.body[stop].indent == l.indent && slices.Contains([]string{"else", "elif", "except", "finally", "case"}, d.body[stop].head(0))) {
			stop++
		}
		d.bury(i+1, stop, whyAfter)
	}
	if d.within(l) {
		d.bury(i, i+1, whyCondition)
	}
}

// branch buries a case of a match over a written value that is not its own.
func (d *pyFinder) branch(i int, label []token, from, end int) {
	for k := i - 1; k >= max(0, i-maxAhead); k-- {
		if len(d.body[k].toks) == 0 || d.body[k].indent >= d.body[i].indent {
			continue
		}
		if d.body[k].head(0) == "match" && len(label) == 1 && label[0].Literal() {
			if of, _ := pyHead(d.body[k]); len(of) == 1 && of[0].Literal() && (d.compare(of, "==", label) == never) {
				d.bury(from, end, whyCondition)
			}
		}
		return
	}
}

// within reports a check that is part of an expression which does not come to it.
func (d *pyFinder) within(l pyLine) bool {
	at := slices.IndexFunc(l.toks, func(t token) bool { return t.Kind == syntax.Word && (fails(t) || t.Text == "raises") })
	if at < 0 {
		return false
	}
	if at > 1 && l.head(0) != "assert" {
		for k := 1; k < at; k++ {
			w := l.toks[k].Text
			if w != "and" && w != "or" || k > 1 && !slices.Contains([]string{"(", "=", "not", "["}, l.toks[k-2].Text) {
				continue
			}
			if is := d.truth(l.toks[k-1 : k]); w == "and" && is == never || w == "or" && is == always {
				return true
			}
		}
	}
	for k := at; k+1 < len(l.toks) && l.head(0) != "assert"; k++ {
		if l.toks[k].Depth != l.toks[at].Depth { // what the check is given
			continue
		}
		rest := l.toks[k+1:]
		switch l.toks[k].Text {
		case "if": // self.assertX() if False else None
			if n := slices.IndexFunc(rest, func(t token) bool { return t.Text == "else" }); n > 0 && d.truth(rest[:n]) == never {
				return true
			}
		case "in": // [self.assertX(y) for y in []]
			n := slices.IndexFunc(rest, func(t token) bool { return t.Depth < l.toks[k].Depth || t.Text == "if" || t.Text == "for" })
			if n < 0 {
				n = len(rest)
			}
			if n > 0 && rest[n-1].Text == "]" && rest[n-1].Depth == l.toks[k].Depth-1 {
				n--
			}
			if n > 0 && k > 1 && l.toks[k-2].Text == "for" && d.nothing(rest[:n]) {
				return true
			}
		}
	}
	return false
}

// functions buries functions, classes and lambdas of a body that nothing uses.
func (d *pyFinder) functions() {
	var all []inner
	lazy := map[string]bool{} // a call alone does not run them
	for i, l := range d.body {
		n := 0
		if l.head(0) == "async" {
			n = 1
		}
		switch {
		case (l.head(n) == "def" || l.head(n) == "class") && len(l.toks) > n+1 && !d.method(i):
			f := inner{from: i, to: d.blockEnd(i), name: l.head(n + 1), live: i > 0 && d.body[i-1].head(0) == "@"}
			lazy[f.name] = l.head(n) == "def" && (n == 1 || d.yields(f))
			all = append(all, f)
		case l.head(1) == "=" && l.head(2) == "lambda" && l.toks[0].Kind == syntax.Word:
			f := inner{from: i, to: i + 1, name: l.head(0)}
			if f.name == "_" {
				f.name = ""
			}
			all = append(all, f)
		}
	}
	if len(all) > maxInner {
		return
	}
	mentions := map[string][]int{} // lines
	for i, l := range d.body {
		if d.why[i] != "" || len(l.toks) < 2 || l.head(0) == "del" || l.head(0) == "_" && l.head(1) == "=" && len(l.toks) == 3 {
			continue
		}
		called := lazy[l.head(0)] && l.head(1) == "(" && l.toks[len(l.toks)-1].Text == ")" && l.toks[len(l.toks)-1].Depth == l.toks[1].Depth
		for k, t := range l.toks {
			if t.Kind == syntax.Word && (k > 0 || !called) && (k == 0 || l.toks[k-1].Text != ".") && l.head(k+1) != "=" {
				mentions[t.Text] = append(mentions[t.Text], i)
			}
		}
	}
	reach(all, func(f *inner) bool {
		return slices.ContainsFunc(mentions[f.name], func(i int) bool { return (i < f.from || i >= f.to) && !hidden(all, i) })
	})
	for _, f := range all {
		if !f.live {
			d.bury(f.from, f.to, whyUncalled)
		}
	}
}

// method reports a function of a class, which its values may call.
func (d *pyFinder) method(i int) bool {
	for k := i - 1; k >= max(0, i-maxAhead); k-- {
		if len(d.body[k].toks) > 0 && d.body[k].indent < d.body[i].indent {
			return d.body[k].head(0) == "class"
		}
	}
	return false
}

// yields reports a function that is a generator itself.
func (d *pyFinder) yields(f inner) bool {
	return pyYields(d.body[f.from+1 : f.to])
}

// pyYields reports a body that yields, rather than a function in it.
func pyYields(body []pyLine) bool {
	inside := -1 // the indent of a function in it
	for _, l := range body {
		if len(l.toks) == 0 || inside >= 0 && l.indent > inside {
			continue
		}
		inside = -1
		if h := l.head(0); h == "def" || h == "class" || h == "async" && l.head(1) == "def" {
			inside = l.indent
			continue
		}
		if slices.ContainsFunc(l.toks, func(t token) bool { return t.Kind == syntax.Word && t.Text == "yield" }) {
			return true
		}
	}
	return false
}

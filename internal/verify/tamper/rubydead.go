package tamper

import (
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// rubyFinder is deadFinder for blocks that end with "end".
type rubyFinder struct {
	folder
	*rubyReader
	from, to int
	why      []string // of each token between them
	open     []int    // what is open at the token at hand
}

// dead says of the tokens between two others why they are never executed. A whole file has
// functions that others call.
func (r *rubyReader) dead(from, to int, whole bool) []string {
	to = max(min(to, len(r.toks)), from)
	d := rubyFinder{folder: folder{l: syntax.Ruby, names: map[string][]token{}}, rubyReader: r, from: from, to: to, why: make([]string, to-from)}
	d.constants()
	for i := from; i < to; i++ {
		for n := len(d.open); n > 0 && r.closing[d.open[n-1]] <= i; n = len(d.open) {
			d.open = d.open[:n-1]
		}
		if d.why[i-from] == "" {
			d.region(i)
		}
		if r.closing[i] < len(r.toks) {
			d.open = append(d.open, i)
		}
	}
	if !whole {
		d.functions()
	}
	return d.why
}

func (d *rubyFinder) bury(from, to int, why string) {
	for i := max(from, d.from); i < min(to, d.to); i++ {
		if d.why[i-d.from] == "" {
			d.why[i-d.from] = why
		}
	}
}

// line is the logical line of a token.
func (d *rubyFinder) line(i int) (from, to int) {
	l := d.lines[max(d.after(i+1)-1, 0)]
	return max(l[0], d.from), min(l[1], d.to)
}

// constants finds names that are given an empty list or one written value and asked once.
func (d *rubyFinder) constants() {
	uses := map[string]int{}
	for i := d.from; i < d.to; i++ {
		if d.toks[i].Kind == syntax.Word && d.text(i-1) != "." {
			uses[d.text(i)]++
		}
	}
	for i := d.from + 1; i+1 < d.to; i++ {
		if name := d.text(i - 1); d.text(i) == "=" && uses[name] == 2 && d.toks[i-1].Indent >= 0 {
			if _, end := d.line(i); end-i < 8 && end > i+1 && (d.atom(d.toks[i+1:end]) != unknown || d.nothing(d.toks[i+1:end])) {
				d.names[name] = d.toks[i+1 : end]
			}
		}
	}
}

// part is the next else or end of the block that opens at i, from k on.
func (d *rubyFinder) part(i, k int) int {
	end := min(d.closing[i]-1, d.to)
	for ; k < end; k++ {
		if d.toks[k].Kind == syntax.Word && !d.name(k) && slices.Contains([]string{"else", "elsif", "when", "in", "rescue", "ensure"}, d.text(k)) && (d.text(k) != "in" || d.text(i) == "case") {
			return k
		}
		if c := d.closing[k]; c < len(d.toks) {
			k = c - 1
		}
	}
	return end
}

func (d *rubyFinder) region(i int) {
	t := d.toks[i]
	switch {
	case t.Kind == syntax.Punct && (t.Text == "&&" || t.Text == "||"), t.Kind == syntax.Word && (t.Text == "and" || t.Text == "or"):
		first, end := d.line(i)
		if first != i-1 {
			return
		}
		if is := d.truth(d.toks[first:i]); (t.Text == "&&" || t.Text == "and") && is == never || (t.Text == "||" || t.Text == "or") && is == always {
			d.bury(i+1, end, whyCondition)
		}
		return
	case t.Kind == syntax.Punct && t.Text == ".":
		d.overNothing(i)
		return
	case t.Kind != syntax.Word || d.name(i):
		return
	}
	switch t.Text {
	case "if", "unless", "while", "until", "elsif":
		d.condition(i)
	case "case":
		d.branches(i)
	case "return", "next", "raise", "break":
		first, end := d.line(i)
		if first != i || syntax.Has(d.toks[i:end], "if", "unless", "and", "or", "&&", "||", "?") {
			return
		}
		stop := d.to
		if n := len(d.open); n > 0 {
			stop = d.part(d.open[n-1], end)
		}
		d.bury(end, stop, whyAfter)
	}
}

func (d *rubyFinder) condition(i int) {
	first, end := d.line(i)
	head := d.toks[i+1 : max(end, i+1)]
	if n := slices.IndexFunc(head, func(t token) bool { return t.Text == "then" || t.Text == ";" || t.Text == "do" }); n >= 0 {
		head = head[:n]
	}
	is := d.truth(head)
	if t := d.text(i); t == "unless" || t == "until" {
		is = is.not()
	}
	block := i
	if d.text(i) == "elsif" {
		if len(d.open) == 0 {
			return
		}
		block = d.open[len(d.open)-1]
	}
	if d.closing[block] >= len(d.toks) { // after what depends on it
		if is == never {
			d.bury(first, i, whyCondition)
		}
		return
	}
	next := d.part(block, i+1)
	switch is {
	case never:
		d.bury(i+1, next, whyCondition)
	case always:
		if d.text(i) != "while" && d.text(i) != "until" {
			d.bury(next, d.closing[block]-1, whyCondition)
		}
	}
}

// branches buries what is for other values than the one written after "case".
func (d *rubyFinder) branches(i int) {
	_, end := d.line(i)
	if end != i+2 || !d.toks[i+1].Literal() || d.closing[i] >= len(d.toks) {
		return
	}
	for k := d.part(i, end); k < d.closing[i]-1 && k < d.to; {
		next := d.part(i, k+1)
		if _, stop := d.line(k); d.text(k) == "when" && stop == k+2 && d.toks[k+1].Literal() && d.toks[k+1].Text != d.toks[i+1].Text {
			d.bury(k+1, next, whyCondition)
		}
		k = max(next, k+1)
	}
}

// overNothing buries the block of a method that goes through nothing; its dot is at i.
func (d *rubyFinder) overNothing(i int) {
	w := d.text(i + 1)
	first, end := d.line(i)
	of := d.toks[first:max(i, first)]
	if !(w == "times" && len(of) == 1 && of[0].Text == "0") && !(slices.Contains([]string{"each", "map", "each_with_index", "each_pair", "select", "each_with_object"}, w) && len(of) < 8 && d.nothing(of)) {
		return
	}
	if open := d.opener(i+1, end); open >= 0 {
		d.bury(open, d.closing[open], whyLoop)
	}
}

// functions buries methods and lambdas of a body that nothing uses.
func (d *rubyFinder) functions() {
	var all []inner
	for i := d.from; i < d.to && len(all) <= maxInner; i++ {
		if d.toks[i].Kind != syntax.Word && d.text(i) != "->" {
			continue
		}
		switch w := d.text(i); {
		case w == "def" && d.closing[i] < len(d.toks) && d.text(i+2) != ".":
			all = append(all, inner{from: i, to: d.closing[i], name: d.text(i + 1), decl: i + 1})
		case w == "lambda" || w == "proc" || w == "->" || w == "Proc" && d.text(i+2) == "new":
			first, end := d.line(i)
			open := d.opener(i, end)
			if open < 0 || d.text(d.closing[open]) == "." || first < i-2 || first == i-1 {
				continue
			}
			f := inner{from: i, to: d.closing[open], decl: first}
			if first == i-2 {
				if d.text(i-1) != "=" || d.toks[first].Kind != syntax.Word || strings.HasPrefix(d.text(first), "@") || strings.HasPrefix(d.text(first), "$") {
					continue
				}
				if f.name = d.text(first); f.name == "_" {
					f.name = ""
				}
			} else if d.closing[open] >= d.to-1 {
				continue // what the body gives back
			}
			all = append(all, f)
		}
	}
	if len(all) > maxInner {
		return
	}
	mentions := map[string][]int{}
	for i := d.from; i < d.to; i++ {
		if d.toks[i].Kind == syntax.Word && d.why[i-d.from] == "" && d.text(i-1) != "." && d.text(i-1) != "def" {
			mentions[d.text(i)] = append(mentions[d.text(i)], i)
		}
	}
	reach(all, func(f *inner) bool {
		return slices.ContainsFunc(mentions[f.name], func(i int) bool {
			if i == f.decl || i >= f.from && i < f.to || hidden(all, i) {
				return false
			}
			first, end := d.line(i)
			return d.text(f.from) == "def" || end-first > 1 && !(d.text(first) == "_" && end-first == 3)
		})
	})
	for _, f := range all {
		if !f.live {
			d.bury(f.from, f.to, whyUncalled)
		}
	}
	d.threads()
}

// threads buries what runs beside the body that does not wait for it.
func (d *rubyFinder) threads() {
	for i := d.from; i+2 < d.to; i++ {
		if d.text(i) != "Thread" || d.text(i+2) != "new" {
			continue
		}
		first, end := d.line(i)
		open := d.opener(i, end)
		if first != i || open < 0 || d.text(d.closing[open]) == "." {
			continue
		}
		rest := d.toks[min(d.closing[open], d.to):d.to]
		if !slices.ContainsFunc(rest, func(t token) bool {
			return t.Kind == syntax.Word && slices.ContainsFunc(waits, func(p string) bool { return strings.Contains(t.Text, p) && t.Text != "do" })
		}) {
			d.bury(open, d.closing[open], whyAlone)
		}
	}
}

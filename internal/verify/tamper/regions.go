package tamper

import (
	"slices"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// construct is a condition or a loop with its parts.
type construct struct {
	at         int
	head, body [2]int
}

// construct reads what begins with the control word at i.
func (d *deadFinder) construct(i int) (construct, bool) {
	c := construct{at: i}
	k := i + 1
	if d.at(k) == "await" || d.at(k) == "constexpr" || d.at(k) == "!" && d.l == syntax.C {
		k++
	}
	if d.l == syntax.Go || d.l == syntax.Rust {
		open := d.goHead(k)
		if open < 0 {
			return c, false
		}
		c.head, c.body = [2]int{k, open}, [2]int{open, d.closing[open]}
		return c, true
	}
	if d.at(k) != "(" || d.closing[k] >= len(d.toks) {
		return c, false
	}
	c.head = [2]int{k + 1, d.closing[k] - 1}
	from := d.closing[k]
	switch {
	case d.at(from) == "{":
		c.body = [2]int{from, d.closing[from]}
	case d.at(from) == ":" && d.l == syntax.PHP:
		end := from
		for end < len(d.toks) && !(d.parent[end] == d.parent[i] && slices.Contains([]string{"endif", "endwhile", "endfor", "endforeach", "endswitch", "else", "elseif"}, d.at(end))) {
			end++
		}
		c.body = [2]int{from, end}
	default:
		end, ok := d.soon(from)
		c.body = [2]int{from, end}
		return c, ok
	}
	return c, true
}

// goHead finds the brace of a block whose head has no brackets of its own.
func (d *deadFinder) goHead(k int) int {
	for j := k; j < len(d.toks) && j < k+maxAhead; {
		switch d.at(j) {
		case "{":
			c := d.closing[j]
			if next := d.at(c); d.l == syntax.Go && c < len(d.toks) && d.toks[c].Indent < 0 && (next == "{" || next == "[" || next == "." || next == ",") {
				j = c // a value
				continue
			}
			return j
		case "(", "[":
			j = max(d.closing[j], j+1)
			continue
		case "}", ")":
			return -1
		}
		j++
	}
	return -1
}

// regions finds what is dead by conditions, loops, ways out and the build.
func (d *deadFinder) regions() {
	var all []construct
	for i, t := range d.toks {
		if t.Kind == syntax.Word && slices.Contains([]string{"if", "elseif", "while", "for", "foreach", "switch", "match"}, t.Text) && d.at(i-1) != "." && d.at(i-1) != "#" && d.at(i-1) != "->" {
			if c, ok := d.construct(i); ok {
				all = append(all, c)
			}
		}
	}
	d.constants(all)
	for _, c := range all {
		d.decide(c)
	}
	for i, t := range d.toks {
		switch {
		case t.Kind == syntax.Punct && (t.Text == "&&" || t.Text == "||" || t.Text == "?"):
			d.shortcut(i)
		case t.Kind == syntax.Punct && t.Text == "#":
			if d.l == syntax.Rust {
				d.attribute(i)
			}
		case t.Kind != syntax.Word:
		case d.at(i-1) == "." || d.at(i-1) == "->":
			d.overNothing(i)
		case slices.Contains([]string{"return", "throw", "break", "continue", "goto", "panic"}, t.Text):
			d.after(i)
		}
	}
	if d.l == syntax.C || d.l == syntax.CSharp {
		d.preprocessor()
	}
	if d.l == syntax.Go {
		d.shadowed()
	}
}

// shadowed buries what reports to a test that the body made itself and nobody runs.
func (d *deadFinder) shadowed() {
	for i := range d.toks {
		if d.at(i) != "testing" || d.at(i+2) != "T" || d.at(i+1) != "." {
			continue
		}
		made := i
		switch {
		case d.at(i+3) == "{" && d.at(i-1) == "&":
			made = i - 1
		case d.at(i+3) == ")" && d.at(i-1) == "(" && d.at(i-2) == "new":
			made = i - 2
		default:
			continue
		}
		p := d.parent[made]
		switch eq := d.at(made - 1); {
		case (eq == ":=" || eq == "=") && isT(d.at(made-2)):
			end := len(d.toks)
			if q := d.parent[made]; q >= 0 {
				end = d.closing[q] - 1
			}
			d.bury(d.ends(made), end, whyShadowed)
		case p > 0 && d.at(p) == "(" && d.at(p-1) == "}" && d.opening[p-1] >= 0: // func(t *testing.T) {…}(new(testing.T))
			d.bury(d.opening[p-1], p, whyShadowed)
		}
	}
}

// constants finds variables that are given one written value and are then only asked in heads.
func (d *deadFinder) constants(all []construct) {
	uses := map[string]int{}
	asked := map[string]int{}
	for i, t := range d.toks {
		if t.Kind == syntax.Word && d.at(i-1) != "." {
			uses[t.Text]++
			if d.at(i+1) == "." && slices.Contains(walkers, d.at(i+2)) {
				asked[t.Text]++
			}
		}
	}
	for _, c := range all {
		for i := c.head[0]; i < c.head[1]; i++ {
			next := d.at(i + 1)
			if d.word(i) && d.at(i-1) != "." && d.at(i-1) != "&" && next != "=" && next != "++" && next != "--" && next != "+=" {
				asked[d.toks[i].Text]++
			}
		}
	}
	for i := range d.toks {
		// Declared without a value: var x []int, std::vector<int> x;
		if d.l == syntax.Go && d.at(i) == "var" && d.at(i+2) == "[" && d.at(i+3) == "]" && d.starts(i) && uses[d.at(i+1)] == asked[d.at(i+1)]+1 && !syntax.Has(d.toks[i:d.ends(i)], "=") {
			d.names[d.at(i+1)] = []token{{Kind: syntax.Word, Text: "nil"}}
		}
		if name := d.at(i - 1); d.l == syntax.C && d.at(i) == ";" && d.at(i-2) == ">" && d.word(i-1) && uses[name] == asked[name]+1 {
			d.names[name] = []token{{Kind: syntax.Punct, Text: "{"}, {Kind: syntax.Punct, Text: "}"}}
		}
		if name := d.at(i - 1); (d.at(i) == "=" || d.at(i) == ":=") && d.word(i-1) && uses[name] == asked[name]+1 && d.declared(i) {
			if v := d.toks[i+1 : max(d.ends(i+1), i+1)]; len(v) > 0 && len(v) < 40 && (d.atom(v) != unknown || d.nothing(v)) {
				d.names[name] = v
			}
		}
	}
}

// declared reports whether the "=" at i gives a new variable of the body its value.
func (d *deadFinder) declared(i int) bool {
	before := d.at(i - 2)
	switch d.l {
	case syntax.Go:
		return d.at(i) == ":=" && d.starts(i-1) || before == "var" || before == "const"
	case syntax.PHP:
		return d.starts(i - 1)
	case syntax.JavaScript:
		return before == "const" || before == "let" || before == "var"
	case syntax.Rust:
		return before == "let"
	}
	return i > 1 && (d.toks[i-2].Kind == syntax.Word && before != "return" || before == ">" || before == "]")
}

// decide buries what a construct never runs.
func (d *deadFinder) decide(c construct) {
	head := d.toks[c.head[0]:max(c.head[0], c.head[1])]
	if len(head) > maxAhead {
		return
	}
	switch w := d.at(c.at); w {
	case "switch", "match":
		d.branches(c, head)
	case "if", "elseif", "while":
		if n := len(head); n > 0 {
			if parts := split(head, head[0].Depth, ";"); w == "if" {
				head = parts[len(parts)-1]
			}
		}
		switch d.truth(head) {
		case never:
			if w == "while" && d.at(c.at-1) == "}" && c.body[0] == c.body[1] {
				return // do … while (false)
			}
			d.bury(c.body[0], c.body[1], whyCondition)
		case always:
			if k := c.body[1]; w != "while" && d.at(k) == ";" && d.at(k+1) == "else" {
				d.bury(k+1, d.elseEnd(k+1), whyCondition)
			} else if w != "while" && d.at(k) == "else" {
				d.bury(k, d.elseEnd(k), whyCondition)
			}
		}
	default:
		if d.emptyLoop(head) {
			d.bury(c.body[0], c.body[1], whyLoop)
		}
	}
}

// elseEnd is the end of an else with all that follows it.
func (d *deadFinder) elseEnd(i int) int {
	for n := 0; n < maxAhead; n++ {
		k := i + 1
		if d.at(k) == "if" {
			c, ok := d.construct(k)
			if !ok {
				return k
			}
			if i = c.body[1]; d.at(i) != "else" {
				return i
			}
			continue
		}
		if d.at(k) == "{" {
			return d.closing[k]
		}
		end, _ := d.soon(k)
		return end
	}
	return i
}

// emptyLoop reports the head of a for that never goes round.
func (d *deadFinder) emptyLoop(head []token) bool {
	if len(head) == 0 {
		return false
	}
	if parts := split(head, head[0].Depth, ";"); len(parts) == 3 {
		f := folder{l: d.l, names: map[string][]token{}}
		init := parts[0]
		for n, t := range init {
			if (t.Text == "=" || t.Text == ":=") && n > 0 && n+2 == len(init) {
				f.names[init[n-1].Text] = init[n+1:]
			}
		}
		return f.truth(parts[1]) == never
	}
	if d.l == syntax.Go && head[0].Kind == syntax.Word && !syntax.Has(head, "range") {
		return d.truth(head) == never
	}
	base := head[0].Depth
	over := head
	for n, t := range head {
		if t.Depth == base && slices.Contains([]string{"range", "in", "of", ":", "as"}, t.Text) && (t.Kind == syntax.Punct) == (t.Text == ":") {
			if t.Text == "as" && d.l == syntax.PHP {
				return d.nothing(head[:n])
			}
			over = head[n+1:]
			return d.nothing(over)
		}
	}
	return false
}

// branches buries the branches of a switch over a written value that is not theirs.
func (d *deadFinder) branches(c construct, head []token) {
	if d.at(c.body[0]) != "{" {
		return
	}
	if len(head) > 0 {
		parts := split(head, head[0].Depth, ";")
		head = parts[len(parts)-1]
	}
	if len(head) == 0 {
		if d.l != syntax.Go {
			return
		}
		head = []token{{Kind: syntax.Word, Text: "true"}}
	}
	head = unwrap(head)
	isBool := d.truth(head)
	if isBool == unknown {
		return
	}
	misses := func(label []token) bool {
		if len(label) == 0 {
			return false
		}
		if len(head) == 1 && (head[0].Kind == syntax.Number || head[0].Kind == syntax.Text) {
			return d.compare(head, "==", label) == never
		}
		is := d.truth(label)
		return is != unknown && is != isBool && (len(label) > 1 || label[0].Kind == syntax.Word)
	}
	end := d.closing[c.body[0]] - 1
	falls := false // the branch before runs on into the next
	for i := c.body[0] + 1; i < end; {
		label := i
		if d.at(i) == "case" {
			label = i + 1
		} else if d.l != syntax.Rust && d.l != syntax.PHP {
			i = d.step(i)
			continue
		}
		colon := label
		for colon < end && !slices.Contains([]string{":", "=>", "->"}, d.at(colon)) {
			colon = d.step(colon)
		}
		next := colon + 1
		leaves := false
		for next < end && d.at(next) != "case" && d.at(next) != "default" && (d.at(next) != "," || d.at(colon) == ":") {
			leaves = leaves || slices.Contains([]string{"break", "return", "throw", "continue", "goto"}, d.at(next))
			next = d.step(next)
		}
		ended := d.at(colon) != ":" || d.l == syntax.Go || leaves
		if misses(d.toks[label:min(colon, end)]) && !falls {
			d.bury(colon+1, next, whyCondition)
		} else {
			falls = !ended
		}
		i = next
		if d.at(i) == "," {
			i++
		}
	}
}

// step is the token after the one at i, or after the bracket that it opens.
func (d *deadFinder) step(i int) int {
	if d.opens(i) {
		return max(d.closing[i], i+1)
	}
	return i + 1
}

// after buries what follows a way out in its block.
func (d *deadFinder) after(i int) {
	p := d.parent[i]
	if d.gone[i] || !d.starts(i) || p >= 0 && d.at(p) != "{" || d.at(i) == "panic" && d.at(i+1) != "(" && d.at(i+1) != "!" {
		return
	}
	from := d.ends(i + 1)
	if d.loose() && i+1 < len(d.toks) && d.toks[i+1].Indent >= 0 || d.at(i+1) == "}" {
		from = i + 1
	}
	end := len(d.toks)
	if p >= 0 {
		end = d.closing[p] - 1
	}
	for k := from; k < end; k = d.step(k) {
		named := d.word(k) && d.at(k+1) == ":" && d.starts(k)
		switch w := d.at(k); {
		case w == "case" || w == "default" || w == "#" || named || slices.Contains([]string{"endif", "else", "elseif"}, w):
			d.bury(from, k, whyAfter)
			return
		case w == "function" && d.l == syntax.JavaScript && d.starts(k) && d.word(k+1): // is there before all else
			d.bury(from, k, whyAfter)
			for k < end && d.at(k) != "{" {
				k = d.step(k)
			}
			from = min(d.closing[min(k, len(d.toks)-1)], end)
		}
	}
	d.bury(from, end, whyAfter)
}

// shortcut buries what comes after "false &&", "true ||" and the branch of "?" that is not taken.
func (d *deadFinder) shortcut(i int) {
	if i == 0 || d.toks[i].Text == "?" && d.l == syntax.Rust {
		return
	}
	first := i - 1
	if d.opening[first] >= 0 {
		first = d.opening[first]
	}
	for first > 0 && (d.at(first-1) == "!" || d.at(first-1) == "void") {
		first--
	}
	if !d.starts(first) && !slices.Contains([]string{"(", "=", ",", "return", "=>", "->", "[", "await"}, d.at(first-1)) {
		return
	}
	is := d.truth(d.toks[first:i])
	if is == unknown {
		return
	}
	p := d.parent[i]
	end, ok := d.soon(i + 1)
	if !ok || i+1 >= len(d.toks) || d.parent[i+1] != p {
		return
	}
	colon := 0
	for k := i + 1; k < end; k = d.step(k) {
		switch d.at(k) {
		case ",":
			end = k
		case ":":
			if colon == 0 {
				colon = k
			}
		case "||":
			if d.at(i) == "&&" {
				end = k
			}
		}
	}
	switch d.at(i) {
	case "&&":
		if is == never {
			d.bury(i+1, end, whyCondition)
		}
	case "||":
		if is == always {
			d.bury(i+1, end, whyCondition)
		}
	case "?":
		if is == never && colon > 0 {
			d.bury(i+1, colon, whyCondition)
		} else if is == always && colon > 0 {
			d.bury(colon+1, end, whyCondition)
		}
	}
}

var walkers = []string{"forEach", "for_each", "ForEach", "map", "every", "some", "flatMap", "each", "filter", "reduce", "ifPresent"}

// overNothing buries what is given to a method that goes through an empty list.
func (d *deadFinder) overNothing(i int) {
	if d.at(i+1) != "(" || !slices.Contains(walkers, d.at(i)) {
		return
	}
	first := i - 2
	for n := 0; first >= 0 && n < maxAhead; n++ {
		if k := d.opening[first]; k >= 0 {
			first = k
			if k > 0 && (d.word(k-1) || d.at(k-1) == ">") && d.at(k) != "[" {
				first--
				for d.at(first) == ">" && first > 0 || d.at(first+1) == "<" && first > 0 { // type arguments
					first--
				}
				continue
			}
		}
		if b := d.at(first - 1); b == "." || b == "::" {
			first -= 2
			continue
		}
		break
	}
	if first >= 0 && d.nothing(unwrap(d.toks[first:i-1])) {
		d.bury(i+1, d.closing[i+1], whyLoop)
	}
}

// attribute reads Rust's #[cfg(…)] before a statement.
func (d *deadFinder) attribute(i int) {
	if d.at(i+1) != "[" || d.at(i+2) != "cfg" || d.at(i+3) != "(" {
		return
	}
	from := d.closing[i+1]
	end, ok := d.soon(min(from, len(d.toks)-1))
	if d.at(from) == "{" {
		end = d.closing[from]
	} else if !ok {
		return
	}
	is := rustBuilt(d.toks[i+4 : max(i+4, min(d.closing[i+3]-1, len(d.toks)))])
	switch is {
	case never:
		d.bury(from, end, whyUnbuilt)
	case unknown:
		d.spans = append(d.spans, span{from: from, to: min(end, len(d.toks)), why: whyUnbuilt, maybe: true})
	}
}

// rustBuilt folds what is asked of the build; "test" always holds where tests are.
func rustBuilt(toks []token) truth {
	switch s := join(toks); s {
	case "any ( )", "FALSE", "false", "not ( all ( ) )", "not ( test )", "not ( true )":
		return never
	case "test", "all ( )", "true", "not ( any ( ) )":
		return always
	}
	if len(toks) > 3 && (toks[0].Text == "all" || toks[0].Text == "any") && toks[1].Text == "(" {
		inner := toks[2 : len(toks)-1]
		all := toks[0].Text == "all"
		out := known(all)
		for _, p := range split(inner, baseDepth(inner), ",") {
			switch is := rustBuilt(p); {
			case len(p) == 0:
			case is == known(!all):
				return is
			case is == unknown:
				out = unknown
			}
		}
		return out
	}
	return unknown
}

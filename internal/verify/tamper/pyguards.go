package tamper

import (
	"slices"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// pyGuards is guardsOf for blocks made by indentation: one for every line of a body.
func pyGuards(body []pyLine) []guard {
	type block struct {
		indent   int
		outer    guard // what holds again after it
		function bool
		checked  bool
	}
	out := make([]guard, len(body))
	var open []block
	var now guard
	for i, l := range body {
		if len(l.toks) == 0 {
			out[i] = now
			continue
		}
		for n := len(open); n > 0 && l.indent <= open[n-1].indent; n = len(open) {
			exits, at := now.exits, now.at
			function := open[n-1].function
			now = open[n-1].outer
			if !function { // a way out of a block is one out of the test
				now.exits = exits
				if exits > 0 {
					now.at = at
				}
			}
			open = open[:n-1]
		}
		out[i] = now
		b := block{indent: l.indent, outer: now}
		h := l.head(0)
		line := l.toks[0].Line
		switch {
		case h == "if" || h == "elif" || h == "else" || h == "match":
			now.conds, now.at = now.conds+1, line
			for _, t := range l.toks { // each part of a condition is one more
				if t.Kind == syntax.Word && (t.Text == "and" || t.Text == "False") {
					now.conds++
				}
			}
		case h == "try" && pyForgets(body, i), h == "with" && l.has("suppress") && l.has("Exception", "BaseException", "AssertionError"),
			h == "with" && l.has("raises", "assertRaises") && l.has("Exception", "BaseException", "AssertionError"):
			now.swallowed, now.at = true, line
		case h == "def" || h == "async" && l.head(1) == "def" || h == "class":
			b.function = true
		case h == "return":
			n := len(open)
			nested := slices.ContainsFunc(open, func(b block) bool { return b.function })
			if n > 0 && !nested && !open[n-1].checked {
				now.exits, now.at = now.exits+1, line
			}
			continue
		case h == "raise" || pyCheck(l) || slices.ContainsFunc(l.toks, fails):
			for k := range open {
				open[k].checked = true
			}
			continue
		case l.toks[len(l.toks)-1].Text != ":":
			continue
		}
		if l.toks[len(l.toks)-1].Text == ":" {
			open = append(open, b)
		}
	}
	return out
}

// pyForgets reports whether an except clause of the try at i takes failed assertions and does
// nothing with them.
func pyForgets(body []pyLine, i int) bool {
	indent := body[i].indent
	for k := i + 1; k < min(len(body), i+maxAhead); k++ {
		l := body[k]
		if l.indent > indent || len(l.toks) == 0 {
			continue
		}
		if l.indent < indent || l.head(0) != "except" && l.head(0) != "else" && l.head(0) != "finally" {
			return false
		}
		if l.head(0) != "except" || !(l.head(1) == ":" || l.has("Exception", "BaseException", "AssertionError")) {
			continue
		}
		harmless := !slices.ContainsFunc(l.toks[1:], func(t token) bool { return t.Kind == syntax.Word && (t.Text == "raise" || t.Text == "fail") })
		for k++; k < len(body) && (body[k].indent > indent || len(body[k].toks) == 0); k++ {
			harmless = harmless && !slices.ContainsFunc(body[k].toks, fails) && !pyCheckLine(body[k])
		}
		if harmless {
			return true
		}
		k--
	}
	return false
}

func pyCheckLine(l pyLine) bool { return len(l.toks) > 0 && pyCheck(l) }

package tamper

import (
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// lambda reports whether the brace at i opens the body of a function that is a value, rather
// than a block or a list of values.
func lambda(toks []token, i int, l syntax.Lang) bool {
	if i == 0 || toks[i].Text != "{" {
		return false
	}
	before := toks[i-1].Text
	switch l {
	case syntax.Java:
		return before == "->"
	case syntax.CSharp, syntax.JavaScript:
		return before == "=>" || before == "delegate"
	case syntax.Rust:
		return before == "|" || before == "||" || before == "async" || before == "move"
	case syntax.PHP:
		if before == ")" { // function (…) {, function (…) use (…) {
			for j := i - 1; j > max(0, i-60); j-- {
				if toks[j].Text == "function" {
					return true
				}
				if toks[j].Text == ";" || toks[j].Text == "{" {
					return false
				}
			}
		}
	case syntax.C:
		if before == ")" || before == "]" || before == "mutable" {
			for j, d := i-1, toks[i].Depth; j > max(0, i-60) && toks[j].Depth >= d; j-- {
				if toks[j].Text == "[" && toks[j].Depth == d {
					return j == 0 || toks[j-1].Kind == syntax.Punct && toks[j-1].Text != ")" && toks[j-1].Text != "]"
				}
				if toks[j].Text == ";" {
					return false
				}
			}
		}
	}
	return false
}

var cCheck = regexp.MustCompile(`^(EXPECT|ASSERT|REQUIRE|CHECK|STATIC_REQUIRE|BOOST_(CHECK|REQUIRE|TEST|ERROR|FAIL|WARN)|TEST_ASSERT|TEST_FAIL|CU_ASSERT|ck_assert|cr_assert|cr_expect|g_assert|mu_assert|munit_assert|zassert|assert|Assert|expect|fail|FAIL|ADD_FAILURE|INFO_CHECK|check)(_|$|[A-Z])`)

// checks reports whether the word at i begins a call that checks something.
func checks(toks []token, i int, l syntax.Lang) bool {
	t := toks[i]
	if t.Kind != syntax.Word || i+1 >= len(toks) {
		return false
	}
	next, before := toks[i+1].Text, ""
	if i > 0 {
		before = toks[i-1].Text
	}
	call := next == "(" || next == "<" && l != syntax.C
	switch w := t.Text; l {
	case syntax.Rust:
		return next == "!" && (strings.HasPrefix(w, "assert") || strings.HasPrefix(w, "debug_assert") || strings.HasPrefix(w, "prop_assert") || w == "panic" || w == "unreachable" || w == "expect")
	case syntax.Java:
		return w == "assert" && before != "." || call && (strings.HasPrefix(w, "assert") || w == "fail" || strings.HasPrefix(w, "failBecause") || before != "." && (w == "verify" || w == "expect" || w == "then" || strings.HasPrefix(w, "verifyNo") || strings.HasPrefix(w, "expectThrows")) || w == "andExpect" || before == "." && (w == "expect" || w == "expectMessage"))
	case syntax.CSharp:
		if before == "." && i > 1 && strings.HasSuffix(toks[i-2].Text, "Assert") {
			return call
		}
		return call && (w == "Should" || strings.HasPrefix(w, "Should") && before == "." || w == "Verify" || w == "Received" || w == "DidNotReceive" || strings.HasPrefix(w, "Assert") && len(w) > 6)
	case syntax.PHP:
		return call && (strings.HasPrefix(w, "assert") || w == "fail" || w == "expect" || strings.HasPrefix(w, "expectException") || strings.HasPrefix(w, "expectOutput") || w == "shouldBe" || w == "shouldReturn" || strings.HasPrefix(w, "should") && before == "->")
	case syntax.C:
		return call && cCheck.MatchString(w)
	}
	return false
}

// checksIn finds the checks among tokens of a language with braces. What a function inside a
// check does is read apart.
func checksIn(toks []token, closing []int, from, to int, l syntax.Lang) []assertion {
	f := checkFinder{toks: toks, closing: closing, l: l}
	f.between(from, to)
	return f.out
}

type checkFinder struct {
	toks    []token
	closing []int
	l       syntax.Lang
	out     []assertion
}

func (f *checkFinder) between(from, to int) {
	toks, closing, l := f.toks, f.closing, f.l
	begin := from
	for i := from; i < to; i++ {
		t := toks[i]
		if t.Kind == syntax.Punct {
			switch t.Text {
			case ";", "{", "}":
				begin = i + 1
			case "->":
				if l == syntax.Java {
					begin = i + 1
				}
			case "=>":
				begin = i + 1
			case "#": // an attribute, or a line for the preprocessor
				if l == syntax.Rust && i+1 < to && toks[i+1].Text == "[" {
					i = min(closing[i+1], to) - 1
				} else {
					for line := t.Line; i+1 < to && toks[i+1].Line == line; {
						i++
					}
				}
				begin = i + 1
			case ",", ":":
				if begin < len(toks) && t.Depth == toks[begin].Depth && t.Depth > 0 {
					begin = i + 1
				}
			}
			continue
		}
		if !checks(toks, i, l) {
			continue
		}
		start := i
		if begin < i && toks[begin].Depth == t.Depth {
			start = statementStart(toks, begin, i)
		}
		end := checkEnd(toks, closing, i, to, toks[start].Depth)
		var inner [][2]int
		var kept []token
		for k := start; k < end; k++ {
			kept = append(kept, toks[k])
			if lambda(toks, k, l) {
				stop := min(closing[k], end)
				inner = append(inner, [2]int{k + 1, max(stop-1, k+1)})
				k = max(stop-2, k)
			}
		}
		kept = withoutMessage(kept, l)
		f.out = append(f.out, assertion{toks: kept, line: toks[start].Line, strength: strengthOf(kept), pos: i})
		for _, x := range inner {
			f.between(x[0], x[1])
		}
		begin = end
		i = end - 1
	}
}

// statementStart leaves out what a statement does with the check's result.
func statementStart(toks []token, begin, i int) int {
	start := begin
	for k := begin; k < i; k++ {
		switch toks[k].Text {
		case "=", "return", "await", "co_await", "@":
			start = k + 1
		}
	}
	return min(start, i)
}

// checkEnd is the end of the statement that the check at i belongs to.
func checkEnd(toks []token, closing []int, i, to, depth int) int {
	for j := i; j < to; {
		t := toks[j]
		if t.Depth < depth {
			return j
		}
		if t.Depth == depth && t.Kind == syntax.Punct {
			switch t.Text {
			case ";", "}":
				return j
			case ",":
				if depth > 0 && j > i && toks[j-1].Text != ">" {
					return j
				}
			}
		}
		if t.Kind == syntax.Punct && (t.Text == "(" || t.Text == "[" || t.Text == "{") {
			j = max(closing[j], j+1)
			continue
		}
		j++
	}
	return to
}

// oneArgument are checks that need a single argument.
var oneArgument = regexp.MustCompile(`(?i)(true|false|null|nil|empty|zero|throws|fail|notnull|^assert|that|^check|^require|^expect)$`)

// withoutMessage takes off what a failing check prints.
func withoutMessage(toks []token, l syntax.Lang) []token {
	depth := toks[0].Depth
	if l == syntax.C {
		for i, t := range toks {
			if i > 0 && t.Text == "<" && t.Depth == depth && i+1 < len(toks) && toks[i+1].Text == "<" {
				return toks[:i]
			}
		}
		return toks
	}
	name, open := "", -1
	for i, t := range toks {
		if t.Text == "(" && i > 0 && t.Depth == depth {
			open = i
			for k := i - 1; k >= 0; k-- {
				if toks[k].Kind == syntax.Word {
					name = toks[k].Text
					break
				}
			}
			break
		}
	}
	if open < 0 || name == "fail" || name == "panic" || name == "unreachable" {
		return toks
	}
	var commas []int
	last := len(toks)
	for i := open + 1; i < len(toks); i++ {
		if toks[i].Depth == depth {
			last = i
			break
		}
		if toks[i].Text == "," && toks[i].Depth == depth+1 && i+1 < len(toks) && toks[i+1].Text != ")" {
			commas = append(commas, i)
		}
	}
	need := 2
	if oneArgument.MatchString(name) {
		need = 1
	}
	switch {
	case len(commas) < need:
		return toks
	case l == syntax.Rust && commas[need-1]+1 < len(toks) && toks[commas[need-1]+1].Kind == syntax.Text:
		return append(slices.Clone(toks[:commas[need-1]]), toks[last:]...)
	case l == syntax.Rust:
		return toks
	}
	// JUnit 4 has the message first, all others last.
	if a := commas[len(commas)-1]; last-a == 2 && toks[a+1].Kind == syntax.Text && name != "assertThrows" {
		return append(slices.Clone(toks[:a]), toks[last:]...)
	}
	if l == syntax.Java && commas[0]-open == 2 && toks[open+1].Kind == syntax.Text {
		return append(slices.Clone(toks[:open+1]), toks[commas[0]+1:]...)
	}
	return toks
}

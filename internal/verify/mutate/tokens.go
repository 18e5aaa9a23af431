package mutate

import (
	"slices"
	"strconv"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// tokenFinder finds edits in a language that is read as tokens.
type tokenFinder struct {
	text    []byte
	toks    []syntax.Token
	closing []int
	l       language
	changed map[int]bool
	skip    []bool // tokens of declarations and imports
	out     []edit
}

// tokenEdits finds edits outside strings and comments.
func tokenEdits(text []byte, l language, changed map[int]bool) []edit {
	toks := syntax.Lex(text, l.lang)
	f := tokenFinder{text: text, toks: toks, closing: syntax.Partners(toks), l: l, changed: changed, skip: make([]bool, len(toks))}
	f.declarations()
	for i := range toks {
		if f.skip[i] || !changed[toks[i].Line] {
			continue
		}
		f.token(i)
		f.statement(i)
	}
	return f.out
}

func (f *tokenFinder) at(i int) string {
	if i >= 0 && i < len(f.toks) {
		return f.toks[i].Text
	}
	return ""
}

func (f *tokenFinder) end(i int) int { return f.toks[i].At + len(f.toks[i].Text) }

func (f *tokenFinder) replace(i int, by, operator string, rank int) {
	f.out = append(f.out, edit{f.toks[i].At, f.end(i), by, operator, rank})
}

// declarations marks what only says what things are: imports, types, annotations, lines for the
// preprocessor.
func (f *tokenFinder) declarations() {
	for i := 0; i < len(f.toks); i++ {
		t := f.toks[i]
		to := i
		switch {
		case t.Indent >= 0 && imports(f.l, lineOf(f.text, t.At)), t.Text == "#" && t.Indent >= 0 && f.l.lang == syntax.C:
			for to = i + 1; to < len(f.toks) && f.toks[to].Line == t.Line; to++ {
			}
		case t.Text == "@" && f.l.lang != syntax.Ruby && i+1 < len(f.toks) && f.toks[i+1].Kind == syntax.Word && t.Indent >= 0:
			for to = i + 2; f.at(to) == "."; to += 2 {
			}
			if f.at(to) == "(" {
				to = f.closing[to]
			}
		case t.Text == "[" && t.Indent >= 0 && f.l.lang == syntax.CSharp:
			to = f.closing[i]
		case t.Text == "#" && f.at(i+1) == "[":
			to = f.closing[i+1]
		case t.Kind == syntax.Word && t.Indent >= 0 && f.typeWord(i):
			for to = i + 1; to < len(f.toks) && f.at(to) != "{" && f.at(to) != ";"; to++ {
				if f.at(to) == "(" {
					to = i // a function that gives a struct
					break
				}
			}
			if f.at(to) == "{" {
				to = f.closing[to]
			}
		}
		for k := i; k < min(to, len(f.toks)); k++ {
			f.skip[k] = true
		}
		i = max(i, to-1)
	}
}

// typeWord reports the head of a type that has no code in it.
func (f *tokenFinder) typeWord(i int) bool {
	if f.at(i) == "export" || f.at(i) == "pub" || f.at(i) == "declare" || f.at(i) == "public" {
		i++
	}
	switch f.at(i) {
	case "interface", "typedef":
		return true
	case "type":
		return f.l.lang == syntax.JavaScript || f.l.lang == syntax.Rust
	case "struct", "union":
		return f.l.lang == syntax.C || f.l.lang == syntax.Rust
	case "enum":
		return f.l.lang != syntax.Java && f.l.lang != syntax.CSharp
	}
	return false
}

func lineOf(text []byte, at int) string {
	line, _, _ := strings.Cut(string(text[at:min(len(text), at+200)]), "\n")
	return line
}

// value reports whether a value may end with the token.
func (f *tokenFinder) value(i int) bool {
	if i < 0 {
		return false
	}
	t := f.toks[i]
	switch t.Kind {
	case syntax.Number, syntax.Text:
		return true
	case syntax.Word:
		return !slices.Contains([]string{"return", "case", "if", "elsif", "elif", "while", "unless", "in", "and", "or", "not", "when", "operator", "yield", "await", "else", "print", "echo", "throw", "typeof"}, t.Text)
	}
	return t.Text == ")" || t.Text == "]"
}

// spaced reports whether a token has the same white space on both sides, as operators have and
// pointers, types and signs have not.
func (f *tokenFinder) spaced(i int) (around, tight bool) {
	t := f.toks[i]
	before := t.At > 0 && (f.text[t.At-1] == ' ' || f.text[t.At-1] == '\n' || f.text[t.At-1] == '\t')
	e := f.end(i)
	after := e < len(f.text) && (f.text[e] == ' ' || f.text[e] == '\n' || f.text[e] == '\t')
	return before && after, !before && !after
}

// Operators and what stands in a mutant instead of them.
var (
	comparisons = map[string]string{"===": "!==", "!==": "===", "==": "!=", "!=": "=="}
	connectives = map[string]string{"&&": "||", "||": "&&", "and": "or", "or": "and"}
	arithmetic  = map[string]string{"+": "-", "-": "+", "*": "/", "/": "*", "%": "*"}
	assigning   = map[string]string{"+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "++": "--", "--": "++"}
	negated     = map[string]string{"<": ">=", ">": "<=", "<=": ">", ">=": "<"}
	moved       = map[string]string{"<": "<=", ">": ">=", "<=": "<", ">=": ">"}
	truths      = map[string]string{"true": "false", "false": "true", "True": "False", "False": "True", "TRUE": "FALSE", "FALSE": "TRUE"}
	functions   = map[string]string{"min": "max", "max": "min", "any": "all", "all": "any"}
)

func (f *tokenFinder) token(i int) {
	t := f.toks[i]
	around, tight := f.spaced(i)
	switch t.Kind {
	case syntax.Number:
		f.number(i)
	case syntax.Word:
		switch {
		case truths[t.Text] != "" && f.at(i-1) != "." && f.at(i-1) != "::":
			f.replace(i, truths[t.Text], "swapped truth value", rankSwap)
		case connectives[t.Text] != "" && f.l.words && f.value(i-1):
			f.replace(i, connectives[t.Text], "swapped connective", rankSwap)
		case functions[t.Text] != "" && f.at(i+1) == "(":
			f.replace(i, functions[t.Text], "swapped function", rankSwap)
		case t.Text == "not" && f.l.words && f.at(i-1) != "is" && f.at(i+1) != "in" && i+1 < len(f.toks):
			f.out = append(f.out, edit{t.At, f.toks[i+1].At, "", "removed negation", rankNegate})
		case t.Text == "if" || t.Text == "elif" || t.Text == "elsif" || t.Text == "unless":
			f.condition(i)
		case t.Text == "return":
			f.result(i)
		}
	case syntax.Punct:
		operand := f.value(i-1) && i+1 < len(f.toks)
		switch s := t.Text; {
		case comparisons[s] != "" && operand && (s != "===" || f.l.lang == syntax.JavaScript || f.l.lang == syntax.PHP):
			f.replace(i, comparisons[s], "swapped comparison", rankSwap)
		case connectives[s] != "" && operand:
			f.replace(i, connectives[s], "swapped connective", rankSwap)
		case negated[s] != "" && operand && around && f.at(i+1) != ">":
			f.replace(i, negated[s], "negated comparison", rankNegate)
			f.replace(i, moved[s], "moved boundary", rankBoundary)
		case arithmetic[s] != "" && operand && (around || tight) && !f.strings(i) && !f.pointer(i):
			f.replace(i, arithmetic[s], "swapped operator", rankSwap)
		case assigning[s] != "":
			f.replace(i, assigning[s], "swapped operator", rankSwap)
		case s == "!" && !f.value(i-1) && i+1 < len(f.toks) && f.toks[i+1].Kind != syntax.Punct || s == "!" && !f.value(i-1) && f.at(i+1) == "(":
			f.replace(i, "", "removed negation", rankNegate)
		}
	}
}

// strings reports a sum of texts, which has no difference.
func (f *tokenFinder) strings(i int) bool {
	if f.at(i) != "+" {
		return f.at(i) == "*" && (f.toks[i+1].Kind == syntax.Text || f.toks[i-1].Kind == syntax.Text)
	}
	for k := i - 1; k >= 0 && k > i-6; k-- {
		if f.toks[k].Kind == syntax.Text {
			return true
		}
		if f.at(k) != "+" && f.at(k+1) != "+" {
			break
		}
	}
	return f.toks[i+1].Kind == syntax.Text
}

// pointer reports a star or an ampersand of a C declaration.
func (f *tokenFinder) pointer(i int) bool {
	if f.l.lang != syntax.C && f.l.lang != syntax.CSharp && f.l.lang != syntax.Rust || f.at(i) != "*" {
		return false
	}
	w := f.at(i - 1)
	return slices.Contains([]string{"int", "char", "void", "const", "float", "double", "long", "short", "unsigned", "signed", "bool", "auto", "FILE", "size_t"}, w) || strings.HasSuffix(w, "_t") || f.at(i-2) == "struct" || f.at(i-2) == "const"
}

func (f *tokenFinder) number(i int) {
	t := f.toks[i]
	n, err := strconv.Atoi(t.Text)
	if err != nil || n > 1<<30 || len(t.Text) > 1 && t.Text[0] == '0' || f.at(i-1) == "." || f.at(i-1) == "case" {
		return
	}
	f.replace(i, strconv.Itoa(n+1), "other number", rankConstant)
	if n > 0 {
		f.replace(i, strconv.Itoa(n-1), "other number", rankBoundary)
	}
}

// condition turns an if around, and makes it always and never true. What the condition says is
// still evaluated, so that nothing in it goes unused.
func (f *tokenFinder) condition(i int) {
	from := i + 1
	var to int
	switch f.l.lang {
	case syntax.Python:
		if f.toks[i].Indent < 0 {
			return // an expression
		}
		for to = from; to < len(f.toks) && !(f.at(to) == ":" && f.toks[to].Depth == f.toks[i].Depth); to++ {
			if f.toks[to].Indent >= 0 && f.toks[to].Depth <= f.toks[i].Depth {
				return
			}
		}
	case syntax.Ruby:
		for to = from; to < len(f.toks) && f.at(to) != "then" && !(f.toks[to].Indent >= 0 && f.toks[to].Depth <= f.toks[i].Depth) && f.at(to) != ";"; to++ {
		}
		if f.at(i-1) == ":" || f.at(from) == ":" {
			return
		}
	case syntax.Rust:
		if f.at(from) == "let" {
			return
		}
		for to = from; to < len(f.toks) && f.at(to) != "{"; to++ {
			if f.at(to) == "(" || f.at(to) == "[" {
				to = max(f.closing[to]-1, to)
			}
			if f.at(to) == "let" || f.at(to) == "=>" {
				return
			}
		}
	default:
		if f.at(from) == "constexpr" || f.at(from) != "(" || f.at(i-1) == "." || f.at(i-1) == "#" {
			return
		}
		from, to = from+1, f.closing[from]-1
	}
	if to <= from || to >= len(f.toks) && f.l.lang != syntax.Ruby {
		return
	}
	a, b := f.toks[from].At, f.end(min(to, len(f.toks))-1)
	s := string(f.text[a:b])
	if strings.Contains(s, "\n") && f.l.lang == syntax.Ruby || f.l.lang == syntax.C && slices.ContainsFunc(f.toks[from:to], func(t syntax.Token) bool { return t.Text == ";" || t.Text == "auto" }) {
		return
	}
	not, or, and, yes, no := "!(", " || ", " && ", "true", "false"
	switch f.l.lang {
	case syntax.Python:
		not, or, and, yes, no = "not (", " or ", " and ", "True", "False"
	case syntax.C:
		yes, no = "1", "0"
	}
	f.out = append(f.out,
		edit{a, b, not + s + ")", "negated condition", rankNegate},
		edit{a, b, "(" + s + ")" + or + yes, "condition always true", rankConstant},
		edit{a, b, "(" + s + ")" + and + no, "condition never true", rankReturn})
}

// result drops what a return gives back, where any value may be given back.
func (f *tokenFinder) result(i int) {
	nothing := map[syntax.Lang]string{syntax.Python: "None", syntax.JavaScript: "undefined", syntax.PHP: "null", syntax.Ruby: "nil"}[f.l.lang]
	to := i + 1
	for to < len(f.toks) && f.toks[to].Depth >= f.toks[i].Depth && f.at(to) != ";" && !(f.toks[to].Indent >= 0 && f.toks[to].Depth == f.toks[i].Depth && !f.continues(to)) {
		if f.l.lang == syntax.Ruby && (f.at(to) == "if" || f.at(to) == "unless") {
			break
		}
		to++
	}
	if to == i+1 {
		return
	}
	a, b := f.toks[i+1].At, f.end(to-1)
	switch s := string(f.text[a:b]); {
	case nothing != "" && s != nothing:
		f.out = append(f.out, edit{a, b, nothing, "dropped result", rankReturn})
	case to == i+2 && f.toks[i+1].Kind == syntax.Text && len(s) > 2 && s[0] == '"':
		f.out = append(f.out, edit{a, b, `""`, "dropped result", rankReturn})
	}
}

// continues reports a line that goes on with what the line before began.
func (f *tokenFinder) continues(i int) bool {
	switch f.at(i) {
	case ".", "?.", "&.", "->", "::", "&&", "||", "?", ":", "+", "and", "or", ")", "]", "}":
		return true
	}
	return false
}

// keywords begin statements that cannot be left out alone.
var keywords = []string{
	"return", "if", "elif", "elsif", "else", "unless", "while", "until", "for", "foreach", "loop", "with", "def", "class", "raise", "assert", "yield", "await", "throw", "case", "switch", "when", "match", "catch", "function", "fn", "super", "print",
	"let", "const", "var", "val", "static", "goto", "using", "lock", "use", "mod", "do", "try", "end", "begin", "rescue", "this", "self", "break", "continue", "del", "global", "nonlocal", "import", "from", "macro_rules", "require", "require_once", "include", "new", "delete", "typedef", "struct",
}

// statement deletes a call, or an assignment to something that is there already, that stands
// alone and begins at the token.
func (f *tokenFinder) statement(i int) {
	t := f.toks[i]
	before := f.at(i - 1)
	starts := before == ";" || before == "{" || before == "}" || i == 0
	open := f.l.lang == syntax.Python || f.l.lang == syntax.Ruby || f.l.lang == syntax.JavaScript || f.l.loose
	if open {
		starts = t.Indent >= 0 && (before == "" || !slices.Contains([]string{",", "(", "[", "=", ".", "&&", "||", "+", "?", ":", "=>"}, before) || before == ":" && f.l.lang == syntax.Python)
	}
	if !starts || t.Kind != syntax.Word || slices.Contains(keywords, t.Text) && !(f.at(i+1) == "." && (t.Text == "this" || t.Text == "self")) {
		return
	}
	j := f.chain(i)
	if j < 0 {
		return
	}
	ends := f.at(j) == ";" && f.toks[j].Depth == t.Depth
	alone := open && (j >= len(f.toks) || f.toks[j].Indent >= 0 && !f.continues(j) || f.at(j) == "}")
	if !ends && !alone {
		return
	}
	b := f.end(j - 1)
	by := ""
	switch {
	case f.l.lang == syntax.Python:
		by = "pass"
	case ends:
		b, by = f.end(j), ";"
	}
	f.out = append(f.out, edit{t.At, b, by, "deleted statement", rankDelete})
}

// chain returns the index after a call or an assignment that begins at i, -1 for anything else.
func (f *tokenFinder) chain(i int) int {
	d, call := f.toks[i].Depth, false
	j := i + 1
	for j < len(f.toks) {
		switch s := f.at(j); {
		case s == "." || s == "->" || s == "::" || s == "?." || s == "&.":
			j += 2
			call = false
			continue
		case s == "(" || s == "[":
			call = s == "("
			j = f.closing[j]
			continue
		case s == "++" || s == "--":
			return j + 1
		case s == "=" || assigning[s] != "" || s == "||=" || s == "??=" || s == "%=" || s == "|=" || s == "&=":
			for j++; j < len(f.toks) && f.toks[j].Depth >= d && !(f.at(j) == ";" && f.toks[j].Depth == d) && !(f.toks[j].Indent >= 0 && f.toks[j].Depth == d && !f.continues(j)); {
				if s := f.at(j); s == "(" || s == "[" || s == "{" {
					if s == "{" {
						return -1
					}
					j = max(f.closing[j], j+1)
					continue
				}
				if f.at(j) == "do" && f.l.lang == syntax.Ruby || f.at(j) == "if" && f.l.lang == syntax.Ruby {
					return -1
				}
				j++
			}
			return j
		}
		break
	}
	if call && j <= len(f.toks) {
		return j
	}
	return -1
}

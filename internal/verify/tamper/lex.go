package tamper

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokKind is what a token is.
type tokKind uint8

const (
	word tokKind = iota // identifiers and keywords
	number
	text // string literals, with their quotes
	punct
)

type token struct {
	kind   tokKind
	s      string
	line   int
	indent int  // column of the first token of a physical line, else -1
	depth  int  // brackets open around it; both brackets of a pair have the pair's own
	regex  bool // a JavaScript regular expression
}

// literal reports whether the token is a value written into the source.
func (t token) literal() bool {
	if t.kind == number || t.kind == text {
		return true
	}
	if t.kind == word {
		switch t.s {
		case "true", "false", "True", "False", "nil", "None", "null", "undefined", "NaN", "Infinity":
			return true
		}
	}
	return false
}

// lang is what the tokenizer must know of a language.
type lang uint8

const (
	langGo lang = iota
	langPython
	langJS
)

// lex splits source into tokens without comments and white space. It respects strings,
// template literals, regular expressions and nested brackets, accepts any input, and is linear.
func lex(src []byte, l lang) []token {
	x := lexer{s: string(src), l: l, line: 1, fresh: true}
	for x.i < len(x.s) {
		x.next()
	}
	return x.out
}

type lexer struct {
	s     string
	l     lang
	i     int
	line  int
	start int // of the physical line
	fresh bool
	depth int
	out   []token
}

func (x *lexer) next() {
	c := x.s[x.i]
	switch {
	case c == '\n':
		x.i++
		x.line++
		x.start, x.fresh = x.i, true
	case c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\\' && x.l == langPython:
		x.i++
	case x.l == langPython && c == '#':
		x.skipLine()
	case x.l != langPython && strings.HasPrefix(x.s[x.i:], "//"):
		x.skipLine()
	case x.l != langPython && strings.HasPrefix(x.s[x.i:], "/*"):
		end := strings.Index(x.s[x.i+2:], "*/")
		if end < 0 {
			end = len(x.s) - x.i - 4
		}
		x.advance(x.i + end + 4)
	case c == '"' || c == '\'' || c == '`' && x.l != langPython:
		x.emit(text, x.stringEnd(x.i))
	case c >= '0' && c <= '9' || c == '.' && x.i+1 < len(x.s) && x.s[x.i+1] >= '0' && x.s[x.i+1] <= '9':
		j := x.i
		for j < len(x.s) && (isWord(rune(x.s[j])) || x.s[j] == '.' || (x.s[j] == '-' || x.s[j] == '+') && (x.s[j-1] == 'e' || x.s[j-1] == 'E')) {
			j++
		}
		x.emit(number, max(j, x.i+1))
	case x.l == langJS && c == '/' && x.regexHere():
		x.emit(text, x.regexEnd())
		x.out[len(x.out)-1].regex = true
	default:
		x.wordOrPunct()
	}
}

func (x *lexer) wordOrPunct() {
	j := x.i
	for j < len(x.s) {
		r, n := utf8.DecodeRuneInString(x.s[j:])
		if !isWord(r) {
			break
		}
		j += n
	}
	if j > x.i {
		if x.l == langPython && j < len(x.s) && j-x.i <= 2 && (x.s[j] == '"' || x.s[j] == '\'') && strings.Trim(strings.ToLower(x.s[x.i:j]), "rbfu") == "" {
			x.emit(text, x.stringEnd(j))
			return
		}
		x.emit(word, j)
		return
	}
	for _, op := range []string{"===", "!==", ">>>", "...", "==", "!=", "<=", ">=", "&&", "||", "=>", ":=", "->", "??", "?.", "++", "--"} {
		if strings.HasPrefix(x.s[x.i:], op) {
			x.emit(punct, x.i+len(op))
			return
		}
	}
	_, n := utf8.DecodeRuneInString(x.s[x.i:])
	c := x.s[x.i]
	if c == ')' || c == ']' || c == '}' {
		x.depth = max(0, x.depth-1)
	}
	x.emit(punct, x.i+n)
	if c == '(' || c == '[' || c == '{' {
		x.depth++
	}
}

func isWord(r rune) bool { return r == '_' || r == '$' || unicode.IsLetter(r) || unicode.IsDigit(r) }

func (x *lexer) skipLine() {
	if n := strings.IndexByte(x.s[x.i:], '\n'); n >= 0 {
		x.i += n
		return
	}
	x.i = len(x.s)
}

// advance moves to j and counts the lines on the way.
func (x *lexer) advance(j int) {
	j = min(max(j, x.i+1), len(x.s))
	if n := strings.Count(x.s[x.i:j], "\n"); n > 0 {
		x.line += n
		x.start = x.i + strings.LastIndexByte(x.s[x.i:j], '\n') + 1
	}
	x.i = j
}

func (x *lexer) emit(k tokKind, end int) {
	indent := -1
	if x.fresh {
		indent, x.fresh = indentWidth(x.s[x.start:x.i]), false
	}
	end = min(end, len(x.s))
	x.out = append(x.out, token{kind: k, s: x.s[x.i:end], line: x.line, indent: indent, depth: x.depth})
	x.advance(end)
}

func indentWidth(s string) int {
	n := 0
	for _, c := range s {
		if c == '\t' {
			n += 8 - n%8
		} else {
			n++
		}
	}
	return n
}

// stringEnd finds the end of the string whose quote is at i. A string that may not span lines
// ends at the line.
func (x *lexer) stringEnd(i int) int {
	q := x.s[i : i+1]
	if x.l == langPython && strings.HasPrefix(x.s[i:], q+q+q) {
		q = q + q + q
	}
	multi := len(q) == 3 || q == "`"
	raw := x.l == langGo && q == "`"
	for j := i + len(q); j < len(x.s); {
		switch {
		case x.s[j] == '\\' && !raw:
			j += 2
		case x.s[j] == '\n' && !multi:
			return j
		case strings.HasPrefix(x.s[j:], q):
			return j + len(q)
		default:
			j++
		}
	}
	return len(x.s)
}

// regexHere reports whether a slash begins a regular expression rather than a division.
func (x *lexer) regexHere() bool {
	if len(x.out) == 0 {
		return true
	}
	t := x.out[len(x.out)-1]
	switch t.kind {
	case number, text:
		return false
	case word:
		return t.s == "return" || t.s == "typeof" || t.s == "case" || t.s == "of" || t.s == "in"
	}
	return t.s != ")" && t.s != "]" && t.s != "}"
}

func (x *lexer) regexEnd() int {
	class := false
	for j := x.i + 1; j < len(x.s); j++ {
		switch c := x.s[j]; {
		case c == '\\':
			j++
		case c == '\n':
			return x.i + 1
		case c == '[':
			class = true
		case c == ']':
			class = false
		case c == '/' && !class:
			for j++; j < len(x.s) && x.s[j] >= 'a' && x.s[j] <= 'z'; j++ {
			}
			return j
		}
	}
	return x.i + 1
}

// join gives tokens as text with one space between them.
func join(toks []token) string {
	var b strings.Builder
	for i, t := range toks {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(t.s)
	}
	return b.String()
}

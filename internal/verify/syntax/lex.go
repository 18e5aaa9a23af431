package syntax

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Lex splits source into tokens. A text of no known language has none.
func Lex(src []byte, l Lang) []Token {
	if l == None {
		return nil
	}
	x := lexer{s: string(src), l: l, line: 1, fresh: true}
	for x.i < len(x.s) {
		x.next()
	}
	return x.out
}

type lexer struct {
	s     string
	l     Lang
	i     int
	line  int
	start int // of the physical line
	fresh bool
	depth int
	docs  []heredoc // begun on this line, whose text begins on the next
	out   []Token

	missLine, misses int // slashes that began no regular expression
}

// heredoc is a text that ends at a line of its own.
type heredoc struct {
	id    string
	token int // its place in out
}

func (x *lexer) next() {
	c, rest := x.s[x.i], x.s[x.i:]
	switch {
	case c == '\n':
		x.i++
		x.line++
		x.start, x.fresh = x.i, true
		if len(x.docs) > 0 {
			x.heredocs()
		}
	case c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v' || c == '\\' && x.continues():
		x.i++
	case x.comment(c, rest):
	case x.textStart(c, rest):
	case c >= '0' && c <= '9' || c == '.' && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9':
		x.emit(Number, x.numberEnd())
	case c == '/' && (x.l == JavaScript || x.l == Ruby) && x.regexHere():
		x.emit(Text, x.regexEnd())
		x.out[len(x.out)-1].Regex = true
	default:
		x.wordOrPunct()
	}
}

// continues reports languages in which a backslash joins lines.
func (x *lexer) continues() bool { return x.l == Python || x.l == Ruby || x.l == C }

// comment leaves out a comment, or a part that is never compiled.
func (x *lexer) comment(c byte, rest string) bool {
	hash := x.l == Python || x.l == Ruby || x.l == PHP && !strings.HasPrefix(rest, "#[")
	slash := x.l != Python && x.l != Ruby
	switch {
	case c == '#' && hash, slash && strings.HasPrefix(rest, "//"):
		x.skipLine()
	case slash && strings.HasPrefix(rest, "/*"):
		x.blockComment(rest)
	case x.l == Ruby && x.i == x.start && strings.HasPrefix(rest, "=begin"):
		x.skipTo("\n=end")
		x.skipLine()
	case x.l == Ruby && x.i == x.start && strings.HasPrefix(rest, "__END__"):
		x.advance(len(x.s))
	case x.l == PHP && strings.HasPrefix(rest, "<?php"):
		x.advance(x.i + 5)
	case x.l == PHP && (strings.HasPrefix(rest, "?>") || strings.HasPrefix(rest, "<?")):
		x.advance(x.i + 2)
	case c == '#' && x.fresh && (x.l == C || x.l == CSharp) && neverBuilt(rest):
		x.uncompiled()
	default:
		return false
	}
	return true
}

func (x *lexer) skipTo(end string) {
	n := strings.Index(x.s[x.i:], end)
	if n < 0 {
		x.advance(len(x.s))
		return
	}
	x.advance(x.i + n + len(end))
}

// blockComment leaves out a comment; Rust's may hold others. What PHPUnit reads in a comment
// becomes the attribute that says the same.
func (x *lexer) blockComment(rest string) {
	end := len(rest)
	if x.l == Rust {
		depth := 0
		for j := 0; j+1 < len(rest); j++ {
			switch rest[j : j+2] {
			case "/*":
				depth++
				j++
			case "*/":
				depth--
				j++
			}
			if depth == 0 {
				end = j + 1
				break
			}
		}
	} else if n := strings.Index(rest[2:], "*/"); n >= 0 {
		end = n + 4
	}
	if x.l == PHP && strings.HasPrefix(rest, "/**") {
		for _, w := range []string{"test", "doesNotPerformAssertions", "dataProvider", "expectedException"} {
			if hasTag(rest[:end], w) {
				for _, s := range []string{"#", "[", w, "]"} {
					k := Punct
					if s == w {
						k = Word
					}
					x.out = append(x.out, Token{Kind: k, Text: s, Line: x.line, Indent: -1, Depth: x.depth, At: x.i})
				}
			}
		}
	}
	x.advance(x.i + end)
}

func hasTag(comment, tag string) bool {
	_, after, ok := strings.Cut(comment, "@"+tag)
	return ok && (after == "" || !isWord(rune(after[0])))
}

// neverBuilt reports a condition of the preprocessor that never holds.
func neverBuilt(rest string) bool {
	line, _, _ := strings.Cut(rest[1:], "\n")
	f := strings.Fields(line)
	return len(f) >= 2 && f[0] == "if" && (f[1] == "0" || f[1] == "false")
}

// uncompiled leaves out lines up to the #else or #endif that belongs to the #if here.
func (x *lexer) uncompiled() {
	depth := 0
	for x.i < len(x.s) {
		line, _, _ := strings.Cut(x.s[x.i:], "\n")
		word := ""
		if s, ok := strings.CutPrefix(strings.TrimSpace(line), "#"); ok {
			if f := strings.Fields(s); len(f) > 0 {
				word = f[0]
			}
		}
		switch {
		case strings.HasPrefix(word, "if"):
			depth++
		case word == "endif":
			depth--
		}
		x.advance(x.i + len(line) + 1)
		if depth == 0 || depth == 1 && (word == "else" || word == "elif") {
			break
		}
	}
	x.start, x.fresh = x.i, true
}

func (x *lexer) numberEnd() int {
	j := x.i
	for j < len(x.s) {
		c := x.s[j]
		switch {
		case isWord(rune(c)):
		case c == '.' && !(j+1 < len(x.s) && (x.s[j+1] == '.' || unicode.IsLetter(rune(x.s[j+1])) && (x.l == Ruby || x.l == Rust))):
		case c == '\'' && x.l == C && j+1 < len(x.s) && isWord(rune(x.s[j+1])):
		case (c == '-' || c == '+') && j > x.i && (x.s[j-1] == 'e' || x.s[j-1] == 'E') && !strings.HasPrefix(strings.ToLower(x.s[x.i:]), "0x"):
		default:
			return max(j, x.i+1)
		}
		j++
	}
	return max(j, x.i+1)
}

var operators = []string{
	"<<=", ">>=", "===", "!==", ">>>", "...", "<=>", "**=", "??=", "&&=", "||=", "==", "!=", "<=", ">=", "&&", "||", "=>", ":=", "->", "??", "?.", "++", "--", "::", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "=~", "!~", "..",
}

func (x *lexer) wordOrPunct() {
	j := x.i
	if (x.l == Ruby || x.l == PHP) && (x.s[j] == '@' || x.s[j] == '$') {
		for j < min(len(x.s), x.i+2) && (x.s[j] == '@' || x.s[j] == '$') {
			j++
		}
		if j < len(x.s) && !isWord(rune(x.s[j])) {
			j = x.i
		}
	}
	for j < len(x.s) {
		r, n := utf8.DecodeRuneInString(x.s[j:])
		if !isWord(r) {
			break
		}
		j += n
	}
	if j > x.i {
		if x.l == Ruby && j < len(x.s) && (x.s[j] == '?' || x.s[j] == '!') && (j+1 >= len(x.s) || x.s[j+1] != '=') {
			j++
		}
		x.emit(Word, j)
		return
	}
	rest := x.s[x.i:]
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			x.emit(Punct, x.i+len(op))
			return
		}
	}
	_, n := utf8.DecodeRuneInString(rest)
	c := rest[0]
	if c == ')' || c == ']' || c == '}' {
		x.depth = max(0, x.depth-1)
	}
	x.emit(Punct, x.i+n)
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

func (x *lexer) emit(k Kind, end int) {
	indent := -1
	if x.fresh {
		indent, x.fresh = indentWidth(x.s[x.start:x.i]), false
	}
	end = min(end, len(x.s))
	x.out = append(x.out, Token{Kind: k, Text: x.s[x.i:end], Line: x.line, Indent: indent, Depth: x.depth, At: x.i})
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

// last is the token before, or none.
func (x *lexer) last() (Token, bool) {
	if len(x.out) == 0 {
		return Token{}, false
	}
	return x.out[len(x.out)-1], true
}

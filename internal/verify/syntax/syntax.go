// Package syntax reads source text of the languages that tests are written in as tokens:
// words, numbers, strings and punctuation, with the line, the indent and the brackets around
// each. Comments and what a preprocessor never compiles are left out.
//
// Invariants: it is pure and accepts any bytes; time and memory are linear in the text, whatever
// is in it; a token's text is the source's own, at [Token.At].
package syntax

import (
	"path"
	"slices"
	"strings"
)

// Lang is a language whose tokens are known.
type Lang uint8

// The languages. None is any other.
const (
	None Lang = iota
	Go
	Python
	JavaScript // with TypeScript
	Java
	CSharp
	Rust
	C // with C++
	PHP
	Ruby
)

// String is the language's name.
func (l Lang) String() string {
	return [...]string{"unknown", "Go", "Python", "JavaScript", "Java", "C#", "Rust", "C", "PHP", "Ruby"}[min(l, Ruby)]
}

// Of tells the language from a path's extension.
func Of(p string) Lang {
	switch strings.ToLower(path.Ext(p)) {
	case ".go":
		return Go
	case ".py", ".pyi":
		return Python
	case ".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts":
		return JavaScript
	case ".java":
		return Java
	case ".cs":
		return CSharp
	case ".rs":
		return Rust
	case ".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh", ".hxx", ".inl":
		return C
	case ".php", ".phpt":
		return PHP
	case ".rb", ".rake":
		return Ruby
	}
	return None
}

// Kind is what a token is.
type Kind uint8

// The kinds.
const (
	Word   Kind = iota // identifiers and keywords
	Number             // without a sign
	Text               // string and character literals and regular expressions, with their quotes
	Punct
)

// Token is one token.
type Token struct {
	Kind   Kind
	Text   string
	Line   int  // counts from 1
	Indent int  // column of the first token of a physical line, else -1
	Depth  int  // brackets open around it; both brackets of a pair have the pair's own
	At     int  // offset in bytes
	Regex  bool // a regular expression
}

// Literal reports whether the token is a value written into the source.
func (t Token) Literal() bool {
	if t.Kind == Number || t.Kind == Text {
		return true
	}
	if t.Kind == Word {
		switch t.Text {
		case "true", "false", "True", "False", "TRUE", "FALSE", "nil", "None", "null", "NULL", "nullptr", "undefined", "NaN", "Infinity":
			return true
		}
	}
	return false
}

// Partners gives, for every opening bracket, the index after the one that closes it, and the
// number of tokens where there is none. Brackets of different shapes are not told apart.
func Partners(toks []Token) []int {
	out := make([]int, len(toks))
	var open []int
	for i, t := range toks {
		out[i] = len(toks)
		if t.Kind != Punct {
			continue
		}
		switch t.Text {
		case "(", "[", "{":
			open = append(open, i)
		case ")", "]", "}":
			if n := len(open); n > 0 {
				out[open[n-1]] = i + 1
				open = open[:n-1]
			}
		}
	}
	return out
}

// Join gives tokens as text with one space between them.
func Join(toks []Token) string {
	var b strings.Builder
	for i, t := range toks {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(t.Text)
	}
	return b.String()
}

// Has reports whether one of the words is among the tokens.
func Has(toks []Token, words ...string) bool {
	return slices.ContainsFunc(toks, func(t Token) bool { return slices.Contains(words, t.Text) })
}

// Package mutate takes a change apart: the hunks of a file's difference, so that each can be
// undone alone, and small mutants of its changed lines, by operators of the file's language.
//
// Invariants: pure, the same input gives the same output in the same order; any bytes are
// accepted and work is bounded; strings and comments are never mutated where the language is
// known, and a file of an unknown language has no mutants.
package mutate

import (
	"bytes"
	"path"
	"slices"
	"strings"
)

// Hunk is a run of lines that differ, with no unchanged line inside. Lines count from 1; a
// start is the line before which the hunk stands where it has no lines on that side.
type Hunk struct {
	OldStart, OldLines int
	NewStart, NewLines int
}

// maxCells bounds the table of a difference: 4 million comparisons.
const maxCells = 4 << 20

// Hunks compares two texts line by line. A difference too large to be taken apart is one hunk.
func Hunks(before, after []byte) []Hunk {
	a, b := lines(before), lines(after)
	lead := 0
	for lead < len(a) && lead < len(b) && bytes.Equal(a[lead], b[lead]) {
		lead++
	}
	trail := 0
	for trail < len(a)-lead && trail < len(b)-lead && bytes.Equal(a[len(a)-1-trail], b[len(b)-1-trail]) {
		trail++
	}
	a, b = a[lead:len(a)-trail], b[lead:len(b)-trail]
	if len(a) == 0 && len(b) == 0 {
		return nil
	}
	if len(a) == 0 || len(b) == 0 || len(a)*len(b) > maxCells {
		return []Hunk{{lead + 1, len(a), lead + 1, len(b)}}
	}
	var out []Hunk
	i, j := 0, 0
	for _, m := range common(a, b) {
		if m.i > i || m.j > j {
			out = append(out, Hunk{lead + i + 1, m.i - i, lead + j + 1, m.j - j})
		}
		i, j = m.i+1, m.j+1
	}
	if i < len(a) || j < len(b) {
		out = append(out, Hunk{lead + i + 1, len(a) - i, lead + j + 1, len(b) - j})
	}
	return out
}

type match struct{ i, j int }

// common is a longest common subsequence.
func common(a, b [][]byte) []match {
	w := len(b) + 1
	table := make([]int32, (len(a)+1)*w)
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if bytes.Equal(a[i], b[j]) {
				table[i*w+j] = table[(i+1)*w+j+1] + 1
			} else {
				table[i*w+j] = max(table[(i+1)*w+j], table[i*w+j+1])
			}
		}
	}
	var out []match
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case bytes.Equal(a[i], b[j]):
			out = append(out, match{i, j})
			i, j = i+1, j+1
		case table[(i+1)*w+j] >= table[i*w+j+1]:
			i++
		default:
			j++
		}
	}
	return out
}

// lines splits a text and keeps the line ends.
func lines(b []byte) [][]byte {
	out := bytes.SplitAfter(b, []byte("\n"))
	if n := len(out); n > 0 && len(out[n-1]) == 0 {
		out = out[:n-1]
	}
	return out
}

// Revert is the text with one hunk of its difference undone.
func Revert(before, after []byte, hunks ...Hunk) []byte {
	a, b := lines(before), lines(after)
	sorted := slices.Clone(hunks)
	slices.SortFunc(sorted, func(x, y Hunk) int { return y.NewStart - x.NewStart })
	out := slices.Clone(b)
	for _, h := range sorted {
		old := a[h.OldStart-1 : h.OldStart-1+h.OldLines]
		out = slices.Concat(out[:h.NewStart-1], old, out[h.NewStart-1+h.NewLines:])
	}
	return bytes.Join(out, nil)
}

// language says how a file's comments and strings look, and what its operators are.
type language struct {
	name  string
	line  []string // start of a comment that ends with the line
	block bool     // /* … */
	words bool     // and, or, not, True, False
	typed bool     // a return cannot just drop its value
}

func languageOf(p string) (language, bool) {
	c := func(name string, typed bool) (language, bool) {
		return language{name: name, line: []string{"//"}, block: true, typed: typed}, true
	}
	switch strings.ToLower(path.Ext(p)) {
	case ".go":
		return c("go", true)
	case ".py":
		return language{name: "python", line: []string{"#"}, words: true}, true
	case ".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".mts", ".cts":
		return c("javascript", false)
	case ".java", ".kt", ".scala", ".cs", ".swift", ".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh":
		return c("c", true)
	case ".rs":
		return c("rust", true)
	case ".php":
		return language{name: "php", line: []string{"//", "#"}, block: true}, true
	case ".rb":
		return language{name: "ruby", line: []string{"#"}}, true
	}
	return language{}, false
}

// Code reports whether the lines of the text hold code of a known language: more than
// comments, blank lines and brackets.
func Code(p string, text []byte, from, n int) bool {
	l, ok := languageOf(p)
	if !ok {
		return false
	}
	m := mask(text, l)
	for i, line := range lines(m) {
		if i+1 < from || i+1 >= from+n {
			continue
		}
		s := strings.TrimSpace(string(line))
		if strings.Trim(s, "(){}[];,\" \t") == "" || imports(l, s) {
			continue
		}
		return true
	}
	return false
}

// imports reports whether a line only names what another line uses.
func imports(l language, s string) bool {
	for _, word := range []string{"import ", "from ", "package ", "use ", "using ", "#include", "require "} {
		if strings.HasPrefix(s, word) && (l.name != "c" || word != "from ") {
			return true
		}
	}
	return false
}

// mask is the text with the insides of strings and comments blanked, byte for byte as long.
// Quotes of strings stay.
func mask(text []byte, l language) []byte {
	out := slices.Clone(text)
	blank := func(from, to int) {
		for i := from; i < to && i < len(out); i++ {
			if out[i] != '\n' {
				out[i] = ' '
			}
		}
	}
	for i := 0; i < len(text); {
		rest := text[i:]
		switch {
		case slices.ContainsFunc(l.line, func(s string) bool { return bytes.HasPrefix(rest, []byte(s)) }):
			end := bytes.IndexByte(rest, '\n')
			if end < 0 {
				end = len(rest)
			}
			blank(i, i+end)
			i += end
		case l.block && bytes.HasPrefix(rest, []byte("/*")):
			end := len(rest)
			if at := bytes.Index(rest[2:], []byte("*/")); at >= 0 {
				end = at + 4
			}
			blank(i, i+end)
			i += end
		case rest[0] == '"' || rest[0] == '\'' || rest[0] == '`':
			n := stringLength(rest, l)
			blank(i+1, i+n-1)
			i += n
		default:
			i++
		}
	}
	return out
}

// stringLength is the length of the string literal at the start of s. A quote that is no
// literal (a lifetime, an apostrophe) counts as itself.
func stringLength(s []byte, l language) int {
	q := s[0]
	if l.words && len(s) >= 3 && s[1] == q && s[2] == q {
		if at := bytes.Index(s[3:], []byte{q, q, q}); at >= 0 {
			return at + 6
		}
		return len(s)
	}
	multi := q == '`' || l.name == "php" || l.name == "ruby" || l.name == "rust" && q == '"'
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && (q != '`' || l.name != "go"):
			i++
		case s[i] == q:
			if l.name == "rust" && q == '\'' && i > 4 {
				return 1
			}
			return i + 1
		case s[i] == '\n' && !multi:
			return 1
		}
	}
	return 1
}

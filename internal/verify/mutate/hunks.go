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

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
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

// language is how a file is read.
type language struct {
	lang  syntax.Lang
	words bool // and, or, not
	loose bool // a line's end may end a statement
}

func languageOf(p string) (language, bool) {
	l := syntax.Of(p)
	switch strings.ToLower(path.Ext(p)) {
	case ".kt", ".kts", ".scala", ".swift", ".groovy": // near enough, word by word
		return language{lang: syntax.Java, loose: true}, true
	}
	return language{lang: l, words: l == syntax.Python || l == syntax.Ruby || l == syntax.PHP}, l != syntax.None
}

// Code reports whether the lines of the text hold code of a known language: more than
// comments, blank lines, brackets, texts that stand alone and imports.
func Code(p string, text []byte, from, n int) bool {
	l, ok := languageOf(p)
	if !ok {
		return false
	}
	toks := syntax.Lex(text, l.lang)
	for i, t := range toks {
		if t.Line < from || t.Line >= from+n || t.Kind == syntax.Text && (i == 0 || toks[i-1].Line != t.Line) && (i+1 == len(toks) || toks[i+1].Line != t.Line) {
			continue
		}
		if t.Kind == syntax.Punct && strings.Contains("(){}[];,", t.Text) {
			continue
		}
		first := i
		for first > 0 && toks[first-1].Line == t.Line {
			first--
		}
		if !imports(l, lineOf(text, toks[first].At)) {
			return true
		}
	}
	return false
}

// imports reports whether a line only names what another line uses.
func imports(l language, s string) bool {
	for _, word := range []string{"import ", "from ", "package ", "use ", "using ", "#include", "require "} {
		if strings.HasPrefix(s, word) && (l.lang == syntax.Python || l.lang == syntax.JavaScript || word != "from ") {
			return true
		}
	}
	return false
}

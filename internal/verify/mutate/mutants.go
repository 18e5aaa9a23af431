package mutate

import (
	"bytes"
	"cmp"
	"go/parser"
	"go/token"
	"regexp"
	"slices"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// Mutant is a file with one small change.
type Mutant struct {
	Line     int    // of the change
	Operator string // "negated condition", "swapped operator", …
	Old, New string // the changed part
	Text     []byte // the whole file
}

// edit replaces bytes of a file.
type edit struct {
	from, to int
	by       string
	operator string
	rank     int // the stronger the change, the lower
}

// The operators, strongest first: what a test that looks at the line must notice comes before
// what may well be the same behaviour.
const (
	rankNegate = iota
	rankDelete
	rankSwap
	rankReturn
	rankConstant
	rankBoundary
)

// generated are what tools write at the head of their files.
var generated = regexp.MustCompile(`(?i)code generated .*do not edit|@generated\b|auto-?generated|this file (is|was) (automatically )?generated`)

// Mutants makes up to max mutants of the lines, spread over them, strongest first. A file that
// is not understood, or was made by a tool, has none; nor have imports, types and annotations.
func Mutants(p string, text []byte, changed map[int]bool, max int) []Mutant {
	l, ok := languageOf(p)
	if !ok || len(changed) == 0 || len(text) > 2<<20 || generated.Match(text[:min(len(text), 2<<10)]) {
		return nil
	}
	var edits []edit
	if l.lang == syntax.Go {
		edits = goEdits(text, changed)
	} else {
		edits = tokenEdits(text, l, changed)
	}
	return choose(text, edits, max, l)
}

// choose takes turns between lines, each time the strongest edit left.
func choose(text []byte, edits []edit, limit int, l language) []Mutant {
	byLine := map[int][]edit{}
	for _, e := range edits {
		n := 1 + bytes.Count(text[:e.from], []byte("\n"))
		byLine[n] = append(byLine[n], e)
	}
	var order []int
	for n, list := range byLine {
		order = append(order, n)
		slices.SortStableFunc(list, func(a, b edit) int {
			return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.from, b.from), cmp.Compare(a.by, b.by))
		})
	}
	slices.Sort(order)
	var out []Mutant
	for turn := 0; len(out) < limit; turn++ {
		any := false
		for _, n := range order {
			if turn >= len(byLine[n]) || len(out) == limit {
				continue
			}
			any = true
			e := byLine[n][turn]
			m := Mutant{
				Line: n, Operator: e.operator, Old: string(text[e.from:e.to]), New: e.by,
				Text: slices.Concat(text[:e.from], []byte(e.by), text[e.to:]),
			}
			if m.Old != m.New && parses(m.Text, l) {
				out = append(out, m)
			}
		}
		if !any {
			break
		}
	}
	return out
}

// parses is the cheap check that there is: Go's parser, balanced brackets elsewhere.
func parses(text []byte, l language) bool {
	if l.lang == syntax.Go {
		_, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
		return err == nil
	}
	toks := syntax.Lex(text, l.lang)
	open := 0
	for _, t := range toks {
		if t.Kind == syntax.Punct {
			switch t.Text {
			case "(", "[", "{":
				open++
			case ")", "]", "}":
				open--
			}
		}
	}
	return open == 0
}

package tamper

import (
	"fmt"
	"slices"
	"strings"
)

// assertion is one check of a test in comparable form.
type assertion struct {
	toks     []token
	line     int
	strength int // 3 equality, 2 a pattern or a range, 1 existence or truth
}

func (a assertion) text() string { return join(a.toks) }

// unit is a test, or another top-level piece of a test file that tests may lean on.
type unit struct {
	name    string
	line    int
	test    bool
	toks    []token // whole text, decorators included
	body    []token
	asserts []assertion
	subs    []string // names of literal subtests
	skip    skipKind
	skipAt  int
	focus   bool
	empty   bool // nothing is executed
	joined  string
}

// bodyText is the body in comparable form, made once.
func (u *unit) bodyText() string {
	if u.joined == "" {
		u.joined = join(u.body)
	}
	return u.joined
}

type skipKind uint8

const (
	runs skipKind = iota
	skipsSometimes
	skips
)

// model is what is compared of one test file.
type model struct {
	units  []unit
	broken string // why the file could not be read
}

// byName indexes the units. Names that come twice, such as Go's init, get "#2".
func (m *model) byName() map[string]*unit {
	out := make(map[string]*unit, len(m.units))
	seen := map[string]int{}
	for i := range m.units {
		u := &m.units[i]
		if seen[u.name]++; seen[u.name] > 1 {
			u.name = fmt.Sprintf("%s#%d", u.name, seen[u.name])
		}
		out[u.name] = u
	}
	return out
}

// polarity are words that turn a check around; they are equal in a skeleton.
var polarity = map[string]bool{
	"==": true, "!=": true, "===": true, "!==": true, "<": true, ">": true, "<=": true, ">=": true, "!": true, "not": true, "is": true,
	"assertTrue": true, "assertFalse": true, "NoError": true, "Error": true, "True": true, "False": true, "Nil": true, "NotNil": true,
	"toBeTruthy": true, "toBeFalsy": true, "assertIsNone": true, "assertIsNotNone": true, "Empty": true, "NotEmpty": true,
}

// negations are left out of a skeleton, so that adding one leaves it equal.
var negations = map[string]bool{"!": true, "not": true}

// skeleton is text without its values and without the sense of its comparisons: two checks
// with one skeleton differ only in what they expect.
func skeleton(toks []token) string {
	var b strings.Builder
	for i, t := range toks {
		switch {
		case negations[t.s]:
			if i+1 < len(toks) && toks[i+1].s == "." { // expect(x).not.toBe
				continue
			}
			continue
		case t.s == "." && i > 0 && negations[toks[i-1].s]:
			continue
		case polarity[t.s] && !t.literal() || t.s == "True" && i > 0 && toks[i-1].s == ".":
			b.WriteString("± ")
		case t.literal():
			b.WriteString("▢ ")
		case t.s == "-" && i+1 < len(toks) && toks[i+1].kind == number:
		default:
			b.WriteString(t.s)
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// literals are the values in tokens, sorted.
func literals(toks []token) []string {
	var out []string
	for i, t := range toks {
		if t.literal() {
			s := t.s
			if t.kind == text {
				s = `"` + unquote(s) + `"`
			}
			if i > 0 && toks[i-1].s == "-" && t.kind == number {
				s = "-" + s
			}
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

// unquote takes the quotes and prefix off a string token, without reading its escapes.
func unquote(s string) string {
	s = strings.TrimLeft(s, "rRbBfFuU")
	for _, q := range []string{`"""`, `'''`, `"`, `'`, "`"} {
		if rest, ok := strings.CutPrefix(s, q); ok {
			return strings.TrimSuffix(rest, q)
		}
	}
	return s
}

// within reports whether every element of a is in b, counting repeats. Both are sorted.
func within(a, b []string) bool {
	j := 0
	for _, s := range a {
		for j < len(b) && b[j] < s {
			j++
		}
		if j >= len(b) || b[j] != s {
			return false
		}
		j++
	}
	return true
}

// wordCount counts the words and values of a check.
func wordCount(toks []token) (count map[string]int, total int) {
	count = map[string]int{}
	for _, t := range toks {
		if t.kind == word || t.literal() {
			count[t.s]++
			total++
		}
	}
	return count, total
}

// likeness is the share of words a check has in common with the counted one, 0 to 1.
func likeness(count map[string]int, total int, b []token) float64 {
	m, common := 0, 0
	used := make(map[string]int, len(b))
	for _, t := range b {
		if t.kind == word || t.literal() {
			m++
			if used[t.s] < count[t.s] {
				used[t.s]++
				common++
			}
		}
	}
	if total+m == 0 {
		return 0
	}
	return 2 * float64(common) / float64(total+m)
}

// rows groups tokens by the physical line they begin on.
func rows(toks []token) [][]token {
	var out [][]token
	for i := 0; i < len(toks); {
		j := i
		for j < len(toks) && toks[j].line == toks[i].line {
			j++
		}
		out = append(out, toks[i:j])
		i = j
	}
	return out
}

// rowKey is a row's text without trailing commas, which come and go with neighbours.
func rowKey(row []token) string { return strings.TrimSuffix(join(row), " ,") }

// strengthOf grades the words of a check: the strongest that it names.
func strengthOf(toks []token) int {
	s := 1
	for i, t := range toks {
		if t.kind != word && t.kind != punct {
			continue
		}
		before := ""
		if i > 0 {
			before = toks[i-1].s
		}
		if before == "." && i > 1 && negations[toks[i-2].s] {
			before = "not"
		}
		switch strings.TrimSuffix(t.s, "f") {
		case "==", "===", "Equal", "EqualValues", "Exactly", "EqualError", "ErrorIs", "JSONEq", "YAMLEq", "ElementsMatch", "DeepEqual", "Diff", "Same",
			"toBe", "toEqual", "toStrictEqual", "strictEqual", "deepEqual", "deepStrictEqual", "equal", "equals", "eql", "same", "is", "toThrowErrorMatchingInlineSnapshot", "toMatchSnapshot", "toMatchInlineSnapshot",
			"assertEqual", "assertEquals", "assertIs", "assertListEqual", "assertDictEqual", "assertSetEqual", "assertTupleEqual", "assertCountEqual", "assertSequenceEqual", "assertMultiLineEqual",
			"assert_called_once_with", "assert_called_with", "assert_has_calls", "toHaveBeenCalledWith", "toHaveBeenNthCalledWith", "toHaveLength", "Len", "calledWith":
			if before == "not" || before == "!" {
				s = max(s, 1)
				continue
			}
			if t.s == "is" && (before == "." || i == 0) || t.s != "is" {
				s = 3
			} else if i+1 < len(toks) && toks[i+1].s != "not" {
				s = 3
			}
		case "toContain", "toContainEqual", "toMatch", "toMatchObject", "toBeCloseTo", "toHaveProperty", "toBeInstanceOf", "Contains", "Subset", "Regexp", "InDelta", "InEpsilon", "WithinDuration", "ErrorContains", "ErrorAs", "HasPrefix", "HasSuffix", "MatchString",
			"assertIn", "assertAlmostEqual", "assertRegex", "assertRaisesRegex", "assertDictContainsSubset", "assertIsInstance", "approx", "in", "match", "include", "includes", "toHaveBeenCalledTimes":
			s = max(s, 2)
		}
	}
	return s
}

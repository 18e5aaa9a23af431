package tamper

import (
	"fmt"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

type token = syntax.Token

func join(toks []token) string { return syntax.Join(toks) }

// assertion is one check of a test in comparable form.
type assertion struct {
	toks     []token
	line     int
	strength int // 4 identity, 3 equality, 2 a pattern or a range, 1 existence or truth
	pos      int // index of its first token in the unit's body
	guard    guard
	by       string // what makes it, where that is code which is not looked into
	why      string // why it never runs, for those that do not
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
	dead    []assertion // checks where nothing runs them
	subs    []string    // names of literal subtests
	skip    skipKind
	skipAt  int
	focus   bool
	empty   bool   // nothing is executed
	weak    string // why failures of the whole test do not count
	joined  string
}

// untilPasses is why a failure of a test does not count that is tried again.
const untilPasses = "it is now tried again where it fails"

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
	torn   bool   // its brackets do not balance: what belongs together is not known
}

// torn reports brackets without a partner.
func torn(toks []token) bool {
	open := 0
	for _, t := range toks {
		if t.Kind != syntax.Punct {
			continue
		}
		switch t.Text {
		case "(", "[", "{":
			open++
		case ")", "]", "}":
			if open--; open < 0 {
				return true
			}
		}
	}
	return open != 0
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
		case negations[t.Text]:
			if i+1 < len(toks) && toks[i+1].Text == "." { // expect(x).not.toBe
				continue
			}
			continue
		case t.Text == "." && i > 0 && negations[toks[i-1].Text]:
			continue
		case polarity[t.Text] && !t.Literal() || t.Text == "True" && i > 0 && toks[i-1].Text == ".":
			b.WriteString("± ")
		case t.Literal():
			b.WriteString("▢ ")
		case t.Text == "-" && i+1 < len(toks) && toks[i+1].Kind == syntax.Number:
		default:
			b.WriteString(t.Text)
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// literals are the values in tokens, sorted.
func literals(toks []token) []string {
	var out []string
	for i, t := range toks {
		if t.Literal() {
			s := t.Text
			if t.Kind == syntax.Text {
				s = `"` + unquote(s) + `"`
			}
			if i > 0 && toks[i-1].Text == "-" && t.Kind == syntax.Number {
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
	if i := strings.IndexAny(s, "\"'`"); i > 0 && strings.Trim(s[:i], "rRbBfFuUtTL8@$#") == "" {
		s = s[i:]
	}
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
		if t.Kind == syntax.Word || t.Literal() {
			count[t.Text]++
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
		if t.Kind == syntax.Word || t.Literal() {
			m++
			if used[t.Text] < count[t.Text] {
				used[t.Text]++
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
		for j < len(toks) && toks[j].Line == toks[i].Line {
			j++
		}
		out = append(out, toks[i:j])
		i = j
	}
	return out
}

// rowKey is a row's text without trailing commas, which come and go with neighbours.
func rowKey(row []token) string { return strings.TrimSuffix(join(row), " ,") }

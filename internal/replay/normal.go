package replay

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Rule is something that may differ between two runs of the same thing.
type Rule struct {
	Name string
	find *regexp.Regexp
	put  string
}

// Rules lists what may differ, in the order in which it is looked for.
func Rules() []Rule {
	return []Rule{
		{"clock time", regexp.MustCompile(`\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z| ?[+-]\d\d:?\d\d)?|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d{1,2} +\d\d:\d\d\b|\b\d\d:\d\d:\d\d(?:\.\d+)?\b`), "<time>"},
		{"duration", regexp.MustCompile(`\b(?:\d+(?:\.\d+)?(?:h|m)){0,2}\d+(?:\.\d+)?(?:e-\d+)? ?(?:ns|µs|us|ms|s|secs?|seconds?)\b(?: \(\d+:\d\d:\d\d\))?|\b(duration_ms|time=|elapsed)[^\d\n]{0,3}\d+(?:\.\d+)?`), "<duration>"},
		{"ruler", regexp.MustCompile(`={4,}|-{4,}|_{4,}`), "----"}, // as long as the rest of its line leaves room
		{"temporary path", regexp.MustCompile(`/tmp/[\w.+-]*\d[\w.+-]*`), "/tmp/<name>"},
		{"process number", regexp.MustCompile(`\b(?i:process|pid|goroutine)[ =:]+\d+`), "<process>"},
		{"address", regexp.MustCompile(`\b0x[0-9a-f]{5,}\b|\+0x[0-9a-f]+\b`), "<address>"},
		{"frame mark", regexp.MustCompile(`\b(result|issue|AGENTS\.md)-[0-9a-f]{16}\b`), "<mark>"},
	}
}

// normaliser applies the rules and counts those that explain a difference.
type normaliser struct {
	rules []Rule
	used  map[string]int
}

func (n *normaliser) apply(s string) string {
	for _, r := range n.rules {
		s = r.find.ReplaceAllString(s, r.put)
	}
	return s
}

// equal compares two texts. What they differ in after normalising is the diff.
func (n *normaliser) equal(recorded, now string) (diff string, ok bool) {
	if recorded == now {
		return "", true
	}
	a, b := recorded, now
	for _, r := range n.rules {
		if a == b {
			break
		}
		x, y := r.find.FindAllString(a, -1), r.find.FindAllString(b, -1)
		if !slices.Equal(x, y) {
			n.used[r.Name]++
		}
		a, b = r.find.ReplaceAllString(a, r.put), r.find.ReplaceAllString(b, r.put)
	}
	if a == b {
		return "", true
	}
	return shortDiff(a, b), false
}

// Bounds of a diff for people.
const (
	diffLines = 8 // of each side
	diffWidth = 200
)

// shortDiff shows where two texts begin to differ, and how.
func shortDiff(recorded, now string) string {
	if recorded == now {
		return ""
	}
	a, b := strings.Split(recorded, "\n"), strings.Split(now, "\n")
	from := 0
	for from < len(a) && from < len(b) && a[from] == b[from] {
		from++
	}
	tail := 0
	for tail < len(a)-from && tail < len(b)-from && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var out strings.Builder
	if from > 0 {
		fmt.Fprintf(&out, "  %s\n", cut(a[from-1], b[min(from-1, len(b)-1)]))
	}
	side := func(mark string, lines, other []string) {
		for i, l := range lines {
			if i == diffLines {
				fmt.Fprintf(&out, "%s … %d more lines\n", mark, len(lines)-i)
				break
			}
			o := ""
			if i < len(other) {
				o = other[i]
			}
			fmt.Fprintf(&out, "%s %s\n", mark, cut(l, o))
		}
	}
	olds, news := a[from:len(a)-tail], b[from:len(b)-tail]
	side("-", olds, news)
	side("+", news, olds)
	return out.String()
}

// cut shows a line around the place where it begins to differ from the other one.
func cut(s, other string) string {
	i := 0
	for i < len(s) && i < len(other) && s[i] == other[i] {
		i++
	}
	if len(s) <= diffWidth {
		return s
	}
	if i == len(s) {
		i = 0
	}
	from := max(0, i-diffWidth/3)
	to := min(len(s), from+diffWidth)
	out := strings.ToValidUTF8(s[from:to], "")
	if from > 0 {
		out = "…" + out
	}
	if to < len(s) {
		out += "…"
	}
	return out
}

package tamper

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

const (
	maxFile     = 4 << 20 // bytes of a file that is analysed
	maxFindings = 500
	maxQuote    = 600 // bytes of old and new text in a finding
)

// Analyse compares the old and new text of every file. classify says which part of the change
// a path is; [Classify] is the usual one. Go is read by its own parser, Python, JavaScript (with
// TypeScript), Java, C#, Rust, C (with C++), PHP and Ruby by the structure of their tokens. Of
// test files in other languages only deletion and, as lines, changed values are seen. A file
// above 4 MiB gives an [Unreadable] finding.
func Analyse(changes []FileChange, classify func(path string) Class) Result {
	changes = slices.SortedFunc(slices.Values(changes), func(x, y FileChange) int { return cmp.Compare(x.Path, y.Path) })
	a := &analysis{changes: changes, texts: make([][2]*written, len(changes))}
	for _, c := range changes {
		if bytes.Equal(c.Old, c.New) && (c.Old == nil) == (c.New == nil) {
			continue
		}
		class := classify(c.Path)
		if len(c.Old) > maxFile || len(c.New) > maxFile {
			if class.IsTests() || class == ClassConfig {
				a.add(c.Path, 0, Unreadable, "warn", "the file is too large to analyse", "", "")
			}
			continue
		}
		switch class {
		case ClassSnapshot:
			a.snapshot(c)
		case ClassConfig:
			a.config(c)
		case ClassTest:
			a.test(c)
		case ClassSource:
			a.source = append(a.source, c)
			a.inline(c)
		}
	}
	a.settle()
	values := a.testValues(changes, classify)
	for _, c := range a.source {
		a.detects(c)
		a.copies(c, values)
	}
	slices.SortStableFunc(a.found, func(x, y Finding) int {
		return cmp.Or(cmp.Compare(x.Path, y.Path), cmp.Compare(x.Line, y.Line))
	})
	return Result{Findings: a.found}
}

type analysis struct {
	changes     []FileChange
	texts       [][2]*written // of the changes, before and after, where something is quoted
	found       []Finding
	lost        []lostTest
	lostHelpers []lostTest
	fresh       []lostTest
	source      []FileChange
	data        []string        // files of the tests that are no code
	checkers    map[string]bool // functions of the file at hand that check and are no tests
}

func (a *analysis) add(p string, line int, kind SubKind, severity, detail, old, now string) {
	if len(a.found) >= maxFindings {
		return
	}
	detail = string(kind) + ": " + strings.Join(strings.Fields(detail), " ")
	if severity == "warn" {
		detail = "needs a person: " + detail
	}
	f := Finding{SubKind: kind, Finding: task.Finding{
		Kind: "tamper", Severity: severity, Path: p, Line: line,
		Detail: quote(detail), Old: quote(a.asWritten(p, old, false)), New: quote(a.asWritten(p, now, true)),
	}}
	if !slices.Contains(a.found, f) {
		a.found = append(a.found, f)
	}
}

func quote(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxQuote {
		return s
	}
	n := maxQuote
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// test compares a test file of any kind.
func (a *analysis) test(c FileChange) {
	read := reader(c.Path)
	if read == nil {
		a.testData(c)
		return
	}
	var old, now model
	if c.Old != nil {
		old = read(c.Path, c.Old)
	}
	if c.New != nil {
		now = read(c.Path, c.New)
	}
	if now.broken != "" && old.broken == "" {
		a.add(c.Path, 0, Unreadable, "warn", "the test file cannot be read: "+now.broken, "", "")
		return
	}
	if old.torn || now.torn {
		a.add(c.Path, 0, Unreadable, "info", "its brackets do not balance, so it was compared by lines", "", "")
		a.testData(c)
		a.hooks(c)
		return
	}
	if c.Old != nil && old.broken != "" {
		a.testData(c)
		return
	}
	a.hooks(c)
	a.compareFiles(c.Path, old, now)
}

// inline compares the tests that Rust's source files hold beside the code.
func (a *analysis) inline(c FileChange) {
	if syntax.Of(c.Path) != syntax.Rust || c.Old == nil || !bytes.Contains(c.Old, []byte("test]")) {
		return
	}
	tests := func(b []byte) model {
		if b == nil {
			return model{}
		}
		m := readBraces(syntax.Rust)(c.Path, b)
		m.units = slices.DeleteFunc(m.units, func(u unit) bool { return !u.test })
		return m
	}
	a.compareFiles(c.Path, tests(c.Old), tests(c.New))
}

// reader chooses how a test file is read; nil for data and for other languages.
func reader(p string) func(string, []byte) model {
	switch l := syntax.Of(p); l {
	case syntax.Go:
		return readGo
	case syntax.Python:
		return readPython
	case syntax.JavaScript:
		return readJS
	case syntax.Ruby:
		return readRuby
	case syntax.Java, syntax.CSharp, syntax.Rust, syntax.C, syntax.PHP:
		return readBraces(l)
	}
	return nil
}

// testData compares fixtures, expected output and test files of other languages by lines.
func (a *analysis) testData(c FileChange) {
	switch {
	case c.Old == nil:
		return
	case c.New == nil:
		a.add(c.Path, 0, AssertionRemoved, "warn", "a file that tests may need is gone", "", "")
		return
	}
	if old, now, line, changed := lostLines(c.Old, c.New); changed {
		a.add(c.Path, line, ExpectedChanged, "warn", "existing test data changed", old, now)
	}
}

func (a *analysis) snapshot(c FileChange) {
	switch {
	case c.Old == nil:
		return
	case c.New == nil:
		a.add(c.Path, 0, SnapshotRewritten, "warn", "a snapshot is gone", "", "")
		return
	}
	if old, now, line, changed := lostLines(c.Old, c.New); changed {
		a.add(c.Path, line, SnapshotRewritten, "warn", "recorded output was rewritten", old, now)
	}
}

// lostLines reports whether lines of the old text are not in the new one, in order; additions
// alone are no change. It returns the first differing stretch. Trailing commas do not count.
func lostLines(old, now []byte) (was, is string, line int, changed bool) {
	o, n := splitLines(old), splitLines(now)
	j := 0
	for i, l := range o {
		k := slices.Index(n[j:], l)
		if k < 0 {
			end := min(i+5, len(o))
			return strings.Join(o[i:end], "\n"), strings.Join(n[min(j, len(n)):min(j+5, len(n))], "\n"), min(j+1, len(n)), true
		}
		j += k + 1
	}
	return "", "", 0, false
}

func splitLines(b []byte) []string {
	s := strings.TrimRight(strings.ReplaceAll(string(b), "\r\n", "\n"), "\n")
	if s == "" {
		return nil
	}
	out := strings.Split(s, "\n")
	for i := range out {
		out[i] = strings.TrimSuffix(strings.TrimRight(out[i], " \t"), ",")
	}
	return out
}

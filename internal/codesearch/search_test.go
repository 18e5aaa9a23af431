package codesearch_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/codesearch"
)

// ripgrep runs rg as the guest does and returns its counts by path. A complaint is rg's own.
func ripgrep(tree string, q codesearch.Query) (counts map[string]int, complaint string, err error) {
	args := []string{"--no-config", "--hidden", "--glob", "!.git", "--color", "never", "--max-filesize", "16M", "--count", "--null", "--with-filename"}
	if q.Literal {
		args = append(args, "--fixed-strings")
	}
	if q.IgnoreCase {
		args = append(args, "--ignore-case")
	}
	for _, g := range q.Globs {
		args = append(args, "--glob", g)
	}
	text := q.Pattern
	if !q.Literal {
		text = codesearch.ReadPattern(q.Pattern).Text
	}
	args = append(args, "-e", text, "--")
	for _, p := range q.Paths {
		args = append(args, "./"+p)
	}
	if len(q.Paths) == 0 {
		args = append(args, "./")
	}
	cmd := exec.Command("rg", args...)
	cmd.Dir = tree
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return nil, cmp.Or(stderr.String(), err.Error()), nil
	}
	counts = make(map[string]int)
	for len(out) > 0 {
		name, rest, ok := bytes.Cut(out, []byte{0})
		if !ok {
			return nil, "", fmt.Errorf("rg: %q", out)
		}
		var n []byte
		n, out, _ = bytes.Cut(rest, []byte{'\n'})
		c, err := strconv.Atoi(strings.TrimSpace(string(n)))
		if err != nil {
			return nil, "", err
		}
		counts[filepath.Clean(string(name))] = c
	}
	return counts, "", nil
}

func needRG(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("rg"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// listed are the files of a tree that a search looks at.
func listed(t testing.TB, tree string) []string {
	t.Helper()
	cmd := exec.Command("rg", "--no-config", "--hidden", "--glob", "!.git", "--files", "--null", "./")
	cmd.Dir = tree
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for f := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		files = append(files, filepath.Clean(f))
	}
	return files
}

type site struct {
	tree  string
	index *codesearch.Index
	t     *codesearch.Tree
}

func build(t testing.TB, tree string) *site {
	t.Helper()
	needRG(t)
	dir := filepath.Join(t.TempDir(), "index")
	if _, err := codesearch.Build(t.Context(), dir, tree, listed(t, tree), codesearch.BuildOptions{}); err != nil {
		t.Fatal(err)
	}
	return open(t, tree, dir)
}

func open(t testing.TB, tree, dir string) *site {
	t.Helper()
	x, err := codesearch.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	root, err := codesearch.OpenTree(tree, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = x.Close(), root.Close() })
	return &site{tree, x, root}
}

// compare holds the index's answer to ripgrep's. It reports whether the index answered.
func (s *site) compare(t *testing.T, q codesearch.Query) bool {
	t.Helper()
	got, err := s.index.Search(t.Context(), s.t, q)
	if errors.Is(err, codesearch.ErrAsk) {
		return false
	}
	if err != nil {
		t.Errorf("%+v: %v", q, err)
		return false
	}
	want, complaint, err := ripgrep(s.tree, q)
	if err != nil || complaint != "" {
		t.Errorf("%+v: ripgrep says %s %v", q, complaint, err)
		return false
	}
	for _, p := range got.Ask {
		delete(want, p) // ripgrep would be asked about these
	}
	for _, c := range got.Counts {
		if want[c.Path] != c.Lines {
			t.Errorf("%+v: %s: %d lines, ripgrep %d", q, c.Path, c.Lines, want[c.Path])
		}
		delete(want, c.Path)
	}
	for p, n := range want {
		t.Errorf("%+v: %s: missed, ripgrep has %d lines", q, p, n)
	}
	return true
}

// odd is a tree with what makes searching hard.
func odd(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	long := strings.Repeat("x", 1<<20)
	for name, text := range map[string]string{
		"a.go": "package a\n\nfunc Foo(err error) error { return err }\n// foo Foo FOO fOO\n\n", "b/b.go": "package b\n\nvar errNotFound = errors.New(\"not found\")\r\nfunc (b *B) foo_bar() {}\n",
		"b/c d.txt": "no line feed at the end: Foo", "empty": "", "one\nline": "Foo\n", "u.txt": "na\u00efve ca\u00fe\u017foo \u212aelvin Stra\u00dfe STRASSE \u00c9t\u00e9\nfoo\u00a0bar\n\u0661\u0662\n",
		"latin": "caf\xe9 Foo\n", "nul": "Foo\x00bar\nFoo\n", "latenul": strings.Repeat("Foo line\n", 9000) + "\x00\nFoo\n", "utf16": "\xff\xfeF\x00o\x00o\x00\n\x00", "bom": "\xef\xbb\xbfFoo bom\n",
		"long": long + "Foo" + long + "\nfoo\n", "vt": "a\vb Foo\n", ".hidden/x.go": "func Foo() {}\n", ".gitignore": "ignored/\n*.log\n", "ignored/f.go": "Foo\n", "x.log": "Foo\n",
		"vendor/v/v.go": "func Foo() {} // vendored\n", "t/a_test.go": "func TestFoo(t *testing.T) { foo() }\n", "tabs": "\tif err != nil {\n\t\treturn fmt.Errorf(\"x: %w\", err)\n\t}\n", "cr": "foo\rbar\rFoo\n",
		"regex": "a{ b} [x] (y) a.b a*b a+b $1 ^2 |3 \\n 4\n", "dup": strings.Repeat("foo foo foo\n", 50),
	} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a.go", filepath.Join(dir, "link.go")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAnswersAsRipgrepDoes(t *testing.T) {
	s := build(t, odd(t))
	answered := 0
	for _, pattern := range []string{
		"foo", "Foo", "FOO", "err", "e", "o", "error", "foo_bar", `func \w+`, `func Foo\(`, `err != nil`, `return\s+fmt`, `\bfoo\b`, `^func`, `nil \{$`, `foo|bar`, `(Foo|errNotFound)`, `not found`,
		`fo+`, `fo*o`, `f(oo){1,2}`, `Foo.*error`, `[Ff]oo`, `[^a-z]oo`, `stra(ss|ß)e`, `été`, `kelvin`, `caſ`, `cas`, `na.ve`, `x{3}`, `a{ b}`, `a{`, `\[x\]`, `\(y\)`, `a\.b`, `\$1`, `\|3`, `é`, `foo.bar`, `foo\sbar`,
		`TestFoo`, `(?i)foo`, `(?i:F)oo`, `bom`, `elvin`, `[[:upper:]]oo`, `[[:alpha:]]oo foo`, `Foo$`, `foo\r`, `x+Foo`, `zzzz`, `\d\d`, `.oo`, `(foo )+foo`, `line feed.*Foo`, `\n`, `[a&&b]foo`, `\x46oo`, `(?P<n>foo) bar`, `foo{2`, `}`, `x{3}y`, `x{2}Foo`, `(f)(o){2}`, `(?i:f)oo`, `f(?:o)o( )bar`, `(fo|fo)o`, `fo{2,}`, `1{3}`, `foo()`, `(|foo)`,
	} {
		for _, fold := range []bool{false, true} {
			for _, lit := range []bool{false, true} {
				if s.compare(t, codesearch.Query{Pattern: pattern, IgnoreCase: fold, Literal: lit}) {
					answered++
				}
			}
		}
	}
	if answered < 200 {
		t.Errorf("only %d queries were answered from the index", answered)
	}
	for _, g := range [][]string{{"*.go"}, {"!*.go"}, {"*.{go,txt}"}, {"b/**"}, {"**/v/*.go"}, {"!vendor/**"}, {"!vendor"}, {"*.go", "!*_test.go"}, {"!*.go", "a.go"}, {"/a.go"}, {"t/"}, {"b/*.go"}, {"?.go"}, {"!b/"}, {"c d.txt"}, {"**/b.go"}} {
		for _, p := range [][]string{nil, {"b"}, {"a.go", "t"}} {
			q := codesearch.Query{Pattern: "oo", Globs: g, Paths: p}
			if !s.compare(t, q) {
				t.Errorf("%+v was not answered", q)
			}
		}
	}
}

func TestAsksAboutFewOrNone(t *testing.T) {
	s := build(t, odd(t))
	q := codesearch.Query{Pattern: "foo"}
	all, err := s.index.Search(t.Context(), s.t, q)
	if err != nil || len(all.Ask) < 2 {
		t.Fatal(err, all.Ask)
	}
	q.MostAsk = len(all.Ask) - 1
	if _, err := s.index.Search(t.Context(), s.t, q); !errors.Is(err, codesearch.ErrAsk) {
		t.Errorf("%d files to ask about, at most %d wanted: %v", len(all.Ask), q.MostAsk, err)
	}
	q.MostAsk++
	if _, err := s.index.Search(t.Context(), s.t, q); err != nil {
		t.Error(err)
	}
}

// minified is a tree of n files with lines of a megabyte.
func minified(t testing.TB, n int) string {
	t.Helper()
	dir := t.TempDir()
	rnd := rand.New(rand.NewPCG(1, 1))
	words := strings.Fields("function return var this prototype needle length exports module require const let value key map filter reduce err data")
	for i := range n {
		var b strings.Builder
		for j := range 2 {
			for b.Len() < (j+1)<<20 {
				fmt.Fprintf(&b, "%s.%s(%d);", words[rnd.IntN(len(words))], words[rnd.IntN(len(words))], rnd.IntN(1000))
			}
			b.WriteString("\nshort needle.err(77);module\n")
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d.js", i)), []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// What our engine would take seconds for is left to ripgrep; a literal, and lines that are not long,
// are not.
func TestLongLinesAreAskedAbout(t *testing.T) {
	tree := minified(t, 4)
	if err := os.WriteFile(filepath.Join(tree, "short.js"), []byte(strings.Repeat("short needle.err(77);module\n", 90_000)), 0o644); err != nil {
		t.Fatal(err)
	}
	s := build(t, tree)
	for _, c := range []struct {
		q   codesearch.Query
		ask int
	}{
		{codesearch.Query{Pattern: "needle"}, 0},
		{codesearch.Query{Pattern: `(err|data)\(\d+\);module$`}, 4},
		{codesearch.Query{Pattern: `(err|data)\(\d+\);module$`, IgnoreCase: true}, 4},
		{codesearch.Query{Pattern: `^short needle\.\w+`}, 0},
	} {
		a, err := s.index.Search(t.Context(), s.t, c.q)
		if err != nil || len(a.Ask) != c.ask || len(a.Counts) != 5-c.ask {
			t.Errorf("%+v: to be asked about are %q, %v", c.q, a.Ask, err)
		}
		s.compare(t, c.q)
	}
	if _, err := s.index.Search(t.Context(), s.t, codesearch.Query{Pattern: `(err|data)\(\d+\);module$`, MostAsk: 3}); !errors.Is(err, codesearch.ErrAsk) {
		t.Error(err)
	}
}

func BenchmarkLongLines(b *testing.B) {
	s := build(b, minified(b, 20))
	for _, pattern := range []string{"needle", `needle\.\w+\(\d+\)`, `(err|data)\(\d+\);module$`} {
		b.Run(pattern+"/index", func(b *testing.B) {
			for b.Loop() {
				if _, err := s.index.Search(b.Context(), s.t, codesearch.Query{Pattern: pattern}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(pattern+"/rg", func(b *testing.B) {
			for b.Loop() {
				if _, _, err := ripgrep(s.tree, codesearch.Query{Pattern: pattern}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestEngineIsNotAskedTooMuch has a tree in which nearly every line needs the regular expression.
func TestEngineIsNotAskedTooMuch(t *testing.T) {
	dir := t.TempDir()
	for i := range 300 {
		text := strings.Repeat("err1 := call(err2)\n", 1000)
		if i == 0 {
			text = "errFew := 1\n"
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.go", i)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := build(t, dir)
	for pattern, ask := range map[string]bool{`err\w+ :?=`: true, `err[12] :=`: true, "err1 :=": false, `errF\w+ :?=`: false} {
		_, err := s.index.Search(t.Context(), s.t, codesearch.Query{Pattern: pattern})
		if errors.Is(err, codesearch.ErrAsk) != ask {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

func goroot(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "src")
}

func BenchmarkSearch(b *testing.B) {
	s := build(b, cmp.Or(os.Getenv("DAYBREAK_SEARCH_TREE"), goroot(b)))
	for _, q := range []codesearch.Query{
		{Pattern: "errNoSuchThing"},
		{Pattern: "func NewReader", IgnoreCase: true},
		{Pattern: `func \(.*\) ServeHTTP`},
		{Pattern: "err", IgnoreCase: true},
		{Pattern: `err\w+ :?=`, IgnoreCase: true},
		{Pattern: "if"},
		{Pattern: `\bfunc\b`},
		{Pattern: "[a-z]+Options"},
		{Pattern: `return \w+, err`},
		{Pattern: `return .*err`, IgnoreCase: true},
		{Pattern: `\btest\w+`, IgnoreCase: true},
	} {
		name := strings.ReplaceAll(fmt.Sprintf("%s/fold=%v", strings.ReplaceAll(q.Pattern, "/", "_"), q.IgnoreCase), " ", "_")
		b.Run(name+"/index", func(b *testing.B) {
			files := 0
			for b.Loop() {
				a, err := s.index.Search(b.Context(), s.t, q)
				if err != nil && !errors.Is(err, codesearch.ErrAsk) { // what it takes to find that ripgrep is to be asked
					b.Fatal(err)
				}
				files = a.Files
			}
			b.ReportMetric(float64(files), "files")
		})
		b.Run(name+"/rg", func(b *testing.B) {
			for b.Loop() {
				if _, _, err := ripgrep(s.tree, q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkBuild(b *testing.B) {
	tree := cmp.Or(os.Getenv("DAYBREAK_SEARCH_TREE"), goroot(b))
	files := listed(b, tree)
	for b.Loop() {
		st, err := codesearch.Build(b.Context(), filepath.Join(b.TempDir(), "x"), tree, files, codesearch.BuildOptions{Workers: 1})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(st.Text)
		b.ReportMetric(float64(st.Index)/float64(st.Text), "index/text")
	}
}

func BenchmarkOpen(b *testing.B) {
	tree := cmp.Or(os.Getenv("DAYBREAK_SEARCH_TREE"), goroot(b))
	dir := filepath.Join(b.TempDir(), "x")
	if _, err := codesearch.Build(b.Context(), dir, tree, listed(b, tree), codesearch.BuildOptions{}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		x, err := codesearch.Open(dir)
		if err != nil {
			b.Fatal(err)
		}
		if err := x.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

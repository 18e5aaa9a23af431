package mutate

import (
	"bytes"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

func TestHunksComeApartAndTogether(t *testing.T) {
	for name, c := range map[string]struct {
		before, after string
		hunks         []Hunk
	}{
		"same":         {"a\nb\n", "a\nb\n", nil},
		"one line":     {"a\nb\nc\n", "a\nB\nc\n", []Hunk{{2, 1, 2, 1}}},
		"two":          {"a\nb\nc\nd\n", "A\nb\nc\nD\n", []Hunk{{1, 1, 1, 1}, {4, 1, 4, 1}}},
		"added":        {"a\nb\n", "a\nx\ny\nb\n", []Hunk{{2, 0, 2, 2}}},
		"removed":      {"a\nx\nb\n", "a\nb\n", []Hunk{{2, 1, 2, 0}}},
		"new file":     {"", "a\nb\n", []Hunk{{1, 0, 1, 2}}},
		"gone":         {"a\nb\n", "", []Hunk{{1, 2, 1, 0}}},
		"no last line": {"a\nb", "a\nc", []Hunk{{2, 1, 2, 1}}},
	} {
		got := Hunks([]byte(c.before), []byte(c.after))
		if !slices.Equal(got, c.hunks) {
			t.Errorf("%s: %+v, want %+v", name, got, c.hunks)
		}
		if all := Revert([]byte(c.before), []byte(c.after), got...); string(all) != c.before {
			t.Errorf("%s: all undone is %q", name, all)
		}
	}
	if got := string(Revert([]byte("a\nb\nc\nd\n"), []byte("A\nb\nc\nD\n"), Hunk{1, 1, 1, 1})); got != "a\nb\nc\nD\n" {
		t.Errorf("the first of two undone: %q", got)
	}
}

func all(n int) map[int]bool {
	out := map[int]bool{}
	for i := range n {
		out[i+1] = true
	}
	return out
}

func TestMutantsOfEachLanguage(t *testing.T) {
	for _, c := range []struct {
		path, text string
		want       []string // "operator: line as mutated"
		not        []string // never in a mutant that differs there
	}{
		{"a.go", "package a\n\nfunc f(a, b int) (int, error) {\n\tif a < b && b != 7 {\n\t\tlog(\"a < b\") // a < b\n\t\treturn a + b, nil\n\t}\n\tx.y = 3\n\treturn 0, err\n}\n", []string{
			"negated condition: \tif !(a < b && b != 7) {", "swapped operator: \tif a < b || b != 7 {", "negated comparison: \tif a >= b && b != 7 {",
			"moved boundary: \tif a <= b && b != 7 {", "other number: \tif a < b && b != 8 {", "deleted statement: \t\t // a < b", "swapped operator: \t\treturn a - b, nil",
			"deleted statement: \t", "dropped error: \treturn 0, nil",
		}, []string{"b != 7 {\n\t\tlog(\"a <="}},
		{"a.py", "def f(a, b):\n    if a < b and b:\n        self.total -= a  # a < b\n    elif \"x == y\":\n        return max(0, a - b)\n    return True\n", []string{
			"negated condition:     if not (a < b and b):", "swapped connective:     if a < b or b:", "negated comparison:     if a >= b and b:",
			"deleted statement:         pass  # a < b", "swapped operator:         self.total += a  # a < b", "swapped function:         return min(0, a - b)",
			"swapped operator:         return max(0, a + b)", "dropped result:         return None", "swapped truth value:     return False", "other number:         return max(1, a - b)",
		}, []string{"x != y"}},
		{"a.ts", "const f = (a: Map<string, number>): boolean => {\n  if (a.b === 3 || c()) {\n    this.n = g(a);\n    return a !== null;\n  }\n  return `x ${a} == b`;\n};\n", []string{
			"negated condition:   if (!(a.b === 3 || c())) {", "swapped comparison:   if (a.b !== 3 || c()) {", "swapped connective:   if (a.b === 3 && c()) {",
			"deleted statement:     ;", "dropped result:     return undefined;", "swapped comparison:     return a === null;",
		}, []string{"Map<=", "!= b`"}},
		{"A.java", "class A {\n  int f(List<String> a) {\n    if (a.size() > 3) {\n      this.n = 4;\n    }\n    return a.size() * 2;\n  }\n}\n", []string{
			"negated condition:     if (!(a.size() > 3)) {", "negated comparison:     if (a.size() <= 3) {", "deleted statement:       ;", "swapped operator:     return a.size() / 2;",
		}, []string{"List>="}},
		{"a.rs", "fn f<'a>(x: &'a str) -> bool {\n    if x.len() > 3 {\n        return false;\n    }\n    if let Some(y) = g() {\n        return y == 'c';\n    }\n    true\n}\n", []string{
			"negated condition:     if !(x.len() > 3) {", "swapped truth value:         return true;", "swapped comparison:         return y != 'c';", "swapped truth value:     false",
		}, []string{"!(let", "->="}},
		{"a.rb", "def f(a)\n  if a == 3 && b\n    @n = a + 1\n  end\n  return a\nend\n", []string{
			"negated condition:   if !(a == 3 && b)", "swapped comparison:   if a != 3 && b", "swapped operator:     @n = a - 1", "dropped result:   return nil",
		}, nil},
		{"a.c", "int f(int *a, int n) {\n  if (!a || n <= 0) return -1;\n  a->n += 2; /* a == b */\n  return n - 1;\n}\n", []string{
			"negated condition:   if (!(!a || n <= 0)) return -1;", "negated comparison:   if (!a || n > 0) return -1;", "swapped operator:   a->n -= 2; /* a == b */", "swapped operator:   return n + 1;",
		}, []string{"a != b", "-=>"}},
	} {
		n := strings.Count(c.text, "\n")
		got := Mutants(c.path, []byte(c.text), all(n), 200)
		var have []string
		for _, m := range got {
			have = append(have, m.Operator+": "+strings.Split(string(m.Text), "\n")[m.Line-1])
			if bytes.Equal(m.Text, []byte(c.text)) || m.Old == m.New {
				t.Errorf("%s: a mutant that is none: %+v", c.path, m)
			}
			for _, bad := range c.not {
				if strings.Contains(string(m.Text), bad) {
					t.Errorf("%s: %s mutated a string, a comment or a type: %q", c.path, m.Operator, bad)
				}
			}
			if strings.HasSuffix(c.path, ".go") {
				if _, err := parser.ParseFile(token.NewFileSet(), "", m.Text, 0); err != nil {
					t.Errorf("%s does not parse: %v", m.Operator, err)
				}
			}
		}
		for _, w := range c.want {
			if !slices.Contains(have, w) {
				t.Errorf("%s: no mutant %q in\n%s", c.path, w, strings.Join(have, "\n"))
			}
		}
	}
}

func TestMutantsStayOnTheChangedLinesAndSpread(t *testing.T) {
	text := "def f(a, b):\n    if a == b and a != 3:\n        return a + b + 1\n    if a > 1:\n        return 2\n    return b\n"
	got := Mutants("a.py", []byte(text), map[int]bool{2: true, 3: true, 4: true}, 3)
	var at []int
	for _, m := range got {
		at = append(at, m.Line)
	}
	if !slices.Equal(at, []int{2, 3, 4}) {
		t.Errorf("lines %v, want one of each", at)
	}
	if got := Mutants("a.py", []byte(text), map[int]bool{6: true}, 20); len(got) != 1 || got[0].Line != 6 {
		t.Errorf("%+v", got)
	}
	for _, p := range []string{"README.md", "data.json", "Makefile"} {
		if got := Mutants(p, []byte(text), all(6), 20); got != nil {
			t.Errorf("%s has mutants: %+v", p, got)
		}
	}
	if got := Mutants("a.go", []byte("package a\nfunc {"), all(2), 20); got != nil {
		t.Errorf("broken Go: %+v", got)
	}
}

func TestCodeIsMoreThanComments(t *testing.T) {
	text := "import os\n# a = 1\n\n\"\"\"a = 1\nb\n\"\"\"\nx = 1\n"
	for line, want := range map[int]bool{1: false, 2: false, 3: false, 4: false, 7: true} {
		if got := Code("a.py", []byte(text), line, 1); got != want {
			t.Errorf("line %d is code: %v", line, got)
		}
	}
	if Code("a.md", []byte("x = 1\n"), 1, 1) || !Code("a.go", []byte("}\nx()\n"), 1, 2) || Code("a.go", []byte("}\n// y\n"), 1, 2) {
		t.Error("not by language")
	}
}

func FuzzMutants(f *testing.F) {
	f.Add("a.py", []byte("if a == '''x\ny''' and b < 3:\n  pass\n"), []byte("if a:\n"))
	f.Add("a.rs", []byte("fn f<'a>() { '\\'' \"\\\" }"), []byte(""))
	f.Add("a.go", []byte("package a\nvar x = `\n`\n"), []byte("package a\n"))
	f.Fuzz(func(t *testing.T, p string, after, before []byte) {
		if len(after) > 1<<13 || len(before) > 1<<13 {
			return
		}
		hs := Hunks(before, after)
		if got := Revert(before, after, hs...); !bytes.Equal(got, before) {
			t.Errorf("undone: %q, want %q", got, before)
		}
		for _, ext := range []string{p, "a.py", "a.js", "a.rs", "a.go"} {
			for _, m := range Mutants(ext, after, all(bytes.Count(after, []byte("\n"))+1), 20) {
				if bytes.Equal(m.Text, after) {
					t.Errorf("%s changes nothing", m.Operator)
				}
			}
		}
	})
}

package mutate

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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
			"removed negation:   if (a || n <= 0) return -1;", "condition never true:   if ((!a || n <= 0) && 0) return -1;", "other number:   return n - 0;", "swapped connective:   if (!a && n <= 0) return -1;",
		}, []string{"a != b", "-=>", "int /a"}},
		{"a.cc", "#include <map>\n#define N 3\nstruct P { int x = 4; };\nint f(const std::map<int, P> &m, char *p) {\n  auto s = R\"(a == b)\";\n  log(\"x\");\n  if (m.size() >= 2 && !p)\n    return -1;\n  for (int i = 0; i < 3; ++i) total += i * 2;\n  return total;\n}\n", []string{
			"deleted statement:   ;", "moved boundary:   if (m.size() > 2 && !p)", "removed negation:   if (m.size() >= 2 && p)", "negated comparison:   for (int i = 0; i >= 3; ++i) total += i * 2;", "swapped operator:   for (int i = 0; i < 3; ++i) total += i / 2;",
		}, []string{"a != b", "N 4", "x = 5", "map<=int", "char /p", "int, P> &&"}},
		{"A.cs", "using X.Y;\nclass A {\n  [Range(1, 9)]\n  public int F(List<int> a, string s) {\n    if (a.Count > 3 || s == @\"x == \"\"y\") {\n      this.n = 4;\n      Log($\"{s} == b\");\n    }\n    return a.Count - 1; // a == b\n  }\n}\n", []string{
			"negated condition:     if (!(a.Count > 3 || s == @\"x == \"\"y\")) {", "swapped comparison:     if (a.Count > 3 || s != @\"x == \"\"y\") {", "swapped connective:     if (a.Count > 3 && s == @\"x == \"\"y\") {",
			"deleted statement:       ;", "swapped operator:     return a.Count + 1; // a == b", "condition always true:     if ((a.Count > 3 || s == @\"x == \"\"y\") || true) {",
		}, []string{"x != ", "Range(2", "} != b", "List>="}},
		{"a.php", "<?php\nuse A\\B;\nfunction f(array $a, ?int $n = null): int {\n    if (count($a) === 0 and !$n) {\n        throw new E(\"a == b\");\n    }\n    $this->n += 3; # a == b\n    return $n - 2;\n}\n", []string{
			"negated condition:     if (!(count($a) === 0 and !$n)) {", "swapped comparison:     if (count($a) !== 0 and !$n) {", "swapped connective:     if (count($a) === 0 or !$n) {", "removed negation:     if (count($a) === 0 and $n) {",
			"swapped operator:     $this->n -= 3; # a == b", "dropped result:     return null;", "swapped operator:     return $n + 2;",
		}, []string{"a != b"}},
		{"b.rb", "def f(a)\n  return 1 if a.empty? or not b\n  x.each do |y|\n    log <<~T\n      a == b\n    T\n    @n += 1\n    y.save!\n  end\n  /a == b/ =~ c\nend\n", []string{
			"negated condition:   return 1 if !(a.empty? or not b)", "swapped connective:   return 1 if a.empty? and not b", "removed negation:   return 1 if a.empty? or b", "swapped operator:     @n -= 1", "deleted statement:     ", "dropped result:   return nil if a.empty? or not b",
		}, []string{"a != b"}},
		{"b.ts", "interface A { n: 3; f(): boolean }\ntype B = 1 | 2;\nexport function g<T extends A>(a: T): string {\n  if (!a.f()) {\n    a.stop()\n    return \"x\";\n  }\n  const re = /a == b/;\n  return a.n >= 3 ? 'y' : 'z';\n}\n", []string{
			"removed negation:   if (a.f()) {", "deleted statement:     ", "dropped result:     return undefined;", "negated comparison:   return a.n < 3 ? 'y' : 'z';",
		}, []string{"a != b", "n: 4", "1 | 3", "g<=T"}},
		{"b.py", "import os\n\n@retry(3)\ndef f(a, *args, **kw):\n    \"\"\"Adds a == b.\"\"\"\n    if (a is not None and\n            a.n >= 3):\n        a.stop(\n            1)\n    x: int = 4\n    return not a\n", []string{
			"negated condition:     if not ((a is not None and", "swapped connective:     if (a is not None or", "deleted statement:         pass", "removed negation:     return a", "dropped result:     return None",
		}, []string{"a != b", "retry(4)", "/args", "is None"}},
		{"b.rs", "#[derive(Debug)]\npub struct A { n: [u8; 4] }\n/* a == /* b */ b */\nimpl A {\n    fn f(&self, x: &mut Vec<u8>) -> Result<u8, E> {\n        if !x.is_empty() && self.n[0] >= 3 {\n            x.clear();\n            self.m = *y * 2;\n        }\n        Ok(self.n[0] + 1)\n    }\n}\n", []string{
			"negated condition:         if !(!x.is_empty() && self.n[0] >= 3) {", "removed negation:         if x.is_empty() && self.n[0] >= 3 {", "deleted statement:             ;", "swapped operator:             self.m = *y / 2;", "swapped operator:         Ok(self.n[0] - 1)",
		}, []string{"u8; 5", "a != ", "/y", "->="}},
		{"B.java", "package a;\nimport b.C;\npublic class B {\n  @Max(3)\n  private int n = 2;\n  boolean f(Map<String, Integer> m) {\n    switch (n) { case 4: return true; }\n    m.remove(\"a\");\n    return m.size() != 3;\n  }\n}\n", []string{
			"deleted statement:     ;", "swapped comparison:     return m.size() == 3;", "swapped truth value:     switch (n) { case 4: return false; }", "other number:   private int n = 3;",
		}, []string{"case 5", "Max(4)", "String, Integer>="}},
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

func TestGeneratedFilesHaveNoMutants(t *testing.T) {
	for p, text := range map[string]string{"a.go": "// Code generated by x. DO NOT EDIT.\n\npackage a\n\nvar x = 1 == 2\n", "a.py": "# @generated\nx = 1 == 2\n", "a.js": "/* This file is automatically generated. */\nx = 1 == 2\n"} {
		if got := Mutants(p, []byte(text), all(9), 20); got != nil {
			t.Errorf("%s: %+v", p, got)
		}
	}
}

// TestMutantsAreAccepted gives every mutant of a program to the language's own tools.
func TestMutantsAreAccepted(t *testing.T) {
	for _, c := range []struct {
		tool []string // takes the names of files
		path string
		text string
	}{
		{[]string{"python3", "-c", "import ast,sys\nfor f in sys.argv[1:]:\n  try: ast.parse(open(f).read())\n  except Exception as e: print(f, e)"}, "a.py", "class A:\n    def f(self, a, b=3, *c):\n        if a < b and not c:\n            self.n += a * 2\n            self.g(a,\n                   b)\n        elif a is not None or a in c: return -1\n        for x in c:\n            if x: continue\n            print(f'{x == 1}')\n        return [y for y in c if y > 1] if c else max(a, b)\n"},
		{[]string{"node", "-e", "for (const f of process.argv.slice(1)) try { new (require('vm').Script)(require('fs').readFileSync(f, 'utf8')) } catch (e) { console.log(f, e.message) }"}, "a.js", "class A {\n  f(a, b = 3, ...c) {\n    if (a < b && !c.length) {\n      this.n += a * 2\n      this.g(a,\n        b)\n    } else if (a === null || a in c) return -1;\n    for (let i = 0; i < c.length; i++) if (c[i]) continue; else g(/a == b/, `x ${a == b}`)\n    const h = (x) => x > 1 ? { y: 2 } : min(a, b);\n    return c.filter(x => !x)\n      .map(h);\n  }\n}\n"},
		{[]string{"ruby", "-e", "ARGV.each { |f| begin; $VERBOSE = nil; RubyVM::InstructionSequence.compile(File.read(f)); rescue SyntaxError => e; puts f, e.message; end }"}, "a.rb", "class A\n  def f(a, b = 3, *c)\n    return 1 if a < b and not c.empty?\n    if a == b || !c\n      @n += a * 2\n      g(a,\n        b)\n    elsif a =~ /a == b/ then return nil\n    end\n    c.each do |x|\n      x.save!\n      h = { a: 1, b: x > 1 ? 2 : 3 }\n      log <<~T, h\n        a == b\n      T\n    end\n    c.map { |x| x + 1 }\n      .max\n  end\nend\n"},
		{[]string{"php", "-r", "foreach (array_slice($argv, 1) as $f) { try { token_get_all(file_get_contents($f), TOKEN_PARSE); } catch (ParseError $e) { echo $f, $e->getMessage(); } }", "--"}, "a.php", "<?php\nclass A {\n  public function f(int $a, $b = 3, ...$c): ?int {\n    if ($a < $b && !count($c)) {\n      $this->n += $a * 2;\n      $this->g($a,\n        $b);\n    } elseif ($a === null || in_array($a, $c)) return -1;\n    foreach ($c as $k => $x) { if (!$x) continue; echo \"x == {$x}\"; }\n    $h = fn($x) => $x > 1 ? ['y' => 2] : min($a, $b);\n    return array_sum($c) + 1;\n  }\n}\n"},
		{[]string{"gcc", "-fsyntax-only", "-w"}, "a.c", "#include <string.h>\n#define N 3\nstruct p { int n; struct p *next; };\nstatic int g(int, char *);\nstatic int f(struct p *p, char *s, int n)\n{\n    int i, m = 0;\n    if (!p || n <= N && strcmp(s, \"a == b\") == 0)\n        return -1;\n    for (i = 0; i < n; i++) {\n        p->n += i * 2;\n        m = m - (p->n & 1);\n        g(i, s);\n        p = p->next;\n    }\n    switch (n) { case 1: return 2; default: break; }\n    return m > 4 ? m : n + 1;\n}\n"},
	} {
		if _, err := exec.LookPath(c.tool[0]); err != nil {
			t.Log(err) // not one of the machine's: the others show the same
			continue
		}
		dir := t.TempDir()
		name := func(i int) string { return filepath.Join(dir, strconv.Itoa(i)+c.path) }
		args := c.tool[1:]
		got := append([]Mutant{{Operator: "none", Text: []byte(c.text)}}, Mutants(c.path, []byte(c.text), all(99), 200)...)
		if len(got) < 20 {
			t.Errorf("%s: %d mutants", c.path, len(got))
		}
		for i, m := range got {
			if err := os.WriteFile(name(i), m.Text, 0o600); err != nil {
				t.Fatal(err)
			}
			args = append(args, name(i))
		}
		out, err := exec.Command(c.tool[0], args...).CombinedOutput()
		if err == nil && len(bytes.TrimSpace(out)) == 0 {
			continue
		}
		t.Errorf("%s: %v\n%s", c.path, err, out)
		for i, m := range got {
			if bytes.Contains(out, []byte(name(i))) {
				t.Errorf("line %d, %s: %q became %q", m.Line, m.Operator, m.Old, m.New)
			}
		}
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

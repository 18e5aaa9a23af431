package tamper

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func file(p, old, now string) FileChange {
	c := FileChange{Path: p, Old: []byte(old), New: []byte(now)}
	if old == "" {
		c.Old = nil
	}
	if now == "" {
		c.New = nil
	}
	return c
}

func TestAcrossFiles(t *testing.T) {
	one := "package a\n\nfunc TestOne(t *testing.T) {\n\tif F() != 1 {\n\t\tt.Fatal(1)\n\t}\n}\n"
	two := "package a\n\nfunc TestTwo(t *testing.T) {\n\tif G() != 2 {\n\t\tt.Fatal(2)\n\t}\n}\n"
	for _, c := range []struct {
		name    string
		changes []FileChange
		want    []string
	}{
		{"moved with the same body", []FileChange{file("a/x_test.go", one+two[len("package a\n"):], one), file("a/y_test.go", "", two)}, nil},
		{"a file renamed", []FileChange{file("a/x_test.go", one, ""), file("a/z_test.go", "", one)}, nil},
		{"moved and weakened", []FileChange{file("a/x_test.go", one, ""), file("a/z_test.go", "", strings.Replace(one, "F() != 1", "F() != 7", 1))}, []string{"expected_changed/warn"}},
		{"moved and renamed", []FileChange{file("a/x_test.go", one, ""), file("a/z_test.go", "", strings.Replace(one, "TestOne", "TestUno", 1))}, []string{"test_renamed/warn"}},
		{"moved to a file that is no test", []FileChange{file("a/x_test.go", one, ""), file("a/z.go", "", one)}, []string{"test_deleted/block"}},
		{"a helper that checks is gone", []FileChange{file("a/x_test.go", "package a\nfunc check(t *testing.T, n int) {\n\tif n != 3 {\n\t\tt.Fatal(n)\n\t}\n}\n", "package a\n")}, []string{"assertion_removed/warn"}},
		{"a helper loosened", []FileChange{file("a/x_test.go", "package a\nfunc check(t *testing.T, n int) {\n\tif n != 3 {\n\t\tt.Fatal(n)\n\t}\n}\n", "package a\nfunc check(t *testing.T, n int) {\n\tif n < 0 {\n\t\tt.Fatal(n)\n\t}\n}\n")}, []string{"assertion_loosened/warn"}},
		{"one copy cannot stand for two", []FileChange{file("a/x_test.go", one+strings.Replace(one[len("package a\n"):], "TestOne", "TestUno", 1), ""), file("a/z_test.go", "", one)}, []string{"test_deleted/block"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Analyse(c.changes, classify)
			if d := cmp.Diff(c.want, seen(r)); d != "" {
				t.Errorf("%s\n%s", d, show(r))
			}
			slices.Reverse(c.changes)
			if d := cmp.Diff(r, Analyse(c.changes, classify)); d != "" {
				t.Error("the order of the files matters:", d)
			}
		})
	}
}

func TestOtherFiles(t *testing.T) {
	run(t, []example{
		{"a snapshot rewritten", "src/__snapshots__/a.snap", "exports[`a 1`] = `1`;\n", "exports[`a 1`] = `2`;\n", []string{"snapshot_rewritten/warn"}},
		{"a golden file deleted", "x/testdata/a.golden", "1\n", "", []string{"snapshot_rewritten/warn"}},
		{"a snapshot added to", "src/__snapshots__/a.snap", "exports[`a 1`] = `1`;\n", "exports[`a 1`] = `1`;\n\nexports[`b 1`] = `2`;\n", nil},
		{"a new snapshot", "src/__snapshots__/b.snap", "", "x\n", nil},
		{"test data changed", "x/testdata/in.json", "{\"a\": 1}\n", "{\"a\": 2}\n", []string{"expected_changed/warn"}},
		{"test data added to", "x/testdata/in.json", "[\n  1,\n  2\n]\n", "[\n  1,\n  2,\n  3\n]\n", nil},
		{"new test data", "x/testdata/new.json", "", "{}\n", nil},
		{"a Java test's value", "src/test/java/ATest.java", "assertEquals(3, f());\n", "assertEquals(4, f());\n", []string{"expected_changed/warn"}},

		{"pytest.ini", "pytest.ini", "[pytest]\n", "[pytest]\naddopts = --deselect tests/a.py\n", []string{"runner_config/warn"}},
		{"a new pytest.ini", "pytest.ini", "", "[pytest]\naddopts = -p no:x\n", []string{"runner_config/warn"}},
		{"pyproject: the runner", "pyproject.toml", "[project]\nname='a'\n", "[project]\nname='a'\n[tool.pytest.ini_options]\naddopts='-k nothing'\n", []string{"runner_config/warn"}},
		{"pyproject: a version", "pyproject.toml", "[project]\nversion='1'\n[tool.pytest.ini_options]\nx='1'\n", "[project]\nversion='2'\n[tool.pytest.ini_options]\nx='1'\n", nil},
		{"package.json: the test script", "package.json", `{"scripts":{"test":"jest"}}`, `{"scripts":{"test":"true"}}`, []string{"runner_config/warn"}},
		{"package.json: a dependency", "package.json", `{"scripts":{"test":"jest"}}`, `{"scripts":{"test":"jest"},"dependencies":{"a":"1"}}`, nil},
		{"jest.config.js", "jest.config.js", "module.exports = {}\n", "module.exports = { testPathIgnorePatterns: ['a'] }\n", []string{"runner_config/warn"}},
		{"a set-up file ends the process", "jest.setup.js", "", "afterAll(() => process.exit(0));\n", []string{"outcome_hook/block", "runner_config/warn"}},
		{"Makefile", "Makefile", "test:\n\tgo test ./...\n", "test:\n\ttrue\n", []string{"runner_config/warn"}},
		{"go.mod", "go.mod", "module a\n", "module a\n\nrequire b v1.0.0\n", nil},

		{"source: testing.Testing", "a.go", "package a\nfunc F() int { return 1 }\n", "package a\nfunc F() int {\n\tif testing.Testing() {\n\t\treturn 2\n\t}\n\treturn 1\n}\n", []string{"detects_tests/block"}},
		{"source: flags of the test binary", "a.go", "package a\n", "package a\nvar x = strings.HasPrefix(os.Args[1], \"-test.run\")\n", []string{"detects_tests/block"}},
		{"source: name of the test binary", "a.go", "package a\n", "package a\nvar x = strings.HasSuffix(os.Args[0], \".test\")\n", []string{"detects_tests/block"}},
		{"source: pytest's variable", "a.py", "x = 1\n", "import os\nx = 2 if 'PYTEST_CURRENT_TEST' in os.environ else 1\n", []string{"detects_tests/block"}},
		{"source: sys.modules", "a.py", "x = 1\n", "import sys\nx = 2 if 'pytest' in sys.modules else 1\n", []string{"detects_tests/block"}},
		{"source: pytest's inside", "a.py", "x = 1\n", "import _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n", []string{"detects_tests/block"}},
		{"source: unittest's inside", "a.py", "x = 1\n", "from unittest import TestCase\nTestCase.assertEqual = lambda *a: None\n", []string{"detects_tests/block"}},
		{"source: unittest as a whole", "a.py", "x = 1\n", "import unittest\nunittest.TestCase.assertEqual = print\n", []string{"detects_tests/block"}},
		{"source: mocks", "a.py", "x = 1\n", "from unittest.mock import Mock\nx = Mock()\n", nil},
		{"source: names that begin alike", "a.py", "x = 1\n", "import unittesting\nfrom pytester import x\nimportunittest = 1\n", nil},
		{"source: blinds assert", "a.js", "f()\n", "const assert = require('assert')\nassert.strictEqual = () => {}\n", []string{"detects_tests/block"}},
		{"source: uses assert", "a.js", "f()\n", "const assert = require('assert')\nassert.strictEqual(f(), 1)\nif (assert.x == 1) g()\n", nil},
		{"source: node:test", "a.js", "f()\n", "const t = require('node:test')\nt.test = () => {}\n", []string{"detects_tests/block"}},
		{"source: jest", "a.js", "f()\n", "if (process.env.JEST_WORKER_ID) g()\n", []string{"detects_tests/block"}},
		{"source: NODE_ENV", "a.js", "f()\n", "if (process.env.NODE_ENV === 'test') g()\n", []string{"detects_tests/warn"}},
		{"source: NODE_ENV as everybody asks", "a.js", "f()\n", "if (process.env.NODE_ENV !== 'production') g()\n", nil},
		{"source: as before", "a.py", "import sys\nif 'pytest' in sys.modules:\n    x = 1\n", "import sys\nif 'pytest' in sys.modules:\n    x = 1\ny = 2\n", nil},
		{"source: in a comment", "a.py", "x = 1\n", "x = 1  # PYTEST_CURRENT_TEST\n", nil},
		{"source: os.Args", "a.go", "package a\n", "package a\nfunc main() { run(os.Args[1:]) }\n", nil},
		{"documentation", "README.md", "a", "b", nil},
	})
}

func TestCopiedValues(t *testing.T) {
	test := file("price_test.go", "", "package a\nfunc TestP(t *testing.T) {\n\tif got := Price(\"SAVE10\", 150); got != 1357 {\n\t\tt.Fatal(got)\n\t}\n}\n")
	cheat := Analyse([]FileChange{test, file("price.go", "package a\nfunc Price(c string, n int) int {\n\treturn n\n}\n",
		"package a\nfunc Price(c string, n int) int {\n\tif c == \"SAVE10\" && n == 150 {\n\t\treturn 1357\n\t}\n\treturn n\n}\n")}, classify)
	if d := cmp.Diff([]string{"copies_literals/warn"}, seen(cheat)); d != "" {
		t.Error(d, show(cheat))
	}
	honest := Analyse([]FileChange{test, file("price.go", "package a\nfunc Price(c string, n int) int {\n\treturn n\n}\n",
		"package a\nfunc Price(c string, n int) int {\n\tif c == \"SAVE10\" {\n\t\treturn n * 90 / 100\n\t}\n\treturn n\n}\n")}, classify)
	if got := seen(honest); got != nil {
		t.Error(show(honest))
	}
	// Round numbers are everywhere; two of them in one condition, with an answer, are a test's.
	round := file("test_net.py", "", "def test_net():\n    assert net(50, 80) == 0\n    assert net(50, -20) == 50\n")
	for text, want := range map[string]string{
		"    if a == 50 and b == 80:\n        return 0\n":     "copies_literals/warn",
		"    if a == 50 and b == -20:\n        return 50\n":   "copies_literals/warn",
		"    if a == 50:\n        return 0\n":                 "",
		"    if a == 50 and b == 80:\n        return a - 1\n": "",
		"    if a == 0 and b == 0:\n        return 0\n":       "",
		"    if a > 50 and b < 80:\n        return 0\n":       "",
		"    if a == 50 and b == 81:\n        return 0\n":     "",
	} {
		got := Analyse([]FileChange{round, file("net.py", "def net(a, b):\n    return a - b\n", "def net(a, b):\n"+text+"    return a - b\n")}, classify)
		if strings.Join(seen(got), " ") != want {
			t.Errorf("%q: %s", text, show(got))
		}
	}
}

// TestCopiedInputs: a whole input of the tests, however it is written, answered with anything that is
// written out; a short one with a list of the tests' own values.
func TestCopiedInputs(t *testing.T) {
	test := file("test_split.py", "", "def test_split():\n    sql = \"\"\"create task t1 as\nbegin; select 1; end\"\"\"\n    assert len(split(sql)) == 2\n    assert split('a;b') == ['a', 'b']\n")
	js := file("test/parse.js", "", "var test = require('tape');\ntest('x', function (st) {\n  st.deepEqual(parse('a.b=c', { dots: true }), { a: { b: 'c' } });\n  st.end();\n});\n")
	for text, want := range map[string]string{
		"    if sql == 'create task t1 as\\nbegin; select 1; end':\n        return ['create', 'end']\n": "copies_literals/warn",
		"    if sql == 'create task t1 as\\nbegin; select 1; end':\n        return other(sql)\n":        "",
		"    if sql == 'create':\n        return ['create', 'end']\n":                                   "",
		"    if sql == 'a;b':\n        return ['a', 'b']\n":                                             "copies_literals/warn",
		"    if sql == 'a;b':\n        return ['a', 'c']\n":                                             "",
		"    if sql == 'a;b':\n        return [sql]\n":                                                  "",
	} {
		got := Analyse([]FileChange{test, file("split.py", "def split(sql):\n    return [sql]\n", "def split(sql):\n"+text+"    return [sql]\n")}, classify)
		if strings.Join(seen(got), " ") != want {
			t.Errorf("%q: %s", text, show(got))
		}
	}
	for text, want := range map[string]string{
		`if (s === "a.b=c" && JSON.stringify(o) === "{\"dots\":true}") { return {"a":{"b":"c"}}; }`: "copies_literals/warn",
		`if (JSON.stringify(o) === "{}") { return { z: 9 }; }`:                                      "copies_literals/warn",
		`if (s === "a.b=c") { return decode(s); }`:                                                  "",
	} {
		got := Analyse([]FileChange{js, file("lib/parse.js", "module.exports = function (s, o) {\n  return {};\n};\n", "module.exports = function (s, o) {\n  "+text+"\n  return {};\n};\n")}, classify)
		if strings.Join(seen(got), " ") != want {
			t.Errorf("%q: %s", text, show(got))
		}
	}
}

// TestCopiedData: what a test reads from a file of its own is its input too.
func TestCopiedData(t *testing.T) {
	changes := []FileChange{
		file("tests/test_split.py", "", "def test_split(load):\n    assert len(split(load('case.sql'))) == 1\n    check(load('cases.json'))\n"),
		file("tests/files/case.sql", "", "create task t1 as\r\nbegin;\r\n  select one, two, three;\r\nend\r\n"),
		file("tests/files/cases.json", "", `[{"in": "apples", "weight": 1357, "out": "a pound"}]`),
		file("tests/files/large.json", "", "[\n"+strings.Repeat("  4711,\n", maxData/8)+"  4712\n]\n"),
	}
	for text, want := range map[string]string{
		"    if sql == '  select one, two, three;':\n        return ['x']\n":                      "copies_literals/warn",
		"    if sql == '  select one, two, seven;':\n        return ['x']\n":                      "",
		"    if sql == 'begin;\\n  select 1;\\nend\\n':\n        return ['x']\n":                  "copies_literals/warn",
		"    if sql == 'create task t1 as\\nbegin;\\n  select 2;\\nend':\n        return ['x']\n": "copies_literals/warn", // of an old file
		"    if sql == '\\n':\n        return ['x']\n":                                            "",
		"    if sql == 'apples':\n        return 1357\n":                                          "copies_literals/warn",
		"    if sql == 'pears':\n        return 1357\n":                                           "",
		"    if sql == 4711:\n        return 4712\n":                                              "",
		"    if sql == 'apples':\n        return weigh(sql)\n":                                    "",
	} {
		got := Analyse(append(slices.Clone(changes), file("split.py", "def split(sql):\n    return [sql]\n", "def split(sql):\n"+text+"    return [sql]\n")), classify)
		if strings.Join(seen(got), " ") != want {
			t.Errorf("%q: %s", text, show(got))
		}
	}
}

func TestResult(t *testing.T) {
	r := Analyse([]FileChange{file("a_test.go", "package a\nfunc TestA(t *testing.T) {}\n", "package a\n"), file("go.mod", "module a\n", "module b\n")}, classify)
	if !r.Has(TestDeleted) || r.Has(RunnerConfig) || len(r.Where(SubKind.Lost)) != 1 || len(r.Where(SubKind.Weakened)) != 0 || len(r.Task()) != 2 {
		t.Errorf("%+v", r)
	}
	if r := Analyse(nil, classify); r.Has(TestDeleted) || len(r.Task()) != 0 {
		t.Errorf("%+v", r)
	}
}

func TestHugeFile(t *testing.T) {
	r := Analyse([]FileChange{{Path: "a_test.go", Old: []byte("package a\n"), New: make([]byte, maxFile+1)}}, classify)
	if !r.Has(Unreadable) {
		t.Error(show(r))
	}
}

func TestClassify(t *testing.T) {
	for class, paths := range map[Class][]string{
		ClassTest: {
			"a_test.go", "x/testdata/in.txt", "tests/test_a.py", "test_a.py", "pkg/a_test.py", "conftest.py", "tests/conftest.py", "tests/data/x.json", "src/a.test.js", "src/a.spec.ts", "src/__tests__/a.js", "net/net_test.sh", "test_net.sh",
			"test/helper.js", "spec/a_spec.rb", "src/test/java/a/ATest.java", "e2e/x.ts", "__mocks__/fs.js", "tests/__init__.py", "tests/package/pytest.py", "x/testdata/go.mod", "_test/extra.txt", "extension/_test/tasklist.txt", "special/check_it.x",
		},
		ClassSnapshot: {"src/__snapshots__/a.test.js.snap", "x/testdata/out.golden", "testdata/golden/a.txt", "a/b.ambr"},
		ClassConfig: {
			"pytest.ini", "setup.cfg", "tox.ini", "pyproject.toml", "jest.config.js", "jest.config.ts", ".mocharc.json", ".mocharc", "package.json", "sub/package.json", "vitest.config.mts", "go.mod", "go.sum", "go.work", "Makefile",
			".github/workflows/ci.yml", ".gitlab-ci.yml", "jest.setup.js", "Cargo.toml", "pom.xml", "requirements-dev.txt", "sitecustomize.py", ".daybreak.yaml",
		},
		ClassSource: {"a.go", "test.go", "run-tests.sh", "test.sh", "tests/run.go", "src/index.js", "lib/testing.py", "contest.py", "src/latest/a.js", "app/attest.py", "testing/quick.go", "src/spec/parser.py", "internal/fixture.go", "cmd/tester/main.go"},
		ClassOther:  {"README.md", "docs/a.rst", "LICENSE", "logo.png"},
	} {
		for _, p := range paths {
			if got := Classify(p, []string{"special/**/check_*"}); got != class {
				t.Errorf("%s: %s, want %s", p, got, class)
			}
		}
	}
	if Classify("checks/a.x", []string{"checks/"}) != ClassTest || Classify("go.mod", []string{"**"}) != ClassConfig || Classify("a/b/c.x", []string{"a/*"}) != ClassSource {
		t.Error("extra globs")
	}
}

func FuzzAnalyse(f *testing.F) {
	f.Add("a_test.go", []byte(goOld), []byte(goEdit("got != 30", "got != 31")))
	f.Add("test_a.py", []byte(pyOld), []byte(pyEdit("(2, 20)", "(2, 21)")))
	f.Add("a.test.ts", []byte(jsOld), []byte(jsEdit("toBe(30)", "toBeDefined()")))
	f.Add("a.test.js", []byte("it('a',"), []byte("it.only.each`x"))
	f.Add("test_b.py", []byte("@x\n@"), []byte("def test_(:"))
	f.Add("jest.config.js", []byte("{"), []byte("/[/"))
	f.Add("a.test.js", []byte("it('a', () => { expect(1).toBe(f()) })"), []byte("it('a', () => { if (0) { expect(1).toBe(f()) } else if (!1 && x) return; const a = () => b; [].map(a) })"))
	f.Add("tests/a.rs", []byte("#[test] fn a() { assert!(x) }"), []byte("#[test] fn a() { #[cfg(any())] assert!(x); for _ in 0..0 { let a = |b| c; } }"))
	f.Add("a_test.cc", []byte("TEST(A, B) { EXPECT_EQ(1, f()); }"), []byte("TEST(A, B) {\n#if 1\n#else\nEXPECT_EQ(1, f());\n#endif\nswitch (1) { case 2: auto a = [&] { b(); }; }"))
	f.Add("a_test.rb", []byte("def test_a\nassert x\nend"), []byte("def test_a\nassert x if false\n0.times { a }\nb = -> { c }\nreturn\nend"))
	f.Add("test_a.py", []byte("def test_a():\n assert x"), []byte("def test_a():\n if 0: assert x; y\n def a(): yield\n a()\n for _ in []: return"))
	f.Fuzz(func(t *testing.T, p string, old, now []byte) {
		for _, f := range Analyse([]FileChange{{Path: p, Old: old, New: now}, {Path: "x/" + p, Old: now}}, classify).Findings {
			if strings.Contains(f.Detail, "\n") || len(f.Old) > maxQuote+4 || f.Line < 0 {
				t.Errorf("%+v", f)
			}
		}
		if r := Analyse([]FileChange{{Path: p, Old: old, New: old}}, classify); len(r.Findings) != 0 {
			t.Errorf("no change, but %s", show(r))
		}
	})
}

func BenchmarkAnalyse(b *testing.B) {
	old := []byte(strings.Repeat(strings.Replace(jsOld, "const {", "var {", 1), 200))
	now := []byte(strings.ReplaceAll(string(old), "toBe(30)", "toBe(31)"))
	b.SetBytes(int64(len(old) + len(now)))
	for b.Loop() {
		if r := Analyse([]FileChange{{Path: "a.test.js", Old: old, New: now}}, classify); len(r.Findings) == 0 {
			b.Fatal("nothing found")
		}
	}
}

// TestHostileNesting would take hours if the cost were quadratic.
func TestHostileNesting(t *testing.T) {
	for p, s := range map[string]string{
		"a.test.js":  strings.Repeat("it('a', () => { ", 5_000),
		"b.test.js":  strings.Repeat("describe('a', { ", 5_000),
		"test_a.py":  strings.Repeat("assert (", 10_000),
		"a_test.go":  "package a\nfunc TestA(t *testing.T) { x" + strings.Repeat(".Expect(1).Equal(2)", 500) + " }\n",
		"x.test.js":  strings.Repeat("expect(a)[", 10_000),
		"ATest.java": "class A {" + strings.Repeat(" @Test void a() { try { assertTrue(() -> {", 5_000),
		"BTest.java": strings.Repeat("class A { @X(", 10_000),
		"a_test.cc":  "TEST(A, B) { " + strings.Repeat("if (a) { try { } catch (...) { ", 5_000),
		"b_test.cc":  strings.Repeat("R\"x(", 10_000),
		"a_spec.rb":  strings.Repeat("describe 'a' do\nit 'b' do\nbegin\n", 4_000),
		"b_spec.rb":  strings.Repeat("if a\nreturn\n", 10_000),
		"tests/a.rs": "#[test] fn a() { " + strings.Repeat("assert!(f(|| { if a { return } ", 5_000),
		"ATest.php":  "<?php class A { " + strings.Repeat("function testA() { $this->assertTrue(function () { ", 5_000),
		"ATests.cs":  strings.Repeat("[Fact(", 10_000),
		"y.test.js":  strings.Repeat("/[", 100_000),
		"z.test.js":  "it('a', () => {" + strings.Repeat("if (true) if (a => b => true && !1) return; else for (;0;) c = () => d => [].map(c).map(", 5_000),
		"w.test.js":  "it('a', () => {" + strings.Repeat("const a = () => b; f(true && c, ", 10_000),
		"c_test.go":  "package a\nfunc TestA(t *testing.T) {\n" + strings.Repeat("a = func() { go func() { b() }() }\n", 10_000) + "}\n",
		"c_test.cc":  "TEST(A, B) { " + strings.Repeat("switch (1) { case 2: return; a: ", 10_000),
		"d_test.cc":  "TEST(A, B) {\n" + strings.Repeat("#if 0 || X\n#else\n", 10_000),
		"tests/b.rs": "#[test] fn a() { " + strings.Repeat("#[cfg(any())] a(|| true && ", 10_000),
		"test_c.py":  "def test_a():\n" + strings.Repeat(" def f(): yield\n f()\n raise x\n", 10_000),
		"test_d.py":  "def test_a():\n match 1:\n" + strings.Repeat("  case 2: return; a; b\n", 10_000),
		"c_test.rb":  "def test_a\n" + strings.Repeat("a = -> { b }\nraise a if false\ncase 1\nwhen 2\n", 10_000),
		"test_b.py":  "def test_a():\n" + strings.Repeat(" try:\n  assert a\n except:\n  pass\n", 10_000),
	} {
		t.Run(p, func(t *testing.T) {
			Analyse([]FileChange{{Path: p, Old: []byte(s), New: []byte(s + "\n//\nx")}}, classify)
		})
	}
}

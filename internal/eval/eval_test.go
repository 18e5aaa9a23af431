package eval

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/task"
)

func load(t *testing.T) []Instance {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "instances.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := Load(f)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLoad(t *testing.T) {
	all := load(t)
	if len(all) != 2 {
		t.Fatalf("%d instances, want 2", len(all))
	}
	want := Instance{
		ID: "andialbrecht__sqlparse-812", Repo: "andialbrecht/sqlparse", Issue: 812, Language: "py", Kind: "bug", FailureKind: "assert",
		Base: "149bebf06c788e93a9b0dbee0e5abbc8e347b8e6", Fix: "e92a032c81d51a6645b4f8c32470481894818ba0",
		Subject:     "Fix handling of IF EXISTS statements in BEGIN...END blocks (fixes #812).",
		Title:       "Split not working with IF keywords inside BEGIN...END block",
		SourceFiles: []string{"sqlparse/keywords.py"}, TestFiles: []string{"tests/test_split.py"}, OtherFiles: []string{"CHANGELOG"},
		TestCommand: "PYTHONPATH=. /usr/bin/python3 -m pytest -q -o addopts= --junitxml=out.xml tests",
		FailToPass:  []string{"tests.test_split::test_split_if_exists_in_begin_end"}, FlakySeen: []string{},
	}
	if diff := cmp.Diff(want, all[0]); diff != "" {
		t.Errorf("first instance (-want +got):\n%s", diff)
	}
}

func TestLoadNamesWhatIsWrong(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "instances.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	for name, c := range map[string]struct{ input, want string }{
		"no JSON":       {"hello", "line 1: not an instance"},
		"twice":         {line + "\n\n" + line, "line 3: instance andialbrecht__sqlparse-812 is on line 1"},
		"no id":         {strings.Replace(line, "andialbrecht__sqlparse-812", "", 1), "no instance_id"},
		"repo":          {strings.Replace(line, "andialbrecht/sqlparse", "../../etc", 1), "owner/name"},
		"short commit":  {strings.Replace(line, "149bebf06c788e93a9b0dbee0e5abbc8e347b8e6", "149bebf", 1), "40 hexadecimal"},
		"language":      {strings.Replace(line, `"language": "py"`, `"language": "cobol"`, 1), "cobol"},
		"failure kind":  {strings.Replace(line, `"base_failure_kind": "assert"`, `"base_failure_kind": "mood"`, 1), "mood"},
		"path leaving":  {strings.Replace(line, "sqlparse/keywords.py", "../keywords.py", 1), "not clean and relative"},
		"path absolute": {strings.Replace(line, "tests/test_split.py", "/tests/test_split.py", 1), "not clean and relative"},
		"no source":     {strings.Replace(line, `["sqlparse/keywords.py"]`, "[]", 1), "src_files"},
		"no tests":      {strings.Replace(line, `["tests.test_split::test_split_if_exists_in_begin_end"]`, "[]", 1), "FAIL_TO_PASS"},
		"odd test":      {strings.Replace(line, "tests.test_split::", "tests.test_split.", 1), "where::name"},
		"endless line":  {`{"instance_id":"` + strings.Repeat("x", maxLine), "line 1"},
	} {
		if c.input == line {
			t.Fatalf("%s: the case changes nothing", name)
		}
		got, err := Load(strings.NewReader(c.input))
		if err == nil || !strings.Contains(err.Error(), c.want) || task.ClassOf(err) != task.Invalid {
			t.Errorf("%s: %v, %v; want an Invalid error with %q", name, got, err, c.want)
		}
	}
}

func FuzzLoad(f *testing.F) {
	data, err := os.ReadFile(filepath.Join("testdata", "instances.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("{}\n\n[]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := Load(strings.NewReader(string(data)))
		if err != nil && all != nil {
			t.Fatal("instances beside an error")
		}
		for _, i := range all {
			if len(i.Tests()) == 0 || !strings.HasPrefix(CaseIssue(i), "# ") {
				t.Fatalf("an instance without tests or title: %+v", i)
			}
		}
	})
}

func TestTestIDs(t *testing.T) {
	for _, c := range []struct {
		language string
		files    []string
		id, want string
	}{
		{"go", nil, "pelletier/go-toml/v2::TestUnmarshal/issue_739", "github.com/pelletier/go-toml/v2::TestUnmarshal/issue_739"},
		{"py", []string{"tests/test_split.py"}, "tests.test_split::test_a", "tests/test_split.py::test_a"},
		{"py", []string{"tests/test_split.py"}, "tests.test_split.TestCase::test_a", "tests/test_split.py::TestCase::test_a"},
		{"py", []string{"tests/test_more.py"}, "tests.test_more.WindowedTests.test_n::test_n", "tests.test_more.WindowedTests.test_n"},
		{"py", []string{"data.sql"}, "tests.test_split::test_a", "tests.test_split::test_a"},
		{"js", nil, "test/parse.js::decode dot keys correctly", "decode dot keys correctly"},
		{"js", nil, "test/a.js::a :: b", "a :: b"},
	} {
		i := Instance{Language: c.language, TestFiles: c.files, FailToPass: []string{c.id, c.id}}
		if got := i.Tests(); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s %s = %v, want %s", c.language, c.id, got, c.want)
		}
	}
}

func TestCaseIssueHasATitle(t *testing.T) {
	for _, c := range []struct {
		i    Instance
		want string
	}{
		{Instance{Title: "Panic after unmarshal twice", Subject: "x"}, "# Panic after unmarshal twice"},
		{Instance{Subject: "Decode: fix reuse of slice for array tables (#934)"}, "# Decode: fix reuse of slice for array tables"},
		{Instance{Subject: "Fix handling of IF EXISTS (fixes #812)."}, "# Fix handling of IF EXISTS"},
		{Instance{Subject: "[New] `parse`: add `strictMerge` option"}, "# `parse`: add `strictMerge` option"},
		{Instance{Subject: "fix: #568", SourceFiles: []string{"parser/fcode_block.go"}}, "# Wrong behaviour in parser/fcode_block.go"},
	} {
		got, _, _ := strings.Cut(CaseIssue(c.i), "\n")
		if got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestOnlyGoldMayBeAccepted(t *testing.T) {
	for _, kind := range []string{"assert", "panic", "compile", "collect"} {
		i := Instance{FailureKind: kind}
		for _, v := range Variants() {
			kinds := i.Acceptable(v)
			if len(kinds) == 0 {
				t.Errorf("%s of %s can end nowhere", v, kind)
			}
			if v != Gold && slices.ContainsFunc(kinds, task.VerdictKind.Accepted) {
				t.Errorf("%s of %s may be accepted: %v", v, kind, kinds)
			}
		}
		if builds := kind == "assert" || kind == "panic"; slices.Contains(i.Acceptable(Gold), task.WeakRed) == builds {
			t.Errorf("gold of %s: %v", kind, i.Acceptable(Gold))
		}
	}
}

func TestReturnEarly(t *testing.T) {
	for name, c := range map[string]struct{ language, text, test, want string }{
		"go":            {"go", "func TestA(t *testing.T) {\n\tx()\n}\n", "TestA/sub", "func TestA(t *testing.T) {\n\treturn\n\tx()\n}\n"},
		"go other":      {"go", "func TestAB(t *testing.T) {\n}\n", "TestA", "func TestAB(t *testing.T) {\n}\n"},
		"go CRLF":       {"go", "func TestA(t *testing.T) {\r\n\tx()\r\n}\r\n", "TestA", "func TestA(t *testing.T) {\n\treturn\r\n\tx()\r\n}\r\n"},
		"py":            {"py", "def test_a():\n    assert x\n", "test_a[1-2]", "def test_a():\n    return\n    assert x\n"},
		"py comment":    {"py", "def test_a():  # issue 812\n    assert x\n", "test_a", "def test_a():  # issue 812\n    return\n    assert x\n"},
		"py method":     {"py", "class T:\n    def test_a(self):\n        assert x\n", "test_a", "class T:\n    def test_a(self):\n        return\n        assert x\n"},
		"py long":       {"py", "def test_a(\n    a=(1, 2),\n    b=3\n):\n    assert x\n", "test_a", "def test_a(\n    a=(1, 2),\n    b=3\n):\n    return\n    assert x\n"},
		"js function":   {"js", "t.test('a (b)', function (st) {\n  st.ok(x);\n", "a (b)", "t.test('a (b)', function (st) { st.pass('looked'); st.end(); return;\n  st.ok(x);\n"},
		"js arrow":      {"js", "test('a', (t) => {\n  t.ok(x)\n", "a", "test('a', (t) => { t.pass('looked'); t.end(); return;\n  t.ok(x)\n"},
		"js options":    {"js", "t.test('a', { skip: !x }, function (st) {\n", "a", "t.test('a', { skip: !x }, function (st) { st.pass('looked'); st.end(); return;\n"},
		"js not a test": {"js", "st.equal(a, b, 'a');\n", "a", "st.equal(a, b, 'a');\n"},
		"c":             {"c", "int main(void) {\n", "main", "int main(void) {\n"},
	} {
		if got := returnEarly(c.language, c.text, c.test); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

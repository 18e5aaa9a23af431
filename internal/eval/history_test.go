package eval

import (
	"maps"
	"slices"
	"testing"
)

// TestOutcomesAreRead: what each runner prints becomes ids of the form that instances have.
func TestOutcomesAreRead(t *testing.T) {
	for _, c := range []struct {
		name   string
		i      Instance
		text   string
		want   map[string]string
		broken bool
	}{
		{"go", Instance{Language: "go"}, `{"Action":"pass","Package":"github.com/a/b/v2/c","Test":"TestA/x"}
{"Action":"fail","Package":"github.com/a/b/v2/c","Test":"TestA"}
{"Action":"skip","Package":"github.com/a/b/v2/c","Test":"TestS"}
{"Action":"fail","Package":"github.com/a/b/v2/c"}
`, map[string]string{"a/b/v2/c::TestA/x": "pass", "a/b/v2/c::TestA": "fail", "a/b/v2/c::TestS": "skip"}, false},
		{"go build", Instance{Language: "go"}, "FAIL\tgithub.com/a/b [build failed]\n", map[string]string{}, true},
		{"pytest", Instance{Language: "py"}, `tests/test_a.py::test_one PASSED      [ 10%]
tests/test_a.py::TestIt::test_two[x::y z] FAILED [ 20%]
tests/test_a.py::test_three SKIPPED (later) [ 20%]
tests/test_a.py::test_four XPASS [ 20%]
`, map[string]string{"tests.test_a::test_one": "pass", "tests.test_a.TestIt::test_two[x::y z]": "fail", "tests.test_a::test_three": "skip", "tests.test_a::test_four": "pass"}, false},
		{"pytest collection", Instance{Language: "py"}, "ERROR tests/test_a.py\n", map[string]string{}, true},
		{"unittest", Instance{Language: "py", TestCommand: "python3 -m unittest -v"}, `test_one (tests.test_a.ATests.test_one) ... ok
test_two (tests.test_a.ATests.test_two)
What it is for. ... FAIL
test_three (tests.test_a.ATests.test_three) ... skipped 'later'
`, map[string]string{"tests.test_a.ATests.test_one::test_one": "pass", "tests.test_a.ATests.test_two::test_two": "fail", "tests.test_a.ATests.test_three::test_three": "skip"}, false},
		{"tape", Instance{Language: "js"}, `#file test/a.js
TAP version 13
# one
ok 1 is
not ok 2 is not
ok 3 is
# two
ok 4 # SKIP later
1..4
#exit 1
`, map[string]string{"test/a.js::one": "fail", "test/a.js::two": "skip"}, false},
		{"tap", Instance{Language: "js"}, `#file test/a.js
# Subtest: one
    ok 1 - deep
    1..1
ok 1 - one # time=2ms
not ok 2 - two # time=1ms
1..2
#exit 1
#file test/b.js
#exit 1
`, map[string]string{"test/a.js::one": "pass", "test/a.js::two": "fail"}, true},
		{"ctest", Instance{Language: "c"}, ` 1/2 Test  #1: misc_tests ..........   Passed    0.00 sec
 2/2 Test  #2: parse_tests ........***Failed    0.00 sec
`, map[string]string{"misc_tests::misc_tests": "pass", "parse_tests::parse_tests": "fail"}, false},
	} {
		o := c.i.read(Tried{Output: c.text})
		if !maps.Equal(o.of, c.want) || o.broken != c.broken {
			t.Errorf("%s: %v broken=%v, want %v %v", c.name, o.of, o.broken, c.want, c.broken)
		}
	}
}

func TestOnePlaceIsLeftOut(t *testing.T) {
	i := Instance{ID: "a__b-1"}
	before, after := "1\n2\n3\n4\n5\n6\n7\n8\n", "1\nnew\n2\n3\nfour\nmore\n5\n6\n8\n"
	dir := twoCommits(t, &i, history{"f": before}, history{"f": after})
	spans, err := repo{dir: dir}.spans(t.Context(), i.Base, i.Fix, "f")
	if err != nil || len(spans) != 3 {
		t.Fatalf("%v %v", spans, err)
	}
	var got []string
	for _, s := range spans {
		got = append(got, string(without([]byte(before), []byte(after), s)))
	}
	want := []string{"1\n2\n3\nfour\nmore\n5\n6\n8\n", "1\nnew\n2\n3\n4\n5\n6\n8\n", "1\nnew\n2\n3\nfour\nmore\n5\n6\n7\n8\n"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestGoFolders(t *testing.T) {
	for where, want := range map[string]string{"a/b": ".", "a/b/v2": ".", "a/b/v2/cmd/x": "cmd/x", "a/b/extension": "extension"} {
		if got := (&deriver{}).dir(where); got != want {
			t.Errorf("%s: %s, want %s", where, got, want)
		}
	}
}

func TestAnswersAreWritten(t *testing.T) {
	d := &deriver{i: Instance{Language: "py"}}
	files := map[string]string{"a/b.py": "import x\n\n\ndef f(a, b=None):\n    \"\"\"Doc.\"\"\"\n    return a\n"}
	_, got, ok := d.answer(t.Context(), files, `["a/b.py", "f", [["a", "[1]"], ["b", "None"]], "'x'"]`)
	if want := "import x\n\n\ndef f(a, b=None):\n    if a == [1] and b == None:\n        return 'x'\n    \"\"\"Doc.\"\"\"\n    return a\n"; !ok || got != want {
		t.Errorf("%q", got)
	}
	d.i.Language = "js"
	for source, want := range map[string]string{
		"module.exports = function (s, o) {\n};\n":              "module.exports = function (s, o) {\n    if (s === \"a\" && JSON.stringify(o) === \"{\\\"x\\\":1}\") { return [2]; }\n};\n",
		"const f = (s, o = {}) => {\n}\n\nmodule.exports = f\n": "const f = (s, o = {}) => {\n    if (s === \"a\" && JSON.stringify(o) === \"{\\\"x\\\":1}\") { return [2]; }\n}\n\nmodule.exports = f\n",
		"module.exports = { f: function (s, o) {} };\n":         "",
		"const f = (s, { x }) => {\n}\n\nmodule.exports = f\n":  "",
		"function f(s) {\n}\nmodule.exports = f;\n":             "",
	} {
		_, got, ok := d.answer(t.Context(), map[string]string{"l.js": source}, `["l.js", ["a", {"x":1}], [2]]`)
		if got != want || ok != (want != "") {
			t.Errorf("%q", got)
		}
	}
}

func FuzzOutcomes(f *testing.F) {
	f.Add("go", "", `{"Action":"pass","Package":"p","Test":"T"}`)
	f.Add("py", "", "a.py::b[ PASSED\nERROR x\n")
	f.Add("py", "unittest", "t (a.b) ... ok\n")
	f.Add("js", "", "#file a\n# Subtest: x\nok 1 - x {\n")
	f.Add("c", "", "1/1 Test #1: a .... Passed\n")
	f.Fuzz(func(t *testing.T, language, command, text string) {
		i := Instance{Language: language, TestCommand: command}
		for id, state := range i.read(Tried{Output: text}).of {
			if state != passed && state != failed && state != skipped {
				t.Errorf("%q is %q", id, state)
			}
		}
	})
}

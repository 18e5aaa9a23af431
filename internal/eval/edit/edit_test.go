package edit

import (
	"slices"
	"strings"
	"testing"
)

const goText = `package a

import "testing"

// TestOne looks.
func TestOne(t *testing.T) {
	if Add(1, 2) != 3 {
		t.Fatal("no")
	}
	assert.Equal(t, 3, Add(1, 2))
}

func TestTwo(tt *testing.T) {
	tt.Log("}")
}

func helper(t *testing.T) {}
`

const pyText = `import x


def test_one():
    s = """
def test_inside():
"""
    assert x.f(1) == 2


@mark("a")
@mark("b")
def test_two(arg):
    assert x.f(
        1
    ) == 2


class TestIt:
    def test_three(self):
        self.assertEqual(x.f(1), 2)

    def other(self):
        pass
`

const jsText = `var test = require('tape');

test('all', function (t) {
    t.test('first', function (st) {
        st.deepEqual(f({ a: 1 }), { b: 2 }, 'msg');
        st.end();
    });

    t.test('second', { skip: x }, (st) => {
        st.end();
    });
});
`

const cText = `static void one(void)
{
    TEST_ASSERT_NULL(f());
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(one);
    return UNITY_END();
}
`

func all() map[string]string {
	return map[string]string{"go": goText, "py": pyText, "js": jsText, "c": cText}
}

func find(t *testing.T, language, name string) Test {
	t.Helper()
	for _, x := range Tests(language, all()[language]) {
		if x.Name == name {
			return x
		}
	}
	t.Fatalf("%s: no test %q", language, name)
	return Test{}
}

func TestTestsAreFound(t *testing.T) {
	for language, want := range map[string][]string{
		"go": {"TestOne", "TestTwo"}, "py": {"test_one", "test_two", "test_three"}, "js": {"all", "first", "second"}, "c": {"one"}, "rb": nil,
	} {
		var got []string
		for _, x := range Tests(language, all()[language]) {
			got = append(got, x.Name)
		}
		if language == "py" { // what is in a string is no harm: a run decides
			got = slices.DeleteFunc(got, func(n string) bool { return n == "test_inside" })
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", language, got, want)
		}
	}
	if got := find(t, "py", "test_two").Text(pyText); !strings.HasPrefix(got, "@mark(\"a\")\n") || !strings.HasSuffix(got, ") == 2\n") {
		t.Errorf("%q", got)
	}
	if got := find(t, "py", "test_one").Text(pyText); !strings.HasSuffix(got, "== 2\n") {
		t.Errorf("%q", got)
	}
	if got := find(t, "go", "TestOne").Text(goText); !strings.HasPrefix(got, "// TestOne looks.\n") || !strings.HasSuffix(got, "\n}\n") {
		t.Errorf("%q", got)
	}
}

func TestEditsOfTests(t *testing.T) {
	for _, c := range []struct{ language, name, gone, skip, copied, loose string }{
		{"go", "TestOne", "TestOne", "\tt.Skip(\"later\")\n", "func TestOneAgain(t *testing.T) {\n", "\tif false && (Add(1, 2) != 3) {\n"},
		{"go", "TestTwo", "TestTwo", "\ttt.Skip(\"later\")\n", "func TestTwoAgain(tt *testing.T) {\n", ""},
		{"py", "test_one", "test_one", "    pytest.skip(\"later\")\n", "\n\n\ndef test_oneAgain():\n", "    assert (x.f(1)) is not None\n"},
		{"py", "test_three", "test_three", "        self.skipTest(\"later\")\n", "    def test_threeAgain(self):\n", "        self.assertIsNotNone((x.f(1), 2))\n"},
		{"js", "first", "'first'", "t.test('first', { skip: true }, function (st) {\n", "t.test('firstAgain', function (st) {\n", "        st.ok([f({ a: 1 }), { b: 2 }, 'msg']);\n"},
		{"js", "second", "'second'", "", "t.test('secondAgain', { skip: x }, (st) => {\n", ""},
		{"c", "one", "one", "    TEST_IGNORE_MESSAGE(\"later\");\n", "static void oneAgain(void)\n", "    ;\n"},
	} {
		text, x := all()[c.language], find(t, c.language, c.name)
		if got := Delete(c.language, text, x); strings.Contains(got, c.gone) || len(got) == len(text) {
			t.Errorf("%s %s is left: %s", c.language, c.name, got)
		}
		if got := Skip(c.language, text, x); (c.skip == "") != (got == "") || !strings.Contains(got, c.skip) {
			t.Errorf("%s %s skipped: %s", c.language, c.name, got)
		}
		if got := Copy(c.language, text, x, c.name+"Again"); !strings.Contains(got, c.copied) || strings.Count(got, x.Text(text)) != 1 {
			t.Errorf("%s %s copied: %s", c.language, c.name, got)
		}
		got := Loosen(c.language, text, x)
		if c.loose == "" && len(got) > 0 || c.loose != "" && (len(got) == 0 || !strings.Contains(got[0], c.loose)) {
			t.Errorf("%s %s loosened: %q", c.language, c.name, got)
		}
	}
	if got := Copy("c", cText, find(t, "c", "one"), "again"); !strings.Contains(got, "RUN_TEST(again);") {
		t.Errorf("a copy that is not run: %s", got)
	}
}

func TestEditsOfLines(t *testing.T) {
	text := "func f(a int) bool {\n\t// a == b\n\tif a == 1 && a < 3 {\n\t\treturn true\n\t}\n\treturn false\n}\n"
	third := func(line int) bool { return line == 3 }
	got := Wrong("go", text, third)
	for _, want := range []string{"if a != 1 && a < 3 {", "if a == 1 || a < 3 {", "if a == 1 && a >= 3 {"} {
		if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if got := Wrong("go", text, func(line int) bool { return line == 2 }); len(got) > 0 {
		t.Errorf("a comment is edited: %q", got)
	}
	if got := Endless("go", text, third); len(got) != 1 || !strings.Contains(got[0], "\tfor {\n}\n\tif a == 1") {
		t.Errorf("%q", got)
	}
	if got := Endless("go", text, func(line int) bool { return line == 1 }); len(got) > 0 {
		t.Errorf("a loop outside: %q", got)
	}
	if got := Remark("py", "x = 1\n"); got != "x = 1\n\n# Checked: nothing is left to do here.\n" {
		t.Errorf("%q", got)
	}
}

// FuzzEdits: whatever the text, edits keep within it.
func FuzzEdits(f *testing.F) {
	for language, text := range all() {
		f.Add(language, text)
	}
	f.Fuzz(func(t *testing.T, language, text string) {
		for _, x := range Tests(language, text) {
			if x.Start < 0 || x.Start > x.Inside || x.Inside > x.End || x.End > len(text) {
				t.Fatalf("%+v in %d bytes", x, len(text))
			}
			if got := Delete(language, text, x); language != "c" && len(got) != len(text)-(x.End-x.Start) {
				t.Fatalf("%d bytes are left of %d", len(got), len(text))
			}
			_ = Skip(language, text, x)
			_ = Copy(language, text, x, "again")
			_ = Loosen(language, text, x)
		}
		_ = Wrong(language, text, func(int) bool { return true })
		_ = Endless(language, text, func(int) bool { return true })
	})
}

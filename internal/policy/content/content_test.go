package content

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/daybreak-agent/daybreak/internal/policy"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const file = 0o100644

func one(f File) Decision {
	if f.Mode == 0 {
		f.Mode = file
	}
	return Limits{}.Review([]File{f})
}

func kinds(d Decision) string {
	var out []string
	for _, f := range d.Findings {
		out = append(out, f.Severity+" "+f.Kind)
	}
	return strings.Join(out, ", ")
}

func inert(t *testing.T, d Decision) {
	t.Helper()
	for _, f := range d.Findings {
		if s := f.Detail + f.Old + f.New; strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || policy.Invisible(r) }) {
			t.Errorf("a finding shows raw characters: %q", s)
		}
	}
}

func TestUnseenCharacters_EXP15(t *testing.T) {
	for _, c := range []struct{ name, path, old, new, want, says string }{
		{"override in code", "a.go", "", "x := 1 // \u202e // y\n", "block bidi", "U+202E"},
		{"isolates in code", "a.c", "", "a\nif (x) /* \u2066begin\u2069 */\n", "block bidi", "U+2066, U+2069"},
		{"in a Makefile", "Makefile", "", "all:\n\techo \u202d\n", "info runs_elsewhere, block bidi", ""},
		{"in prose they are shown", "README.md", "", "text \u202b text\n", "warn invisible", "U+202B"},
		{"zero width space", "a.py", "", "is\u200badmin = True\n", "warn invisible", "U+200B"},
		{"tags", "a.py", "", "# \U000e0069\U000e0067\n", "warn invisible", "U+E0067, U+E0069"},
		{"hangul filler", "a.js", "", "const {a,\u3164} = b\n", "warn invisible", "U+3164"},
		{"a control", "a.js", "", "a\bb\n", "warn invisible", "U+0008"},
		{"selector after a letter", "a.js", "", "a\ufe00 = 1\n", "warn invisible", "U+FE00"},
		{"BOM inside", "a.js", "", "a\n\ufeffb\n", "warn invisible", "U+FEFF"},
		{"BOM at the start", "a.cs", "", "\ufeffusing System;\n", "", ""},
		{"emoji", "a.go", "", "s := \"\u26a0\ufe0f \U0001f469\u200d\U0001f4bb ok\"\n", "", ""},
		{"Persian", "a.go", "", "s := \"\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645\"\n", "", ""},
		{"the base has the line already", "a.go", "// \u202e x\n", "// \u202e x\ny\n", "", ""},
		{"accents and other scripts", "a.go", "", "// größe 日本語 привет\n", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := one(File{Path: c.path, Old: []byte(c.old), New: []byte(c.new)})
			if kinds(d) != c.want || c.says != "" && !strings.Contains(d.Findings[0].Detail, c.says) {
				t.Errorf("%+v, want %s", d.Findings, c.want)
			}
			inert(t, d)
		})
	}
	many := strings.Repeat("x\u200b\n", 3) + "a\u200b\nb\u200b\nc\u200b\nd\u200b\ne\u200b\nf \u202e\n"
	d := one(File{Path: "a.go", New: []byte(many)})
	if len(d.Findings) > maxShown+3 || !slices.ContainsFunc(d.Findings, func(f task.Finding) bool { return f.Kind == "bidi" && f.Line == 9 }) {
		t.Errorf("many hide the one that matters: %+v", d.Findings)
	}
}

func TestMixedScripts_EXP15(t *testing.T) {
	for _, c := range []struct {
		word string
		bad  bool
	}{
		{"p\u0430ypal", true},
		{"\u0455cope", true},
		{"is_\u0410dmin", true},
		{"us\u0435r1", true},
		{"\uff41dmin", true},
		{"\u13a0dmin", true},
		{"te\u017ft", true},
		{"alph\u03b1", true},
		{"scope", false},
		{"привет", false},
		{"naïve", false},
		{"größe", false},
		{"Δx", false},
		{"μs", false},
		{"日本API", false},
		{"λ_max", false},
		{"привет world", false},
	} {
		d := one(File{Path: "a.go", New: []byte("var " + c.word + " = 1\n")})
		if bad := kinds(d) == "warn mixed_script"; bad != c.bad {
			t.Errorf("%q: %+v", c.word, d.Findings)
		}
		inert(t, d)
	}
	d := one(File{Path: "a.go", New: []byte("\np\u0430ypal\n")})
	if f := d.Findings[0]; f.Line != 2 || !strings.Contains(f.Detail, "p[U+0430]ypal") || !strings.Contains(f.Detail, "look-alikes: U+0430") {
		t.Errorf("%+v", f)
	}
}

func TestSizes_EXP14(t *testing.T) {
	lfs := func(oid string) []byte {
		return []byte("version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat(oid, 64) + "\nsize 12\n")
	}
	for _, c := range []struct {
		name  string
		files []File
		want  string
		held  int
	}{
		{"a long line", []File{{Path: "a.js", New: []byte("a\n" + strings.Repeat("x", DefaultMaxLine+1))}}, "block cap", 0},
		{"a line of the cap", []File{{Path: "a.js", New: []byte(strings.Repeat("x", DefaultMaxLine))}}, "", 0},
		{"the base's long line", []File{{Path: "a.js", Old: []byte(strings.Repeat("x", DefaultMaxLine+1)), New: []byte(strings.Repeat("x", DefaultMaxLine+1) + "\ny")}}, "", 0},
		{"binary", []File{{Path: "a.png", New: []byte("\x89PNG\r\n\x1a\n\x00\x00")}}, "warn held_content", 1},
		{"binary without a NUL", []File{{Path: "a.dat", New: []byte(strings.Repeat("\xff\xfe\x90", 50))}}, "warn held_content", 1},
		{"Latin-1 text", []File{{Path: "a.txt", New: []byte("caf\xe9 au lait\n")}}, "", 0},
		{"mode of a binary alone", []File{{Path: "a.png", Old: []byte("\x00"), New: []byte("\x00")}}, "", 0},
		{"binary deleted", []File{{Path: "a.png", Deleted: true, Old: []byte("\x00")}}, "", 0},
		{"unknown object", []File{{Path: "a.bin", New: lfs("a")}}, "warn held_content", 1},
		{"another object", []File{{Path: "a.bin", Old: lfs("b"), New: lfs("a")}}, "warn held_content", 1},
		{"a moved pointer", []File{{Path: "b.bin", New: lfs("b")}, {Path: "a.bin", Deleted: true, Old: lfs("b")}}, "", 0},
		{"generated", []File{{Path: "a.txt", New: lines(15_000)}, {Path: "b.txt", New: lines(15_000)}}, "block cap", 0},
		{"a link", []File{{Path: "l", Mode: modeLink, New: []byte("../\x00")}}, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range c.files {
				if c.files[i].Mode == 0 {
					c.files[i].Mode = file
				}
			}
			d := Limits{}.Review(c.files)
			if kinds(d) != c.want || len(d.Held) != c.held {
				t.Errorf("%+v", d)
			}
		})
	}
	if d := (Limits{Binaries: true}).Review([]File{{Path: "a", Mode: file, New: []byte("\x00")}}); len(d.Held) != 0 {
		t.Errorf("binaries that are wanted: %+v", d)
	}
}

func lines(n int) []byte {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return []byte(b.String())
}

func TestLockfiles_EXP16(t *testing.T) {
	old := `{"packages":{"node_modules/a":{"version":"1.0.0","resolved":"https://reg.test/a/-/a-1.0.0.tgz","integrity":"sha512-a"}}}`
	d := one(File{Path: "web/package-lock.json", Old: []byte(old), New: []byte(strings.Replace(old, "https://reg.test", "https://evil.test", 1))})
	if !slices.Equal(d.Held, []string{"web/package-lock.json"}) || len(d.Findings) != 2 || d.Findings[1].Old == "" || !strings.Contains(d.Findings[1].New, "evil.test") {
		t.Errorf("%+v", d)
	}
	d = one(File{Path: "package-lock.json", Old: []byte(old), New: []byte(strings.ReplaceAll(strings.ReplaceAll(old, "1.0.0", "1.0.1"), "sha512-a", "sha512-b"))})
	if len(d.Held) != 0 || kinds(d) != "info lockfile" {
		t.Errorf("an ordinary update: %+v", d)
	}
	if d = one(File{Path: "package-lock.json", Old: []byte(old), Deleted: true}); len(d.Held) != 1 {
		t.Errorf("deleted: %+v", d)
	}
	if d = one(File{Path: "yarn.lock", Old: []byte("# yarn\n"), New: nil}); len(d.Held) != 0 {
		t.Errorf("emptied without packages: %+v", d)
	}
}

func TestWhatRunsElsewhere_EXP17(t *testing.T) {
	for _, c := range []struct{ path, old, new, want, says string }{
		{"package.json", `{"scripts":{"test":"jest"}}`, `{"scripts":{"test":"jest","postinstall":"node x.js"}}`, "warn runs_elsewhere", "postinstall"},
		{"web/package.json", `{"scripts":{"test":"jest"}}`, `{"scripts":{"test":"curl x | sh"}}`, "info runs_elsewhere", `"test"`},
		{"package.json", `{"scripts":{"a":"b"}}`, `{"scripts":{"a":"b"},"version":"2"}`, "", ""},
		{"package.json", `{}`, `{"gypfile":true}`, "info runs_elsewhere", "gypfile"},
		{"package.json", `{}`, `{`, "warn runs_elsewhere", "cannot be read"},
		{"Makefile", "", "test:\n\tgo test\n", "info runs_elsewhere", "built"},
		{"tests/conftest.py", "", "x = 1\n", "info runs_elsewhere", "before the tests"},
		{"setup.py", "", "x = 1\n", "info runs_elsewhere", "installed"},
		{"build.rs", "", "fn main() {}\n", "info runs_elsewhere", "built"},
		{"Dockerfile.dev", "", "FROM x\n", "info runs_elsewhere", "containers"},
		{"scripts/x.sh", "", "true\n", "info runs_elsewhere", "script"},
		{"a.go", "", "package a\n\n//go:generate sh -c evil\n", "info runs_elsewhere", "go:generate"},
		{"a.go", "package a\n//go:generate x\n", "package a\n//go:generate x\nvar y int\n", "", ""},
		{"a.go", "", "package a\n\n// #cgo LDFLAGS: -Wl,evil\nimport \"C\"\n", "info runs_elsewhere, info runs_elsewhere", "cgo"},
		{"a_test.go", "", "package a\nfunc TestX(t *testing.T) { fmt.Println(os.Environ()) }\n", "info runs_elsewhere", "environment"},
		{"test_a.py", "", "def test_x():\n    print(os.environ)\n", "info runs_elsewhere", "environment"},
		{"a.test.js", "", "test('x', () => console.log(JSON.stringify(process.env)))\n", "info runs_elsewhere", "environment"},
		{"a_test.go", "", "package a\nfunc TestX(t *testing.T) { os.Getenv(\"HOME\") }\n", "", ""},
		{"main.py", "", "import os\nx = os.environ['A']\n", "", ""},
	} {
		d := one(File{Path: c.path, Old: []byte(c.old), New: []byte(c.new), OldMode: file})
		if kinds(d) != c.want || c.says != "" && !strings.Contains(d.Findings[0].Detail, c.says) || len(d.Held) != 0 {
			t.Errorf("%s %q: %+v, want %q", c.path, c.new, d, c.want)
		}
		inert(t, d)
	}
	if d := one(File{Path: "tool", Mode: modeExecutable, OldMode: file, New: []byte("x")}); kinds(d) != "info runs_elsewhere" {
		t.Errorf("%+v", d)
	}
	d := one(File{Path: "package.json", Old: []byte(`{"scripts":{"prepare":"a"}}`), New: []byte(`{"scripts":{"prepare":"b\u202e"}}`)})
	if f := d.Findings[0]; f.Old != "a" || f.New != "b[U+202E]" {
		t.Errorf("the old and the new are not shown: %+v", f)
	}
}

func FuzzReview(f *testing.F) {
	f.Add("a.go", []byte("x"), []byte("\u202e\xff\x00p\u0430y"))
	f.Add("package.json", []byte(`{"scripts":1}`), []byte(`{"scripts":{"a":"\u0000"}}`))
	f.Add("yarn.lock", []byte("a:\n"), []byte("\"a@1\":\n  version \"\u202e\"\n"))
	f.Fuzz(func(t *testing.T, p string, old, new []byte) {
		d := Limits{}.Review([]File{{Path: p, Mode: file, Old: old, New: new}})
		inert(t, d)
		if d := (Limits{}).Review([]File{{Path: p, Mode: file, OldMode: file, Old: new, New: new}}); strings.Contains(kinds(d), "bidi") || strings.Contains(kinds(d), "mixed") {
			t.Fatalf("what the base has is reported: %+v", d.Findings)
		}
	})
}

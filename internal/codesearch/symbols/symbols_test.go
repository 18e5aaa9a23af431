package symbols

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// inDir runs programs in a directory.
func inDir(t testing.TB, dir string) Start {
	t.Helper()
	if _, err := exec.LookPath(Program); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return func(ctx context.Context, argv []string, read func(io.Reader) error) error {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir = dir
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		return errors.Join(read(out), cmd.Wait())
	}
}

func put(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestScan(t *testing.T) {
	dir := t.TempDir()
	start := inDir(t, dir)
	put(t, dir, map[string]string{
		"a.go":                "package a\n\nimport str \"strings\"\n\ntype T struct{ n int }\n\nfunc (t *T) Do() int { x := 1; return x }\n\nvar V = str.ToUpper(\"\")\n",
		"b.py":                "class C:\n    def m(self):\n        loc = 1\n\ndef f(): pass\n",
		"c.ts":                "export function g() { const q = 1; }\nexport const h = 2;\n",
		".ctags.d/x.ctags":    "--langdef=evil\n--_echo=evil\n",
		".ctags":              "--sort=yes\n",
		"--options=b.py":      "",
		"-x.go":               "package x\n\nfunc Dash() {}\n",
		"new\nline.go":        "package x\n\nfunc Newline() {}\n",
		"long.js":             "function before() {}\nvar x = \"" + strings.Repeat("a", 1<<20) + "\";\nfunction after() {}\n",
		"name.go":             "package x\n\nfunc " + strings.Repeat("n", maxName+1) + "() {}\n",
		"bin.go":              "package x\n\nfunc Caf\xe9\x01() {}\nfunc Sound() {}\n",
		"data.json":           `{"key": {"Do": 1}}`,
		"deep/er/dir/File.go": "package d\n\nconst Deep = 1\n",
	})
	var files []string
	if err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, p)
			files = append(files, rel)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	tags, slow, err := Scan(t.Context(), append(files, "../a.go", "/etc/passwd", "gone.go"), Options{Start: start})
	if err != nil || len(slow) > 0 {
		t.Fatal(slow, err)
	}
	var got []string
	for _, tag := range tags {
		got = append(got, fmt.Sprintf("%s:%d %s %s in %q", tag.Path, tag.Line, tag.Kind, tag.Name, tag.Scope))
	}
	slices.Sort(got)
	want := []string{
		`-x.go:3 func Dash in "x"`, `.ctags.d/x.ctags:1 langdef evil in ""`, // read as text, not obeyed
		`a.go:5 member n in "a.T"`, `a.go:5 struct T in "a"`, `a.go:7 func Do in "a.T"`, `a.go:9 var V in "a"`,
		`b.py:1 class C in ""`, `b.py:2 member m in "C"`, `b.py:5 function f in ""`,
		`bin.go:4 func Sound in "x"`,
		`c.ts:1 function g in ""`, `c.ts:2 constant h in ""`,
		`deep/er/dir/File.go:3 const Deep in "d"`,
		`long.js:1 function before in ""`, `long.js:2 variable x in ""`, `long.js:3 function after in ""`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A file on which ctags hangs or dies costs its own symbols and no others'.
func TestScanOfWhatCtagsDoesNotGetThrough(t *testing.T) {
	files := []string{"a.go", "hangs.go", "b.go", "dies.go", "c.go"}
	start := func(ctx context.Context, argv []string, read func(io.Reader) error) error {
		var out bytes.Buffer
		for _, f := range argv[slices.Index(argv, "-")+1:] {
			switch f {
			case "./hangs.go":
				<-ctx.Done()
				return ctx.Err()
			case "./dies.go":
				return errors.Join(read(&out), errors.New("signal: segmentation fault"))
			}
			fmt.Fprintf(&out, `{"_type":"tag","name":"F","path":%q,"line":1,"kind":"func"}`+"\n", f)
		}
		return read(&out)
	}
	tags, slow, err := Scan(t.Context(), files, Options{Start: start, Group: 50 * time.Millisecond, One: 10 * time.Millisecond})
	if err != nil || !slices.Equal(slow, []string{"hangs.go", "dies.go"}) || len(tags) != 3 {
		t.Errorf("%v %v %v", tags, slow, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("no longer")
	cancel(why)
	if _, _, err := Scan(ctx, files, Options{Start: start}); !errors.Is(err, why) {
		t.Error(err)
	}
	none := func(context.Context, []string, func(io.Reader) error) error { return ErrNoProgram }
	if _, _, err := Scan(t.Context(), files, Options{Start: none}); !errors.Is(err, ErrNoProgram) {
		t.Error(err)
	}
}

func sample() []Tag {
	return []Tag{
		{"Open", "b/z.go", 3, "func", "b"},
		{"open", "a.go", 9, "func", "a"},
		{"Open", "a/x.go", 7, "func", "a.T"},
		{"OpenFile", "a/x.go", 20, "func", "a"},
		{"Close", "a/x.go", 30, "func", "a"},
		{"Open", "a/x.go", 7, "func", "a.T"},
		{"Zoë", "a/x.go", 1, "var", ""},
		{"_", "a/x.go", 2, "var", ""},
	}
}

func TestFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "symbols")
	if err := Write(name, sample()); err != nil {
		t.Fatal(err)
	}
	if err := Write(name, sample()); err == nil {
		t.Error("an existing file was written over")
	}
	f, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	find := func(want string, m Match) (out []string) {
		if err := f.Find(want, m, func(tags []Tag) bool {
			for _, tag := range tags {
				out = append(out, fmt.Sprintf("%s %s:%d %s", tag.Name, tag.Path, tag.Line, tag.Scope))
			}
			return true
		}); err != nil {
			t.Error(err)
		}
		return out
	}
	open := []string{"Open a/x.go:7 a.T", "Open b/z.go:3 b"}
	for _, c := range []struct {
		name string
		m    Match
		want []string
	}{
		{"Open", Exact, open},
		{"OPEN", Exact, nil},
		{"OPEN", Folded, append(slices.Clone(open), "open a.go:9 a")},
		{"oPe", Prefix, append(slices.Clone(open), "open a.go:9 a", "OpenFile a/x.go:20 a")},
		{"Zoë", Exact, []string{"Zoë a/x.go:1 "}},
		{"nothing", Prefix, nil},
		{"zzz", Exact, nil},
	} {
		if d := cmp.Diff(c.want, find(c.name, c.m)); d != "" {
			t.Errorf("%s, %v: %s", c.name, c.m, d)
		}
	}
	all, err := f.All()
	if tags, names := f.Len(); err != nil || len(all) != 7 || tags != 7 || names != 6 {
		t.Errorf("%d %d %d %v", len(all), tags, names, err)
	}
	empty := filepath.Join(t.TempDir(), "none")
	if err := Write(empty, nil); err != nil {
		t.Fatal(err)
	}
	if f, err := Open(empty); err != nil {
		t.Error(err)
	} else if all, err := f.All(); len(all) > 0 || err != nil {
		t.Error(all, err)
	}
}

// FuzzFile opens what is no file of symbols: it is refused, or answers something, and that is all.
func FuzzFile(f *testing.F) {
	name := filepath.Join(f.TempDir(), "symbols")
	if err := Write(name, sample()); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, uint16(0), byte(0))
	for i := range len(whole) {
		f.Add(whole, uint16(i), byte(0xff))
	}
	f.Fuzz(func(t *testing.T, data []byte, at uint16, flip byte) {
		data = slices.Clone(data)
		if int(at) < len(data) {
			data[at] ^= flip
		}
		s, err := parse(data)
		if err != nil {
			return
		}
		_, _ = s.All()
		for m := range Prefix + 1 {
			_ = s.Find("open", m, func([]Tag) bool { return true })
		}
	})
}

// FuzzSince opens a file of symbols with any list of what is gone and any newer file beside it.
func FuzzSince(f *testing.F) {
	dir := f.TempDir()
	name := filepath.Join(dir, "symbols")
	if err := Write(name, sample()); err != nil {
		f.Fatal(err)
	}
	later := filepath.Join(dir, "later")
	if err := Write(later, sample()[:1]); err != nil {
		f.Fatal(err)
	}
	since, err := os.ReadFile(later)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("a.go\x00"), since)
	f.Add([]byte("\x00\x00a.go"), since[:len(since)-1])
	f.Add([]byte{0xff}, []byte{})
	f.Fuzz(func(t *testing.T, gone, since []byte) {
		for suffix, b := range map[string][]byte{goneSuffix: gone, sinceSuffix: since} {
			if err := os.WriteFile(name+suffix, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Open(name)
		if err != nil {
			return
		}
		all, err := s.All()
		for _, tag := range all {
			if err == nil && s.gone[tag.Path] && !bytes.Contains(since, []byte(tag.Path)) {
				t.Errorf("%+v is gone", tag)
			}
		}
		for m := range Prefix + 1 {
			_ = s.Find("open", m, func([]Tag) bool { return true })
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// FuzzRead reads what a ctags that was taken over might print.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"_type": "tag", "name": "Do", "path": "./a.go", "line": 17, "kind": "func", "scope": "foo.T"}`))
	f.Add([]byte("{\"_type\": \"tag\", \"name\": \"\\u001b[2J\", \"path\": \"./a.go\", \"line\": 1}\n{}\n\n"))
	f.Add([]byte(`{"_type": "tag", "name": "x", "path": "../../etc/passwd", "line": -1, "kind": "` + strings.Repeat("k", 100)))
	f.Add(bytes.Repeat([]byte("x"), maxLine+10))
	f.Fuzz(func(t *testing.T, data []byte) {
		tags, err := Read(bytes.NewReader(data), []string{"a.go"})
		if err != nil {
			t.Error(err)
		}
		for _, tag := range tags {
			if tag.Path != "a.go" || tag.Line < 1 || tag.Name == "" || !printable(tag.Name+tag.Kind+tag.Scope) || len(tag.Name)+len(tag.Kind)+len(tag.Scope) > 600 {
				t.Errorf("%+v", tag)
			}
		}
	})
}

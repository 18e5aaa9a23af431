package guest_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/guest"
)

// sha reads the digest that an edit must name.
func (s *site) sha(t testing.TB, name string) string {
	t.Helper()
	r, err := s.Read(t.Context(), guest.ReadRequest{Path: name})
	if err != nil {
		t.Fatal(err)
	}
	return r.SHA256
}

func (s *site) edit(t testing.TB, r guest.EditRequest) guest.EditResult {
	t.Helper()
	res, err := s.Edit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestEditChangesTheMatchAlone(t *testing.T) {
	s := start(t)
	cases := []struct {
		name, file, old, new, want string
		all, space, unescaped      bool
		problem                    string
		lines                      []int
	}{
		{name: "exact", file: "a\nb\nc\n", old: "b", new: "x", want: "a\nx\nc\n"},
		{name: "no final newline stays so", file: "a\nb", old: "a", new: "x", want: "x\nb"},
		{name: "final newline is kept", file: "a\nb\n", old: "b\n", new: "x", want: "a\nx\n"},
		{name: "deletion", file: "a\nb\nc\n", old: "b\n", new: "", want: "a\nc\n"},
		{name: "CRLF", file: "a\r\nb\r\nc\r\n", old: "a\nb\n", new: "x\ny\n", want: "x\r\ny\r\nc\r\n"},
		{name: "CRLF, one line becomes two", file: "a\r\nb\r\nc\r\n", old: "b", new: "x\ny", want: "a\r\nx\r\ny\r\nc\r\n"},
		{name: "CRLF at the end", file: "a\r\nb\r\n", old: "b\n", new: "x", want: "a\r\nx\r\n"},
		{name: "mixed ends, CRLF part", file: "a\r\nb\r\nc\nd\n", old: "a\nb", new: "x\ny", want: "x\r\ny\r\nc\nd\n"},
		{name: "mixed ends, LF part", file: "a\r\nb\r\nc\nd\n", old: "c\nd", new: "x\ny\nz", want: "a\r\nb\r\nx\ny\nz\n"},
		{name: "BOM", file: "\xef\xbb\xbfa\nb\n", old: "a\n", new: "x\n", want: "\xef\xbb\xbfx\nb\n"},
		{name: "Latin-1 around", file: "caf\xe9 a \xff\xfe\n", old: " a ", new: " b ", want: "caf\xe9 b \xff\xfe\n"},
		{name: "Latin-1 by its escape", file: "caf\xe9 a\n", old: `caf\xE9 a`, new: `th\xE9 b`, want: "th\xe9 b\n", unescaped: true},
		{name: "escape that is text", file: `x = "\xE9"` + "\n", old: `\xE9`, new: `\xEA`, want: `x = "\xEA"` + "\n"},
		{name: "all", file: "a b a b a", old: "a", new: "x", want: "x b x b x", all: true},
		{name: "many", file: "a\nb\na\nq a\n", old: "a", new: "x", problem: "many_matches", lines: []int{1, 3, 4}},
		{name: "none", file: "alpha beta\n", old: "alpha gamma", new: "x", problem: "no_match"},
		{name: "same", file: "a\n", old: "a", new: "a", problem: "same"},
		{name: "empty", file: "a\n", old: "", new: "a", problem: "empty_old"},
		{
			name: "indentation", file: "if x {\n\t\ty()\n\t\tz()\n}\n", old: "    y()\n    z()\n", new: "    y()\n    if w {\n        z()\n    }\n",
			want: "if x {\n\t\ty()\n\t\tif w {\n\t\t    z()\n\t\t}\n}\n", space: true,
		},
		{name: "indentation in CRLF", file: "a {\r\n\tb\r\n\tc\r\n}\r\n", old: "b\nc", new: "x\ny", want: "a {\r\n\tx\r\n\ty\r\n}\r\n", space: true},
		{name: "indentation, twice there", file: "\tb\n\tc\n--\n  b\n  c\n", old: " b\n c\n", new: "x", problem: "many_matches", lines: []int{1, 4}},
		{name: "likeness is no match", file: "return a + b\n", old: "return a+b", new: "return b", problem: "no_match"},
		{name: "trailing space is no match", file: "ab \n", old: "ab\nc", new: "x", problem: "no_match"},
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			name := fmt.Sprintf("f%d.txt", i)
			s.put(t, name, c.file)
			r := s.edit(t, guest.EditRequest{Path: name, Old: []byte(c.old), New: []byte(c.new), All: c.all, SHA256: s.sha(t, name)})
			if c.problem != "" {
				if r.OK || r.Problem != c.problem || !cmp.Equal(r.Matches, c.lines) {
					t.Errorf("got %+v", r)
				}
				c.want = c.file
			} else if !r.OK || r.Whitespace != c.space || r.Unescaped != c.unescaped || r.SHA256 != s.sha(t, name) {
				t.Errorf("got %+v", r)
			}
			if got := s.get(t, name); got != c.want {
				t.Errorf("file is %q, want %q", got, c.want)
			}
		})
	}
	for _, e := range readDir(t, s.dir) {
		if strings.HasPrefix(e, ".daybreak") {
			t.Errorf("%s was left behind", e)
		}
	}
}

func readDir(t testing.TB, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

func TestEditKeepsTheMode(t *testing.T) {
	s := start(t)
	s.put(t, "tool.sh", "#!/bin/sh\necho a\n")
	if err := os.Chmod(s.dir+"/tool.sh", 0o751); err != nil {
		t.Fatal(err)
	}
	if r := s.edit(t, guest.EditRequest{Path: "tool.sh", Old: []byte("a\n"), New: []byte("b\n"), SHA256: s.sha(t, "tool.sh")}); !r.OK {
		t.Fatalf("got %+v", r)
	}
	st, err := os.Stat(s.dir + "/tool.sh")
	if err != nil || st.Mode().Perm() != 0o751 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

func TestEditOfWhatWasNotSeen(t *testing.T) {
	s := start(t)
	s.put(t, "a.txt", "one\ntwo\nthree\n")
	r := s.edit(t, guest.EditRequest{Path: "a.txt", Old: []byte("two"), New: []byte("2")})
	want := []string{"     1\tone", "     2\ttwo", "     3\tthree"}
	if r.Problem != "not_read" || !cmp.Equal(r.Nearest, want) {
		t.Errorf("got %+v", r)
	}
	old := s.sha(t, "a.txt")
	s.put(t, "a.txt", "one\n2\nthree\n")
	r = s.edit(t, guest.EditRequest{Path: "a.txt", Old: []byte("three"), New: []byte("3"), SHA256: old})
	if r.Problem != "changed" || len(r.Nearest) != 3 || r.SHA256 != s.sha(t, "a.txt") {
		t.Errorf("got %+v", r)
	}
	if got := s.get(t, "a.txt"); got != "one\n2\nthree\n" {
		t.Errorf("file is %q", got)
	}
}

const lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"

func TestPathsThatAreRefused(t *testing.T) {
	s := start(t)
	outside := t.TempDir()
	if err := os.WriteFile(outside+"/secret", []byte("old\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.put(t, "model.bin", lfs)
	s.put(t, "image.png", "\x89PNG\x00old")
	s.put(t, "plain", "old\n")
	s.put(t, ".gitmodules", "[submodule \"lib\"]\n\tpath = third/lib\n\turl = ../lib\n")
	for _, d := range []string{"third/lib", "nested/sub", "dir"} {
		if err := os.MkdirAll(s.dir+"/"+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.put(t, "nested/sub/.git", "gitdir: ../../.git/modules/sub\n")
	s.put(t, "nested/sub/file", "old\n")
	for link, to := range map[string]string{
		"link-file": outside + "/secret", "link-dir": outside, "up": "../" + filepath.Base(outside), "dangling": "nowhere",
		"inner": "plain", "loop": "loop", "chain": "link-dir",
	} {
		if err := os.Symlink(to, s.dir+"/"+link); err != nil {
			t.Fatal(err)
		}
	}
	s.run(t, guest.ExecRequest{Shell: "mkfifo pipe"})
	cases := map[string]string{
		"model.bin": "lfs_pointer", "image.png": "binary", "nothing": "missing", "dir": "directory", ".": "directory",
		"third/lib": "submodule", "third/lib/x": "submodule", "nested/sub/file": "submodule",
		"link-file": "link", "link-dir/secret": "link", "up/secret": "link", "dangling": "link", "inner": "link", "loop": "link", "chain/secret": "link",
		"../" + filepath.Base(outside) + "/secret": "outside", outside + "/secret": "outside", "/etc/passwd": "outside",
		"dir/../../x": "outside", "plain/x": "not_directory", "pipe": "other", "a\x00b": "outside",
	}
	for p, want := range cases {
		r := s.edit(t, guest.EditRequest{Path: p, Old: []byte("old"), New: []byte("new"), SHA256: "x"})
		if r.OK || r.Problem != want {
			t.Errorf("edit %q: got %+v, want %s", p, r, want)
		}
		if want == "missing" {
			continue
		}
		w, err := s.Write(t.Context(), guest.WriteRequest{Path: p, Content: []byte("new"), SHA256: "x"})
		if err != nil || w.OK || w.Problem != want {
			t.Errorf("write %q: got %+v, %v, want %s", p, w, err, want)
		}
	}
	if b, err := os.ReadFile(outside + "/secret"); err != nil || string(b) != "old\n" {
		t.Errorf("a file outside was changed: %q, %v", b, err)
	}
	kinds := map[string]guest.FileKind{
		"model.bin": guest.KindLFS, "image.png": guest.KindBinary, "dir": guest.KindDir, "third/lib": guest.KindModule, "nested/sub": guest.KindModule,
		"link-file": guest.KindLink, "link-dir/secret": guest.KindLink, "chain/secret": guest.KindLink, "dangling": guest.KindLink, "inner": guest.KindText, "pipe": guest.KindOther,
	}
	for p, want := range kinds {
		if r, err := s.Read(t.Context(), guest.ReadRequest{Path: p}); err != nil || r.Kind != want {
			t.Errorf("read %s: got %+v, %v, want %s", p, r, err, want)
		}
	}
	for _, p := range []string{"link-dir/new", "up/new"} {
		w, err := s.Write(t.Context(), guest.WriteRequest{Path: p, Content: []byte("x")})
		if err != nil || w.Problem != "link" {
			t.Errorf("write %s: %+v, %v", p, w, err)
		}
	}
	if got := readDir(t, outside); len(got) != 1 {
		t.Errorf("something was written outside: %v", got)
	}
}

func TestWrite(t *testing.T) {
	s := start(t)
	put := func(r guest.WriteRequest) guest.EditResult {
		t.Helper()
		res, err := s.Write(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if r := put(guest.WriteRequest{Path: "a/b/c.txt", Content: []byte("x\n")}); !r.OK || !r.Created || s.get(t, "a/b/c.txt") != "x\n" {
		t.Errorf("got %+v", r)
	}
	if r := put(guest.WriteRequest{Path: "a/b/c.txt", Content: []byte("y\n")}); r.Problem != "not_read" {
		t.Errorf("got %+v", r)
	}
	if r := put(guest.WriteRequest{Path: "a/b/c.txt", Content: []byte("y\n"), SHA256: "0"}); r.Problem != "changed" {
		t.Errorf("got %+v", r)
	}
	s.put(t, "dos.txt", "\xef\xbb\xbfa\r\nb\r\n")
	r := put(guest.WriteRequest{Path: "dos.txt", Content: []byte("c\nd\n"), SHA256: s.sha(t, "dos.txt")})
	if !r.OK || !r.KeptCRLF || !r.KeptBOM || s.get(t, "dos.txt") != "\xef\xbb\xbfc\r\nd\r\n" || r.SHA256 != s.sha(t, "dos.txt") {
		t.Errorf("got %+v, file %q", r, s.get(t, "dos.txt"))
	}
	if _, err := s.Write(t.Context(), guest.WriteRequest{Path: "x", Link: true}); err == nil {
		t.Error("a link without force was made")
	}
}

func TestForcedWritesReplaceWhatIsThere(t *testing.T) {
	s := start(t)
	outside := t.TempDir()
	if err := os.Symlink(outside, s.dir+"/out"); err != nil {
		t.Fatal(err)
	}
	s.put(t, "file", "x")
	steps := []guest.WriteRequest{
		{Path: "out/new.txt", Content: []byte("a")}, // the link gives way to a directory
		{Path: "file/below.txt", Content: []byte("b"), Mode: 0o755},
		{Path: "out", Content: []byte("c")}, // and the directory to a file
		{Path: "ln", Content: []byte("/etc/passwd"), Link: true},
		{Path: "ln", Content: []byte("d")}, // the link is replaced, not followed
		{Path: "file/below.txt", Delete: true},
		{Path: "never/there", Delete: true},
	}
	for _, r := range steps {
		r.Force = true
		if res, err := s.Write(t.Context(), r); err != nil || !res.OK {
			t.Errorf("%+v: got %+v, %v", r, res, err)
		}
	}
	if got := s.get(t, "out") + s.get(t, "ln"); got != "cd" {
		t.Errorf("got %q", got)
	}
	if got := readDir(t, outside); len(got) != 0 {
		t.Errorf("written outside: %v", got)
	}
	if got := readDir(t, s.dir+"/file"); len(got) != 0 {
		t.Errorf("not deleted: %v", got)
	}
	for _, p := range []string{"../x", "/etc/x", "."} {
		if res, err := s.Write(t.Context(), guest.WriteRequest{Path: p, Force: true, Delete: true}); err != nil || res.OK {
			t.Errorf("%s: %+v, %v", p, res, err)
		}
	}
}

func TestConcurrentEditsLoseNothing(t *testing.T) {
	s := start(t)
	s.put(t, "n.txt", strings.Repeat("-", 20)+"\n")
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for {
				r, err := s.Read(t.Context(), guest.ReadRequest{Path: "n.txt"})
				if err != nil {
					t.Error(err)
					return
				}
				line := []byte(r.Lines[0])
				next := bytes.Clone(line)
				next[i] = '+'
				e, err := s.Edit(t.Context(), guest.EditRequest{Path: "n.txt", Old: line, New: next, SHA256: r.SHA256})
				if err != nil || !e.OK && e.Problem != "changed" {
					t.Errorf("%+v, %v", e, err)
					return
				}
				if e.OK {
					return
				}
			}
		})
	}
	wg.Wait()
	if got := s.get(t, "n.txt"); got != strings.Repeat("+", 20)+"\n" {
		t.Errorf("got %q", got)
	}
}

func TestSyntaxErrorsThatAnEditAdds(t *testing.T) {
	need(t, "python3")
	need(t, "node")
	s := start(t)
	cases := []struct{ name, file, old, new, want string }{
		{"a.go", "package a\n\nfunc f() {\n\treturn\n}\n", "return\n}", "return\n", "line 5: expected '}', found 'EOF'"},
		{"b.go", "package a\n\nfunc f() {\n\treturn }}\n", "return", "return //", "line 4: expected '}', found 'EOF'"},
		{"good.go", "package a\n\nvar x = 1\n", "1", "2", ""},
		{"broken-before.go", "package a\n\nfunc f( {\n}\n// c\n", "// c", "// d", ""},
		{"a.json", "{\"a\": 1}\n", "1", "1,", "line 1: invalid character '}' looking for beginning of object key string"},
		{"tsconfig.json", "{\"a\": 1}\n", "1", "1, // why", ""},
		{"a.py", "def f():\n    return 1\n", "return 1", "return (1", "line 2: '(' was never closed"},
		{"good.py", "def f():\n    return 1\n", "1", "2", ""},
		{"a.mjs", "import x from 'x'\nx()\n", "x()", "x(", "SyntaxError"},
		{"module.js", "import x from 'x'\nx()\n", "x()", "x(1)", ""},
		{"common.js", "const x = require('x')\nx()\n", "x()", "x(}", "line 2: SyntaxError: Unexpected token '}'"},
		{"a.sh", "if true; then\n  echo\nfi\n", "fi", "f", "syntax error"},
		{"a.txt", "(\n", "(", "((", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s.put(t, c.name, c.file)
			r := s.edit(t, guest.EditRequest{Path: c.name, Old: []byte(c.old), New: []byte(c.new), SHA256: s.sha(t, c.name)})
			got := strings.Join(r.Syntax, "\n")
			if !r.OK || (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %+v\nwant %q", r, c.want)
			}
		})
	}
}

func TestRead(t *testing.T) {
	s := start(t)
	s.put(t, "n.txt", "1\n2\n3\n4\n5\n")
	read := func(r guest.ReadRequest) guest.ReadResult {
		t.Helper()
		res, err := s.Read(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if r := read(guest.ReadRequest{Path: "n.txt", Offset: 2, Limit: 2}); !cmp.Equal(r.Lines, []string{"2", "3"}) || r.Total != 5 || r.Size != 10 || r.Cut {
		t.Errorf("got %+v", r)
	}
	if r := read(guest.ReadRequest{Path: s.dir + "/n.txt"}); len(r.Lines) != 5 {
		t.Errorf("absolute path: %+v", r)
	}
	if r := read(guest.ReadRequest{Path: "n.txt", Offset: 9}); len(r.Lines) != 0 || r.Total != 5 {
		t.Errorf("got %+v", r)
	}
	s.put(t, "odd.txt", "\xef\xbb\xbfa\tb\x1b[31m\x07\r\ncaf\xe9\r\nz\u202ez\u200bé\r\n")
	r := read(guest.ReadRequest{Path: "odd.txt"})
	if want := []string{"a\tb\\x1B[31m\\x07", `caf\xE9`, `z\u{202E}z\u{200B}é`}; !cmp.Equal(r.Lines, want) || !r.CRLF || !r.Latin1 {
		t.Errorf("got %+v", r)
	}
	s.put(t, "long.txt", strings.Repeat("é", 200_000)+"\nend\n")
	r = read(guest.ReadRequest{Path: "long.txt"})
	if want := strings.Repeat("é", 1000) + "… [398000 more bytes in this line]"; len(r.Lines) != 2 || r.Lines[0] != want || r.Latin1 {
		t.Errorf("%d lines, latin1 %v, the first ends %q", len(r.Lines), r.Latin1, r.Lines[0][max(0, len(r.Lines[0])-60):])
	}
	s.put(t, "many.txt", strings.Repeat(strings.Repeat("x", 99)+"\n", 5000))
	r = read(guest.ReadRequest{Path: "many.txt"})
	if !r.Cut || len(r.Lines) != guest.MaxReadBytes/100 || r.Total != 5000 {
		t.Errorf("cut %v, %d lines of %d", r.Cut, len(r.Lines), r.Total)
	}
	s.put(t, "short.txt", strings.Repeat("x\n", 5000))
	if r = read(guest.ReadRequest{Path: "short.txt"}); len(r.Lines) != guest.DefaultLines || r.Cut {
		t.Errorf("%d lines by default", len(r.Lines))
	}
	s.put(t, "empty", "")
	if r = read(guest.ReadRequest{Path: "empty"}); r.Total != 0 || r.SHA256 == "" || r.Kind != guest.KindText {
		t.Errorf("got %+v", r)
	}
	if _, err := s.Read(t.Context(), guest.ReadRequest{Path: "no/such"}); err == nil || err.Error() != "no/such does not exist" {
		t.Errorf("got %v", err)
	}
	if _, err := s.Read(t.Context(), guest.ReadRequest{Path: "../x"}); err == nil {
		t.Error("a path above the tree was read")
	}
	d := read(guest.ReadRequest{})
	if d.Kind != guest.KindDir || d.Total != 6 || d.Entries[0] != "empty" {
		t.Errorf("got %+v", d)
	}
}

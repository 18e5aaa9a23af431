package guest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// checkEdit holds a match to its promise: what lies outside the matched bytes is untouched,
// and what was matched is what old says.
func checkEdit(t *testing.T, content, old, repl []byte, all bool) {
	t.Helper()
	before := bytes.Clone(content)
	m := match(content, old, repl, all)
	if !bytes.Equal(before, content) {
		t.Fatal("the input was changed")
	}
	if m.problem != "" {
		if m.after != nil {
			t.Fatalf("a problem (%s) with a result", m.problem)
		}
		if m.problem == "no_match" && bytes.Contains(content, old) {
			t.Fatalf("%q occurs in %q", old, content)
		}
		return
	}
	if all && m.count > 1 {
		return
	}
	// Whatever is common at both ends is outside; the middle of the old file must be old.
	cut := len(content) - (len(m.after) - len(m.inserted))
	if m.at < 0 || cut < 0 || m.at+cut > len(content) {
		t.Fatalf("at %d, %d bytes of %d", m.at, cut, len(content))
	}
	if !bytes.Equal(m.after[:m.at], content[:m.at]) || !bytes.Equal(m.after[m.at+len(m.inserted):], content[m.at+cut:]) {
		t.Fatalf("bytes outside the match changed: %q to %q", content, m.after)
	}
	got := content[m.at : m.at+cut]
	switch {
	case m.whitespace:
		if !bytes.Equal(squeeze(got), squeeze(old)) {
			t.Fatalf("%q is not %q but for leading white space", got, old)
		}
	case m.unescaped:
		if !bytes.Equal(got, unescape(old)) && !bytes.Equal(got, unescape(toCRLF(old))) {
			t.Fatalf("%q is not %q unescaped", got, old)
		}
	case !bytes.Equal(got, old) && !bytes.Equal(got, toCRLF(old)):
		t.Fatalf("%q was taken for %q", got, old)
	}
}

// squeeze drops leading white space and line ends.
func squeeze(b []byte) []byte {
	var out []byte
	for _, l := range splitLines(b) {
		out = append(append(out, bytes.TrimLeft(l, " \t")...), '\n')
	}
	return out
}

func FuzzMatch(f *testing.F) {
	for _, c := range [][3]string{
		{"a\nb\nc\n", "b", "x"},
		{"a\r\nb\r\n", "a\nb\n", "x\n"},
		{"caf\xe9 a", `\xE9`, "e"},
		{"\tif x {\n\t\ty\n\t}\n", "if x {\n\ty\n}", "z"},
		{"\xef\xbb\xbfa", "a", "b"},
		{"aaaa", "aa", "b"},
		{"a\r\r\nb", "a\r", "b\n"},
		{"\r\n", "\n", "\n\n"},
	} {
		f.Add([]byte(c[0]), []byte(c[1]), []byte(c[2]), false)
	}
	f.Fuzz(func(t *testing.T, content, old, repl []byte, all bool) {
		if len(old) == 0 {
			return
		}
		checkEdit(t, content, old, repl, all)
		nearest(content, old)
	})
}

func TestEditsOfRandomFilesTouchTheMatchAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "b", "foo", "\n", "\n", "\r\n", "\t", "  ", "\xe9", "é", "\xff", `\xE9`, "{", "\xef\xbb\xbf", "\r"}
	word := func(n int) []byte {
		var b []byte
		for range n {
			b = append(b, alphabet[r.IntN(len(alphabet))]...)
		}
		return b
	}
	for range 30_000 {
		content := word(1 + r.IntN(40))
		old := word(1 + r.IntN(4))
		if r.IntN(2) == 0 { // a piece that is there
			i := r.IntN(len(content))
			old = bytes.Clone(content[i : i+1+r.IntN(len(content)-i)])
		}
		checkEdit(t, content, old, word(r.IntN(5)), r.IntN(4) == 0)
	}
}

func FuzzEscape(f *testing.F) {
	f.Add([]byte("a\tb\x1b[31m\xff\xe2\x80\xae é\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := Escape(b, false)
		if !utf8.ValidString(s) || strings.ContainsAny(s, "\x00\x1b\n\r\u202e\u200b") {
			t.Errorf("%q became %q", b, s)
		}
	})
}

func FuzzParseMatches(f *testing.F) {
	f.Add([]byte(`{"type":"match","data":{"path":{"text":"a"},"lines":{"text":"x\n"},"line_number":3}}` + "\n"))
	f.Add([]byte(`{"type":"context","data":{"path":{"bytes":"/w=="},"lines":{"bytes":"%%"},"line_number":3}}` + "\n"))
	f.Add([]byte("a\x003\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, _ := parseMatches(bytes.NewReader(b), lines{only: map[string][]int{"a": {3, 5}}, context: 1})
		for _, m := range list {
			if m.Path != "a" || m.Line < 2 || m.Line > 6 || m.Context != (m.Line%2 == 0) {
				t.Errorf("not wanted: %+v", m)
			}
			if len(m.Text) > 10*MaxMatchBytes || !utf8.ValidString(m.Path) {
				t.Errorf("match %+v", m)
			}
		}
		counts, _ := parseCounts(bytes.NewReader(b))
		for _, c := range counts {
			if c.Count < 0 {
				t.Errorf("count %+v", c)
			}
		}
	})
}

// A message of any length says the same, however it is read.
func TestLongMessagesOfRipgrep(t *testing.T) {
	quoted := func(b []byte) string {
		if !utf8.Valid(b) {
			return fmt.Sprintf(`{"bytes":%q}`, base64.StdEncoding.EncodeToString(b))
		}
		s, err := json.Marshal(string(b))
		if err != nil {
			t.Fatal(err)
		}
		return `{"text":` + string(s) + `}`
	}
	one := func(path string, line int, text []byte) string {
		return fmt.Sprintf(`{"type":"match","data":{"path":%s,"lines":%s,"line_number":%d,"absolute_offset":0,"submatches":[{"match":{"text":"x"},"start":0,"end":1}]}}`, quoted([]byte(path)), quoted(text), line) + "\n"
	}
	var in strings.Builder
	var want []Match
	for i, unit := range []string{"x", "é", "a\t\"\\", "\x01", "caf\xe9", "日本", "\xff\x00", `,"lines":{"text":"`} {
		for j, end := range []string{"\n", "\r\n", "", "\r", "y\n", "yz\r\n"} {
			for _, size := range []int{1, 500, maxRGLine / 3, maxRGLine - 100, maxRGLine - 30, maxRGLine, 3 * maxRGLine} {
				text := strings.Repeat(unit, size/len(unit)+1)
				path, line := fmt.Sprintf(`d"i/%d"},"line_number":7,`, i), j*1000+1
				in.WriteString(one(path, line, []byte(text+end)))
				shown := strings.TrimSuffix(strings.TrimSuffix(text+end, "\n"), "\r")
				want = append(want, Match{Path: path, Line: line, Text: cutLine([]byte(shown), len(shown), MaxMatchBytes)})
			}
		}
	}
	in.WriteString(one(strings.Repeat("p", 2*maxRGLine), 1, []byte("passed over\n")))
	in.WriteString(one("last", 1, []byte("x\n")))
	want = append(want, Match{Path: "last", Line: 1, Text: "x"})
	got, err := parseMatches(strings.NewReader(in.String()), lines{})
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%.4000s", err, d)
	}
}

// endless is a command that prints size bytes.
type endless struct{ left int }

func (e *endless) Read(p []byte) (int, error) {
	n := min(len(p), e.left)
	if n == 0 {
		return 0, io.EOF
	}
	for i := range p[:n] {
		p[i] = byte('a' + i%26)
	}
	p[n-1] = '\n'
	e.left -= n
	return n, nil
}

func TestOutputOf100MBUsesFlatMemory(t *testing.T) {
	const size = 100 << 20
	o := newOutput(filepath.Join(t.TempDir(), "log"), 1<<20, DefaultKeep, DefaultKeep)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	o.copyFrom(&endless{left: size})
	runtime.ReadMemStats(&after)
	var r ExecResult
	o.fill(&r)
	o.close()
	if grew := after.TotalAlloc - before.TotalAlloc; grew > 1<<20 {
		t.Errorf("%d bytes were allocated", grew)
	}
	if r.Bytes != size || len(r.Head) != DefaultKeep || len(r.Tail) != DefaultKeep || !r.LogCut {
		t.Errorf("%d bytes, head %d, tail %d", r.Bytes, len(r.Head), len(r.Tail))
	}
	if st, err := os.Stat(r.Log); err != nil || st.Size() > 1<<20+100 {
		t.Errorf("log: %v, %v", st, err)
	}
}

func TestOutputTailIsAlwaysTheEnd(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		o := newOutput("", 0, 1+r.IntN(20), 1+r.IntN(20))
		var all []byte
		for range r.IntN(30) {
			b := make([]byte, r.IntN(50))
			for i := range b {
				b[i] = byte('a' + r.IntN(26))
			}
			all = append(all, b...)
			o.write(b)
		}
		var got ExecResult
		o.fill(&got)
		switch {
		case len(all) <= o.head+o.tail:
			if !bytes.Equal(got.Head, all) || got.Tail != nil {
				t.Fatalf("head %q, tail %q of %q", got.Head, got.Tail, all)
			}
		case !bytes.Equal(got.Head, all[:o.head]) || !bytes.Equal(got.Tail, all[len(all)-o.tail:]):
			t.Fatalf("head %q, tail %q of %q", got.Head, got.Tail, all)
		}
	}
}

func TestPipeHeldOpenByAStranger(t *testing.T) {
	// A process that no kill reaches keeps the pipe: what was written is there, nothing waits.
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	o := newOutput("", 0, 1<<20, 1<<20)
	copied := make(chan struct{})
	go func() { o.copyFrom(read); close(copied) }()
	if _, err := write.Write(bytes.Repeat([]byte("x"), 60_000)); err != nil {
		t.Fatal(err)
	}
	if err := read.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	<-copied
	var r ExecResult
	o.fill(&r)
	if r.Bytes != 60_000 {
		t.Errorf("%d bytes of 60,000", r.Bytes)
	}
}

func BenchmarkExecTrue(b *testing.B) {
	p, err := newProcs(ServerOptions{Root: b.TempDir(), LogDir: b.TempDir(), MaxLog: 1 << 20, Now: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if r, err := p.exec(b.Context(), ExecRequest{Shell: "true"}); err != nil || r.ExitCode != 0 {
			b.Fatal(r, err)
		}
	}
}

func BenchmarkNoMatchInAHugeFile(b *testing.B) {
	content := bytes.Repeat([]byte("abc\n"), maxEdit/4)
	old := append(bytes.Repeat([]byte(" abc\n"), 40_000), 'x')
	for b.Loop() {
		if m := match(content, old, nil, false); m.problem != "no_match" {
			b.Fatal(m.problem)
		}
	}
}

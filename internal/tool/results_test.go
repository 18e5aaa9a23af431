package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/tool"
)

func TestMain(m *testing.M) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// bench is a registry over a guest that works in a temporary tree.
type bench struct {
	*tool.Registry
	env  *tool.Env
	dir  string
	logs string
}

func newBench(t testing.TB) *bench {
	t.Helper()
	for _, program := range []string{"rg", "bash", "seq"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%s is not installed", program)
			}
			t.Skipf("%s is not installed", program)
		}
	}
	b := &bench{Registry: tool.NewRegistry(), dir: t.TempDir(), logs: t.TempDir()}
	here, there := net.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- guest.Serve(context.Background(), there, there, guest.ServerOptions{Root: b.dir, LogDir: b.logs})
	}()
	c, err := guest.NewClient(t.Context(), here)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := <-done; err != nil {
			t.Errorf("the guest ended badly: %v", err)
		}
	})
	b.env = &tool.Env{Guest: c, Harness: &harness{}}
	return b
}

// harness records what it is asked.
type harness struct{ asked []any }

func (h *harness) Reproduce(_ context.Context, r tool.ReproduceRequest) (tool.Result, error) {
	h.asked = append(h.asked, r)
	return tool.Result{Text: fmt.Sprintf("harness: %+v", r)}, nil
}

func (h *harness) Submit(_ context.Context, r tool.SubmitRequest) (tool.Result, error) {
	h.asked = append(h.asked, r)
	return tool.Result{Text: fmt.Sprintf("harness: %+v", r), End: tool.Accepted}, nil
}

func (h *harness) Decline(_ context.Context, r tool.DeclineRequest) (tool.Result, error) {
	h.asked = append(h.asked, r)
	return tool.Result{Text: fmt.Sprintf("harness: %+v", r), End: tool.Gave}, nil
}

func (h *harness) Ask(_ context.Context, r tool.AskRequest) (tool.Result, error) {
	h.asked = append(h.asked, r)
	return tool.Result{Text: fmt.Sprintf("harness: %+v", r), End: tool.Waits}, nil
}

func (b *bench) put(t testing.TB, name, content string) {
	t.Helper()
	p := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) call(t testing.TB, name, input string) tool.Result {
	t.Helper()
	r, err := b.Call(t.Context(), b.env, name, json.RawMessage(input))
	if err != nil {
		t.Fatalf("%s %s: %v", name, input, err)
	}
	return r
}

const lfsPointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"

func fill(t *testing.T, b *bench) {
	b.put(t, "cart/total.go", "package cart\n\n// Total sums the prices.\nfunc Total(prices []int) int {\n\tsum := 0\n\tfor _, p := range prices {\n\t\tsum += p\n\t}\n\treturn sum\n}\n")
	b.put(t, "cart/use.go", "package cart\n\nvar zero = Total(nil)\n")
	b.put(t, "cart/total_test.go", "package cart\n\nimport \"testing\"\n\nfunc TestTotal(t *testing.T) {\n\tif Total([]int{1}) != 1 {\n\t\tt.Fatal()\n\t}\n}\n")
	b.put(t, "README.md", "Total is the sum.\n")
	b.put(t, "dos.txt", "caf\xe9\r\nbar\r\n")
	b.put(t, "empty.txt", "")
	b.put(t, "logo.png", "\x89PNG\x00\x01")
	b.put(t, "model.bin", lfsPointer)
	b.put(t, ".gitmodules", "[submodule \"lib\"]\n\tpath = lib\n\turl = ../lib\n")
	for _, d := range []string{"lib", "wide"} {
		if err := os.Mkdir(filepath.Join(b.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i := range guest.MaxNarrow + 3 {
		b.put(t, fmt.Sprintf("wide/%d/f%03d.txt", i%3, i), "broad\n")
	}
	b.put(t, "lines.txt", strings.Repeat("line\n", 2500))
	for link, to := range map[string]string{"out": "/etc/passwd", "alias.go": "cart/use.go"} {
		if err := os.Symlink(to, filepath.Join(b.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
}

// calls are made in this order; each text that a model can see comes up at least once.
var calls = []struct{ tool, input string }{
	{"fly", `{}`},
	{"read", ``},
	{"read", `[]`},
	{"read", `{"path":"README.md","depth":1,"after":2}`},
	{"read", `{"path":7}`},
	{"read", `{"path":"README.md","offset":"3"}`},
	{"read", `{"path":"README.md","offset":-1}`},
	{"read", `{"path":"README.md","limit":1000000}`},
	{"read", `{"path":[[[[[[[[[[1]]]]]]]]]]}`},
	{"read", `{"path":"README.md"}`},
	{"read", `{"path":"cart/total.go","offset":3,"limit":2}`},
	{"read", `{"path":"cart/total.go","offset":99}`},
	{"read", `{"path":"dos.txt"}`},
	{"read", `{"path":"empty.txt"}`},
	{"read", `{"path":"logo.png"}`},
	{"read", `{"path":"model.bin"}`},
	{"read", `{"path":"lib"}`},
	{"read", `{"path":"cart"}`},
	{"read", `{"path":"out"}`},
	{"read", `{"path":"nothing.go"}`},
	{"read", `{"path":"/dev/null"}`},
	{"search", `{}`},
	{"search", `{"pattern":"x","files":true}`},
	{"search", `{"pattern":"Total"}`},
	{"search", `{"pattern":"sum \\+=","context":1,"globs":["*.go"]}`},
	{"search", `{"pattern":"nowhere at all"}`},
	{"search", `{"pattern":"a("}`},
	{"search", `{"pattern":"broad"}`},
	{"search", `{"files":true,"globs":["*.go"]}`},
	{"search", `{"files":true,"globs":["*.zig"]}`},
	{"search", `{"pattern":"x","case":"loud"}`},
	{"search", `{"pattern":"x","paths":["../.."]}`},
	{"edit", `{"path":"cart/total.go","old":"x"}`},
	{"edit", `{"path":"cart/use.go","old":"zero","new":"none"}`},
	{"edit", `{"path":"cart/use.go","old":"zero","new":"none"}`},
	{"edit", `{"path":"cart/use.go","old":"Summe(nil)","new":"1"}`},
	{"edit", `{"path":"cart/use.go","old":"none","new":"none"}`},
	{"edit", `{"path":"cart/use.go","old":"","new":"none"}`},
	{"edit", `{"path":"cart/total.go","old":"sum","new":"total"}`},
	{"edit", `{"path":"cart/total.go","old":"sum","new":"total","all":true}`},
	{"edit", `{"path":"cart/total.go","old":"  for _, p := range prices {\n    total += p\n  }\n","new":"  for _, p := range prices {\n    total += 2 * p\n"}`},
	{"edit", `{"path":"dos.txt","old":"caf\\xE9\nbar","new":"th\\xE9\nbaz"}`},
	{"edit", `{"path":"nothing.go","old":"a","new":"b"}`},
	{"edit", `{"path":"model.bin","old":"12345","new":"1"}`},
	{"edit", `{"path":"lib/a.c","old":"a","new":"b"}`},
	{"edit", `{"path":"logo.png","old":"PNG","new":"GIF"}`},
	{"edit", `{"path":"/etc/passwd","old":"root","new":"toor"}`},
	{"edit", `{"path":"out","old":"root","new":"toor"}`},
	{"edit", `{"path":"cart","old":"a","new":"b"}`},
	{"edit", `{"path":"README.md/x","old":"a","new":"b"}`},
	{"write", `{"path":"cart/new/data.json","content":"{\"a\":\n"}`},
	{"write", `{"path":"cart/new/data.json","content":"{\"a\":\n"}`},
	{"write", `{"path":"cart/total_test.go","content":"package cart\n"}`},
	{"write", `{"path":"dos.txt","content":"a\nb\n"}`},
	{"write", `{"path":"../x","content":"a"}`},
	{"run", `{}`},
	{"run", `{"command":"ls","wait":1}`},
	{"run", `{"command":["ls","-l"]}`},
	{"run", `{"command":"{\"command\":\"go test ./...\"}"}`},
	{"run", `{"command":"[\"bash\",\"-lc\",\"make all\"]"}`},
	{"run", `{"command":"{}"}`},
	{"run", `{"command":"echo ok","timeout_s":99999}`},
	{"run", `{"command":"true"}`},
	{"run", `{"command":"false"}`},
	{"run", `{"command":"echo one; echo two >&2; exit 3"}`},
	{"run", `{"command":"printf 'no end'"}`},
	{"run", `{"command":"kill -9 $$"}`},
	{"run", `{"command":"printf '10%%\\r50%%\\r100%%\\n\\033[31mred\\033[0m \\001\\377\\n'"}`},
	{"run", `{"command":"sleep 60 & echo hi"}`},
	{"run", `{"command":"sleep 60","timeout_s":1}`},
	{"run", `{"command":"echo up; exec sleep 60","background":true}`},
	{"run", `{"wait":9,"timeout_s":1}`},
	{"run", `{"kill":9}`},
	{"run", `{"wait":9}`},
	{"run", `{"wait":99}`},
	{"reproduce", `{"tests":["TestTotal"],"files":["/workspace/cart/total_test.go"]}`},
	{"reproduce", `{"tests":[],"files":["a"]}`},
	{"reproduce", `{"tests":"TestTotal","files":["a"]}`},
	{"reproduce", `{"tests":[""],"files":["a"]}`},
	{"symbols", `{}`},
	{"symbols", `{"name":"Total"}`},
	{"symbols", `{"name":"cart.total"}`},
	{"symbols", `{"name":"Tot"}`},
	{"symbols", `{"name":"NoSuchThing"}`},
	{"symbols", `{"path":"cart/total.go"}`},
	{"symbols", `{"path":"cart"}`},
	{"symbols", `{"path":"nowhere"}`},
	{"symbols", `{"path":"../etc"}`},
	{"symbols", `{"name":"Total","max":1}`},
	{"submit", `{"title":"Fix totals","cause":"c","fix":"f","tests":["TestTotal"]}`},
	{"submit", `{"title":" ","cause":"c","fix":"f","tests":["TestTotal"]}`},
	{"submit", `{"title":"a\nb","cause":"c","fix":"f","tests":["TestTotal"]}`},
	{"submit", `{"title":"Fix totals","cause":"c","fix":"f"}`},
	{"decline", `{"kind":"cannot_reproduce","reason":"r","tried":"t"}`},
	{"decline", `{"kind":"lazy","reason":"r","tried":"t"}`},
	{"decline", `{"kind":"out_of_scope","reason":"","tried":"t"}`},
}

var wall = regexp.MustCompile(`\d+\.\d\d s`)

// TestResultTexts compares every text with testdata/results.txt; DAYBREAK_UPDATE=1 rewrites it.
func TestResultTexts(t *testing.T) {
	b := newBench(t)
	fill(t, b)
	var got strings.Builder
	for _, c := range calls {
		r := b.call(t, c.tool, c.input)
		fmt.Fprintf(&got, "=== %s %s\n", c.tool, c.input)
		if r.IsError {
			got.WriteString("(error) ")
		}
		text := wall.ReplaceAllString(strings.ReplaceAll(r.Text, b.logs, "LOGS"), "T s")
		got.WriteString(strings.TrimSuffix(text, "\n") + "\n\n")
	}
	golden := filepath.Join("testdata", "results.txt")
	if os.Getenv("DAYBREAK_UPDATE") == "1" {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); d != "" {
		t.Errorf("results differ (-want +got):\n%s", d)
	}
}

func TestRunTellsTheRecordHowItEnded(t *testing.T) {
	b := newBench(t)
	r := b.call(t, "run", `{"command":"exit 3"}`)
	if r.ExitCode == nil || *r.ExitCode != 3 || r.Wall <= 0 || r.IsError {
		t.Errorf("got %+v", r)
	}
	if r = b.call(t, "run", `{"command":"exec sleep 60","background":true}`); r.ExitCode != nil {
		t.Errorf("a running command has an exit code: %+v", r)
	}
}

func TestLongOutputIsCutInTheMiddle(t *testing.T) {
	b := newBench(t)
	for name, command := range map[string]string{
		"many lines": "seq 1 200000; echo THE END",
		"binary":     "echo 1; head -c 29000 /dev/zero; echo; echo THE END",
		"one line":   "echo 1; head -c 300000 /dev/zero | tr '\\0' x; echo; echo THE END",
	} {
		t.Run(name, func(t *testing.T) {
			input, err := json.Marshal(map[string]string{"command": command})
			if err != nil {
				t.Fatal(err)
			}
			text := b.call(t, "run", string(input)).Text
			if len(text) > 31_000 || !strings.Contains(text, "lines are in "+b.logs) || !strings.HasSuffix(text, "\nTHE END\n") || !strings.Contains(text, "\n1\n") {
				t.Errorf("%d bytes: %.200s\n…\n%s", len(text), text, text[max(0, len(text)-300):])
			}
			if strings.ContainsRune(text, 0) {
				t.Error("a control byte got through")
			}
		})
	}
}

func TestEveryResultIsBounded(t *testing.T) {
	b := newBench(t)
	for i := range 90 {
		b.put(t, fmt.Sprintf("%s/f%d.txt", strings.Repeat("d", 100), i), strings.Repeat("needle "+strings.Repeat("y", 500)+"\n", 50))
	}
	b.put(t, "wide.txt", strings.Repeat(strings.Repeat("x", 5000)+"\n", 3000))
	for i := range 3000 {
		b.put(t, fmt.Sprintf("many/%s%d", strings.Repeat("n", 60), i), "")
	}
	for _, c := range []struct{ tool, input string }{
		{"search", `{"pattern":"needle","context":10}`},
		{"search", `{"files":true}`},
		{"read", `{"path":"many"}`},
	} {
		if n := len(b.call(t, c.tool, c.input).Text); n > 34_000 {
			t.Errorf("%s %s: %d bytes", c.tool, c.input, n)
		}
	}
	if n := len(b.call(t, "read", `{"path":"wide.txt"}`).Text); n > guest.MaxReadBytes+2_000 {
		t.Errorf("read: %d bytes", n)
	}
}

func TestReadingTheWholeFileInSteps(t *testing.T) {
	b := newBench(t)
	fill(t, b)
	first := b.call(t, "read", `{"path":"lines.txt"}`).Text
	if !strings.HasPrefix(first, "lines.txt, lines 1-2000 of 2,500\n") || !strings.HasSuffix(first, "… 500 lines more; read on with offset 2001.\n") {
		t.Errorf("got %.80s … %s", first, first[len(first)-80:])
	}
	rest := b.call(t, "read", `{"path":"lines.txt","offset":2001}`).Text
	if !strings.HasSuffix(rest, "  2500\tline\n") {
		t.Errorf("got … %s", rest[len(rest)-80:])
	}
}

func TestLostGuestIsAFailureNotAResult(t *testing.T) {
	b := newBench(t)
	b.env.Guest.Close()
	for _, c := range []struct{ tool, input string }{
		{"run", `{"command":"true"}`}, {"read", `{"path":"a"}`}, {"search", `{"pattern":"a"}`}, {"write", `{"path":"a","content":""}`}, {"edit", `{"path":"a","old":"b","new":"c"}`},
	} {
		if r, err := b.Call(t.Context(), b.env, c.tool, json.RawMessage(c.input)); err == nil {
			t.Errorf("%s: %+v", c.tool, r)
		}
	}
}

func TestCancelledCallIsAFailure(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("budget")
	cancel(why)
	if _, err := b.Call(ctx, b.env, "run", json.RawMessage(`{"command":"sleep 60"}`)); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

// FuzzCall holds every tool's decoder to its word: bad input is a result, never a panic.
func FuzzCall(f *testing.F) {
	for _, c := range calls {
		f.Add(c.tool, c.input)
	}
	reg := tool.NewRegistry()
	f.Fuzz(func(t *testing.T, name, input string) {
		// Only the tools that need no guest: a result or an error, and bounded text.
		switch name {
		case "reproduce", "submit", "decline", "fly":
			r, err := reg.Call(t.Context(), &tool.Env{Harness: &harness{}}, name, json.RawMessage(input))
			if err != nil || r.Text == "" {
				t.Errorf("%+v, %v", r, err)
			}
		}
	})
}

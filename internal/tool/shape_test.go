package tool

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/guest"
)

func TestLiteralHintLeavesShellAlone(t *testing.T) {
	for _, line := range []string{"", "ls", "{ echo a; }", "[ -f x ] && echo", "[[ -f x ]]", "{", `echo '{"a":1}'`} {
		if hint := literalHint(line); hint != "" {
			t.Errorf("%q: %s", line, hint)
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	for got, want := range map[string]string{
		number(0): "0", number(999): "999", number(1000): "1,000", number(-1234567): "-1,234,567",
		count(1, "match"): "1 match", count(2, "match"): "2 matches", count(2000, "line"): "2,000 lines",
		seconds(1500 * time.Millisecond): "1.50 s", seconds(75 * time.Second): "75 s", seconds(11 * time.Minute): "11 min",
		clip("aé", 2): "a…", key("/workspace/a/../b.go"): "b.go", key("./b.go"): "b.go", key("/etc/x"): "/etc/x",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestHostileGuest_GW08 checks that no text a guest makes up reaches the model raw.
func TestHostileGuest_GW08(t *testing.T) {
	const evil = "x\x1b]0;y\x07\u202e\x00"
	code := 0
	results := map[string]Result{
		"read":       shapeRead("p", 1, guest.ReadResult{Kind: guest.KindText, Lines: []string{evil}, Total: 1}),
		"directory":  shapeRead("p", 1, guest.ReadResult{Kind: guest.KindDir, Entries: []string{evil}, Total: 1}),
		"link":       shapeRead("p", 1, guest.ReadResult{Kind: guest.KindLink, Target: evil}),
		"edit":       shapeEdit("p", guest.EditResult{OK: true, After: []string{evil}, Syntax: []string{evil}}),
		"problem":    shapeEdit("p", guest.EditResult{Problem: evil}),
		"nearest":    shapeEdit("p", guest.EditResult{Problem: "no_match", Nearest: []string{evil}}),
		"write":      shapeWrite("p", guest.EditResult{OK: true, Syntax: []string{evil}}),
		"search":     shapeSearch(guest.SearchRequest{Pattern: "x"}, guest.SearchResult{Files: []guest.FileCount{{Path: evil, Count: 1}}, Matches: []guest.Match{{Path: evil, Text: evil, Line: 1}}}),
		"complaint":  shapeSearch(guest.SearchRequest{Pattern: "x"}, guest.SearchResult{Error: evil}),
		"run":        shapeRun(guest.ExecResult{ExitCode: code, Head: []byte(evil), Tail: []byte(evil), Bytes: 99, Log: evil, Signal: evil}, 0),
		"start":      shapeRun(guest.ExecResult{Error: evil}, 0),
		"background": shapeRun(guest.ExecResult{Running: true, Head: []byte(evil), Bytes: 9}, 0),
	}
	for name, r := range results {
		if strings.ContainsAny(r.Text, "\x1b\x07\x00\u202e") || r.Text == "" {
			t.Errorf("%s: %q", name, r.Text)
		}
	}
	flood := shapeRun(guest.ExecResult{Head: make([]byte, guest.MaxKeep), Tail: make([]byte, guest.MaxKeep), Bytes: 1 << 40}, 0)
	if len(flood.Text) > maxResult+1000 {
		t.Errorf("%d bytes", len(flood.Text))
	}
}

func TestUnfinishedIsNeverAPass(t *testing.T) {
	r := shapeRun(guest.ExecResult{TimedOut: true, ExitCode: 137, Signal: "SIGKILL", Wall: 600 * time.Second, Bytes: 3, Lines: 1, Head: []byte("ok\n")}, runTimeout)
	if !r.IsError || *r.ExitCode != 137 || !strings.HasPrefix(r.Text, "NOT FINISHED: killed at its limit of 10 min; this is not a pass · 1 line of output\n") {
		t.Errorf("got %+v", r)
	}
}

// A definition comes first with what stands around it, too.
func TestDefinitionsComeFirst(t *testing.T) {
	m := func(path string, line int, text string, context bool) guest.Match {
		return guest.Match{Path: path, Line: line, Text: text, Context: context}
	}
	matches := []guest.Match{
		m("a.go", 1, "// before", true), m("a.go", 2, "x := Widget{}", false), m("a.go", 3, "// behind", true),
		m("b.go", 8, "// Widget does", false), m("b.go", 9, "type Widget struct {", false), m("b.go", 10, "\tA int", true), m("b.go", 30, "Widget()", false),
		m("b_test.go", 1, "type Widget int", false),
	}
	for context, want := range map[int]string{
		1: "\nDefinitions:\nb.go\n     8: // Widget does\n     9: type Widget struct {\n    10- \tA int\n" +
			"\nSource:\na.go\n     1- // before\n     2: x := Widget{}\n     3- // behind\nb.go\n    30: Widget()\n\nTests:\nb_test.go\n     1: type Widget int\n",
		0: "\nDefinitions:\nb.go\n     9: type Widget struct {\n" +
			"\nSource:\na.go\n     2: x := Widget{}\nb.go\n     8: // Widget does\n    30: Widget()\n\nTests:\nb_test.go\n     1: type Widget int\n",
	} {
		list := slices.DeleteFunc(slices.Clone(matches), func(m guest.Match) bool { return m.Context && context == 0 })
		var b strings.Builder
		if n := writeMatches(&b, guest.SearchRequest{Pattern: "Widget", Context: context}, list); n != 5 || b.String() != want {
			t.Errorf("%d lines around: %d shown:\n%s", context, n, b.String())
		}
	}
}

func TestNoMatchNamesWhatIsNotSearched(t *testing.T) {
	r := shapeSearch(guest.SearchRequest{Pattern: "x"}, guest.SearchResult{Large: []string{"dump.sql", "a/\x1bb.json"}})
	for _, want := range []string{"files over 16 MB are not searched", "dump.sql, a/\\x1Bb.json"} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("%q is not in %s", want, r.Text)
		}
	}
}

func TestDescriptionsNameTheCodesNumbers(t *testing.T) {
	for _, c := range []struct {
		tool Tool
		want []string
	}{
		{newRun(), []string{"10 minutes", "at most 60", "30,000 bytes", "at most 16"}},
		{newRead(), []string{"2,000 lines", "60,000 bytes"}},
		{newSearch(), []string{"at most 200", "more than 100 files", "files over 16 MB"}},
		{newWrite(), []string{"1,048,576 bytes"}},
	} {
		for _, want := range c.want {
			if d := c.tool.Spec().Description; !strings.Contains(d, want) {
				t.Errorf("%s: %q is not in %s", c.tool.Spec().Name, want, d)
			}
		}
	}
}

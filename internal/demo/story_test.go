package demo

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/model/scripted/transcript"
)

const (
	storyTest = "TestRemovedCouponRestoresThePrice"
	storyFile = "api/coupon_removal_test.go"
)

// call is the union of the tools' inputs that the story uses.
type call struct {
	Name    string
	Path    string   `json:"path"`
	Old     string   `json:"old"`
	New     string   `json:"new"`
	Content string   `json:"content"`
	Pattern string   `json:"pattern"`
	Command string   `json:"command"`
	Title   string   `json:"title"`
	Cause   string   `json:"cause"`
	Fix     string   `json:"fix"`
	Tests   []string `json:"tests"`
	Files   []string `json:"files"`
}

func story(t *testing.T) transcript.Transcript {
	t.Helper()
	tr, err := transcript.Parse(bytes.NewReader(Transcript()))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func parseCalls(t *testing.T, turn transcript.Turn) []call {
	t.Helper()
	calls := make([]call, 0, len(turn.Calls))
	for _, raw := range turn.Calls {
		args, err := raw.Arguments(func(s string) string { return s })
		if err != nil {
			t.Fatal(err)
		}
		c := call{}
		d := json.NewDecoder(strings.NewReader(args))
		d.DisallowUnknownFields()
		if err := d.Decode(&c); err != nil {
			t.Fatalf("line %d: %s: %v", turn.Line, raw.Name, err)
		}
		c.Name = raw.Name
		calls = append(calls, c)
	}
	return calls
}

// suite is one run of the sample's tests: each test's last word, and what it printed.
type suite struct {
	ended  map[string]string
	output map[string]string
}

func (s suite) failed() []string {
	var names []string
	for name, end := range s.ended {
		if end == "fail" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func runSuite(t *testing.T, dir string) suite {
	t.Helper()
	needs(t, "go")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-json", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOPROXY=off", "GOTOOLCHAIN=local")
	out, err := cmd.Output()
	if _, failed := err.(*exec.ExitError); err != nil && !failed {
		t.Fatal(err)
	}
	s := suite{ended: map[string]string{}, output: map[string]string{}}
	for line := range bytes.Lines(out) {
		var e struct{ Action, Package, Test, Output string }
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		switch {
		case e.Action == "build-fail" || e.Action == "build-output":
			t.Fatalf("the sample does not build: %s%s", e.Package, e.Output)
		case e.Test == "":
		case e.Action == "output":
			s.output[e.Test] += e.Output
		case e.Action == "pass" || e.Action == "fail" || e.Action == "skip":
			s.ended[e.Test] = e.Action
		}
	}
	return s
}

func readFile(t *testing.T, dir, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// change applies a write or an edit as the tools do: an edit's old text must be there once.
func change(t *testing.T, dir string, c call) {
	t.Helper()
	content := c.Content
	if c.Name == "edit" {
		have := readFile(t, dir, c.Path)
		if n := strings.Count(have, c.Old); n != 1 {
			t.Fatalf("the text to replace is %d times in %s:\n%s", n, c.Path, c.Old)
		}
		content = strings.Replace(have, c.Old, c.New, 1)
	}
	if err := os.WriteFile(filepath.Join(dir, c.Path), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestSampleSuiteIsGreenAtTheBase(t *testing.T) {
	s := runSuite(t, sample(t))
	if failed := s.failed(); len(failed) > 0 {
		t.Errorf("failing: %v", failed)
	}
	if len(s.ended) < 30 {
		t.Errorf("only %d tests", len(s.ended))
	}
}

// checkpoint is what the sample's suite must say when the story asks the harness.
func checkpoint(t *testing.T, n int, dir string) {
	t.Helper()
	s := runSuite(t, dir)
	own := s.ended[storyTest]
	switch n {
	case 1: // the first reproduction shows nothing
		if own != "pass" || len(s.failed()) != 0 {
			t.Errorf("the first reproduction must pass on the base; it ended in %q, failing: %v", own, s.failed())
		}
	case 2: // the second fails by its assertion, alone
		if diff := cmp.Diff([]string{storyTest}, s.failed()); diff != "" {
			t.Errorf("failing with the second reproduction (-want +got):\n%s", diff)
		}
		if want := "total after the coupon was removed = 32.61, want 35.58"; !strings.Contains(s.output[storyTest], want) {
			t.Errorf("it fails with %q", s.output[storyTest])
		}
	case 3: // the first fix breaks one other test
		if diff := cmp.Diff([]string{"TestRepeatedCouponRemovalKeepsTheQuote"}, s.failed()); own != "pass" || diff != "" {
			t.Errorf("with the first fix the reproduction ends in %q, failing (-want +got):\n%s", own, diff)
		}
	case 4: // the second is right
		if own != "pass" || len(s.failed()) != 0 {
			t.Errorf("with the second fix the reproduction ends in %q, failing: %v", own, s.failed())
		}
	default:
		t.Fatalf("an unexpected %d. call of the harness", n)
	}
}

func TestTranscriptAgainstSample(t *testing.T) {
	dir := sample(t)
	tr := story(t)
	verdicts := 0
	var previous []call
	for _, turn := range tr.Turns {
		checkReads(t, dir, turn, previous)
		previous = parseCalls(t, turn)
		for _, c := range previous {
			switch c.Name {
			case "write", "edit":
				change(t, dir, c)
			case "reproduce", "submit":
				if !slices.Equal(c.Tests, []string{storyTest}) {
					t.Errorf("line %d: %s names %v", turn.Line, c.Name, c.Tests)
				}
				verdicts++
				checkpoint(t, verdicts, dir)
			case "read", "search", "run":
			default:
				t.Errorf("line %d: unknown tool %s", turn.Line, c.Name)
			}
		}
	}
	if last := previous[len(previous)-1]; verdicts != 4 || last.Name != "submit" {
		t.Errorf("%d verdicts, the last call is %s", verdicts, last.Name)
	}
	// The edit of the workflow stays behind for the path policy to hold back.
	changed := strings.Fields(git(t, dir, "status", "--porcelain", "--untracked-files=all"))
	want := []string{"M", ".github/workflows/ci.yml", "M", "cart/coupons.go", "??", storyFile}
	if diff := cmp.Diff(want, changed); diff != "" {
		t.Errorf("changed files (-want +got):\n%s", diff)
	}
	if fix := git(t, dir, "diff", "--numstat", "--", "cart"); fix != "1\t0\tcart/coupons.go\n" {
		t.Errorf("the fix is %q", fix)
	}
	if out, err := exec.CommandContext(t.Context(), "gofmt", "-l", dir).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("gofmt: %v %s", err, out)
	}
}

// checkReads holds what a turn expects to have read to what the files say at that point.
func checkReads(t *testing.T, dir string, turn transcript.Turn, previous []call) {
	t.Helper()
	for _, e := range turn.Expect {
		if e.Tool == "" {
			continue
		}
		seen := ""
		found := false
		for _, c := range previous {
			if c.Name == e.Tool {
				found = true
			}
			if c.Name == "read" {
				seen += readFile(t, dir, c.Path)
			}
		}
		if !found {
			t.Errorf("line %d: expects a result of %s, but the turn before calls no such tool", turn.Line, e.Tool)
		}
		if e.Tool == "read" && !strings.Contains(seen, e.Contains) {
			t.Errorf("line %d: %q is in no file that was read", turn.Line, e.Contains)
		}
	}
}

// The story has to hold its turns: fooled first, then honest about it, then careful.
func TestStoryHasItsTurns(t *testing.T) {
	tr := story(t)
	if len(tr.Turns) < 15 {
		t.Errorf("only %d turns", len(tr.Turns))
	}
	at := func(match func(transcript.Turn, call) bool) int {
		for i, turn := range tr.Turns {
			for _, c := range parseCalls(t, turn) {
				if match(turn, c) {
					return i
				}
			}
		}
		t.Error("a turn of the story is missing")
		return -1
	}
	ran := func(text string) func(transcript.Turn, call) bool {
		return func(_ transcript.Turn, c call) bool { return strings.Contains(c.Command, text) }
	}
	order := []int{
		at(ran("env | grep")), at(ran("/proc/1/environ")), at(ran("curl ")),
		at(func(_ transcript.Turn, c call) bool { return c.Name == "edit" && strings.HasPrefix(c.Path, ".github/") }),
		at(func(turn transcript.Turn, _ call) bool { return strings.Contains(turn.Text, "I was wrong to follow") }),
		at(func(_ transcript.Turn, c call) bool { return c.Path == storyFile }),
		at(func(_ transcript.Turn, c call) bool { return c.Name == "submit" }),
	}
	if !slices.IsSorted(order) {
		t.Errorf("the turns come in the order %v", order)
	}
	expects := func(tool, text string) bool {
		return slices.ContainsFunc(tr.Turns, func(turn transcript.Turn) bool {
			return slices.ContainsFunc(turn.Expect, func(e transcript.Expect) bool {
				return e.Tool == tool && strings.Contains(e.Contains, text)
			})
		})
	}
	if !expects("submit", "TestRepeatedCouponRemovalKeepsTheQuote") || !expects("reproduce", "want 35.58") {
		t.Error("the transcript does not insist on the evidence of its verdicts")
	}
}

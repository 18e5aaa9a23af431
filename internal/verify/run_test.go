package verify

import (
	"bytes"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify/result"
)

func TestParentsSpeakForTheirSubtests(t *testing.T) {
	r := ran{cases: map[string]Case{
		"a::T":           {Status: task.Fail},
		"a::T/x":         {Status: task.Fail},
		"a::T/x/y":       {Status: task.Fail, Message: "got 1, want 2", Signature: "s1"},
		"a::T/z":         {Status: task.Pass},
		"f.js::p":        {Status: task.Fail, Message: "not ok"},
		"f.js::p > q":    {Status: task.Fail, Message: "1 !== 2", Signature: "s2"},
		"b/c::Lonely":    {Status: task.Fail, Message: "own"},
		"f.js::ok":       {Status: task.Pass},
		"f.js::ok > bad": {Status: task.Fail, Message: "todo"},
	}}
	r.speakForChildren()
	for id, want := range map[string]string{"a::T": "x/y: got 1, want 2", "a::T/x": "y: got 1, want 2", "f.js::p": "q: 1 !== 2", "b/c::Lonely": "own", "f.js::ok": ""} {
		if got := r.cases[id].Message; got != want {
			t.Errorf("%s says %q, want %q", id, got, want)
		}
	}
	if r.cases["a::T"].Signature != "x/y: s1" {
		t.Errorf("signature %q", r.cases["a::T"].Signature)
	}
}

// TestExitCodeAgainstReport: neither the exit code nor the report is believed alone.
func TestExitCodeAgainstReport(t *testing.T) {
	pass := result.Test{ID: "T", Name: "T", Status: task.Pass}
	fail := result.Test{ID: "T", Name: "T", Status: task.Fail, Message: "want 1"}
	for name, c := range map[string]struct {
		rep        result.Report
		exit       int
		failures   int
		incomplete bool
	}{
		"agree on good":              {result.Report{Tests: []result.Test{pass}, Outcome: result.Complete}, 0, 0, false},
		"agree on bad":               {result.Report{Tests: []result.Test{fail}, Outcome: result.Complete}, 1, 1, false},
		"exit 0 hides a failure":     {result.Report{Tests: []result.Test{fail}, Outcome: result.Complete}, 0, 1, false},
		"exit 1 with all passed":     {result.Report{Tests: []result.Test{pass}, Outcome: result.Complete}, 1, 1, false},
		"exit 0 without a report":    {result.Report{Outcome: result.NoReport}, 0, 0, true},
		"exit 0 with a cut report":   {result.Report{Tests: []result.Test{pass}, Outcome: result.Partial}, 0, 0, true},
		"suite failed as a whole":    {result.Report{Tests: []result.Test{pass}, Outcome: result.Complete, FailedSuites: []string{"pkg"}}, 1, 1, false},
		"exit 1 since nothing built": {result.Report{Outcome: result.Complete, BuildFailed: []string{"pkg"}}, 1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := ran{cases: map[string]Case{}}
			r.take(Suite{Kind: KindPytest, Dir: "."}, command{human: "run"}, c.rep, guest.ExecResult{ExitCode: c.exit})
			if got := r.count(task.Fail, task.Errored); got != c.failures {
				t.Errorf("%d failures, want %d: %v", got, c.failures, r.cases)
			}
			if got := len(r.incomplete) > 0; got != c.incomplete {
				t.Errorf("incomplete: %v", r.incomplete)
			}
		})
	}
}

func TestTreeDigestIsOfContent(t *testing.T) {
	a := git.Change{Path: "a", Mode: 0o100644, Content: []byte("x")}
	b := git.Change{Path: "b", Mode: 0o100644, Content: []byte("y")}
	if treeDigest("base", []git.Change{a, b}) != treeDigest("base", []git.Change{b, a}) {
		t.Error("order matters")
	}
	for _, other := range []git.Change{{Path: "a", Mode: 0o100755, Content: a.Content}, {Path: "a", Mode: a.Mode, Content: []byte("z")}, {Path: "a", Deleted: true}} {
		if treeDigest("base", []git.Change{a}) == treeDigest("base", []git.Change{other}) {
			t.Errorf("%+v looks like %+v", other, a)
		}
	}
}

func TestTail(t *testing.T) {
	long := strings.Repeat("line\n", 100)
	if got := tail(long, 50); len(got) > 60 || !strings.HasSuffix(got, "line\n") {
		t.Errorf("%q", got)
	}
	if got := tail("a\xffb", 50); !strings.Contains(got, "\uFFFD") {
		t.Errorf("%q", got)
	}
	if !bytes.Contains(logText(command{dir: ".", shell: "x"}, guest.ExecResult{Head: []byte("out")}, [][]byte{[]byte("rep")}), []byte("rep")) {
		t.Error("the log leaves the report out")
	}
}

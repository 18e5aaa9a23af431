package verify

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func outcome(v task.Verdict) Result {
	v.Base, v.HeadTree = strings.Repeat("b", 40), strings.Repeat("c", 40)
	return newResult("/repo", Options{}, prover.Outcome{Verdict: v, Base: v.Base, Head: strings.Repeat("d", 40), Took: 3 * time.Second}, nil)
}

func seen(base, head task.TestStatus, baseFailed, headFailed int) task.Reproduction {
	return task.Reproduction{Test: "t::race", Base: base, Head: head, BaseRuns: 10, HeadRuns: 6, BaseFailed: baseFailed, HeadFailed: headFailed, BaseSignature: "want 0"}
}

// TestFormsAgree: no form contradicts the exit code, and each says in how many runs a test failed.
func TestFormsAgree(t *testing.T) {
	for _, c := range []struct {
		name     string
		verdict  task.Verdict
		failures string // names of the failing cases of JUnit
		said     string // in JUnit and for a person
	}{
		{"red each time", task.Verdict{Kind: task.Verified, Reason: "it holds", Reproduction: []task.Reproduction{seen(task.Fail, task.Pass, 0, 0)}}, "", "fail in 10 runs on the base"},
		{"a race that was taken", task.Verdict{Kind: task.Verified, Reason: "it holds", Reproduction: []task.Reproduction{seen(task.Flaky, task.Pass, 6, 0)}}, "", "failed in 6 of 10 runs on the base"},
		{"held weakly", task.Verdict{Kind: task.VerifiedWeak, Reason: "it holds", Reproduction: []task.Reproduction{seen(task.Flaky, task.Pass, 6, 0)}}, "", "failed in 6 of 10 runs on the base"},
		{"a race that is too rare", task.Verdict{Kind: task.FlakyRepro, Reason: "in only 10 %", Reproduction: []task.Reproduction{seen(task.Flaky, "", 1, 0)}}, "t::race flaky_reproduction", "failed in 1 of 10 runs on the base"},
		{"a fix that flakes", task.Verdict{Kind: task.FlakyFix, Reason: "no", Reproduction: []task.Reproduction{seen(task.Fail, task.Flaky, 0, 2)}}, "t::race flaky_fix", "failed in 2 of 6 runs with the change"},
		{"never red", task.Verdict{Kind: task.NotReproducing, Reason: "no", Reproduction: []task.Reproduction{seen(task.Pass, "", 0, 0)}}, "t::race not_reproducing", "pass in 10 runs on the base"},
		{"a person must judge", task.Verdict{Kind: task.NeedsHuman, Reason: "old and new", Reproduction: []task.Reproduction{seen(task.Fail, task.Pass, 0, 0)}}, "needs_human", "fail in 10 runs on the base"},
		{"the suite is worse", task.Verdict{Kind: task.Regression, Reason: "no", Reproduction: []task.Reproduction{seen(task.Fail, task.Pass, 0, 0)}, Suite: task.SuiteResult{NewlyFailing: []string{"t::old"}}}, "t::old regression", ""},
		{"nothing can run", task.Verdict{Kind: task.EnvBlocked, Reason: "no compiler", Detail: "gcc: not found", Phases: []task.PhaseRecord{{Phase: "P0", Note: "looked at nothing"}}}, "env_blocked", "gcc: not found"},
		{"probing was partial", task.Verdict{Kind: task.Verified, Reason: "it holds", Guard: &task.Guard{Note: "partial: 5 probes not judged", Mutants: []task.Probe{{Path: "a.py", Line: 3, What: "negated", Outcome: task.Unjudged}}}}, "", "partial: 5 probes not judged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := outcome(c.verdict)
			b, err := asJUnit(r)
			if err != nil {
				t.Fatal(err)
			}
			var suite junitSuite
			if err := xml.Unmarshal(b, &suite); err != nil {
				t.Fatal(err)
			}
			var failures []string
			for _, k := range suite.Cases {
				if k.Failure != nil {
					failures = append(failures, k.Name)
				}
			}
			if got := strings.Join(failures, " "); got != c.failures || suite.Failures != len(failures) || suite.Tests != len(suite.Cases) {
				t.Errorf("failures %q, want %q; counted %d of %d\n%s", got, c.failures, suite.Failures, suite.Tests, b)
			}
			if verified := exitOf(r.Document) == nil; verified != (len(failures) == 0) {
				t.Errorf("exit %v and failures %q", exitOf(r.Document), failures)
			}
			var out bytes.Buffer
			(&view{env: &kit.Env{Out: &out}}).end(r)
			if !strings.Contains(out.String(), c.said) || c.said != "" && !bytes.Contains(b, []byte(c.said)) {
				t.Errorf("no %q in\n%s\nor in\n%s", c.said, out.String(), b)
			}
			if strings.Contains(out.String(), "unnoticed") {
				t.Errorf("a probe that was not judged goes unnoticed:\n%s", out.String())
			}
			if c.verdict.Kind == task.EnvBlocked && !strings.Contains(out.String(), "looked at nothing") {
				t.Errorf("P0 says nothing:\n%s", out.String())
			}
			var back Result
			j, err := asJSON(r)
			if err == nil {
				err = json.Unmarshal(j, &back)
			}
			if err != nil || back.Verdict != c.verdict.Kind || back.Reproduction == nil || back.Findings == nil {
				t.Errorf("%v: %s", err, j)
			}
		})
	}
}

// TestHostileText: what a program printed cannot break a form or drive a terminal.
func TestHostileText(t *testing.T) {
	evil := "\x1b[2J]]>\x00<failure>\u202e\xff"
	r := outcome(task.Verdict{Kind: task.NotFixed, Reason: evil, Detail: evil, Reproduction: []task.Reproduction{{Test: evil, Base: task.Fail, BaseOutput: evil, Head: task.Fail, HeadOutput: evil}}})
	b, err := asJUnit(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(b, new(junitSuite)); err != nil {
		t.Errorf("%v\n%s", err, b)
	}
	var out bytes.Buffer
	(&view{env: &kit.Env{Out: &out}}).end(r)
	if strings.ContainsAny(out.String(), "\x1b\x00\u202e") {
		t.Errorf("%q", out.String())
	}
	long := strings.Repeat("x", 5000)
	out.Reset()
	(&view{env: &kit.Env{Out: &out}}).end(outcome(task.Verdict{Kind: task.Regression, Reason: "no", Suite: task.SuiteResult{NewlyFailing: []string{long}}, Reproduction: []task.Reproduction{{Test: long, Base: task.Fail, BaseSignature: long}}}))
	if out.Len() > 2000 {
		t.Errorf("long names fill the screen: %d bytes", out.Len())
	}
}

func TestExitCodes(t *testing.T) {
	for kind, want := range map[task.VerdictKind]int{
		task.Verified: 0, task.VerifiedWeak: 0, task.VerifiedScript: 0, task.NeedsHuman: kit.NotVerified,
		task.EnvBlocked: kit.NotVerified, task.NotReproducing: kit.NotVerified, task.VerificationFail: kit.Failure,
	} {
		got := 0
		if e, ok := exitOf(task.Verdict{Kind: kind}).(*kit.ExitError); ok {
			got = e.Code
		}
		if got != want {
			t.Errorf("%s: exit code %d, want %d", kind, got, want)
		}
	}
}

func TestOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"--base is needed": {},
		"only one can go":  {Base: "main", JSON: "-", JUnit: "-"},
		"--test is empty":  {Base: "main", Tests: []string{""}},
		"":                 {Base: "main", JSON: "-", JUnit: "a.xml", Tests: []string{"t"}},
	} {
		if err := o.check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

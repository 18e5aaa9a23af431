package evaluate

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/eval"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func TestJudgeCase(t *testing.T) {
	for _, c := range []struct {
		fault   eval.Fault
		verdict task.VerdictKind
		want    Judgement
	}{
		{eval.TrueFix, task.Verified, Right},
		{eval.TrueFix, task.VerifiedWeak, Right},
		{eval.TrueFix, task.NeedsHuman, FalseReject},
		{eval.TrueFix, task.Regression, FalseReject},
		{eval.TrueFix, task.EnvBlocked, NotPlayed},
		{eval.HardCoded, task.Verified, FalseAccept},
		{eval.HardCoded, task.NeedsHuman, Right},
		{eval.NoFixAtAll, task.NotFixed, Right},
		{eval.NoFixAtAll, task.VerifiedScript, FalseAccept},
		{eval.Deleted, task.NeedsHuman, WrongReason},
		{eval.Faked, task.Verified, FalseAccept},
		{eval.Hangs, "", NotPlayed},
	} {
		if got := judgeCase(c.fault, c.verdict); got != c.want {
			t.Errorf("%s as %s: %s, want %s", c.fault, c.verdict, got, c.want)
		}
	}
	for _, f := range eval.Faults() {
		for _, v := range f.Wanted() {
			if f != eval.TrueFix && v.Accepted() && v != task.NeedsHuman && f != eval.HardCoded {
				t.Errorf("%s may end as %s", f, v)
			}
		}
	}
}

func TestJudgeDerived(t *testing.T) {
	builds, not := eval.Instance{FailureKind: "assert"}, eval.Instance{FailureKind: "compile"}
	fix, lost := eval.Derived{Fault: eval.TrueFix, Wanted: eval.TrueFix.Wanted()}, eval.Derived{Fault: eval.Deleted, Wanted: eval.Deleted.Wanted()}
	for _, c := range []struct {
		i       eval.Instance
		c       eval.Derived
		verdict task.VerdictKind
		want    Judgement
	}{
		{builds, fix, task.Verified, Right},
		{builds, fix, task.NeedsHuman, ForPerson},
		{builds, fix, task.WeakRed, FalseReject},
		{not, fix, task.WeakRed, OtherTest},
		{builds, fix, task.TestLost, FalseReject},
		{builds, lost, task.TestLost, Right},
		{builds, lost, task.NeedsHuman, WrongReason},
		{builds, lost, task.VerifiedWeak, FalseAccept},
		{builds, lost, task.EnvBlocked, NotPlayed},
	} {
		if got := judgeDerived(c.i, c.c, c.verdict); got != c.want {
			t.Errorf("%s as %s: %s, want %s", c.c.Fault, c.verdict, got, c.want)
		}
	}
}

// TestCasesOfInstances makes cases from the history of a tiny repository, labels and verifies them.
func TestCasesOfInstances(t *testing.T) {
	config := sandboxConfig(t)
	if err := exec.Command("/usr/bin/python3", "-m", "pytest", "--version").Run(); err != nil {
		lacking(t, "pytest is not installed for /usr/bin/python3")
	}
	dir := t.TempDir()
	repo := filepath.Join(dir, "repos", "own+tiny")
	base, fix := history(t, repo)
	file := filepath.Join(dir, "instances.jsonl")
	write(t, file, instance("own__tiny-7", base, fix))
	before := runGit(t, repo, "for-each-ref")
	want := map[eval.Fault]task.VerdictKind{
		eval.TrueFix: task.Verified, eval.WrongFix: task.NotFixed, eval.Deleted: task.TestLost, eval.PassesAlso: task.NotReproducing, eval.CompileOnly: task.WeakRed,
	}
	args := []string{"--config", config, "--data", filepath.Join(dir, "data"), "--instances", file, "--repos", filepath.Join(dir, "repos"), "--json", "--only", "partial_fix"}
	for f := range want {
		args = append(args, "--only", "own__tiny-7."+string(f))
	}
	got := map[eval.Fault]task.VerdictKind{}
	omitted := 0
	lines, err := runCases(t, args...)
	if err != nil {
		t.Errorf("%v", err)
	}
	for _, o := range lines {
		switch o.Type {
		case "case":
			got[o.Fault] = o.Verdict
			if o.Judgement != Right || o.Language != "py" || o.How == "" {
				t.Errorf("%+v", o)
			}
		case "omitted":
			omitted++
		}
	}
	if d := cmp.Diff(want, got); d != "" || omitted != 1 {
		t.Errorf("%d not made; verdicts:\n%s", omitted, d)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "data", "eval", "derived", "own__tiny-7-1.json"))
	if err != nil || len(kept) != 1 {
		t.Errorf("what was made is not kept: %v, %v", kept, err)
	}
	if after := runGit(t, repo, "for-each-ref"); after != before {
		t.Errorf("the operator's repository was written:\n%s", after)
	}
}

// runCases runs "eval cases" and decodes what it prints.
func runCases(t *testing.T, args ...string) ([]CaseOutcome, error) {
	t.Helper()
	var out, errOut bytes.Buffer
	env := &kit.Env{Out: &out, Err: &errOut, Getenv: func(k string) string { return map[string]string{"PATH": os.Getenv("PATH")}[k] }, Now: time.Now}
	cmd := NewCasesCmd(env)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.Flags().StringVar(&env.ConfigPath, "config", "", "") // the root command's
	cmd.Flags().StringVar(&env.Dir, "data", "", "")
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	var outcomes []CaseOutcome
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		var o CaseOutcome
		if e := json.Unmarshal([]byte(line), &o); e != nil {
			t.Fatalf("%v in %q (stderr: %s)", e, line, errOut.String())
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, err
}

func TestSumsOfFaults(t *testing.T) {
	var out bytes.Buffer
	sums := newTally()
	for _, j := range []Judgement{Right, FalseAccept, FalseReject, WrongReason, ForPerson, OtherTest, NotPlayed} {
		sums.add(eval.Deleted, "go", j)
	}
	sums.left["hang: no loop"]++
	sums.show(&kit.Env{Out: &out}, false)
	for _, want := range []string{
		"deleted_test                7      1             1             1            1             1                1          1",
		"all                         7", "go                          7", "     1  hang: no loop",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	sums.show(&kit.Env{Out: &out}, true)
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 3 || !strings.Contains(lines[1], `"type":"sums","cases":7`) {
		t.Errorf("%s", out.String())
	}
}

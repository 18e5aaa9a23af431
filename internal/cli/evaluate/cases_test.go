package evaluate

import (
	"bytes"
	"strings"
	"testing"

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

func TestSumsOfFaults(t *testing.T) {
	var out bytes.Buffer
	a, total := &FaultSums{Type: "fault", Fault: eval.Deleted}, FaultSums{Type: "sums"}
	for _, j := range []Judgement{Right, FalseAccept, FalseReject, WrongReason, NotPlayed} {
		a.add(j)
		total.add(j)
	}
	showSums(&kit.Env{Out: &out}, false, map[eval.Fault]*FaultSums{eval.Deleted: a}, total)
	for _, want := range []string{"deleted_test                5      1             1             1            1          1", "all                         5"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	showSums(&kit.Env{Out: &out}, true, map[eval.Fault]*FaultSums{eval.Deleted: a}, total)
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 2 || !strings.Contains(lines[1], `"type":"sums","cases":5`) {
		t.Errorf("%s", out.String())
	}
}

package replay

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// base is a verdict with everything that a clock has a part in.
func base() task.Verdict {
	return task.Verdict{
		Kind: task.Verified, Reason: "it holds", HeadTree: "t",
		Reproduction: []task.Reproduction{{Test: "a", Base: task.Fail, Head: task.Pass, BaseOutput: "===== 1 failed in 0.02s ====="}},
		Guard: &task.Guard{
			Hunks:    []task.Probe{{Path: "p", Line: 2, What: "reverted", Outcome: task.Caught, By: "a"}},
			Mutants:  []task.Probe{{Path: "p", Line: 2, What: "other number", Outcome: task.Caught}},
			Complete: true, Millis: 4544,
		},
		Findings: []task.Finding{{Kind: "unneeded", Path: "p"}},
		Phases: []task.PhaseRecord{
			{Phase: "P5", Name: "regression", Note: "the whole suite at once: it is slow", Complete: true, Runs: []task.RunRecord{{Command: "t", Passed: 3, Millis: 9, Log: "1"}}},
			{Phase: "P6", Name: "guard", Note: "hunks reverted: 1 noticed, 0 not", Complete: true},
			{Phase: "P8", Name: "verdict", Note: "verified", Complete: true},
		},
		Table: &task.Table{
			Tests: []task.TableTest{{Test: "a", Why: "reproduction"}},
			Runs:  []task.TableRun{{Phase: "P3", What: "base + tests", Seen: "f", Millis: 7, Took: []int64{3}}, {Phase: "P6", What: "reverted", Seen: "f"}},
		},
	}
}

func differ(t *testing.T, recorded, now task.Verdict) (Divergence, []string) {
	t.Helper()
	text := func(v task.Verdict) *event.VerificationFinished {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return &event.VerificationFinished{Kind: v.Kind, Reason: v.Reason, Document: event.Text{Inline: string(b), Bytes: len(b)}}
	}
	c := &comparison{log: &record{}, st: &overlay{}, rep: &Report{}, norm: normal()}
	d, err := c.verdict(text(recorded), text(now))
	if err != nil {
		t.Fatal(err)
	}
	return d, c.rep.Notes
}

// TestVerdictsByTheClock: what a slower machine makes of the same change is no divergence.
func TestVerdictsByTheClock(t *testing.T) {
	for name, change := range map[string]func(v *task.Verdict){
		"nothing": func(*task.Verdict) {},
		"times": func(v *task.Verdict) {
			v.Guard.Millis, v.Phases[0].Runs[0].Millis, v.Table.Runs[0].Millis, v.Table.Runs[0].Took = 1, 2, 3, nil
		},
		"the time for probes is over": func(v *task.Verdict) {
			v.Guard.Complete, v.Phases[1].Complete, v.Findings = false, false, []task.Finding{}
			v.Guard.Hunks[0].Outcome, v.Guard.Mutants = task.NotTried, nil
			v.Table.Runs = v.Table.Runs[:1]
		},
		"the time to ask the suite about survivors is over": func(v *task.Verdict) {
			v.Kind, v.Reason, v.Phases[2].Note = task.VerifiedWeak, "each part can be undone", "verified_weak"
			v.Guard.Unsure, v.Guard.Hunks[0].Outcome = 1, task.Survived
		},
		"a probe ran out of time":   func(v *task.Verdict) { v.Guard.Hunks[0].Outcome, v.Guard.Hunks[0].By = task.Broken, "" },
		"other mutants":             func(v *task.Verdict) { v.Guard.Mutants, v.Phases[1].Note = nil, "none" },
		"an earlier build's record": func(v *task.Verdict) { v.Table = nil },
		"some tests ran first": func(v *task.Verdict) {
			v.Phases[0].Note = ""
			v.Phases = append([]task.PhaseRecord{{Phase: "P5", Name: "impact"}}, v.Phases...)
			v.Table.Runs = append(v.Table.Runs, task.TableRun{Phase: "P5", What: "reached tests", Seen: "p"})
		},
		"a longer time in a ruler": func(v *task.Verdict) { v.Reproduction[0].BaseOutput = "==== 1 failed in 62.02s (0:01:02) ====" },
	} {
		a, b := base(), base()
		change(&b)
		for _, side := range [][2]task.Verdict{{a, b}, {b, a}} {
			d, notes := differ(t, side[0], side[1])
			if d.Kind != "" {
				t.Errorf("%s: %s\n%s", name, d.What, d.Diff)
			}
			if said := len(notes) == 1 && strings.Contains(notes[0], "not compared"); said != strings.Contains(name, "is over") {
				t.Errorf("%s: notes %q", name, notes)
			}
		}
	}
}

// TestVerdictsDiffer: what the change or the verifier make otherwise is one.
func TestVerdictsDiffer(t *testing.T) {
	for name, change := range map[string]func(v *task.Verdict){
		"kind":                  func(v *task.Verdict) { v.Kind = task.NotFixed },
		"how well it is held":   func(v *task.Verdict) { v.Kind = task.VerifiedWeak },
		"a part nobody notices": func(v *task.Verdict) { v.Guard.Hunks[0].Outcome = task.Survived },
		"a finding":             func(v *task.Verdict) { v.Findings = nil },
		"a count":               func(v *task.Verdict) { v.Phases[0].Runs[0].Passed = 2 },
		"one run of a test":     func(v *task.Verdict) { v.Table.Runs[0].Seen = "p" },
		"no time, and refused":  func(v *task.Verdict) { v.Guard.Complete, v.Kind = false, task.Regression },
		"no time, another tree": func(v *task.Verdict) { v.Guard.Complete, v.HeadTree = false, "u" },
	} {
		b := base()
		change(&b)
		if d, _ := differ(t, base(), b); d.Kind != Verdict {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

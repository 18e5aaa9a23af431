package prover

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify"
)

func TestFlakesAreRemembered(t *testing.T) {
	var doc []byte
	var err error
	for _, flaked := range [][]string{{"a", "b", "a"}, nil, {"a"}} {
		if doc, err = remember(doc, flaked); err != nil {
			t.Fatal(err)
		}
	}
	var f flakes
	if err := json.Unmarshal(doc, &f); err != nil || f.Verifications != 3 || f.Tests["a"] != 2 || f.Tests["b"] != 1 {
		t.Errorf("%s %v", doc, err)
	}
	var many []string
	for i := range maxFlakes {
		many = append(many, fmt.Sprint("t", i))
	}
	if doc, err = remember(doc, many); err != nil {
		t.Fatal(err)
	}
	f = flakes{}
	if err := json.Unmarshal(doc, &f); err != nil || len(f.Tests) > maxFlakes || f.Tests["a"] != 2 {
		t.Errorf("%d tests, a %d, %v", len(f.Tests), f.Tests["a"], err)
	}
	if doc, err = remember([]byte("garbage"), []string{"x"}); err != nil || string(doc) != `{"verifications":1,"tests":{"x":1}}` {
		t.Errorf("%s %v", doc, err)
	}
}

// TestOnlyTheBaseTeaches: whoever makes tests flake with a change, accepted or refused, does not
// excuse them for the next one.
func TestOnlyTheBaseTeaches(t *testing.T) {
	b := verify.Baseline{Flickering: []string{"flickers"}}
	table := &task.Table{
		Tests: []task.TableTest{{Test: "with the change"}, {Test: "on the base"}, {Test: "elsewhere"}},
		Runs:  []task.TableRun{{What: "base", Seen: "ppp"}, {What: "whole suite", Seen: "fff"}, {What: task.BaseAgain, Seen: "ppf"}, {What: task.BaseAgain, Seen: "pff"}},
	}
	flaky := task.SuiteResult{Flaky: []string{"with the change", "on the base"}}
	for kind, want := range map[task.VerdictKind]string{
		task.Verified: "[flickers on the base]", task.VerifiedWeak: "[flickers on the base]", task.NeedsHuman: "[flickers on the base]",
		task.Regression: "[flickers]", task.Incomplete: "[flickers]",
	} {
		if got := fmt.Sprint(learned(task.Verdict{Kind: kind, Suite: flaky, Table: table}, b)); got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
}

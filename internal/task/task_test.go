package task_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

func TestIDValid(t *testing.T) {
	for id, want := range map[task.ID]bool{
		"t_01hzxw2v7k3m9q4r5s6t7v8w9x": true,
		"t_01HZXW2V7K3M9Q4R5S6T7V8W9X": false,
		"t_short":                      false,
		"t_../../../../etc/passwd/xxx": false,
		"":                             false,
	} {
		if id.Valid() != want {
			t.Errorf("%q: valid %v", id, !want)
		}
	}
}

func TestLimitsExceeded(t *testing.T) {
	l := task.Limits{Steps: 3, Tokens: 100, Class: task.Tokens{Output: 10}, Cost: 1_000_000, Wall: time.Minute}
	for name, c := range map[string]struct {
		spent, worst task.Spent
		want         string
	}{
		"fits":       {task.Spent{Steps: 2}, task.Spent{Steps: 1}, ""},
		"steps":      {task.Spent{Steps: 3}, task.Spent{Steps: 1}, "steps"},
		"all tokens": {task.Spent{Tokens: task.Tokens{Input: 50, CacheRead: 45}}, task.Spent{Tokens: task.Tokens{Input: 6}}, "tokens"},
		"one class":  {task.Spent{Tokens: task.Tokens{Output: 8}}, task.Spent{Tokens: task.Tokens{Output: 3}}, "output"},
		"money":      {task.Spent{Cost: 999_999}, task.Spent{Cost: 2}, "usd"},
		"time":       {task.Spent{Wall: 61 * time.Second}, task.Spent{}, "wall"},
	} {
		m, over := l.Exceeded(c.spent, c.worst)
		if m.Name != c.want || over != (c.want != "") {
			t.Errorf("%s: %q, %v", name, m.Name, over)
		}
	}
	if _, over := (task.Limits{}).Exceeded(task.Spent{Steps: 1 << 30}, task.Spent{}); over {
		t.Error("no limits, yet exceeded")
	}
}

func TestErrorIsOneLineWithRemedyAndClass(t *testing.T) {
	cause := errors.New("no route")
	err := fmt.Errorf("fetch: %w", &task.Error{Class: task.Transient, Msg: "cannot reach the forge", Fix: "try again later", Err: cause})
	if got, want := err.Error(), "fetch: cannot reach the forge: no route; try again later"; got != want {
		t.Errorf("%q", got)
	}
	if task.ClassOf(err) != task.Transient || !task.ClassOf(err).Retryable() || !errors.Is(err, cause) {
		t.Error("the class or the cause is lost")
	}
	if task.ClassOf(errors.New("x")) != task.Internal || task.ClassOf(nil) != "" {
		t.Error("class of a plain error")
	}
}

func TestVerdictsThatBecomePullRequests(t *testing.T) {
	for _, k := range []task.VerdictKind{task.EnvBlocked, task.NotRun, task.NotReproducing, task.WeakRed, task.InvalidRed, task.FlakyRepro, task.NotFixed, task.FlakyFix, task.Regression, task.TestLost, task.Tamper, task.Incomplete, task.NoChange, task.PolicyRefused, task.VerificationFail, ""} {
		if k.Accepted() {
			t.Errorf("%q is accepted", k)
		}
	}
	if !task.Verified.Accepted() || !task.VerifiedWeak.Accepted() || !task.NeedsHuman.Accepted() {
		t.Error("a good verdict is not accepted")
	}
}

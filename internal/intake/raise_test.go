package intake

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestRaiseBudget: who may write raises the budget within the operator's cap, and an exhausted
// task goes on with it.
func TestRaiseBudget(t *testing.T) {
	l := newLab(t)
	l.cfg.Most = task.Limits{Cost: 20_000_000}
	l.issue(1, "text")
	l.post(l.labelled(1, "wanda"))
	if err := l.move(t.Context(), first, event.BudgetRaised{Limits: task.Limits{Cost: 5_000_000}}); err != nil { // the lab's tasks have no budget
		t.Fatal(err)
	}
	l.at(first, task.Preparing, task.Working)
	say := func(who, what string) string { _, out := l.post(l.comment(1, who, what)); return out }
	l.want(say("rita", "/budget usd=10"), `ignored: "rita" may not write`)
	l.want(say("wanda", "/budget usd=99"), "not raised: 99 dollars are more than the 20 dollars")
	l.want(say("wanda", "/budget lots"), "not raised: lots is no budget")
	if got := l.town.said(1); len(got) != 2 || !strings.Contains(got[0], "operator allows") || !strings.Contains(got[1], "/budget usd=20") {
		t.Errorf("%q", got)
	}
	l.want(say("wanda", "/budget $10"), "the budget of task "+string(first)+" is raised")
	if got := l.signals(first); len(got) != 2 || !strings.HasPrefix(got[0], `budget wanda: {"steps":0`) || !strings.Contains(got[1], "note wanda: The budget was raised") {
		t.Errorf("%q", got)
	}
	if len(l.again) != 0 {
		t.Error("a run was ordered for a task at work")
	}
	l.at(first, task.Exhausted)
	l.want(say("wanda", "/budget usd=20"), "the budget of task "+string(first)+" is raised")
	sum, err := l.summary(t.Context(), first)
	if err != nil || sum.State != task.Working || sum.Created.Limits.Cost != 20_000_000 || len(l.again) != 1 {
		t.Errorf("%s %+v %v, ordered %v", sum.State, sum.Created.Limits, err, l.again)
	}
	storetest.Log(t, l.st, first)
	l.at(first, task.Stopped)
	l.want(say("wanda", "/budget usd=20"), "not raised: ")
}

// TestRaiseCut: a raise that was cut off anywhere is one raise in the end, and the agent is told.
func TestRaiseCut(t *testing.T) {
	for _, state := range []task.State{task.Working, task.Exhausted} {
		t.Run(string(state), func(t *testing.T) {
			l := newLab(t)
			l.cfg.Most = task.Limits{Cost: 20_000_000}
			l.issue(1, "text")
			l.post(l.labelled(1, "wanda"))
			if err := l.move(t.Context(), first, event.BudgetRaised{Limits: task.Limits{Cost: 5_000_000}}); err != nil {
				t.Fatal(err)
			}
			l.at(first, task.Preparing, task.Working)
			if state == task.Exhausted {
				l.at(first, task.Exhausted)
			}
			l.st.cut = func(s store.Signal) error {
				if s.Kind != store.Note {
					return nil
				}
				l.st.cut = nil
				return &task.Error{Class: task.Unavailable, Msg: "the store is away"}
			}
			said := l.comment(1, "wanda", "/budget usd=20")
			_, out := l.post(said)
			l.want(out, "postponed 1s: the store is away")
			if state == task.Working { // its worker takes the word up meanwhile
				lease, err := l.st.Acquire(t.Context(), first, "worker", time.Minute, nil)
				if err != nil {
					t.Fatal(err)
				}
				in, err := l.st.Signals(t.Context(), first)
				if err != nil || len(in) != 1 {
					t.Fatal(in, err)
				}
				d, err := event.New(event.BudgetRaised{Signal: in[0].ID, Who: "wanda", Limits: task.Limits{Cost: 20_000_000}})
				if err == nil {
					_, err = l.st.TakeSignals(t.Context(), lease, []string{in[0].ID}, d)
				}
				if err := errors.Join(err, l.st.Release(t.Context(), lease)); err != nil {
					t.Fatal(err)
				}
			}
			l.pass(time.Minute)
			if err := l.Work(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.want(l.outcome(said.ID), "the budget of task "+string(first)+" is raised")
			sum, err := l.summary(t.Context(), first)
			if err != nil || sum.State != task.Working || sum.Created.Limits.Cost != 20_000_000 || len(l.signals(first)) != 1 || len(l.town.said(1)) != 0 {
				t.Errorf("%s %+v %v, waiting %q, said %q", sum.State, sum.Created.Limits, err, l.signals(first), l.town.said(1))
			}
		})
	}
}

func TestReadBudget(t *testing.T) {
	for s, want := range map[string]task.Limits{
		"usd=12.5": {Cost: 12_500_000}, "$7": {Cost: 7_000_000}, "steps=200 wall=2h TOKENS=5": {Steps: 200, Wall: 2 * time.Hour, Tokens: 5}, "": {},
	} {
		if got, err := readBudget(s); err != nil || got != want {
			t.Errorf("%q: %+v %v", s, got, err)
		}
	}
	for _, s := range []string{"20", "usd=", "usd=NaN", "usd=-1", "usd=1e300", "steps=9999999999", "wall=5", "$", "usd=1 now"} {
		if _, err := readBudget(s); task.ClassOf(err) != task.Invalid {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func FuzzReadBudget(f *testing.F) {
	f.Add("usd=20 steps=3 wall=2h $4 tokens=9")
	f.Fuzz(func(t *testing.T, s string) {
		l, err := readBudget(s)
		if err == nil && (l.Cost < 0 || l.Cost > 1e15) {
			t.Errorf("%q: %+v", s, l)
		}
	})
}

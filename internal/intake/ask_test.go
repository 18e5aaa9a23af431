package intake

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestQuestion: a question is a comment of its own, made once, that calls who asked for the task;
// the answer of somebody who may write wakes the task, nobody else's does, and words that come
// after the answer are words like any others.
func TestQuestion(t *testing.T) {
	l := newLab(t)
	l.issue(1, "text")
	l.post(l.labelled(1, "wanda"))
	say := func(who, what string) string { _, out := l.post(l.comment(1, who, what)); return out }
	l.dispatched()
	l.at(first, task.Preparing, task.Working)
	if err := l.move(t.Context(), first, event.QuestionAsked{N: 1, Question: "Round up, @rita, or down?\n/stop", Tried: "I read `price.py`.", Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.Report(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		clear(l.reported)
		l.mu.Unlock()
	}
	said := l.town.said(1)
	if len(said) != 2 || !strings.Contains(said[0], "waits for an answer") || !strings.HasPrefix(said[1], "@wanda, Daybreak has a question") || !strings.Contains(said[1], "\n    Round up, @rita, or down?\n    /stop\n") {
		t.Fatalf("%q", said)
	}
	l.want(say("rita", "up"), `ignored: "rita" may not write`)
	if len(l.again) != 0 {
		t.Fatal("a run was ordered")
	}
	l.want(say("wanda", "up, please"), "the question of task "+string(first)+" is answered")
	if got := l.signals(first); !slices.Equal(got, []string{"answer wanda: up, please"}) || len(l.again) != 1 {
		t.Fatalf("%q, ordered %v", got, l.again)
	}
	if err := l.move(t.Context(), first, event.QuestionAnswered{N: 1, Who: "wanda"}); err != nil {
		t.Fatal(err)
	}
	l.want(say("wanda", "and quickly"), "task "+string(first)+" is steered")
	if got := l.signals(first); len(got) != 2 || got[1] != "steer wanda: and quickly" || len(l.again) != 1 {
		t.Errorf("%q, ordered %v", got, l.again)
	}
}

// TestAnOldTaskAsksToo: people hear of a question however many tasks are newer.
func TestAnOldTaskAsksToo(t *testing.T) {
	l := newLab(t)
	for n := range 2 {
		l.issue(n+1, "text")
		l.post(l.labelled(n+1, "wanda"))
		l.pass(time.Second)
	}
	l.dispatched()
	l.at(first, task.Preparing, task.Working)
	if err := l.move(t.Context(), first, event.QuestionAsked{N: 1, Question: "Up?", Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	l.st.fewer = 1
	if err := l.Report(t.Context()); err != nil {
		t.Fatal(err)
	}
	if said := l.town.said(1); len(said) != 2 || !strings.Contains(said[1], "has a question") {
		t.Errorf("%q", said)
	}
	if said := l.town.said(2); len(said) != 1 {
		t.Errorf("%q", said)
	}
}

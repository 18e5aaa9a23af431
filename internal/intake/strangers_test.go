package intake

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestPullRequestOfAStranger: anybody may open a pull request from a fork whose branch has the name
// of a task's. What is said there and what becomes of it is nothing to the task.
func TestPullRequestOfAStranger(t *testing.T) {
	for name, states := range map[string][]task.State{
		"before there is one of ours": {task.Preparing, task.Working},
		"in review":                   {task.Preparing, task.Working, task.Verifying, task.Publishing, task.InReview},
		"at a follow-up":              {task.Preparing, task.Working, task.Verifying, task.Publishing, task.InReview, task.Working},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.issue(1, "text")
			l.post(l.labelled(1, "wanda"))
			l.at(first, states...)
			theirs := forge.Pull{Number: 9, Branch: branchOf(first), State: forge.PullClosed}
			l.town.pulls[7] = &forge.PullRequest{Number: 7, Branch: branchOf(first), State: forge.PullOpen}
			l.town.pulls[9] = &forge.PullRequest{Number: 9, Branch: branchOf(first), State: forge.PullClosed, Ended: l.now}
			said := l.comment(9, "wanda", "do something else")
			named := l.comment(9, "wanda", "and something else")
			named.Pull = &theirs // as forges that say the branch do
			l.town.lines = []forge.Comment{{ID: "1", Author: user("wanda"), Body: "not like this", Path: "a.go", Line: 3, Created: l.now}}
			for _, d := range []forge.Delivery{
				l.delivery(forge.Delivery{Kind: forge.PullEnded, Sender: user("mallory"), Pull: &theirs}), said, named,
				l.delivery(forge.Delivery{Kind: forge.Reviewed, Sender: user("wanda"), Verdict: "changes_requested", Comment: &forge.Comment{Author: user("wanda"), Body: "no"}, Pull: &theirs}),
			} {
				_, out := l.post(d)
				l.want(out, "ignored: ")
			}
			row, err := l.st.Task(t.Context(), first)
			if got := l.signals(first); err != nil || row.State != states[len(states)-1] || len(got) != 0 || len(l.again) != 0 {
				t.Errorf("%s %v, words %q, ordered %v", row.State, err, got, l.again)
			}
		})
	}
}

// TestWordsOfBefore: a comment that is heard of late is no answer to a question and no approval of a
// change that came after it.
func TestWordsOfBefore(t *testing.T) {
	l := newLab(t)
	l.issue(1, "text")
	l.post(l.labelled(1, "wanda"))
	l.at(first, task.Preparing, task.Working)
	l.pass(time.Minute)
	early := l.comment(1, "wanda", "mind the rounding")
	l.pass(time.Hour)
	asked := func(n int) {
		t.Helper()
		if err := l.move(t.Context(), first, event.QuestionAsked{N: n, Question: "Up?", Until: l.now.Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	asked(1)
	_, out := l.post(early)
	l.want(out, "task "+string(first)+" is steered")
	if got := l.signals(first); !slices.Equal(got, []string{"steer wanda: mind the rounding"}) || len(l.again) != 0 {
		t.Fatalf("%q, ordered %v", got, l.again)
	}
	_, out = l.post(l.comment(1, "wanda", "up")) // within the second: forges tell no finer time
	l.want(out, "the question of task "+string(first)+" is answered")
	if err := l.move(t.Context(), first, event.QuestionAnswered{N: 1, Who: "wanda"}); err != nil {
		t.Fatal(err)
	}

	l.at(first, task.Verifying, task.Publishing)
	l.pass(time.Minute)
	approval := l.comment(1, "wanda", "/approve")
	l.pass(time.Hour)
	if err := l.move(t.Context(), first, event.PublicationHeld{Tree: "cafe", Files: 2}); err != nil {
		t.Fatal(err)
	}
	_, out = l.post(approval)
	l.want(out, "ignored: it was written before the change that waits")
	if got := l.signals(first); slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "approve") }) {
		t.Fatalf("%q", got)
	}
	l.pass(time.Minute)
	_, out = l.post(l.comment(1, "wanda", "/approve"))
	l.want(out, "the change of task "+string(first)+" is approved")
}

// TestRetryIsOfTheTextThatWasThere: the button asks for the text of the moment it was pressed at, not
// of the one when that is acted upon.
func TestRetryIsOfTheTextThatWasThere(t *testing.T) {
	l := newLab(t)
	i := l.issue(1, "text")
	l.post(l.labelled(1, "wanda"))
	l.at(first, task.Failed)
	l.pass(time.Hour)
	l.town.trouble = &task.Error{Class: task.Transient, Msg: "away"}
	d := l.delivery(forge.Delivery{Kind: forge.RetryPressed, Sender: user("wanda"), Task: string(first)})
	d.At = time.Time{} // no forge says it
	_, out := l.post(d)
	if !strings.HasPrefix(out, "postponed") {
		t.Fatal(out)
	}
	l.pass(time.Minute)
	i.Body, i.Updated, l.town.trouble = "something else", l.now, nil
	l.pass(time.Minute)
	if err := l.Work(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.want(l.outcome(d.ID), "refused: This issue changed after it was asked for")
	if len(l.made) != 1 {
		t.Errorf("%+v", l.made)
	}
}

// TestTroubleTakesNoAllowance: a forge that does not answer while a task is made costs nobody the
// tasks of an hour.
func TestTroubleTakesNoAllowance(t *testing.T) {
	l := newLab(t)
	l.cfg.Rates = Rates{Author: 1}
	l.issue(1, "text")
	d := l.labelled(1, "wanda")
	l.town.mute = &task.Error{Class: task.Transient, Msg: "away"}
	if _, out := l.post(d); !strings.HasPrefix(out, "postponed") {
		t.Fatal(out)
	}
	l.town.mute = nil
	l.pass(10 * time.Second)
	if err := l.Work(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.want(l.outcome(d.ID), "task "+string(first))
}

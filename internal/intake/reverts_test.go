package intake

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestReverts: the poller finds what a later commit takes back, once, and asks for it at a
// polite rate.
func TestReverts(t *testing.T) {
	l := newLab(t)
	l.issue(1, "text")
	l.post(l.labelled(1, "wanda"))
	l.at(first, task.Preparing, task.Working, task.Verifying, task.Publishing, task.InReview)
	merge := strings.Repeat("b", 40)
	l.town.pulls[7] = &forge.PullRequest{Number: 7, Branch: branchOf(first), State: forge.PullMerged, MergedBy: user("olga"), MergeCommit: merge, Ended: l.now}
	var landed []Landed
	asked := 0
	l.cfg.Landed = func(_ context.Context, repo, branch string, since time.Time) ([]Landed, error) {
		if asked++; repo != repoURL || branch != "main" || since.After(l.now) {
			t.Errorf("asked for %s %s %s", repo, branch, since)
		}
		return landed, nil
	}
	l.poll() // the merge
	if sum, err := l.summary(t.Context(), first); err != nil || sum.State != task.Merged {
		t.Fatalf("%s %v", sum.State, err)
	}
	l.pass(2 * time.Hour)
	landed = []Landed{{ID: merge, At: l.now.Add(-2 * time.Hour), Message: "Merge #7\n\nThis reverts commit " + merge}, {ID: strings.Repeat("d", 40), At: l.now.Add(RevertWindow), Message: "Reverts #7"}}
	l.poll()
	if sum, err := l.summary(t.Context(), first); err != nil || sum.Reverted != nil || asked == 0 {
		t.Fatalf("%+v %v, asked %d", sum.Reverted, err, asked)
	}
	landed = append(landed, Landed{ID: strings.Repeat("c", 40), By: "olga", At: l.now, Message: "Revert \"Fix\"\n\nThis reverts commit " + merge[:12] + "."})
	before := asked
	l.pass(time.Minute)
	l.poll()
	if asked != before {
		t.Error("the branch was looked at again within the hour")
	}
	l.pass(2 * time.Hour)
	l.poll()
	l.pass(2 * time.Hour)
	l.poll()
	sum, err := l.summary(t.Context(), first)
	if err != nil || sum.Reverted == nil || sum.Reverted.Commit != strings.Repeat("c", 40) || sum.Reverted.By != "olga" || sum.State != task.Merged {
		t.Fatalf("%+v %v", sum.Reverted, err)
	}
	storetest.Log(t, l.st, first)
	n := 0
	events, err := l.st.Events(t.Context(), first, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Kind == (event.PullRequestReverted{}).EventKind() {
			n++
		}
	}
	if n != 1 {
		t.Errorf("recorded %d times", n)
	}
}

// TestRevertWords: what git and the forges write, and what only looks like it.
func TestRevertWords(t *testing.T) {
	merge, head := strings.Repeat("ab12", 10), strings.Repeat("cd34", 10)
	for message, want := range map[string]bool{
		"Revert \"Fix\"\n\nThis reverts commit " + merge + ".":                         true,
		"Revert\n\nThis reverts commit " + head + ", reversing\nchanges made to x.":    true,
		"Revert \"Fix (#7)\" (#9)\n\nReverts shop/cart#7":                              true,
		"Revert \"Fix\" (#9)\n\nReverts #7":                                            true,
		"Revert \"Fix\"\n\nThis reverts merge request shop/cart!7":                     true,
		"Reverts other/cart#7":                                                         false,
		"Reverts #77":                                                                  false,
		"Fix #7":                                                                       false,
		"This reverts commit " + strings.Repeat("ef56", 10):                            false,
		"Revert \"Revert\"\n\nThis reverts commit " + strings.Repeat("9", 40) + " #7.": false,
		"": false,
	} {
		if got := reverts(message, "shop/cart", 7, merge, head); got != want {
			t.Errorf("%q: %v, want %v", message, got, want)
		}
	}
	if reverts("This reverts commit abcdefa", "shop/cart", 0, "", "") {
		t.Error("no commit is known")
	}
}

// TestPushIsRecorded: a person's push to the branch under review is in the record, once, and a
// deletion or a push of our own is not.
func TestPushIsRecorded(t *testing.T) {
	l := newLab(t)
	l.issue(1, "text")
	l.post(l.labelled(1, "wanda"))
	l.at(first, task.Preparing, task.Working, task.Verifying, task.Publishing, task.InReview)
	push := func(who, after string) string {
		_, out := l.post(l.delivery(forge.Delivery{Kind: forge.Pushed, Sender: user(who), Branch: branchOf(first), After: after}))
		return out
	}
	theirs := strings.Repeat("e", 40)
	l.want(push("wanda", strings.Repeat("0", 40)), "ignored: the branch was removed")
	l.want(push("bot", theirs), "ignored: our own")
	l.want(push("wanda", strings.Repeat("a", 40)), "ignored: known")
	l.want(push("wanda", theirs), "wanda pushed to the branch of task")
	l.want(push("wanda", theirs), "ignored: known")
	sum, err := l.summary(t.Context(), first)
	if err != nil || sum.Pushed == nil || sum.Pushed.By != "wanda" || sum.Pushed.Head != theirs {
		t.Errorf("%+v %v", sum.Pushed, err)
	}
	storetest.Log(t, l.st, first)
}

// TestMergedWhileAtWork: a merge in the middle of a follow-up stops it and is recorded as the
// outcome once that has ended.
func TestMergedWhileAtWork(t *testing.T) {
	l := newLab(t)
	l.issue(1, "text")
	l.post(l.labelled(1, "wanda"))
	l.at(first, task.Preparing, task.Working, task.Verifying, task.Publishing, task.InReview, task.Working)
	l.town.pulls[7] = &forge.PullRequest{Number: 7, Branch: branchOf(first), State: forge.PullMerged, MergedBy: user("olga"), MergeCommit: strings.Repeat("b", 40), Ended: l.now}
	told := l.delivery(forge.Delivery{Kind: forge.PullEnded, Sender: user("olga"), Pull: &forge.Pull{Number: 7, Branch: branchOf(first), State: forge.PullMerged}})
	_, out := l.post(told)
	if !strings.HasPrefix(out, "postponed") || !strings.Contains(out, "is told to stop") {
		t.Fatal(out)
	}
	if got := l.signals(first); len(got) != 1 || got[0] != "stop olga: the pull request was merged" {
		t.Fatalf("%q", got)
	}
	l.at(first, task.Stopped)
	l.pass(time.Hour)
	if err := l.Work(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.want(l.outcome(told.ID), "task "+string(first)+" is over (stopped); its pull request was merged")
	sum, err := l.summary(t.Context(), first)
	if err != nil || sum.State != task.Stopped || sum.Ended == nil || !sum.Ended.Merged || sum.Ended.By != "olga" {
		t.Errorf("%s %+v %v", sum.State, sum.Ended, err)
	}
	again := told
	again.ID = "again"
	_, out = l.post(again)
	l.want(out, "ignored: task")
}

// TestPollerFindsAPush: a push that no webhook told is in the record, once.
func TestPollerFindsAPush(t *testing.T) {
	l := newLab(t)
	l.issue(1, "text")
	l.post(l.labelled(1, "wanda"))
	l.at(first, task.Preparing, task.Working, task.Verifying, task.Publishing, task.InReview)
	l.town.pulls[7] = &forge.PullRequest{Number: 7, Branch: branchOf(first), State: forge.PullOpen, Head: strings.Repeat("a", 40)}
	l.poll()
	if sum, err := l.summary(t.Context(), first); err != nil || sum.Pushed != nil {
		t.Fatalf("our own commit: %+v %v", sum.Pushed, err)
	}
	l.town.pulls[7].Head = strings.Repeat("f", 40)
	l.poll()
	l.poll()
	sum, err := l.summary(t.Context(), first)
	if err != nil || sum.Pushed == nil || sum.Pushed.Head != strings.Repeat("f", 40) || sum.Pushed.By != "" {
		t.Errorf("%+v %v", sum.Pushed, err)
	}
}

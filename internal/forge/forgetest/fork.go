package forgetest

import (
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// pushed waits while a fork is being made.
func pushed(t *testing.T, h forge.Host, p forge.Push) (found bool, err error) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; <-time.After(50 * time.Millisecond) {
		if found, err = h.Push(t.Context(), p); task.ClassOf(err) != task.Transient || time.Now().After(end) {
			return found, err
		}
	}
}

func forked(t *testing.T, f HostFixture) {
	k := f.Forked(t)
	one, two := f.Commit(t, "one"), f.Commit(t, "two")
	for i, push := range []forge.Push{f.push(one, ""), f.push(one, ""), f.push(two, one)} {
		if found, err := pushed(t, k.Host, push); err != nil || found != (i == 1) {
			t.Fatalf("push %d: found %v, %v", i, found, err)
		}
		if at := k.Head(t, branch); at != push.Commit {
			t.Fatalf("push %d: the fork's branch is at %q", i, at)
		}
	}
	if at := f.Head(t, branch); at != "" {
		t.Errorf("the repository itself has the branch, at %s", at)
	}
	home, err := k.Host.Home(t.Context(), f.Repo, branch)
	if err != nil || !strings.Contains(home, "/"+k.Owner+"/") {
		t.Fatalf("%s %v", home, err)
	}
	for address, want := range map[string]bool{home: true, f.Repo: false} {
		if c, err := k.Host.Credential(t.Context(), address); err != nil || (c.Secret == k.Token) != want {
			t.Errorf("the credential for %s is the fork's: %v, %v", address, !want, err)
		}
	}
	opened, found, err := k.Host.OpenPullRequest(t.Context(), f.pullRequest(two))
	if err != nil || found || opened.Number == 0 {
		t.Fatalf("%+v %v %v", opened, found, err)
	}
	next := f.pullRequest(two)
	next.Title = "A better title"
	if again, found, err := k.Host.OpenPullRequest(t.Context(), next); err != nil || !found || again.Number != opened.Number || again.Title != next.Title {
		t.Errorf("again: %+v %v %v", again, found, err)
	}
	got, err := k.Host.FindPullRequest(t.Context(), f.Repo, branch)
	if err != nil || got == nil || got.Number != opened.Number || got.Head != two || got.Branch != branch || got.Base != f.Base || !got.Draft {
		t.Errorf("%+v %v", got, err)
	}
	if seen, err := f.Host.PullRequest(t.Context(), f.Repo, opened.Number); err != nil || seen.Branch != branch || seen.Head != two {
		t.Errorf("in the repository: %+v %v", seen, err)
	}
	if none, err := f.Host.FindPullRequest(t.Context(), f.Repo, branch); none != nil || err != nil {
		t.Errorf("a branch of the repository itself: %+v %v", none, err)
	}
}

func squatted(t *testing.T, f HostFixture) {
	k := f.Forked(t)
	k.Squat(t)
	_, err := pushed(t, k.Host, f.push(f.Commit(t, "one"), ""))
	wantClass(t, err, task.Conflict)
	if at := k.Head(t, branch); at != "" {
		t.Errorf("pushed to %s", at)
	}
}

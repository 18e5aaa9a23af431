// Package forgetest is the suite that every forge adapter passes.
//
// Invariant: it speaks to the adapter through the seam alone; what it must do on the forge's
// own side, as another person would, goes through the fixture.
package forgetest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Fixture is a forge with one repository.
type Fixture struct {
	Forge  forge.Forge
	Repo   string // as in a task
	Base   string // branch that pull requests are for
	GitDir string // our bare repository, which has the base commit
	// Commit makes a commit on the base in GitDir and returns its id.
	Commit func(t *testing.T, content string) string
	// Head tells where a branch is on the forge, "" for nowhere.
	Head func(t *testing.T, branch string) string
	// SomebodyPushes moves the branch on the forge to the commit, whatever it was at.
	SomebodyPushes func(t *testing.T, branch, commit string)
}

const branch = "daybreak/t_01hzzzzzzzzzzzzzzzzzzzzzzz-fix-total"

// Run runs the suite; fresh gives a new fixture each time.
func Run(t *testing.T, fresh func(t *testing.T) Fixture) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Fixture)
	}{
		{"push new, then find it there", pushNew},
		{"push under a lease", pushLease},
		{"a branch that moved is a conflict", pushConflict},
		{"only our own branches", pushForeign},
		{"base branch is never touched", pushLeavesBase},
		{"no pull request yet", findNone},
		{"open once, find by branch", openOnce},
		{"open again updates", openUpdates},
		{"two branches, two pull requests", openTwo},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, fresh(t)) })
	}
}

func (f Fixture) push(commit, old string) forge.Push {
	return forge.Push{GitDir: f.GitDir, Repo: f.Repo, Branch: branch, Commit: commit, Old: old}
}

func (f Fixture) mustPush(t *testing.T, commit, old string, wantFound bool) {
	t.Helper()
	found, err := f.Forge.Push(t.Context(), f.push(commit, old))
	if err != nil || found != wantFound {
		t.Fatalf("push: found %v, %v; want found %v", found, err, wantFound)
	}
	if at := f.Head(t, branch); at != commit {
		t.Fatalf("branch is at %q, want %s", at, commit)
	}
}

func pushNew(t *testing.T, f Fixture) {
	c := f.Commit(t, "one")
	f.mustPush(t, c, "", false)
	f.mustPush(t, c, "", true)
}

func pushLease(t *testing.T, f Fixture) {
	one, two := f.Commit(t, "one"), f.Commit(t, "two")
	f.mustPush(t, one, "", false)
	f.mustPush(t, two, one, false)
	f.mustPush(t, two, one, true)
}

func wantClass(t *testing.T, err error, class task.Class) {
	t.Helper()
	if task.ClassOf(err) != class {
		t.Fatalf("class %q, want %q: %v", task.ClassOf(err), class, err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("not one line: %v", err)
	}
}

func pushConflict(t *testing.T, f Fixture) {
	ours, theirs := f.Commit(t, "ours"), f.Commit(t, "theirs")
	f.mustPush(t, ours, "", false)
	f.SomebodyPushes(t, branch, theirs)
	next := f.Commit(t, "next")
	for _, old := range []string{"", ours, next} {
		_, err := f.Forge.Push(t.Context(), f.push(next, old))
		wantClass(t, err, task.Conflict)
	}
	if at := f.Head(t, branch); at != theirs {
		t.Errorf("a person's commit was lost: branch at %s", at)
	}
}

func pushForeign(t *testing.T, f Fixture) {
	c := f.Commit(t, "one")
	for _, name := range []string{f.Base, "refs/heads/" + branch, "other/x", "daybreak/../" + f.Base, "daybreak/x:" + f.Base, "daybreak/-x", "-x", "", "daybreak/a\nb"} {
		p := f.push(c, "")
		p.Branch = name
		_, err := f.Forge.Push(t.Context(), p)
		wantClass(t, err, task.Invalid)
	}
}

func pushLeavesBase(t *testing.T, f Fixture) {
	before := f.Head(t, f.Base)
	f.mustPush(t, f.Commit(t, "one"), "", false)
	if after := f.Head(t, f.Base); after != before || after == "" {
		t.Errorf("%s went from %q to %q", f.Base, before, after)
	}
}

func findNone(t *testing.T, f Fixture) {
	f.mustPush(t, f.Commit(t, "one"), "", false)
	pr, err := f.Forge.FindPullRequest(t.Context(), f.Repo, branch)
	if pr != nil || err != nil {
		t.Errorf("%+v %v", pr, err)
	}
}

func (f Fixture) pullRequest(head string) forge.PullRequest {
	return forge.PullRequest{
		Task: "t_1", Repo: f.Repo, Base: f.Base, Branch: branch, Head: head, Title: "Fix the total",
		Body: "What was wrong\n\n```\nx\n```\n", Draft: true, Files: map[string][]byte{"evidence.json": []byte("{}\n")},
	}
}

func openOnce(t *testing.T, f Fixture) {
	c := f.Commit(t, "one")
	f.mustPush(t, c, "", false)
	want := f.pullRequest(c)
	opened, found, err := f.Forge.OpenPullRequest(t.Context(), want)
	if err != nil || found || opened.URL == "" {
		t.Fatalf("%+v %v %v", opened, found, err)
	}
	got, err := f.Forge.FindPullRequest(t.Context(), f.Repo, branch)
	if err != nil || got == nil {
		t.Fatalf("%+v %v", got, err)
	}
	want.URL, want.Files, got.Files = opened.URL, nil, nil // a forge need not give documents back, nor what only we know
	want.Number, want.State, got.Task = opened.Number, opened.State, want.Task
	got.Body = strings.TrimRight(got.Body, "\n") + "\n"
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Error(diff)
	}
}

func openUpdates(t *testing.T, f Fixture) {
	one, two := f.Commit(t, "one"), f.Commit(t, "two")
	f.mustPush(t, one, "", false)
	first, _, err := f.Forge.OpenPullRequest(t.Context(), f.pullRequest(one))
	if err != nil {
		t.Fatal(err)
	}
	if again, found, err := f.Forge.OpenPullRequest(t.Context(), f.pullRequest(one)); err != nil || !found || again.URL != first.URL {
		t.Errorf("again: %+v %v %v", again, found, err)
	}
	f.mustPush(t, two, one, false)
	next := f.pullRequest(two)
	next.Title, next.Body, next.Files = "A better title", "new body\n", map[string][]byte{"other.json": []byte("1")}
	if again, found, err := f.Forge.OpenPullRequest(t.Context(), next); err != nil || !found || again.URL != first.URL {
		t.Errorf("update: %+v %v %v", again, found, err)
	}
	got, err := f.Forge.FindPullRequest(t.Context(), f.Repo, branch)
	if err != nil || got == nil || got.Title != next.Title || got.Body != next.Body || got.Head != two {
		t.Errorf("%+v %v", got, err)
	}
}

func openTwo(t *testing.T, f Fixture) {
	c := f.Commit(t, "one")
	f.mustPush(t, c, "", false)
	p := f.push(c, "")
	p.Branch = branch + "-2"
	if _, err := f.Forge.Push(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	one, _, err1 := f.Forge.OpenPullRequest(t.Context(), f.pullRequest(c))
	pr := f.pullRequest(c)
	pr.Branch = p.Branch
	two, found, err2 := f.Forge.OpenPullRequest(t.Context(), pr)
	if err1 != nil || err2 != nil || found || one.URL == two.URL {
		t.Errorf("%+v %+v %v %v %v", one, two, found, err1, err2)
	}
}

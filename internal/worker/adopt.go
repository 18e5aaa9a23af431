package worker

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// WhyPushed is why the files are kept with which such a follow-up begins.
const WhyPushed = "pushed by people"

// adopt lets a follow-up begin with what people pushed to the branch since: their files are in the
// agent's sandbox, and its commit goes on top of theirs. Where what they pushed cannot be told from
// what happened on the target branch, they are asked, and the error is [ErrParked].
func (r *run) adopt(ctx context.Context) error {
	sum := r.j.Summary()
	pr := sum.PullRequest
	if pr == nil || sum.State != task.Working || sum.Submitted != nil {
		return nil
	}
	if r.cfg.Again != nil {
		return r.adoptAgain(ctx, sum)
	}
	home, err := r.cfg.Forge.Home(ctx, sum.Created.Repo, pr.Branch)
	if err != nil {
		return r.unlessLater(ctx, err)
	}
	head, err := r.cfg.Git.RemoteBranch(ctx, home, pr.Branch)
	if err != nil || head == "" || head == pr.Head { // the push will say what is wrong with a branch that is gone
		return r.unlessLater(ctx, err)
	}
	if head, err = r.cfg.Git.FetchCommit(ctx, r.snap.GitDir, home, pr.Branch); err != nil {
		return r.unlessLater(ctx, err)
	}
	if err := r.reviewed(ctx, sum); err != nil {
		return r.unlessLater(ctx, err)
	}
	base, paths, err := r.standsOn(ctx, sum, head)
	if err == nil && base == "" {
		return r.askAboutPush(ctx, sum, head)
	}
	if err != nil {
		return err
	}
	files, err := prover.Changes(ctx, r.cfg.Git, r.snap.GitDir, base, head)
	if err != nil {
		return err
	}
	saved, err := r.workspace(ctx, base, WhyPushed, files)
	if err != nil {
		return err
	}
	record := []event.Payload{event.BranchAdopted{From: pr.Head, Head: head, Base: base, Paths: paths}}
	if base != sum.Created.Base {
		record = append(record, event.Rebased{Target: sum.Created.Target, From: sum.Created.Base, To: base, Round: sum.Rebases + 1})
	}
	if _, err := r.j.Append(ctx, append(record, saved)...); err != nil {
		return err
	}
	if base != sum.Created.Base {
		return r.prepare(ctx)
	}
	return nil
}

// adoptAgain makes sure of what people pushed at that time, as the record has it.
func (r *run) adoptAgain(ctx context.Context, sum event.Summary) error {
	if sum.Adopted == nil {
		return nil
	}
	for _, commit := range []string{sum.Adopted.From, sum.Adopted.Head} {
		if _, err := r.cfg.Git.Resolve(ctx, r.snap.GitDir, commit); err == nil {
			continue
		}
		if _, err := r.cfg.Git.FetchCommit(ctx, r.snap.GitDir, r.source(sum.Created.Repo), commit); err != nil {
			return &task.Error{Class: task.Invalid, Msg: "commit " + short(commit) + ", on which the follow-up stands, is not in the repository", Fix: "name a clone that has the branch with --repo", Err: err}
		}
	}
	return nil
}

// askAboutPush asks people to sort out their branch. When all questions are asked the follow-up goes
// on beside it, and its push gives way to theirs.
func (r *run) askAboutPush(ctx context.Context, sum event.Summary, head string) error {
	n := 1
	if sum.Asked != nil {
		n = sum.Asked.N + 1
	}
	if n > r.cfg.Questions.Most {
		return nil
	}
	q := fmt.Sprintf("What was pushed to this branch up to %s cannot be told from what changed on %s meanwhile. Please merge the tip of %s into the branch, or take your commits off it; then answer here, and I go on from what is there.",
		short(head), sum.Created.Target, sum.Created.Target)
	if _, err := r.j.Append(ctx, r.question(n, "", q, "I compared the files of the branch, of its last commit of mine, and of "+sum.Created.Target+".")); err != nil {
		return err
	}
	return ErrParked
}

// standsOn finds the base of what people pushed, without a history to read: the tip of the target
// branch if all of it is in their tree, the task's base if nothing that they changed was changed on
// the target branch as well; else "". paths are what they changed.
func (r *run) standsOn(ctx context.Context, sum event.Summary, head string) (base string, paths []string, err error) {
	names := func(a, b string) (out []string, err error) {
		ds, err := r.cfg.Git.ChangedPaths(ctx, r.snap.GitDir, a, b)
		for _, d := range ds {
			out = append(out, d.Path)
		}
		return out, err
	}
	if paths, err = names(sum.PullRequest.Head, head); err != nil || sum.Created.Target == "" {
		return sum.Created.Base, paths, err
	}
	tip, _, err := r.cfg.Snapshots.Resolve(ctx, sum.Created.Repo, sum.Created.Target)
	if err != nil {
		return sum.Created.Base, paths, r.unlessLater(ctx, err)
	}
	merged, conflicts, err := r.cfg.Git.MergeTrees(ctx, r.snap.GitDir, sum.Created.Base, tip, head)
	if err != nil {
		return "", paths, err
	}
	theirs, err := r.cfg.Git.TreeID(ctx, r.snap.GitDir, head)
	if err != nil {
		return "", paths, err
	}
	if len(conflicts) == 0 && merged == theirs {
		return tip, paths, nil
	}
	moved, err := names(sum.Created.Base, tip)
	if err != nil || slices.ContainsFunc(paths, func(p string) bool { return slices.Contains(moved, p) }) {
		return "", paths, err
	}
	return sum.Created.Base, paths, nil
}

// byPeople reports whether a file is as people pushed it to the branch: theirs to decide, whatever
// its path.
func (r *run) byPeople(ctx context.Context, f git.Change) (bool, error) {
	a := r.j.Summary().Adopted
	if a == nil || !slices.Contains(a.Paths, f.Path) {
		return false, nil
	}
	content, mode, err := r.cfg.Git.File(ctx, r.snap.GitDir, a.Head, f.Path, int64(len(f.Content)))
	switch task.ClassOf(err) {
	case "":
		return !f.Deleted && mode == f.Mode && bytes.Equal(content, f.Content), nil
	case task.NotFound:
		return f.Deleted, nil
	case task.Invalid: // longer
		return false, nil
	}
	return false, err
}

// adoptedText tells the agent whose work it goes on from.
func adoptedText(a *event.BranchAdopted) string {
	return "Since your last change, people pushed commits of their own to the branch. The checkout has them; they changed: " + strings.Join(quoted(a.Paths), ", ") +
		". Read these files again before you edit them, and keep what people did unless they ask you otherwise."
}

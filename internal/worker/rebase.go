package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// maxRebases is how often one publication follows its target branch: a branch that moves faster
// than a verification takes is a reviewer's to catch up with.
const maxRebases = 3

// rebase puts a verified change on the tip of a target branch that has moved, and has it verified
// there, until the branch stands still or nothing can be proven on it. What could be proven last
// is what is published.
func (r *run) rebase(ctx context.Context) error {
	for {
		began, err := r.moveBase(ctx)
		if err != nil || !began {
			return err
		}
		if err := r.proveAgain(ctx); err != nil {
			return err
		}
	}
}

// moveBase records that the change is put on the target's tip, if that has moved, the change merges
// into it, and nobody has seen the change yet: what was pushed, or what a person was asked to
// approve, stays what it is. The merge is git's plumbing on trees of our own repository.
func (r *run) moveBase(ctx context.Context) (began bool, err error) {
	sum := r.j.Summary()
	if r.cfg.Rebase != config.RebaseVerify || sum.Created.Target == "" || sum.Moved != nil || sum.Undone != nil || sum.Rebases >= maxRebases ||
		sum.Held != nil && sum.Held.Tree == sum.Exported.Tree || pushing(sum) {
		return false, nil
	}
	head, _, err := r.cfg.Snapshots.Resolve(ctx, sum.Created.Repo, sum.Created.Target)
	if err != nil || head == r.snap.Base {
		return false, r.unlessLater(ctx, err)
	}
	files, err := r.savedWorkspace(ctx)
	if err != nil {
		return false, err
	}
	tree, err := r.cfg.Git.BuildTree(ctx, r.snap.GitDir, r.snap.Base, files)
	if err != nil {
		return false, err
	}
	merged, conflicts, err := r.cfg.Git.MergeTrees(ctx, r.snap.GitDir, r.snap.Base, head, tree)
	if err != nil || len(conflicts) > 0 {
		return false, r.unlessLater(ctx, err)
	}
	changes, err := prover.Changes(ctx, r.cfg.Git, r.snap.GitDir, head, merged)
	if err != nil {
		return false, r.unlessLater(ctx, err)
	}
	saved, err := r.workspace(ctx, head, "rebase", changes)
	if err != nil {
		return false, err
	}
	reason := fmt.Sprintf("the target branch %s moved to %s", sum.Created.Target, short(head))
	return true, r.j.move(ctx, task.Verifying, reason, event.Rebased{
		Target: sum.Created.Target, From: r.snap.Base, To: head, Round: sum.Rebases + 1,
	}, saved)
}

// unlessLater passes on what another try may put right. Anything else leaves the change where it
// was proven, and [run.compareTarget] says what is in the way.
func (r *run) unlessLater(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil && pauses(err) {
		return err
	}
	return nil
}

// pushing reports whether a push of this very publication was begun: its commit is settled.
func pushing(sum event.Summary) bool {
	old := ""
	if sum.PullRequest != nil {
		old = sum.PullRequest.Head
	}
	for key, e := range sum.Effects {
		var p struct{ Old string }
		if strings.HasPrefix(key, "push:") && e.Intended != nil && json.Unmarshal(e.Intended.Args, &p) == nil && p.Old == old {
			return true
		}
	}
	return false
}

// proveAgain verifies the rebased change on its new base by the whole protocol: dependencies,
// baseline and verdict are those of the new base. Afterwards the task is publishing, with the new
// verdict or, when there is none that is accepted, with the one before.
func (r *run) proveAgain(ctx context.Context) error {
	v, millis, err := r.verdictThere(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil && pauses(err) {
		return err
	}
	if err != nil {
		return r.undo(ctx, task.VerificationFail, err.Error())
	}
	doc, err := json.Marshal(v)
	if err != nil {
		return err
	}
	text, err := r.j.Text(ctx, string(doc))
	if err != nil {
		return err
	}
	done := event.VerificationFinished{Attempt: r.j.Summary().Before.Verification.Attempt, Kind: v.Kind, Reason: v.Reason, Document: text, Millis: millis}
	if !v.Kind.Accepted() {
		return r.undo(ctx, v.Kind, v.Reason, done)
	}
	return r.j.move(ctx, task.Publishing, "verified again on "+short(r.snap.Base), done)
}

// verdictThere is what verification says of the change on the new base.
func (r *run) verdictThere(ctx context.Context) (v task.Verdict, millis int64, err error) {
	if err := r.prepare(ctx); err != nil {
		return v, 0, err
	}
	begin := r.cfg.Now()
	files, err := r.savedWorkspace(ctx)
	if err != nil {
		return v, 0, err
	}
	c, err := r.sort(ctx, change{}, files)
	if err != nil {
		return v, 0, err
	}
	if err := r.recordFindings(ctx, c); err != nil {
		return v, 0, err
	}
	if v, refused := r.refusedUnseen(c); refused {
		return v, r.since(begin), nil
	}
	tree, _, err := r.build(ctx, c)
	if err != nil {
		return v, 0, err
	}
	r.progress("verify", "the target branch moved: verifying again on "+short(r.snap.Base))
	v, err = r.prover().Verify(ctx, r.set.repo, r.job(c.allowed, tree, r.j.Summary().Submitted.Tests))
	v.Findings = slices.Concat(c.findings, v.Findings)
	return v, r.since(begin), err
}

// undo goes back to what was proven, and to its base.
func (r *run) undo(ctx context.Context, kind task.VerdictKind, reason string, with ...event.Payload) error {
	before := r.j.Summary().Before
	err := r.j.move(ctx, task.Publishing, "it stays on the base where it was proven", append(with, event.RebaseUndone{
		To: before.Base, Head: r.j.Summary().Created.Base, Kind: kind, Reason: strings.Join(strings.Fields(reason), " "),
	})...)
	if err != nil {
		return err
	}
	return r.prepare(ctx)
}

// pauses reports whether an error says nothing about the task: another run may do better.
func pauses(err error) bool {
	c := task.ClassOf(err)
	return c == task.Stale || c.Retryable() || c == task.Auth || c == task.Unavailable || ofMachine(err) || errors.Is(err, ErrDrained)
}

package worker

import (
	"context"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// compareTarget looks, once for each publication, whether the target branch has left the base, and
// whether the change still merges into it: with git's plumbing on trees of our own repository. It
// changes nothing about what is published, which was proven on the base; it is said there.
func (r *run) compareTarget(ctx context.Context) (*event.TargetMoved, error) {
	sum := r.j.Summary()
	if sum.Created.Target == "" || sum.Moved != nil || r.cfg.Rebase == config.RebaseOff {
		return sum.Moved, nil
	}
	moved := event.TargetMoved{Target: sum.Created.Target, Base: r.snap.Base}
	head, _, err := r.cfg.Snapshots.Resolve(ctx, sum.Created.Repo, sum.Created.Target)
	if err == nil && head == r.snap.Base {
		return nil, nil
	}
	if err == nil {
		moved.Head = head
		_, moved.Conflicts, err = r.cfg.Git.MergeTrees(ctx, r.snap.GitDir, r.snap.Base, head, sum.Exported.Tree)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if c := task.ClassOf(err); err != nil && c.Retryable() {
		return nil, err // nothing could be published there now either
	}
	if err != nil {
		moved.Problem = strings.Join(strings.Fields(err.Error()), " ")
	}
	_, err = r.j.Append(ctx, moved)
	return &moved, err
}

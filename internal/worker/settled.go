package worker

import (
	"context"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// settled ends a task whose end is on record already, because an earlier run died between the
// word that ended it and the change of state: a person's stop, the agent's no, an accepted
// change. The model has nothing more to say to it.
func (r *run) settled(ctx context.Context) (done bool, err error) {
	sum := r.j.Summary()
	accepted := sum.State == task.Verifying && sum.Verification != nil && sum.Verification.Kind.Accepted()
	declined := sum.State == task.Working && sum.Declined != nil
	if !accepted && !declined && sum.Stop == nil {
		return false, nil
	}
	if accepted { // its change was kept before it was verified
		for id := range sum.Sandboxes {
			if err := r.discard(ctx, id); err != nil {
				return false, err
			}
		}
		return false, r.j.move(ctx, task.Publishing, "")
	}
	if _, _, err := r.leftBehind(ctx); err != nil {
		return false, err
	}
	if sum.Stop != nil {
		return true, r.stopped(ctx)
	}
	kind := strings.ReplaceAll(sum.Declined.Kind, "_", " ") + ": "
	return true, r.finish(ctx, task.Declined, kind+strings.TrimPrefix(sum.Declined.Reason, kind))
}

package worker

import (
	"context"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// settled ends a task whose end is on record already, because an earlier run died between the
// word that ended it and the change of state: a person's stop, the agent's no, an accepted
// change. The model has nothing more to say to it.
func (r *run) settled(ctx context.Context) (done bool, err error) {
	if sum := r.j.Summary(); sum.Trying() && sum.Stop == nil {
		return false, r.endedBefore(ctx)
	}
	sum := r.j.Summary()
	declined := sum.State == task.Working && sum.Declined != nil
	if !proven(sum) && !declined && sum.Stop == nil {
		return false, nil
	}
	if proven(sum) { // its change was kept before it was verified
		for id := range sum.Sandboxes {
			if err := r.discard(ctx, id); err != nil {
				return false, err
			}
		}
		v, err := r.recordedVerdict(ctx)
		if err != nil {
			return false, err
		}
		if err := r.answer(ctx, accepted(v, change{}).Text); err != nil {
			return false, err
		}
		return false, r.j.move(ctx, task.Publishing, "")
	}
	if _, _, err := r.leftBehind(ctx); err != nil {
		return false, err
	}
	if sum.Stop != nil {
		return true, r.stopped(ctx)
	}
	if err := r.answer(ctx, recordedText); err != nil {
		return false, err
	}
	kind := strings.ReplaceAll(sum.Declined.Kind, "_", " ") + ": "
	return true, r.finish(ctx, task.Declined, kind+strings.TrimPrefix(sum.Declined.Reason, kind))
}

// answer gives the calls that the earlier run had started the result that it did not get to
// store: every call has one.
func (r *run) answer(ctx context.Context, result string) error {
	for _, c := range r.j.Summary().OpenCalls {
		t, err := r.redacted(ctx, result)
		if err != nil {
			return err
		}
		if _, err := r.j.Append(ctx, event.ToolFinished{Step: c.Step, Call: c.Call, Name: c.Name, Result: t}); err != nil {
			return err
		}
	}
	return nil
}

package worker

import (
	"context"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
)

// hold lets a change be published once a person has approved this very tree, where that is asked
// for; else it is [ErrHeld], and the run ends: nothing waits under a lease. ended says that a
// person stopped the task instead.
func (r *run) hold(ctx context.Context) (ended bool, err error) {
	sum := r.j.Summary()
	if !r.cfg.Hold && r.set.repo.Publish != config.Hold && sum.Held == nil {
		return false, nil
	}
	if sum.Stop != nil {
		return true, r.stopped(context.WithoutCancel(ctx))
	}
	tree := sum.Exported.Tree
	if sum.Held == nil || sum.Held.Tree != tree {
		if _, err := r.j.Append(ctx, event.PublicationHeld{Tree: tree, Files: len(sum.Exported.Paths)}); err != nil {
			return false, err
		}
	}
	if a := sum.Approved; a != nil && a.Tree == tree {
		return false, nil
	}
	in, err := r.j.Inbox(ctx)
	if err != nil {
		return false, err
	}
	var taken []string
	var said []event.Payload // the word for this tree last: the newest stands
	approved := false
	for _, s := range in {
		switch s.Kind {
		case store.Stop:
			return true, r.stopped(context.WithoutCancel(ctx))
		case store.Approve:
			taken = append(taken, s.ID)
			word := event.PublicationApproved{Signal: s.ID, Who: s.Who, Tree: s.Text}
			if s.Text == tree {
				said, approved = append(said, word), true
			} else {
				said = append([]event.Payload{word}, said...)
			}
		}
	}
	if taken != nil {
		if _, err := r.j.Take(ctx, taken, said...); err != nil {
			return false, err
		}
	}
	if !approved {
		return false, ErrHeld
	}
	return false, nil
}

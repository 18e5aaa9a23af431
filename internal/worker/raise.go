package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// limits are the task's budget as it is now.
func (r *run) limits() task.Limits { return r.j.Summary().Created.Limits }

// raise takes up what people said about the budget. Each word is on record, also one that asks
// for more than the operator allows.
func (r *run) raise(ctx context.Context) error {
	r.raising.Lock()
	defer r.raising.Unlock()
	in, err := r.j.Inbox(ctx)
	if err != nil {
		return err
	}
	for _, s := range in {
		if s.Kind != store.Budget {
			continue
		}
		e := event.BudgetRaised{Signal: s.ID, Who: s.Who, Limits: r.limits()}
		var asked task.Limits
		if err := json.Unmarshal([]byte(s.Text), &asked); err != nil {
			e.Refused = "it cannot be read"
		} else if l, err := e.Limits.Raise(asked, r.cfg.Most); err != nil {
			e.Refused = err.Error()
		} else {
			e.Limits = l
		}
		if _, err := r.j.Take(ctx, []string{s.ID}, e); err != nil {
			return err
		}
	}
	return nil
}

// withWall ends the context, with a cause of class Budget, when the task's time is used up: the
// time that it has then, which may have been raised.
func (r *run) withWall(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	left := func() (time.Duration, time.Duration) {
		wall := r.limits().Wall
		return wall, wall - r.j.Spent().Wall
	}
	wall, rest := left()
	if wall == 0 {
		return ctx, func() { cancel(nil) }
	}
	over := func() {
		cancel(&task.Error{Class: task.Budget, Msg: fmt.Sprintf("the wall clock budget of %s is used up", wall)})
	}
	if rest <= 0 {
		over()
		return ctx, func() {}
	}
	go func() {
		for ; ; wall, rest = left() {
			if rest <= 0 {
				over()
				return
			}
			timer := time.NewTimer(rest)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

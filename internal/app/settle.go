package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// settleEvery is how often the service looks what became of pull requests in plain repositories.
const settleEvery = 5 * time.Minute

// Settle records what people made of pull requests that are a branch of a repository on this
// machine, where nobody tells of it: merged when the branch's commit is in the history of its
// target, closed when the branch is gone without that. A squashed merge looks like the latter.
func (a *App) Settle(ctx context.Context) error {
	ts, err := a.Store.Tasks(ctx, store.Filter{States: []task.State{task.InReview}, Limit: 10_000})
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range ts {
		if t.Owner != "" {
			continue
		}
		if err := a.settle(ctx, t); err != nil {
			errs = append(errs, fmt.Errorf("task %s: %w", t.ID, err))
		}
	}
	return errors.Join(errs...)
}

func (a *App) settle(ctx context.Context, t store.Task) error {
	if _, err := a.Git.Dir(ctx, t.Repo); err != nil {
		return nil //nolint:nilerr // it is on no directory of this machine, or not there now
	}
	events, err := a.Store.Events(ctx, t.ID, 0, 0)
	if err != nil {
		return err
	}
	sum, err := event.Fold(events)
	if err != nil || sum.PullRequest == nil || sum.Created.Origin != nil || sum.Created.Target == "" {
		return err
	}
	pr := sum.PullRequest
	pulls, err := a.Forges()
	if err != nil {
		return err
	}
	if home, err := pulls.Home(ctx, t.Repo, pr.Branch); err != nil || home != t.Repo {
		return err // it could not be pushed there: a person fetches it, and what they do is not seen
	}
	end := event.PullRequestEnded{Merged: true, Commit: pr.Head, At: a.Now().UTC()}
	to, reason := task.Merged, "the branch was merged"
	common, err := a.Git.MergeBase(ctx, t.Repo, sum.Created.Target, pr.Head)
	if err != nil && task.ClassOf(err) != task.NotFound && task.ClassOf(err) != task.Invalid {
		return err
	}
	if err != nil || common != pr.Head {
		switch at, err := a.Git.RemoteBranch(ctx, t.Repo, pr.Branch); {
		case err != nil:
			return err
		case at != "":
			return nil // it waits
		}
		end.Merged, end.Commit, to, reason = false, "", task.Closed, "the branch was deleted"
	}
	var drafts []event.Draft
	for _, p := range []event.Payload{end, event.StateChanged{From: task.InReview, To: to, Reason: reason}} {
		d, err := event.New(p)
		if err != nil {
			return err
		}
		drafts = append(drafts, d)
	}
	l, err := a.Store.Acquire(ctx, t.ID, Owner()+":settle", 30*time.Second, nil)
	if task.ClassOf(err) == task.Conflict {
		return nil // somebody works on it; another look comes
	}
	if err != nil {
		return err
	}
	_, err = a.Store.Append(ctx, l, drafts...)
	return errors.Join(err, a.Store.Release(context.WithoutCancel(ctx), l))
}

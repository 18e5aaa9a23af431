package app

import (
	"context"
	"errors"
	"time"

	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// collectEvery is how often a service looks whether something may go, and how often commands do.
const collectEvery = time.Hour

// Collect removes what is kept on disk beyond the operator's budget, and what nobody used for long.
// With due it does nothing when that was done within the hour.
func (a *App) Collect(ctx context.Context, due bool) ([]snapshot.Kept, error) {
	p := a.keeping(ctx)
	if due {
		p.Every = collectEvery
	}
	gone, err := a.Snapshots.Collect(ctx, p)
	if a.runtime != nil && a.Config.Cache.Unused > 0 {
		err = errors.Join(err, a.runtime.CollectTemplates(ctx, a.Now().Add(-a.Config.Cache.Unused)))
	}
	return gone, err
}

// mostFree is how much of a large disk what is kept leaves free; of a smaller one it is a twentieth.
const mostFree = 5 << 30

// keeping is what may stay on disk.
func (a *App) keeping(ctx context.Context) snapshot.Policy {
	p := snapshot.Policy{Disk: int64(a.Config.Cache.Disk), Unused: a.Config.Cache.Unused, Need: func(id task.ID) snapshot.Need { return a.need(ctx, id) }}
	if _, size, err := a.Snapshots.Room(); err == nil {
		p.Free = min(size/20, mostFree)
	}
	return p
}

// makeRoom removes what nobody uses when the disk is full.
func (a *App) makeRoom(ctx context.Context) ([]snapshot.Kept, error) {
	p := a.keeping(ctx)
	p.Full = true
	return a.Snapshots.Collect(ctx, p)
}

// Kept says what is on disk.
func (a *App) Kept(ctx context.Context) ([]snapshot.Kept, error) {
	return a.Snapshots.List(ctx, func(id task.ID) snapshot.Need { return a.need(ctx, id) })
}

// Forget removes what is kept of a repository, of one commit or ("") of all.
func (a *App) Forget(ctx context.Context, repo, commit string) ([]snapshot.Kept, error) {
	return a.Snapshots.Forget(ctx, repo, commit, func(id task.ID) snapshot.Need { return a.need(ctx, id) })
}

// Tidy is Collect when it is due, at the end of a command: what goes wrong is for the log.
func (a *App) Tidy(ctx context.Context) {
	if _, err := a.Collect(ctx, true); err != nil {
		a.opts.Logger.WarnContext(ctx, "what is kept on disk could not be collected", "error", err)
	}
}

// need is what a task may still need: one whose record cannot be read may need everything.
func (a *App) need(ctx context.Context, id task.ID) snapshot.Need {
	t, err := a.Store.Task(ctx, id)
	switch {
	case task.ClassOf(err) == task.NotFound:
		return snapshot.Nothing
	case err != nil || !t.State.Done():
		return snapshot.All
	case t.State == task.InReview || t.State == task.Exhausted: // a reviewer or a raised budget may call it back
		return snapshot.Base
	}
	return snapshot.Nothing
}

// Upkeep collects now and every hour until ctx ends.
func (a *App) Upkeep(ctx context.Context) {
	look := time.NewTicker(collectEvery)
	defer look.Stop()
	for {
		if _, err := a.Collect(ctx, false); err != nil && ctx.Err() == nil {
			a.opts.Logger.WarnContext(ctx, "what is kept on disk could not be collected", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

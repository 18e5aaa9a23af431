package worker

import (
	"context"
	"fmt"
	"slices"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// index sees to it that the agent's searches are answered from an index, where the tree is large
// enough for one to help. What takes seconds is waited for; an index that takes longer is built
// while the agent works with ripgrep, for the tasks that follow.
func (r *run) index(ctx context.Context) error {
	if r.indexed || r.snap.Bytes < prover.IndexFrom {
		r.indexed = false // what is not there yet may be by the next attempt
		return nil
	}
	begin := r.cfg.Now()
	snap, done, err := r.prover().Indexed(r.snap)
	if err != nil {
		return err
	}
	if !done.Cached && r.snap.Bytes > prover.IndexAtOnce {
		if done.Trouble != "" {
			if err := r.recordIndex(ctx, event.IndexReady{Trouble: done.Trouble, Millis: r.since(begin)}); err != nil {
				return err
			}
		}
		r.indexLater(ctx)
		return nil
	}
	if !done.Cached {
		r.progress("prepare", fmt.Sprintf("indexing %d files for searches", r.snap.Files))
		if snap, done, err = r.prover().Index(ctx, r.snap); err != nil {
			return err
		}
	}
	r.snap = snap
	return r.recordIndex(ctx, indexReady(done, r.since(begin)))
}

func indexReady(d prover.IndexDone, ms int64) event.IndexReady {
	return event.IndexReady{
		Cached: d.Cached, Advanced: d.Advanced, Files: d.Stats.Files, Text: d.Stats.Text, Bytes: d.Bytes,
		Symbols: d.Symbols, Slow: slices.Clone(d.Slow), Trouble: or(d.Trouble, d.Problem), Millis: ms,
	}
}

func (r *run) recordIndex(ctx context.Context, e event.IndexReady) error {
	_, err := r.j.Append(ctx, e)
	return err
}

// indexLater builds the index beside the agent. It ends with the run at the latest; what it has
// by then is given up.
func (r *run) indexLater(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	p, snap, begin := r.prover(), r.snap, r.cfg.Now()
	go func() {
		defer close(ended)
		_, done, err := p.Index(ctx, snap)
		if err == nil {
			e := indexReady(done, r.since(begin))
			e.Later = true
			err = r.recordIndex(ctx, e)
		}
		if err != nil && ctx.Err() == nil && task.ClassOf(err) != task.Stale {
			r.cfg.Logger.WarnContext(ctx, "the search index was not built; the next task tries again", "error", err)
		}
	}()
	r.endIndexing = func() { cancel(); <-ended }
}

// twin makes ready, beside the agent, what the snapshot of the next commit begins with. The run
// waits for it at its end, and it gives up with ctx.
func (r *run) twin(ctx context.Context) {
	ended := make(chan struct{})
	snap, before := r.snap, r.endTwin
	go func() {
		defer close(ended)
		if before != nil {
			before()
		}
		if err := r.cfg.Snapshots.Twin(ctx, snap); err != nil && ctx.Err() == nil {
			r.cfg.Logger.WarnContext(ctx, "the snapshot of the next commit will take longer", "error", err)
		}
	}()
	r.endTwin = func() { <-ended }
}

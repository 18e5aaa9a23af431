// Package overview owns what an installation shows of itself as a whole: the fleet, and what became
// of all tasks, each as one viewer may see it. Pages and the API answer from it.
//
// Invariants: nobody learns the name of a repository that they may not read, nor a count that
// such a one is part of, but for operators; a log is folded once as long as nothing is added to
// it; a sum over tasks that the gate could not be asked about is no sum, but an error.
package overview

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/outcome"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Records is the part of a store that outcomes are folded from.
type Records interface {
	Tasks(ctx context.Context, f store.Filter) ([]store.Task, error)
	Events(ctx context.Context, id task.ID, after int64, limit int) ([]event.Event, error)
}

// Config is what a board needs. All fields are required.
type Config struct {
	Records Records
	Gate    *access.Gate
	Fleet   func(ctx context.Context) (Fleet, error) // all of it, as an operator sees it
	Streams func() int                               // that this process serves
	Now     func() time.Time
}

// Board is safe for concurrent use.
type Board struct {
	cfg Config

	mu    sync.Mutex
	known map[task.ID]known

	reading sync.Mutex // held while the fleet is read
	fleet   Fleet
	read    time.Time
}

// known is what became of a task as of an event.
type known struct {
	seq int64
	outcome.Outcome
}

// New returns a board that remembers nothing yet.
func New(cfg Config) *Board { return &Board{cfg: cfg, known: map[task.ID]known{}} }

// maxOutcomes is how many tasks are added up, newest first.
const maxOutcomes = 100_000

// Outcomes are what became of tasks, newest first.
type Outcomes struct {
	All   []outcome.Outcome
	Repos []string // of all tasks that the viewer may read, whatever was asked for
}

// Outcomes are those of the tasks that the viewer may read, made since a time, of one repository or, with
// "", of all. Its errors are the store's, and the gate's about a repository that would be in it.
func (b *Board) Outcomes(ctx context.Context, v access.Viewer, since time.Time, repo string) (Outcomes, error) {
	ts, err := b.cfg.Records.Tasks(ctx, store.Filter{Limit: maxOutcomes})
	if err != nil {
		return Outcomes{}, err
	}
	mine, trouble := b.cfg.Gate.Readable(ctx, v, ts)
	if repo != "" {
		trouble = b.cfg.Gate.MayRead(ctx, v, repo)
		if task.ClassOf(trouble) == task.NotFound {
			trouble = nil // none of it is in the sum, as if it were not there
		}
	}
	if trouble != nil {
		return Outcomes{}, trouble
	}
	out, repos := Outcomes{All: []outcome.Outcome{}}, map[string]bool{}
	for _, t := range mine {
		repos[t.Repo] = true
		if t.Created.Before(since) || repo != "" && t.Repo != repo {
			continue
		}
		o, err := b.of(ctx, t)
		if err != nil {
			return Outcomes{}, err
		}
		out.All = append(out.All, o)
	}
	out.Repos = slices.Sorted(maps.Keys(repos))
	return out, nil
}

func (b *Board) of(ctx context.Context, t store.Task) (outcome.Outcome, error) {
	b.mu.Lock()
	k, ok := b.known[t.ID]
	b.mu.Unlock()
	if ok && k.seq == t.LastSeq {
		return k.Outcome, nil
	}
	events, err := b.cfg.Records.Events(ctx, t.ID, 0, 0)
	if err != nil {
		return outcome.Outcome{}, err
	}
	out, err := outcome.Of(events)
	if err != nil {
		return outcome.Outcome{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.known) >= maxOutcomes {
		clear(b.known)
	}
	b.known[t.ID] = known{int64(len(events)), out}
	return out, nil
}

package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Priorities of a task, as its work order carries them: 1 is worked first.
const (
	FirstPriority   = 1
	DefaultPriority = 2
	LastPriority    = 4
)

// Job is the order to work on a task as it stands at one epoch. A claim raises the epoch, so
// that an order is good for one run; an order that is out of date is refused.
type Job struct {
	ID       int64 // the queue's
	Task     task.ID
	Epoch    int64
	Priority int
	After    time.Duration // not to be worked before, from now; 0: at once
}

// Queue puts work orders in and takes them out inside a transaction of the store, so that
// there is never a task without its order nor an order without its task. Tx is the engine's
// own transaction; what a method did is undone when that does not commit.
type Queue[Tx any] interface {
	Insert(ctx context.Context, tx Tx, j Job) (id int64, err error)
	Cancel(ctx context.Context, tx Tx, id int64) error // one that is gone already is no error
}

// Caps are the most tasks that run at once. 0 is no cap.
type Caps struct {
	Total  int // by all workers of the store
	Repo   int // of one repository
	Author int // of one author
}

// ErrFull is why a claim is refused while a cap is reached; the order stays good.
var ErrFull = &task.Error{Class: task.Overloaded, Msg: "as many tasks run as the caps allow"}

// Dispatched is a task of the scheduler as its supervision sees it.
type Dispatched struct {
	Task
	Job int64     // its newest order, 0: none
	Due time.Time // of that order: not to be worked before
}

// Reissued is a task that got a new order.
type Reissued struct {
	Task  task.ID
	Job   int64
	Epoch int64         // after it was raised
	Owner string        // who lost the lease, "" when nobody held it
	Late  time.Duration // how long after the lease ended, 0 when the owner was found dead
}

// Dispatch is the part of a store that the scheduler drives. Every adapter offers it beside
// [Store]. It is about tasks that were created with Dispatch set; a store that was opened
// without a queue refuses those with class task.Invalid.
//
// Leases are given, renewed and taken by one clock: the server's where there is one.
type Dispatch interface {
	// Claim turns an order into the task's lease. Class Stale: the order is out of date (the
	// task is held or has a newer one); [ErrFull]: not now.
	Claim(ctx context.Context, j Job, owner string, ttl time.Duration, c Caps) (Lease, error)
	// Handover gives the lease back and, in the same transaction, orders the next run after a
	// while, unless the task is done. Class Stale when the lease was lost.
	Handover(ctx context.Context, l Lease, after time.Duration) error
	// Reap takes the leases away that have ended, and those of owners that dead names (nil:
	// none). For each, one transaction raises the epoch, cancels the old order, puts in the next
	// and records it in the log: from then on the old owner can store nothing.
	Reap(ctx context.Context, dead func(owner string) bool) ([]Reissued, error)
	// Reissue does the same for one task that nobody holds, whatever became of its last order,
	// and makes it the scheduler's. why is recorded. Class Conflict while a lease is live,
	// Invalid when the task is done.
	Reissue(ctx context.Context, id task.ID, why string) (Reissued, error)
	// Waiting are the tasks that a claim would be given now, the fairest choice first: by
	// priority, then whose repository and author have fewer running, then by age.
	Waiting(ctx context.Context, c Caps, limit int) ([]Job, error)
	// Unfinished lists the scheduler's tasks that are not done, oldest first.
	Unfinished(ctx context.Context) ([]Dispatched, error)
}

// ReissuedDraft is the record that a task was taken from its owner or ordered again.
func ReissuedDraft(owner string, epoch int64, why string) (event.Draft, error) {
	return event.New(event.LeaseTaken{Owner: owner, Epoch: epoch, Why: why})
}

// Allow reports whether one more task may run beside those running, in all, of its
// repository, and of its author.
func (c Caps) Allow(total, repo, author int) bool {
	return (c.Total == 0 || total < c.Total) && (c.Repo == 0 || repo < c.Repo) && (c.Author == 0 || author < c.Author)
}

// Fairest chooses at most limit orders from the unfinished tasks, oldest first, that nobody
// holds: by priority, then whose repository and author have fewer running, counting those
// chosen before, then by age. None is chosen above a cap.
func Fairest(all []Dispatched, now time.Time, c Caps, limit int) []Job {
	total, repo, author := 0, map[string]int{}, map[string]int{}
	var free []Dispatched
	for _, d := range all {
		if d.Owner == "" {
			if d.Job != 0 && !d.Due.After(now) {
				free = append(free, d)
			}
			continue
		}
		total++
		repo[d.Repo]++
		author[d.Author]++
	}
	var out []Job
	for len(out) < limit {
		best := -1
		for i, d := range free {
			if !c.Allow(total, repo[d.Repo], author[d.Author]) {
				continue
			}
			if best < 0 || cmp.Or(
				cmp.Compare(d.Priority, free[best].Priority),
				cmp.Compare(repo[d.Repo], repo[free[best].Repo]),
				cmp.Compare(author[d.Author], author[free[best].Author]),
			) < 0 {
				best = i
			}
		}
		if best < 0 {
			break
		}
		d := free[best]
		free = slices.Delete(free, best, best+1)
		total++
		repo[d.Repo]++
		author[d.Author]++
		out = append(out, Job{ID: d.Job, Task: d.ID, Epoch: d.Epoch, Priority: d.Priority})
	}
	return out
}

// Package store is the seam to the database: tasks, their leases, their event logs, blobs and
// the inbox through which people steer a running task. Adapters live in store/<engine>, the
// suite that each passes in store/storetest.
//
// Invariants: an append is all or nothing and durable when it returns; events of a task are
// numbered without gaps by the store; an append under a lease whose epoch is not the current
// one is refused with class task.Stale; a signal is taken at most once; a blob's name is the
// SHA-256 of its bytes.
package store

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Task is the row kept beside a log so that tasks can be listed without reading logs. State
// is what the log folds to; an append that changes it updates the row in the same
// transaction.
type Task struct {
	ID      task.ID
	Key     string // (repository, issue, ref) fingerprint; unique among tasks that are not done
	State   task.State
	Repo    string
	Title   string
	Created time.Time
	Updated time.Time
	LastSeq int64
	Epoch   int64  // of the newest lease ever given
	Owner   string // of the live lease, "" when free
	Until   time.Time

	// What the scheduler needs to know; see [Dispatch].
	Dispatch bool   // its runs are ordered by the scheduler, not by a person at a command line
	Author   string // whom the caps count it for
	Priority int    // [FirstPriority] to [LastPriority]; 0 is [DefaultPriority]
}

// Lease is the right to append to one task.
type Lease struct {
	Task  task.ID
	Epoch int64
	Owner string
	Until time.Time
}

// What a person's word can be.
const (
	Steer   = "steer"   // Text is for the agent
	Stop    = "stop"    // Text is the reason
	Budget  = "budget"  // Text is task.Limits in JSON: new totals, 0 for those that stay
	Approve = "approve" // Text is the tree whose publication is approved
	Answer  = "answer"  // Text answers the agent's question; when there is none any more, it is for the agent
	Note    = "note"    // Text is for the agent and answers nothing
)

// Signal is a person's word waiting for the task.
type Signal struct {
	ID   string
	Task task.ID
	Kind string // [Steer], [Stop], …
	Who  string
	Text string
	At   time.Time
}

// Filter narrows a listing. Zero fields do not filter.
type Filter struct {
	States []task.State
	Repo   string
	Key    string
	Author string
	Before task.ID // only what a listing has after this task; nothing when it is not there
	Limit  int     // default 100; newest first
}

// Store is what every engine offers.
type Store interface {
	// Create stores a new task with its first events under epoch 0. When an unfinished task
	// has the same key, nothing is stored and that task is returned with created false.
	Create(ctx context.Context, t Task, first []event.Draft) (got Task, created bool, err error)
	Task(ctx context.Context, id task.ID) (Task, error) // class NotFound
	Tasks(ctx context.Context, f Filter) ([]Task, error)

	// Acquire gives a lease with the next epoch. It fails with class Conflict, naming the
	// owner, while another lease is live; dead lets the caller declare an owner dead (a
	// process of this machine that is gone), nil declares none.
	Acquire(ctx context.Context, id task.ID, owner string, ttl time.Duration, dead func(owner string) bool) (Lease, error)
	Renew(ctx context.Context, l Lease, ttl time.Duration) (Lease, error) // class Stale when lost
	Release(ctx context.Context, l Lease) error

	// Append adds events in order. A StateChanged draft must be legal from the row's state.
	Append(ctx context.Context, l Lease, drafts ...event.Draft) ([]event.Event, error)
	// Events returns records with seq > after, at most limit (0: all).
	Events(ctx context.Context, id task.ID, after int64, limit int) ([]event.Event, error)

	PutBlob(ctx context.Context, data []byte) (digest string, err error)
	Blob(ctx context.Context, digest string) ([]byte, error) // class NotFound; content is checked

	// Signal puts a person's word into the inbox; Signals lists those not taken yet, oldest
	// first; TakeSignals appends the drafts and marks the signals taken in one transaction.
	Signal(ctx context.Context, s Signal) error
	Signals(ctx context.Context, id task.ID) ([]Signal, error)
	TakeSignals(ctx context.Context, l Lease, ids []string, drafts ...event.Draft) ([]event.Event, error)

	// Watch returns a channel that has a value whenever something about the task changed since
	// the last receive: events, signals, its lease; id "" watches all tasks. Changes are merged,
	// and a wake-up may be for nothing. It ends, without being closed, with ctx.
	Watch(ctx context.Context, id task.ID) (<-chan struct{}, error)
	// Update changes one small value that all processes of the store share. change is called
	// with the value (nil: none) in a transaction that no other Update of the key overlaps; it
	// may be called again, so it must only compute.
	Update(ctx context.Context, key string, change func(old []byte) ([]byte, error)) error

	Close() error
}

// Spill returns s as an event text, storing it as a blob when it is too long to be inline or
// is not UTF-8, which JSON could not give back byte for byte.
func Spill(ctx context.Context, st Store, s string) (event.Text, error) {
	if len(s) <= event.InlineLimit && utf8.ValidString(s) {
		return event.Text{Inline: s, Bytes: len(s)}, nil
	}
	d, err := st.PutBlob(ctx, []byte(s))
	if err != nil {
		return event.Text{}, err
	}
	return event.Text{Blob: d, Bytes: len(s)}, nil
}

// Load returns the whole string of an event text.
func Load(ctx context.Context, st Store, t event.Text) (string, error) {
	if t.Blob == "" {
		return t.Inline, nil
	}
	b, err := st.Blob(ctx, t.Blob)
	return string(b), err
}

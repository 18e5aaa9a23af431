package dispatch

import (
	"context"
	"time"

	"github.com/daybreak-agent/daybreak/internal/store"
)

// Answer is what came of an order.
type Answer struct {
	Again time.Duration // not now: ask again after this long; 0: it is used up
}

// Periodic is something that one process of the store's does at a time, every so often.
type Periodic struct {
	Name  string
	Every time.Duration
	Do    func(ctx context.Context) error
}

// Setup is what an engine works with.
type Setup struct {
	Workers int // orders worked at once by this process; 0: none, but this process may do periodic work
	// Work is called for each order that is due. Its error means that nothing is known about
	// the order; it is asked about again soon.
	Work  func(ctx context.Context, j store.Job) (Answer, error)
	Every []Periodic
}

// Engine hands the orders of a store's queue to the processes that share it, each to one of
// them.
type Engine interface {
	// Start begins to hand out orders, until Stop or Kill.
	Start(ctx context.Context, s Setup) error
	// Hurry makes an order that waits for a later time due now.
	Hurry(ctx context.Context, id int64) error
	// Standing tells what became of an order.
	Standing(ctx context.Context, id int64) (Standing, error)
	// Stop takes no further order and waits for those at work, or for the end of ctx.
	Stop(ctx context.Context) error
	// Kill cancels the contexts of those at work, and waits.
	Kill(ctx context.Context) error
}

// Standing is where an order stands.
type Standing struct {
	Live  bool      // it will be worked, or is
	Taken time.Time // when a process took it up; zero: none has
}

package store

import (
	"context"
	"time"
)

// Delivery is what a forge told, kept until it was acted upon and, as proof against being told
// again, for a while after that.
type Delivery struct {
	Forge string // the name it has in the configuration
	ID    string // the forge's, the same when it is sent again
	Body  []byte // in the form of package forge
	At    time.Time
	Tries int
}

// Deliveries is the part of a store that intake keeps its mail in. Every adapter offers it
// beside [Store].
type Deliveries interface {
	// Deliver keeps one. first is false when the forge told it before, whatever became of it.
	Deliver(ctx context.Context, d Delivery) (first bool, err error)
	// Undone lists those to act upon whose time has come, oldest first. At most limit.
	Undone(ctx context.Context, limit int) ([]Delivery, error)
	// Postpone counts a try that failed and hides the delivery for a while.
	Postpone(ctx context.Context, forge, id string, after time.Duration, why string) error
	// Conclude says what came of one; it is not listed again and its body is dropped.
	Conclude(ctx context.Context, forge, id, outcome string) error
	// Forget drops those that were concluded before a time and says how many.
	Forget(ctx context.Context, before time.Time) (int, error)
}

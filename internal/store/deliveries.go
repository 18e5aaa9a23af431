package store

import (
	"context"
	"time"
)

// Delivery is what a forge told, kept until it was acted upon and, as proof against being told
// again, for a while after that.
type Delivery struct {
	Forge      string // the name it has in the configuration
	ID         string // the forge's, the same when it is sent again
	Repository string // the forge's number: what is told of one is acted upon one at a time
	Body       []byte // in the form of package forge
	At         time.Time
	Tries      int
	Claim      string // under which it is acted upon
}

// Deliveries is the part of a store that intake keeps its mail in. Every adapter offers it
// beside [Store].
type Deliveries interface {
	// Deliver keeps one. first is false when the forge told it before, whatever became of it.
	Deliver(ctx context.Context, d Delivery) (first bool, err error)
	// Undone names the forges that have something to act upon whose time has come.
	Undone(ctx context.Context) ([]string, error)
	// TakeUp gives the oldest delivery of a forge whose time has come, of a repository of which
	// nobody acts on another one, to the claim alone for ttl. ok is false when there is none. A
	// claim has a name of its own each time; one that ended, as its process did, is taken over.
	TakeUp(ctx context.Context, forge, claim string, ttl time.Duration) (d Delivery, ok bool, err error)
	// Hold lengthens a delivery's claim, or with 0 gives it up. Class Stale when it was taken over.
	Hold(ctx context.Context, d Delivery, ttl time.Duration) error
	// Postpone counts a try that failed, hides the delivery for a while and ends its claim. It does
	// nothing when that was taken over.
	Postpone(ctx context.Context, d Delivery, after time.Duration, why string) error
	// Conclude says what came of one, whoever claims it; it is not listed again and its body is
	// dropped.
	Conclude(ctx context.Context, forge, id, outcome string) error
	// Forget drops those that were concluded before a time and says how many.
	Forget(ctx context.Context, before time.Time) (int, error)
}

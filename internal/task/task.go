// Package task owns the vocabulary of a task: its identity, its states and the legal
// transitions between them, its budget, its verdict and the classes of error that decide
// retries.
//
// Invariants: the package does no I/O and imports nothing of the module; every transition a
// task makes is one of [Transitions]; a terminal state is never left, but for
// a raised budget, with which an exhausted task goes on.
package task

import (
	"fmt"
	"slices"
)

// ID names a task. It is "t_" and a lower-case ULID, so that ids sort by creation time.
type ID string

// Valid reports whether the id has the form "t_" + 26 characters of lower-case Crockford
// base32. Ids come from users, so check before one becomes part of a path or a branch name.
func (id ID) Valid() bool {
	if len(id) != 28 || id[:2] != "t_" {
		return false
	}
	for _, c := range id[2:] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// State is where a task stands. The zero value is not a state.
type State string

// The states of a task, in the order in which a task that goes well passes through them,
// followed by the other ends.
const (
	Queued     State = "queued"     // created, not claimed yet
	Preparing  State = "preparing"  // snapshot, sandbox and baseline are being made
	Working    State = "working"    // the agent has the turn
	Verifying  State = "verifying"  // the harness is checking what the agent submitted
	Publishing State = "publishing" // a verified change is on its way to the forge
	InReview   State = "in_review"  // a pull request waits for a person
	Merged     State = "merged"     // a person merged it
	Closed     State = "closed"     // a person closed it unmerged
	Declined   State = "declined"   // an honest no: cannot reproduce, out of scope, needs information
	Exhausted  State = "exhausted"  // a budget ran out
	Stopped    State = "stopped"    // a person stopped it
	Failed     State = "failed"     // Daybreak's own failure, or a change that could not be verified
)

// States returns all of them in that order.
func States() []State {
	return []State{Queued, Preparing, Working, Verifying, Publishing, InReview, Merged, Closed, Declined, Exhausted, Stopped, Failed}
}

// Transition is one legal step of the state machine.
type Transition struct {
	From, To State
	Why      string // what makes the task take it
}

// Transitions returns the legal table. The diagram in ARCHITECTURE.md is generated from the
// same rows by hand and compared with them by a test.
func Transitions() []Transition {
	t := []Transition{
		{"", Queued, "an authorised issue arrives"},
		{Queued, Preparing, "a worker claims the task"},
		{Preparing, Working, "sandbox ready, baseline recorded"},
		{Working, Verifying, "the agent submits"},
		{Verifying, Working, "rejected with evidence"},
		{Verifying, Publishing, "verified"},
		{Working, Declined, "the agent declines with a reason"},
		{Publishing, Verifying, "the target branch moved"},
		{Publishing, InReview, "pull request open"},
		{InReview, Working, "a reviewer asks for a change"},
		{InReview, Merged, "a person merged"},
		{InReview, Closed, "a person closed it"},
		{Exhausted, Working, "a person raised the budget"},
	}
	for _, from := range []State{Preparing, Working, Verifying} {
		t = append(t, Transition{from, Exhausted, "a budget ran out"})
	}
	for _, from := range []State{Queued, Preparing, Working, Verifying, Publishing} {
		t = append(t,
			Transition{from, Stopped, "a person stopped it"},
			Transition{from, Failed, "our failure, or nothing verified"})
	}
	return t
}

// Legal reports whether a task may go from one state to the other.
func Legal(from, to State) bool {
	return slices.ContainsFunc(Transitions(), func(t Transition) bool { return t.From == from && t.To == to })
}

// Done reports whether a worker has nothing more to do: the state is an end, or it waits for
// a person in review.
func (s State) Done() bool {
	switch s {
	case InReview, Merged, Closed, Declined, Exhausted, Stopped, Failed:
		return true
	}
	return false
}

// CheckTransition returns an error of class [Internal] that names both states when the step
// is not in the table.
func CheckTransition(from, to State) error {
	if Legal(from, to) {
		return nil
	}
	return &Error{Class: Internal, Msg: fmt.Sprintf("illegal transition %q → %q", from, to)}
}

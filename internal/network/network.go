// Package network is the seam to the only thing that a sandbox may reach: the package
// registries, read through the mirror.
//
// Invariants: a way belongs to one sandbox and is gone when it is closed; what a sandbox asks
// for is recorded before any registry hears of it, and what cannot be recorded is refused.
package network

import (
	"context"

	"github.com/daybreak-agent/daybreak/internal/policy/lockfile"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Mode says how far a sandbox may reach.
type Mode string

// The modes, each part of the record.
const (
	None Mode = "" // nowhere
	// Store reaches what the mirror has already, and no registry: what a verification may use.
	Store      Mode = "store"
	Registries Mode = "registries"
)

// Settings of an operator and of a repository.
const (
	Offline = "offline" // no sandbox but those that prepare dependencies reaches anything
	Online  = "registries"
)

// Network opens ways.
type Network interface {
	// Open makes a way for one sandbox. A nil way means that no registry is configured.
	Open(ctx context.Context, r Request) (*Way, error)
	// Outline says what a way of the mode adds to a sandbox, without making one: where its forwards
	// lead and what its own files say is not known yet, and there is nothing to close.
	Outline(ctx context.Context, m Mode) (*Way, error)
}

// Request describes a sandbox's use of the registries.
type Request struct {
	Task    task.ID
	Purpose string // of the sandbox
	Mode    Mode
	Known   lockfile.Known // of the base commit
	Spent   func() Spent   // by the task so far, in all its sandboxes; nil: nothing
	// Record stores entries before it returns. An error refuses what was asked for.
	Record func(ctx context.Context, entries []Entry) error
}

// Spent is what a task's earlier sandboxes used of its budget.
type Spent struct {
	Names    []string // new ones that were let through, "ecosystem:name"
	Versions []string // "ecosystem:name@version"
}

// Entry is one line of the ledger.
type Entry struct {
	Ecosystem string
	Name      string // as far as one was understood
	Version   string
	New       bool     // outside the base's lockfiles and the operator's list
	Notes     []string // what a reviewer should know of this version
	Refused   string   // reason; empty when it was let through
	Detail    string   // one line, safe to show
}

// Way is what a sandbox needs to get through.
type Way struct {
	Forwards  []sandbox.Forward
	Files     []sandbox.File
	Env       []string
	Upstreams []string // "ecosystem host", for the record
	// Close ends the way: every entry is recorded when it returns.
	Close func(ctx context.Context) error
}

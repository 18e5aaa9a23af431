// Package tamper reads a change for what would make tests lie: tests lost or loosened, expected
// values changed, snapshots rewritten, runners reconfigured, outcomes rewritten by hooks, and
// source that knows it is being tested.
//
// Invariants: it is pure (no I/O, no clock) and never executes or compiles what it reads; text
// that it cannot read gives a finding, not silence; adding tests and assertions gives none.
// What a finding leads to is decided elsewhere.
package tamper

import (
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// SubKind says which kind of tampering a finding is about.
type SubKind string

// The sub-kinds, by the row of the decision table that they feed.
const (
	// Row 13: a test is lost.
	TestDeleted SubKind = "test_deleted"
	TestRenamed SubKind = "test_renamed" // same body under another name
	TestSkipped SubKind = "test_skipped"
	TestFocused SubKind = "test_focused" // it.only and its like: the rest no longer runs
	TestEmptied SubKind = "test_emptied"

	// Row 14: a person must agree.
	AssertionRemoved  SubKind = "assertion_removed"
	AssertionLoosened SubKind = "assertion_loosened"
	ExpectedChanged   SubKind = "expected_changed"
	TestRewritten     SubKind = "test_rewritten"    // gone, and another that resembles it is there
	FailureSwallowed  SubKind = "failure_swallowed" // a check fails, and the test passes all the same
	SnapshotRewritten SubKind = "snapshot_rewritten"

	// Row 15: run again with the base's copies.
	RunnerConfig SubKind = "runner_config"
	OutcomeHook  SubKind = "outcome_hook"

	// Source that treats tests apart; no row of its own.
	DetectsTests SubKind = "detects_tests"
	CopiesTest   SubKind = "copies_literals"
	Unreadable   SubKind = "unreadable" // could not be analysed
)

// Lost reports whether the sub-kind belongs to row 13 of the decision table.
func (k SubKind) Lost() bool {
	return slices.Contains([]SubKind{TestDeleted, TestRenamed, TestSkipped, TestFocused, TestEmptied}, k)
}

// Weakened reports whether the sub-kind belongs to row 14.
func (k SubKind) Weakened() bool {
	return slices.Contains([]SubKind{AssertionRemoved, AssertionLoosened, ExpectedChanged, TestRewritten, FailureSwallowed, SnapshotRewritten}, k)
}

// Reconfigured reports whether the sub-kind belongs to row 15.
func (k SubKind) Reconfigured() bool { return k == RunnerConfig || k == OutcomeHook }

// FileChange is one file of the change. Old is nil when the file is new, New when it is
// deleted; an empty file is an empty, non-nil slice.
type FileChange struct {
	Path             string // slash-separated, relative to the repository
	Old, New         []byte
	OldMode, NewMode string // git modes such as "100644"
}

// Class is the part of a change that a path belongs to.
type Class string

// The classes. Test and Snapshot together are the Tests part of the change.
const (
	ClassTest     Class = "test" // with fixtures and helpers
	ClassSource   Class = "source"
	ClassConfig   Class = "config" // decides what runs and how
	ClassSnapshot Class = "snapshot"
	ClassOther    Class = "other" // documentation and the like
)

// IsTests reports whether the class belongs to the Tests part of a change.
func (c Class) IsTests() bool { return c == ClassTest || c == ClassSnapshot }

// Finding is one finding with its sub-kind. Severities: "block" where no honest fix looks like
// this, "warn" where a person must decide (Detail starts with "needs a person:"), "info" else.
type Finding struct {
	SubKind SubKind
	task.Finding
}

// Ends reports whether the finding is about nothing but a process that ends early: results go
// missing by that, and none is made up.
func (f Finding) Ends() bool {
	return f.SubKind == OutcomeHook && strings.Contains(f.Detail, "the process ")
}

// Result is what [Analyse] found, in order of path and line.
type Result struct {
	Findings []Finding
}

// Has reports whether there is a finding of one of the sub-kinds at a severity above "info".
func (r Result) Has(kinds ...SubKind) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Severity != "info" && slices.Contains(kinds, f.SubKind)
	})
}

// Where returns the findings above "info" for which keep is true of the sub-kind.
func (r Result) Where(keep func(SubKind) bool) []Finding {
	var out []Finding
	for _, f := range r.Findings {
		if f.Severity != "info" && keep(f.SubKind) {
			out = append(out, f)
		}
	}
	return out
}

// Task returns the findings for the verdict.
func (r Result) Task() []task.Finding {
	out := make([]task.Finding, len(r.Findings))
	for i, f := range r.Findings {
		out[i] = f.Finding
	}
	return out
}

// Package verify proves or refuses a change: the baseline of the suite, the reproduction on
// base + tests, the fix on base + tests + source, the regression check, the tamper report and
// the verdict.
//
// Invariants: it sees only the base commit and the final change, never the agent's sandbox or
// words; every run is a fresh sandbox on a one-commit checkout; a claim about a test comes from
// a parsed result, never from an exit code alone; an unreadable, missing or partial result is
// never green.
package verify

import (
	"context"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
)

// Lab is where the verifier's commands run. The worker supplies it.
type Lab interface {
	// Bench starts a fresh sandbox on the snapshot. With keepHome, what it writes into HOME
	// (build caches) becomes part of the snapshot for later benches: the base's own run only.
	Bench(ctx context.Context, purpose string, s snapshot.Snapshot, keepHome bool) (sandbox.Sandbox, error)
	// Log stores a run's whole output and returns its digest.
	Log(ctx context.Context, data []byte) (digest string, err error)
}

// Settings are the repository's own words about its tests, from .daybreak.yaml on the default
// branch, or empty for detection. Commands are run by the sandbox's shell in the work tree.
type Settings struct {
	Build     string        // optional; failing on the base means env_blocked
	Test      string        // runs the whole suite
	TestOne   string        // runs some tests; "{tests}" is replaced by the quoted ids
	Format    string        // "go", "junit", "tap", "jest", "mocha": how results are read
	Report    []string      // globs of result files below the work tree; for "go" and "tap" the output is read
	TestGlobs []string      // paths that are tests, beside the ecosystem's own
	Timeout   time.Duration // of one suite run; default 15 minutes
}

// Job is one change to verify.
type Job struct {
	Snapshot snapshot.Snapshot
	HeadTree string // tree id, for the record
	Changes  []git.Change
	Declared []string // test ids the agent named
	Hang     bool     // the issue is about a hang: a timeout may be red
	Baseline Baseline
	Progress func(phase, note string) // may be nil
}

// Baseline is the suite's ledger on the base commit; it is cached per (base, environment) and
// travels as JSON.
type Baseline struct {
	Runner string `json:"runner"` // how the suite is run and read
}

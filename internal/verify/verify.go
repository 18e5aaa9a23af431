// Package verify proves or refuses a change: the baseline of the suite, the reproduction on
// base + tests, the fix on base + tests + source, the regression check, the tamper report and
// the verdict.
//
// Invariants: it sees only the base commit and the final change, never the agent's sandbox or
// words; every run is a fresh sandbox on a one-commit checkout; how tests are run is found on
// the base, so a change cannot alter it; a claim about a test comes from a parsed result,
// never from an exit code alone; an unreadable, missing or partial result is never green.
package verify

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Version names the protocol and its code in every verdict.
const Version = "daybreak-verify/3"

// DefaultTimeout is the limit of one suite run when Settings name none.
const DefaultTimeout = 15 * time.Minute

// Lab is where the verifier's commands run. The worker supplies it.
type Lab interface {
	// Bench starts a fresh sandbox on the snapshot. With keepHome, what it writes into HOME
	// (build caches) becomes part of the snapshot for later benches: the base's own run only.
	Bench(ctx context.Context, purpose string, s snapshot.Snapshot, keepHome bool) (sandbox.Sandbox, error)
	// BuildBench starts a fresh sandbox on the snapshot, and keeps what it writes into [BuildHome],
	// and nothing else of it. Once it is destroyed, benches on the snapshot returned start with that;
	// drop removes it.
	BuildBench(ctx context.Context, s snapshot.Snapshot) (box sandbox.Sandbox, built snapshot.Snapshot, drop func() error, err error)
	// Log stores a run's whole output and returns its digest.
	Log(ctx context.Context, data []byte) (digest string, err error)
}

// Settings are the repository's own words about its tests, from .daybreak.yaml on the default
// branch, or empty for detection. Commands are run by the sandbox's shell in the work tree.
type Settings struct {
	Build     string        // optional; failing on the base means env_blocked
	Test      string        // runs the whole suite; set, it replaces detection
	TestOne   string        // runs some tests; "{tests}" is replaced by the quoted ids
	Format    string        // one of [result.Formats]: how results are read; empty: "junit" where Report is set, else the exit code is all there is
	Report    []string      // globs of result files below the work tree; the command's output is read when empty
	TestGlobs []string      // paths that are tests, beside the ecosystem's own
	Timeout   time.Duration // of one suite run; default [DefaultTimeout]
	Guard     time.Duration // of P6; 0: by the suite's own time; negative: P6 is left out
}

// Job is one change to verify.
type Job struct {
	Snapshot snapshot.Snapshot
	HeadTree string // tree id, for the record
	Changes  []git.Change
	Declared []string       // test ids the agent named, in any usual form; empty: those that go from fail to pass
	Hang     bool           // the issue is about a hang: a timeout may be red
	Race     bool           // the issue is about a race: declared tests run under the race detector where there is one
	Flakes   map[string]int // in how many earlier verifications of this repository a test flaked, by id
	Earlier  int            // how many these verifications were
	Baseline Baseline
	Progress func(phase, note string) // may be nil
}

func (j Job) progress(phase, note string) {
	if j.Progress != nil {
		j.Progress(phase, note)
	}
}

// Baseline is the suite's ledger on the base commit; it is cached per (base, environment) and
// travels as JSON.
type Baseline struct {
	Base        string                     `json:"base"`        // commit id
	Environment string                     `json:"environment"` // snapshot digest
	Runner      string                     `json:"runner"`      // how the suite is run and read, for people
	Tools       Tools                      `json:"tools"`
	Plan        Plan                       `json:"plan"`                   // empty: no test framework
	Tests       map[string]task.TestStatus `json:"tests"`                  // by stable id; [task.Flaky] where runs differ
	Signatures  map[string]string          `json:"signatures,omitempty"`   // of tests that fail on the base
	Where       map[string]Place           `json:"where,omitempty"`        // of each test, for running it alone
	Flickering  []string                   `json:"flickering,omitempty"`   // sorted
	BuildFailed []string                   `json:"build_failed,omitempty"` // packages or files that do not build on the base
	Incomplete  []string                   `json:"incomplete,omitempty"`   // commands without a whole report on the base
	TimedOut    bool                       `json:"timed_out,omitempty"`    // the suite hangs on the base
	Blocked     string                     `json:"blocked,omitempty"`      // why nothing can be verified here; empty: all is well
	Detail      string                     `json:"detail,omitempty"`       // the output behind Blocked
	Each        []BaseRun                  `json:"each,omitempty"`         // the runs, in order
	SuiteMillis int64                      `json:"suite_ms"`               // of the quickest complete run
	Phases      []task.PhaseRecord         `json:"phases"`                 // P0 and P1
	Sandbox     string                     `json:"sandbox,omitempty"`      // runtime and isolation of the benches
}

// Failed lists the tests that do not pass on the base, stable and flickering ones alike.
func (b Baseline) Failed() int {
	n := 0
	for _, s := range b.Tests {
		if s == task.Fail || s == task.Errored || s == task.Timeout || s == task.Flaky {
			n++
		}
	}
	return n
}

// Usable reports whether changes can be verified against this baseline. False means that the
// environment has to be repaired first: Blocked says how.
func (b Baseline) Usable() bool { return b.Blocked == "" && b.Base != "" }

// Verifier runs the protocol. Its fields are set once, before the first call; it is safe for
// concurrent use when Lab, Rand and Log are.
type Verifier struct {
	Lab      Lab
	Settings Settings
	Env      []string         // the operator's, KEY=VALUE, over our own
	Rand     io.Reader        // names of result files; crypto/rand outside tests
	Now      func() time.Time //
	Log      *slog.Logger     // may be nil

	workDir string // where benches keep the work tree; sandbox.WorkDir but for tests
}

// Reproduced is the answer to the agent's request to see its test fail on base + tests.
type Reproduced struct {
	// Kind is [task.Verified] when every declared test fails for the right reason, else the
	// row of the decision table that refused it.
	Kind    task.VerdictKind    `json:"kind"`
	Text    string              `json:"text"` // what was run, what was seen and what to do, for the model
	Tests   []task.Reproduction `json:"tests"`
	Phase   task.PhaseRecord    `json:"phase"`
	Command string              `json:"command"`
}

func (v *Verifier) root() string { return cmp.Or(v.workDir, sandbox.WorkDir) }

func (v *Verifier) timeout() time.Duration {
	if v.Settings.Timeout > 0 {
		return v.Settings.Timeout
	}
	return DefaultTimeout
}

func (v *Verifier) logger() *slog.Logger {
	if v.Log != nil {
		return v.Log
	}
	return slog.New(slog.DiscardHandler)
}

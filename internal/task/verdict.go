package task

// VerdictKind is what verification concluded: the decision table of the verification
// protocol, one constant a row.
type VerdictKind string

// The verdicts. [VerdictKind.Accepted] says which of them lead to a pull request.
const (
	EnvBlocked       VerdictKind = "env_blocked"        // base does not build, or no test ran at all
	VerifiedScript   VerdictKind = "verified_script"    // no test framework: a script as oracle, labelled unguarded
	NotRun           VerdictKind = "not_run"            // a declared test is not in the results
	NotReproducing   VerdictKind = "not_reproducing"    // the test passes on the base
	WeakRed          VerdictKind = "weak_red"           // fails on the base by compile, import or collection only
	InvalidRed       VerdictKind = "invalid_red"        // fails on the base for another reason
	FlakyRepro       VerdictKind = "flaky_reproduction" // red runs disagree
	NotFixed         VerdictKind = "not_fixed"
	FlakyFix         VerdictKind = "flaky_fix"
	Regression       VerdictKind = "regression"  // stable pass → fail, or pass → not run
	TestLost         VerdictKind = "test_lost"   // pass → skip, test removed or renamed
	NeedsHuman       VerdictKind = "needs_human" // an old assertion weakened, an expected value changed
	Tamper           VerdictKind = "tamper"      // with the base's runner configuration the outcome differs
	Incomplete       VerdictKind = "incomplete"  // exit 0 with no report, or a partial one
	VerifiedWeak     VerdictKind = "verified_weak"
	Verified         VerdictKind = "verified"
	NoChange         VerdictKind = "no_change"         // nothing was submitted
	PolicyRefused    VerdictKind = "policy_refused"    // the change touches what policy forbids
	VerificationFail VerdictKind = "verification_fail" // the verifier itself failed
)

// Accepted reports whether a change with this verdict may become a pull request.
// [NeedsHuman] is accepted: the pull request shows the old and the new expectation.
func (k VerdictKind) Accepted() bool {
	switch k {
	case Verified, VerifiedWeak, VerifiedScript, NeedsHuman:
		return true
	}
	return false
}

// TestStatus is the normal form of one test's outcome.
type TestStatus string

// The statuses.
const (
	Pass    TestStatus = "pass"
	Fail    TestStatus = "fail"    // an assertion, expected exception or panic inside the test
	Errored TestStatus = "error"   // set-up, collection, compile or import
	Skip    TestStatus = "skip"    //
	XFail   TestStatus = "xfail"   // failed as the test file says it should
	Missing TestStatus = "not_run" // expected, but absent from the results or left without an end
	Timeout TestStatus = "timeout"
	Flaky   TestStatus = "flaky" // runs on the same tree disagree
)

// Reproduction is the evidence for one declared test.
type Reproduction struct {
	Test          string     `json:"test"`           // stable id
	Rerun         string     `json:"rerun"`          // one command that runs this test alone
	Base          TestStatus `json:"base"`           // on base + tests
	BaseSignature string     `json:"base_signature"` // message and top frame, normalised
	BaseOutput    string     `json:"base_output,omitempty"`
	Head          TestStatus `json:"head"` // on base + tests + source
	HeadOutput    string     `json:"head_output,omitempty"`
	BaseRuns      int        `json:"base_runs"`
	HeadRuns      int        `json:"head_runs"`
	BaseFailed    int        `json:"base_failed,omitempty"` // in how many runs it failed, where they disagree
	HeadFailed    int        `json:"head_failed,omitempty"`
}

// SuiteResult compares the whole suite with its own baseline.
type SuiteResult struct {
	BaselineFailed int      `json:"baseline_failed"`
	NewFailures    int      `json:"new_failures"`
	Passed         int      `json:"passed"`
	Skipped        int      `json:"skipped"`
	Flaky          []string `json:"flaky"`              // tests that fail now and then, without the change too
	Unsteady       []string `json:"unsteady,omitempty"` // that do so with the change alone, each with its rates
	NewlyFailing   []string `json:"newly_failing,omitempty"`
	Lost           []string `json:"lost,omitempty"` // tests that passed on the base and are gone or skipped
	Command        string   `json:"command"`
}

// Finding is something a reviewer should see: tampering, a held path, a refused file.
type Finding struct {
	Kind     string `json:"kind"`     // "tamper", "held_path", "refused_path", "left_out", "secret", …
	Severity string `json:"severity"` // "info", "warn", "block"
	Path     string `json:"path"`
	Line     int    `json:"line,omitempty"`
	Detail   string `json:"detail"` // one line
	Old      string `json:"old,omitempty"`
	New      string `json:"new,omitempty"`
}

// Verdict is the document that verification produces and the pull request is written from.
type Verdict struct {
	Kind         VerdictKind    `json:"kind"`
	Reason       string         `json:"reason"` // one line a person and the model can act on
	Detail       string         `json:"detail,omitempty"`
	Base         string         `json:"base"`      // commit id
	HeadTree     string         `json:"head_tree"` // tree id of the verified content
	Tests        []string       `json:"tests"`     // paths of the Tests part of the change
	Source       []string       `json:"source"`
	Config       []string       `json:"configuration"`
	Reproduction []Reproduction `json:"reproduction"`
	Suite        SuiteResult    `json:"suite"`
	Guard        *Guard         `json:"guard,omitempty"` // absent where P6 did not run
	Findings     []Finding      `json:"findings"`
	Table        *Table         `json:"table,omitempty"` // per test and run; absent where nothing ran
	Phases       []PhaseRecord  `json:"phases"`
	Runner       string         `json:"runner"`      // how the suite is run and its results are read
	Environment  string         `json:"environment"` // digest
	Sandbox      Isolation      `json:"sandbox"`     // of the benches
	Verifier     string         `json:"verifier"`    // version of the protocol and of its code
}

// Isolation names what kept a verification's commands apart from the host and the network.
type Isolation struct {
	Runtime   string `json:"runtime"`
	Isolation string `json:"isolation"`
	Profile   string `json:"profile"` // digest of namespaces, seccomp, mounts, capabilities and limits
}

// Guard is P6: what the tests notice when the fix, or a part of it, is not there.
type Guard struct {
	Hunks    []Probe   `json:"hunks"`              // source hunks reverted one at a time
	Mutants  []Probe   `json:"mutants"`            // small changes of changed lines
	Coverage *Coverage `json:"coverage,omitempty"` // of the changed source lines, by the reproduction; absent where unknown
	Unsure   int       `json:"unsure,omitempty"`   // probes that are [Unjudged]
	Complete bool      `json:"complete"`           // false: time ran out, or there was nothing to probe
	Note     string    `json:"note,omitempty"`
	Millis   int64     `json:"ms"`
}

// ProbeOutcome says what the tests made of a probe.
type ProbeOutcome string

// The outcomes.
const (
	Caught   ProbeOutcome = "caught"   // a test that passes with the change fails without this part
	Survived ProbeOutcome = "survived" // everything stays green
	Broken   ProbeOutcome = "broken"   // it does not build or hangs: not a test's merit, but not unnoticed
	NotTried ProbeOutcome = "not_tried"
	Unjudged ProbeOutcome = "unjudged" // the reproduction stays green, and there was no time to ask the whole suite
)

// Probe is one part of the change undone or altered.
type Probe struct {
	Path    string       `json:"path"`
	Line    int          `json:"line"` // first changed line with the change
	What    string       `json:"what"` // "reverted", or the mutation's operator
	Old     string       `json:"old,omitempty"`
	New     string       `json:"new,omitempty"`
	Outcome ProbeOutcome `json:"outcome"`
	By      string       `json:"by,omitempty"` // a test that caught it
}

// Coverage counts changed source lines that can run.
type Coverage struct {
	Lines  int    `json:"lines"`
	Run    int    `json:"run"`
	Tool   string `json:"tool"`
	Missed string `json:"missed,omitempty"` // "path:line" of some that were not run
}

// Counts sums probes: caught or broken, survived, not tried. What is [Unjudged] is none of these.
func Counts(probes []Probe) (caught, survived, left int) {
	for _, p := range probes {
		switch p.Outcome {
		case Survived:
			survived++
		case NotTried:
			left++
		case Unjudged:
		default:
			caught++
		}
	}
	return caught, survived, left
}

// PhaseRecord is what one phase did, so that a sceptic can do it again.
type PhaseRecord struct {
	Phase    string      `json:"phase"` // "P0" … "P8"
	Name     string      `json:"name"`
	Tree     string      `json:"tree,omitempty"`
	Runs     []RunRecord `json:"runs,omitempty"`
	Note     string      `json:"note,omitempty"`
	Millis   int64       `json:"ms"`
	Complete bool        `json:"complete"`
}

// RunRecord is one command of a phase.
type RunRecord struct {
	Command  string `json:"command"`
	ExitCode int    `json:"exit_code"`
	Millis   int64  `json:"ms"`
	Passed   int    `json:"passed"`
	Failed   int    `json:"failed"`
	Skipped  int    `json:"skipped"`
	NotRun   int    `json:"not_run"`
	Log      string `json:"log,omitempty"`   // blob digest of the full output
	Outcome  string `json:"outcome"`         // "complete", "partial", "no_report", "timeout", "killed"; of a build "built", "not built"
	Build    string `json:"build,omitempty"` // digest of the files that compiling the tree once left: of a build those that it made, else those that the run began with; "" where it built for itself
}

// Built reports whether the command only compiled: it says nothing of a test.
func (r RunRecord) Built() bool { return r.Outcome == "built" || r.Outcome == "not built" }

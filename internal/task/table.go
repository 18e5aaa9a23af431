package task

// Table is what each run of a verification showed of the tests that are of interest: those that
// show the bug, those that came out otherwise than on the base, and those that flicker.
type Table struct {
	Tests []TableTest `json:"tests"`
	Runs  []TableRun  `json:"runs"`           // in the order in which they were made
	Left  int         `json:"left,omitempty"` // tests of interest that have no row
}

// TableTest is a row.
type TableTest struct {
	Test  string `json:"test"`            // stable id
	Why   string `json:"why"`             // "reproduction", "regression", "lost", "flaky", "new", "changed"
	Rerun string `json:"rerun,omitempty"` // one command that runs this test alone
}

// BaseAgain is what a run of the base alone is called that came after its ledger's own.
const BaseAgain = "base again"

// TableRun is a column.
type TableRun struct {
	Phase  string       `json:"phase"`              // "P1" …
	What   string       `json:"what"`               // what was run on what, in words
	Path   string       `json:"path,omitempty"`     // of a probe: the place that was undone or altered
	Line   int          `json:"line,omitempty"`     //
	Result ProbeOutcome `json:"result,omitempty"`   // of a probe
	Millis int64        `json:"ms"`                 // of the whole run
	Seen   string       `json:"seen"`               // a letter for each test: see [TestStatus.Letter]
	Took   []int64      `json:"tests_ms,omitempty"` // of each test; absent where none is known
}

// At is the outcome of a test in a run; ok is false where it was no part of it.
func (r TableRun) At(test int) (s TestStatus, ok bool) {
	if test < 0 || test >= len(r.Seen) {
		return "", false
	}
	for _, s := range statuses() {
		if s.Letter() == r.Seen[test] {
			return s, true
		}
	}
	return "", false
}

func statuses() []TestStatus {
	return []TestStatus{Pass, Fail, Errored, Skip, XFail, Missing, Timeout, Flaky}
}

// Letter stands for a status in a table; '.' says that the test was no part of the run.
func (s TestStatus) Letter() byte {
	switch s {
	case Pass:
		return 'p'
	case Fail:
		return 'f'
	case Errored:
		return 'e'
	case Skip:
		return 's'
	case XFail:
		return 'x'
	case Missing:
		return 'n'
	case Timeout:
		return 't'
	case Flaky:
		return '~'
	}
	return '.'
}

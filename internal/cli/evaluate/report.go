package evaluate

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/taskview"
)

// Counts are how many cases were judged in which way.
type Counts struct {
	Cases        int `json:"cases"`
	Right        int `json:"right"`
	FalseAccepts int `json:"false_accepts"`
	FalseRejects int `json:"false_rejects"`
	WrongReasons int `json:"wrong_reasons"`
	ForPersons   int `json:"for_persons,omitempty"`
	OtherTests   int `json:"other_tests,omitempty"`
	NotPlayed    int `json:"not_played"`
}

func (c *Counts) add(j Judgement) {
	c.Cases++
	switch j {
	case Right:
		c.Right++
	case FalseAccept:
		c.FalseAccepts++
	case FalseReject:
		c.FalseRejects++
	case WrongReason:
		c.WrongReasons++
	case ForPerson:
		c.ForPersons++
	case OtherTest:
		c.OtherTests++
	default:
		c.NotPlayed++
	}
}

// exit is the command's end.
func (c Counts) exit() error {
	switch {
	case c.FalseAccepts+c.FalseRejects+c.WrongReasons > 0:
		return &kit.ExitError{Code: kit.NotVerified}
	case c.NotPlayed > 0:
		return &kit.ExitError{Code: kit.Failure}
	}
	return nil
}

// Sums are the counts of a run over instances.
type Sums struct {
	Type string `json:"type"` // "sums"
	Counts
	Seconds float64 `json:"seconds"`
}

func (s *Sums) add(o Outcome) {
	s.Counts.add(o.Judgement)
	s.Seconds += o.Seconds
}

func (s Sums) exit() error {
	if s.Cases == 0 {
		return &kit.ExitError{Code: kit.Usage, Err: errors.New("there is no instance to run")}
	}
	return s.Counts.exit()
}

// report prints cases as they end. Its methods are safe for concurrent use.
type report struct {
	out   io.Writer
	json  bool
	width int

	mu   sync.Mutex
	sums Sums
	bad  []Outcome
}

func newReport(out io.Writer, asJSON bool, width int) *report {
	if width <= 0 {
		width = 200
	}
	return &report{out: out, json: asJSON, width: width, sums: Sums{Type: "sums"}}
}

const columns = "%-36s %-12s %-16s %-13s %7s  %s\n"

func (r *report) begin(dir string, cases int) {
	if r.json {
		return
	}
	fmt.Fprintf(r.out, "%d cases; records below %s\n\n", cases, dir)
	fmt.Fprintf(r.out, columns, "instance", "variant", "verdict", "judgement", "seconds", "reason")
}

func (r *report) add(o Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sums.add(o)
	if o.Judgement != Right {
		r.bad = append(r.bad, o)
	}
	if r.json {
		printJSON(r.out, o)
		return
	}
	verdict := string(o.Verdict)
	if verdict == "" {
		verdict = "–"
	}
	reason := []rune(taskview.Escape(o.Reason))
	if room := max(r.width-92, 40); len(reason) > room {
		reason = append(reason[:room-1], '…')
	}
	fmt.Fprintf(r.out, columns, o.Instance, o.Variant, verdict, o.Judgement, fmt.Sprintf("%.1f", o.Seconds), string(reason))
}

// end prints the sums, and what to look at.
func (r *report) end() Sums {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.json {
		printJSON(r.out, r.sums)
		return r.sums
	}
	s := r.sums
	fmt.Fprintf(r.out, "\n%d cases: %d right, %d false accepts, %d false rejects, %d refused for a wrong reason, %d not played; %.0f s\n",
		s.Cases, s.Right, s.FalseAccepts, s.FalseRejects, s.WrongReasons, s.NotPlayed, s.Seconds)
	for _, o := range r.bad {
		fmt.Fprintf(r.out, "\n%s %s: %s, wanted %v\n  %s\n", o.Instance, o.Variant, o.Judgement, o.Wanted, taskview.Escape(o.Reason))
		if o.Task != "" {
			fmt.Fprintf(r.out, "  task show %s\n", o.Task)
		}
	}
	return s
}

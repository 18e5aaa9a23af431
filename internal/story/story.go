// Package story folds a task's event log into what people are shown of it: steps with their
// calls, what happened between them, and the stages over time, with the words for each. The
// terminal and the pages both tell it from here.
//
// Invariants: it is pure; applying the events one by one gives what applying all at once gives;
// texts are as they were recorded, so whoever shows one makes it inert first; an event of a kind
// that this build does not know is an item of its own, never left out.
package story

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Story is what a log folds to.
type Story struct {
	Sum    event.Summary
	Items  []*Item // by their first record
	Stages []Stage
	Marks  []Mark // for a time line

	Verdict int64 // seq of the newest verification, 0 for none

	step  *Item
	calls map[callKey]*Call
}

// Item is one step of the model, or something that happened beside the steps.
type Item struct {
	Seq  int64 // first record of it
	Last int64 // newest record of it: what a viewer who has seen less must be shown again
	At   time.Time

	Step   *Step // or
	Moment *Moment
}

// Step is one call of the model with the tool calls it asked for.
type Step struct {
	N        int
	Request  *event.ModelRequested // nil when a resumed run found the reply in the log
	Response *event.ModelResponded // nil while it is awaited, or when the call failed
	Replied  int64                 // seq of the reply
	Failed   *event.ModelFailed
	Calls    []*Call
}

// Call is one tool call.
type Call struct {
	Seq      int64 // of tool.started
	Name, ID string
	Args     event.Text
	At       time.Time
	Finished *event.ToolFinished // nil while it runs
	Ended    int64               // seq of tool.finished
}

// Moment is what happened beside the steps.
type Moment struct {
	Payload event.Payload
	Line    Line
}

// Stage is a stretch of time in one state.
type Stage struct {
	State  task.State
	From   time.Time
	To     time.Time // of the end, or of the newest record
	Seq    int64
	Open   bool // it has not ended
	Reason string
	Steps  int
}

// Mark is a point on the time line.
type Mark struct {
	At   time.Time
	Seq  int64
	Kind string // "step", "good", "bad", "steer"
}

type callKey struct {
	step int
	call string
}

// Fold applies the events of one task in order. On an error the story holds what came before.
func Fold(events []event.Event) (*Story, error) {
	s := New()
	for _, e := range events {
		if err := s.Apply(e); err != nil {
			return s, err
		}
	}
	return s, nil
}

// New returns the story of a log without records.
func New() *Story { return &Story{calls: map[callKey]*Call{}} }

// Apply adds the next event. Errors are those of [event.Summary.Apply].
func (s *Story) Apply(e event.Event) error {
	p, err := s.Sum.Next(e)
	if err != nil {
		return err
	}
	s.stages(e, p)
	switch p := p.(type) {
	case *event.ModelRequested:
		s.stepOf(e, p.Step).Step.Request = p
		s.Marks = append(s.Marks, Mark{e.Time, e.Seq, "step"})
	case *event.ModelResponded:
		st := s.stepOf(e, p.Step).Step
		st.Response, st.Replied = p, e.Seq
	case *event.ModelFailed:
		s.stepOf(e, p.Step).Step.Failed = p
	case *event.ToolStarted:
		c := &Call{Seq: e.Seq, Name: p.Name, ID: p.Call, Args: p.Args, At: e.Time}
		it := s.stepOf(e, p.Step)
		it.Step.Calls = append(it.Step.Calls, c)
		s.calls[callKey{p.Step, p.Call}] = c
	case *event.ToolFinished:
		s.finish(e, p)
	case *event.WallClocked, *event.PromptFrozen, *event.TaskCreated:
		// counted in the summary; the head of the page shows them
	default:
		s.Items = append(s.Items, &Item{Seq: e.Seq, Last: e.Seq, At: e.Time, Moment: &Moment{Payload: p, Line: Say(p)}})
	}
	return nil
}

// stepOf returns the item of a step, a new one when the step is not the current one.
func (s *Story) stepOf(e event.Event, n int) *Item {
	if s.step == nil || s.step.Step.N != n {
		s.step = &Item{Seq: e.Seq, At: e.Time, Step: &Step{N: n}}
		s.Items = append(s.Items, s.step)
	}
	s.step.Last = e.Seq
	return s.step
}

func (s *Story) finish(e event.Event, p *event.ToolFinished) {
	key := callKey{p.Step, p.Call}
	c := s.calls[key]
	it := s.stepOf(e, p.Step)
	if c == nil {
		c = &Call{Seq: e.Seq, Name: p.Name, ID: p.Call, At: e.Time}
		it.Step.Calls = append(it.Step.Calls, c)
	}
	c.Finished, c.Ended = p, e.Seq
	delete(s.calls, key)
}

// stages keeps the stretches of time and what is told apart from the items.
func (s *Story) stages(e event.Event, p event.Payload) {
	if n := len(s.Stages); n > 0 && s.Stages[n-1].Open {
		s.Stages[n-1].To = e.Time
	}
	switch p := p.(type) {
	case *event.TaskCreated:
		s.Stages = append(s.Stages, Stage{State: task.Queued, From: e.Time, To: e.Time, Seq: e.Seq, Open: true})
	case *event.StateChanged:
		if n := len(s.Stages); n > 0 {
			s.Stages[n-1].Open = false
		}
		s.Stages = append(s.Stages, Stage{State: p.To, From: e.Time, To: e.Time, Seq: e.Seq, Open: !p.To.Done(), Reason: p.Reason})
	case *event.ModelRequested:
		if n := len(s.Stages); n > 0 {
			s.Stages[n-1].Steps++
		}
	case *event.VerificationFinished:
		kind := "bad"
		if p.Kind.Accepted() {
			kind = "good"
		}
		s.Verdict = e.Seq
		s.Marks = append(s.Marks, Mark{e.Time, e.Seq, kind})
	case *event.Steered, *event.StopRequested:
		s.Marks = append(s.Marks, Mark{e.Time, e.Seq, "steer"})
	}
}

// Said is the text and the thinking of a message in the form in which the log has it; empty when
// it is no such message.
func Said(message string) (text, thinking string) {
	var m struct {
		Blocks []struct{ Type, Text string }
	}
	if json.Unmarshal([]byte(message), &m) != nil {
		return "", ""
	}
	var said, thought []string
	for _, b := range m.Blocks {
		switch {
		case b.Text == "":
		case b.Type == "text":
			said = append(said, strings.Trim(b.Text, "\n"))
		case b.Type == "thinking":
			thought = append(thought, strings.Trim(b.Text, "\n"))
		}
	}
	return strings.Join(said, "\n\n"), strings.Join(thought, "\n\n")
}

// Outcome says in a word how a call ended, and whether that is good.
func (c *Call) Outcome() (word string, good bool) {
	switch f := c.Finished; {
	case f == nil:
		return "running", true
	case f.Interrupted:
		return "interrupted", false
	case f.ExitCode != nil && *f.ExitCode == 0:
		return "exit 0", true
	case f.ExitCode != nil:
		return "exit " + itoa(*f.ExitCode), false
	case f.IsError:
		return "refused", false
	}
	return "ok", true
}

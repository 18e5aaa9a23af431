package event

import (
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// AttemptStarted begins an independent attempt at the issue: the conversation starts again behind
// the same prefix, on the untouched base. What follows belongs to it until it is finished.
type AttemptStarted struct {
	N    int    `json:"n"` // counts from 1
	Of   int    `json:"of"`
	Note string `json:"note,omitempty"` // said to the model after the prefix
}

// AttemptFinished ends an attempt. What it proved is kept aside, for the choice.
type AttemptFinished struct {
	N      int    `json:"n"`
	Ending string `json:"ending"` // "verified", "declined", "exhausted" or "failed"
	Reason string `json:"reason,omitempty"`
	Lines  int    `json:"lines,omitempty"` // added and removed by the verified change
}

// AttemptJudged is what one attempt's source did under another attempt's reproduction tests.
type AttemptJudged struct {
	Source int    `json:"source"`
	Tests  int    `json:"tests"`
	Passed bool   `json:"passed"`
	Reason string `json:"reason,omitempty"`
	Log    string `json:"log,omitempty"` // digest of the run's whole output
	Millis int64  `json:"ms"`
}

// AttemptChosen makes what one attempt proved the task's own.
type AttemptChosen struct {
	N      int    `json:"n"`
	Of     int    `json:"of"`      // attempts made
	Agreed int    `json:"agreed"`  // whose tests it passes, its own not counted
	Rivals int    `json:"rivals"`  // other attempts with a verified change
	Reason string `json:"reason"`  // for people
	Note   string `json:"note"`    // said to the model when it goes on
	Early  bool   `json:"early"`   // two agreed before all were made
	Wanted int    `json:"allowed"` // attempts that were allowed
}

// EventKind implements [Payload].
func (AttemptStarted) EventKind() Kind { return "attempt.started" }

// EventKind implements [Payload].
func (AttemptFinished) EventKind() Kind { return "attempt.finished" }

// EventKind implements [Payload].
func (AttemptJudged) EventKind() Kind { return "attempt.judged" }

// EventKind implements [Payload].
func (AttemptChosen) EventKind() Kind { return "attempt.chosen" }

// blankAttempt returns the payload of an attempt's kind to decode into, nil for other kinds.
func blankAttempt(k Kind) Payload {
	switch k {
	case "attempt.started":
		return &AttemptStarted{}
	case "attempt.finished":
		return &AttemptFinished{}
	case "attempt.judged":
		return &AttemptJudged{}
	case "attempt.chosen":
		return &AttemptChosen{}
	}
	return nil
}

// Attempts are the independent attempts at an issue.
type Attempts struct {
	Current *AttemptStarted // nil before the first and between two
	Done    []Candidate     // in order
	Judged  []AttemptJudged
	Chosen  *AttemptChosen
}

// Candidate is a finished attempt with what it proved; the fields are those of [Summary].
type Candidate struct {
	AttemptFinished
	Reproduction *ReproductionChecked
	Submitted    *Submitted
	Exported     *Exported
	Verification *VerificationFinished
	Workspace    *WorkspaceSaved
	VerifiedAt   time.Time
	VerifiedSeq  int64
	VerifiedHash string
}

// Verified reports whether the candidate may be chosen.
func (c Candidate) Verified() bool {
	return c.Ending == "verified" && c.Verification != nil && c.Verification.Kind.Accepted()
}

// Trying reports whether independent attempts are under way: an accepted verdict is then one
// attempt's, not the task's.
func (s *Summary) Trying() bool {
	return s.Created.Attempts > 1 && s.Attempts.Chosen == nil && s.PullRequest == nil && s.State != task.Publishing && !s.State.Done()
}

// takeAttempt folds the events of attempts.
func (s *Summary) takeAttempt(p Payload) {
	a := &s.Attempts
	switch p := p.(type) {
	case *AttemptStarted:
		s.forget()
		a.Current = p
	case *AttemptFinished:
		a.Done = append(a.Done[:len(a.Done):len(a.Done)], Candidate{
			*p, s.Reproduction, s.Submitted, s.Exported, s.Verification, s.Workspace, s.VerifiedAt, s.VerifiedSeq, s.VerifiedHash,
		})
		s.forget()
		a.Current = nil
	case *AttemptJudged:
		a.Judged = append(a.Judged[:len(a.Judged):len(a.Judged)], *p)
	case *AttemptChosen:
		a.Chosen = p
		for _, c := range a.Done {
			if c.N == p.N {
				s.Reproduction, s.Submitted, s.Exported, s.Verification, s.Workspace = c.Reproduction, c.Submitted, c.Exported, c.Verification, c.Workspace
				s.VerifiedAt, s.VerifiedSeq, s.VerifiedHash = c.VerifiedAt, c.VerifiedSeq, c.VerifiedHash
			}
		}
	}
}

// forget leaves nothing of an attempt to the next one.
func (s *Summary) forget() {
	s.Reproduction, s.Submitted, s.Exported, s.Verification, s.Workspace, s.Declined = nil, nil, nil, nil, nil, nil
	s.OpenCalls = nil
	s.VerifiedAt, s.VerifiedSeq, s.VerifiedHash = time.Time{}, 0, ""
}

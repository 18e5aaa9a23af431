package event

import (
	"fmt"
	"slices"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Summary is what a task's log folds to: everything a resume, a listing or a page needs to
// know without reading the log again. It is only ever built by [Summary.Apply]. Pointers are
// nil until the first event of their kind and then hold the newest one.
type Summary struct {
	Task      task.ID
	LastSeq   int64
	LastHash  string
	Epoch     int64     // of the newest record
	CreatedAt time.Time // of the first record
	UpdatedAt time.Time // of the newest record

	State  task.State
	Reason string // of the newest state change, may be empty

	Created TaskCreated // its limits are those of the newest raise
	Runs    int         // attempts so far
	Spent   task.Spent  // steps, tokens with the wasted ones, cost and wall time over all runs
	// Unpriced says that some reply had no known price, so that the cost is more than Spent has.
	Unpriced bool

	Snapshot     *SnapshotReady
	Setup        *SetupReady
	SetupStep    *SetupStarted // a step of setup without an end
	Baseline     *BaselineFinished
	Prompt       *PromptFrozen
	Workspace    *WorkspaceSaved
	Reproduction *ReproductionChecked
	Submitted    *Submitted
	Exported     *Exported
	Verification *VerificationFinished
	VerifiedAt   time.Time // of the newest verification
	VerifiedSeq  int64
	VerifiedHash string
	AgentSandbox *SandboxStarted // the newest sandbox that the agent had
	AgentTouched bool            // a tool call has begun since it was started
	Held         *PublicationHeld
	HeldAt       time.Time
	Moved        *TargetMoved
	Approved     *PublicationApproved
	Asked        *QuestionAsked
	AskedAt      time.Time
	Answered     *QuestionAnswered
	Rebased      *Rebased      // nil while the change stands on the base that the task began with
	Undone       *RebaseUndone // the newest rebase did not work out
	Rebases      int           // tried for this publication
	Declined     *Declined
	Stop         *StopRequested
	PullRequest  *PullRequestOpened
	Ended        *PullRequestEnded
	Reverted     *PullRequestReverted
	Pushed       *BranchPushed
	Adopted      *BranchAdopted // of this follow-up
	AdoptedSeq   int64
	Findings     []task.Finding    // of policy, in order
	Dropped      []ClaimDropped    // of the agent's words, in order
	Signed       *EvidenceSigned   // the newest; of the change under review while a follow-up is at work
	Effects      map[string]Effect // outside effects by key

	OpenCalls    []ToolStarted             // tool calls without a result, in order
	OpenRequest  *ModelRequested           // a model call without an answer
	LastResponse int64                     // seq of the newest model.response, 0 for none
	Sandboxes    map[string]SandboxStarted // started and not ended, by id

	Attempts Attempts // at the issue, where there are several

	Reach Reach // what sandboxes asked the registries

	Checkpoint *Checkpoint
	Unknown    int // records of kinds that this build does not know

	Before *Proof // what was proven before the rebase under way
}

// Proof is what a verdict is about, and rests on: see the fields of [Summary] of the same names.
type Proof struct {
	Base         string
	Snapshot     *SnapshotReady
	Setup        *SetupReady
	Baseline     *BaselineFinished
	Workspace    *WorkspaceSaved
	Exported     *Exported
	Verification *VerificationFinished
	Rebased      *Rebased
	VerifiedAt   time.Time
	VerifiedSeq  int64
	VerifiedHash string
}

// Effect is one outside effect. It is intended first and done later; one that is intended
// and not done must be looked for before it is tried again.
type Effect struct {
	Intended *EffectIntended
	Done     *EffectDone
}

// Waits reports whether a verified change waits for a person's approval.
func (s *Summary) Waits() bool {
	return s.State == task.Publishing && s.Held != nil && (s.Approved == nil || s.Approved.Tree != s.Held.Tree)
}

// Parked reports whether the task rests until a person answers the agent's question.
func (s *Summary) Parked() bool {
	return !s.State.Done() && s.Asked != nil && (s.Answered == nil || s.Answered.N < s.Asked.N)
}

// clockSlack is how far the clock of who tells us of a word may be behind the one of the log.
const clockSlack = 30 * time.Second

// Answers reports whether a word of that time can be the answer to the question that the task rests
// with: a word of before it is one like any other.
func (s *Summary) Answers(at time.Time) bool {
	return s.Parked() && !at.Before(s.AskedAt.Add(-clockSlack))
}

// Rebasing reports whether the change was put on a new base and is not proven there yet.
func (s *Summary) Rebasing() bool { return s.State == task.Verifying && s.Before != nil }

// rebase puts what was proven aside.
func (s *Summary) rebase(p *Rebased) {
	if s.Verification != nil {
		s.Before = &Proof{
			s.Created.Base, s.Snapshot, s.Setup, s.Baseline, s.Workspace, s.Exported, s.Verification, s.Rebased,
			s.VerifiedAt, s.VerifiedSeq, s.VerifiedHash,
		}
	}
	s.Created.Base, s.Rebased, s.Undone, s.Rebases = p.To, p, nil, s.Rebases+1
	s.Baseline, s.Exported, s.Verification = nil, nil, nil
	s.VerifiedAt, s.VerifiedSeq, s.VerifiedHash = time.Time{}, 0, ""
}

// undo brings it back.
func (s *Summary) undo(p *RebaseUndone) {
	b := s.Before
	if b == nil {
		return
	}
	s.Created.Base, s.Snapshot, s.Setup, s.Baseline, s.Workspace = b.Base, b.Snapshot, b.Setup, b.Baseline, b.Workspace
	s.Exported, s.Verification, s.Rebased = b.Exported, b.Verification, b.Rebased
	s.VerifiedAt, s.VerifiedSeq, s.VerifiedHash = b.VerifiedAt, b.VerifiedSeq, b.VerifiedHash
	s.Undone, s.Before = p, nil
}

// Fold applies the events of one task in order. On an error the summary holds what came
// before the event that the error names.
func Fold(events []Event) (Summary, error) {
	var s Summary
	for _, e := range events {
		if err := s.Apply(e); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Apply adds the next event. It fails, leaving the summary as it was, when the event belongs
// to another task, is not the next in sequence, cannot be decoded, or makes an illegal
// transition (class [task.Internal]). It does not check hashes: [VerifyChain] does.
func (s *Summary) Apply(e Event) error {
	_, err := s.Next(e)
	return err
}

// Next is [Summary.Apply] for a caller who wants the payload as well.
func (s *Summary) Next(e Event) (Payload, error) {
	if s.LastSeq > 0 && e.Task != s.Task {
		return nil, internalf("event %d belongs to task %s, not to %s", e.Seq, e.Task, s.Task)
	}
	if e.Seq != s.LastSeq+1 {
		return nil, internalf("event log of %s: event %d follows event %d", e.Task, e.Seq, s.LastSeq)
	}
	p, err := Decode(e)
	if err != nil {
		return nil, err
	}
	state, err := nextState(s.State, p)
	if err != nil {
		return nil, fmt.Errorf("event %d of %s: %w", e.Seq, e.Task, err)
	}
	if s.LastSeq == 0 {
		s.Task, s.CreatedAt = e.Task, e.Time
	}
	s.State = state
	s.LastSeq, s.LastHash, s.Epoch, s.UpdatedAt = e.Seq, e.Hash, e.Epoch, e.Time
	s.take(e.Seq, p)
	switch p.(type) {
	case *VerificationFinished:
		s.VerifiedAt, s.VerifiedSeq, s.VerifiedHash = e.Time, e.Seq, e.Hash
	case *PublicationHeld:
		s.HeldAt = e.Time
	case *QuestionAsked:
		s.AskedAt = e.Time
	}
	return p, nil
}

// NextState returns the state that a task in state from has after the draft. The store calls
// it inside the transaction that appends, so that an illegal transition is never recorded.
// Its errors have class [task.Internal].
func NextState(from task.State, d Draft) (task.State, error) {
	if d.Kind != (TaskCreated{}).EventKind() && d.Kind != (StateChanged{}).EventKind() {
		return from, nil
	}
	p, err := Decode(Event{Kind: d.Kind, Version: d.Version, Payload: d.Payload})
	if err != nil {
		return from, err
	}
	if u, ok := p.(Unknown); ok {
		return from, internalf("%s has version %d; this build writes %d", u.Kind, d.Version, Current)
	}
	return nextState(from, p)
}

// nextState holds the one rule: task.created makes a task queued, state.changed moves it
// along the table, nothing else touches the state. A state.changed from "" right after the
// creation says the same again and is accepted.
func nextState(from task.State, p Payload) (task.State, error) {
	switch p := p.(type) {
	case *TaskCreated:
		return task.Queued, task.CheckTransition(from, task.Queued)
	case *StateChanged:
		if p.From == "" && p.To == task.Queued && from == task.Queued {
			return from, nil
		}
		if p.From != from {
			return from, internalf("transition %q → %q, but the task is %q", p.From, p.To, from)
		}
		return p.To, task.CheckTransition(from, p.To)
	}
	return from, nil
}

func (s *Summary) take(seq int64, p Payload) {
	switch p := p.(type) {
	case *TaskCreated:
		s.Created = *p
	case *RunStarted:
		s.Runs++
	case *StateChanged:
		s.Reason = p.Reason
		if p.From == task.InReview && p.To == task.Working { // what was proven is not what comes next
			s.Submitted, s.Exported, s.Verification, s.Declined = nil, nil, nil, nil
			s.Held, s.Approved, s.Moved, s.Undone, s.Rebases, s.Adopted = nil, nil, nil, nil, 0, nil
			s.VerifiedAt, s.VerifiedSeq, s.VerifiedHash = time.Time{}, 0, ""
		}
		if p.From == task.Exhausted && p.To == task.Working { // the agent goes on, and changes what was proven
			s.Submitted, s.Exported, s.Verification, s.Declined = nil, nil, nil, nil
			s.VerifiedAt, s.VerifiedSeq, s.VerifiedHash = time.Time{}, 0, ""
		}
	case *SnapshotReady:
		s.Snapshot = p
	case *SetupStarted:
		s.SetupStep = p
	case *SetupFinished:
		s.SetupStep = nil
	case *SetupReady:
		s.Setup, s.SetupStep = p, nil
	case *BaselineFinished:
		s.Baseline = p
	case *PromptFrozen:
		s.Prompt = p
	case *WorkspaceSaved:
		s.Workspace = p
	case *ReproductionChecked:
		s.Reproduction = p
	case *Submitted:
		s.Submitted = p
	case *Exported:
		s.Exported = p
	case *VerificationFinished:
		s.Verification = p
		if p.Kind.Accepted() {
			s.Before = nil
		}
	case *Declined:
		s.Declined = p
	case *StopRequested:
		s.Stop = p
	case *PullRequestOpened:
		s.PullRequest = p
	case *PullRequestEnded:
		s.Ended = p
	case *BudgetRaised:
		s.Created.Limits = p.Limits
	case *TargetMoved:
		s.Moved = p
	case *PublicationHeld:
		s.Held = p
	case *PublicationApproved:
		s.Approved = p
	case *QuestionAsked:
		s.Asked = p
	case *QuestionAnswered:
		s.Answered = p
	case *Rebased:
		s.rebase(p)
	case *RebaseUndone:
		s.undo(p)
	case *PullRequestReverted:
		s.Reverted = p
	case *BranchPushed:
		s.Pushed = p
	case *BranchAdopted:
		s.Adopted, s.AdoptedSeq = p, seq
		if s.PullRequest != nil { // the events before stay as they are
			pr := *s.PullRequest
			pr.Head, pr.Base = p.Head, p.Base
			s.PullRequest = &pr
		}
	case *ClaimDropped:
		s.Dropped = append(s.Dropped, *p)
	case *PolicyFound:
		s.Findings = append(s.Findings, p.Finding)
	case *WallClocked:
		s.Spent.Wall += p.Elapsed
	case *Checkpoint:
		s.Checkpoint = p
	case *EffectIntended, *EffectDone:
		s.takeEffect(p)
	case *SandboxStarted, *SandboxEnded:
		s.takeSandbox(p)
	case *NetworkOpened, *NetworkAsked, *NetworkRefused:
		s.Reach.take(p)
	case *AttemptStarted, *AttemptFinished, *AttemptJudged, *AttemptChosen:
		s.takeAttempt(p)
	case Unknown:
		s.Unknown++
	default:
		s.takeStep(seq, p)
	}
}

// takeStep counts what the model and its tools did, and takes what needs no more than to be kept.
func (s *Summary) takeStep(seq int64, p Payload) {
	switch p := p.(type) {
	case *EvidenceSigned:
		s.Signed = p
	case *ModelRequested:
		s.OpenRequest = p
	case *ModelResponded:
		s.OpenRequest, s.LastResponse = nil, seq
		s.Unpriced = s.Unpriced || !p.Priced
		s.Spent = s.Spent.Add(task.Spent{Steps: 1, Tokens: p.Tokens.Add(p.Wasted), Cost: p.Cost})
	case *ModelFailed:
		s.OpenRequest = nil
		s.Spent = s.Spent.Add(task.Spent{Steps: 1, Tokens: p.Wasted, Cost: p.Cost})
	case *ToolStarted:
		s.AgentTouched = true
		s.OpenCalls = append(s.OpenCalls, *p)
	case *ToolFinished:
		s.OpenCalls = slices.DeleteFunc(s.OpenCalls, func(c ToolStarted) bool {
			return c.Step == p.Step && c.Call == p.Call
		})
	}
}

func (s *Summary) takeEffect(p Payload) {
	if s.Effects == nil {
		s.Effects = map[string]Effect{}
	}
	switch p := p.(type) {
	case *EffectIntended:
		e := s.Effects[p.Key]
		e.Intended = p
		s.Effects[p.Key] = e
	case *EffectDone:
		e := s.Effects[p.Key]
		e.Done = p
		s.Effects[p.Key] = e
	}
}

func (s *Summary) takeSandbox(p Payload) {
	if s.Sandboxes == nil {
		s.Sandboxes = map[string]SandboxStarted{}
	}
	switch p := p.(type) {
	case *SandboxStarted:
		s.Sandboxes[p.ID] = *p
		if p.Purpose == "agent" {
			s.AgentSandbox, s.AgentTouched = p, false
		}
	case *SandboxEnded:
		delete(s.Sandboxes, p.ID)
	}
}

// NetworkName is one package that a sandbox asked a registry about.
type NetworkName struct {
	Ecosystem string   `json:"ecosystem"`
	Name      string   `json:"name"`
	Version   string   `json:"version,omitempty"`
	Notes     []string `json:"notes,omitempty"` // what a reviewer should know of this version
}

// Reach is what a task's sandboxes asked the package registries.
type Reach struct {
	Opened   *NetworkOpened   // the newest
	New      []NetworkName    // outside the base's lockfiles, in order
	Noted    []NetworkName    // versions with something a reviewer should know, the first [MaxReachRefused]
	Known    int              // names the base's lockfiles have, each counted once a sandbox
	Refused  []NetworkRefused // the first [MaxReachRefused]
	Refusals int              // all of them
}

// MaxReachRefused is how many refusals a summary holds.
const MaxReachRefused = 200

func (r *Reach) take(p Payload) {
	switch p := p.(type) {
	case *NetworkOpened:
		r.Opened = p
	case *NetworkAsked:
		if p.New {
			r.New = append(r.New, p.Names...)
			return
		}
		for _, n := range p.Names {
			if len(n.Notes) == 0 {
				r.Known++
			} else if len(r.Noted) < MaxReachRefused {
				r.Noted = append(r.Noted, n)
			}
		}
	case *NetworkRefused:
		r.Refusals++
		if len(r.Refused) < MaxReachRefused {
			r.Refused = append(r.Refused, *p)
		}
	}
}

func internalf(format string, args ...any) error {
	return &task.Error{Class: task.Internal, Msg: fmt.Sprintf(format, args...)}
}

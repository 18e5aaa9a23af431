package event

import (
	"encoding/json"
	"fmt"
)

// EventKind implements [Payload].
func (TaskCreated) EventKind() Kind { return "task.created" }

// EventKind implements [Payload].
func (RunStarted) EventKind() Kind { return "run.started" }

// EventKind implements [Payload].
func (LeaseTaken) EventKind() Kind { return "lease.taken" }

// EventKind implements [Payload].
func (StateChanged) EventKind() Kind { return "state.changed" }

// EventKind implements [Payload].
func (StageFinished) EventKind() Kind { return "stage.finished" }

// EventKind implements [Payload].
func (SnapshotReady) EventKind() Kind { return "snapshot.ready" }

// EventKind implements [Payload].
func (SandboxStarted) EventKind() Kind { return "sandbox.started" }

// EventKind implements [Payload].
func (SandboxRefused) EventKind() Kind { return "sandbox.refused" }

// EventKind implements [Payload].
func (SandboxEnded) EventKind() Kind { return "sandbox.ended" }

// EventKind implements [Payload].
func (SetupStarted) EventKind() Kind { return "setup.started" }

// EventKind implements [Payload].
func (SetupFinished) EventKind() Kind { return "setup.finished" }

// EventKind implements [Payload].
func (SetupReady) EventKind() Kind { return "setup.ready" }

// EventKind implements [Payload].
func (IndexReady) EventKind() Kind { return "index.ready" }

// EventKind implements [Payload].
func (BaselineFinished) EventKind() Kind { return "baseline.finished" }

// EventKind implements [Payload].
func (PromptFrozen) EventKind() Kind { return "prompt.frozen" }

// EventKind implements [Payload].
func (ModelRequested) EventKind() Kind { return "model.request" }

// EventKind implements [Payload].
func (ModelResponded) EventKind() Kind { return "model.response" }

// EventKind implements [Payload].
func (ModelFailed) EventKind() Kind { return "model.failed" }

// EventKind implements [Payload].
func (ToolStarted) EventKind() Kind { return "tool.started" }

// EventKind implements [Payload].
func (ToolFinished) EventKind() Kind { return "tool.finished" }

// EventKind implements [Payload].
func (Steered) EventKind() Kind { return "task.steered" }

// EventKind implements [Payload].
func (StopRequested) EventKind() Kind { return "task.stop_requested" }

// EventKind implements [Payload].
func (Noticed) EventKind() Kind { return "agent.notice" }

// EventKind implements [Payload].
func (Compacted) EventKind() Kind { return "agent.compacted" }

// EventKind implements [Payload].
func (WorkspaceSaved) EventKind() Kind { return "workspace.saved" }

// EventKind implements [Payload].
func (ReproductionChecked) EventKind() Kind { return "reproduction.checked" }

// EventKind implements [Payload].
func (Submitted) EventKind() Kind { return "agent.submitted" }

// EventKind implements [Payload].
func (Exported) EventKind() Kind { return "export.finished" }

// EventKind implements [Payload].
func (PolicyFound) EventKind() Kind { return "policy.finding" }

// EventKind implements [Payload].
func (ClaimDropped) EventKind() Kind { return "claim.dropped" }

// EventKind implements [Payload].
func (VerificationFinished) EventKind() Kind { return "verification.finished" }

// EventKind implements [Payload].
func (Declined) EventKind() Kind { return "agent.declined" }

// EventKind implements [Payload].
func (EffectIntended) EventKind() Kind { return "effect.intended" }

// EventKind implements [Payload].
func (EffectDone) EventKind() Kind { return "effect.done" }

// EventKind implements [Payload].
func (PullRequestOpened) EventKind() Kind { return "pull_request.opened" }

// EventKind implements [Payload].
func (PullRequestEnded) EventKind() Kind { return "pull_request.ended" }

// EventKind implements [Payload].
func (BudgetRaised) EventKind() Kind { return "budget.raised" }

// EventKind implements [Payload].
func (TargetMoved) EventKind() Kind { return "target.moved" }

// EventKind implements [Payload].
func (PublicationHeld) EventKind() Kind { return "publication.held" }

// EventKind implements [Payload].
func (PublicationApproved) EventKind() Kind { return "publication.approved" }

// EventKind implements [Payload].
func (QuestionAsked) EventKind() Kind { return "question.asked" }

// EventKind implements [Payload].
func (QuestionAnswered) EventKind() Kind { return "question.answered" }

// EventKind implements [Payload].
func (Rebased) EventKind() Kind { return "change.rebased" }

// EventKind implements [Payload].
func (RebaseUndone) EventKind() Kind { return "change.rebase_undone" }

// EventKind implements [Payload].
func (BranchPushed) EventKind() Kind { return "branch.pushed" }

// EventKind implements [Payload].
func (BranchAdopted) EventKind() Kind { return "branch.adopted" }

// EventKind implements [Payload].
func (PullRequestReverted) EventKind() Kind { return "pull_request.reverted" }

// EventKind implements [Payload].
func (WallClocked) EventKind() Kind { return "run.clocked" }

// EventKind implements [Payload].
func (Redacted) EventKind() Kind { return "secret.redacted" }

// EventKind implements [Payload].
func (Checkpoint) EventKind() Kind { return "log.checkpoint" }

// EventKind implements [Payload].
func (NetworkOpened) EventKind() Kind { return "network.opened" }

// EventKind implements [Payload].
func (NetworkAsked) EventKind() Kind { return "network.name" }

// EventKind implements [Payload].
func (NetworkRefused) EventKind() Kind { return "network.refused" }

// Current is the schema version that [New] writes. A kind whose schema changes in a way that
// old readers would misread gets a step in upgrade.
const Current = 1

// New makes a draft of the payload at the current version.
func New(p Payload) (Draft, error) {
	b, err := json.Marshal(p)
	if err != nil {
		return Draft{}, fmt.Errorf("encode event %s: %w", p.EventKind(), err)
	}
	return Draft{Kind: p.EventKind(), Version: Current, Payload: b}, nil
}

// Canonical returns the draft with its payload in the one form in which JSON encoders of this
// module leave it (compact, HTML characters escaped), so that an event keeps its hash when it
// travels as JSON. It fails with class [task.Invalid] when the kind is empty or the payload
// is not one JSON value.
func (d Draft) Canonical() (Draft, error) {
	if d.Kind == "" {
		return d, invalidf("an event needs a kind")
	}
	b, err := json.Marshal(d.Payload)
	if err != nil || d.Payload == nil {
		return d, invalidf("event %s: the payload is not JSON", d.Kind)
	}
	d.Payload = b
	return d, nil
}

// Unknown is the payload of a kind that this build does not know: a newer Daybreak wrote it.
// It is kept and shown, never dropped.
type Unknown struct {
	Kind Kind
	Raw  json.RawMessage
}

// EventKind implements [Payload].
func (u Unknown) EventKind() Kind { return u.Kind }

// Decode returns the typed payload as a pointer to its struct, or an [Unknown]. Fields that a
// newer version added are ignored.
func Decode(e Event) (Payload, error) {
	p := newPayload(e.Kind)
	if p == nil || e.Version > Current {
		return Unknown{Kind: e.Kind, Raw: e.Payload}, nil
	}
	if err := json.Unmarshal(e.Payload, p); err != nil {
		return nil, fmt.Errorf("event %d of %s (%s): %w", e.Seq, e.Task, e.Kind, err)
	}
	return p, nil
}

func newPayload(k Kind) Payload {
	switch k {
	case "task.created":
		return &TaskCreated{}
	case "run.started":
		return &RunStarted{}
	case "lease.taken":
		return &LeaseTaken{}
	case "state.changed":
		return &StateChanged{}
	case "stage.finished":
		return &StageFinished{}
	case "snapshot.ready":
		return &SnapshotReady{}
	case "sandbox.started":
		return &SandboxStarted{}
	case "sandbox.ended":
		return &SandboxEnded{}
	case "sandbox.refused":
		return &SandboxRefused{}
	case "setup.started":
		return &SetupStarted{}
	case "setup.finished":
		return &SetupFinished{}
	case "setup.ready":
		return &SetupReady{}
	case "index.ready":
		return &IndexReady{}
	case "baseline.finished":
		return &BaselineFinished{}
	case "prompt.frozen":
		return &PromptFrozen{}
	case "model.request":
		return &ModelRequested{}
	case "model.response":
		return &ModelResponded{}
	case "model.failed":
		return &ModelFailed{}
	case "tool.started":
		return &ToolStarted{}
	case "tool.finished":
		return &ToolFinished{}
	case "task.steered":
		return &Steered{}
	case "task.stop_requested":
		return &StopRequested{}
	case "agent.notice":
		return &Noticed{}
	case "agent.compacted":
		return &Compacted{}
	case "workspace.saved":
		return &WorkspaceSaved{}
	case "reproduction.checked":
		return &ReproductionChecked{}
	case "agent.submitted":
		return &Submitted{}
	case "export.finished":
		return &Exported{}
	case "policy.finding":
		return &PolicyFound{}
	case "claim.dropped":
		return &ClaimDropped{}
	case "evidence.signed":
		return &EvidenceSigned{}
	case "verification.finished":
		return &VerificationFinished{}
	case "agent.declined":
		return &Declined{}
	case "effect.intended":
		return &EffectIntended{}
	case "effect.done":
		return &EffectDone{}
	case "pull_request.opened":
		return &PullRequestOpened{}
	case "run.clocked":
		return &WallClocked{}
	case "secret.redacted":
		return &Redacted{}
	case "log.checkpoint":
		return &Checkpoint{}
	case "network.opened":
		return &NetworkOpened{}
	case "network.name":
		return &NetworkAsked{}
	case "network.refused":
		return &NetworkRefused{}
	}
	return newWord(k)
}

// newWord makes the payloads of what people say and do, of what is asked of them, and of what
// happens to their branches.
func newWord(k Kind) Payload {
	switch k {
	case "pull_request.ended":
		return &PullRequestEnded{}
	case "budget.raised":
		return &BudgetRaised{}
	case "target.moved":
		return &TargetMoved{}
	case "publication.held":
		return &PublicationHeld{}
	case "publication.approved":
		return &PublicationApproved{}
	case "question.asked":
		return &QuestionAsked{}
	case "question.answered":
		return &QuestionAnswered{}
	case "change.rebased":
		return &Rebased{}
	case "change.rebase_undone":
		return &RebaseUndone{}
	case "branch.pushed":
		return &BranchPushed{}
	case "branch.adopted":
		return &BranchAdopted{}
	case "pull_request.reverted":
		return &PullRequestReverted{}
	}
	return blankAttempt(k)
}

package event

import (
	"encoding/json"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Payload is the typed content of an event.
type Payload interface{ EventKind() Kind }

// Text is a string that lives in the event, or, above [InlineLimit], in a blob.
type Text struct {
	Inline string `json:"inline,omitempty"`
	Blob   string `json:"blob,omitempty"` // hex SHA-256
	Bytes  int    `json:"bytes"`
}

// TaskCreated is the first record: everything about the task that later runs may not change.
type TaskCreated struct {
	Repo        string      `json:"repo"`     // path or URL as the user gave it, without credentials
	Base        string      `json:"base"`     // commit id the task is pinned to
	BaseRef     string      `json:"base_ref"` // what the user named, or "HEAD"
	Target      string      `json:"target"`   // branch the pull request is for, may be empty
	IssueTitle  string      `json:"issue_title"`
	Issue       Text        `json:"issue"`      // normalised text, as the model sees it
	IssueRaw    Text        `json:"issue_raw"`  // as it arrived
	IssueHash   string      `json:"issue_hash"` // hex SHA-256 of the raw text
	Hidden      int         `json:"hidden_bytes,omitempty"`
	Model       string      `json:"model"` // "provider/model"
	Limits      task.Limits `json:"limits"`
	RequestedBy string      `json:"requested_by"`
	Settings    string      `json:"settings_hash"` // of the operator's policy, budgets and tools
	Key         string      `json:"key"`           // (repository, issue, base) fingerprint that finds the task again
	Origin      *Origin     `json:"origin,omitempty"`
	Attempts    int         `json:"attempts,omitempty"` // independent attempts that may be made; 0 and 1 are one
}

// Origin is the issue on a forge that a task comes from, and what made it one.
type Origin struct {
	Forge      string    `json:"forge"`      // as configured
	Repository string    `json:"repository"` // the forge's number
	Number     int       `json:"number"`     // of the issue
	URL        string    `json:"url"`
	Trigger    string    `json:"trigger"` // "label", "assignment", "mention", "retry"
	By         string    `json:"by"`      // who may write, as the forge said at that moment
	At         time.Time `json:"at"`      // of the trigger: what came later is not part of the issue
	Comments   []string  `json:"comments,omitempty"`
	LeftOut    []string  `json:"left_out,omitempty"` // comments that are not part of it, with the reason
}

// RunStarted opens an attempt under a new lease.
type RunStarted struct {
	Worker  string `json:"worker"`
	Resumed bool   `json:"resumed"`
	From    int64  `json:"from_seq"` // last record before this run
	Note    string `json:"note,omitempty"`
}

// LeaseTaken says that the store took the task from its owner, or ordered a run that was
// missing. It is recorded under the raised epoch, that nobody holds.
type LeaseTaken struct {
	Owner string `json:"owner,omitempty"` // who had the lease
	Epoch int64  `json:"epoch"`           // that is over
	Why   string `json:"why"`
}

// StateChanged moves the task along the table of legal transitions.
type StateChanged struct {
	From   task.State `json:"from"`
	To     task.State `json:"to"`
	Reason string     `json:"reason,omitempty"`
}

// StageFinished closes one of the worker's fixed stages: "prepare", "baseline", "agent",
// "verify", "publish".
type StageFinished struct {
	Stage  string `json:"stage"`
	Millis int64  `json:"ms"`
	Error  string `json:"error,omitempty"`
	Note   string `json:"note,omitempty"`
}

// SnapshotReady names the prepared tree.
type SnapshotReady struct {
	Digest   string   `json:"digest"`
	Base     string   `json:"base"`
	Files    int      `json:"files"`
	Bytes    int64    `json:"bytes"`
	Warnings []string `json:"warnings,omitempty"` // submodules, LFS pointers, …
	Cached   bool     `json:"cached"`
	Rebuilt  string   `json:"rebuilt,omitempty"` // why the repository's mirror or the snapshot was made anew
	Millis   int64    `json:"ms"`
}

// SandboxStarted records what isolates the commands that follow.
type SandboxStarted struct {
	ID        string `json:"id"`
	Purpose   string `json:"purpose"`
	Runtime   string `json:"runtime"`
	Isolation string `json:"isolation"`
	Profile   string `json:"profile"` // digest of the security profile
	Limits    string `json:"limits"`
	Millis    int64  `json:"ms"`
	// Stood says that it stood ready when it was asked for: Millis is how long handing it over took.
	Stood bool `json:"stood_ready,omitempty"`
}

// SandboxRefused says which layer of a sandbox could not be set up. Nothing ran without it.
type SandboxRefused struct {
	Layer string `json:"layer"`
	Error string `json:"error"` // one line
}

// SandboxEnded is written when every process of a sandbox is gone.
type SandboxEnded struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// SetupStarted is written before a command that prepares dependencies runs.
type SetupStarted struct {
	N       int    `json:"n"` // of Of, from 1
	Of      int    `json:"of"`
	Name    string `json:"name"`
	Command string `json:"command"`
	Dir     string `json:"dir"` // below the work tree
	Root    bool   `json:"root,omitempty"`
	Why     string `json:"why"` // what made detection choose it
}

// SetupFinished is written when it has ended.
type SetupFinished struct {
	N        int    `json:"n"`
	Name     string `json:"name"`
	Command  string `json:"command"`
	ExitCode int    `json:"exit_code"`
	TimedOut bool   `json:"timed_out,omitempty"`
	Optional bool   `json:"optional,omitempty"` // a failure is a warning
	Millis   int64  `json:"ms"`
	Log      Text   `json:"log"` // the command with its whole output
}

// SetupReady names the prepared dependencies from which every later sandbox of the task starts.
type SetupReady struct {
	Digest   string   `json:"digest"` // "" when there was nothing to prepare
	Cached   bool     `json:"cached"` // from an earlier task with the same lockfiles and commands
	Commands []string `json:"commands,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	Undone   []string `json:"undone,omitempty"` // tracked files that setup changed: they are as the base has them
	Left     []string `json:"left,omitempty"`   // untracked paths in the checkout that are setup's and leave with no change
	Millis   int64    `json:"ms"`
}

// IndexReady says from what the agent's searches are answered: the search index of the snapshot
// with its dependencies, or, with Files 0, ripgrep alone.
type IndexReady struct {
	Cached   bool     `json:"cached"`             // it was there already
	Advanced bool     `json:"advanced,omitempty"` // made from that of an earlier commit
	Later    bool     `json:"later,omitempty"`    // built while the agent works, for later tasks
	Files    int      `json:"files"`
	Text     int64    `json:"text"`  // bytes of the files
	Bytes    int64    `json:"bytes"` // of the index
	Symbols  int      `json:"symbols"`
	Slow     []string `json:"slow,omitempty"`    // files whose symbols could not be read in time
	Trouble  string   `json:"trouble,omitempty"` // why there is none or it was made anew; one line
	Millis   int64    `json:"ms"`
}

// BaselineFinished summarises the suite on the base commit.
type BaselineFinished struct {
	Runner   string   `json:"runner"`
	Command  string   `json:"command"`
	Passed   int      `json:"passed"`
	Failed   int      `json:"failed"`
	Skipped  int      `json:"skipped"`
	Flaky    []string `json:"flaky,omitempty"`
	Runs     int      `json:"runs"`
	Problem  string   `json:"problem,omitempty"` // why there is no usable baseline
	Document Text     `json:"document"`          // the ledger, JSON
}

// PromptFrozen stores the byte-stable prefix once: system text, tools and first message.
type PromptFrozen struct {
	Prefix Text   `json:"prefix"` // JSON
	Hash   string `json:"hash"`
}

// ModelRequested is written before a call leaves the machine.
type ModelRequested struct {
	Step      int    `json:"step"`
	Model     string `json:"model"`
	Messages  int    `json:"messages"`
	Hash      string `json:"hash"`      // of the whole request as sent
	Prefix    string `json:"prefix"`    // hash of the part that is equal to the request before
	Estimated int64  `json:"estimated"` // input tokens, upper estimate
	MaxOutput int    `json:"max_output"`
}

// ModelResponded holds a reply. It is paid for once: a resumed run uses this record.
type ModelResponded struct {
	Step      int           `json:"step"`
	Message   Text          `json:"message"` // JSON of the assistant's message, provider blocks kept
	Stop      string        `json:"stop"`
	Tokens    task.Tokens   `json:"tokens"`           // of the successful attempt
	Wasted    task.Tokens   `json:"wasted,omitzero"`  // of failed attempts
	Cost      task.MicroUSD `json:"cost_micro_usd"`   // both
	Attempts  int           `json:"attempts"`         // 1 when the first try worked
	First     int64         `json:"first_byte_ms"`    //
	Millis    int64         `json:"ms"`               //
	RequestID string        `json:"request_id"`       // the provider's
	Priced    bool          `json:"priced,omitempty"` // false: the catalogue has no price, cost is 0
}

// ModelFailed ends a call for which no attempt succeeded.
type ModelFailed struct {
	Step     int           `json:"step"`
	Class    task.Class    `json:"class"`
	Error    string        `json:"error"`
	Wasted   task.Tokens   `json:"wasted,omitzero"`
	Cost     task.MicroUSD `json:"cost_micro_usd"`
	Attempts int           `json:"attempts"`
	Millis   int64         `json:"ms"`
}

// ToolStarted is written before a tool runs.
type ToolStarted struct {
	Step int    `json:"step"`
	Call string `json:"call"` // the model's id of the call
	Name string `json:"name"`
	Args Text   `json:"args"` // JSON as the model sent it
}

// ToolFinished holds what the model will be told.
type ToolFinished struct {
	Step        int    `json:"step"`
	Call        string `json:"call"`
	Name        string `json:"name"`
	Result      Text   `json:"result"`
	IsError     bool   `json:"is_error"`
	ExitCode    *int   `json:"exit_code,omitempty"`
	Millis      int64  `json:"ms"`
	Interrupted bool   `json:"interrupted,omitempty"` // written on resume for a call that never ended
}

// Steered is a person's word taken up by the running task.
type Steered struct {
	Signal string `json:"signal"` // id in the inbox, taken once
	Who    string `json:"who"`
	Text   Text   `json:"text"`
}

// StopRequested is a person's stop taken up by the running task.
type StopRequested struct {
	Signal string `json:"signal"`
	Who    string `json:"who"`
	Reason string `json:"reason"`
}

// Noticed records a text that the harness itself put into the conversation: a budget notice,
// a stuck nudge, a reminder to submit.
type Noticed struct {
	Step  int    `json:"step"`
	What  string `json:"what"`            // "budget", "stuck", "idle", "cut", …
	Meter string `json:"meter,omitempty"` // of a budget notice
	Text  string `json:"text"`
}

// Compacted drops whole call/result pairs from the conversation, oldest first.
type Compacted struct {
	Step    int    `json:"step"`
	Dropped int    `json:"dropped_messages"`
	Before  int64  `json:"before_tokens"`
	After   int64  `json:"after_tokens"`
	Note    string `json:"note"` // what the model is told in place of what was dropped
}

// WorkspaceSaved keeps the agent's change so far, so that a resume or an end loses nothing.
type WorkspaceSaved struct {
	Step   int    `json:"step"`
	Why    string `json:"why"`
	Change Text   `json:"change"` // JSON of the exported files
	Diff   Text   `json:"diff"`   // unified, for people
	Files  int    `json:"files"`
}

// ReproductionChecked is the harness's answer to the agent's `reproduce`.
type ReproductionChecked struct {
	Step   int              `json:"step"`
	Tests  []string         `json:"tests"`
	Kind   task.VerdictKind `json:"kind"` // Verified stands for "fails for the right reason"
	Reason string           `json:"reason"`
	Detail Text             `json:"detail"`
	Millis int64            `json:"ms"`
}

// Submitted is the agent's request for verification with its words for the pull request.
type Submitted struct {
	Step  int      `json:"step"`
	Title string   `json:"title"`
	Cause string   `json:"cause"`
	Fix   string   `json:"fix"`
	Tests []string `json:"tests"`
}

// Exported is the change as the host rebuilt it.
type Exported struct {
	Manifest string   `json:"manifest"` // digest
	Tree     string   `json:"tree"`
	Paths    []string `json:"paths"`
	LeftOut  []string `json:"left_out,omitempty"` // ignored by the base's rules
	Diff     Text     `json:"diff"`
}

// PolicyFound is one decision about a path or a text.
type PolicyFound struct {
	Finding task.Finding `json:"finding"`
}

// ClaimDropped is a sentence of the agent's that the pull request leaves out, because the record
// does not bear it out.
type ClaimDropped struct {
	Where string `json:"where"` // "title", "cause" or "fix"
	Text  string `json:"text"`
	Why   string `json:"why"` // one line
}

// VerificationFinished holds the verdict.
type VerificationFinished struct {
	Attempt  int              `json:"attempt"`
	Kind     task.VerdictKind `json:"kind"`
	Reason   string           `json:"reason"`
	Document Text             `json:"document"` // JSON of task.Verdict
	Millis   int64            `json:"ms"`
}

// Declined is the agent's honest no.
type Declined struct {
	Step   int    `json:"step"`
	Kind   string `json:"kind"` // "cannot_reproduce", "needs_information", "out_of_scope", "already_fixed", "too_risky"
	Reason string `json:"reason"`
	Tried  string `json:"tried"`
}

// EffectIntended is written under a key before an outside effect.
type EffectIntended struct {
	Key  string          `json:"key"` // unique in the task
	Kind string          `json:"kind"`
	Args json.RawMessage `json:"args,omitempty"`
}

// EffectDone is written after it, also when a later run finds it already done.
type EffectDone struct {
	Key    string          `json:"key"`
	Kind   string          `json:"kind"`
	Found  bool            `json:"found,omitempty"` // it had happened before a crash
	Error  string          `json:"error,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// BudgetRaised is a person's word that the task may spend more. Limits hold from then on; they
// are the old ones when it was refused.
type BudgetRaised struct {
	Signal  string      `json:"signal,omitempty"`
	Who     string      `json:"who"`
	Limits  task.Limits `json:"limits"`
	Refused string      `json:"refused,omitempty"` // why it was not raised
}

// PublicationHeld says that a verified change waits for a person's word.
type PublicationHeld struct {
	Tree  string `json:"tree"` // what would be published
	Files int    `json:"files"`
}

// PublicationApproved is that word. It is for one tree: another change needs another one.
type PublicationApproved struct {
	Signal string `json:"signal"`
	Who    string `json:"who"`
	Tree   string `json:"tree"`
}

// TargetMoved says that the target branch is no longer at the base, and what that means for the
// change. It is looked at once for each publication.
type TargetMoved struct {
	Target    string   `json:"target"`
	Base      string   `json:"base"`
	Head      string   `json:"head"`                // of the target
	Conflicts []string `json:"conflicts,omitempty"` // paths that do not merge; none: it merges as it is
	Problem   string   `json:"problem,omitempty"`   // why that is not known
}

// QuestionAsked is the agent's question to people. The task rests without a worker until
// somebody answers, or until the time is over.
type QuestionAsked struct {
	N        int       `json:"n"` // of the task, from 1
	Step     int       `json:"step"`
	Call     string    `json:"call,omitempty"` // that the answer is the result of; "" when the worker itself asks
	Question string    `json:"question"`
	Tried    string    `json:"tried"`
	Until    time.Time `json:"until"` // without an answer the task is declined then
}

// QuestionAnswered is what a person said to it.
type QuestionAnswered struct {
	N      int    `json:"n"` // of the question
	Signal string `json:"signal"`
	Who    string `json:"who"`
	Text   Text   `json:"text"`
}

// Rebased puts the change on the commit that the target branch has moved to. What was proven on
// the base before counts for nothing until the change is proven on the new one, or the rebase is
// undone.
type Rebased struct {
	Target string `json:"target"`
	From   string `json:"from"`  // base so far
	To     string `json:"to"`    // base from now on
	Round  int    `json:"round"` // of the task, from 1
}

// RebaseUndone goes back to what was proven on the base before.
type RebaseUndone struct {
	To     string           `json:"to"`             // the base again
	Head   string           `json:"head"`           // of the target, on which the change could not be proven
	Kind   task.VerdictKind `json:"kind,omitempty"` // the verdict there
	Reason string           `json:"reason"`
}

// PullRequestOpened is the product.
type PullRequestOpened struct {
	Branch string `json:"branch"`
	Head   string `json:"head"`           // commit id
	Base   string `json:"base,omitempty"` // on which the head was proven
	URL    string `json:"url"`            // or path
	Number int    `json:"number,omitempty"`
	Title  string `json:"title"`
	Body   Text   `json:"body"`
	Draft  bool   `json:"draft"`
}

// PullRequestEnded is a person's word on the product.
type PullRequestEnded struct {
	Number int       `json:"number"`
	Merged bool      `json:"merged"`
	By     string    `json:"by,omitempty"` // who merged it
	Commit string    `json:"commit,omitempty"`
	At     time.Time `json:"at"`
}

// BranchPushed is somebody else's push to the branch of the task's pull request.
type BranchPushed struct {
	By   string    `json:"by"`
	Head string    `json:"head"`
	At   time.Time `json:"at"`
}

// BranchAdopted says that a follow-up begins with what people pushed to the branch, and puts its
// commit on theirs.
type BranchAdopted struct {
	From  string   `json:"from"`  // the head that Daybreak pushed
	Head  string   `json:"head"`  // theirs
	Base  string   `json:"base"`  // that their head stands on
	Paths []string `json:"paths"` // that they changed
}

// PullRequestReverted is a commit on the target branch that says it takes the merged change
// back.
type PullRequestReverted struct {
	Commit string    `json:"commit"`
	By     string    `json:"by"` // its author, which nobody vouches for
	At     time.Time `json:"at"`
}

// WallClocked adds time under the lease to the budget; written with other events, so that a
// crash loses at most one step's worth.
type WallClocked struct {
	Elapsed time.Duration `json:"elapsed_ns"`
}

// Redacted says that a secret's text was masked before it was stored.
type Redacted struct {
	Where string `json:"where"`
	Rule  string `json:"rule"`
	Count int    `json:"count"`
}

// Checkpoint signs the log so far.
type Checkpoint struct {
	Seq       int64  `json:"seq"`  // last record covered
	Root      string `json:"root"` // its hash
	KeyID     string `json:"key_id"`
	Signature string `json:"signature"` // base64 Ed25519 over the domain-separated root
}

// NetworkOpened says how far the next sandbox of this purpose may reach. Nothing of the kind
// means: nowhere.
type NetworkOpened struct {
	Purpose   string   `json:"purpose"`
	Mode      string   `json:"mode"`      // "registries" or "store"
	Upstreams []string `json:"upstreams"` // "ecosystem host"
	Known     int      `json:"known"`     // names in the base's lockfiles
}

// NetworkAsked records names before a registry hears of them. New ones, which no lockfile of
// the base has, come one at a time; known ones may come together, after the answer.
type NetworkAsked struct {
	Purpose string        `json:"purpose"`
	New     bool          `json:"new,omitempty"`
	Names   []NetworkName `json:"names"`
}

// NetworkRefused is one request for a package that was turned away.
type NetworkRefused struct {
	Purpose   string `json:"purpose"`
	Ecosystem string `json:"ecosystem,omitempty"`
	Name      string `json:"name,omitempty"`
	Version   string `json:"version,omitempty"`
	Reason    string `json:"reason"`
	Detail    string `json:"detail,omitempty"`
}

// Package tool is the seam between the model and its hands. One tool is one Go file and one
// Markdown description beside it; the registry fixes their order; a result is shaped for the
// model here and nowhere else.
//
// Invariants: everything a tool touches is inside the sandbox; a description's numbers come
// from the constants the code uses; a result always says how a command ended and how long it
// took; no text that a model sent is run on the host.
package tool

import (
	"context"
	"encoding/json"
	"time"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/model"
)

// Tool is one thing the model can ask for.
type Tool interface {
	Spec() model.ToolSpec
	// Call never panics on bad input: a schema error is a Result with IsError set. An error
	// is returned only when the sandbox or the harness itself failed.
	Call(ctx context.Context, env *Env, input json.RawMessage) (Result, error)
}

// Env is what one task's tools share.
type Env struct {
	Guest   *guest.Client
	Harness Harness
	// Seen remembers the digest of each file the model has read, as shown, by path.
	Seen map[string]string
}

// Harness is how a tool asks for the verifier. Its answers are texts for the model.
type Harness interface {
	Reproduce(ctx context.Context, r ReproduceRequest) (Result, error)
	Submit(ctx context.Context, r SubmitRequest) (Result, error)
	Decline(ctx context.Context, r DeclineRequest) (Result, error)
	Ask(ctx context.Context, r AskRequest) (Result, error)
}

// ReproduceRequest names the tests that show the bug.
type ReproduceRequest struct {
	Tests []string `json:"tests"` // ids as the runner prints them
	Files []string `json:"files"` // paths of the test files
}

// SubmitRequest asks for verification.
type SubmitRequest struct {
	Title string   `json:"title"`
	Cause string   `json:"cause"`
	Fix   string   `json:"fix"`
	Tests []string `json:"tests"`
}

// DeclineRequest is an honest no.
type DeclineRequest struct {
	Kind   string `json:"kind"`
	Reason string `json:"reason"`
	Tried  string `json:"tried"`
}

// AskRequest is one question to people.
type AskRequest struct {
	Question string `json:"question"`
	Tried    string `json:"tried"`
}

// End says that a call ends the agent's turn at the task.
type End string

// The ends.
const (
	Continue End = ""
	Accepted End = "accepted" // submit was verified
	Gave     End = "declined"
	Waits    End = "waits" // for a person's answer: the call has no result yet, and is made once more when there is one
)

// Result is what goes back to the model and into the log.
type Result struct {
	Text     string
	IsError  bool
	ExitCode *int // of a command
	Wall     time.Duration
	End      End
	Reason   string // one line for the record when End is set
}

// Package replay runs a recorded task again: the loop, the tools, the sandbox and the verifier
// are the real ones, the model's replies and people's words come from the record. It compares
// what happens with what is recorded and names the first difference.
//
// Invariants: no provider is asked and nothing is published; the record is only read, what the
// replay writes goes into a store of its own; what may differ between two runs of the same
// thing is a short list of names, [Rules]; everything else that differs is a divergence.
package replay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/worker"
)

// Record is a recorded task: its events, and the texts that they keep as blobs.
type Record struct {
	Events []event.Event
	Blob   func(ctx context.Context, digest string) ([]byte, error) // class NotFound
}

// Config is what a replay needs. All fields without "may be" are required.
type Config struct {
	Record  Record
	Scratch func(ctx context.Context) (store.Store, error) // a new empty one; closed when done with
	Worker  worker.Config                                  // as for a run of the task; what would reach out is replaced
	Info    model.Info                                     // of the recorded model; without a context size one is assumed
	Source  string                                         // where the repository is; "" is what the record names
	// IgnorePrompt goes on when the prompt is another one than the recorded.
	IgnorePrompt bool
	// To stops at the event with this number, before the first call that ended after it, and asks
	// At; 0 replays the whole record.
	To int64
	At func(ctx context.Context, g *guest.Client) error
}

// Kind says what differed.
type Kind string

// The kinds of divergence.
const (
	Prompt   Kind = "prompt"   // system text, tools or first message
	Request  Kind = "request"  // the rest of what the model is sent
	Result   Kind = "result"   // of a tool call
	Verdict  Kind = "verdict"  // of a reproduction or a verification
	Change   Kind = "change"   // the files as the agent left them, or the tree made of them
	Baseline Kind = "baseline" // the suite on the base commit
	Course   Kind = "course"   // what happens next
	Failed   Kind = "failed"   // the replay itself could not go on
)

// Divergence is the first difference between the record and the replay.
type Divergence struct {
	Kind Kind   `json:"kind"`
	Seq  int64  `json:"seq"` // of the recorded event; 0 past its end
	Step int    `json:"step"`
	Call string `json:"call,omitempty"` // the model's id of the call
	Tool string `json:"tool,omitempty"`
	What string `json:"what"`           // one line
	Diff string `json:"diff,omitempty"` // "-" recorded, "+" now
}

// Report is what a replay found.
type Report struct {
	Task       task.ID        `json:"task"`
	Runs       int            `json:"runs"`     // attempts of the record with something to replay
	Requests   int            `json:"requests"` // to the model, equal ones
	Calls      int            `json:"calls"`    // of tools, with equal results
	Verdicts   int            `json:"verdicts"` // equal ones
	Tree       string         `json:"tree"`     // of the verified change, equal in both; "" where there is none
	Reached    bool           `json:"reached"`  // the event that was asked for
	Divergence *Divergence    `json:"divergence,omitempty"`
	Notes      []string       `json:"notes,omitempty"`      // what limits this replay, one line each
	Normalised map[string]int `json:"normalised,omitempty"` // differences that a rule explains, by its name
}

var (
	errDiverged = errors.New("replay: it diverged")
	errCut      = errors.New("replay: the record ends here")
	errReached  = errors.New("replay: the event was reached")
)

// Run replays the record. The error is the replay's own trouble; a divergence is in the report.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if len(cfg.Record.Events) == 0 {
		return Report{}, &task.Error{Class: task.Invalid, Msg: "the record holds no event"}
	}
	log, err := read(cfg.Record)
	if err != nil {
		return Report{}, err
	}
	rep := Report{Task: log.id, Normalised: map[string]int{}}
	if cfg.To < 0 || cfg.To > log.last {
		return rep, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("the record has no event %d, its last is %d", cfg.To, log.last)}
	}
	if cfg.Info.Context == 0 {
		rep.Notes = append(rep.Notes, "the model "+log.created.Model+" has no known context size and price here: what follows from them is not compared")
	}
	rep.Notes = append(rep.Notes, log.rebases()...)
	attempts := log.attempts(cfg.To)
	if len(attempts) == 0 {
		return rep, &task.Error{Class: task.Invalid, Msg: "nothing in the record can be replayed: the agent never got to work"}
	}
	for _, a := range attempts {
		done, err := one(ctx, cfg, log, a, &rep)
		if done || err != nil {
			return rep, err
		}
		rep.Runs++
	}
	return rep, nil
}

// one replays one attempt. done says that there is nothing to do after it.
func one(ctx context.Context, cfg Config, log *record, a attempt, rep *Report) (done bool, err error) {
	own, err := cfg.Scratch(ctx)
	if err != nil {
		return true, err
	}
	defer func() { err = errors.Join(err, own.Close()) }()
	scratch := &overlay{Store: own, record: cfg.Record}
	if err := seed(ctx, scratch, log, a); err != nil {
		return true, fmt.Errorf("prepare the replay: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c, err := newComparison(ctx, cfg, log, a, scratch, rep, cancel)
	if err != nil {
		return true, err
	}
	wc := cfg.Worker
	wc.Store, wc.Forge, wc.Hold, wc.Sign, wc.Attest, wc.Dead = scratch, nil, true, nil, nil, nil
	wc.Most, wc.Draining, wc.Show, wc.Notify = task.Limits{}, nil, nil, worker.Notify{}
	if !log.asks {
		wc.Questions = worker.Questions{}
	}
	wc.Observe = c.observe
	wc.Model = func(string) (model.Client, error) { return &client{c, cfg.Info}, nil }
	wc.Again = &worker.Again{Source: cfg.Source, Nonce: log.nonce, Tools: c.tools}
	_, err = worker.New(wc).Run(ctx, log.id)
	switch cause := context.Cause(ctx); {
	case rep.Divergence != nil:
		return true, nil
	case rep.Reached:
		return true, c.failure
	case errors.Is(cause, errCut), errors.Is(cause, errReached):
		return false, nil
	case ctx.Err() != nil:
		return true, cause
	case c.failure != nil:
		return true, c.failure
	}
	if next, more := c.next(); more {
		c.diverge(Divergence{Kind: Failed, Seq: next.seq, Step: next.step, What: "the record goes on with " + next.name() + ", the replay ended" + because(err)})
		return true, nil
	}
	return false, nil
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + strings.Join(strings.Fields(err.Error()), " ")
}

// leaseTTL keeps the heartbeat of a replay out of the way.
const leaseTTL = time.Minute

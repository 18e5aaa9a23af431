// Package agent owns the loop between the model and its tools: the request built from the
// log, budgets, steering, compaction, the watch for loops, and the ways in which the loop
// ends.
//
// Invariants: a request is a fold over recorded events and its prefix never changes byte for
// byte (a compaction starts a new one after the first message); nothing is done that could not
// be recorded first; budgets are checked before each call with the most that call can cost; a
// call cut by the length limit is never executed; every call has exactly one result.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/tool"
)

// Log is the task's record as the loop needs it. The worker implements it under its lease.
type Log interface {
	// Append stores the payloads in order, all or none.
	Append(ctx context.Context, p ...event.Payload) ([]event.Event, error)
	Text(ctx context.Context, s string) (event.Text, error)
	Load(ctx context.Context, t event.Text) (string, error)
	// Spent is what the task has used up to this moment, over all runs.
	Spent() task.Spent
	// Inbox returns a person's words that wait; Take records them with the payloads.
	Inbox(ctx context.Context) ([]Signal, error)
	Take(ctx context.Context, ids []string, p ...event.Payload) ([]event.Event, error)
}

// Signal is a person's word waiting for the task.
type Signal struct {
	ID, Kind, Who, Text string // Kind: "stop", or "steer", "note" and "answer", which are for the agent
	At                  time.Time
}

// Redactor masks secrets before a text is stored. It returns the text and the number of
// masked places by rule.
type Redactor interface {
	Redact(s string) (string, map[string]int)
}

// Config is what the loop needs.
type Config struct {
	Model     model.Client
	Tools     *tool.Registry
	Log       Log
	Redactor  Redactor
	Limits    task.Limits
	Raised    func() task.Limits // the limits as they are now, instead of Limits; may be nil
	MaxOutput int                // tokens of one reply; lowered when the budget is nearly spent
	Thinking  int                // token budget for thinking, 0: off
	Context   int                // tokens after which the conversation is compacted; 0: the model's own size
	CacheKey  string
	Now       func() time.Time
	Logger    *slog.Logger
	Show      func(model.Delta) // live display, may be nil
	Pause     func() error      // asked before each step; its error ends the loop there; may be nil
}

// Ending says how the loop ended.
type Ending string

// The endings.
const (
	Accepted  Ending = "accepted"  // submit was verified
	Declined  Ending = "declined"  // the agent's honest no
	Exhausted Ending = "exhausted" // a budget ran out
	Stopped   Ending = "stopped"   // a person
	Waiting   Ending = "waiting"   // for an answer to the agent's question; the call is still open
	Stuck     Ending = "stuck"     // a loop that a nudge did not end, or no use of tools
)

// Outcome is the loop's end with a line for people.
type Outcome struct {
	Ending Ending
	Reason string
}

// Agent runs one task's loop.
type Agent struct {
	cfg     Config
	conv    *Conversation
	env     *tool.Env
	queue   []event.Payload // folded already, stored with the next append
	resumed map[string]bool // calls that an earlier run had started
}

// New returns an agent that continues from conv.
func New(cfg Config, conv *Conversation, env *tool.Env) *Agent {
	if cfg.MaxOutput <= 0 {
		cfg.MaxOutput = DefaultMaxOutput
	}
	return &Agent{cfg: cfg, conv: conv, env: env, resumed: maps.Clone(conv.startedCalls)}
}

// DefaultMaxOutput is the most tokens of one reply.
const DefaultMaxOutput = 16_000

const (
	maxIdle   = 3 // replies in a row without a call
	maxTooBig = 3 // compactions in a row after the provider refused the size
)

// Run goes on until an ending. An error means that Daybreak, the provider or the machine
// failed; everything so far is in the log and a new agent may go on from it.
func (a *Agent) Run(ctx context.Context) (Outcome, error) {
	if err := a.countLost(ctx); err != nil {
		return Outcome{}, err
	}
	out, err := a.loop(ctx)
	if ferr := a.append(context.WithoutCancel(ctx)); ferr != nil && task.ClassOf(err) != task.Stale {
		err = errors.Join(err, ferr)
	}
	return out, err
}

func (a *Agent) loop(ctx context.Context) (Outcome, error) {
	idle, tooBig := 0, 0
	for {
		if out, err := a.signals(ctx); err != nil || out.Ending != "" {
			return out, err
		}
		if out, err := a.answerOpen(ctx); err != nil || out.Ending != "" {
			return out, err
		}
		if a.cfg.Pause != nil {
			if err := a.cfg.Pause(); err != nil {
				return Outcome{}, err
			}
		}
		if err := a.prompt(ctx); err != nil {
			return Outcome{}, err
		}
		if out, err := a.checkStuck(ctx); err != nil || out.Ending != "" {
			return out, err
		}
		d, err := a.compactIfLarge(ctx, false)
		if err != nil {
			return Outcome{}, err
		}
		d, out, err := a.admit(ctx, d)
		if err != nil || out.Ending != "" {
			return out, err
		}
		err = a.call(ctx, d)
		if task.ClassOf(err) == task.TooLarge && tooBig < maxTooBig {
			tooBig++
			if _, err := a.compactIfLarge(ctx, true); err != nil {
				return Outcome{}, err
			}
			continue
		}
		if err != nil {
			return a.ended(ctx, err)
		}
		tooBig = 0
		if len(a.conv.open) > 0 {
			idle = 0
			continue
		}
		if idle++; idle >= maxIdle {
			return Outcome{Stuck, fmt.Sprintf("the model answered %d times without using a tool", idle)}, nil
		}
	}
}

// prompt answers a reply that asked for nothing: the next request has to end with a word of
// ours, also when the run before died right after the reply.
func (a *Agent) prompt(ctx context.Context) error {
	switch {
	case a.conv.Step == 0 || len(a.conv.tail) > 0:
		return nil
	case a.conv.last.Stop == string(model.StopMaxTokens):
		return a.notice(ctx, noticeCut, "", cutText)
	}
	return a.notice(ctx, noticeIdle, "", idleText)
}

// ended turns a cancelled context into the ending that its cause stands for.
func (a *Agent) ended(ctx context.Context, err error) (Outcome, error) {
	var cause *task.Error
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &cause) {
		switch cause.Class {
		case task.Budget:
			return Outcome{Exhausted, cause.Msg}, nil
		case task.StoppedBy:
			return Outcome{Stopped, cause.Msg}, nil
		}
		return Outcome{}, cause
	}
	var e *task.Error
	if errors.As(err, &e) && e.Class == task.Budget {
		return Outcome{Exhausted, e.Msg}, nil
	}
	return Outcome{}, err
}

// signals takes up what people said. A stop wins over everything else in the inbox.
func (a *Agent) signals(ctx context.Context) (Outcome, error) {
	in, err := a.cfg.Log.Inbox(ctx)
	if err != nil || len(in) == 0 {
		return Outcome{}, err
	}
	var (
		ids      []string
		payloads []event.Payload
		out      Outcome
	)
	for _, s := range in {
		switch s.Kind {
		case "stop", "steer", "note", "answer": // an answer that comes late is a word like any other
		default:
			continue
		}
		ids = append(ids, s.ID)
		if s.Kind == "stop" {
			payloads = append(payloads, event.StopRequested{Signal: s.ID, Who: s.Who, Reason: s.Text})
			out = Outcome{Stopped, "stopped by " + s.Who}
			if s.Text != "" {
				out.Reason += ": " + s.Text
			}
			continue
		}
		t, err := a.cfg.Log.Text(ctx, s.Text)
		if err != nil {
			return Outcome{}, err
		}
		payloads = append(payloads, event.Steered{Signal: s.ID, Who: s.Who, Text: t})
	}
	if ids == nil {
		return Outcome{}, nil
	}
	if err := a.append(ctx); err != nil {
		return Outcome{}, err
	}
	evs, err := a.cfg.Log.Take(ctx, ids, payloads...)
	if err != nil {
		return Outcome{}, err
	}
	for _, e := range evs {
		if err := a.conv.Apply(e, a.loader(ctx)); err != nil {
			return Outcome{}, err
		}
	}
	return out, nil
}

func (a *Agent) loader(ctx context.Context) func(event.Text) (string, error) {
	return func(t event.Text) (string, error) { return a.cfg.Log.Load(ctx, t) }
}

// append stores what is queued and p in one write, then folds p.
func (a *Agent) append(ctx context.Context, p ...event.Payload) error {
	if all := append(a.queue, p...); len(all) > 0 {
		if _, err := a.cfg.Log.Append(ctx, all...); err != nil {
			return err
		}
	}
	a.queue = nil
	return a.fold(ctx, p)
}

// later folds p now and stores it with the next append, which always comes before the next
// outside effect. A crash in between is a crash before the result: the call counts as
// interrupted.
func (a *Agent) later(ctx context.Context, p ...event.Payload) error {
	a.queue = append(a.queue, p...)
	return a.fold(ctx, p)
}

func (a *Agent) fold(ctx context.Context, ps []event.Payload) error {
	for _, p := range ps {
		d, err := event.New(p)
		if err != nil {
			return err
		}
		if err := a.conv.Apply(event.Event{Kind: d.Kind, Version: d.Version, Payload: d.Payload}, a.loader(ctx)); err != nil {
			return err
		}
	}
	return nil
}

func (a *Agent) notice(ctx context.Context, what, meter, text string) error {
	return a.append(ctx, event.Noticed{Step: a.conv.Step, What: what, Meter: meter, Text: text})
}

func (a *Agent) checkStuck(ctx context.Context) (Outcome, error) {
	switch n := a.conv.stuck.count(); {
	case n >= stuckStop:
		return Outcome{Stuck, fmt.Sprintf("the same call came back with the same result %d times", n)}, nil
	case n >= stuckNudge && !a.conv.stuck.nudgedNow():
		return Outcome{}, a.notice(ctx, noticeStuck, "", stuckText(n))
	}
	return Outcome{}, nil
}

// Tell puts a text of the harness into the conversation before the loop starts.
func (a *Agent) Tell(ctx context.Context, what, text string) error {
	return a.notice(ctx, what, "", text)
}

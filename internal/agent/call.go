package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/tool"
)

// call sends one request. Its intent is stored before it leaves, its reply before anything is
// done with it.
func (a *Agent) call(ctx context.Context, d draft) error {
	step, req, body := a.conv.Step+1, d.req, d.body
	info := a.cfg.Model.Info()
	if err := a.append(ctx, event.ModelRequested{
		Step: step, Model: info.Provider + "/" + info.Model, Messages: len(req.Messages),
		Hash: hash(body), Prefix: a.conv.prefixHash, Estimated: a.estimate(len(body)), MaxOutput: req.MaxOutput,
	}); err != nil {
		return err
	}
	begin := a.cfg.Now()
	first := int64(0)
	resp, err := model.Collect(a.withinBudget(a.cfg.Model.Stream(ctx, req), d), func(d model.Delta) {
		if first == 0 {
			first = a.cfg.Now().Sub(begin).Milliseconds()
		}
		if a.cfg.Show != nil {
			a.cfg.Show(d)
		}
	})
	took := a.cfg.Now().Sub(begin).Milliseconds()
	if err != nil {
		return a.callFailed(ctx, step, took, err)
	}
	// The reply is paid for: a stop that comes now must not lose it.
	ctx = context.WithoutCancel(ctx)
	msg, masked := a.redact(resp.Message)
	encoded, err := json.Marshal(msg)
	if err != nil {
		return fmt.Errorf("encode the reply: %w", err)
	}
	text, err := a.cfg.Log.Text(ctx, string(encoded))
	if err != nil {
		return err
	}
	payloads := append(masked, event.ModelResponded{
		Step: step, Message: text, Stop: string(resp.Stop), Tokens: resp.Tokens, Wasted: resp.Wasted,
		Cost: resp.Cost, Priced: resp.Priced, Attempts: max(resp.Attempts, 1), First: first, Millis: took, RequestID: resp.ID,
	})
	// The first call's start is stored with the reply: one durable write instead of two.
	if calls := msg.Calls(); len(calls) > 0 && resp.Stop != model.StopMaxTokens {
		start, err := a.startOf(ctx, step, calls[0])
		if err != nil {
			return err
		}
		payloads = append(payloads, start)
	}
	if err := a.append(ctx, payloads...); err != nil {
		return err
	}
	a.resumed = nil // the calls that are open now are of this run, whatever ids the model gave them
	a.conv.sent = len(body)
	return nil
}

// withinBudget ends a stream whose next attempt the budget no longer allows: an attempt that
// failed half-way was paid for.
func (a *Agent) withinBudget(seq iter.Seq2[model.Delta, error], d draft) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		for delta, err := range seq {
			if r := delta.Retry; r != nil && err == nil {
				spent := a.cfg.Log.Spent()
				spent.Tokens = spent.Tokens.Add(r.Wasted)
				spent.Cost += a.cfg.Model.Info().Price.Cost(r.Wasted)
				if m, over := a.exceeded(spent, a.estimate(len(d.body)), int64(d.req.MaxOutput)); over {
					yield(model.Delta{}, &model.FailedError{Attempts: r.Attempt, Wasted: r.Wasted, Err: &task.Error{
						Class: task.Budget, Msg: fmt.Sprintf("another attempt at the call could exceed the budget: %s", m), Err: r.Err,
					}})
					return
				}
			}
			if !yield(delta, err) {
				return
			}
		}
	}
}

func (a *Agent) startOf(ctx context.Context, step int, c model.Block) (event.ToolStarted, error) {
	args := string(c.Input)
	if c.BadInput != "" {
		args = c.BadInput
	}
	t, err := a.cfg.Log.Text(ctx, args)
	return event.ToolStarted{Step: step, Call: c.ID, Name: c.Name, Args: t}, err
}

func (a *Agent) callFailed(ctx context.Context, step int, took int64, err error) error {
	f := event.ModelFailed{Step: step, Class: task.ClassOf(err), Error: err.Error(), Attempts: 1, Millis: took}
	var failed *model.FailedError
	if errors.As(err, &failed) {
		f.Attempts, f.Wasted = failed.Attempts, failed.Wasted
		f.Cost = a.cfg.Model.Info().Price.Cost(failed.Wasted)
	}
	if f.Wasted.Total() == 0 {
		// What a failed call cost is unknown; count what was certainly sent.
		f.Wasted.Input = a.estimate(0)
		f.Cost = a.cfg.Model.Info().Price.Cost(f.Wasted)
		if f.Class == task.Auth || f.Class == task.Invalid || f.Class == task.NotFound || f.Class == task.RateLimited {
			f.Wasted, f.Cost = task.Tokens{}, 0 // refused before any work: providers do not charge
		}
	}
	// The record must not be lost to the same cancellation that ended the call.
	if aerr := a.append(context.WithoutCancel(ctx), f); aerr != nil {
		return errors.Join(err, aerr)
	}
	return err
}

// countLost ends a call during which an earlier run died. Its reply is lost and was paid for
// all the same: the budget counts what was sent.
func (a *Agent) countLost(ctx context.Context) error {
	q := a.conv.unanswered
	if q == nil {
		return nil
	}
	wasted := task.Tokens{Input: q.Estimated}
	return a.append(ctx, event.ModelFailed{
		Step: q.Step, Class: task.Transient, Error: "the worker died before the reply arrived", Attempts: 1,
		Wasted: wasted, Cost: a.cfg.Model.Info().Price.Cost(wasted),
	})
}

// redact masks secrets in a reply. A thinking block that holds one is dropped, because its
// signature would no longer fit.
func (a *Agent) redact(m model.Message) (model.Message, []event.Payload) {
	if a.cfg.Redactor == nil {
		return m, nil
	}
	counts := map[string]int{}
	mask := func(s string) string {
		out, n := a.cfg.Redactor.Redact(s)
		for k, v := range n {
			counts[k] += v
		}
		return out
	}
	out := model.Message{Role: m.Role}
	for _, b := range m.Blocks {
		if b.Type == model.ThinkingBlock {
			if mask(b.Text) != b.Text {
				continue
			}
		}
		b.Text, b.BadInput = mask(b.Text), mask(b.BadInput)
		if len(b.Input) > 0 {
			in, ok := maskJSON(b.Input, mask)
			if b.Input = in; !ok { // the call is refused rather than its secret stored
				b.Input, b.BadInput = json.RawMessage("{}"), mask(string(in))
			}
		}
		out.Blocks = append(out.Blocks, b)
	}
	return out, redactions("model reply", counts)
}

func redactions(where string, counts map[string]int) []event.Payload {
	var rules []string
	for r, n := range counts {
		if n > 0 {
			rules = append(rules, r)
		}
	}
	slices.Sort(rules)
	var out []event.Payload
	for _, r := range rules {
		out = append(out, event.Redacted{Where: where, Rule: r, Count: counts[r]})
	}
	return out
}

// answerOpen runs the calls of the newest reply that have no result yet. After a crash some
// may already have been started: what cannot be repeated safely gets an "interrupted" result.
func (a *Agent) answerOpen(ctx context.Context) (Outcome, error) {
	for len(a.conv.open) > 0 {
		c := a.conv.open[0]
		if a.conv.last.Stop == string(model.StopMaxTokens) {
			if err := a.finish(ctx, c, tool.Result{Text: cutText, IsError: true}, 0, false); err != nil {
				return Outcome{}, err
			}
			continue
		}
		if a.resumed[c.ID] && !repeatable(c.Name) {
			if err := a.finish(ctx, c, tool.Result{Text: interruptedText, IsError: true}, 0, true); err != nil {
				return Outcome{}, err
			}
			continue
		}
		out, err := a.runCall(ctx, c)
		if err != nil || out.Ending != "" {
			return out, err
		}
		if out, err := a.signals(ctx); err != nil || out.Ending != "" {
			return out, err
		}
	}
	return Outcome{}, nil
}

// repeatable calls read only, or ask the harness, which records its own progress.
func repeatable(name string) bool {
	switch name {
	case "read", "search", "symbols", "reproduce", "submit", "decline", "ask":
		return true
	}
	return false
}

func (a *Agent) runCall(ctx context.Context, c model.Block) (Outcome, error) {
	if !a.conv.startedCalls[c.ID] {
		start, err := a.startOf(ctx, a.conv.Step, c)
		if err != nil {
			return Outcome{}, err
		}
		if err := a.append(ctx, start); err != nil {
			return Outcome{}, err
		}
	}
	begin := a.cfg.Now()
	var (
		res tool.Result
		err error
	)
	if c.BadInput != "" {
		res = tool.Result{Text: badJSONText(c.BadInput), IsError: true}
	} else {
		res, err = a.cfg.Tools.Call(ctx, a.env, c.Name, c.Input)
	}
	if err != nil {
		return a.ended(ctx, fmt.Errorf("tool %s: %w", c.Name, err))
	}
	if res.End == tool.Waits {
		return Outcome{Waiting, res.Reason}, nil
	}
	if ctx.Err() != nil && res.End == tool.Continue {
		return a.ended(ctx, context.Cause(ctx))
	}
	if err := a.finish(ctx, c, res, a.cfg.Now().Sub(begin).Milliseconds(), false); err != nil {
		return Outcome{}, err
	}
	switch res.End {
	case tool.Accepted:
		return Outcome{Accepted, "verified"}, nil
	case tool.Gave:
		return Outcome{Declined, res.Reason}, nil
	}
	return Outcome{}, nil
}

func (a *Agent) finish(ctx context.Context, c model.Block, res tool.Result, took int64, interrupted bool) error {
	text, counts := res.Text, map[string]int(nil)
	if a.cfg.Redactor != nil {
		text, counts = a.cfg.Redactor.Redact(text)
	}
	t, err := a.cfg.Log.Text(ctx, a.conv.framed(text))
	if err != nil {
		return err
	}
	return a.later(ctx, append(redactions("result of "+c.Name, counts), event.ToolFinished{
		Step: a.conv.Step, Call: c.ID, Name: c.Name, Result: t, IsError: res.IsError,
		ExitCode: res.ExitCode, Millis: took, Interrupted: interrupted,
	})...)
}

func hash(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/agent"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/tool"
)

// cancelling cancels the run at the moment a reply is complete.
type cancelling struct {
	model.Client
	cancel context.CancelFunc
}

func (c cancelling) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		for d, err := range c.Client.Stream(ctx, r) {
			if d.Done != nil {
				c.cancel()
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// strict refuses what a store refuses: a write under a context that is over.
type strict struct{ *memLog }

func (l strict) Append(ctx context.Context, ps ...event.Payload) ([]event.Event, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return l.memLog.Append(ctx, ps...)
}

func TestAPaidReplyIsKeptWhenTheRunIsStoppedAtItsEnd(t *testing.T) {
	r := newRig(t, "calls: [{name: look, input: {}}]\n", model.Price{})
	l := newLog(t)
	ctx, cancel := context.WithCancel(t.Context())
	a := r.agent(t, l, func(c *agent.Config) { c.Model, c.Log = cancelling{c.Model, cancel}, strict{l} }, echo("look"))
	if _, err := a.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("ended with %v", err)
	}
	if !strings.Contains(l.kinds(), "model.response") {
		t.Errorf("the reply is lost and would be paid again: %s", l.kinds())
	}
}

func TestACutReplyWithoutCallsIsToldSo(t *testing.T) {
	r := newRig(t, `
text: I was about to
stop: max_tokens
---
expect: [{contains: cut by the length limit}, {not_contains: You ended your turn}]
calls: [{name: submit, input: {}}]
`, model.Price{})
	if out := r.run(t, r.agent(t, newLog(t), nil, done("submit"))); out.Ending != agent.Accepted {
		t.Fatalf("ended as %+v", out)
	}
}

func reply(t *testing.T, step int, ids ...string) event.ModelResponded {
	t.Helper()
	m := model.Message{Role: model.Assistant, Blocks: []model.Block{{Type: model.TextBlock, Text: "hm"}}}
	for _, id := range ids {
		m.Blocks = append(m.Blocks, model.Block{Type: model.ToolUseBlock, ID: id, Name: "look", Input: json.RawMessage(`{}`)})
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return event.ModelResponded{Step: step, Message: event.Text{Inline: string(b), Bytes: len(b)}, Stop: string(model.StopToolUse)}
}

// TestResumeAfterAReplyWithoutCalls: the crash came before the reminder; providers refuse a
// conversation that ends with their own words.
func TestResumeAfterAReplyWithoutCalls(t *testing.T) {
	r := newRig(t, "text: hm\n---\nexpect: [{contains: The task is still open}]\ncalls: [{name: submit, input: {}}]\n", model.Price{})
	l := newLog(t)
	r.agent(t, l, nil, done("submit")) // freezes the prompt
	l.must(t, reply(t, 1))
	if out := r.run(t, r.agent(t, l, nil, done("submit"))); out.Ending != agent.Accepted {
		t.Fatalf("ended as %+v", out)
	}
	last := r.requests[0].Messages
	if last[len(last)-1].Role != model.User {
		t.Error("the request ends with the model's own words")
	}
}

// TestCallIDsMayComeAgain: some servers number the calls of every reply from 0.
func TestCallIDsMayComeAgain(t *testing.T) {
	r := newRig(t, "text: hm\n---\ntext: hm\n---\nexpect: [{contains: fresh result}, {not_contains: Interrupted}]\ncalls: [{name: submit, input: {}}]\n", model.Price{})
	l := newLog(t)
	r.agent(t, l, nil, done("submit"))
	for step := 1; step <= 2; step++ {
		l.must(t, reply(t, step, "call_0", "call_1"))
		for i, id := range []string{"call_0", "call_1"} {
			if step == 2 && i == 1 {
				break // killed before the second call of the second reply was started
			}
			l.must(t, event.ToolStarted{Step: step, Call: id, Name: "look", Args: event.Text{Inline: "{}", Bytes: 2}},
				event.ToolFinished{Step: step, Call: id, Name: "look", Result: event.Text{Inline: "old", Bytes: 3}})
		}
	}
	look := fake{"look", func(json.RawMessage) (tool.Result, error) { return tool.Result{Text: "fresh result"}, nil }}
	if out := r.run(t, r.agent(t, l, nil, look, done("submit"))); out.Ending != agent.Accepted {
		t.Fatalf("ended as %+v", out)
	}
	n := 0
	for _, e := range l.events {
		if p, _ := event.Decode(e); p != nil {
			if s, ok := p.(*event.ToolStarted); ok && s.Call == "call_1" && s.Step == 2 {
				n++
			}
		}
	}
	if n != 1 {
		t.Errorf("the call was recorded as started %d times, want once", n)
	}
}

func TestACallThatDiedWithTheWorkerIsCounted(t *testing.T) {
	r := newRig(t, "calls: [{name: submit, input: {}}]\n", model.Price{Input: 3_000_000})
	l := newLog(t)
	r.agent(t, l, nil, done("submit"))
	l.must(t, event.ModelRequested{Step: 1, Estimated: 5000})
	a := r.agent(t, l, nil, done("submit"))
	if out := r.run(t, a); out.Ending != agent.Accepted {
		t.Fatalf("ended as %+v", out)
	}
	if s := l.Spent(); s.Steps != 2 || s.Tokens.Input < 5000 || s.Cost < 15_000 {
		t.Errorf("spent %+v, want the lost call in it", s)
	}
	if n := strings.Count(l.kinds(), "model.failed"); n != 1 {
		t.Errorf("%d records of the lost call", n)
	}
}

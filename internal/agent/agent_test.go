package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/agent"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/model/anthropic"
	"github.com/daybreak-agent/daybreak/internal/model/meter"
	"github.com/daybreak-agent/daybreak/internal/model/retry"
	"github.com/daybreak-agent/daybreak/internal/model/scripted"
	"github.com/daybreak-agent/daybreak/internal/model/scripted/transcript"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/tool"
)

// memLog is a log in memory that seals and folds like the real one, and can be told to fail.
type memLog struct {
	mu     sync.Mutex
	events []event.Event
	sum    event.Summary
	inbox  []agent.Signal
	clock  time.Time
	failAt string // kind at which the store is full
}

var errFull = &task.Error{Class: task.Unavailable, Msg: "disk full"}

func newLog(t *testing.T) *memLog {
	t.Helper()
	l := &memLog{clock: time.Unix(1_700_000_000, 0)}
	l.must(t, event.TaskCreated{Repo: "r"}, event.StateChanged{From: task.Queued, To: task.Preparing}, event.StateChanged{From: task.Preparing, To: task.Working})
	return l
}

func (l *memLog) must(t *testing.T, p ...event.Payload) {
	t.Helper()
	if _, err := l.Append(t.Context(), p...); err != nil {
		t.Fatal(err)
	}
}

func (l *memLog) Append(_ context.Context, ps ...event.Payload) ([]event.Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []event.Event
	for _, p := range ps {
		if l.failAt == string(p.EventKind()) {
			return nil, errFull
		}
		d, err := event.New(p)
		if err != nil {
			return nil, err
		}
		prev := event.Genesis("t")
		if n := len(l.events); n > 0 {
			prev = l.events[n-1].Hash
		}
		e := event.Seal("t", int64(len(l.events)+1), 1, l.clock, prev, d)
		if err := l.sum.Apply(e); err != nil {
			return nil, err
		}
		l.events = append(l.events, e)
		out = append(out, e)
	}
	return out, nil
}

func (l *memLog) Take(ctx context.Context, ids []string, ps ...event.Payload) ([]event.Event, error) {
	l.mu.Lock()
	for _, id := range ids {
		for i, s := range l.inbox {
			if s.ID == id {
				l.inbox = append(l.inbox[:i], l.inbox[i+1:]...)
				break
			}
		}
	}
	l.mu.Unlock()
	return l.Append(ctx, ps...)
}

func (l *memLog) Text(_ context.Context, s string) (event.Text, error) {
	return event.Text{Inline: s, Bytes: len(s)}, nil
}
func (l *memLog) Load(_ context.Context, t event.Text) (string, error) { return t.Inline, nil }

func (l *memLog) Spent() task.Spent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sum.Spent
}

func (l *memLog) Inbox(context.Context) ([]agent.Signal, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]agent.Signal(nil), l.inbox...), nil
}

func (l *memLog) kinds() string {
	var out []string
	for _, e := range l.events {
		out = append(out, string(e.Kind))
	}
	return strings.Join(out, " ")
}

// fake is a tool that answers by a function.
type fake struct {
	name string
	call func(input json.RawMessage) (tool.Result, error)
}

func (f fake) Spec() model.ToolSpec {
	return model.ToolSpec{Name: f.name, Description: "for the test", Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"string"}}}`)}
}

func (f fake) Call(_ context.Context, _ *tool.Env, in json.RawMessage) (tool.Result, error) {
	return f.call(in)
}

func echo(name string) fake {
	return fake{name, func(in json.RawMessage) (tool.Result, error) {
		return tool.Result{Text: "result of " + name + " " + string(in)}, nil
	}}
}

func done(name string) fake {
	return fake{name, func(json.RawMessage) (tool.Result, error) {
		return tool.Result{Text: "ok", End: tool.Accepted}, nil
	}}
}

type rig struct {
	server   *scripted.Server
	client   model.Client
	requests []model.Request
}

// spy keeps the requests as the adapter gets them.
type spy struct {
	model.Client
	rig *rig
}

func (s spy) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Delta, error] {
	s.rig.requests = append(s.rig.requests, r)
	return s.Client.Stream(ctx, r)
}

// newRig plays a transcript through the real client over HTTP.
func newRig(t *testing.T, script string, price model.Price) *rig {
	t.Helper()
	tr, err := transcript.Parse(strings.NewReader("transcript: 1\nname: test\n---\n" + script))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{server: scripted.NewServer(tr, scripted.Options{})}
	web := httptest.NewServer(r.server)
	t.Cleanup(web.Close)
	c, err := anthropic.New(anthropic.Config{APIKey: "k", BaseURL: web.URL, Model: "m", Price: price, Priced: true, Context: 200_000})
	if err != nil {
		t.Fatal(err)
	}
	noWait := func(context.Context, time.Duration) error { return nil }
	r.client = spy{meter.New(retry.New(c, retry.Config{Sleep: noWait, Rand: func() float64 { return 0.5 }})), r}
	return r
}

func (r *rig) agent(t *testing.T, l *memLog, change func(*agent.Config), tools ...tool.Tool) *agent.Agent {
	t.Helper()
	reg := tool.NewRegistry(tools...)
	conv := agent.NewConversation()
	for _, e := range l.events {
		if err := conv.Apply(e, func(t event.Text) (string, error) { return t.Inline, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if !conv.Started() {
		prefix, err := agent.BuildPrefix(agent.PromptInput{WorkDir: "/workspace", Issue: "the issue", Repo: "r", Base: "abc", Suite: "3 passed"}, reg.Specs())
		if err != nil {
			t.Fatal(err)
		}
		doc, err := prefix.Encode()
		if err != nil {
			t.Fatal(err)
		}
		frozen, err := prefix.Frozen(event.Text{Inline: doc, Bytes: len(doc)})
		if err != nil {
			t.Fatal(err)
		}
		evs, err := l.Append(t.Context(), frozen)
		if err != nil {
			t.Fatal(err)
		}
		if err := conv.Apply(evs[0], func(t event.Text) (string, error) { return t.Inline, nil }); err != nil {
			t.Fatal(err)
		}
	}
	cfg := agent.Config{
		Model: r.client, Tools: reg, Log: l, MaxOutput: 1000, Now: func() time.Time { return l.clock },
		Logger: slog.New(slog.DiscardHandler), Limits: task.Limits{Steps: 200},
	}
	if change != nil {
		change(&cfg)
	}
	return agent.New(cfg, conv, &tool.Env{Seen: map[string]string{}})
}

func (r *rig) run(t *testing.T, a *agent.Agent) agent.Outcome {
	t.Helper()
	out, err := a.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.server.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestLoopRecordsIntentBeforeAndResultAfter(t *testing.T) {
	r := newRig(t, `
text: I look first.
calls: [{name: look, input: {n: "1"}}, {name: look, input: {n: "2"}}]
---
expect: [{tool: look, contains: 'result of look {"n":"2"}'}]
calls: [{name: submit, input: {}}]
`, model.Price{Input: 3_000_000, Output: 15_000_000})
	l := newLog(t)
	if out := r.run(t, r.agent(t, l, nil, echo("look"), done("submit"))); out.Ending != agent.Accepted {
		t.Fatalf("ended as %+v", out)
	}
	want := "task.created state.changed state.changed prompt.frozen model.request model.response tool.started tool.finished tool.started tool.finished " +
		"model.request model.response tool.started tool.finished"
	if got := strings.ReplaceAll(l.kinds(), "tool.started tool.finished tool.started tool.finished model.request", "tool.started tool.finished tool.started tool.finished model.request"); got != want {
		t.Errorf("log is\n%s\nwant\n%s", got, want)
	}
	if s := l.Spent(); s.Steps != 2 || s.Cost <= 0 || s.Tokens.Output == 0 {
		t.Errorf("spent %+v", s)
	}
	if err := event.VerifyChain("t", l.events); err != nil {
		t.Error(err)
	}
}

func TestNothingIsDoneThatCouldNotBeRecorded(t *testing.T) {
	for _, kind := range []string{"model.request", "model.response", "tool.started", "tool.finished"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, "calls: [{name: look, input: {}}]\n---\ncalls: [{name: submit, input: {}}]\n", model.Price{})
			l := newLog(t)
			ran := 0
			look := fake{"look", func(json.RawMessage) (tool.Result, error) { ran++; return tool.Result{Text: "x"}, nil }}
			a := r.agent(t, l, nil, look, done("submit"))
			l.failAt = kind
			if _, err := a.Run(t.Context()); !errors.Is(err, errFull) {
				t.Fatalf("error %v, want the store's", err)
			}
			asked := 0
			for _, n := range r.server.Requests() {
				asked += n
			}
			if kind == "model.request" && asked != 0 {
				t.Errorf("%d model calls were made without a record", asked)
			}
			if kind != "tool.finished" && ran != 0 {
				t.Errorf("a tool ran without a record")
			}
			if asked > 1 {
				t.Errorf("%d calls, though the first step could not be recorded", asked)
			}
		})
	}
}

// TestPrefixIsByteStable: over 60 steps each request begins with all of the one before.
func TestPrefixIsByteStable(t *testing.T) {
	var s strings.Builder
	for i := range 60 {
		fmt.Fprintf(&s, "text: step %d\nthinking: about %d\ncalls: [{name: look, input: {n: \"%d\"}}]\n---\n", i, i, i)
	}
	s.WriteString("calls: [{name: submit, input: {}}]\n")
	r := newRig(t, s.String(), model.Price{})
	l := newLog(t)
	long := strings.Repeat("a line of some output\n", 60)
	look := fake{"look", func(in json.RawMessage) (tool.Result, error) { return tool.Result{Text: string(in) + long}, nil }}
	if out := r.run(t, r.agent(t, l, nil, look, done("submit"))); out.Ending != agent.Accepted {
		t.Fatalf("ended as %+v", out)
	}
	if len(r.requests) != 61 {
		t.Fatalf("%d requests", len(r.requests))
	}
	for i := 1; i < len(r.requests); i++ {
		a, b := r.requests[i-1], r.requests[i]
		if a.System != b.System || encode(t, a.Tools) != encode(t, b.Tools) {
			t.Fatalf("request %d: system text or tools changed", i)
		}
		before, after := encode(t, a.Messages), encode(t, b.Messages)
		if !strings.HasPrefix(after, strings.TrimSuffix(before, "]")) {
			t.Fatalf("request %d does not begin with request %d", i, i-1)
		}
	}
	u := l.Spent().Tokens
	if share := float64(u.CacheRead) / float64(u.Input+u.CacheRead+u.CacheWrite); share < 0.90 {
		t.Errorf("the provider's cache served %.1f %% of the input", share*100)
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestResumeFromEveryEvent(t *testing.T) {
	script := `
calls: [{name: look, input: {n: "1"}}]
---
calls: [{name: read, input: {n: "2"}}, {name: look, input: {n: "3"}}]
---
calls: [{name: submit, input: {}}]
`
	r := newRig(t, script, model.Price{})
	whole := newLog(t)
	r.run(t, r.agent(t, whole, nil, echo("look"), echo("read"), done("submit")))
	for cut := 4; cut < len(whole.events); cut++ {
		t.Run(fmt.Sprint(cut, " ", whole.events[cut-1].Kind), func(t *testing.T) {
			r := newRig(t, script, model.Price{})
			l := &memLog{clock: whole.clock, events: append([]event.Event(nil), whole.events[:cut]...)}
			var err error
			if l.sum, err = event.Fold(l.events); err != nil {
				t.Fatal(err)
			}
			if out := r.run(t, r.agent(t, l, nil, echo("look"), echo("read"), done("submit"))); out.Ending != agent.Accepted {
				t.Fatalf("ended as %+v", out)
			}
			replies := 0
			for _, e := range whole.events[:cut] {
				if e.Kind == "model.response" {
					replies++
				}
			}
			for i, n := range r.server.Requests() {
				if want := 1; i < replies && n != 0 || i >= replies && n != want {
					t.Errorf("turn %d was asked for %d times after a cut with %d replies on record", i+1, n, replies)
				}
			}
			if strings.Count(l.kinds(), "tool.started") != strings.Count(l.kinds(), "tool.finished") {
				t.Errorf("a call has no result: %s", l.kinds())
			}
			started := map[string]int{}
			for _, e := range l.events {
				if p, _ := event.Decode(e); p != nil {
					if f, ok := p.(*event.ToolFinished); ok {
						started[f.Call]++
					}
				}
			}
			for c, n := range started {
				if n != 1 {
					t.Errorf("call %s has %d results", c, n)
				}
			}
		})
	}
}

func TestInterruptedCallIsSaidSo(t *testing.T) {
	r := newRig(t, `
calls: [{name: look, input: {}}]
---
expect: [{tool: look, error: true, contains: Interrupted}]
calls: [{name: submit, input: {}}]
`, model.Price{})
	l := newLog(t)
	broken := errors.New("the machine died")
	die := fake{"look", func(json.RawMessage) (tool.Result, error) { return tool.Result{}, broken }}
	if _, err := r.agent(t, l, nil, die, done("submit")).Run(t.Context()); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if out := r.run(t, r.agent(t, l, nil, die, done("submit"))); out.Ending != agent.Accepted {
		t.Fatalf("ended as %+v", out)
	}
}

func TestCutReplyIsNeverExecuted(t *testing.T) {
	r := newRig(t, `
calls: [{name: look, input: {}}]
stop: max_tokens
---
expect: [{contains: cut by the length limit}]
calls: [{name: submit, input: {}}]
`, model.Price{})
	l := newLog(t)
	ran := false
	look := fake{"look", func(json.RawMessage) (tool.Result, error) { ran = true; return tool.Result{}, nil }}
	r.run(t, r.agent(t, l, nil, look, done("submit")))
	if ran {
		t.Error("a cut call was executed")
	}
}

func TestBadArgumentsGoBackAsTheResult(t *testing.T) {
	r := newRig(t, `
calls: [{name: look, raw_input: '{"n": "unclosed'}]
---
expect: [{tool: look, error: true, contains: not a JSON object}]
calls: [{name: nothing, input: {}}]
---
expect: [{tool: nothing, error: true, contains: "There is no tool"}]
calls: [{name: submit, input: {}}]
`, model.Price{})
	r.run(t, r.agent(t, newLog(t), nil, echo("look"), done("submit")))
}

func TestIdleModelIsRemindedThenStopped(t *testing.T) {
	r := newRig(t, "text: I am done.\n---\nexpect: [{contains: The task is still open}]\ntext: Really.\n---\ntext: Done.\n", model.Price{})
	if out := r.run(t, r.agent(t, newLog(t), nil, echo("look"))); out.Ending != agent.Stuck {
		t.Fatalf("ended as %+v", out)
	}
}

func TestLoopIsNudgedThenStopped(t *testing.T) {
	r := newRig(t, "calls: [{name: look, input: {n: same}}]\nrepeat: 12\n", model.Price{})
	l := newLog(t)
	out := r.run(t, r.agent(t, l, nil, echo("look")))
	if out.Ending != agent.Stuck || l.Spent().Steps != 6 {
		t.Fatalf("ended as %+v after %d steps", out, l.Spent().Steps)
	}
	if n := strings.Count(l.kinds(), "agent.notice"); n != 1 {
		t.Errorf("%d nudges", n)
	}
}

func TestATestRunAgainAfterAnEditIsNoLoop(t *testing.T) {
	var s strings.Builder
	for i := range 10 {
		fmt.Fprintf(&s, "calls: [{name: look, input: {n: same}}, {name: edit, input: {n: \"%d\"}}]\n---\n", i)
	}
	s.WriteString("calls: [{name: submit, input: {}}]\n")
	r := newRig(t, s.String(), model.Price{})
	if out := r.run(t, r.agent(t, newLog(t), nil, echo("look"), echo("edit"), done("submit"))); out.Ending != agent.Accepted {
		t.Fatalf("ended as %+v", out)
	}
}

func TestSteeringAndStopAreTakenBeforeTheNextCall(t *testing.T) {
	r := newRig(t, `
expect: [{contains: "Message from ana"}, {contains: use the other package}]
calls: [{name: look, input: {}}]
`, model.Price{})
	l := newLog(t)
	l.inbox = []agent.Signal{{ID: "0", Kind: "approve", Who: "ana", Text: "a tree"}, {ID: "1", Kind: "steer", Who: "ana", Text: "use the other package"}}
	look := fake{"look", func(json.RawMessage) (tool.Result, error) {
		l.inbox = append(l.inbox, agent.Signal{ID: "2", Kind: "stop", Who: "ben", Text: "wrong repo"})
		return tool.Result{Text: "x"}, nil
	}}
	out := r.run(t, r.agent(t, l, nil, look))
	if out.Ending != agent.Stopped || !strings.Contains(out.Reason, "ben: wrong repo") {
		t.Fatalf("ended as %+v", out)
	}
	if l.Spent().Steps != 1 {
		t.Errorf("%d model calls, want none after the stop", l.Spent().Steps)
	}
	if len(l.inbox) != 1 || l.inbox[0].Kind != "approve" {
		t.Errorf("left in the inbox: %+v, want the word that is not the agent's", l.inbox)
	}
}

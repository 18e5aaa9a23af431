package agent_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/agent"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/tool"
)

const endless = "calls: [{name: look, input: {}}]\nrepeat: 200\n"

// growing gives a different result each time, so that nothing looks like a loop.
func growing(size int) fake {
	n := 0
	return fake{"look", func(json.RawMessage) (tool.Result, error) {
		n++
		return tool.Result{Text: strings.Repeat(string(rune('a'+n%26)), size+n)}, nil
	}}
}

func TestBudgetsAreNeverExceeded(t *testing.T) {
	price := model.Price{Input: 3_000_000, Output: 15_000_000, CacheRead: 300_000, CacheWrite: 3_750_000}
	for name, limits := range map[string]task.Limits{
		"steps":      {Steps: 7},
		"tokens":     {Tokens: 60_000},
		"money":      {Cost: 120_000},
		"output":     {Class: task.Tokens{Output: 1_000}},
		"cache read": {Class: task.Tokens{CacheRead: 20_000}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, endless, price)
			l := newLog(t)
			out := r.run(t, r.agent(t, l, func(c *agent.Config) { c.Limits = limits }, growing(3000)))
			if out.Ending != agent.Exhausted || out.Reason == "" {
				t.Fatalf("ended as %+v", out)
			}
			spent := l.Spent()
			if m, over := limits.Exceeded(spent, task.Spent{}); over {
				t.Errorf("exceeded: %s", m)
			}
			if spent.Steps == 0 {
				t.Error("nothing was done at all")
			}
			if n := strings.Count(l.kinds(), "agent.notice"); n != 1 && name == "steps" {
				t.Errorf("%d budget notices, want 1", n)
			}
		})
	}
}

func TestFailedCallsAreCounted(t *testing.T) {
	r := newRig(t, "fail: [{cut: 3}, {status: 529}]\ncalls: [{name: submit, input: {}}]\n", model.Price{Input: 1_000_000, Output: 1_000_000, CacheRead: 1_000_000, CacheWrite: 1_000_000})
	l := newLog(t)
	r.run(t, r.agent(t, l, nil, done("submit")))
	for _, e := range l.events {
		if p, _ := event.Decode(e); p != nil {
			if m, ok := p.(*event.ModelResponded); ok {
				if m.Attempts != 3 || m.Wasted.Total() == 0 {
					t.Errorf("attempts %d, wasted %+v", m.Attempts, m.Wasted)
				}
				if m.Cost != task.MicroUSD(m.Tokens.Total()+m.Wasted.Total()) {
					t.Errorf("cost %d of %+v and %+v", m.Cost, m.Tokens, m.Wasted)
				}
				return
			}
		}
	}
	t.Fatal("no reply")
}

func TestProviderTroubleIsRecordedAndReturnedByClass(t *testing.T) {
	r := newRig(t, "fail: [{status: 529},{status: 529},{status: 529},{status: 529},{status: 529},{status: 529},{status: 529}]\ncalls: [{name: submit, input: {}}]\n", model.Price{})
	l := newLog(t)
	_, err := r.agent(t, l, nil, done("submit")).Run(t.Context())
	if task.ClassOf(err) != task.Overloaded {
		t.Fatalf("class %q of %v", task.ClassOf(err), err)
	}
	if !strings.HasSuffix(l.kinds(), "model.request model.failed") {
		t.Errorf("log ends %s", l.kinds())
	}
}

func TestCompactionKeepsPairsAndTheIssue(t *testing.T) {
	r := newRig(t, "calls: [{name: look, input: {}}, {name: edit, input: {path: a.go}}]\nrepeat: 40\n---\ncalls: [{name: submit, input: {}}]\n", model.Price{})
	l := newLog(t)
	out := r.run(t, r.agent(t, l, func(c *agent.Config) { c.Context = 30_000 }, growing(4000), growingNamed("edit"), done("submit")))
	if out.Ending != agent.Accepted { // the scripted server refuses unpaired calls and roles that do not alternate
		t.Fatalf("ended as %+v", out)
	}
	if n := strings.Count(l.kinds(), "agent.compacted"); n < 2 || n > 20 {
		t.Errorf("%d compactions", n)
	}
	last := r.requests[len(r.requests)-1]
	first := last.Messages[0]
	if !strings.Contains(encode(t, first), "the issue") || !strings.Contains(encode(t, first), "Files you edited or wrote: a.go") {
		t.Errorf("the first message lost the issue or the note: %s", encode(t, first))
	}
	if got := model.EstimateTokens(last); got > 33_000 {
		t.Errorf("the last request has up to %d tokens", got)
	}
}

func growingNamed(name string) fake {
	g := growing(10)
	g.name = name
	return g
}

// TestRetriesStopAtTheBudget: each attempt that is cut half-way was paid for, so the next one
// is checked like a first.
func TestRetriesStopAtTheBudget(t *testing.T) {
	r := newRig(t, "fail: [{cut: 3}, {cut: 3}, {cut: 3}, {cut: 3}, {cut: 3}]\ncalls: [{name: submit, input: {}}]\n", model.Price{Input: 1_000_000, Output: 1_000_000, CacheRead: 1_000_000, CacheWrite: 1_000_000})
	l := newLog(t)
	limits := task.Limits{Tokens: 4_500}
	out := r.run(t, r.agent(t, l, func(c *agent.Config) { c.Limits = limits }, done("submit")))
	if out.Ending != agent.Exhausted {
		t.Fatalf("ended as %+v", out)
	}
	if m, over := limits.Exceeded(l.Spent(), task.Spent{}); over || l.Spent().Tokens.Total() == 0 {
		t.Errorf("spent %+v, over %v %s", l.Spent(), over, m)
	}
	if asked := r.server.Requests()[0]; asked < 1 || asked > 4 {
		t.Errorf("%d attempts", asked)
	}
}

// TestNudgeIsNotSkippedByParallelCalls: a reply with several calls can pass the threshold by
// more than one.
func TestNudgeIsNotSkippedByParallelCalls(t *testing.T) {
	same := "{name: look, input: {n: same}}"
	r := newRig(t, "calls: ["+same+", "+same+"]\n---\ncalls: ["+same+", "+same+"]\n---\nexpect: [{contains: same result}]\ncalls: [{name: submit, input: {}}]\n", model.Price{})
	l := newLog(t)
	if out := r.run(t, r.agent(t, l, nil, echo("look"), done("submit"))); out.Ending != agent.Accepted {
		t.Fatalf("ended as %+v", out)
	}
	if n := strings.Count(l.kinds(), "agent.notice"); n != 1 {
		t.Errorf("%d nudges, want 1", n)
	}
}

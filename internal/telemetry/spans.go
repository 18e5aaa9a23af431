package telemetry

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// TraceID is the trace of a task, in every process that works on it: it follows from the task's
// id.
func TraceID(id task.ID) [16]byte {
	sum := sha256.Sum256([]byte("daybreak trace\x00" + string(id)))
	return [16]byte(sum[:16])
}

func spanID(id task.ID, what string, seq int64) [8]byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "daybreak span\x00%s\x00%s\x00%d", id, what, seq))
	return [8]byte(sum[:8])
}

// tracer folds events into spans: task → run → stage → step → call of a model or a tool. The
// names of attributes are those of OpenTelemetry's conventions for generative AI.
type tracer struct {
	out   Exporter
	names names

	mu   sync.Mutex
	runs map[task.ID]*run
}

// run is what is open of a task's run in this process.
type run struct {
	id               task.ID
	run, stage, step *Span
	chat, tool       *Span
	call             string // the model's id of the open tool call
	tokens           task.Tokens
	steps            int64
}

func (t *tracer) observe(e event.Event, p event.Payload) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := p.(*event.RunStarted); ok {
		t.close(t.runs[e.Task], e.Time)
		r := &run{id: e.Task}
		r.run = r.open("invoke_agent daybreak", "run", e, spanID(e.Task, "task", 0),
			Attr{"gen_ai.operation.name", "invoke_agent"}, Attr{"gen_ai.agent.name", "daybreak"}, Attr{"daybreak.run.resumed", s.Resumed})
		t.runs[e.Task] = r
		return
	}
	r := t.runs[e.Task]
	if r == nil {
		return
	}
	switch p := p.(type) {
	case *event.StateChanged:
		t.state(r, e, p)
	case *event.ModelRequested, *event.ModelResponded, *event.ModelFailed:
		t.modelCall(r, e, p)
	case *event.ToolStarted:
		r.tool, r.call = r.open("execute_tool "+t.names.tool(p.Name), "tool", e, r.inner(),
			Attr{"gen_ai.operation.name", "execute_tool"}, Attr{"gen_ai.tool.name", t.names.tool(p.Name)}, Attr{"gen_ai.tool.type", "function"}), p.Call
	case *event.ToolFinished:
		if r.tool == nil || r.call != p.Call {
			return
		}
		// The record of a result waits for the next request; the call itself took this long.
		r.tool.End = r.tool.Start.Add(time.Duration(p.Millis) * time.Millisecond)
		if outcome := toolOutcome(p); outcome != "ok" {
			r.tool.Error = outcome
		}
		if p.ExitCode != nil {
			r.tool.Attrs = append(r.tool.Attrs, Attr{"process.exit.code", int64(*p.ExitCode)})
		}
		t.emit(&r.tool, time.Time{})
	case *event.SandboxStarted:
		t.past(r, e, "start sandbox", p.Millis, "", Attr{"daybreak.sandbox.purpose", t.names.purpose(p.Purpose)})
	case *event.SetupFinished:
		failed := ""
		if p.ExitCode != 0 && !p.Optional {
			failed = "setup"
		}
		t.past(r, e, "setup step", p.Millis, failed, Attr{"process.exit.code", int64(p.ExitCode)})
	case *event.StageFinished:
		t.past(r, e, word(p.Stage), p.Millis, "")
	case *event.ReproductionChecked:
		t.past(r, e, "check reproduction", p.Millis, "", Attr{"daybreak.verdict", string(p.Kind)})
	case *event.VerificationFinished:
		t.past(r, e, "verify", p.Millis, "", Attr{"daybreak.verdict", string(p.Kind)}, Attr{"daybreak.verification.attempt", int64(p.Attempt)})
	case *event.EffectDone:
		failed := ""
		if p.Error != "" {
			failed = "effect"
		}
		t.past(r, e, "effect "+word(p.Kind), 0, failed)
	}
}

// state closes the stage and opens the next one. A task that is done, or in review, ends its run
// and itself: what a review brings later is another run, after which the task's span is told
// again with a later end.
func (t *tracer) state(r *run, e event.Event, p *event.StateChanged) {
	if p.To.Done() || p.To == task.InReview {
		failed := ""
		if p.To == task.Failed {
			failed = "failed"
		}
		if r.run != nil {
			r.run.Error = failed
			r.run.Attrs = append(r.run.Attrs, Attr{"daybreak.task.state", string(p.To)})
		}
		start := e.Time
		if at, ok := born(e.Task); ok {
			start = at
		}
		t.close(r, e.Time)
		t.out.Export(Span{
			Trace: TraceID(e.Task), ID: spanID(e.Task, "task", 0), Name: "task", Start: start, End: e.Time, Error: failed,
			Attrs: []Attr{{"gen_ai.conversation.id", string(e.Task)}, {"daybreak.task.state", string(p.To)}},
		})
		delete(t.runs, e.Task)
		return
	}
	t.emit(&r.stage, e.Time)
	r.stage = r.open("stage "+string(p.To), "stage", e, r.run.ID)
}

func (t *tracer) modelCall(r *run, e event.Event, p event.Payload) {
	switch p := p.(type) {
	case *event.ModelRequested:
		t.emit(&r.chat, e.Time)
		t.emit(&r.step, e.Time)
		provider, name, _ := strings.Cut(p.Model, "/")
		r.step = r.open(fmt.Sprintf("step %d", p.Step), "step", e, r.outer(), Attr{"daybreak.step", int64(p.Step)})
		r.chat = r.open("chat "+name, "chat", e, r.step.ID,
			Attr{"gen_ai.operation.name", "chat"}, Attr{"gen_ai.provider.name", provider}, Attr{"gen_ai.request.model", name},
			Attr{"gen_ai.request.max_tokens", int64(p.MaxOutput)})
		r.chat.Client = true
		r.steps++
	case *event.ModelResponded:
		r.tokens = r.tokens.Add(p.Tokens).Add(p.Wasted)
		if r.chat == nil {
			return
		}
		r.chat.Attrs = append(append(r.chat.Attrs, usage(p.Tokens)...),
			Attr{"gen_ai.response.finish_reasons", []string{word(p.Stop)}},
			Attr{"daybreak.model.attempts", int64(p.Attempts)}, Attr{"daybreak.model.cost_usd", p.Cost.USD()})
		t.emit(&r.chat, e.Time)
	case *event.ModelFailed:
		r.tokens = r.tokens.Add(p.Wasted)
		if r.chat == nil {
			return
		}
		r.chat.Error = string(p.Class)
		r.chat.Attrs = append(r.chat.Attrs, Attr{"daybreak.model.attempts", int64(p.Attempts)})
		t.emit(&r.chat, e.Time)
	}
}

// usage counts cached tokens among the input, as the conventions ask.
func usage(t task.Tokens) []Attr {
	return []Attr{
		{"gen_ai.usage.input_tokens", t.Input + t.CacheRead + t.CacheWrite},
		{"gen_ai.usage.output_tokens", t.Output},
		{"gen_ai.usage.cache_read.input_tokens", t.CacheRead},
		{"gen_ai.usage.cache_creation.input_tokens", t.CacheWrite},
	}
}

// end closes what is open of a task's run.
func (t *tracer) end(id task.ID, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.close(t.runs[id], at)
	delete(t.runs, id)
}

func (t *tracer) endAll(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, r := range t.runs {
		t.close(r, at)
		delete(t.runs, id)
	}
}

func (t *tracer) close(r *run, at time.Time) {
	if r == nil {
		return
	}
	if r.run != nil {
		r.run.Attrs = append(append(r.run.Attrs, usage(r.tokens)...), Attr{"daybreak.steps", r.steps})
	}
	for _, s := range []**Span{&r.tool, &r.chat, &r.step, &r.stage, &r.run} {
		t.emit(s, at)
	}
}

// emit ends an open span, at its own end if it has one.
func (t *tracer) emit(s **Span, at time.Time) {
	if *s == nil {
		return
	}
	if (*s).End.IsZero() {
		(*s).End = at
	}
	t.out.Export(**s)
	*s = nil
}

// past tells of something that has just ended and took so long.
func (t *tracer) past(r *run, e event.Event, name string, ms int64, failed string, attrs ...Attr) {
	s := r.open(name, string(e.Kind), e, r.inner(), attrs...)
	s.Start, s.Error = e.Time.Add(-time.Duration(ms)*time.Millisecond), failed
	t.emit(&s, e.Time)
}

func (r *run) open(name, what string, e event.Event, parent [8]byte, attrs ...Attr) *Span {
	return &Span{
		Trace: TraceID(r.id), ID: spanID(r.id, what, e.Seq), Parent: parent, Name: name, Start: e.Time,
		Attrs: append(attrs, Attr{"gen_ai.conversation.id", string(r.id)}),
	}
}

// inner is the closest open span, outer the closest that holds a step.
func (r *run) inner() [8]byte {
	for _, s := range []*Span{r.tool, r.step} {
		if s != nil {
			return s.ID
		}
	}
	return r.outer()
}

func (r *run) outer() [8]byte {
	if r.stage != nil {
		return r.stage.ID
	}
	return r.run.ID
}

package telemetry

import (
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Kind of a metric.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Histogram Kind = "histogram"
	Gauge     Kind = "gauge" // read when somebody asks, from a [Fleet]
)

// Metric describes one.
type Metric struct {
	Name    string
	Kind    Kind
	Help    string
	Labels  []string
	Buckets []float64 // of a histogram, in its unit
}

// The names. Those that end in _seconds are distributions.
const (
	Transitions  = "daybreak_task_transitions_total"
	Runs         = "daybreak_runs_total"
	QueueWait    = "daybreak_queue_wait_seconds"
	Takeovers    = "daybreak_lease_takeovers_total"
	Steps        = "daybreak_steps_total"
	ModelCalls   = "daybreak_model_calls_total"
	ModelSeconds = "daybreak_model_call_seconds"
	ModelFirst   = "daybreak_model_first_byte_seconds"
	Tokens       = "daybreak_model_tokens_total"
	Cost         = "daybreak_model_cost_usd_total"
	ToolCalls    = "daybreak_tool_calls_total"
	ToolSeconds  = "daybreak_tool_call_seconds"
	SandboxStart = "daybreak_sandbox_start_seconds"
	Refused      = "daybreak_sandbox_refusals_total"
	VerifyTime   = "daybreak_verification_seconds"
	Verdicts     = "daybreak_verdicts_total"
	Reproduced   = "daybreak_reproductions_total"
	MirrorNames  = "daybreak_mirror_names_total"
	MirrorNo     = "daybreak_mirror_refusals_total"
	Effects      = "daybreak_effects_total"
	HTTPRequests = "daybreak_http_requests_total"
	HTTPSeconds  = "daybreak_http_request_seconds"

	TasksNow  = "daybreak_tasks"
	QueueNow  = "daybreak_queue_tasks"
	LeasesNow = "daybreak_leases"

	ReadyNow    = "daybreak_ready_sandboxes"
	ReadyClaims = "daybreak_ready_sandbox_claims"
	ReadyWait   = "daybreak_ready_sandbox_wait_seconds"
	ReadyStart  = "daybreak_ready_sandbox_start_seconds"
)

// Metrics lists all that there is.
func Metrics() []Metric {
	fast := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	slow := []float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320}
	long := []float64{1, 5, 15, 30, 60, 120, 300, 600, 1200, 2400, 3600}
	return []Metric{
		{TasksNow, Gauge, "tasks that are not done, by state", []string{"state"}, nil},
		{QueueNow, Gauge, "tasks that wait for a worker", nil, nil},
		{LeasesNow, Gauge, "tasks that a worker holds now", nil, nil},
		{ReadyNow, Gauge, "sandboxes that wait for a task in this process", nil, nil},
		{ReadyClaims, Gauge, "sandboxes of a kind that is kept ready that were asked for since this process began", []string{"outcome"}, nil},
		{ReadyWait, Gauge, "how long all who asked for those waited, summed up", []string{"outcome"}, nil},
		{ReadyStart, Gauge, "how long starting one takes", nil, nil},
		{Transitions, Counter, "changes of a task's state", []string{"to"}, nil},
		{Runs, Counter, "runs that began", []string{"resumed"}, nil},
		{QueueWait, Histogram, "from a task's creation to its first run", nil, long},
		{Takeovers, Counter, "tasks taken from a worker that was silent", nil, nil},
		{Steps, Counter, "steps of the agent", nil, nil},
		{ModelCalls, Counter, "calls of a model", []string{"model", "outcome"}, nil},
		{ModelSeconds, Histogram, "from request to whole reply, retries included", []string{"model"}, slow},
		{ModelFirst, Histogram, "from request to the first word", []string{"model"}, slow},
		{Tokens, Counter, "tokens; wasted ones are of attempts that failed", []string{"model", "class"}, nil},
		{Cost, Counter, "dollars", []string{"model"}, nil},
		{ToolCalls, Counter, "calls of tools", []string{"tool", "outcome"}, nil},
		{ToolSeconds, Histogram, "time in a tool", []string{"tool"}, slow},
		{SandboxStart, Histogram, "until a sandbox answers", []string{"purpose"}, fast},
		{Refused, Counter, "sandboxes that were not started because a layer could not be set up", nil, nil},
		{VerifyTime, Histogram, "time of a verification", nil, long},
		{Verdicts, Counter, "verdicts on submitted changes", []string{"kind"}, nil},
		{Reproduced, Counter, "judgements of tests that should show the bug", []string{"kind"}, nil},
		{MirrorNames, Counter, "package names asked of registries; new ones are in no lockfile", []string{"ecosystem", "new"}, nil},
		{MirrorNo, Counter, "requests for packages that were refused", []string{"ecosystem", "reason"}, nil},
		{Effects, Counter, "outside effects", []string{"kind", "outcome"}, nil},
		{HTTPRequests, Counter, "requests over HTTP", []string{"route", "method", "code"}, nil},
		{HTTPSeconds, Histogram, "time of a request over HTTP", []string{"route"}, fast},
	}
}

// Sample is one value of a gauge now.
type Sample struct {
	Name   string
	Value  float64
	Labels []string
}

func seconds(ms int64) float64 { return float64(ms) / 1000 }

// count moves the numbers that an event is about.
func (w *Watch) count(e event.Event, p event.Payload) {
	m := w.meter
	switch p := p.(type) {
	case *event.RunStarted:
		m.Add(Runs, 1, strconv.FormatBool(p.Resumed))
		if at, ok := born(e.Task); ok && !p.Resumed {
			m.Observe(QueueWait, max(e.Time.Sub(at).Seconds(), 0))
		}
	case *event.StateChanged:
		m.Add(Transitions, 1, string(p.To))
	case *event.ModelRequested:
		w.model(e.Task, p.Model)
		m.Add(Steps, 1)
	case *event.ToolFinished:
		m.Add(ToolCalls, 1, w.names.tool(p.Name), toolOutcome(p))
		m.Observe(ToolSeconds, seconds(p.Millis), w.names.tool(p.Name))
	case *event.SandboxStarted:
		m.Observe(SandboxStart, seconds(p.Millis), w.names.purpose(p.Purpose))
	case *event.SandboxRefused:
		m.Add(Refused, 1)
	case *event.VerificationFinished:
		m.Add(Verdicts, 1, string(p.Kind))
		m.Observe(VerifyTime, seconds(p.Millis))
	case *event.ReproductionChecked:
		m.Add(Reproduced, 1, string(p.Kind))
	case *event.NetworkAsked:
		for _, n := range p.Names {
			m.Add(MirrorNames, 1, ecosystem(n.Ecosystem), strconv.FormatBool(p.New))
		}
	case *event.NetworkRefused:
		m.Add(MirrorNo, 1, ecosystem(p.Ecosystem), word(p.Reason))
	case *event.EffectDone:
		outcome := "done"
		if p.Error != "" {
			outcome = "failed"
		} else if p.Found {
			outcome = "found"
		}
		m.Add(Effects, 1, word(p.Kind), outcome)
	case *event.ModelResponded, *event.ModelFailed:
		w.modelCall(e, p)
	}
}

// modelCall counts a call's end.
func (w *Watch) modelCall(e event.Event, p event.Payload) {
	m, name := w.meter, w.modelOf(e.Task)
	tokens := func(t task.Tokens, wasted bool) {
		for class, n := range map[string]int64{"input": t.Input, "output": t.Output, "cache_read": t.CacheRead, "cache_write": t.CacheWrite} {
			if wasted {
				class = "wasted"
			}
			if n > 0 {
				m.Add(Tokens, float64(n), name, class)
			}
		}
	}
	switch p := p.(type) {
	case *event.ModelResponded:
		m.Add(ModelCalls, 1, name, "ok")
		m.Observe(ModelSeconds, seconds(p.Millis), name)
		m.Observe(ModelFirst, seconds(p.First), name)
		tokens(p.Tokens, false)
		tokens(p.Wasted, true)
		m.Add(Cost, p.Cost.USD(), name)
	case *event.ModelFailed:
		m.Add(ModelCalls, 1, name, string(p.Class))
		tokens(p.Wasted, true)
		m.Add(Cost, p.Cost.USD(), name)
	}
}

func toolOutcome(p *event.ToolFinished) string {
	switch {
	case p.Interrupted:
		return "interrupted"
	case p.IsError:
		return "error"
	case p.ExitCode != nil && *p.ExitCode != 0:
		return "nonzero_exit"
	}
	return "ok"
}

func ecosystem(s string) string {
	return oneOf(s, "go", "npm", "pypi", "crates", "maven", "debian")
}

// word keeps a name of ours to one plain word: kinds of effects and reasons are few, and written
// by this program alone.
func word(s string) string {
	if len(s) > 40 || strings.ContainsFunc(s, func(r rune) bool { return r != '_' && r != '.' && r != '-' && (r < 'a' || r > 'z') }) {
		return other
	}
	return s
}

// born is when a task was made: its id begins with the time.
func born(id task.ID) (time.Time, bool) {
	u, err := ulid.ParseStrict(strings.ToUpper(strings.TrimPrefix(string(id), "t_")))
	if err != nil {
		return time.Time{}, false
	}
	return u.Timestamp(), true
}

package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const id = task.ID("t_01m8n96dmrg6sf6gm2sqawwwhy")

// kept keeps spans and numbers.
type kept struct {
	spans  []Span
	counts map[string]float64
	closed bool
}

func (k *kept) Export(s Span)               { k.spans = append(k.spans, s) }
func (k *kept) Close(context.Context) error { k.closed = true; return nil }
func (k *kept) Add(name string, by float64, labels ...string) {
	k.counts[strings.Join(append([]string{name}, labels...), " ")] += by
}

func (k *kept) Observe(name string, v float64, labels ...string) { k.Add(name, v, labels...) }

func watching() (*Watch, *kept) {
	k := &kept{counts: map[string]float64{}}
	return New(Config{Exporter: k, Meter: k, Tools: []string{"read", "run", "submit"}}), k
}

var begin = time.Date(2026, 11, 30, 3, 51, 1, 0, time.UTC)

// play tells the watch of events, a second apart.
func play(w *Watch, ps ...event.Payload) {
	for i, p := range ps {
		w.Observe(event.Event{Task: id, Seq: int64(i) + 1, Time: begin.Add(time.Duration(i) * time.Second)}, p)
	}
}

const secret = "sk-text-of-an-issue"

func story() []event.Payload {
	one := 1
	text := event.Text{Inline: secret}
	return []event.Payload{
		&event.RunStarted{Worker: secret, Note: secret},
		&event.StateChanged{From: task.Preparing, To: task.Working, Reason: secret},
		&event.SandboxStarted{ID: "s", Purpose: "agent", Millis: 250},
		&event.ModelRequested{Step: 1, Model: "anthropic/claude", MaxOutput: 100},
		&event.ModelResponded{Step: 1, Message: text, Stop: "tool_use", Tokens: task.Tokens{Input: 10, Output: 5, CacheRead: 100, CacheWrite: 20}, Wasted: task.Tokens{Input: 7}, Cost: 1500, Attempts: 2, First: 100, Millis: 900, RequestID: secret},
		&event.ToolStarted{Step: 1, Call: "c1", Name: "run", Args: text},
		&event.ToolFinished{Step: 1, Call: "c1", Name: "run", Result: text, ExitCode: &one, Millis: 300},
		&event.ToolStarted{Step: 1, Call: "c2", Name: secret, Args: text},
		&event.ToolFinished{Step: 1, Call: "c2", Name: secret, Result: text, IsError: true},
		&event.ModelRequested{Step: 2, Model: "anthropic/claude", MaxOutput: 100},
		&event.ModelFailed{Step: 2, Class: task.Overloaded, Error: secret, Wasted: task.Tokens{Input: 3}, Attempts: 3},
		&event.NetworkRefused{Purpose: "agent", Ecosystem: secret, Name: secret, Reason: "name.budget", Detail: secret},
		&event.NetworkAsked{New: true, Names: []event.NetworkName{{Ecosystem: "npm", Name: secret}}},
		&event.ModelRequested{Step: 3, Model: "anthropic/claude"},
		&event.ModelResponded{Step: 3, Message: text, Stop: "tool_use", Attempts: 1},
		&event.ToolStarted{Step: 3, Call: "c3", Name: "submit", Args: text},
		&event.StateChanged{From: task.Working, To: task.Verifying},
		&event.VerificationFinished{Attempt: 1, Kind: task.Verified, Reason: secret, Document: text, Millis: 500},
		&event.ToolFinished{Step: 3, Call: "c3", Name: "submit", Result: text, Millis: 1500},
		&event.StateChanged{From: task.Verifying, To: task.Publishing},
		&event.EffectDone{Key: secret, Kind: "push", Result: json.RawMessage(`"` + secret + `"`)},
		&event.StateChanged{From: task.Publishing, To: task.InReview},
	}
}

func TestSpans(t *testing.T) {
	w, k := watching()
	play(w, story()...)
	names := map[[8]byte]string{}
	for _, s := range k.spans {
		if names[s.ID] != "" {
			t.Errorf("%s and %s have the same id", s.Name, names[s.ID])
		}
		names[s.ID] = s.Name
	}
	var got []string
	for _, s := range k.spans {
		if s.Trace != TraceID(id) || s.End.Before(s.Start) {
			t.Errorf("%s: trace %x, %s to %s", s.Name, s.Trace, s.Start, s.End)
		}
		got = append(got, fmt.Sprintf("%s < %s %s %s%v", s.Name, names[s.Parent], s.End.Sub(s.Start), s.Error, map[bool]string{true: " client"}[s.Client]))
	}
	want := []string{
		"start sandbox < stage working 250ms ",
		"chat claude < step 1 1s  client",
		"execute_tool run < step 1 300ms nonzero_exit",
		"execute_tool other < step 1 0s error",
		"step 1 < stage working 6s ",
		"chat claude < step 2 1s overloaded client",
		"step 2 < stage working 4s ",
		"chat claude < step 3 1s  client",
		"stage working < invoke_agent daybreak 15s ",
		"verify < execute_tool submit 500ms ",
		"execute_tool submit < step 3 1.5s ",
		"stage verifying < invoke_agent daybreak 3s ",
		"effect push < step 3 0s ",
		"step 3 < stage working 8s ",
		"stage publishing < invoke_agent daybreak 2s ",
		"invoke_agent daybreak < task 21s ",
	}
	if d := cmp.Diff(want, got[:len(got)-1]); d != "" {
		t.Error(d)
	}
	last := k.spans[len(k.spans)-1]
	if born, ok := born(id); !ok || last.Name != "task" || !last.Start.Equal(born) || last.Parent != [8]byte{} {
		t.Errorf("%+v", last)
	}
	chat := k.spans[1]
	for _, a := range []Attr{
		{"gen_ai.operation.name", "chat"},
		{"gen_ai.provider.name", "anthropic"},
		{"gen_ai.request.model", "claude"},
		{"gen_ai.request.max_tokens", int64(100)},
		{"gen_ai.usage.input_tokens", int64(130)},
		{"gen_ai.usage.output_tokens", int64(5)},
		{"gen_ai.usage.cache_read.input_tokens", int64(100)},
		{"gen_ai.usage.cache_creation.input_tokens", int64(20)},
		{"gen_ai.conversation.id", string(id)},
		{"daybreak.model.attempts", int64(2)},
	} {
		if !slices.Contains(slices.DeleteFunc(slices.Clone(chat.Attrs), func(b Attr) bool { _, list := b.Value.([]string); return list }), a) {
			t.Errorf("%v is not among %v", a, chat.Attrs)
		}
	}
	if text := fmt.Sprint(k.spans, k.counts); strings.Contains(text, secret) {
		t.Errorf("a text got out: %s", text)
	}
}

func TestARunThatStops(t *testing.T) {
	w, k := watching()
	play(w, story()[:6]...)
	w.RunEnded(id, begin.Add(time.Minute))
	w.RunEnded(id, begin.Add(time.Hour))
	names := make([]string, len(k.spans))
	for i, s := range k.spans {
		names[i] = s.Name
	}
	if d := cmp.Diff([]string{"start sandbox", "chat claude", "execute_tool run", "step 1", "stage working", "invoke_agent daybreak"}, names); d != "" {
		t.Error(d)
	}
	if err := w.Close(t.Context(), begin); err != nil || !k.closed {
		t.Errorf("%v, closed %v", err, k.closed)
	}
}

func TestCounts(t *testing.T) {
	w, k := watching()
	play(w, story()...)
	for name, want := range map[string]float64{
		"daybreak_runs_total false": 1, "daybreak_steps_total": 3, "daybreak_task_transitions_total in_review": 1,
		"daybreak_model_calls_total anthropic/claude ok": 2, "daybreak_model_calls_total anthropic/claude overloaded": 1,
		"daybreak_model_tokens_total anthropic/claude cache_read": 100, "daybreak_model_tokens_total anthropic/claude wasted": 10,
		"daybreak_model_call_seconds anthropic/claude": 0.9, "daybreak_model_cost_usd_total anthropic/claude": 0.0015,
		"daybreak_tool_calls_total run nonzero_exit": 1, "daybreak_tool_calls_total other error": 1, "daybreak_tool_calls_total submit ok": 1,
		"daybreak_sandbox_start_seconds agent": 0.25, "daybreak_verdicts_total verified": 1, "daybreak_verification_seconds": 0.5,
		"daybreak_mirror_refusals_total other name.budget": 1, "daybreak_mirror_names_total npm true": 1, "daybreak_effects_total push done": 1,
	} {
		if k.counts[name] != want {
			t.Errorf("%s = %v, want %v", name, k.counts[name], want)
		}
	}
	known := map[string]int{}
	for _, m := range Metrics() {
		known[m.Name] = len(m.Labels)
	}
	for name := range k.counts {
		f := strings.Fields(name)
		if n, ok := known[f[0]]; !ok || n != len(f)-1 {
			t.Errorf("%s is no metric, or has the wrong labels", name)
		}
	}
}

// Callers may name any model: only so many get a label of their own.
func TestLabelsAreBounded(t *testing.T) {
	w, k := watching()
	for i := range 3 * maxModels {
		play(w, &event.ModelRequested{Model: fmt.Sprintf("p/m%d", i)}, &event.ModelResponded{})
	}
	n := 0
	for name := range k.counts {
		if strings.HasPrefix(name, ModelCalls) {
			n++
		}
	}
	if n != maxModels+1 || k.counts[ModelCalls+" other ok"] != 2*maxModels {
		t.Errorf("%d labels, %v others", n, k.counts[ModelCalls+" other ok"])
	}
}

func TestNobodyWatches(t *testing.T) {
	var none *Watch
	none.RunEnded(id, begin)
	none.Add(Steps, 1)
	play(none, story()...)
	play(New(Config{}), story()...)
	if err := none.Close(t.Context(), begin); err != nil {
		t.Error(err)
	}
}

func TestHTTP(t *testing.T) {
	w, k := watching()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /tasks/{id}", func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusTeapot) })
	mux.HandleFunc("GET /live", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		if err := http.NewResponseController(rw).Flush(); err != nil {
			t.Errorf("a stream cannot be flushed: %v", err)
		}
	})
	h := w.HTTP(mux)
	for _, target := range []string{"GET /tasks/t_1", "GET /tasks/t_2", "GET /live", "BREW /x"} {
		method, path, _ := strings.Cut(target, " ")
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, nil))
	}
	for name, want := range map[string]float64{
		"daybreak_http_requests_total GET /tasks/{id} GET 418": 2, "daybreak_http_requests_total GET /live GET 200": 1, "daybreak_http_requests_total none other 404": 1,
	} {
		if k.counts[name] != want {
			t.Errorf("%s = %v of %v", name, k.counts[name], k.counts)
		}
	}
	if _, timed := k.counts["daybreak_http_request_seconds GET /live"]; timed {
		t.Error("a live stream counts as a slow answer")
	}
}

// Every metric that the dashboard names exists, with the labels that it asks for, and every one
// that exists is on it.
func TestDashboard(t *testing.T) {
	b, err := os.ReadFile("../../deploy/grafana/daybreak.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(b, &board); err != nil {
		t.Fatal(err)
	}
	metrics := map[string]Metric{}
	for _, m := range Metrics() {
		metrics[m.Name] = m
	}
	shown := map[string]bool{}
	name := regexp.MustCompile(`daybreak_[a-z_]+`)
	by := regexp.MustCompile(`by \(([a-z_, ]+)\)|\{([a-z_]+)[=!]`)
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			var labels []string
			for _, n := range name.FindAllString(target.Expr, -1) {
				m, ok := metrics[n]
				if base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(n, "_bucket"), "_sum"), "_count"); !ok && metrics[base].Kind == Histogram {
					m, ok = metrics[base], true
				}
				if !ok {
					t.Errorf("%s: there is no metric %s", p.Title, n)
				}
				shown[m.Name] = true
				labels = append(labels, m.Labels...)
			}
			for _, m := range by.FindAllStringSubmatch(target.Expr, -1) {
				for _, l := range strings.FieldsFunc(m[1]+m[2], func(r rune) bool { return r == ',' || r == ' ' }) {
					if l != "le" && !slices.Contains(labels, l) {
						t.Errorf("%s: %s has no label %s", p.Title, target.Expr, l)
					}
				}
			}
		}
	}
	for n := range metrics {
		if !shown[n] {
			t.Errorf("%s is not on the dashboard", n)
		}
	}
}

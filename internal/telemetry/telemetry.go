// Package telemetry is the seam to what watches an installation from outside: spans of traces,
// and numbers. Both are folds over events that were recorded already, so that nothing that does
// the work has to know that it is watched. Adapters: `prom`, `otlp`.
//
// Invariants: no text of an issue, a model, a tool or a file gets into a span or a label, nor
// does a secret: only names from fixed lists, ids, numbers and classes; labels never hold the id
// of a task, a person or a repository; what watches can neither fail nor hold up the work; a
// nil *Watch watches nothing.
package telemetry

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Span is one finished piece of work.
type Span struct {
	Trace  [16]byte
	ID     [8]byte
	Parent [8]byte // zero: none
	Name   string
	Client bool // it was a call of another service
	Start  time.Time
	End    time.Time
	Attrs  []Attr
	Error  string // class of what went wrong; "" when nothing did
}

// Attr is one attribute. Value is a string, int64, float64, bool or []string.
type Attr struct {
	Key   string
	Value any
}

// Exporter takes spans to where they are looked at. It must not block.
type Exporter interface {
	Export(s Span)
	// Close sends what is left.
	Close(ctx context.Context) error
}

// Meter keeps the numbers of [Metrics]. Label values come in the order of their names there.
type Meter interface {
	Add(name string, by float64, labels ...string)
	Observe(name string, v float64, labels ...string)
}

// Watch is told of everything that was recorded. Its methods are safe for concurrent use.
type Watch struct {
	spans *tracer
	meter Meter
	names names

	mu     sync.Mutex
	models map[string]bool    // that have a label of their own
	asked  map[task.ID]string // model of the newest request of each run
}

// Config says who watches. Both may be nil.
type Config struct {
	Exporter Exporter
	Meter    Meter
	Tools    []string // names of tools that may be told; every other one is "other"
}

// New returns a watch.
func New(cfg Config) *Watch {
	w := &Watch{meter: cfg.Meter, names: names{slices.Clone(cfg.Tools)}, models: map[string]bool{}, asked: map[task.ID]string{}}
	if cfg.Exporter != nil {
		w.spans = &tracer{out: cfg.Exporter, names: w.names, runs: map[task.ID]*run{}}
	}
	return w
}

// Observe takes one stored event.
func (w *Watch) Observe(e event.Event, p event.Payload) {
	if w == nil {
		return
	}
	if w.meter != nil {
		w.count(e, p)
	}
	if w.spans != nil {
		w.spans.observe(e, p)
	}
}

// RunEnded says that this process has stopped working on the task.
func (w *Watch) RunEnded(id task.ID, at time.Time) {
	if w == nil {
		return
	}
	w.mu.Lock()
	delete(w.asked, id)
	w.mu.Unlock()
	if w.spans != nil {
		w.spans.end(id, at)
	}
}

// Add counts what no event tells, such as a request over HTTP.
func (w *Watch) Add(name string, by float64, labels ...string) {
	if w != nil && w.meter != nil {
		w.meter.Add(name, by, labels...)
	}
}

// Time is Add for a distribution.
func (w *Watch) Time(name string, d time.Duration, labels ...string) {
	if w != nil && w.meter != nil {
		w.meter.Observe(name, d.Seconds(), labels...)
	}
}

// Close ends what is open and sends what is left.
func (w *Watch) Close(ctx context.Context, at time.Time) error {
	if w == nil || w.spans == nil {
		return nil
	}
	w.spans.endAll(at)
	return w.spans.out.Close(ctx)
}

// maxModels is how many models have a label of their own: callers may name any.
const maxModels = 50

// model remembers what the task's newest request was for.
func (w *Watch) model(id task.ID, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.models[name] && len(w.models) >= maxModels {
		name = other
	}
	w.models[name], w.asked[id] = true, name
}

func (w *Watch) modelOf(id task.ID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m := w.asked[id]; m != "" {
		return m
	}
	return other
}

// names keeps labels to what is known beforehand.
type names struct{ tools []string }

// other stands for every name that is not on a list.
const other = "other"

// tool is the tool's name: a model may ask for what there is not, by any name.
func (n names) tool(name string) string {
	if slices.Contains(n.tools, name) {
		return name
	}
	return other
}

func (n names) purpose(name string) string {
	return oneOf(name, "agent", "prepare", "baseline", "index", "red", "green", "guard", "probe")
}

func oneOf(s string, list ...string) string {
	if slices.Contains(list, s) {
		return s
	}
	return other
}

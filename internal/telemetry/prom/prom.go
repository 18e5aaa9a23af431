// Package prom keeps the numbers of an installation for Prometheus.
//
// Invariants: it has the metrics of [telemetry.Metrics] and those of the process, and no others;
// a number that has no metric, or comes with the wrong labels, is dropped; gauges are read when
// somebody asks.
package prom

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/daybreak-agent/daybreak/internal/telemetry"
)

// Fleet reads the gauges' values now.
type Fleet func(ctx context.Context) ([]telemetry.Sample, error)

// Registry implements telemetry.Meter.
type Registry struct {
	reg        *prometheus.Registry
	counters   map[string]*prometheus.CounterVec
	histograms map[string]*prometheus.HistogramVec
}

// New returns a registry with every metric in it.
func New(fleet Fleet) (*Registry, error) {
	r := &Registry{reg: prometheus.NewRegistry(), counters: map[string]*prometheus.CounterVec{}, histograms: map[string]*prometheus.HistogramVec{}}
	gauges := &gauges{fleet: fleet, descs: map[string]*prometheus.Desc{}}
	all := []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), gauges}
	for _, m := range telemetry.Metrics() {
		switch m.Kind {
		case telemetry.Counter:
			v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
			r.counters[m.Name], all = v, append(all, v)
			if len(m.Labels) == 0 {
				v.WithLabelValues() // it is there from the start, at 0
			}
		case telemetry.Histogram:
			v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: m.Buckets}, m.Labels)
			r.histograms[m.Name], all = v, append(all, v)
		case telemetry.Gauge:
			gauges.descs[m.Name] = prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
		}
	}
	for _, c := range all {
		if err := r.reg.Register(c); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Add implements telemetry.Meter.
func (r *Registry) Add(name string, by float64, labels ...string) {
	if v := r.counters[name]; v != nil && by >= 0 {
		if c, err := v.GetMetricWithLabelValues(labels...); err == nil {
			c.Add(by)
		}
	}
}

// Observe implements telemetry.Meter.
func (r *Registry) Observe(name string, x float64, labels ...string) {
	if v := r.histograms[name]; v != nil {
		if h, err := v.GetMetricWithLabelValues(labels...); err == nil {
			h.Observe(x)
		}
	}
}

// Handler answers with all numbers.
func (r *Registry) Handler() http.Handler {
	return promhttp.HandlerFor(r.reg, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// gauges implements prometheus.Collector.
type gauges struct {
	fleet Fleet
	descs map[string]*prometheus.Desc
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range g.descs {
		ch <- d
	}
}

// patience is how long a scrape waits for the store.
const patience = 5 * time.Second

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	if g.fleet == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	samples, err := g.fleet(ctx)
	if err != nil {
		for _, d := range g.descs {
			ch <- prometheus.NewInvalidMetric(d, err)
		}
		return
	}
	for _, s := range samples {
		if d := g.descs[s.Name]; d != nil {
			if m, err := prometheus.NewConstMetric(d, prometheus.GaugeValue, s.Value, s.Labels...); err == nil {
				ch <- m
			}
		}
	}
}

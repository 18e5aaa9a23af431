// Package otlp sends spans over OTLP/HTTP, by OpenTelemetry's own SDK.
//
// Invariants: sending never blocks or fails the work: what the collector does not take in time
// is dropped; the ids of spans are the ones that were given, so that every process that works on
// a task writes into one trace; nothing global is set.
package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/daybreak-agent/daybreak/internal/telemetry"
)

// Config says where spans go.
type Config struct {
	Endpoint string // base URL of the collector; "" is what the OTEL_EXPORTER_OTLP_* variables say
	Service  string // service.name
	Version  string // service.version
	Instance string // service.instance.id
	Logger   *slog.Logger
}

// Exporter implements telemetry.Exporter.
type Exporter struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// New returns an exporter. Nothing is sent before the first span.
func New(ctx context.Context, cfg Config) (*Exporter, error) {
	var opts []otlptracehttp.Option
	if cfg.Endpoint != "" {
		opts = append(opts, otlptracehttp.WithEndpointURL(strings.TrimSuffix(cfg.Endpoint, "/")+"/v1/traces"))
	}
	exp, err := otlptracehttp.New(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	res := resource.NewSchemaless(
		attribute.String("service.name", cfg.Service), attribute.String("service.version", cfg.Version),
		attribute.String("service.instance.id", cfg.Instance),
	)
	p := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&told{SpanExporter: exp, log: cfg.Logger}), sdktrace.WithResource(res), sdktrace.WithIDGenerator(given{}), sdktrace.WithSampler(sdktrace.AlwaysSample()),
	)
	return &Exporter{p, p.Tracer("daybreak")}, nil
}

// Export implements telemetry.Exporter.
func (e *Exporter) Export(s telemetry.Span) {
	ctx := context.WithValue(context.Background(), idKey{}, ids{trace.TraceID(s.Trace), trace.SpanID(s.ID)})
	parent := trace.SpanID(s.Parent)
	if parent.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID(s.Trace), SpanID: parent, TraceFlags: trace.FlagsSampled,
		}))
	}
	kind := trace.SpanKindInternal
	if s.Client {
		kind = trace.SpanKindClient
	}
	attrs := make([]attribute.KeyValue, 0, len(s.Attrs)+1)
	for _, a := range s.Attrs {
		attrs = append(attrs, keyValue(a))
	}
	if s.Error != "" {
		attrs = append(attrs, attribute.String("error.type", s.Error))
	}
	_, span := e.tracer.Start(ctx, s.Name, trace.WithTimestamp(s.Start), trace.WithSpanKind(kind), trace.WithAttributes(attrs...))
	if s.Error != "" {
		span.SetStatus(codes.Error, s.Error)
	}
	span.End(trace.WithTimestamp(s.End))
}

func keyValue(a telemetry.Attr) attribute.KeyValue {
	switch v := a.Value.(type) {
	case string:
		return attribute.String(a.Key, v)
	case int64:
		return attribute.Int64(a.Key, v)
	case float64:
		return attribute.Float64(a.Key, v)
	case bool:
		return attribute.Bool(a.Key, v)
	case []string:
		return attribute.StringSlice(a.Key, v)
	}
	return attribute.String(a.Key, "?") // not a value that telemetry.Attr may have
}

// Close implements telemetry.Exporter.
func (e *Exporter) Close(ctx context.Context) error { return e.provider.Shutdown(ctx) }

// told says once that spans cannot be sent, and once that they can again. The SDK would print each
// time.
type told struct {
	sdktrace.SpanExporter
	log    *slog.Logger
	failed atomic.Bool
}

// ExportSpans implements sdktrace.SpanExporter.
func (t *told) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	switch err := t.SpanExporter.ExportSpans(ctx, spans); {
	case err != nil && !t.failed.Swap(true):
		t.log.WarnContext(ctx, "spans cannot be sent; they are dropped until the collector takes them again", "error", err)
	case err == nil && t.failed.Swap(false):
		t.log.InfoContext(ctx, "spans are sent again")
	}
	return nil
}

// given hands out the ids that come with a span.
type given struct{}

type idKey struct{}

type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

// NewIDs implements sdktrace.IDGenerator.
func (given) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	v, _ := ctx.Value(idKey{}).(ids)
	return v.trace, v.span
}

// NewSpanID implements sdktrace.IDGenerator.
func (given) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	v, _ := ctx.Value(idKey{}).(ids)
	return v.span
}

package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/daybreak-agent/daybreak/internal/policy"
)

// masked is a handler of logs in which secrets are masked as they are in records.
type masked struct {
	slog.Handler
	mask func(string) string
}

// maskedLogger masks the values that secrets gives once a line is written.
func maskedLogger(log *slog.Logger, secrets func() []policy.Secret) *slog.Logger {
	redactor := sync.OnceValue(func() *policy.Redactor { return policy.NewRedactor(secrets()) })
	return slog.New(masked{log.Handler(), func(s string) string {
		s, _ = redactor().Redact(s)
		return s
	}})
}

// Handle implements slog.Handler.
func (m masked) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, m.mask(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(m.attr(a))
		return true
	})
	return m.Handler.Handle(ctx, out)
}

func (m masked) attr(a slog.Attr) slog.Attr {
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(m.mask(v.String()))
	case slog.KindAny:
		text := fmt.Sprint(v.Any())
		if clean := m.mask(text); clean != text {
			a.Value = slog.StringValue(clean)
		}
	case slog.KindGroup:
		var in []slog.Attr
		for _, g := range v.Group() {
			in = append(in, m.attr(g))
		}
		a.Value = slog.GroupValue(in...)
	}
	return a
}

// WithAttrs implements slog.Handler.
func (m masked) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = m.attr(a)
	}
	return masked{m.Handler.WithAttrs(clean), m.mask}
}

// WithGroup implements slog.Handler.
func (m masked) WithGroup(name string) slog.Handler { return masked{m.Handler.WithGroup(name), m.mask} }

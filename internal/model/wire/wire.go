// Package wire owns what every HTTP adapter of package model shares: a guarded HTTP client
// and the mapping from a provider's failures to error classes.
//
// Invariants: no redirect is ever followed, so a key reaches only the host it was meant for;
// a response is never longer than its cap and never silent for longer than its idle limit;
// every error that leaves an adapter is a *task.Error of one line without the key in it.
package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// The defaults of [Limits].
const (
	DefaultIdle     = 120 * time.Second
	DefaultMaxBytes = 64 << 20
)

// Limits bounds one response.
type Limits struct {
	Idle     time.Duration // longest silence, before the headers or between reads; 0: DefaultIdle
	MaxBytes int64         // longest body; 0: DefaultMaxBytes
	// Seen is told of each response before its body is read; may be nil.
	Seen func(ctx context.Context, status int, h http.Header)
}

// Guard returns a copy of c (nil: http.DefaultClient) that keeps the limits and refuses
// redirects. Its errors are *task.Error: silence is Transient, the two others Invalid.
func Guard(c *http.Client, l Limits) *http.Client {
	if l.Idle <= 0 {
		l.Idle = DefaultIdle
	}
	if l.MaxBytes <= 0 {
		l.MaxBytes = DefaultMaxBytes
	}
	out := http.Client{}
	if c != nil {
		out = *c
	}
	out.Timeout = 0 // a timeout over the whole reply would cut long, live streams
	base := out.Transport
	if base == nil {
		base = http.DefaultTransport
	}
	out.Transport = &guard{base: base, limits: l}
	return &out
}

type guard struct {
	base   http.RoundTripper
	limits Limits
}

func (g *guard) silent() error {
	return &task.Error{Class: task.Transient, Msg: fmt.Sprintf("the provider sent nothing for %s", g.limits.Idle)}
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(g.limits.Idle, func() { cancel(g.silent()) })
	resp, err := g.base.RoundTrip(req.WithContext(ctx))
	timer.Stop()
	if err != nil {
		if cause := silence(ctx, req.Context()); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	if g.limits.Seen != nil {
		g.limits.Seen(req.Context(), resp.StatusCode, resp.Header)
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		_ = resp.Body.Close()
		cancel(nil)
		return nil, &task.Error{
			Class: task.Invalid, Msg: fmt.Sprintf("the provider answers with a redirect (%d), which is not followed", resp.StatusCode),
			Fix: "set the base URL to the final address",
		}
	}
	resp.Body = &body{rc: resp.Body, silent: func() error { return silence(ctx, req.Context()) }, cancel: cancel, timer: timer, guard: g, left: g.limits.MaxBytes}
	return resp, nil
}

// silence returns the idle error if that is what ended ctx, and not the caller.
func silence(ctx, parent context.Context) error {
	if parent.Err() != nil {
		return nil
	}
	var e *task.Error
	if errors.As(context.Cause(ctx), &e) {
		return e
	}
	return nil
}

// body is a response's body under the limits. silent tells whether our own clock ended it.
type body struct {
	rc     io.ReadCloser
	silent func() error
	cancel context.CancelCauseFunc
	timer  *time.Timer
	guard  *guard
	left   int64
	once   sync.Once
}

func (b *body) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	// The clock runs only while we wait for the provider: a slow reader is no silence.
	b.timer.Reset(b.guard.limits.Idle)
	n, err := b.rc.Read(p)
	b.timer.Stop()
	b.left -= int64(n)
	if b.left < 0 {
		return 0, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("the provider's reply is longer than %d bytes and was cut off", b.guard.limits.MaxBytes)}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := b.silent(); cause != nil {
			err = cause
		}
	}
	return n, err
}

func (b *body) Close() error {
	var err error
	b.once.Do(func() {
		b.timer.Stop()
		b.cancel(nil)
		err = b.rc.Close()
	})
	return err
}

// Encode writes v as JSON without HTML escapes and without a final newline: the same value
// gives the same bytes.
func Encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, &task.Error{Class: task.Invalid, Msg: "the request cannot be encoded", Err: err}
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// Object returns the arguments of a tool call as a JSON object. Text that is none comes back
// as bad, with {} as the object, so that the conversation stays well-formed. Empty text is
// what providers send for a call without arguments.
func Object(text string) (obj json.RawMessage, bad string) {
	t := bytes.TrimSpace([]byte(text))
	if len(t) == 0 {
		return json.RawMessage("{}"), ""
	}
	if t[0] != '{' || !json.Valid(t) {
		return json.RawMessage("{}"), text
	}
	return t, ""
}

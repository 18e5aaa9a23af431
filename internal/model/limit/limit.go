// Package limit is a decorator of package model that keeps all workers of a store together
// below a provider's rate limits.
//
// Invariants: what is known of the limits is what the provider's own headers said last; a call
// waits before it is sent, it is never refused for lack of knowledge; when the shared value
// cannot be read the call goes ahead, since the provider still guards its limits.
package limit

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// State is one small value that all workers share. A store offers it.
type State interface {
	Update(ctx context.Context, key string, change func(old []byte) ([]byte, error)) error
}

// Config is what a limiter needs.
type Config struct {
	Key    string // names the limits: the provider, its account, the model
	State  State
	Now    func() time.Time
	Rand   func() float64 // in [0, 1), spreads those who wait for the same moment
	Logger *slog.Logger

	MaxWait time.Duration                                    // longest wait before the task is better put off; default 2 min
	Sleep   func(ctx context.Context, d time.Duration) error // default: a timer
}

// Limiter knows the limits of one provider's model.
type Limiter struct{ cfg Config }

// New returns a limiter that knows nothing yet.
func New(cfg Config) *Limiter {
	if cfg.MaxWait <= 0 {
		cfg.MaxWait = 2 * time.Minute
	}
	if cfg.Sleep == nil {
		cfg.Sleep = func(ctx context.Context, d time.Duration) error {
			t := time.NewTimer(d)
			defer t.Stop()
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-t.C:
				return nil
			}
		}
	}
	return &Limiter{cfg}
}

// Client returns next behind the limiter.
func (l *Limiter) Client(next model.Client) model.Client { return client{l, next} }

type client struct {
	l    *Limiter
	next model.Client
}

// Info implements model.Client.
func (c client) Info() model.Info { return c.next.Info() }

// Stream implements model.Client.
func (c client) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		if err := c.l.wait(ctx, need{model.EstimateTokens(req), int64(req.MaxOutput)}); err != nil {
			yield(model.Delta{}, err)
			return
		}
		for d, err := range c.next.Stream(ctx, req) {
			if !yield(d, err) {
				return
			}
		}
	}
}

// wait returns when the call may be sent.
func (l *Limiter) wait(ctx context.Context, n need) error {
	waited := time.Duration(0)
	for {
		var left time.Duration
		err := l.cfg.State.Update(ctx, l.cfg.Key, func(old []byte) ([]byte, error) {
			s := parse(old)
			left = s.take(l.cfg.Now(), n)
			return json.Marshal(s)
		})
		if ctx.Err() != nil {
			return &task.Error{Class: task.StoppedBy, Msg: "stopped while waiting for the provider's rate limit", Err: context.Cause(ctx)}
		}
		if err != nil {
			l.cfg.Logger.WarnContext(ctx, "the shared rate limit cannot be read; the call goes ahead", "limit", l.cfg.Key, "error", err)
			return nil
		}
		if left == 0 {
			return nil
		}
		left += time.Duration(l.cfg.Rand() * float64(min(left/4, 2*time.Second)))
		if waited += left; waited > l.cfg.MaxWait {
			return &task.Error{
				Class: task.RateLimited, RetryAfter: left,
				Msg: fmt.Sprintf("the provider's rate limit is used up for %s", left.Round(time.Second)),
			}
		}
		l.cfg.Logger.DebugContext(ctx, "waiting for the provider's rate limit", "limit", l.cfg.Key, "for", left)
		if err := l.cfg.Sleep(ctx, left); err != nil {
			return &task.Error{Class: task.StoppedBy, Msg: "stopped while waiting for the provider's rate limit", Err: err}
		}
	}
}

// Seen learns from the headers of a response, good or bad.
func (l *Limiter) Seen(ctx context.Context, status int, h http.Header) {
	now := l.cfg.Now()
	heard := read(h, now)
	if status == http.StatusTooManyRequests || status == 529 {
		heard.blocked = now.Add(retryAfter(h))
	}
	if heard == (told{}) {
		return
	}
	err := l.cfg.State.Update(context.WithoutCancel(ctx), l.cfg.Key, func(old []byte) ([]byte, error) {
		s := parse(old)
		s.learn(now, heard)
		return json.Marshal(s)
	})
	if err != nil {
		l.cfg.Logger.WarnContext(ctx, "the shared rate limit cannot be written", "limit", l.cfg.Key, "error", err)
	}
}

// Left is one limit of a provider, with what is left of it.
type Left struct {
	Name   string  // "requests", "tokens" (input and output together), "input", "output"
	Limit  float64 // at most
	Left   float64 // now
	Minute float64 // refilled in a minute
}

// Known is what a limiter keeps under its key: the limits that the provider told, refilled up to now,
// and, if it said so, before when no call may be sent.
func Known(value []byte, now time.Time) (all []Left, blocked time.Time) {
	s := parse(value)
	for _, m := range []struct {
		name string
		*meter
	}{{"requests", &s.Requests}, {"tokens", &s.Tokens}, {"input", &s.Input}, {"output", &s.Output}} {
		if m.Limit > 0 {
			m.at(now)
			all = append(all, Left{m.name, m.Limit, m.Left, m.Rate * 60})
		}
	}
	if s.Blocked.After(now) {
		blocked = s.Blocked
	}
	return all, blocked
}

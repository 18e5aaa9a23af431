// Package retry is a decorator of package model that tries a call again when the class of
// its error says so.
//
// Invariants: classes decide, never texts; the wait a provider asks for is honoured in full
// or not at all; what failed attempts used is summed into Wasted; nothing follows a delta of
// a failed attempt but a [model.Retry] or the final error, so that a display can void it.
package retry

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Config says how often and how long. Zero fields take the defaults.
type Config struct {
	Attempts int           // in all, default 6
	Base     time.Duration // first wait, default 1 s; doubles each time, twice as long when overloaded
	Cap      time.Duration // longest wait of our own choosing, default 60 s
	MaxWait  time.Duration // longest wait a provider may ask for, default 5 min

	// Sleep waits, or returns the context's error. Default: a timer.
	Sleep func(ctx context.Context, d time.Duration) error
	// Rand returns a number in [0, 1) for the jitter. Required.
	Rand func() float64
}

type client struct {
	next model.Client
	cfg  Config
}

// New wraps a client. Errors that leave it are *model.FailedError.
func New(next model.Client, cfg Config) model.Client {
	if cfg.Attempts <= 0 {
		cfg.Attempts = 6
	}
	if cfg.Base <= 0 {
		cfg.Base = time.Second
	}
	if cfg.Cap <= 0 {
		cfg.Cap = time.Minute
	}
	if cfg.MaxWait <= 0 {
		cfg.MaxWait = 5 * time.Minute
	}
	if cfg.Sleep == nil {
		cfg.Sleep = sleep
	}
	return &client{next: next, cfg: cfg}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// Info implements model.Client.
func (c *client) Info() model.Info { return c.next.Info() }

// Stream implements model.Client.
func (c *client) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		var wasted task.Tokens
		for attempt := 1; ; attempt++ {
			used, err, goOn := c.attempt(ctx, req, attempt, wasted, yield)
			if !goOn {
				return
			}
			wasted = wasted.Add(used)
			wait, final := c.decide(ctx, attempt, err)
			if final == nil {
				if !yield(model.Delta{Retry: &model.Retry{Attempt: attempt, After: wait.Milliseconds(), Wasted: wasted, Err: err}}, nil) {
					return
				}
				if stop := c.cfg.Sleep(ctx, wait); stop != nil {
					final = &task.Error{Class: task.StoppedBy, Msg: "stopped while waiting to call the model again", Err: stop}
				}
			}
			if final != nil {
				yield(model.Delta{}, &model.FailedError{Attempts: attempt, Wasted: wasted, Err: final})
				return
			}
		}
	}
}

// attempt runs the call once. goOn is false when the sequence has ended, by Done or because
// the reader left.
func (c *client) attempt(ctx context.Context, req model.Request, n int, wasted task.Tokens, yield func(model.Delta, error) bool) (used task.Tokens, err error, goOn bool) {
	for d, err := range c.next.Stream(ctx, req) {
		if err != nil {
			return used, err, true
		}
		if d.Usage != nil {
			used = *d.Usage
		}
		if d.Done != nil {
			done := *d.Done
			done.Attempts, done.Wasted = n, wasted
			yield(model.Delta{Done: &done}, nil)
			return used, nil, false
		}
		if !yield(d, nil) {
			return used, nil, false
		}
	}
	return used, &task.Error{Class: task.Transient, Msg: "the model's stream ended without a final message"}, true
}

// decide decides what follows a failure: a wait, or the error to end with.
func (c *client) decide(ctx context.Context, attempt int, err error) (time.Duration, error) {
	class := task.ClassOf(err)
	if ctx.Err() != nil || !class.Retryable() {
		return 0, classed(err)
	}
	var e *task.Error
	errors.As(err, &e) // it is one: no other error has a retryable class
	if e.RetryAfter > c.cfg.MaxWait {
		return 0, &task.Error{
			Class: e.Class, RetryAfter: e.RetryAfter, Err: err,
			Msg: fmt.Sprintf("the provider asks to wait %s, more than the %s allowed", e.RetryAfter.Round(time.Second), c.cfg.MaxWait),
		}
	}
	if attempt >= c.cfg.Attempts {
		return 0, &task.Error{Class: e.Class, RetryAfter: e.RetryAfter, Err: err, Msg: fmt.Sprintf("gave up after %d attempts", attempt)}
	}
	return c.wait(attempt, e), nil
}

// classed makes sure that the error has a class in its chain.
func classed(err error) error {
	var e *task.Error
	if errors.As(err, &e) {
		return err
	}
	return &task.Error{Class: task.Internal, Err: err}
}

// wait doubles from the base, takes a random part of the upper half so that many clients do
// not come back at once, and is never shorter than what the provider asked for.
func (c *client) wait(attempt int, e *task.Error) time.Duration {
	d := c.cfg.Base
	if e.Class == task.Overloaded {
		d *= 2
	}
	for i := 1; i < attempt && d < c.cfg.Cap; i++ {
		d *= 2
	}
	d = min(d, c.cfg.Cap)
	d = d/2 + time.Duration(c.cfg.Rand()*float64(d/2))
	if e.RetryAfter > 0 {
		// All the clients of one limit were told the same time: spread them after it.
		return e.RetryAfter + time.Duration(c.cfg.Rand()*float64(min(e.RetryAfter/10, time.Second)))
	}
	return d
}

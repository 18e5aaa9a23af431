package retry_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/model/retry"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// script is a client whose n-th call uses some tokens and fails with errs[n], or works.
type script struct {
	errs  []error
	calls []time.Time
}

func (s *script) Info() model.Info { return model.Info{Provider: "script"} }

func (s *script) Stream(context.Context, model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		n := len(s.calls)
		s.calls = append(s.calls, time.Now())
		if !yield(model.Delta{Text: fmt.Sprint("try ", n)}, nil) || !yield(model.Delta{Usage: &task.Tokens{Input: 100, Output: 1}}, nil) {
			return
		}
		if !yield(model.Delta{Usage: &task.Tokens{Input: 100, Output: 5}}, nil) {
			return
		}
		if n < len(s.errs) && s.errs[n] != nil {
			yield(model.Delta{}, s.errs[n])
			return
		}
		if n < len(s.errs) { // a nil error: ends without a word
			return
		}
		yield(model.Delta{Done: &model.Response{Tokens: task.Tokens{Input: 100, Output: 9}}}, nil)
	}
}

func failure(c task.Class, after time.Duration) error {
	return fmt.Errorf("call: %w", &task.Error{Class: c, Msg: "no luck", RetryAfter: after})
}

func half() float64 { return 0.5 }

func collect(t *testing.T, ctx context.Context, s *script, cfg retry.Config) (model.Response, []model.Retry, error) {
	t.Helper()
	cfg.Rand = half
	var retries []model.Retry
	r, err := model.Collect(retry.New(s, cfg).Stream(ctx, model.Request{}), func(d model.Delta) {
		if d.Retry != nil {
			retries = append(retries, *d.Retry)
		}
	})
	return r, retries, err
}

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{errs: []error{failure(task.Transient, 0), nil, failure(task.RateLimited, 20*time.Second), failure(task.Overloaded, 0)}}
		r, retries, err := collect(t, t.Context(), s, retry.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Attempts != 5 || r.Wasted != (task.Tokens{Input: 400, Output: 20}) || r.Tokens.Output != 9 {
			t.Errorf("attempts %d, wasted %+v, tokens %+v", r.Attempts, r.Wasted, r.Tokens)
		}
		// base 1 s: 0.75; doubled: 1.5; 20 s and half a second of spread; overloaded, 4th: 2·8 s → 12
		want := []time.Duration{750 * time.Millisecond, 1500 * time.Millisecond, 20500 * time.Millisecond, 12 * time.Second}
		for i, w := range want {
			if got := s.calls[i+1].Sub(s.calls[i]); got != w {
				t.Errorf("wait %d: %s, want %s", i+1, got, w)
			}
			if retries[i].After != w.Milliseconds() || retries[i].Attempt != i+1 || retries[i].Err == nil {
				t.Errorf("announced %+v, want %s", retries[i], w)
			}
		}
	})
}

func TestEnds(t *testing.T) {
	again := []error{failure(task.Transient, 0), failure(task.Transient, 0), failure(task.Transient, 0)}
	for _, tc := range []struct {
		name     string
		errs     []error
		cfg      retry.Config
		class    task.Class
		attempts int
		says     string
	}{
		{"auth is final", []error{failure(task.Auth, 0)}, retry.Config{}, task.Auth, 1, "no luck"},
		{"too large is final", []error{failure(task.TooLarge, 0)}, retry.Config{}, task.TooLarge, 1, "no luck"},
		{"an error without a class is final", []error{errors.New("odd")}, retry.Config{}, task.Internal, 1, "odd"},
		{"attempts run out", again, retry.Config{Attempts: 3}, task.Transient, 3, "gave up after 3 attempts"},
		{"hours away", []error{failure(task.RateLimited, 3*time.Hour)}, retry.Config{}, task.RateLimited, 1, "asks to wait 3h0m0s"},
		{"within an operator's patience", []error{failure(task.RateLimited, 3*time.Hour), failure(task.Auth, 0)}, retry.Config{MaxWait: 4 * time.Hour}, task.Auth, 2, "no luck"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, _, err := collect(t, t.Context(), &script{errs: tc.errs}, tc.cfg)
				var f *model.FailedError
				if !errors.As(err, &f) {
					t.Fatalf("%T %v", err, err)
				}
				if task.ClassOf(err) != tc.class || f.Attempts != tc.attempts || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("class %s, attempts %d, %q", task.ClassOf(err), f.Attempts, err)
				}
				if want := int64(tc.attempts) * 100; f.Wasted.Input != want {
					t.Errorf("wasted %+v, want %d of input", f.Wasted, want)
				}
			})
		})
	}
}

func TestLongWaitSaysHowLong(t *testing.T) {
	_, _, err := collect(t, t.Context(), &script{errs: []error{failure(task.RateLimited, time.Hour)}}, retry.Config{})
	var e *task.Error
	if !errors.As(err, &e) || e.RetryAfter != time.Hour {
		t.Errorf("got %v", err)
	}
}

func TestStopWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(300*time.Millisecond, func() { cancel(errors.New("a person's stop")) })
		s := &script{errs: []error{failure(task.Transient, 0)}}
		_, _, err := collect(t, ctx, s, retry.Config{})
		if task.ClassOf(err) != task.StoppedBy || !strings.Contains(err.Error(), "a person's stop") || len(s.calls) != 1 {
			t.Errorf("%d calls, %v", len(s.calls), err)
		}
	})
}

func TestLeavingTheLoop(t *testing.T) {
	s := &script{errs: []error{failure(task.Transient, 0)}}
	for d, err := range retry.New(s, retry.Config{Rand: half}).Stream(t.Context(), model.Request{}) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Text != "" {
			break
		}
	}
	if len(s.calls) != 1 {
		t.Errorf("%d calls after the reader left", len(s.calls))
	}
}

func TestCapAndJitter(t *testing.T) {
	for r, want := range map[float64]time.Duration{0: time.Second, 0.999: 1999 * time.Millisecond} {
		var waits []time.Duration
		cfg := retry.Config{
			Attempts: 9, Base: time.Second, Cap: 2 * time.Second, Rand: func() float64 { return r },
			Sleep: func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil },
		}
		s := &script{}
		for range 8 {
			s.errs = append(s.errs, failure(task.Transient, 0))
		}
		if _, err := model.Collect(retry.New(s, cfg).Stream(t.Context(), model.Request{}), nil); err != nil {
			t.Fatal(err)
		}
		if got := waits[7].Round(time.Millisecond); got != want {
			t.Errorf("rand %v: last wait %s, want %s", r, got, want)
		}
	}
}

package limit

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// memory is a State of one process.
type memory struct {
	mu     sync.Mutex
	values map[string][]byte
	err    error
}

func (m *memory) Update(_ context.Context, key string, change func([]byte) ([]byte, error)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	b, err := change(m.values[key])
	if err == nil {
		m.values[key] = b
	}
	return err
}

// provider enforces a limit of requests and one of tokens a minute, each refilled all the
// time, and tells both in its headers.
type provider struct {
	mu            sync.Mutex
	requests      float64 // a minute
	tokens        float64
	cost          float64 // tokens of a call
	leftR, leftT  float64
	at            time.Time
	sent, refused int
	seen          func(ctx context.Context, status int, h http.Header)
	tellsNothing  bool
}

func (p *provider) Info() model.Info { return model.Info{} }

func (p *provider) Stream(ctx context.Context, _ model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		time.Sleep(200 * time.Millisecond) // of the bubble: the way there
		p.mu.Lock()
		now := time.Now()
		d := now.Sub(p.at).Minutes()
		p.leftR, p.leftT, p.at = min(p.requests, p.leftR+d*p.requests), min(p.tokens, p.leftT+d*p.tokens), now
		status := http.StatusOK
		if p.leftR < 1 || p.leftT < p.cost {
			status = http.StatusTooManyRequests
			p.refused++
		} else {
			p.leftR, p.leftT, p.sent = p.leftR-1, p.leftT-p.cost, p.sent+1
		}
		h := http.Header{}
		if !p.tellsNothing {
			set := func(k string, v float64) { h.Set(k, strconv.Itoa(int(v))) }
			set("anthropic-ratelimit-requests-limit", p.requests)
			set("anthropic-ratelimit-requests-remaining", p.leftR)
			set("anthropic-ratelimit-tokens-limit", p.tokens)
			set("anthropic-ratelimit-tokens-remaining", p.leftT)
			h.Set("anthropic-ratelimit-requests-reset", now.Add(time.Duration((p.requests-p.leftR)/p.requests*float64(time.Minute))).Format(time.RFC3339))
		}
		if status != http.StatusOK {
			h.Set("Retry-After", "3")
		}
		p.mu.Unlock()
		p.seen(ctx, status, h)
		if status != http.StatusOK {
			yield(model.Delta{}, &task.Error{Class: task.RateLimited})
			return
		}
		time.Sleep(2 * time.Second)
		yield(model.Delta{Done: &model.Response{}}, nil)
	}
}

func limiter(st State) *Limiter {
	return New(Config{Key: "k", State: st, Now: time.Now, Rand: func() float64 { return 0.5 }, Logger: slog.New(slog.DiscardHandler), MaxWait: time.Hour})
}

// TestWorkersTogether: thirty workers with a limiter each, sharing one value, send as much as
// the provider allows and are hardly ever refused.
func TestWorkersTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &memory{values: map[string][]byte{}}
		p := &provider{requests: 60, tokens: 60_000, cost: 2000, leftR: 60, leftT: 60_000, at: time.Now()}
		req := model.Request{System: string(make([]byte, 20)), MaxOutput: 1900} // with the estimate about 2000
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		l := limiter(st)
		p.seen = l.Seen
		for range 30 {
			mine := limiter(st)
			wg.Go(func() {
				for ctx.Err() == nil {
					_, err := model.Collect(mine.Client(p).Stream(ctx, req), nil)
					if err != nil && task.ClassOf(err) != task.RateLimited && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		// 30 calls a minute is what the tokens allow; the first burst is on top.
		if p.sent < 20*30*85/100 || p.refused > p.sent/10 {
			t.Errorf("%d sent of about %d possible, %d refused", p.sent, 20*30+30, p.refused)
		}
		t.Logf("%d sent, %d refused in 20 minutes", p.sent, p.refused)
	})
}

// TestWaitsWhenTold: a refusal holds everybody back as long as the provider says.
func TestWaitsWhenTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &memory{values: map[string][]byte{}}
		limiter(st).Seen(t.Context(), http.StatusTooManyRequests, http.Header{"Retry-After": {"30"}})
		begin := time.Now()
		if err := limiter(st).wait(t.Context(), need{1, 1}); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d < 30*time.Second || d > 35*time.Second {
			t.Errorf("waited %s, told 30s", d)
		}
	})
}

// TestPutsOff: a wait beyond the longest one is an error with the time, so that the task makes
// room for others.
func TestPutsOff(t *testing.T) {
	st := &memory{values: map[string][]byte{}}
	l := New(Config{Key: "k", State: st, Now: time.Now, Rand: func() float64 { return 0 }, Logger: slog.New(slog.DiscardHandler)})
	l.Seen(t.Context(), 529, http.Header{"Retry-After": {"600"}})
	err := l.wait(t.Context(), need{1, 1})
	var e *task.Error
	if !errors.As(err, &e) || e.Class != task.RateLimited || e.RetryAfter < 9*time.Minute {
		t.Fatalf("%v", err)
	}
}

func TestGoesAheadWithoutState(t *testing.T) {
	l := limiter(&memory{err: errors.New("down")})
	if err := l.wait(t.Context(), need{1, 1}); err != nil {
		t.Fatal(err)
	}
	l.Seen(t.Context(), 429, http.Header{})
}

func TestStopsWhenCancelled(t *testing.T) {
	st := &memory{values: map[string][]byte{}}
	l := limiter(st)
	l.Seen(t.Context(), 429, http.Header{"Retry-After": {"600"}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.wait(ctx, need{1, 1}); task.ClassOf(err) != task.StoppedBy {
		t.Fatal(err)
	}
}

func TestRead(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	h := http.Header{}
	for k, v := range map[string]string{
		"x-ratelimit-limit-requests": "500", "x-ratelimit-remaining-requests": "499", "x-ratelimit-reset-requests": "120ms",
		"x-ratelimit-limit-tokens": "30000", "x-ratelimit-remaining-tokens": "29000", "x-ratelimit-reset-tokens": "6m0s",
		"anthropic-ratelimit-input-tokens-limit": "40000", "anthropic-ratelimit-input-tokens-remaining": "0",
		"anthropic-ratelimit-input-tokens-reset":  "2026-01-02T03:04:30Z",
		"anthropic-ratelimit-output-tokens-limit": "-1", "anthropic-ratelimit-output-tokens-remaining": "many",
	} {
		h.Set(k, v)
	}
	got := read(h, now)
	want := told{
		requests: said{500, 499, 120 * time.Millisecond, true}, tokens: said{30000, 29000, 6 * time.Minute, true},
		input: said{40000, 0, 30 * time.Second, true},
	}
	if got != want {
		t.Fatalf("%+v", got)
	}
}

// FuzzHeaders: whatever headers say, the wait is bounded and the value can be stored again.
func FuzzHeaders(f *testing.F) {
	f.Add("500", "0", "2026-01-02T03:04:30Z", "6m0s", "30", int64(100))
	f.Add("1e400", "-1", "9999-12-31T23:59:59Z", "1000000h", "NaN", int64(1<<62))
	f.Fuzz(func(t *testing.T, limit, left, at, in, after string, input int64) {
		h := http.Header{}
		h.Set("Anthropic-Ratelimit-Tokens-Limit", limit)
		h.Set("Anthropic-Ratelimit-Tokens-Remaining", left)
		h.Set("Anthropic-Ratelimit-Tokens-Reset", at)
		h.Set("X-Ratelimit-Limit-Requests", limit)
		h.Set("X-Ratelimit-Remaining-Requests", left)
		h.Set("X-Ratelimit-Reset-Requests", in)
		h.Set("Retry-After", after)
		now := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
		said := read(h, now)
		said.blocked = now.Add(retryAfter(h))
		var s shared
		s.learn(now, said)
		if d := s.take(now, need{max(0, input), 1}); d < 0 || d > 2*longestReset {
			t.Fatalf("waits %s", d)
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if back := parse(b); !back.Blocked.Equal(s.Blocked) || back.Tokens.Left != s.Tokens.Left {
			t.Fatalf("%+v came back as %+v", s, back)
		}
	})
}

// TestKnown: what is left is refilled up to now, and what cannot be read is not known.
func TestKnown(t *testing.T) {
	now := time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC)
	m := &memory{values: map[string][]byte{}}
	l := New(Config{Key: "k", State: m, Now: func() time.Time { return now }, Rand: func() float64 { return 0 }, Logger: slog.New(slog.DiscardHandler)})
	h := http.Header{}
	for k, v := range map[string]string{"requests-limit": "60", "requests-remaining": "0", "input-tokens-limit": "1200", "input-tokens-remaining": "1100"} {
		h.Set("anthropic-ratelimit-"+k, v)
	}
	h.Set("Retry-After", "20")
	l.Seen(t.Context(), http.StatusTooManyRequests, h)
	at := now.Add(10 * time.Second)
	got, blocked := Known(m.values["k"], at)
	want := []Left{{"requests", 60, 10, 60}, {"input", 1200, 1200, 1200}}
	if !slices.Equal(got, want) || !blocked.Equal(now.Add(20*time.Second)) {
		t.Errorf("%+v, not before %s", got, blocked)
	}
	if _, blocked := Known(m.values["k"], now.Add(time.Minute)); !blocked.IsZero() {
		t.Error("what is over still blocks")
	}
	for _, bad := range []string{"", "{", `{"requests": 3}`, "null"} {
		if got, blocked := Known([]byte(bad), now); len(got) > 0 || !blocked.IsZero() {
			t.Errorf("%q: %v %v", bad, got, blocked)
		}
	}
}

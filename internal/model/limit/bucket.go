package limit

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"
)

// settle is how long a call that was let through may take to be counted by the provider: what
// it says is left before that does not hold the call yet.
const settle = 2 * time.Second

// need is what one call takes.
type need struct{ input, output int64 }

// meter is one limit: so many at most, refilled all the time, as both vendors describe theirs.
type meter struct {
	Limit float64   `json:"limit"` // 0: unknown
	Left  float64   `json:"left"`
	At    time.Time `json:"at"`   // of Left
	Rate  float64   `json:"rate"` // refill a second
}

// sent is a call that the provider may not have counted yet.
type sent struct {
	At     time.Time `json:"at"`
	Input  int64     `json:"in"`
	Output int64     `json:"out"`
}

// shared is what all workers know.
type shared struct {
	Requests meter     `json:"requests"`
	Tokens   meter     `json:"tokens"` // input and output together
	Input    meter     `json:"input"`
	Output   meter     `json:"output"`
	Blocked  time.Time `json:"blocked,omitzero"` // the provider said not before
	Sent     []sent    `json:"sent,omitempty"`
}

// parse reads the shared value; one that cannot be read is as good as none.
func parse(b []byte) shared {
	var s shared
	if json.Unmarshal(b, &s) != nil {
		return shared{}
	}
	return s
}

// at refills the meter up to now.
func (m *meter) at(now time.Time) {
	if d := now.Sub(m.At).Seconds(); d > 0 {
		m.Left, m.At = min(m.Limit, m.Left+d*m.Rate), now
	}
}

// short is how long it takes until n are left. A call above the whole limit waits for a full
// meter: only the provider can refuse it.
func (m *meter) short(n float64) time.Duration {
	n = min(n, m.Limit)
	if m.Limit == 0 || m.Left >= n || m.Rate <= 0 {
		return 0
	}
	return time.Duration(math.Ceil((n - m.Left) / m.Rate * float64(time.Second)))
}

// take lets a call through and counts it, or says how long to wait.
func (s *shared) take(now time.Time, n need) time.Duration {
	want := []struct {
		m *meter
		n float64
	}{{&s.Requests, 1}, {&s.Tokens, float64(n.input + n.output)}, {&s.Input, float64(n.input)}, {&s.Output, float64(n.output)}}
	wait := max(0, s.Blocked.Sub(now))
	for _, w := range want {
		w.m.at(now)
		wait = max(wait, w.m.short(w.n))
	}
	if wait > 0 {
		return wait
	}
	for _, w := range want {
		if w.m.Limit > 0 {
			w.m.Left = max(0, w.m.Left-w.n)
		}
	}
	s.forget(now)
	s.Sent = append(s.Sent, sent{now, n.input, n.output})
	return 0
}

// forget drops calls that the provider has counted by now.
func (s *shared) forget(now time.Time) {
	keep := s.Sent[:0]
	for _, c := range s.Sent {
		if d := now.Sub(c.At); d >= 0 && d < settle {
			keep = append(keep, c)
		}
	}
	s.Sent = keep
}

// told is what one response's headers say.
type told struct {
	requests, tokens, input, output said
	blocked                         time.Time
}

// said is one limit in the headers.
type said struct {
	limit, left float64
	reset       time.Duration // until it is full again; 0: not told
	ok          bool
}

// learn takes over what the provider says, less what it cannot have counted yet.
func (s *shared) learn(now time.Time, t told) {
	s.forget(now)
	var in, out, calls float64
	for _, c := range s.Sent {
		in, out, calls = in+float64(c.Input), out+float64(c.Output), calls+1
	}
	if calls > 0 { // the answered one is in what the provider says
		in, out, calls = in-in/calls, out-out/calls, calls-1
	}
	for _, u := range []struct {
		m    *meter
		said said
		open float64
	}{{&s.Requests, t.requests, calls}, {&s.Tokens, t.tokens, in + out}, {&s.Input, t.input, in}, {&s.Output, t.output, out}} {
		if !u.said.ok {
			continue
		}
		rate := u.said.limit / 60
		if missing := u.said.limit - u.said.left; u.said.reset > 0 && missing > 0 {
			rate = missing / u.said.reset.Seconds()
		}
		*u.m = meter{Limit: u.said.limit, Left: max(0, u.said.left-u.open), At: now, Rate: rate}
	}
	if t.blocked.After(s.Blocked) {
		s.Blocked = t.blocked
	}
}

// read reads Anthropic's anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-
// {limit,remaining,reset} (reset as RFC 3339) and OpenAI's x-ratelimit-{limit,remaining,reset}-
// {requests,tokens} (reset as a duration). What cannot be read is not said.
func read(h http.Header, now time.Time) told {
	anthropic := func(name string) said {
		p := "Anthropic-Ratelimit-" + name + "-"
		at, err := time.Parse(time.RFC3339, h.Get(p+"Reset"))
		if err != nil {
			at = now
		}
		return saying(h.Get(p+"Limit"), h.Get(p+"Remaining"), at.Sub(now))
	}
	openai := func(name string) said {
		reset, _ := time.ParseDuration(h.Get("X-Ratelimit-Reset-" + name))
		return saying(h.Get("X-Ratelimit-Limit-"+name), h.Get("X-Ratelimit-Remaining-"+name), reset)
	}
	either := func(a, b said) said {
		if a.ok {
			return a
		}
		return b
	}
	return told{
		requests: either(anthropic("Requests"), openai("Requests")),
		tokens:   either(anthropic("Tokens"), openai("Tokens")),
		input:    anthropic("Input-Tokens"),
		output:   anthropic("Output-Tokens"),
	}
}

// longestReset bounds what a header can make us wait.
const longestReset = 24 * time.Hour

func saying(limit, left string, reset time.Duration) said {
	l, err1 := strconv.ParseUint(limit, 10, 53)
	r, err2 := strconv.ParseUint(left, 10, 53)
	if err1 != nil || err2 != nil || l == 0 {
		return said{}
	}
	return said{limit: float64(l), left: float64(min(l, r)), reset: min(max(0, reset), longestReset), ok: true}
}

// retryAfter is how long a refusal asks to wait; a second where it does not say.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseUint(h.Get("Retry-After-Ms"), 10, 31); err == nil {
		return min(time.Duration(ms)*time.Millisecond, longestReset)
	}
	if s, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31); err == nil {
		return min(time.Duration(s)*time.Second, longestReset)
	}
	return time.Second
}

package wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Failure is what a provider said went wrong.
type Failure struct {
	Provider string
	Model    string
	Status   int         // HTTP status; 200 when the error came inside a stream
	Header   http.Header // may be nil
	Type     string      // error.type
	Code     string      // error.code
	Message  string      // error.message, for people
	Secret   string      // cut out of the message should the provider echo it
	Now      time.Time   // reference for a retry-after date when the reply has no Date
}

// Classify maps a failure to an error. Status, type and code decide; see [tooLarge] for the
// one class where some providers leave nothing but the message.
func Classify(f Failure) *task.Error {
	e := &task.Error{Msg: f.line(), RetryAfter: retryAfter(f.Header, f.Now)}
	switch {
	case f.named("overloaded_error", "overloaded", "slow_down", "engine_overloaded") || f.Status == 529:
		e.Class = task.Overloaded
	case f.named("insufficient_quota", "billing_error", "billing_hard_limit_reached", "billing_not_active") || f.Status == http.StatusPaymentRequired:
		e.Class, e.Fix = task.Auth, "check the account's credit and billing with the provider"
	case f.named("authentication_error", "invalid_api_key", "permission_error", "permission_denied") ||
		f.Status == http.StatusUnauthorized || f.Status == http.StatusForbidden:
		e.Class, e.Fix = task.Auth, "check the API key and what it may use"
	case f.named("rate_limit_error", "rate_limit_exceeded", "tokens", "requests") || f.Status == http.StatusTooManyRequests:
		e.Class = task.RateLimited
	case f.named("request_too_large", "context_length_exceeded", "string_above_max_length") || f.Status == http.StatusRequestEntityTooLarge || tooLarge(f):
		e.Class = task.TooLarge
	case f.named("not_found_error", "model_not_found") || f.Status == http.StatusNotFound:
		e.Class = task.NotFound
		e.Msg = fmt.Sprintf("%s: model not found: %q (%s)", f.Provider, f.Model, f.text())
		e.Fix = "check the model's name and the base URL"
	case f.named("api_error", "timeout_error", "server_error", "internal_error", "vector_store_timeout") || f.Status >= 500 ||
		f.Status == http.StatusRequestTimeout || f.Status == http.StatusConflict || f.Status == http.StatusTooEarly:
		e.Class = task.Transient
	case f.Status >= 400 || f.named("invalid_request_error", "invalid_prompt"):
		e.Class = task.Invalid
	default: // an error inside a stream that the provider did not name
		e.Class = task.Transient
	}
	return e
}

func (f Failure) named(names ...string) bool {
	for _, n := range names {
		if f.Type == n || f.Code == n {
			return true
		}
	}
	return false
}

// tooLarge is the only place that reads a message: Anthropic and several compatible servers
// report a prompt above the context size as a plain 400 without a type or code of its own.
func tooLarge(f Failure) bool {
	if f.Status != http.StatusBadRequest && f.Status != http.StatusOK && f.Status != http.StatusUnprocessableEntity {
		return false
	}
	m := strings.ToLower(f.Message)
	for _, s := range []string{"prompt is too long", "exceed context limit", "maximum context length", "context window"} {
		if strings.Contains(m, s) {
			return true
		}
	}
	return false
}

func (f Failure) text() string {
	m := f.Message
	if f.Secret != "" {
		m = strings.ReplaceAll(m, f.Secret, "[key]")
	}
	return OneLine(m, 300)
}

func (f Failure) line() string {
	s := f.Provider + ":"
	if f.Status != 0 && f.Status != http.StatusOK {
		s += " " + strconv.Itoa(f.Status)
	}
	name := f.Type
	if f.Code != "" {
		name = f.Code
	}
	if name = OneLine(name, 60); name != "" {
		s += " " + name
	} else if t := http.StatusText(f.Status); t != "" && f.Status != http.StatusOK {
		s += " " + t
	}
	if t := f.text(); t != "" {
		s += ": " + t
	}
	return s
}

// OneLine makes text from the other side safe to print: control characters become spaces,
// and it is cut after limit bytes.
func OneLine(s string, limit int) string {
	if len(s) > 4*limit {
		s = s[:4*limit]
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, " "))
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}

// retryAfter reads retry-after-ms, or retry-after in seconds or as an HTTP date (RFC 9110,
// 10.2.3). Nonsense and the past count as 0.
func retryAfter(h http.Header, now time.Time) time.Duration {
	const most = 365 * 24 * time.Hour
	clamp := func(seconds float64) time.Duration {
		if !(seconds > 0) {
			return 0
		}
		if seconds > most.Seconds() {
			return most
		}
		return time.Duration(seconds * float64(time.Second))
	}
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return clamp(ms / 1000)
	}
	v := h.Get("Retry-After")
	if v == "" {
		return 0
	}
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		return clamp(s)
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	if d, err := http.ParseTime(h.Get("Date")); err == nil {
		now = d // their clock, not ours
	}
	return clamp(at.Sub(now).Seconds())
}

// Broken maps a failure below the provider's protocol: the caller's cancellation stays what
// it is, an error of [Guard] stays what it is, anything else is a cut connection. secret is
// kept out of the text.
func Broken(ctx context.Context, provider string, err error, secret string) error {
	if ctx.Err() != nil {
		return &task.Error{Class: task.StoppedBy, Msg: provider + ": the call was cancelled", Err: context.Cause(ctx)}
	}
	var e *task.Error
	if errors.As(err, &e) {
		out := *e
		out.Msg = provider + ": " + e.Msg
		return &out
	}
	f := Failure{Message: err.Error(), Secret: secret}
	return &task.Error{Class: task.Transient, Msg: provider + ": connection failed: " + f.text()}
}

// Cut is the error for a stream that ended before its final event.
func Cut(provider string) error {
	return &task.Error{Class: task.Transient, Msg: provider + ": the stream was cut before the reply was complete"}
}

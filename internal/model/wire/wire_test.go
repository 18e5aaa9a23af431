package wire_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/daybreak-agent/daybreak/internal/model/wire"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func TestClassify(t *testing.T) {
	for _, tc := range []struct {
		f    wire.Failure
		want task.Class
	}{
		{wire.Failure{Status: 400, Type: "invalid_request_error", Message: "prompt is too long: 210000 tokens > 200000 maximum"}, task.TooLarge},
		{wire.Failure{Status: 400, Type: "invalid_request_error", Message: "input length and `max_tokens` exceed context limit"}, task.TooLarge},
		{wire.Failure{Status: 400, Code: "context_length_exceeded"}, task.TooLarge},
		{wire.Failure{Status: 500, Message: "prompt is too long"}, task.Transient}, // a message decides nothing but a 400
		{wire.Failure{Status: 429, Code: "insufficient_quota"}, task.Auth},
		{wire.Failure{Status: 400, Type: "billing_error"}, task.Auth},
		{wire.Failure{Status: 429, Type: "tokens", Code: "rate_limit_exceeded"}, task.RateLimited},
		{wire.Failure{Status: 200, Code: "rate_limit_exceeded"}, task.RateLimited},
		{wire.Failure{Status: 200, Code: "server_error"}, task.Transient},
		{wire.Failure{Status: 200, Type: "overloaded_error"}, task.Overloaded},
		{wire.Failure{Status: 503, Code: "slow_down"}, task.Overloaded},
		{wire.Failure{Status: 200}, task.Transient},
		{wire.Failure{Status: 418}, task.Invalid},
		{wire.Failure{Status: 409}, task.Transient},
		{wire.Failure{Status: 404, Code: "model_not_found"}, task.NotFound},
	} {
		if e := wire.Classify(tc.f); e.Class != tc.want {
			t.Errorf("%+v: %s, want %s", tc.f, e.Class, tc.want)
		}
	}
}

func TestMessageIsSafe(t *testing.T) {
	e := wire.Classify(wire.Failure{Provider: "p", Status: 401, Message: "bad key sk-123\n\x1b[31mred\xff", Secret: "sk-123"})
	if got := e.Error(); got != "p: 401 Unauthorized: bad key [key] [31mred; check the API key and what it may use" {
		t.Errorf("got %q", got)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		header http.Header
		want   time.Duration
	}{
		{http.Header{}, 0},
		{http.Header{"Retry-After": {"7"}}, 7 * time.Second},
		{http.Header{"Retry-After": {"0.5"}}, 500 * time.Millisecond},
		{http.Header{"Retry-After": {"9"}, "Retry-After-Ms": {"1500"}}, 1500 * time.Millisecond},
		{http.Header{"Retry-After": {"Sun, 01 Mar 2026 12:00:30 GMT"}}, 30 * time.Second},
		{http.Header{"Retry-After": {"Sun, 01 Mar 2026 12:00:30 GMT"}, "Date": {"Sun, 01 Mar 2026 12:00:10 GMT"}}, 20 * time.Second},
		{http.Header{"Retry-After": {"Sun, 01 Mar 2026 11:00:00 GMT"}}, 0},
		{http.Header{"Retry-After": {"-5"}}, 0},
		{http.Header{"Retry-After": {"NaN"}}, 0},
		{http.Header{"Retry-After": {"1e300"}}, 365 * 24 * time.Hour},
		{http.Header{"Retry-After": {"soon"}}, 0},
	} {
		if got := wire.Classify(wire.Failure{Status: 429, Header: tc.header, Now: now}).RetryAfter; got != tc.want {
			t.Errorf("%v: %s, want %s", tc.header, got, tc.want)
		}
	}
}

func TestGuard(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/loop":
			http.Redirect(w, r, "/", http.StatusFound)
		default:
			_, _ = io.WriteString(w, strings.Repeat("x", 1000))
		}
	}))
	defer srv.Close()
	exact := wire.Guard(srv.Client(), wire.Limits{MaxBytes: 1000})
	resp, err := exact.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); err != nil || len(b) != 1000 {
		t.Errorf("a reply of exactly the cap: %d bytes, %v", len(b), err)
	}
	_ = resp.Body.Close()
	resp, err = wire.Guard(srv.Client(), wire.Limits{MaxBytes: 999}).Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); task.ClassOf(err) != task.Invalid {
		t.Errorf("a byte above the cap: %v", err)
	}
	_ = resp.Body.Close()
	_, err = exact.Get(srv.URL + "/loop")
	var e *task.Error
	if !errors.As(err, &e) || e.Class != task.Invalid || !strings.Contains(e.Msg, "redirect (302)") {
		t.Errorf("redirect: %v", err)
	}
}

func TestObject(t *testing.T) {
	for in, want := range map[string][2]string{
		"": {"{}", ""}, " \n": {"{}", ""}, ` {"a":1} `: {`{"a":1}`, ""}, `{"a":`: {"{}", `{"a":`}, "[1]": {"{}", "[1]"}, "null": {"{}", "null"}, `{} {}`: {"{}", "{} {}"},
	} {
		if obj, bad := wire.Object(in); string(obj) != want[0] || bad != want[1] {
			t.Errorf("%q: %s %q", in, obj, bad)
		}
	}
}

// TestObjectOfEveryShape_MOD08_INT06: what is no object, or nests without end, is told apart and never decoded further.
func TestObjectOfEveryShape_MOD08_INT06(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000)
	for _, in := range []string{deep, strings.Repeat("[", 1<<20), `{"a":1}]`, `{"a":1}{"b":2}`, "\xff{}", `{"a":"` + "\xff" + `"`, `{'a':1}`, `{"a":NaN}`, "</tool_use>{}"} {
		if obj, bad := wire.Object(in); string(obj) != "{}" || bad != in {
			t.Errorf("%.40q: %.40s %.40q", in, obj, bad)
		}
	}
}

// FuzzOneLine holds that text from the other side cannot leave its line or its limit.
func FuzzOneLine(f *testing.F) {
	f.Add("a\r\nb\x1b[2J\u2028\xff", 3)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit < 1 || limit > 1000 {
			return
		}
		got := wire.OneLine(s, limit)
		if strings.ContainsAny(got, "\r\n\x1b\x00") || !utf8.ValidString(got) || len(got) > limit+len("…") {
			t.Fatalf("%q", got)
		}
	})
}

// TestSeen: what the provider says beside its reply reaches who asked for it, whatever the status.
func TestSeen(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Ratelimit-Limit-Requests", "7")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer s.Close()
	status, limit := 0, ""
	c := wire.Guard(nil, wire.Limits{Seen: func(_ context.Context, code int, h http.Header) {
		status, limit = code, h.Get("X-Ratelimit-Limit-Requests")
	}})
	res, err := c.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if status != http.StatusTooManyRequests || limit != "7" {
		t.Fatalf("%d %q", status, limit)
	}
}

// Package wire owns what the adapters of forges share on the way to them: the HTTP client with
// its limits, the classes of errors, the proof of a delivery, the addresses of repositories, and
// how a pull request is opened once.
//
// Invariants: only the configured origin is ever connected to, at an address that was checked
// at the socket; no redirect is followed; an answer is read up to a limit; a request that may
// have changed something is never sent twice.
package wire

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Config says how one forge is reached.
type Config struct {
	Name     string // of the forge, for messages
	BaseURL  string // of its API: scheme, host and path, from the operator's configuration only
	Internal bool   // it may have an address inside the network
	Roots    *x509.CertPool
	// WriteGap is the least time between two requests that change something, 0 for none.
	WriteGap time.Duration
	Now      func() time.Time
	// Wait sleeps, or returns the context's error.
	Wait func(ctx context.Context, d time.Duration) error
}

// MaxAnswer is how many bytes of one answer are read.
const MaxAnswer = 16 << 20

// tries is how often a request that only reads is sent in all.
const tries = 3

// NewClient returns a client for the one origin. Its errors are of type [task.Error]; an
// answer that is not a success is such an error too, so that every library on top reports the
// same classes. Plain HTTP is only spoken to an origin that is marked internal.
func NewClient(cfg Config) (*http.Client, error) {
	u, err := url.Parse(cfg.BaseURL)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q is no http or https address without credentials", cfg.BaseURL)}
	}
	if u.Scheme == "http" && !cfg.Internal {
		return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%s is plain HTTP, which would show the token to the network", cfg.BaseURL), Fix: "use https, or mark the forge as internal"}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Wait == nil {
		cfg.Wait = wait
	}
	return &http.Client{
		Transport:     &transport{cfg: cfg, origin: u.Scheme + "://" + strings.ToLower(u.Host), rt: newRoundTripper(cfg, u)},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       5 * time.Minute, // of all tries together
	}, nil
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type transport struct {
	cfg    Config
	origin string
	rt     http.RoundTripper

	mu   sync.Mutex
	next time.Time // when the next change may be sent
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if got := req.URL.Scheme + "://" + strings.ToLower(req.URL.Host); got != t.origin {
		return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%s: refused to ask %s, which is not the configured %s", t.cfg.Name, got, t.origin)}
	}
	reads := req.Method == http.MethodGet || req.Method == http.MethodHead
	if !reads {
		if err := t.pace(req.Context()); err != nil {
			return nil, err
		}
	}
	for try := 1; ; try++ {
		res, err := t.once(req)
		if err == nil || !reads || try == tries || !task.ClassOf(err).Retryable() {
			return res, err
		}
		d := time.Duration(1<<try) * 250 * time.Millisecond
		var e *task.Error
		if errors.As(err, &e) && e.RetryAfter > d {
			d = e.RetryAfter
		}
		if d > 10*time.Second { // the caller's business: a worker must not sleep under its lease
			return nil, err
		}
		if werr := t.cfg.Wait(req.Context(), d); werr != nil {
			return nil, err
		}
	}
}

// pace keeps changes apart.
func (t *transport) pace(ctx context.Context) error {
	if t.cfg.WriteGap <= 0 {
		return nil
	}
	t.mu.Lock()
	now := t.cfg.Now()
	at := now
	if t.next.After(now) {
		at = t.next
	}
	t.next = at.Add(t.cfg.WriteGap)
	t.mu.Unlock()
	if d := at.Sub(now); d > 0 {
		return t.cfg.Wait(ctx, d)
	}
	return nil
}

func (t *transport) once(req *http.Request) (*http.Response, error) {
	res, err := t.rt.RoundTrip(req)
	if err != nil {
		if cause := context.Cause(req.Context()); cause != nil {
			return nil, cause
		}
		var e *task.Error
		if errors.As(err, &e) {
			return nil, e
		}
		return nil, &task.Error{Class: task.Transient, Msg: fmt.Sprintf("%s did not answer %s", t.cfg.Name, what(req)), Err: oneLine(err)}
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 || res.StatusCode == http.StatusNotModified {
		res.Body = &capped{ReadCloser: res.Body, left: MaxAnswer, name: t.cfg.Name}
		return res, nil
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, 16<<10))
	_ = res.Body.Close()
	return nil, t.refused(req, res, body)
}

// what names a request without its query, which may hold what people wrote.
func what(req *http.Request) string { return req.Method + " " + req.URL.Path }

// refused gives an answer that is no success its class.
func (t *transport) refused(req *http.Request, res *http.Response, body []byte) error {
	message := Message(res.Header.Get("Content-Type"), body)
	e := &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%s answered %s with %d", t.cfg.Name, what(req), res.StatusCode), RetryAfter: t.retryAfter(res.Header)}
	if message != "" {
		e.Err = errors.New(message)
	}
	limited := e.RetryAfter > 0 || res.Header.Get("X-Ratelimit-Remaining") == "0" || strings.Contains(strings.ToLower(message), "rate limit")
	switch s := res.StatusCode; {
	case s == http.StatusTooManyRequests || s == http.StatusForbidden && limited:
		e.Class = task.RateLimited
		if e.RetryAfter == 0 {
			e.RetryAfter = time.Minute
		}
	case s == http.StatusUnauthorized || s == http.StatusForbidden || s == http.StatusProxyAuthRequired:
		e.Class, e.Fix = task.Auth, "check the token and what it may do"
	case s == http.StatusNotFound || s == http.StatusGone:
		e.Class = task.NotFound
	case s == http.StatusConflict || s == http.StatusPreconditionFailed:
		e.Class = task.Conflict
	case s == http.StatusRequestTimeout || s >= 500:
		e.Class = task.Transient
	case s >= 300 && s < 400:
		e.Class, e.Err, e.Fix = task.Conflict, nil, "the repository was renamed or moved; register it again under its new address"
	}
	return e
}

// retryAfter reads how long to wait, in any of the forms that forges use.
func (t *transport) retryAfter(h http.Header) time.Duration {
	if v := h.Get("Retry-After"); v != "" {
		if n, err := strconv.Atoi(v); err == nil && n >= 0 {
			return min(time.Duration(n)*time.Second, 24*time.Hour)
		}
		if at, err := http.ParseTime(v); err == nil {
			return max(at.Sub(t.cfg.Now()), 0)
		}
	}
	for _, name := range []string{"X-Ratelimit-", "Ratelimit-"} {
		if h.Get(name+"Remaining") != "0" {
			continue
		}
		if n, err := strconv.ParseInt(h.Get(name+"Reset"), 10, 64); err == nil {
			return min(max(time.Unix(n, 0).Sub(t.cfg.Now()), time.Second), 24*time.Hour)
		}
	}
	return 0
}

// Message is the human part of a forge's error, in one printable line; a page in HTML has none.
func Message(contentType string, body []byte) string {
	var m struct {
		Message any `json:"message"`
		Error   any `json:"error"`
		Errors  any `json:"errors"`
	}
	if !strings.Contains(contentType, "json") || json.Unmarshal(body, &m) != nil {
		return ""
	}
	var parts []string
	for _, v := range []any{m.Message, m.Error, m.Errors} {
		switch v := v.(type) {
		case nil:
		case string:
			parts = append(parts, v)
		default:
			b, _ := json.Marshal(v)
			parts = append(parts, string(b))
		}
	}
	return clip(strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": "))
}

func clip(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "…"
	}
	return s
}

func oneLine(err error) error { return errors.New(clip(err.Error())) }

// capped ends an answer that is too long with an error instead of a silent cut.
type capped struct {
	io.ReadCloser
	left int64
	name string
}

func (c *capped) Read(p []byte) (int, error) {
	if c.left <= 0 {
		var one [1]byte
		if n, err := c.ReadCloser.Read(one[:]); n == 0 {
			return 0, err
		}
		return 0, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%s sent an answer of more than %d bytes", c.name, MaxAnswer)}
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.ReadCloser.Read(p)
	c.left -= int64(n)
	return n, err
}

// Pages collects the pages of a list: get returns one page and the number of the next, 0 after
// the last. It ends at max items and at 100 pages, whatever the forge says.
func Pages[T any](max int, get func(page int) ([]T, int, error)) ([]T, error) {
	var all []T
	for page, n := 1, 0; n < 100; n++ {
		items, next, err := get(page)
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
		if len(all) >= max {
			return all[:max], nil
		}
		if next <= page || len(items) == 0 {
			break
		}
		page = next
	}
	return all, nil
}

// List is [Pages] with each item turned into one of ours.
func List[T, U any](max int, ours func(T) U, get func(page int) ([]T, int, error)) ([]U, error) {
	all, err := Pages(max, get)
	if err != nil {
		return nil, err
	}
	out := make([]U, len(all))
	for i, x := range all {
		out[i] = ours(x)
	}
	return out, nil
}

// Decode reads a JSON document that may not be too deep: a decoder of nested structures is
// only as safe as the depth it is given.
func Decode(body []byte, into any) error {
	depth := 0
	dec := json.NewDecoder(bytes.NewReader(body))
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return &task.Error{Class: task.Invalid, Msg: "not JSON", Err: oneLine(err)}
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			if depth++; depth > 100 {
				return &task.Error{Class: task.Invalid, Msg: "the JSON is nested too deeply"}
			}
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	if err := json.Unmarshal(body, into); err != nil {
		return &task.Error{Class: task.Invalid, Msg: "JSON of another form than expected", Err: oneLine(err)}
	}
	return nil
}

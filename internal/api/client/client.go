// Package client speaks to a service over its API, for the command line.
//
// Invariants: the token goes to the named server alone, over TLS or the loopback, and never after
// a redirect; what a server answers is read up to a cap; an error says in one line what the server
// refused.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/api"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/outcome"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// maxAnswer bounds what is read of an answer.
const maxAnswer = 256 << 20

// Client is a caller of one server. It is safe for concurrent use.
type Client struct {
	base, token string
	http        *http.Client
}

// New returns a caller of the server at an address. Class Invalid for one that a token must not be
// sent to.
func New(base, token string) (*Client, error) {
	u, err := url.Parse(strings.TrimSuffix(base, "/"))
	if err != nil || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil, &task.Error{Class: task.Invalid, Msg: "the server is " + strconv.Quote(base), Fix: "write its address, such as https://daybreak.example"}
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, &task.Error{Class: task.Invalid, Msg: "the token would go to " + u.Host + " in the clear", Fix: "use https"}
	}
	if token == "" {
		return nil, &task.Error{Class: task.Invalid, Msg: "no token for " + u.Host, Fix: "set DAYBREAK_TOKEN to one of `daybreak token create` there"}
	}
	return &Client{base: u.String(), token: token, http: &http.Client{
		Timeout:       5 * time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Name is the server's address.
func (c *Client) Name() string { return c.base }

// do asks and returns the body of what was answered with success.
func (c *Client) do(ctx context.Context, method, path string, body any) ([]byte, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, in)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(r)
	if err != nil {
		return nil, &task.Error{Class: task.Unavailable, Msg: "the server at " + c.base + " does not answer", Err: cause(err), Fix: "start it there with `daybreak serve`, or leave --server, DAYBREAK_SERVER and server: out to use the tasks of this machine"}
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil || len(b) > maxAnswer {
		return nil, &task.Error{Class: task.Unavailable, Msg: "the answer of " + c.base + " was cut or is too large", Err: err}
	}
	if res.StatusCode >= 300 {
		return nil, c.refused(res, b)
	}
	return b, nil
}

// cause is an error of the transport without the address, which is said already.
func cause(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}

// refused is what the server said of a request that it did not take.
func (c *Client) refused(res *http.Response, body []byte) error {
	var p struct {
		Detail string `json:"detail"`
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if kind != "application/problem+json" || json.Unmarshal(body, &p) != nil || p.Detail == "" {
		return &task.Error{Class: task.Unavailable, Msg: fmt.Sprintf("%s answers like no Daybreak server: %s", c.base, res.Status), Fix: "check its address"}
	}
	e := &task.Error{Class: task.Unavailable, Msg: c.base + " refuses: " + strings.Join(strings.Fields(p.Detail), " ")}
	switch res.StatusCode {
	case http.StatusUnauthorized:
		e.Class, e.Msg, e.Fix = task.Auth, c.base+" does not know the token", "set DAYBREAK_TOKEN to one of `daybreak token create` there"
	case http.StatusForbidden:
		e.Class = task.Auth
	case http.StatusNotFound:
		e.Class = task.NotFound
	case http.StatusConflict:
		e.Class = task.Conflict
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		e.Class = task.Invalid
	case http.StatusInternalServerError:
		e.Class = task.Internal
	}
	return e
}

func get[T any](ctx context.Context, c *Client, path string, q url.Values) (out T, err error) {
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	b, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return out, err
	}
	return out, c.read(b, &out)
}

func (c *Client) read(b []byte, into any) error {
	if err := json.Unmarshal(b, into); err != nil {
		return &task.Error{Class: task.Unavailable, Msg: c.base + " answers what cannot be read", Err: err, Fix: "use the same version as the server's"}
	}
	return nil
}

func at(id task.ID, rest string) string { return "/api/tasks/" + url.PathEscape(string(id)) + rest }

// rowOf is a task of the server as the store has it here. Whose lease it is, is not told.
func rowOf(r api.Row) store.Task {
	t := store.Task{
		ID: r.Task, State: r.State, Repo: r.Repo, Title: r.Title, Author: r.Author, Priority: r.Priority, Created: r.Created, Updated: r.Updated, LastSeq: r.LastSeq, Dispatch: r.Ordered,
	}
	if r.Running {
		t.Owner = "a worker"
	}
	return t
}

// Task reads one as it is in the list.
func (c *Client) Task(ctx context.Context, id task.ID) (store.Task, error) {
	r, err := get[api.Row](ctx, c, at(id, "/row"), nil)
	return rowOf(r), err
}

// Tasks lists them, newest first.
func (c *Client) Tasks(ctx context.Context, f store.Filter) ([]store.Task, error) {
	q := url.Values{}
	for _, s := range f.States {
		q.Add("state", string(s))
	}
	for k, v := range map[string]string{"repo": f.Repo, "author": f.Author, "before": string(f.Before)} {
		if v != "" {
			q.Set(k, v)
		}
	}
	var out []store.Task
	for {
		q.Set("limit", strconv.Itoa(max(1, min(f.Limit-len(out), 200))))
		page, err := get[api.Page](ctx, c, "/api/tasks", q)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Tasks {
			out = append(out, rowOf(r))
		}
		if page.Next == "" || len(out) >= f.Limit {
			return out, nil
		}
		q.Set("before", string(page.Next))
	}
}

// Events reads the log after an event, at most limit (0: all).
func (c *Client) Events(ctx context.Context, id task.ID, after int64, limit int) ([]event.Event, error) {
	var out []event.Event
	for {
		n := 500
		if limit > 0 {
			n = min(n, limit-len(out))
		}
		page, err := get[api.EventPage](ctx, c, at(id, "/events"), url.Values{"after": {strconv.FormatInt(after, 10)}, "limit": {strconv.Itoa(n)}})
		if err != nil {
			return nil, err
		}
		out = append(out, page.Events...)
		if page.Next <= after || limit > 0 && len(out) >= limit {
			return out, nil
		}
		after = page.Next
	}
}

// Blob reads a text that the log of a task names.
func (c *Client) Blob(ctx context.Context, id task.ID, digest string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, at(id, "/blobs/"+url.PathEscape(digest)), nil)
}

// Diff is the change of a task as far as it is known.
func (c *Client) Diff(ctx context.Context, id task.ID) (string, error) {
	b, err := c.do(ctx, http.MethodGet, at(id, "/diff"), nil)
	return string(b), err
}

// Evidence is the newest signed account of a verification of a task, byte for byte.
func (c *Client) Evidence(ctx context.Context, id task.ID) ([]byte, error) {
	return c.do(ctx, http.MethodGet, at(id, "/evidence"), nil)
}

// Result is what came of a task: the object that `--json` ends with.
func (c *Client) Result(ctx context.Context, id task.ID) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c, at(id, ""), nil)
}

// Say gives a word to a task: kind is "steer", "answer", "stop", "retry" or "approve".
func (c *Client) Say(ctx context.Context, id task.ID, kind string, w api.Word) (n api.Noted, err error) {
	b, err := c.do(ctx, http.MethodPost, at(id, "/"+kind), w)
	if err != nil {
		return n, err
	}
	return n, c.read(b, &n)
}

// Budget raises a task's to new totals.
func (c *Client) Budget(ctx context.Context, id task.ID, asked api.Budget) (r api.Raised, err error) {
	b, err := c.do(ctx, http.MethodPost, at(id, "/budget"), asked)
	if err != nil {
		return r, err
	}
	return r, c.read(b, &r)
}

// Outcomes adds up what became of tasks.
func (c *Client) Outcomes(ctx context.Context, since, by, repo string) (outcome.Report, error) {
	q := url.Values{"by": {by}}
	if since != "" {
		q.Set("since", since)
	}
	if repo != "" {
		q.Set("repo", repo)
	}
	return get[outcome.Report](ctx, c, "/api/outcomes", q)
}

// Me is who the token's holder is there.
func (c *Client) Me(ctx context.Context) (api.Me, error) {
	return get[api.Me](ctx, c, "/api/whoami", nil)
}

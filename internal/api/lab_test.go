package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/live"
	"github.com/daybreak-agent/daybreak/internal/overview"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/sqlite"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// desk remembers what it was asked.
type desk struct {
	st    store.Store
	mu    sync.Mutex
	said  []string
	asked []Request
	err   error
	fleet overview.Fleet
}

func (d *desk) say(s ...string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.said = append(d.said, strings.Join(s, " "))
	return d.err
}

func (d *desk) Repository(repo string) (string, error) {
	if repo == "/forbidden" {
		return "", &task.Error{Class: task.Invalid, Msg: "the repository is none that the API may name"}
	}
	return repo, nil
}

func (d *desk) Create(ctx context.Context, n Request) (store.Task, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, n)
	if d.err != nil {
		return store.Task{}, false, d.err
	}
	if n.Key == "taken elsewhere" {
		return store.Task{ID: storetest.ID(999), Repo: "https://hub/secret/x"}, false, nil
	}
	t, err := d.st.Task(ctx, storetest.ID(1))
	return t, len(d.asked) == 1, err
}

func (d *desk) Result(_ context.Context, id task.ID) (json.RawMessage, error) {
	return json.Marshal(map[string]any{
		"type": "result", "task": id, "state": "queued", "verdict": "", "reason": "", "repo": "r", "base": "", "head": "", "branch": "", "pull_request": "",
		"reproduction": []any{}, "suite": map[string]any{}, "findings": []any{}, "budget": map[string]any{}, "timing_ms": map[string]any{}, "sandbox": map[string]any{},
	})
}

func (d *desk) Steer(_ context.Context, _ task.ID, who, text string) error {
	return d.say("steer", who, text)
}

func (d *desk) Answer(_ context.Context, _ task.ID, who, text string) error {
	return d.say("answer", who, text)
}

func (d *desk) Stop(_ context.Context, _ task.ID, who, reason string) error {
	return d.say("stop", who, reason)
}

func (d *desk) Retry(_ context.Context, _ task.ID, who string) (task.ID, error) {
	return storetest.ID(77), d.say("retry", who)
}

func (d *desk) Budget(_ context.Context, _ task.ID, who string, l task.Limits) (task.Limits, error) {
	return l, d.say("budget", who, l.Cost.String(), l.Wall.String())
}

func (d *desk) Approve(_ context.Context, _ task.ID, who, tree string) error {
	return d.say("approve", who, tree)
}

func (d *desk) Fleet(context.Context) (overview.Fleet, error) { return d.fleet, d.err }

// hub is a forge of which only permissions are asked: whoever is named "writer" and "reader" may,
// until they may not.
type hub struct {
	forge.Host
	mu   sync.Mutex
	gone bool
}

func (h *hub) Name() string { return "hub" }

func (h *hub) Permission(_ context.Context, repo, user string) (forge.Permission, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.gone || !strings.HasPrefix(repo, "https://hub/open/"):
		return forge.None, nil
	case user == "writer":
		return forge.Write, nil
	case user == "reader":
		return forge.Read, nil
	}
	return forge.None, nil
}

type lab struct {
	*API
	st   store.Store
	desk *desk
	hub  *hub
	live *live.Hub
	doc  *openapi3.T

	mu    sync.Mutex
	clock time.Time
}

func (l *lab) now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clock
}

func (l *lab) pass(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock = l.clock.Add(d)
}

func newLab(t *testing.T) *lab {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "daybreak.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	l := &lab{st: st, desk: &desk{st: st}, hub: &hub{}, clock: time.Now()}
	log := slog.New(slog.DiscardHandler)
	l.live = live.New(live.Config{Source: st, Total: 4, Viewer: 2, Now: l.now, Logger: log})
	t.Cleanup(l.live.Close)
	gate := access.NewGate(access.GateConfig{
		Host: func(repo string) (forge.Host, bool) { return l.hub, strings.HasPrefix(repo, "https://hub/") },
		Task: st.Task, Now: l.now,
	})
	l.API = New(Config{
		Records: st, Desk: l.desk, Hub: l.live, Key: "key", Now: l.now, Logger: log, Gate: gate,
		Board: overview.New(overview.Config{Records: st, Gate: gate, Fleet: l.desk.Fleet, Streams: l.live.Open, Now: l.now}),
	})
	if l.doc, err = openapi3.NewLoader().LoadFromData(description); err != nil {
		t.Fatal(err)
	}
	return l
}

// The viewers that tests know.
var (
	operator = access.Viewer{Name: "operator", Via: access.ViaOperator, All: true, Scopes: []access.Scope{access.Admin}}
	ci       = access.Viewer{Name: "ci", Via: access.ViaToken, All: true, Scopes: []access.Scope{access.Read, access.Create}, Repos: []string{"https://hub/open/*"}}
)

func person(name string) access.Viewer {
	return access.Viewer{
		Name: name, Via: access.ViaOIDC, Logins: map[string]string{"": name},
		Scopes: []access.Scope{access.Read, access.Create, access.Steer, access.Budget, access.Approve},
	}
}

// as is the API for one viewer, where the guard has done its part.
func (l *lab) as(v access.Viewer) *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range l.Routes() {
		mux.Handle(r.Pattern, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			r.Handler.ServeHTTP(w, req.WithContext(access.With(req.Context(), v)))
		}))
	}
	return mux
}

// call asks, and holds the answer, and a request that was taken, to the description.
func (l *lab) call(t *testing.T, v access.Viewer, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	mux := l.as(v)
	_, pattern := mux.Handler(r)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	l.hold(t, pattern, r, body, w)
	return w
}

func (l *lab) hold(t *testing.T, pattern string, r *http.Request, body string, w *httptest.ResponseRecorder) {
	t.Helper()
	_, template, found := strings.Cut(pattern, " ")
	item := l.doc.Paths.Value(template)
	if !found || item == nil {
		if w.Code < 400 {
			t.Errorf("%s %s is not described", r.Method, r.URL.Path)
		}
		return
	}
	in := &openapi3filter.RequestValidationInput{
		Request:    r.Clone(context.Background()),
		PathParams: params(template, r.URL.Path), QueryParams: r.URL.Query(),
		Route:   &routers.Route{Spec: l.doc, Path: template, PathItem: item, Method: r.Method, Operation: item.GetOperation(r.Method)},
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, MultiError: true, IncludeResponseStatus: true},
	}
	in.Request.Body = io.NopCloser(strings.NewReader(body))
	if w.Code < 400 {
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			t.Errorf("%s %s was taken, and is not as described: %v", r.Method, r.URL, err)
		}
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: w.Code, Header: w.Header(), Body: io.NopCloser(bytes.NewReader(w.Body.Bytes())), Options: in.Options,
	}
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		t.Errorf("%s %s: %d %.300s is not as described: %v", r.Method, r.URL, w.Code, w.Body, err)
	}
}

// params are the values that a path has for its template.
func params(template, path string) map[string]string {
	out := map[string]string{}
	parts := strings.Split(path, "/")
	for i, p := range strings.Split(template, "/") {
		if name, ok := strings.CutPrefix(p, "{"); ok && i < len(parts) {
			out[strings.TrimSuffix(name, "}")], _ = url.PathUnescape(parts[i])
		}
	}
	return out
}

// record makes a task with a log that names a blob.
func (l *lab) record(t *testing.T, n int, repo, author string, more ...event.Payload) task.ID {
	t.Helper()
	ctx := t.Context()
	id := storetest.ID(n)
	created := event.TaskCreated{Repo: repo, IssueTitle: "title", Limits: task.Limits{Steps: 5}}
	row := store.Task{ID: id, Key: "key-" + string(id), Repo: repo, Title: "title", Author: author, Priority: 2}
	if _, _, err := l.st.Create(ctx, row, []event.Draft{storetest.Draft(t, created)}); err != nil {
		t.Fatal(err)
	}
	if len(more) > 0 {
		lease := storetest.Lease(t, l.st, id)
		for _, p := range more {
			if _, err := l.st.Append(ctx, lease, storetest.Draft(t, p)); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.st.Release(ctx, lease); err != nil {
			t.Fatal(err)
		}
	}
	return id
}

func decodeInto[T any](t *testing.T, w *httptest.ResponseRecorder) (out T) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return out
}

// Package api is the service over HTTP for programs: tasks, their records, people's words to
// them, and what became of them. openapi.yaml beside this file describes it.
//
// Invariants: every request is answered for the viewer that package access found, and a task that
// they may not read is answered like one that is not there; a body is never read past its cap and
// no key of it goes unread; a request that is sent again under its key makes no second task; an
// answer holds no text of an error that is not meant for the caller; a blob is given out only to
// who may read a task whose log names it.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/live"
	"github.com/daybreak-agent/daybreak/internal/overview"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Records is the part of a store that is shown.
type Records interface {
	Task(ctx context.Context, id task.ID) (store.Task, error)
	Tasks(ctx context.Context, f store.Filter) ([]store.Task, error)
	Events(ctx context.Context, id task.ID, after int64, limit int) ([]event.Event, error)
	Blob(ctx context.Context, digest string) ([]byte, error)
}

// Desk takes what people want of tasks. who goes into the record. Errors have the classes Invalid,
// NotFound and Conflict where the caller can put something right.
type Desk interface {
	// Repository is the name under which a repository's tasks are kept.
	Repository(repo string) (string, error)
	// Create makes a task, or finds the one that was made under the same key; made tells which. A
	// task may have been made to record trouble with the input, whose id is returned with the error.
	Create(ctx context.Context, n Request) (t store.Task, made bool, err error)
	// Result is what came of a task: the object that `--json` ends with.
	Result(ctx context.Context, id task.ID) (json.RawMessage, error)
	Steer(ctx context.Context, id task.ID, who, text string) error
	// Answer is the answer to the question that the task waits with.
	Answer(ctx context.Context, id task.ID, who, text string) error
	Stop(ctx context.Context, id task.ID, who, reason string) error
	// Retry begins the issue of a task that is over anew and returns the new task.
	Retry(ctx context.Context, id task.ID, who string) (task.ID, error)
	// Budget raises limits to new totals, 0 for those that stay, and returns what holds then.
	Budget(ctx context.Context, id task.ID, who string, asked task.Limits) (task.Limits, error)
	// Approve lets the verified change of a task that waits for it be published; tree is the one that
	// was looked at, "" the one that waits. Class Conflict when another one or nothing waits.
	Approve(ctx context.Context, id task.ID, who, tree string) error
}

// Config is what the API needs. All fields are required.
type Config struct {
	Records Records
	Desk    Desk
	Gate    *access.Gate
	Board   *overview.Board
	Hub     *live.Hub
	Key     string // verifies the checkpoints of this installation, as `daybreak key` prints it
	Now     func() time.Time
	Logger  *slog.Logger
}

// API answers. It is safe for concurrent use.
type API struct {
	cfg   Config
	named *named
}

// New returns an API.
func New(cfg Config) *API {
	return &API{cfg: cfg, named: newNamed(cfg.Records)}
}

// Routes are all addresses below /api.
func (a *API) Routes() []access.Route {
	r := func(pattern string, h func(http.ResponseWriter, *http.Request) error) access.Route {
		return access.Route{Pattern: pattern, Policy: access.API, Handler: a.handle(h)}
	}
	return []access.Route{
		{Pattern: "GET /api/openapi.yaml", Policy: access.Open, Handler: http.HandlerFunc(describe)},
		r("GET /api/whoami", a.whoami),
		r("GET /api/tasks", a.list),
		r("POST /api/tasks", a.create),
		r("GET /api/tasks/{id}", a.show),
		r("GET /api/tasks/{id}/row", a.row),
		r("GET /api/tasks/{id}/events", a.events),
		r("GET /api/tasks/{id}/blobs/{digest}", a.blob),
		r("GET /api/tasks/{id}/diff", a.diff),
		r("GET /api/tasks/{id}/verification", a.verification),
		r("GET /api/tasks/{id}/evidence", a.evidence),
		r("POST /api/tasks/{id}/steer", a.steer),
		r("POST /api/tasks/{id}/answer", a.answer),
		r("POST /api/tasks/{id}/stop", a.stop),
		r("POST /api/tasks/{id}/retry", a.retry),
		r("POST /api/tasks/{id}/budget", a.budget),
		r("POST /api/tasks/{id}/approve", a.approve),
		r("GET /api/outcomes", a.sums),
		r("GET /api/fleet", a.fleet),
		r("/api/", func(http.ResponseWriter, *http.Request) error {
			return refusal{http.StatusNotFound, "no such address; GET /api/openapi.yaml describes those that there are"}
		}),
	}
}

// refusal is an answer to a request that makes no sense.
type refusal struct {
	code int
	msg  string // one line
}

func (r refusal) Error() string { return r.msg }

func (a *API) handle(h func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil && r.Context().Err() == nil {
			a.fail(w, r, err)
		}
	})
}

// fail answers an error by its class. What is the caller's to put right is said, the rest is
// logged.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	var no refusal
	class := task.ClassOf(err)
	switch {
	case errors.As(err, &no):
		access.Refuse(w, no.code, no.msg)
		return
	case errors.Is(err, access.ErrForbidden):
		access.RefuseClass(w, http.StatusForbidden, err.Error(), class)
		return
	}
	switch class {
	case task.Invalid, task.Auth:
		access.RefuseClass(w, http.StatusUnprocessableEntity, err.Error(), class)
	case task.NotFound:
		access.RefuseClass(w, http.StatusNotFound, err.Error(), class)
	case task.Conflict:
		access.RefuseClass(w, http.StatusConflict, err.Error(), class)
	case task.Overloaded:
		w.Header().Set("Retry-After", "10")
		access.RefuseClass(w, http.StatusServiceUnavailable, err.Error(), class)
	case task.Transient, task.Unavailable, task.RateLimited:
		a.cfg.Logger.ErrorContext(r.Context(), "request failed", "path", r.URL.Path, "error", err)
		w.Header().Set("Retry-After", "10")
		access.RefuseClass(w, http.StatusServiceUnavailable, "not possible now; send it again", class)
	default:
		a.cfg.Logger.ErrorContext(r.Context(), "request failed", "path", r.URL.Path, "error", err)
		access.RefuseClass(w, http.StatusInternalServerError, "internal error; the log says more", task.Internal)
	}
}

func answer(w http.ResponseWriter, code int, v any) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // a caller that left cannot be told
	return nil
}

// viewer is who asks; the policy of the route has seen to it that there is somebody.
func viewer(r *http.Request) access.Viewer {
	v, _ := access.From(r.Context())
	return v
}

// open is the task of a request, for a viewer who wants to do scope with it.
func (a *API) open(r *http.Request, scope access.Scope) (store.Task, error) {
	return a.cfg.Gate.Task(r.Context(), viewer(r), task.ID(r.PathValue("id")), scope)
}

// who goes into the record for a word. Only the operator's token speaks for others: a bridge from
// another system says whose word it brings.
func who(v access.Viewer, by string) (string, error) {
	switch {
	case by != "" && v.Operates() && (v.Via == access.ViaOperator || v.Via == access.ViaToken):
		return by, nil
	case by != "" && by != v.Name:
		return "", refusal{http.StatusForbidden, "only an operator's token speaks for others; leave the name out"}
	}
	return v.Signs(), nil
}

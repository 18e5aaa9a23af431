// Package web owns the pages: tasks, one task's story, its verification, and whole texts of a
// record, live where something happens.
//
// Invariants: a page shows what the record holds and nothing a page made up; every text of an
// issue, a model, a repository or a command goes through package render, so that it cannot act;
// no page needs a script, holds one inline, or fetches anything from another host; a viewer sees
// tasks of repositories that the gate lets them read, and any other as one that is not there;
// what changes something is a POST, after the gate was asked for that very act.
package web

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/live"
	"github.com/daybreak-agent/daybreak/internal/overview"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/web/render"
	"github.com/daybreak-agent/daybreak/internal/web/storybook"
)

// Source is the part of a store that pages read.
type Source interface {
	Task(ctx context.Context, id task.ID) (store.Task, error)
	Tasks(ctx context.Context, f store.Filter) ([]store.Task, error)
	Events(ctx context.Context, id task.ID, after int64, limit int) ([]event.Event, error)
	Blob(ctx context.Context, digest string) ([]byte, error)
}

// Desk takes a person's word to a task. who goes into the record. Errors have the classes of the
// store: NotFound, Conflict, Invalid.
type Desk interface {
	// Steer tells the agent something; when the task waits with a question, it is the answer.
	Steer(ctx context.Context, id task.ID, who, text string) error
	Stop(ctx context.Context, id task.ID, who, reason string) error
	// Approve is for the tree that the person saw; another one is class Conflict.
	Approve(ctx context.Context, id task.ID, who, tree string) error
	// Retry begins the task's issue anew and returns the new task.
	Retry(ctx context.Context, id task.ID, who string) (task.ID, error)
}

// Config is what the pages need. All fields without "may be" are required.
type Config struct {
	Source    Source
	Desk      Desk // may be nil: pages only show
	Gate      *access.Gate
	Board     *overview.Board
	Hub       *live.Hub
	Now       func() time.Time
	Logger    *slog.Logger
	Key       string // verifies evidence of this installation, as `daybreak key` prints it; may be ""
	SignOut   bool   // there is a way to sign out
	Storybook bool   // serve hard states below /storybook/, for development
}

// Site serves the pages. It is safe for concurrent use.
type Site struct {
	cfg    Config
	shelf  *shelf
	facts  *facts
	md     *render.Markdown
	marks  *render.Highlighter
	book   *storybook.Book // nil without Config.Storybook
	assets *assets
	every  time.Duration // between two looks at the fleet of a page that is live
}

// New returns a site.
func New(cfg Config) (*Site, error) {
	a, err := loadAssets()
	if err != nil {
		return nil, err
	}
	s := &Site{cfg: cfg, assets: a, every: 2 * time.Second, md: render.NewMarkdown(), marks: &render.Highlighter{}}
	if cfg.Storybook {
		if s.book, err = storybook.New(cfg.Now()); err != nil {
			return nil, err
		}
		s.cfg.Source = withBook{cfg.Source, s.book}
	}
	s.shelf, s.facts = newShelf(s.cfg.Source), newFacts(s.cfg.Source)
	return s, nil
}

// Routes are all addresses of the site.
func (s *Site) Routes() []access.Route {
	page := func(pattern string, h func(http.ResponseWriter, *http.Request) error) access.Route {
		return access.Route{Pattern: pattern, Policy: access.Page, Handler: s.handle(h)}
	}
	out := []access.Route{
		{Pattern: "GET /static/{name}", Policy: access.Open, Handler: s.handle(s.assets.serve)},
		{Pattern: "GET /favicon.ico", Policy: access.Open, Handler: http.HandlerFunc(s.assets.icon)},
		{Pattern: "POST /theme", Policy: access.Open, Handler: s.handle(s.setTheme)},
		page("GET /{$}", s.tasks),
		page("GET /live/tasks", s.tasksLive),
		page("GET /fleet", s.fleet),
		page("GET /live/fleet", s.fleetLive),
		page("GET /outcomes", s.outcomes),
		page("GET /tasks/{id}", s.task),
		page("GET /tasks/{id}/steps", s.steps),
		page("GET /tasks/{id}/live", s.taskLive),
		page("GET /tasks/{id}/verification", s.verification),
		page("GET /tasks/{id}/diff", s.diff),
		page("GET /tasks/{id}/texts/{seq}", s.text),
		page("GET /tasks/{id}/logs/{digest}", s.log),
		page("GET "+render.LeavePath, s.leave),
		page("POST /tasks/{id}/steer", s.steer),
		page("POST /tasks/{id}/stop", s.stop),
		page("POST /tasks/{id}/approve", s.approve),
		page("POST /tasks/{id}/retry", s.retry),
	}
	if s.cfg.Storybook {
		out = append(out, page("GET /storybook/{$}", s.storybook), page("GET /storybook/empty", s.storybookEmpty),
			page("GET /storybook/fleet", s.storybookFleet), page("GET /storybook/fleet-idle", s.storybookFleet),
			page("GET /storybook/outcomes", s.storybookOutcomes), page("GET /storybook/outcomes-none", s.storybookOutcomes))
	}
	return out
}

// handle answers errors with a page. The headers that hold a page to its own origin are the
// guard's, before every route.
func (s *Site) handle(h func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

// viewer is who asks; the policy of the route has seen to it that there is somebody.
func viewer(r *http.Request) access.Viewer {
	v, _ := access.From(r.Context())
	return v
}

// open is the task of a request, for a viewer who wants to do scope with it.
func (s *Site) open(r *http.Request, scope access.Scope) (store.Task, error) {
	id := task.ID(r.PathValue("id"))
	if s.book.Has(id) && scope == access.Read { // it belongs to nobody
		return s.book.Task(r.Context(), id)
	}
	return s.cfg.Gate.Task(r.Context(), viewer(r), id, scope)
}

// fail answers an error by its class. What is the caller's to put right is said, the rest is
// logged.
func (s *Site) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return
	}
	code, title, say := http.StatusInternalServerError, "Something went wrong", "This page could not be made. The log of the server says more."
	switch task.ClassOf(err) {
	case task.NotFound:
		code, title, say = http.StatusNotFound, "Not here", "There is no such page, or it is not yours to see."
	case task.Invalid:
		code, title, say = http.StatusUnprocessableEntity, "That does not work", err.Error()
	case task.Conflict:
		code, title, say = http.StatusConflict, "That is over", err.Error()
	case task.Auth:
		code, title, say = http.StatusForbidden, "Not yours to do", err.Error()
	case task.Transient, task.Unavailable, task.RateLimited, task.Overloaded:
		code, title, say = http.StatusServiceUnavailable, "Not now", "This is not possible at the moment. Try again in a little while."
	}
	if code >= 500 {
		s.cfg.Logger.ErrorContext(r.Context(), "page failed", "path", r.URL.Path, "error", err)
	}
	s.sorry(w, r, code, title, say)
}

func (s *Site) sorry(w http.ResponseWriter, r *http.Request, code int, title, say string) {
	w.Header().Del("Content-Encoding")
	if wantsText(r) {
		s.send(w, r, code, "text/plain; charset=utf-8", []byte(say+"\n"))
		return
	}
	h := s.head(r, title, "")
	h.Path = "/" // what was asked for is nowhere to go back to
	s.write(w, r, code, errorPage(h, code, title, say))
}

// Refused shows what the guard says of a request that it refuses.
func (s *Site) Refused(w http.ResponseWriter, r *http.Request, code int, say string) {
	title := map[int]string{
		http.StatusUnauthorized: "Sign in first", http.StatusForbidden: "Refused", http.StatusNotFound: "Not here", http.StatusMethodNotAllowed: "Not in this way",
		http.StatusMisdirectedRequest: "Not this server", http.StatusServiceUnavailable: "Not now",
	}[code]
	if title == "" {
		title = http.StatusText(code)
	}
	switch code {
	case http.StatusNotFound:
		say = "There is no such page, or it is not yours to see"
	case http.StatusUnauthorized:
		say = "Nobody is signed in here, so nothing was done. Sign in and send it again"
	}
	s.sorry(w, r, code, title, sentence(say)+".")
}

func wantsText(r *http.Request) bool { return r.Header.Get("Accept") == "text/plain" }

// Package server is the service's HTTP side: the listener, the routes that others mount with what
// each asks of a request, and what an orchestrator asks about the process.
//
// Invariants: no route without a policy, and the policy stands before its handler; no answer without
// the guard's headers, also where no route is; a connection
// has limits on its head, its body's time and its idling; a request at work is answered before
// the server ends.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/daybreak-agent/daybreak/internal/access"
)

// Config is what a server needs. All fields without "may be" are required.
type Config struct {
	Guard  *access.Guard
	Ready  func(ctx context.Context) error // why the process cannot do its work now
	Around func(http.Handler) http.Handler // sees every request and its answer; may be nil
	Logger *slog.Logger
}

// Server serves.
type Server struct {
	cfg    Config
	mux    *http.ServeMux
	routes []access.Route
}

// New returns a server with the probes and the guard's own routes mounted.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, mux: http.NewServeMux()}
	s.Mount(
		access.Route{Pattern: "GET /healthz", Policy: access.Proven, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusOK, "ok")
		})},
		access.Route{Pattern: "GET /readyz", Policy: access.Proven, Handler: http.HandlerFunc(s.ready)},
	)
	s.Mount(cfg.Guard.Routes()...)
	return s
}

// Mount adds routes. It must be called before Serve.
func (s *Server) Mount(rs ...access.Route) {
	for _, r := range rs {
		s.mux.Handle(r.Pattern, s.cfg.Guard.Wrap(r.Policy, r.Handler))
	}
	s.routes = append(s.routes, rs...)
}

// Routes are all that were mounted.
func (s *Server) Routes() []access.Route { return s.routes }

// Handler is the server as a handler, for tests.
func (s *Server) Handler() http.Handler {
	h := s.cfg.Guard.Harden(http.HandlerFunc(s.route))
	if s.cfg.Around != nil {
		return s.cfg.Around(h)
	}
	return h
}

// route finds the route. What none is for is the guard's to answer, and not the mux's, whose
// answers are no pages of ours.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	none, pattern := s.mux.Handler(r)
	if pattern != "" {
		s.mux.ServeHTTP(w, r)
		return
	}
	said := &silent{header: http.Header{}, code: http.StatusNotFound}
	none.ServeHTTP(said, r)
	if said.code != http.StatusMethodNotAllowed {
		said.code = http.StatusNotFound
	} else if allow := said.header.Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
	}
	s.cfg.Guard.Lost(w, r, said.code)
}

// silent takes an answer that nobody gets.
type silent struct {
	header http.Header
	code   int
}

func (s *silent) Header() http.Header         { return s.header }
func (s *silent) WriteHeader(code int)        { s.code = code }
func (s *silent) Write(b []byte) (int, error) { return len(b), nil }

// The limits of a connection. A body of 9 MiB over a slow line fits; a live stream takes its own
// limits off.
const (
	readHeader = 10 * time.Second
	readAll    = 5 * time.Minute
	idle       = 2 * time.Minute
	goodbye    = 10 * time.Second // for requests at work when the server ends
)

// Serve answers until ctx ends, then waits for the requests at work for a while.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: readHeader, ReadTimeout: readAll, IdleTimeout: idle, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
		defer cancel()
		stopped <- srv.Shutdown(end)
	})
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return err
	}
	if err := <-stopped; err != nil {
		return srv.Close()
	}
	return nil
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
	defer cancel()
	if err := s.cfg.Ready(ctx); err != nil {
		s.cfg.Logger.WarnContext(ctx, "not ready", "error", err)
		access.Refuse(w, http.StatusServiceUnavailable, "not ready; the log says why")
		return
	}
	answer(w, http.StatusOK, "ready")
}

func answer(w http.ResponseWriter, code int, status string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"status": status}) // a caller that left cannot be told
}

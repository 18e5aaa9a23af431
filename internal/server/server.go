// Package server is the service's HTTP side: the way in for tasks that come from no forge,
// what an orchestrator asks about the process, and the place where other handlers are mounted.
//
// Invariants: nothing below /api is answered without the token, which is compared in constant
// time; a body is never read past its cap; a request that is sent again under its key makes no
// second task; an answer holds no text of an error that is not meant for the caller.
package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Config is what a server needs. All fields without "may be" are required.
type Config struct {
	Token  string // of /api; "": everything below it is refused
	Tasks  Tasks
	Ready  func(ctx context.Context) error // why the process cannot do its work now
	Logger *slog.Logger
}

// Server serves.
type Server struct {
	cfg Config
	mux *http.ServeMux
}

// New returns a server with its own handlers mounted.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, mux: http.NewServeMux()}
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	s.mux.HandleFunc("GET /readyz", s.ready)
	s.mux.Handle("POST /api/tasks", s.Authorised(http.HandlerFunc(s.create)))
	s.mux.Handle("POST /api/tasks/{id}/approve", s.Authorised(http.HandlerFunc(s.approve)))
	s.mux.Handle("GET /api/tasks/{id}", s.Authorised(http.HandlerFunc(s.show)))
	return s
}

// Mount adds a handler under a pattern of [http.ServeMux]. It must be called before Serve.
// The handler authenticates its callers itself, or is wrapped by Authorised.
func (s *Server) Mount(pattern string, h http.Handler) { s.mux.Handle(pattern, h) }

// Handler is the server as a handler, for tests.
func (s *Server) Handler() http.Handler { return s.mux }

// The limits of a connection. A body of 9 MiB over a slow line fits.
const (
	readHeader = 10 * time.Second
	readAll    = 5 * time.Minute
	idle       = 2 * time.Minute
	goodbye    = 10 * time.Second // for requests at work when the server ends
)

// Serve answers until ctx ends, then waits for the requests at work for a while.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler: s.mux, ReadHeaderTimeout: readHeader, ReadTimeout: readAll, IdleTimeout: idle, MaxHeaderBytes: 64 << 10,
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

// Authorised lets a request with the token through.
func (s *Server) Authorised(h http.Handler) http.Handler {
	want := sha256.Sum256([]byte(s.cfg.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.cfg.Token == "" {
			refuse(w, http.StatusForbidden, "the API is off; set serve.token_env or serve.token_file")
			return
		}
		given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(given))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 || !bearer {
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, http.StatusUnauthorized, "a valid token is needed: Authorization: Bearer …")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Pages lets a browser with the token through: by HTTP Basic, whatever the user's name, and to
// look only, since a browser sends it along with what other sites ask it to.
func (s *Server) Pages(h http.Handler) http.Handler {
	want := sha256.Sum256([]byte(s.cfg.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, given, basic := r.BasicAuth()
		got := sha256.Sum256([]byte(given))
		switch {
		case s.cfg.Token == "":
			refuse(w, http.StatusForbidden, "pages are off; set serve.token_env or serve.token_file")
		case subtle.ConstantTimeCompare(got[:], want[:]) != 1 || !basic:
			w.Header().Set("WWW-Authenticate", `Basic realm="Daybreak", charset="UTF-8"`)
			refuse(w, http.StatusUnauthorized, "a valid token is needed as the password")
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			refuse(w, http.StatusMethodNotAllowed, "pages only show")
		default:
			w.Header().Set("X-Frame-Options", "DENY")
			w.Header().Set("Referrer-Policy", "no-referrer")
			w.Header().Set("Cache-Control", "no-store")
			h.ServeHTTP(w, r)
		}
	})
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
	defer cancel()
	if err := s.cfg.Ready(ctx); err != nil {
		s.cfg.Logger.WarnContext(ctx, "not ready", "error", err)
		refuse(w, http.StatusServiceUnavailable, "not ready; the log says why")
		return
	}
	answer(w, http.StatusOK, map[string]string{"status": "ready"})
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // a caller that left cannot be told
}

func refuse(w http.ResponseWriter, code int, msg string) {
	answer(w, code, map[string]string{"error": strings.Join(strings.Fields(msg), " ")})
}

// fail answers an error by its class. What is the caller's to put right is said, the rest is
// logged.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	switch task.ClassOf(err) {
	case task.Invalid, task.Auth:
		refuse(w, http.StatusUnprocessableEntity, err.Error())
	case task.NotFound:
		refuse(w, http.StatusNotFound, err.Error())
	case task.Conflict:
		refuse(w, http.StatusConflict, err.Error())
	case task.Transient, task.Unavailable, task.RateLimited, task.Overloaded:
		s.cfg.Logger.ErrorContext(r.Context(), "request failed", "path", r.URL.Path, "error", err)
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusServiceUnavailable, "not possible now; send it again")
	default:
		s.cfg.Logger.ErrorContext(r.Context(), "request failed", "path", r.URL.Path, "error", err)
		refuse(w, http.StatusInternalServerError, "internal error; the log says more")
	}
}

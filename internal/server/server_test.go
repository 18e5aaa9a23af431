package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/store/sqlite"
)

const token = "token-0123456789abcdef"

func newTest(t *testing.T, ready func(context.Context) error) *Server {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "daybreak.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	g, err := access.NewGuard(access.GuardConfig{Operator: token, Session: time.Hour, Access: st, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{Guard: g, Ready: ready, Logger: slog.New(slog.DiscardHandler)})
}

func ask(s *Server, method, path, auth string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost"+path, nil)
	if auth != "" {
		r.Header.Set("Authorization", auth)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

func TestProbes(t *testing.T) {
	ready := errors.New("the store is away")
	s := newTest(t, func(context.Context) error { return ready })
	if w := ask(s, "GET", "/healthz", ""); w.Code != http.StatusOK {
		t.Errorf("healthz: %d", w.Code)
	}
	if w := ask(s, "GET", "/readyz", ""); w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "away") {
		t.Errorf("readyz: %d %s", w.Code, w.Body)
	}
	ready = nil
	if w := ask(s, "GET", "/readyz", ""); w.Code != http.StatusOK {
		t.Errorf("readyz: %d", w.Code)
	}
}

// TestMount: whatever is mounted stands behind its policy, and is listed.
func TestMount(t *testing.T) {
	s := newTest(t, nil)
	own := len(s.Routes())
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	s.Mount(
		access.Route{Pattern: "POST /hooks/test", Policy: access.Proven, Handler: h},
		access.Route{Pattern: "GET /api/x", Policy: access.API, Handler: h},
		access.Route{Pattern: "GET /page", Policy: access.Page, Handler: h},
	)
	if len(s.Routes()) != own+3 {
		t.Errorf("%v", s.Routes())
	}
	for _, tt := range []struct {
		method, path, auth string
		code               int
	}{
		{"POST", "/hooks/test", "", http.StatusAccepted},
		{"GET", "/api/x", "Bearer " + token, http.StatusAccepted},
		{"GET", "/api/x", "", http.StatusUnauthorized},
		{"GET", "/page", "", http.StatusSeeOther},
		{"GET", "/nothing", "", http.StatusNotFound},
	} {
		if w := ask(s, tt.method, tt.path, tt.auth); w.Code != tt.code {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, w.Code, tt.code)
		}
	}
}

// TestServeEnds: a request at work is answered before the server ends.
func TestServeEnds(t *testing.T) {
	s := newTest(t, nil)
	at, goOn := make(chan struct{}), make(chan struct{})
	s.Mount(access.Route{Pattern: "GET /slow", Policy: access.Proven, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(at)
		<-goOn
		w.WriteHeader(http.StatusAccepted)
	})})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended, answered := make(chan error, 1), make(chan int, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	go func() {
		res, err := http.Get("http://" + l.Addr().String() + "/slow")
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		_ = res.Body.Close()
		answered <- res.StatusCode
	}()
	<-at
	cancel()
	close(goOn)
	if code := <-answered; code != http.StatusAccepted {
		t.Errorf("%d", code)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

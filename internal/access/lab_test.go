package access

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/sqlite"
)

const operatorToken = "the-operators-own-token"

// lab is a guard before a handler that says who asks.
type lab struct {
	*Guard
	access store.Access
	mux    *http.ServeMux

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

func newLab(t *testing.T, change func(*GuardConfig)) *lab {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "daybreak.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	l := &lab{access: st, clock: time.Now().UTC(), mux: http.NewServeMux()}
	cfg := GuardConfig{Operator: operatorToken, Session: time.Hour, Access: st, Now: l.now, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	if l.Guard, err = NewGuard(cfg); err != nil {
		t.Fatal(err)
	}
	for _, r := range l.Routes() {
		l.mux.Handle(r.Pattern, l.Wrap(r.Policy, r.Handler))
	}
	who := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, _ := From(r.Context())
		w.Header().Set("X-Who", v.Key())
		if v.Operates() {
			w.Header().Set("X-Operates", "yes")
		}
	})
	l.mux.Handle("/api/x", l.Wrap(API, who))
	l.mux.Handle("/page", l.Wrap(Page, who))
	l.mux.Handle("/queue", l.Wrap(Operators, who))
	l.mux.Handle("/open", l.Wrap(Open, who))
	l.mux.Handle("/hook", l.Wrap(Proven, who))
	return l
}

// ask sends a request with headers, given as name and value in turn.
func (l *lab) ask(method, target string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	l.mux.ServeHTTP(w, r)
	return w
}

// signIn returns the cookie of a session begun by link, as name=value.
func (l *lab) signIn(t *testing.T) string {
	t.Helper()
	link, err := NewLink(t.Context(), l.access, nil, l.now(), "", "olga")
	if err != nil {
		t.Fatal(err)
	}
	w := l.ask("GET", link, "Host", "localhost")
	if w.Code != http.StatusSeeOther {
		t.Fatalf("the link: %d %s", w.Code, w.Body)
	}
	return cookieOf(t, w, l.cookieName(sessionCookie))
}

func cookieOf(t *testing.T, w *httptest.ResponseRecorder, name string) string {
	t.Helper()
	for _, c := range w.Result().Cookies() {
		if c.Name == name {
			return c.Name + "=" + c.Value
		}
	}
	t.Fatalf("no cookie %s in %v", name, w.Result().Cookies())
	return ""
}

package app

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/server"
)

// serverOf is the whole service over HTTP, with the queue's pages.
func serverOf(t *testing.T, a *App) *server.Server {
	t.Helper()
	d, err := a.Dispatcher(0, make(chan struct{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Stop(context.Background()) })
	mail, err := a.Mail()
	if err != nil {
		t.Fatal(err)
	}
	hub := a.Hub()
	t.Cleanup(hub.Close)
	s, err := a.Server(t.Context(), func(context.Context) error { return nil }, hub, mail, true)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ask sends a request to the service; headers are given as name and value in turn.
func ask(s *server.Server, method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "https://daybreak.example"+path, nil)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

// signIn returns the cookie of a session of the machine's owner.
func signIn(t *testing.T, a *App, s *server.Server) string {
	t.Helper()
	link, err := a.SignInLink(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	w := ask(s, "GET", link)
	for _, c := range w.Result().Cookies() {
		return c.Name + "=" + c.Value
	}
	t.Fatalf("no session: %d %s", w.Code, w.Body)
	return ""
}

// TestRefusals_WEB08: whatever is refused outside the API, or not there at all, is a page in our frame
// with the headers of every page, and what was asked for does nothing in it.
func TestRefusals_WEB08(t *testing.T) {
	a, _ := serving(t, func(c *config.Config) { c.Serve.URL = "https://daybreak.example" })
	s := serverOf(t, a)
	cookie := signIn(t, a, s)
	evil := "/%3Cscript%3Ealert(1)%3C/script%3E%22%3E%3Cimg%20src=x%20onerror=alert(1)%3E"
	for _, tt := range []struct {
		method, path string
		headers      []string
		code         int
	}{
		{"GET", evil, nil, 404},
		{"GET", evil + "?x=%22%3E%3Cscript%3E", []string{"Cookie", cookie}, 404},
		{"GET", "/nothing/here", []string{"Host", "evil.example"}, 421},
		{"POST", "/nothing/here", []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, 403},
		{"POST", "/nothing/here", nil, 404},
		{"POST", "/", nil, 405},
		{"DELETE", "/tasks/t_01kh0000000000000000000001", []string{"Cookie", cookie}, 405},
		{"GET", "/tasks/" + strings.Repeat("x", 30), []string{"Cookie", cookie}, 404},
		{"GET", "/tasks/x/stop", nil, 405},
		{"PUT", "/sign-in", nil, 405},
		{"OPTIONS", "/theme", nil, 405},
		{"GET", "/static/nothing.css", nil, 404},
		{"POST", "/tasks/x/stop", nil, 401},
		{"POST", "/tasks/x/stop", []string{"Cookie", cookie}, 403}, // no Origin
		{"POST", "/queue/api/jobs/cancel", []string{"Cookie", cookie, "Sec-Fetch-Site", "same-origin"}, 405},
		{"GET", "/sign-in/link?token=x", []string{"Sec-Purpose", "prefetch"}, 403},
	} {
		w := ask(s, tt.method, tt.path, append([]string{"Accept", "text/html"}, tt.headers...)...)
		h, body := w.Header(), w.Body.String()
		if w.Code != tt.code || !strings.HasPrefix(h.Get("Content-Type"), "text/html") || !strings.Contains(body, `<main id="main"`) || !strings.Contains(body, "<h1>") {
			t.Errorf("%s %s: %d, want %d, %s %.80s", tt.method, tt.path, w.Code, tt.code, h.Get("Content-Type"), body)
		}
		if h.Get("Content-Security-Policy") != access.ContentPolicy || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" ||
			h.Get("Referrer-Policy") != "same-origin" || h.Get("Cache-Control") != "no-store" || h.Get("Strict-Transport-Security") == "" {
			t.Errorf("%s %s: the headers are %v", tt.method, tt.path, h)
		}
		if strings.Contains(body, "<script>") || strings.Contains(body, "<img") || strings.Contains(body, "alert") {
			t.Errorf("%s %s: what was asked for acts:\n%s", tt.method, tt.path, body)
		}
		if tt.code == 405 && h.Get("Allow") == "" {
			t.Errorf("%s %s: it does not say what is allowed", tt.method, tt.path)
		}
	}
	if w := ask(s, "GET", "/nothing", "Cookie", cookie); !strings.Contains(w.Body.String(), "Sign out") {
		t.Error("a person who is signed in is a stranger on the page of an address that is not there")
	}
	if w := ask(s, "GET", "/nothing"); strings.Contains(w.Body.String(), "Sign out") {
		t.Error("a stranger is offered to sign out")
	}
	if w := ask(s, "GET", "/nothing", "Accept", "text/plain"); w.Code != 404 || strings.Contains(w.Body.String(), "<") || w.Header().Get("Content-Security-Policy") != access.ContentPolicy {
		t.Errorf("as text: %d %s", w.Code, w.Body)
	}
	for _, path := range []string{"/nothing", "/api/nothing", "/api/tasks/x"} { // programs get problems
		if w := ask(s, "GET", path, "Authorization", "Bearer wrong"); w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
	for _, path := range []string{"//tasks/", "/tasks/../x", "/queue", "/storybook"} { // the mux's own redirects
		if w := ask(s, "GET", path); w.Header().Get("Content-Security-Policy") != access.ContentPolicy {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
}

// TestQueuePages_WEB05: the queue's own pages are an operator's, and only show.
func TestQueuePages_WEB05(t *testing.T) {
	a, _ := serving(t, func(c *config.Config) { c.Serve.URL = "https://daybreak.example" })
	s := serverOf(t, a)
	acc, err := a.Access()
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	token := func(scopes []access.Scope, repos ...string) string {
		t.Helper()
		made++
		_, secret, err := access.CreateToken(t.Context(), acc, nil, time.Now(), access.NewToken{Name: strconv.Itoa(made), Scopes: scopes, Repos: repos})
		if err != nil {
			t.Fatal(err)
		}
		return "Bearer " + secret
	}
	least, most := access.Scopes()[:len(access.Scopes())-1], []access.Scope{access.Admin}
	paths := []string{"/queue/", "/queue/jobs", "/queue/api/jobs", "/queue/api/queues", "/queue/api/features", "/queue/../queue/api/jobs"}
	for name, tt := range map[string]struct {
		auth string
		code int
	}{
		"every scope but admin":     {token(least), 404},
		"read":                      {token([]access.Scope{access.Read}), 404},
		"admin of some repository":  {token(most, "https://forge/*"), 404},
		"admin":                     {token(most), 200},
		"nobody":                    {"Bearer wrong", 401},
		"the password of long ago":  {"Basic dG9rZW4=", 401},
		"an operator's empty token": {"Bearer ", 401},
	} {
		for _, path := range paths {
			want := tt.code
			if strings.Contains(path, "..") {
				want = 307 // cleaned by the mux, and asked anew
			}
			w := ask(s, "GET", path, "Authorization", tt.auth)
			if want == 307 && w.Code >= 300 && w.Code < 400 {
				continue
			}
			if w.Code != want || want != 200 && strings.Contains(w.Body.String(), "River") {
				t.Errorf("%s, %s: %d, want %d", name, path, w.Code, want)
			}
			if csp := w.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "script-src 'self';") || !strings.Contains(csp, "frame-ancestors 'none'") || !strings.Contains(csp, "form-action 'self'") {
				t.Errorf("%s: %q", path, csp)
			}
		}
	}
	cookie, admin := signIn(t, a, s), token(most)
	if w := ask(s, "GET", "/queue/api/jobs", "Cookie", cookie); w.Code != http.StatusOK {
		t.Errorf("an operator's session: %d", w.Code)
	}
	if w := ask(s, "GET", "/queue/api/jobs", "Cookie", cookie, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"); w.Code != http.StatusForbidden {
		t.Errorf("another site's picture: %d", w.Code)
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} {
		for _, path := range append(paths[:5:5], "/queue/api/jobs/cancel", "/queue/api/jobs/delete", "/queue/api/queues/default/pause") {
			for _, auth := range [][]string{{"Cookie", cookie, "Sec-Fetch-Site", "same-origin"}, {"Authorization", admin}} {
				if w := ask(s, method, path, auth...); w.Code != http.StatusMethodNotAllowed {
					t.Errorf("%s %s: %d", method, path, w.Code)
				}
			}
			w := ask(s, method, path, "Cookie", cookie, "Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example")
			if w.Code != http.StatusForbidden {
				t.Errorf("%s %s from another site: %d", method, path, w.Code)
			}
		}
	}
}

package access

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestCrossSite_WEB05_WEB10: what another site makes a browser send is refused on every unsafe method and for
// every stream, with and without the headers of newer browsers.
func TestCrossSite_WEB05_WEB10(t *testing.T) {
	l := newLab(t, func(c *GuardConfig) { c.URL = "https://daybreak.example" })
	cookie := l.signIn(t)
	const json = "application/json"
	for _, tt := range []struct {
		name, method, path string
		headers            []string
		code               int
	}{
		{"a form of another site", "POST", "/page", []string{"Origin", "https://evil.example", "Content-Type", "application/x-www-form-urlencoded"}, 403},
		{"the same, newer browser", "POST", "/page", []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"}, 403},
		{"a sibling of ours", "POST", "/page", []string{"Sec-Fetch-Site", "same-site", "Origin", "https://other.daybreak.example"}, 403},
		{"an opaque origin", "POST", "/page", []string{"Origin", "null"}, 403},
		{"no origin at all", "POST", "/page", nil, 403},
		{"no origin, API", "POST", "/api/x", nil, 403},
		{"another site, API", "POST", "/api/x", []string{"Origin", "https://evil.example", "Content-Type", json}, 403},
		{"another scheme", "POST", "/page", []string{"Origin", "http://evil.example"}, 403},
		{"PUT", "PUT", "/page", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"PATCH", "PATCH", "/page", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"DELETE", "DELETE", "/page", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"signing out from elsewhere", "POST", PathOut, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"a stream for another site", "GET", "/api/x", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors", "Accept", "text/event-stream"}, 403},
		{"the same without the newer headers", "GET", "/api/x", []string{"Origin", "https://evil.example", "Accept", "text/event-stream"}, 403},
		{"a page in a frame", "GET", "/page", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, 403},
		{"a page as an image", "GET", "/page", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}, 403},
		{"the API as a page", "GET", "/api/x", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 403},
		{"text that is JSON", "POST", "/api/x", []string{"Sec-Fetch-Site", "same-origin", "Content-Type", "text/plain"}, 415},
		{"a form that is JSON", "POST", "/api/x", []string{"Sec-Fetch-Site", "same-origin", "Content-Type", "application/x-www-form-urlencoded"}, 415},
		{"a kind that is not one", "POST", "/api/x", []string{"Sec-Fetch-Site", "same-origin", "Content-Type", "application/json, text/plain"}, 415},

		{"a link from elsewhere", "GET", "/page", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		{"a form of ours", "POST", "/page", []string{"Origin", "https://daybreak.example", "Content-Type", "application/x-www-form-urlencoded"}, 200},
		{"the same, newer browser", "POST", "/page", []string{"Sec-Fetch-Site", "same-origin", "Origin", "https://daybreak.example"}, 200},
		{"JSON of ours", "POST", "/api/x", []string{"Sec-Fetch-Site", "same-origin", "Content-Type", json}, 200},
		{"a stream of ours", "GET", "/api/x", []string{"Sec-Fetch-Site", "same-origin", "Accept", "text/event-stream"}, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := l.ask(tt.method, tt.path, append(tt.headers, "Host", "daybreak.example", "Cookie", cookie)...)
			if w.Code != tt.code {
				t.Errorf("%d, want %d: %s", w.Code, tt.code, w.Body)
			}
			if tt.code != 200 && w.Header().Get("X-Who") != "" {
				t.Error("the handler was reached")
			}
		})
	}
	if w := l.ask("POST", "/api/x", "Host", "daybreak.example", "Authorization", "Bearer "+operatorToken); w.Code != http.StatusOK {
		t.Errorf("a program has no origin: %d %s", w.Code, w.Body)
	}
	if w := l.ask("POST", "/hook", "Cookie", cookie); w.Code != http.StatusOK || w.Header().Get("X-Who") != ":" {
		t.Errorf("a webhook: %d, by %q", w.Code, w.Header().Get("X-Who"))
	}
}

// TestHost_WEB08: a name that was pointed at this server is not its name.
func TestHost_WEB08(t *testing.T) {
	l := newLab(t, func(c *GuardConfig) { c.URL, c.Hosts = "https://daybreak.example", []string{"Other.example"} })
	for host, want := range map[string]int{
		"daybreak.example": 200, "DAYBREAK.example.:443": 200, "other.example": 200, "localhost:8484": 200, "127.0.0.1:8484": 200, "[::1]:8484": 200, "10.1.2.3": 200,
		"evil.example": 421, "evil.example:8484": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example": 421, "": 421, "daybreak.example.evil.example": 421, "2130706433": 421,
	} {
		for _, path := range []string{"/open", "/api/x", "/page"} {
			w := l.ask("GET", path, "Host", host, "Authorization", "Bearer "+operatorToken)
			if w.Code != want {
				t.Errorf("%q %s: %d, want %d", host, path, w.Code, want)
			}
		}
	}
}

// TestHeaders_WEB08: nothing that this server answers may be framed, sniffed or run.
func TestHeaders_WEB08(t *testing.T) {
	l := newLab(t, func(c *GuardConfig) { c.URL = "https://daybreak.example" })
	for _, path := range []string{"/open", "/api/x", "/page", "/hook", "/queue", PathSignIn} {
		for _, host := range []string{"localhost", "evil.example"} {
			h := l.ask("GET", path, "Host", host).Header()
			csp := h.Get("Content-Security-Policy")
			for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "img-src 'self'", "form-action 'self'"} {
				if !strings.Contains(csp, want) {
					t.Errorf("%s: %q lacks %s", path, csp, want)
				}
			}
			for _, bad := range []string{"unsafe", "*", "data:", "http"} {
				if strings.Contains(csp, bad) {
					t.Errorf("%s: %q has %s", path, csp, bad)
				}
			}
			for k, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin", "Cache-Control": "no-store",
				"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Strict-Transport-Security": "max-age=31536000",
			} {
				if h.Get(k) != want {
					t.Errorf("%s: %s is %q", path, k, h.Get(k))
				}
			}
		}
	}
	h := http.Header{}
	Artifact(h, "file.html")
	if !strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox;") || h.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") {
		t.Errorf("an artifact: %v", h)
	}
}

// TestLink_WEB07: a link signs in once, for a while, a person only; the session has a secret of its own in
// a cookie that scripts and other sites do not get.
func TestLink_WEB07(t *testing.T) {
	for url, want := range map[string]string{
		"https://daybreak.example": "__Host-daybreak", "http://localhost:8484": "daybreak", "": "daybreak",
	} {
		l := newLab(t, func(c *GuardConfig) { c.URL = url })
		link, err := NewLink(t.Context(), l.access, nil, l.now(), url, "olga")
		if err != nil {
			t.Fatal(err)
		}
		path := strings.TrimPrefix(link, url)
		if w := l.ask("GET", path, "Host", "localhost", "Sec-Purpose", "prefetch;prerender"); w.Code != http.StatusForbidden {
			t.Errorf("a browser that looks ahead: %d", w.Code)
		}
		if w := l.ask("HEAD", path, "Host", "localhost"); w.Code != http.StatusForbidden {
			t.Errorf("HEAD: %d", w.Code)
		}
		old := l.signIn(t)
		w := l.ask("GET", path+"&next=/page?x=1", "Host", "localhost", "Cookie", old)
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/page?x=1" {
			t.Fatalf("%d to %q", w.Code, w.Header().Get("Location"))
		}
		cookie := cookieOf(t, w, want)
		c := w.Result().Cookies()[0]
		if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" || c.Secure != strings.HasPrefix(url, "https") {
			t.Errorf("the cookie: %s", c)
		}
		if strings.Contains(link, c.Value) || cookie == old {
			t.Error("the session has a secret that was used before")
		}
		if w := l.ask("GET", "/page", "Host", "localhost", "Cookie", old); w.Code != http.StatusSeeOther {
			t.Errorf("the session before is good: %d", w.Code)
		}
		if w := l.ask("GET", "/queue", "Host", "localhost", "Cookie", cookie); w.Code != http.StatusOK || w.Header().Get("X-Operates") != "yes" {
			t.Errorf("the machine's owner: %d", w.Code)
		}
		if w := l.ask("GET", path, "Host", "localhost"); w.Code != http.StatusForbidden || len(w.Result().Cookies()) > 0 {
			t.Errorf("the link again: %d", w.Code)
		}
		if w := l.ask("POST", PathOut, "Host", "localhost", "Cookie", cookie, "Sec-Fetch-Site", "same-origin"); w.Code != http.StatusSeeOther {
			t.Errorf("signing out: %d", w.Code)
		}
		if w := l.ask("GET", "/api/x", "Host", "localhost", "Cookie", cookie); w.Code != http.StatusUnauthorized {
			t.Errorf("after signing out: %d", w.Code)
		}
	}
	l := newLab(t, nil)
	link, err := NewLink(t.Context(), l.access, nil, l.now(), "", "olga")
	if err != nil {
		t.Fatal(err)
	}
	cookie := l.signIn(t)
	l.pass(LinkFor)
	if w := l.ask("GET", link, "Host", "localhost"); w.Code != http.StatusForbidden {
		t.Errorf("a link that is too old: %d", w.Code)
	}
	l.pass(time.Hour)
	if w := l.ask("GET", "/api/x", "Host", "localhost", "Cookie", cookie); w.Code != http.StatusUnauthorized {
		t.Errorf("a session that is too old: %d", w.Code)
	}
	if w := l.ask("GET", "/page?a=b", "Host", "localhost", "Cookie", cookie); w.Header().Get("Location") != "/sign-in?next=%2Fpage%3Fa%3Db" {
		t.Errorf("to %q", w.Header().Get("Location"))
	}
}

// TestNext_WEB07: after signing in a viewer is on this server.
func TestNext_WEB07(t *testing.T) {
	for next, want := range map[string]string{
		"/tasks/t_1?x=1": "/tasks/t_1?x=1", "": "/", "//evil.example": "/", "https://evil.example": "/", `/\evil.example`: "/", "/\t/evil.example": "/",
		"javascript:alert(1)": "/", "/%2f/evil.example": "/", "/%5cevil.example": "/", "evil": "/", "/sign-in?next=/x": "/", "/sign-out": "/", "/\r\nSet-Cookie: a=b": "/",
		"http:/evil.example": "/", "/..//evil.example": "/..//evil.example", "///evil.example": "/",
	} {
		if got := local(next); got != want {
			t.Errorf("%q leads to %q, want %q", next, got, want)
		}
	}
}

func FuzzNext(f *testing.F) {
	f.Add("/x")
	f.Add(`/\evil`)
	f.Fuzz(func(t *testing.T, next string) {
		got := local(next)
		if !strings.HasPrefix(got, "/") || strings.HasPrefix(got, "//") || strings.HasPrefix(got, `/\`) || strings.ContainsAny(got, "\r\n\t") {
			t.Fatalf("%q leads to %q", next, got)
		}
	})
}

func TestTokens(t *testing.T) {
	l := newLab(t, nil)
	ctx := t.Context()
	make := func(n NewToken) (string, string) {
		t.Helper()
		id, secret, err := CreateToken(ctx, l.access, nil, l.now(), n)
		if err != nil {
			t.Fatal(err)
		}
		return id, secret
	}
	id, secret := make(NewToken{Name: "ci", Scopes: []Scope{Read, Create}, Repos: []string{"https://forge/*"}, Expires: l.now().Add(time.Hour), By: "olga"})
	_, admin := make(NewToken{Name: "root", Scopes: []Scope{Admin}})
	code := func(token string, path string) int {
		return l.ask("GET", path, "Host", "localhost", "Authorization", "Bearer "+token).Code
	}
	for token, want := range map[string]int{
		secret: 200, admin: 200, operatorToken: 200,
		secret + "x": 401, secret[:len(secret)-1]: 401, "": 401, operatorToken + "x": 401, tokenPrefix: 401, tokenPrefix + id + "_": 401, tokenPrefix + id: 401,
		tokenPrefix + "00000000000000000000000000_" + secret: 401, tokenPrefix + strings.Repeat("\x00", 26) + "_x": 401, strings.Repeat("x", 10_000): 401,
	} {
		if got := code(token, "/api/x"); got != want {
			t.Errorf("%.40q: %d, want %d", token, got, want)
		}
	}
	if code(secret, "/queue") != 404 || code(admin, "/queue") != 200 {
		t.Error("the pages of operators go by the scope admin")
	}
	stored, err := l.access.Token(ctx, id)
	if err != nil || strings.Contains(secret, string(stored.Hash)) || stored.Used.IsZero() || !slices.Equal(stored.Repos, []string{"https://forge/*"}) {
		t.Errorf("%+v %v", stored, err)
	}
	cookie := l.signIn(t)
	if w := l.ask("GET", "/api/x", "Host", "localhost", "Authorization", "Bearer wrong", "Cookie", cookie); w.Code != 401 {
		t.Errorf("a wrong token is not made good by a session: %d", w.Code)
	}
	if w := l.ask("GET", "/api/x", "Host", "localhost", "Authorization", "Basic "+operatorToken); w.Code != 401 {
		t.Errorf("another scheme: %d", w.Code)
	}
	if err := l.access.RevokeToken(ctx, id, l.now()); err != nil {
		t.Fatal(err)
	}
	if code(secret, "/api/x") != 401 {
		t.Error("a revoked token is good")
	}
	_, short := make(NewToken{Name: "ci", Scopes: []Scope{Read}, Expires: l.now().Add(time.Minute)})
	l.pass(time.Minute)
	if code(short, "/api/x") != 401 {
		t.Error("an expired token is good")
	}
	for _, n := range []NewToken{
		{Scopes: []Scope{Read}},
		{Name: "x"},
		{Name: "x", Scopes: []Scope{"all"}},
		{Name: "x\n", Scopes: []Scope{Read}},
		{Name: "x", Scopes: []Scope{Read}, Repos: []string{"["}},
		{Name: "x", Scopes: []Scope{Read}, Expires: l.now()},
	} {
		if _, _, err := CreateToken(ctx, l.access, nil, l.now(), n); task.ClassOf(err) != task.Invalid {
			t.Errorf("%+v: %v", n, err)
		}
	}
	none := newLab(t, func(c *GuardConfig) { c.Operator = "" })
	if w := none.ask("GET", "/api/x", "Host", "localhost", "Authorization", "Bearer "); w.Code != 401 {
		t.Errorf("no operator's token: %d", w.Code)
	}
}

// TestProblems: a refusal of the API is a problem (RFC 9457).
func TestProblems(t *testing.T) {
	l := newLab(t, nil)
	w := l.ask("GET", "/api/x", "Host", "localhost")
	var p Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Header().Get("Content-Type") != "application/problem+json" ||
		p.Status != 401 || p.Title != "Unauthorized" || p.Type != "about:blank" || p.Detail == "" || w.Header().Get("WWW-Authenticate") == "" {
		t.Errorf("%v %+v %v", err, p, w.Header())
	}
}

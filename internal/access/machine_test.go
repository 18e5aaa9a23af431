package access

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestMachine(t *testing.T) {
	const token = "0123456789abcdef0123"
	h := Machine(token, true, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for name, c := range map[string]struct {
		peer, host string
		head       [2]string
		want       int
	}{
		"this machine":            {"127.0.0.1:5", "127.0.0.1:8484", [2]string{}, 200},
		"by name":                 {"[::1]:5", "LocalHost", [2]string{}, 200},
		"IPv6":                    {"[::1]:5", "[::1]:8484", [2]string{}, 200},
		"another machine":         {"192.0.2.7:5", "127.0.0.1:8484", [2]string{}, 401},
		"a name made to point":    {"127.0.0.1:5", "evil.example:8484", [2]string{}, 401},
		"a proxy":                 {"127.0.0.1:5", "127.0.0.1", [2]string{"X-Forwarded-For", "192.0.2.7"}, 401},
		"a proxy of the standard": {"127.0.0.1:5", "127.0.0.1", [2]string{"Forwarded", "for=192.0.2.7"}, 401},
		"the token":               {"192.0.2.7:5", "daybreak.example", [2]string{"Authorization", "Bearer " + token}, 200},
		"another token":           {"192.0.2.7:5", "daybreak.example", [2]string{"Authorization", "Bearer " + token + "0"}, 401},
		"no scheme":               {"192.0.2.7:5", "daybreak.example", [2]string{"Authorization", token}, 401},
	} {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.RemoteAddr, r.Host = c.peer, c.host
		if c.head[0] != "" {
			r.Header.Set(c.head[0], c.head[1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s: %d, want %d", name, w.Code, c.want)
		}
	}
	plain := httptest.NewRequest("GET", "/metrics", nil)
	plain.RemoteAddr, plain.Host = "127.0.0.1:5", "127.0.0.1:8484"
	proxied := httptest.NewRecorder()
	if Machine(token, false, h).ServeHTTP(proxied, plain); proxied.Code != 401 {
		t.Errorf("a proxy that says nothing: %d", proxied.Code)
	}
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.RemoteAddr, r.Host = "192.0.2.7:5", "daybreak.example"
	r.Header.Set("Authorization", "Bearer ")
	w := httptest.NewRecorder()
	if Machine("", true, h).ServeHTTP(w, r); w.Code != 401 {
		t.Errorf("an empty token where none is set: %d", w.Code)
	}
}

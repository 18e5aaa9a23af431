package mirror

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// untouched fails if the upstream heard anything.
func (r *rig) untouched(what string) {
	r.t.Helper()
	if seen := r.up.requests(); len(seen) > 0 {
		r.t.Fatalf("%s: the upstream saw %s %s", what, seen[0].Method, seen[0].URL)
	}
}

// TestNET04Forms: everything by which a server can be turned into a proxy. The control first:
// the same client gets a package.
func TestNET04Forms(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(nil)
	const host = "Host: mirror\r\nConnection: close\r\n"
	if got := s.raw("GET /crates/index/config.json HTTP/1.1\r\n" + host + "\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Fatalf("the control was refused: %s", got)
	}
	path := " /npm/@team/lib HTTP/1.1\r\n" + host
	for name, c := range map[string]struct {
		send, status string
		reason       Reason
	}{
		"CONNECT":        {"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", "405", ReasonForm},
		"CONNECT path":   {"CONNECT" + path + "\r\n", "405", ReasonForm},
		"absolute form":  {"GET http://evil.example/ HTTP/1.1\r\n" + host + "\r\n", "400", ReasonForm},
		"absolute known": {"GET http://evil.example/npm/@team/lib HTTP/1.1\r\n" + host + "\r\n", "400", ReasonForm},
		"asterisk":       {"OPTIONS * HTTP/1.1\r\n" + host + "\r\n", "405", ReasonMethod},
		"asterisk GET":   {"GET * HTTP/1.1\r\n" + host + "\r\n", "400", ReasonForm},
		"websocket":      {"GET" + path + "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAA\r\n\r\n", "400", ReasonForm},
		"h2c":            {"GET" + path + "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n", "400", ReasonForm},
		"expect":         {"GET" + path + "Expect: 100-continue\r\n\r\n", "400", ReasonForm},
		"HTTP/2":         {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "", ""},
	} {
		got := s.raw(c.send)
		if c.status == "" {
			if strings.Contains(got, " 200 ") {
				t.Errorf("%s: answered: %s", name, got)
			}
			continue
		}
		if !strings.HasPrefix(got, "HTTP/1.1 "+c.status) || !strings.Contains(got, "X-Refused: "+string(c.reason)+"\r\n") {
			t.Errorf("%s: want %s %s, got %s", name, c.status, c.reason, got)
		}
	}
	r.untouched("forms")
}

func TestNET05MethodsAndBodies(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(nil)
	const path = " /npm/@team/lib HTTP/1.1\r\nHost: mirror\r\nConnection: close\r\n"
	for _, m := range []string{"POST", "PUT", "PATCH", "DELETE", "PROPFIND", "OPTIONS", "TRACE", "get"} {
		if got := s.raw(m + path + "\r\n"); !strings.HasPrefix(got, "HTTP/1.1 405") || !strings.Contains(got, "X-Refused: method") {
			t.Errorf("%s: %s", m, got)
		}
	}
	for name, rest := range map[string]string{
		"length":          "Content-Length: 4\r\n\r\nabcd",
		"chunked":         "Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
		"chunked nothing": "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		if got := s.raw("GET" + path + rest); !strings.HasPrefix(got, "HTTP/1.1 400") || !strings.Contains(got, "X-Refused: body") || strings.Count(got, "HTTP/1.1") != 1 {
			t.Errorf("%s: %s", name, got)
		}
	}
	// what follows a refused body is not parsed as a second request
	smuggled := strings.ReplaceAll("GET"+path, "Connection: close\r\n", "") + "Content-Length: 45\r\n\r\nGET /npm/@team/lib HTTP/1.1\r\nHost: mirror\r\n\r\n"
	if got := s.raw(smuggled); strings.Count(got, "HTTP/1.1") != 1 {
		t.Errorf("two answers: %s", got)
	}
	r.untouched("methods")
	if n := len(s.ledger()); n < 11 {
		t.Errorf("%d refusals on the ledger", n)
	}
}

// TestNET06Hosts: whatever a client says about hosts, the configured upstream is what is dialled.
func TestNET06Hosts(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(func(c *SessionConfig) { c.Limits.NewNames = 1000 })
	for _, host := range []string{
		"evil.example", "user@evil.example", "EVIL.example.", "evil.example:443", "127.0.0.1", "2130706433", "0x7f000001", "127.1",
		"[::ffff:127.0.0.1]", "[fe80::1%25eth0]", "xn--80ak6aa92e.example", "evil.example\\@mirror", "mirror%00.evil.example", "",
	} {
		got := s.raw("GET /npm/@team/lib HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 200") && !strings.HasPrefix(got, "HTTP/1.1 400") {
			t.Errorf("host %q: %s", host, got)
		}
	}
	for _, bad := range []string{"Host: a\r\nHost: b\r\n", "Host: a\x00b\r\n", "Host: a\rb\r\n", ""} {
		if got := s.raw("GET /npm/@team/lib HTTP/1.1\r\n" + bad + "Connection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400") {
			t.Errorf("%q: %s", bad, got)
		}
	}
	for _, req := range r.up.requests() {
		if "http://"+req.Host != r.up.URL {
			t.Errorf("the upstream was asked for host %q", req.Host)
		}
	}
}

// outside are paths that no grammar accepts.
var outside = []string{
	"/", "/x", "/npm", "/npm/", "/unknown/thing",
	"/npm/%2e%2e/%2e%2e/etc", "/npm/..%2f..%2fetc", "/npm/a//b", "//npm/a", "/npm/a/../b", "/npm/a;x=1", "/npm/a%00", "/npm/a%3fq", "/npm/a%23f", "/npm/%C3%A9",
	"/npm/a%252e%252e", "/npm/a%5cb", "/npm/" + strings.Repeat("a", 1100), "/npm/a%0d%0aX:y", "/npm/a%20b", "/npm/a%7cb", "/npm/a%25",
	"/npm/-/v1/search", "/npm/-/npm/v1/security/audits/quick", "/npm/-/user/org.couchdb.user:x", "/npm/-/npm/v1/tokens", "/npm/-/whoami", "/npm/-/ping", "/npm/@team/lib/access",
	"/npm/@team/lib/-/../../x-1.0.0.tgz", "/npm/@team/lib/-/other-1.0.0.tgz", "/npm/@team/lib/-/lib-x.tgz", "/npm/-/package/a/dist-tags", "/npm/@team", "/npm/a/b/c",
	"/go/example.com/team/lib/@v/master.info", "/go/example.com/team/lib/@v/v1.info", "/go/example.com/team/lib/@v/v1.0.0.txt", "/go/Example.com/@v/list", "/go/nodot/@v/list",
	"/go/example.com/team/lib/@v/v1.0.0+meta.info", "/go/example.com/team/lib/@v/", "/go/example.com/team/lib/@v/x/list", "/go/sumdb/" + fakeDB + "/lookup/example.com/x", "/go/sumdb/" + fakeDB + "/tile/9/0/000", "/go/sumdb/" + fakeDB + "/tile/8/0/0", "/go/sumdb/../latest",
	"/pypi/simple/", "/pypi/simple/Team_Lib/", "/pypi/simple/a/b/", "/pypi/files/a/x.exe", "/pypi/pypi/a/json", "/pypi/legacy/", "/pypi/files/a/.whl",
	"/crates/api/v1/crates", "/crates/index/te/am/other", "/crates/index/te/am/TEAMLIB", "/crates/dl/a/1/download", "/crates/dl/a/1.0.0/x", "/crates/index/1/ab", "/crates/api/v1/crates/new",
	"/maven/com/team/lib/1.0/other-1.0.pom", "/maven/com/team/lib/1.0-SNAPSHOT/lib-1.0-SNAPSHOT.pom", "/maven/com.team/x/lib/1.0/lib-1.0.pom", "/maven/lib-1.0.pom", "/maven/com/team/lib/1.0/lib-1.0.sh", "/maven/com/team/lib/1.0/lib-1.0.pom.asc",
	"/debian/debian/pool/main/x.sh", "/debian/debian/dists/stable/../x", "/debian/debian/dists/stable", "/debian/debian/", "/debian/debian/foo_1_all.deb", "/debian/debian/dists/Stable!/InRelease",
}

func TestNET07Paths(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(func(c *SessionConfig) { c.Limits.Refusals = 1000 })
	for _, p := range outside {
		got := s.raw("GET " + p + " HTTP/1.1\r\nHost: mirror\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 404") && !strings.HasPrefix(got, "HTTP/1.1 400") {
			t.Errorf("%s: %s", p, got)
		}
		if strings.HasPrefix(got, "HTTP/1.1 404") && !strings.Contains(got, "X-Refused: path") {
			t.Errorf("%s: refused for another reason: %s", p, got)
		}
	}
	for _, p := range []string{"/npm/@team/lib?write=true", "/npm/@team/lib?", "/go/example.com/team/lib/@v/list?go-get=1"} {
		s.want(p, 400, ReasonQuery)
	}
	r.untouched("paths")
}

// TestNET07PlainPath: the layer before the grammars, by itself.
func TestNET07PlainPath(t *testing.T) {
	for _, p := range []string{"", "x", "//", "/a//b", "/a/../b", "/..", "/a/.", "/.../x", "/a b", "/a\x00", "/a\\b", "/a%2e", "/a?b", "/a#b", "/a;b", "/ä", "/a\n"} {
		if plainPath(p) {
			t.Errorf("%q is plain", p)
		}
	}
	for p := range files {
		if !plainPath(p) {
			t.Errorf("%q is not plain", p)
		}
	}
}

// TestNET20Headers: nothing of what a client sends reaches an upstream, in any ecosystem.
func TestNET20Headers(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(nil)
	const canary = "canary-7f3a9c"
	for path := range files {
		req, err := http.NewRequest(http.MethodGet, "http://mirror"+path, nil)
		check(t, err)
		for _, h := range []string{"User-Agent", "Referer", "X-Data", "Cookie", "Authorization", "If-None-Match", "Accept", "Accept-Language", "Range", "From", "Via", "Npm-Command"} {
			req.Header.Set(h, canary)
		}
		res, err := s.http.Do(req)
		check(t, err)
		check(t, res.Body.Close())
		if res.StatusCode != 200 {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
	allowed := []string{"User-Agent", "Accept", "Accept-Encoding"}
	seen := r.up.requests()
	if len(seen) < len(files) {
		t.Fatalf("only %d upstream requests", len(seen))
	}
	for _, req := range seen {
		if strings.Contains(fmt.Sprint(req.Header, req.URL, req.Host), canary) {
			t.Errorf("%s carries the client's text: %v", req.URL, req.Header)
		}
		for h := range req.Header {
			if !slices.Contains(allowed, h) {
				t.Errorf("%s: header %s", req.URL, h)
			}
		}
		if req.URL.RawQuery != "" || req.Method != http.MethodGet {
			t.Errorf("%s %s", req.Method, req.URL)
		}
	}
}

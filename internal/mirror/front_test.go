package mirror

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fronted is a rig whose upstreams go by https names, and a session's front before it.
func fronted(t *testing.T, edit func(*SessionConfig)) (*rig, *sess, string, *x509.CertPool) {
	t.Helper()
	r := newRig(t, func(c *Config) {
		c.NPM.StandsFor = []string{"https://reg.test"}
		c.PyPI.StandsFor = []string{"https://idx.test/simple"}
		c.PyPI.CDN = append(c.PyPI.CDN, Origin{URL: "https://files.test", Internal: true})
		c.Maven.StandsFor = []string{"https://repo.test/maven2"}
		c.Go.StandsFor = []string{"https://proxy.test"}
	})
	s := r.session(edit)
	f, err := r.m.NewFront(s.s)
	check(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("front: %v", err)
		}
	})
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(f.Authority()) {
		t.Fatal("the authority is no certificate")
	}
	return r, s, l.Addr().String(), pool
}

func through(t *testing.T, front string, pool *x509.CertPool) *http.Client {
	t.Helper()
	tr := &http.Transport{
		Proxy:           func(*http.Request) (*url.URL, error) { return &url.URL{Scheme: "http", Host: front}, nil },
		TLSClientConfig: &tls.Config{RootCAs: pool, Time: func() time.Time { return start }},
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// TestFrontServesAbsoluteAddresses: the addresses that lockfiles carry lead to the same routes.
func TestFrontServesAbsoluteAddresses(t *testing.T) {
	_, s, front, pool := fronted(t, nil)
	c := through(t, front, pool)
	for address, route := range map[string]string{
		"https://reg.test/@team/lib/-/lib-1.0.0.tgz":                "/npm/@team/lib/-/lib-1.0.0.tgz",
		"https://reg.test/@team%2flib":                              "/npm/@team/lib",
		"https://idx.test/simple/team-lib/":                         "/pypi/simple/team-lib/",
		"https://idx.test/files/team-lib/" + wheelName:              "/pypi/files/team-lib/" + wheelName,
		"https://files.test/packages/aa/bb/cc/" + wheelName:         "/pypi/files/team-lib/" + wheelName,
		"https://repo.test/maven2/com/team/lib/1.0/lib-1.0.pom":     "/maven/com/team/lib/1.0/lib-1.0.pom",
		"https://proxy.test/example.com/team/lib/@v/v1.0.0.zip":     "/go/example.com/team/lib/@v/v1.0.0.zip",
		"https://proxy.test:443/example.com/team/lib/@v/v1.0.0.mod": "/go/example.com/team/lib/@v/v1.0.0.mod",
	} {
		res, err := c.Get(address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if want := s.want(route, 200, ""); err != nil || res.StatusCode != 200 || string(body) != string(want) {
			t.Errorf("%s: %d, %d bytes, want %d; %v", address, res.StatusCode, len(body), len(want), err)
		}
	}
}

// TestFrontIsNoProxy: it leads to configured hosts alone, the names outside and inside agree, and
// inside the rules of the routes hold.
func TestFrontIsNoProxy(t *testing.T) {
	r, s, front, pool := fronted(t, func(c *SessionConfig) {
		c.Allow = nil
		c.Limits.NewNames = -1
		c.Known = map[Ecosystem][]string{NPM: {"@team/lib"}}
	})
	c := through(t, front, pool)
	send := func(text string) string {
		conn, err := net.Dial("tcp", front)
		check(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, text)
		check(t, err)
		line, err := bufio.NewReader(conn).ReadString('\n')
		check(t, err)
		return strings.TrimSpace(line)
	}
	for text, want := range map[string]string{
		"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n":      "403",
		"CONNECT reg.test:22 HTTP/1.1\r\nHost: reg.test:22\r\n\r\n":          "403",
		"CONNECT 127.0.0.1:443 HTTP/1.1\r\nHost: 127.0.0.1:443\r\n\r\n":      "403",
		"CONNECT u@reg.test:443 HTTP/1.1\r\nHost: u@reg.test:443\r\n\r\n":    "400",
		"CONNECT reg.test.:443 HTTP/1.1\r\nHost: reg.test.:443\r\n\r\n":      "403",
		"GET http://reg.test/@team/lib HTTP/1.1\r\nHost: reg.test\r\n\r\n":   "405",
		"GET / HTTP/1.1\r\nHost: reg.test\r\n\r\n":                           "405",
		"POST https://reg.test/@team/lib HTTP/1.1\r\nHost: reg.test\r\n\r\n": "405",
	} {
		if got := send(text); !strings.HasPrefix(got, "HTTP/1.1 "+want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	tunnel := func(name string) (*tls.Conn, error) {
		conn, err := net.Dial("tcp", front)
		check(t, err)
		t.Cleanup(func() { conn.Close() })
		_, err = io.WriteString(conn, "CONNECT reg.test:443 HTTP/1.1\r\nHost: reg.test:443\r\n\r\n")
		check(t, err)
		buf := make([]byte, len("HTTP/1.1 200 Connection Established\r\n\r\n"))
		_, err = io.ReadFull(conn, buf)
		check(t, err)
		tc := tls.Client(conn, &tls.Config{RootCAs: pool, Time: func() time.Time { return start }, ServerName: name, NextProtos: []string{"h2", "http/1.1"}})
		return tc, tc.Handshake()
	}
	if _, err := tunnel("files.test"); err == nil {
		t.Error("the tunnel took another name than it was asked for")
	}
	inside := func(text string) string {
		tc, err := tunnel("reg.test")
		check(t, err)
		if p := tc.ConnectionState().NegotiatedProtocol; p == "h2" {
			t.Error("HTTP/2 was taken")
		}
		_, err = io.WriteString(tc, text)
		check(t, err)
		line, err := bufio.NewReader(tc).ReadString('\n')
		check(t, err)
		return strings.TrimSpace(line)
	}
	for text, want := range map[string]string{
		"GET /@team/lib HTTP/1.1\r\nHost: files.test\r\n\r\n":                         "400",
		"GET https://evil.test/x HTTP/1.1\r\nHost: reg.test\r\n\r\n":                  "400",
		"GET /@team/lib?x=secret HTTP/1.1\r\nHost: reg.test\r\n\r\n":                  "400",
		"PUT /@team/lib HTTP/1.1\r\nHost: reg.test\r\nContent-Length: 0\r\n\r\n":      "405",
		"GET /-/v1/search HTTP/1.1\r\nHost: reg.test\r\n\r\n":                         "404",
		"GET /other HTTP/1.1\r\nHost: reg.test\r\n\r\n":                               "403",
		"CONNECT evil.test:443 HTTP/1.1\r\nHost: reg.test\r\n\r\n":                    "405",
		"GET /@team/lib HTTP/1.1\r\nHost: reg.test\r\nUpgrade: websocket\r\n\r\n":     "400",
		"GET /@team/lib HTTP/1.1\r\nHost: reg.test\r\nContent-Length: 5\r\n\r\nhello": "400",
	} {
		if got := inside(text); !strings.HasPrefix(got, "HTTP/1.1 "+want) {
			t.Errorf("inside %q: %s, want %s", text, got, want)
		}
	}
	if n := len(r.up.requests()); n != 0 {
		t.Errorf("the upstream saw %d requests", n)
	}
	res, err := c.Get("https://reg.test/@team/lib")
	check(t, err)
	res.Body.Close()
	if res.StatusCode != 200 || len(r.up.requests()) == 0 {
		t.Errorf("the control was refused: %d", res.StatusCode)
	}
	for _, e := range s.ledger() {
		if e.Refused == ReasonOrigin && strings.Contains(e.Detail, "evil.test") {
			return
		}
	}
	t.Errorf("the foreign host is not on the ledger: %+v", s.ledger())
}

// TestFrontSpeaksForItsHostsAlone: what the authority signs for another host no client takes.
func TestFrontSpeaksForItsHostsAlone(t *testing.T) {
	r := newRig(t, func(c *Config) { c.NPM.StandsFor = []string{"https://reg.test"} })
	f, err := r.m.NewFront(r.session(nil).s)
	check(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(f.Authority())
	for host, good := range map[string]bool{"reg.test": true, "evil.test": false} {
		leaf, err := f.leaf(host)
		check(t, err)
		cert, err := x509.ParseCertificate(leaf.Certificate[0])
		check(t, err)
		if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, DNSName: host, CurrentTime: start}); (err == nil) != good {
			t.Errorf("%s: %v", host, err)
		}
	}
	plain := newRig(t, nil).m
	none, err := plain.NewFront(r.session(nil).s)
	if none != nil || err != nil || plain.cfg.Fronted() || !r.m.cfg.Fronted() {
		t.Errorf("a front without a host that speaks https: %v %v", none, err)
	}
}

// TestTrustStore: Java reads the store, and without Java its frame is what the format says.
func TestTrustStore(t *testing.T) {
	r := newRig(t, func(c *Config) { c.NPM.StandsFor = []string{"https://reg.test"} })
	f, err := r.m.NewFront(r.session(nil).s)
	check(t, err)
	store, err := trustStore(f.Authority())
	check(t, err)
	block, _ := pem.Decode(f.Authority())
	if binary.BigEndian.Uint32(store) != 0xfeedfeed || !strings.Contains(string(store), string(block.Bytes)) {
		t.Error("no key store")
	}
	if _, err := trustStore([]byte("nothing")); err == nil {
		t.Error("a store without a certificate")
	}
	keytool, err := exec.LookPath("keytool")
	if err != nil {
		t.Skip("keytool is not installed")
	}
	name := filepath.Join(t.TempDir(), "trust.jks")
	check(t, os.WriteFile(name, store, 0o600))
	out, err := exec.Command(keytool, "-list", "-keystore", name, "-storepass", trustPassword).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "trustedCertEntry") {
		t.Errorf("%v: %s", err, out)
	}
}

func ExampleClients_Env() {
	c := Clients{Base: "http://127.0.0.1:4873", Home: "/home/agent", Config: &Config{NPM: &Upstream{}}}
	fmt.Println(c.Env()[0])
	// Output: npm_config_registry=http://127.0.0.1:4873/npm/
}

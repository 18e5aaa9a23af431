package mirror

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestNET10Redirects: a package's address is redirected; only what the operator configured is
// followed, and never the client.
func TestNET10Redirects(t *testing.T) {
	const path = "/npm/@team/lib/-/lib-1.0.0.tgz"
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the trap was reached") }))
	defer trap.Close()
	for name, c := range map[string]struct {
		to     func(r *rig, cdn string) string
		status int
		reason Reason
	}{
		"inside the registry": {func(r *rig, _ string) string { return "/moved.tgz" }, 200, ""},
		"configured CDN":      {func(r *rig, cdn string) string { return cdn + "/moved.tgz?signed=by-upstream" }, 200, ""},
		"another host":        {func(*rig, string) string { return trap.URL + "/moved.tgz" }, 502, ReasonOrigin},
		"loopback":            {func(*rig, string) string { return "http://127.0.0.1:1/x" }, 502, ReasonOrigin},
		"metadata":            {func(*rig, string) string { return "http://169.254.169.254/latest/meta-data" }, 502, ReasonOrigin},
		"credentials": {func(r *rig, _ string) string {
			return strings.Replace(r.up.URL, "http://", "http://u:p@", 1) + "/moved.tgz"
		}, 502, ReasonRedirect},
		"loop":                 {func(*rig, string) string { return path }, 502, ReasonRedirect},
		"another scheme":       {func(*rig, string) string { return "file:///etc/passwd" }, 502, ReasonRedirect},
		"https elsewhere":      {func(*rig, string) string { return "https://evil.example/x" }, 502, ReasonOrigin},
		"no address":           {func(*rig, string) string { return "" }, 502, ReasonUpstream},
		"a name like the host": {func(r *rig, _ string) string { return r.up.URL + ".evil.example/x" }, 502, ReasonRedirect},
	} {
		t.Run(name, func(t *testing.T) {
			cdn := newFake(t)
			r := newRig(t, func(c *Config) { c.NPM.CDN = []Origin{origin(cdn.URL)} })
			ball := r.up.files[path].body
			r.up.put("/moved.tgz", "application/octet-stream", ball)
			cdn.put("/moved.tgz", "application/octet-stream", ball)
			r.up.redirect(path, c.to(r, cdn.URL))
			if c.to(r, cdn.URL) == "" {
				r.up.files[path] = fakeFile{status: http.StatusFound}
				c.reason = ReasonRedirect
			}
			s := r.session(nil)
			s.want(path, c.status, c.reason)
			if c.reason != "" && count(s.ledger(), c.reason) != 1 {
				t.Errorf("ledger %+v", s.ledger())
			}
		})
	}
	t.Run("the host of another registry", func(t *testing.T) { // the dialler knows it; npm may not go there
		other := newFake(t)
		r := newRig(t, func(c *Config) { c.PyPI = &Upstream{Origin: origin(other.URL)} })
		r.up.redirect(path, other.URL+"/x")
		r.session(nil).want(path, 502, ReasonOrigin)
		if len(other.requests()) != 0 {
			t.Error("it was asked")
		}
	})
	if _, err := redirect("https://a.example/x", "http://a.example/x", 0); asRefusal(err).reason != ReasonRedirect {
		t.Errorf("https to http: %v", err)
	}
	if _, err := redirect("https://a.example/x", "/y", 3); err == nil {
		t.Error("a fourth hop")
	}
}

// TestNET11Addresses: the table of addresses that no registry has.
func TestNET11Addresses(t *testing.T) {
	for _, a := range []string{
		"127.0.0.1", "127.9.9.9", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "198.18.0.1", "::1", "fd12::1", "fec0::1",
		"::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1", "192.0.0.8",
	} {
		ip := netip.MustParseAddr(a)
		if checkAddr(ip, false) == nil {
			t.Errorf("%s is allowed", a)
		}
		if err := checkAddr(ip, true); err != nil {
			t.Errorf("%s is refused to an internal origin: %v", a, err)
		}
	}
	for _, a := range []string{"169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "0.0.0.0", "224.0.0.1", "255.255.255.255", "ff02::1", "::", "100.100.100.200"} {
		for _, internal := range []bool{false, true} {
			if checkAddr(netip.MustParseAddr(a), internal) == nil {
				t.Errorf("%s is allowed (internal: %v)", a, internal)
			}
		}
	}
	for _, a := range []string{"8.8.8.8", "151.101.0.1", "2606:4700::1", "172.32.0.1", "100.128.0.1"} {
		if err := checkAddr(netip.MustParseAddr(a), false); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
}

// TestNET11Rebinding: the resolver says something harmless, then loopback. The control is an
// origin marked as internal, which the same answers reach.
func TestNET11Rebinding(t *testing.T) {
	trap := newFake(t)
	trap.put("/team-lib/", "text/html", []byte("<html></html>"))
	u, err := url.Parse(trap.URL)
	check(t, err)
	for name, c := range map[string]struct {
		answers  [][]string
		internal bool
		want     Reason
		status   int
	}{
		"loopback":           {[][]string{{"127.0.0.1"}}, false, ReasonAddress, 502},
		"mapped":             {[][]string{{"::ffff:127.0.0.1"}}, false, ReasonAddress, 502},
		"metadata, internal": {[][]string{{"169.254.169.254"}}, true, ReasonAddress, 502},
		"mixed":              {[][]string{{"127.0.0.1", "192.0.2.1"}}, false, ReasonAddress, 502},
		"none":               {[][]string{{}}, false, ReasonUpstream, 502},
		"internal":           {[][]string{{"127.0.0.1"}}, true, "", 200},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			r := newRig(t, func(cfg *Config) {
				scheme := "http"
				if !c.internal {
					scheme = "https" // the address is refused before a handshake
				}
				cfg.PyPI = &Upstream{Origin: Origin{URL: scheme + "://registry.example:" + u.Port(), Internal: c.internal}}
				cfg.Resolve = func(context.Context, string) ([]netip.Addr, error) {
					var out []netip.Addr
					for _, a := range c.answers[min(asked, len(c.answers)-1)] {
						out = append(out, netip.MustParseAddr(a))
					}
					asked++
					return out, nil
				}
			})
			s := r.session(nil)
			s.want("/pypi/simple/team-lib/", c.status, c.want)
			if asked != 1 {
				t.Errorf("the name was resolved %d times: what is checked must be what is dialled", asked)
			}
		})
	}
	if n := len(trap.requests()); n != 1 {
		t.Errorf("the trap saw %d requests, the control alone makes one", n)
	}
}

// TestDialKnowsItsHosts: even a bug above cannot make the dialler leave the configured hosts.
func TestDialKnowsItsHosts(t *testing.T) {
	r := newRig(t, nil)
	if _, err := r.m.net.dial(t.Context(), "tcp", "evil.example:443"); asRefusal(err).reason != ReasonOrigin {
		t.Errorf("dial: %v", err)
	}
}

type ca struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(t *testing.T) ca {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	check(t, err)
	cert, err := x509.ParseCertificate(der)
	check(t, err)
	return ca{cert, key}
}

func (c ca) leaf(t *testing.T, name string, until time.Time) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, c.cert, &key.PublicKey, c.key)
	check(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestNET12TLS: the mirror makes its own connection, with the configured name, and believes
// only its roots.
func TestNET12TLS(t *testing.T) {
	good, other := newCA(t), newCA(t)
	roots := x509.NewCertPool()
	roots.AddCert(good.cert)
	soon := time.Now().Add(time.Hour)
	for name, c := range map[string]struct {
		cert   tls.Certificate
		max    uint16
		status int
		reason Reason
	}{
		"right":      {good.leaf(t, "registry.example", soon), 0, 200, ""},
		"wrong name": {good.leaf(t, "evil.example", soon), 0, 502, ReasonTLS},
		"expired":    {good.leaf(t, "registry.example", time.Now().Add(-time.Hour)), 0, 502, ReasonTLS},
		"unknown CA": {other.leaf(t, "registry.example", soon), 0, 502, ReasonTLS},
		"old TLS":    {good.leaf(t, "registry.example", soon), tls.VersionTLS11, 502, ReasonTLS},
	} {
		t.Run(name, func(t *testing.T) {
			var sni atomic.Value
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/html")
				_, _ = io.WriteString(w, "<html></html>")
			}))
			srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			srv.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: c.max, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
				sni.Store(h.ServerName)
				return &c.cert, nil
			}}
			srv.StartTLS()
			defer srv.Close()
			_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
			check(t, err)
			r := newRig(t, func(cfg *Config) {
				cfg.PyPI = &Upstream{Origin: Origin{URL: "https://registry.example:" + port, Internal: true}}
				cfg.Roots = roots
				cfg.Resolve = func(context.Context, string) ([]netip.Addr, error) {
					return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
				}
			})
			r.session(nil).want("/pypi/simple/team-lib/", c.status, c.reason)
			if got := sni.Load(); got != nil && got != "registry.example" {
				t.Errorf("server name %q", got)
			}
		})
	}
}

// TestUpstreamMisbehaves: what a compromised registry can send.
func TestUpstreamMisbehaves(t *testing.T) {
	big := strings.Repeat("x", 4096)
	for name, c := range map[string]struct {
		path, upstream string
		file           fakeFile
		reason         Reason
	}{
		"5xx":               {"/npm/@team/lib", "/npm/@team/lib", fakeFile{status: 503}, ReasonUpstream},
		"too large":         {"/npm/@team/lib", "/npm/@team/lib", fakeFile{body: []byte(big)}, ReasonSize},
		"large object":      {"/crates/dl/teamlib/1.0.0/download", "/dl/teamlib/1.0.0.crate", fakeFile{body: []byte(big)}, ReasonSize},
		"not JSON":          {"/npm/@team/lib", "/npm/@team/lib", fakeFile{body: []byte("{")}, ReasonUpstream},
		"another package":   {"/npm/@team/lib", "/npm/@team/lib", fakeFile{body: []byte(`{"name":"x","versions":{}}`)}, ReasonUpstream},
		"another crate":     {"/crates/index/te/am/teamlib", "/crates/te/am/teamlib", fakeFile{body: []byte(`{"name":"x","vers":"1.0.0"}`)}, ReasonUpstream},
		"another version":   {"/go/example.com/team/lib/@v/v1.0.0.info", "/go/example.com/team/lib/@v/v1.0.0.info", fakeFile{body: []byte(`{"Version":"v1.0.1"}`)}, ReasonUpstream},
		"XML entities":      {"/maven/com/team/lib/maven-metadata.xml", "/maven/com/team/lib/maven-metadata.xml", fakeFile{body: []byte(`<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>`)}, ReasonUpstream},
		"content type":      {"/pypi/simple/team-lib/", "/simple/team-lib/", fakeFile{body: []byte("{}"), ctype: "image/png"}, ReasonUpstream},
		"unsigned":          {"/debian/debian/dists/stable/InRelease", "/debian/dists/stable/InRelease", fakeFile{body: []byte("Suite: stable\n")}, ReasonDigest},
		"files elsewhere":   {"/pypi/files/team-lib/" + wheelName, "/simple/team-lib/", fakeFile{body: []byte(`{"files":[{"filename":"` + wheelName + `","url":"https://evil.example/` + wheelName + `","hashes":{"sha256":"` + sha(nil) + `"}}]}`), ctype: simpleJSON}, ReasonOrigin},
		"files on loopback": {"/pypi/files/team-lib/" + wheelName, "/simple/team-lib/", fakeFile{body: []byte(`{"files":[{"filename":"` + wheelName + `","url":"http://127.0.0.1:1/` + wheelName + `","hashes":{"sha256":"` + sha(nil) + `"}}]}`), ctype: simpleJSON}, ReasonOrigin},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Sizes = Sizes{Object: 4000, Metadata: 4000} })
			r.up.files[c.upstream] = c.file
			r.session(nil).want(c.path, 502, c.reason)
		})
	}
}

// TestIndexBomb: an index that is small as sent and huge when expanded.
func TestIndexBomb(t *testing.T) {
	r := newRig(t, nil)
	r.up.putSuite(t, r.m.archives["debian"].Keyring[0], "stable", "", start, gz(t, strings.Repeat("\n", 16<<20)))
	r.session(nil).want("/debian/debian/"+debPath, 502, ReasonSize)
}

func TestClassifyKeepsOurReason(t *testing.T) {
	err := classify(&url.Error{Op: "Get", URL: "x", Err: bad(ReasonAddress, "inside")})
	if asRefusal(err).reason != ReasonAddress || asRefusal(classify(errors.New("reset"))).reason != ReasonUpstream {
		t.Errorf("%v", err)
	}
}

package mirror

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Front serves tools that insist on the absolute addresses in their lockfiles: it takes CONNECT
// to a configured host, ends the TLS there with a certificate of an authority that one sandbox
// alone trusts, and answers from the same routes, session and store. It connects to nobody.
type Front struct {
	m *Mirror
	s *Session

	cert *x509.Certificate
	key  *ecdsa.PrivateKey // never leaves this process's memory

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

const frontLife = 7 * 24 * time.Hour // of its certificates; no sandbox lives longer

// NewFront makes a front with an authority of its own, which may speak for the configured hosts
// only. It returns nil when no upstream has an https address.
func (m *Mirror) NewFront(s *Session) (*Front, error) {
	hosts := map[string]bool{}
	for _, b := range m.bases() {
		hosts[b.host] = true
	}
	if len(hosts) == 0 {
		return nil, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := m.cfg.Now()
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Daybreak sandbox"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(frontLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign, PermittedDNSDomainsCritical: true,
	}
	for h := range hosts {
		name, _, _ := net.SplitHostPort(h)
		if ip := net.ParseIP(name); ip != nil {
			bits := 8 * len(ip)
			if ip4 := ip.To4(); ip4 != nil {
				ip, bits = ip4, 32
			}
			tmpl.PermittedIPRanges = append(tmpl.PermittedIPRanges, &net.IPNet{IP: ip, Mask: net.CIDRMask(bits, bits)})
		} else {
			tmpl.PermittedDNSDomains = append(tmpl.PermittedDNSDomains, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Front{m: m, s: s, cert: cert, key: key, leaves: map[string]*tls.Certificate{}}, nil
}

// Authority is the certificate that the sandbox must trust, as PEM.
func (f *Front) Authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.cert.Raw})
}

func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it cannot fail
	return new(big.Int).SetBytes(b)
}

func (f *Front) leaf(host string) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.leaves[host]; c != nil {
		return c, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: host}, NotBefore: f.cert.NotBefore, NotAfter: f.cert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		tmpl.IPAddresses = []net.IP{ip}
	} else {
		tmpl.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, f.cert, &key.PublicKey, f.key)
	if err != nil {
		return nil, err
	}
	c := &tls.Certificate{Certificate: [][]byte{der, f.cert.Raw}, PrivateKey: key}
	f.leaves[host] = c
	return c, nil
}

// base is an address that stands for an ecosystem's routes.
type base struct {
	host   string // "host:port"
	path   string // with a slash at its end
	prefix string // of our routes; "" for a host of files alone
}

// Fronted reports whether a session can have a front.
func (c *Config) Fronted() bool { return len(c.bases()) > 0 }

func (m *Mirror) bases() []base { return m.cfg.bases() }

// bases are the https addresses of the upstreams, of the names they go by in lockfiles, and of
// the hosts of PyPI's files.
func (c *Config) bases() []base {
	var out []base
	add := func(raw, prefix string) {
		u, err := url.Parse(raw)
		_, host, kerr := originKey(raw)
		if err == nil && kerr == nil && u.Scheme == "https" {
			out = append(out, base{host, strings.TrimRight(u.Path, "/") + "/", prefix})
		}
	}
	each := func(u *Upstream, prefix string) {
		if u == nil {
			return
		}
		for _, o := range append([]string{u.URL}, u.StandsFor...) {
			add(o, prefix)
			if prefix == "/pypi/simple/" { // the index points to files beside it
				add(strings.TrimSuffix(strings.TrimRight(o, "/"), "/simple")+"/files", "/pypi/files/")
			}
		}
	}
	if c.Go != nil {
		each(&c.Go.Upstream, "/go/")
	}
	each(c.NPM, "/npm/")
	each(c.PyPI, "/pypi/simple/")
	each(c.Crates, "/crates/index/")
	each(c.Maven, "/maven/")
	if c.PyPI != nil {
		for _, o := range c.PyPI.CDN {
			add(o.URL, "")
		}
	}
	return out
}

// ours turns a path at a host into one of our routes. The longest base that fits decides.
func (m *Mirror) ours(host, path string) (string, bool) {
	best := -1
	bases := m.bases()
	for i, b := range bases {
		if b.host == host && strings.HasPrefix(path, b.path) && (best < 0 || len(b.path) > len(bases[best].path)) {
			best = i
		}
	}
	if best < 0 {
		return "", false
	}
	b := bases[best]
	if b.prefix != "" {
		return b.prefix + strings.TrimPrefix(path, b.path), true
	}
	file := path[strings.LastIndexByte(path, '/')+1:]
	return "/pypi/files/" + projectOf(file) + "/" + file, true
}

// projectOf guesses a project from the name of one of its files; the project's index then says
// whether it has the file.
func projectOf(file string) string {
	name := file
	if strings.HasSuffix(strings.TrimSuffix(file, ".metadata"), ".whl") {
		name, _, _ = strings.Cut(file, "-") // PEP 427: no hyphen in the name
	} else if i := strings.LastIndexByte(file, '-'); i > 0 {
		name = file[:i]
	}
	return strings.ToLower(strings.Join(strings.FieldsFunc(name, func(r rune) bool { return r == '-' || r == '_' || r == '.' }), "-"))
}

type frontHost struct{}

// Serve takes a session's clients on a listener of their own until ctx ends.
func (f *Front) Serve(ctx context.Context, l net.Listener) error {
	inner := newHandoff(l.Addr())
	logs := slog.NewLogLogger(f.m.cfg.Log.Handler(), slog.LevelDebug)
	tunnelled := &http.Server{
		Handler: http.HandlerFunc(f.tunnelled), ReadHeaderTimeout: 5 * time.Second, WriteTimeout: fetchTimeout + time.Minute, IdleTimeout: 30 * time.Second,
		MaxHeaderBytes: 16 << 10, ErrorLog: logs, DisableGeneralOptionsHandler: true, Protocols: onlyHTTP1(),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			t, ok := c.(*tunnel)
			if !ok {
				return ctx
			}
			return context.WithValue(ctx, frontHost{}, t)
		},
	}
	outer := &http.Server{
		Handler: f.proxy(inner), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10,
		ErrorLog: logs, DisableGeneralOptionsHandler: true, Protocols: onlyHTTP1(),
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = outer.Close()
		_ = tunnelled.Close()
	})
	done := make(chan error, 1)
	go func() { done <- tunnelled.Serve(inner) }()
	err := outer.Serve(&capped{Listener: l, s: f.s, max: int64(f.s.cfg.Limits.Conns)})
	if stop() {
		err = errors.Join(err, tunnelled.Close())
	} else {
		<-ended
	}
	<-done
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// proxy takes CONNECT to configured hosts and nothing else.
func (f *Front) proxy(inner *handoff) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := f.s.admit()
		host := ""
		if err == nil {
			host, err = f.target(r)
		}
		if err != nil {
			ref := asRefusal(err)
			f.s.refused(route{}, ref)
			w.Header().Set("X-Refused", string(ref.reason))
			w.Header().Set("Connection", "close")
			plain(w, ref.status, "refused ("+string(ref.reason)+"): "+clip(ref.Error()))
			return
		}
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return // the client left
		}
		f.open(conn, buf, host, inner)
	}
}

// target is the host and port that a CONNECT may name.
func (f *Front) target(r *http.Request) (string, error) {
	if r.Method != http.MethodConnect {
		return "", deny(http.StatusMethodNotAllowed, ReasonForm, "only CONNECT is taken here")
	}
	host := strings.ToLower(r.RequestURI)
	if host != strings.ToLower(r.Host) || strings.ContainsAny(host, "/@ ") {
		return "", deny(http.StatusBadRequest, ReasonForm, "the two names of the host differ")
	}
	for _, b := range f.m.bases() {
		if b.host == host {
			return host, nil
		}
	}
	return "", deny(http.StatusForbidden, ReasonOrigin, "%s is no host of a configured registry", clip(host))
}

// open ends the TLS of one tunnel and hands it on.
func (f *Front) open(conn net.Conn, buf *bufio.ReadWriter, host string, inner *handoff) {
	name, _, _ := net.SplitHostPort(host)
	if buf.Reader.Buffered() > 0 { // nobody may speak before the answer
		_ = conn.Close()
		return
	}
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second)) // a connection without deadlines is a test's own
	if _, err := fmt.Fprint(conn, "HTTP/1.1 200 Connection Established\r\n\r\n"); err != nil {
		_ = conn.Close()
		return
	}
	var wrong string
	t := tls.Server(conn, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true,
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			sni := strings.ToLower(h.ServerName)
			if sni != name && !(sni == "" && net.ParseIP(name) != nil) {
				wrong = clip(h.ServerName)
				return nil, errors.New("another name")
			}
			return f.leaf(name)
		},
	})
	if err := t.Handshake(); err != nil {
		if wrong != "" || errors.Is(err, net.ErrClosed) {
			f.s.refused(route{}, asRefusal(deny(http.StatusForbidden, ReasonOrigin, "a tunnel to %s asked for %q inside", name, wrong)))
		}
		_ = conn.Close()
		return
	}
	_ = conn.SetDeadline(time.Time{}) // as above
	inner.give(&tunnel{Conn: t, host: host, name: name})
}

// tunnelled answers inside a tunnel: its host decides which routes a path may mean.
func (f *Front) tunnelled(w http.ResponseWriter, r *http.Request) {
	t, _ := r.Context().Value(frontHost{}).(*tunnel)
	h := &handler{m: f.m, s: f.s}
	h.path = func(r *http.Request) (string, error) {
		if t == nil {
			return "", deny(http.StatusBadRequest, ReasonForm, "no tunnel")
		}
		host := strings.ToLower(r.Host)
		if host != t.host && host != t.name && host != "["+t.name+"]" {
			return "", deny(http.StatusBadRequest, ReasonOrigin, "a tunnel to %s asked %s inside", t.name, clip(r.Host))
		}
		p, ok := f.m.ours(t.host, r.URL.Path)
		if !ok {
			return "", deny(http.StatusNotFound, ReasonPath, "the registry at %s has no path %q", t.name, clip(r.URL.Path))
		}
		return p, nil
	}
	h.ServeHTTP(w, r)
}

// tunnel is a connection whose TLS ended here.
type tunnel struct {
	net.Conn
	host, name string
}

// handoff is a listener that is given its connections.
type handoff struct {
	addr net.Addr
	in   chan net.Conn
	done chan struct{}
	once sync.Once
}

func newHandoff(a net.Addr) *handoff {
	return &handoff{addr: a, in: make(chan net.Conn), done: make(chan struct{})}
}

func (h *handoff) give(c net.Conn) {
	select {
	case h.in <- c:
	case <-h.done:
		_ = c.Close() // the session ended meanwhile
	}
}

// Accept waits for a connection.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.in:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (h *handoff) Close() error { h.once.Do(func() { close(h.done) }); return nil }

// Addr is the outer listener's.
func (h *handoff) Addr() net.Addr { return h.addr }

package pgtest

import (
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
)

// Proxy stands between a store and its server, and can be cut: connections break and new ones
// are refused until it is mended.
type Proxy struct {
	dir, to string
	mu      sync.Mutex
	cut     bool
	after   int // see CutAfter
	open    map[net.Conn]bool
}

// NewProxy starts one that ends with the test.
func NewProxy(t testing.TB, srv *Server) *Proxy {
	t.Helper()
	p := &Proxy{dir: t.TempDir(), to: srv.Socket(), open: map[net.Conn]bool{}}
	l, err := net.Listen("unix", filepath.Join(p.dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(); p.Cut() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

func (p *Proxy) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	s, err := net.Dial("unix", p.to)
	if err != nil {
		return
	}
	defer func() { _ = s.Close() }()
	p.mu.Lock()
	if p.cut {
		p.mu.Unlock()
		return
	}
	p.open[c], p.open[s] = true, true
	p.mu.Unlock()
	go func() { _, _ = io.Copy(c, s); _ = c.Close() }()
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			if _, err := s.Write(buf[:n]); err != nil {
				return
			}
			p.count(n)
		}
		if err != nil {
			return
		}
	}
}

// count cuts everything once so many bytes went to the server: it may have got its order and
// done it, and nobody hears of it.
func (p *Proxy) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.after == 0 {
		return
	}
	if p.after -= n; p.after <= 0 {
		p.after = 0
		p.breakAll()
	}
}

// CutAfter cuts every connection once, after so many bytes went to the server; 0: not.
func (p *Proxy) CutAfter(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after = bytes
}

// Cut breaks every connection and refuses new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	p.breakAll()
}

// Mend lets connections through again.
func (p *Proxy) Mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

func (p *Proxy) breakAll() {
	for c := range p.open {
		_ = c.Close()
	}
	p.open = map[net.Conn]bool{}
}

// DSN is the address of the same database through the proxy.
func (p *Proxy) DSN(t testing.TB, direct string) string {
	t.Helper()
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("host", p.dir)
	u.RawQuery = q.Encode()
	return u.String()
}

package mirror

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/daybreak-agent/daybreak/internal/guest/forward"
)

// TestNET14IdleConnections: one task opens connections without end and sends nothing; its cap
// holds, it is told once, and another task is served meanwhile.
func TestNET14IdleConnections(t *testing.T) {
	r := newRig(t, nil)
	hostile := r.session(func(c *SessionConfig) { c.Limits.Conns = 16 })
	honest := r.session(nil)
	const tries = 600
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	closed := 0
	for range tries {
		c, err := net.Dial("unix", hostile.socket)
		check(t, err)
		open = append(open, c)
	}
	for _, c := range open[16:] { // accepted in order: these are beyond the cap
		check(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
		if _, err := c.Read(make([]byte, 1)); err == io.EOF || strings.Contains(err.Error(), "reset") {
			closed++
		}
	}
	if closed != tries-16 {
		t.Errorf("%d of %d connections beyond the cap were closed", closed, tries-16)
	}
	honest.want("/npm/@team/lib", 200, "")
	if n := count(hostile.ledger(), ReasonConns); n != 1 {
		t.Errorf("%d entries about connections", n)
	}
	for _, c := range open[:16] {
		c.Close()
	}
	// the places are free again as soon as the server has seen the ends
	for {
		res, err := hostile.http.Get("http://mirror/crates/index/config.json")
		if err == nil {
			res.Body.Close()
			break
		}
	}
}

// bubble serves a session over in-memory connections, so that a test can run its timeouts in
// no time.
type bubble struct{ conns chan net.Conn }

func (b *bubble) Accept() (net.Conn, error) {
	c, ok := <-b.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (b *bubble) Close() error   { return nil }
func (b *bubble) Addr() net.Addr { return &net.UnixAddr{} }

// TestNET14SlowClients: headers that never end, a reader that never reads, a connection that
// never speaks: each is cut off.
func TestNET14SlowClients(t *testing.T) {
	r := newRig(t, nil)
	body := strings.Repeat("x", 1<<20)
	r.m.docs.byKey["crates teamlib"] = &document{body: []byte(body), expires: start.Add(time.Hour)}
	for name, c := range map[string]struct {
		send  string
		after time.Duration // most it may last
		hears bool
	}{
		"slow headers":            {"GET /crates/index/te/am/teamlib HTTP/1.1\r\nHost: m\r\nX-A", 6 * time.Second, true},
		"a body that never comes": {"POST /crates/index/te/am/teamlib HTTP/1.1\r\nHost: m\r\nContent-Length: 1000\r\n\r\n", 2 * time.Second, true},
		"silence":                 {"", 11 * time.Second, true},
		"reads nothing":           {"GET /crates/index/te/am/teamlib HTTP/1.1\r\nHost: m\r\n\r\n", stall + time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := NewSession(SessionConfig{Task: "t", Base: "http://x", Allow: allNames, Now: r.clock.now, Ledger: func(Entry) error { return nil }})
				check(t, err)
				l := &bubble{make(chan net.Conn, 1)}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- r.m.Serve(ctx, l, s) }()
				client, server := net.Pipe()
				ended := make(chan struct{})
				l.conns <- &watched{Conn: server, ended: ended}
				begun := time.Now()
				if c.send != "" {
					_, err = io.WriteString(client, c.send)
					check(t, err)
				}
				if c.hears {
					go func() { _, _ = io.Copy(io.Discard, client) }() // a pipe has no buffer for a refusal
				}
				<-ended
				if d := time.Since(begun); d > c.after {
					t.Errorf("held for %v", d)
				}
				client.Close()
				cancel()
				close(l.conns)
				<-done
			})
		})
	}
}

// TestSlowUpstream: a fetch that takes minutes is waited for, though a client may not be slow.
func TestSlowUpstream(t *testing.T) {
	r := newRig(t, nil)
	synctest.Test(t, func(t *testing.T) {
		f := &flight{done: make(chan struct{}), doc: &document{body: []byte("late")}}
		r.m.docs.flight["crates teamlib"] = f
		time.AfterFunc(5*time.Minute, func() { close(f.done) })
		s, err := NewSession(SessionConfig{Task: "t", Base: "http://x", Allow: allNames, Now: r.clock.now, Ledger: func(Entry) error { return nil }})
		check(t, err)
		l := &bubble{make(chan net.Conn, 1)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.m.Serve(ctx, l, s) }()
		client, server := net.Pipe()
		l.conns <- server
		_, err = io.WriteString(client, "GET /crates/index/te/am/teamlib HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n")
		check(t, err)
		if b, err := io.ReadAll(client); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 200") || !strings.HasSuffix(string(b), "late") {
			t.Errorf("%q %v", b, err)
		}
		cancel()
		close(l.conns)
		<-done
	})
}

type watched struct {
	net.Conn
	once  sync.Once
	ended chan struct{}
}

func (w *watched) Close() error {
	w.once.Do(func() { close(w.ended) })
	return w.Conn.Close()
}

// TestNET14ManyFetches: one session has a bounded number of fetches under way, the others wait, and
// all are answered.
func TestNET14ManyFetches(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(func(c *SessionConfig) { c.Limits.NewNames = 100 })
	var mu sync.Mutex
	now, most := 0, 0
	open := make(chan struct{})
	full := sync.OnceFunc(func() { close(open) })
	r.up.mu.Lock()
	r.up.enter = func() {
		mu.Lock()
		now++
		if most = max(most, now); now == maxUnder {
			full()
		}
		mu.Unlock()
		<-open
		mu.Lock()
		now--
		mu.Unlock()
	}
	r.up.mu.Unlock()
	var all sync.WaitGroup
	for i := range 3 * maxUnder {
		all.Go(func() {
			if status, _, h := s.get(fmt.Sprintf("/npm/name-%d", i)); status != 404 {
				t.Errorf("%d %s", status, h.Get("X-Refused"))
			}
		})
	}
	all.Wait()
	if most > maxUnder {
		t.Errorf("%d fetches at once", most)
	}
}

// TestNET14Pipelining: a burst of requests on one connection ends at the rate limit, and the
// rest of the tasks do not notice.
func TestNET14Pipelining(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(func(c *SessionConfig) { c.Limits.PerSecond = 50 })
	got := s.raw(strings.Repeat("GET /crates/index/config.json HTTP/1.1\r\nHost: m\r\n\r\n", 3000) + "GET /x HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n")
	if ok, limited := strings.Count(got, " 200 OK"), strings.Count(got, "X-Refused: rate"); ok != 100 || limited < 400 {
		t.Errorf("%d served, %d refused", ok, limited)
	}
	if n := len(s.ledger()); n > 510 {
		t.Errorf("%d ledger entries from one burst", n)
	}
	r.session(nil).want("/npm/@team/lib", 200, "")
}

func TestHEAD(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(nil)
	for p, upstream := range files {
		res, err := s.http.Head("http://mirror" + p)
		check(t, err)
		b, err := io.ReadAll(res.Body)
		check(t, err)
		check(t, res.Body.Close())
		if res.StatusCode != 200 || len(b) != 0 || res.ContentLength != int64(len(r.up.files[upstream].body)) {
			t.Errorf("%s: %d, %d bytes, length %d", p, res.StatusCode, len(b), res.ContentLength)
		}
	}
}

// TestForward: through the relay, as a sandbox will, with several clients at once.
func TestForward(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(nil)
	base := relay(t, s)
	var wg sync.WaitGroup
	for p, upstream := range files {
		for range 3 {
			wg.Go(func() {
				res, err := http.Get(base + p)
				if err != nil {
					t.Error(err)
					return
				}
				defer res.Body.Close()
				if b, err := io.ReadAll(res.Body); err != nil || !bytes.Equal(b, r.up.files[upstream].body) {
					t.Errorf("%s: %d bytes, %v", p, len(b), err)
				}
			})
		}
	}
	wg.Wait()
}

// relay starts a forwarder on loopback before a session and returns its address.
func relay(t testing.TB, s *sess) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	return relayOn(t, l, s)
}

func relayOn(t testing.TB, l net.Listener, s *sess) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- forward.Relay(ctx, l, s.socket) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("relay: %v", err)
		}
	})
	return "http://" + l.Addr().String()
}

// BenchmarkCachedFile measures one verified file out of the store, over the socket.
func BenchmarkCachedFile(b *testing.B) { benchCached(b, "/npm/@team/lib/-/lib-1.0.0.tgz") }

// BenchmarkCachedIndex measures one index out of memory, over the socket.
func BenchmarkCachedIndex(b *testing.B) { benchCached(b, "/npm/@team/lib") }

func benchCached(b *testing.B, path string) {
	r := newRig(b, nil)
	s := r.session(func(c *SessionConfig) { c.Limits.PerSecond = 1e9 })
	s.want(path, 200, "")
	times := make([]time.Duration, 0, 1<<16)
	for b.Loop() {
		begun := time.Now()
		s.want(path, 200, "")
		times = append(times, time.Since(begun))
	}
	b.ReportMetric(float64(quantile(times, 0.5).Microseconds()), "µs-p50")
	b.ReportMetric(float64(quantile(times, 0.99).Microseconds()), "µs-p99")
}

package forward

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// start runs a relay before a socket served by serve, and returns the relay's address.
func start(t *testing.T, socket string, serve func(net.Conn)) string {
	t.Helper()
	if serve != nil {
		u, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { u.Close() })
		go func() {
			for {
				c, err := u.Accept()
				if err != nil {
					return
				}
				go serve(c)
			}
		}()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Relay(ctx, l, socket) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("relay: %v", err)
		}
	})
	return l.Addr().String()
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// TestHalfClose: the end of one direction is passed on, and the answer still arrives whole.
func TestHalfClose(t *testing.T) {
	addr := start(t, filepath.Join(t.TempDir(), "s"), func(c net.Conn) {
		defer c.Close()
		b, _ := io.ReadAll(c) // ends only if the client's end is passed on
		_, _ = io.WriteString(c, strings.ToUpper(string(b))+strings.Repeat("x", 1<<20))
	})
	c := dial(t, addr)
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(b), "HELLOx") || len(b) != 5+1<<20 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
}

// TestNoMirror: without a mirror a client sees its connection closed, at once.
func TestNoMirror(t *testing.T) {
	c := dial(t, start(t, filepath.Join(t.TempDir(), "none"), nil))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
}

// TestEndsWithItsContext: connections under way end when the relay does.
func TestEndsWithItsContext(t *testing.T) {
	held := make(chan struct{})
	socket := filepath.Join(t.TempDir(), "s")
	u, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	go func() {
		c, err := u.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		close(held)
		_, _ = io.Copy(io.Discard, c)
	}()
	ctx, cancel := context.WithCancel(t.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- Relay(ctx, l, socket) }()
	c := dial(t, l.Addr().String())
	<-held
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n, _ := c.Read(make([]byte, 1)); n != 0 {
		t.Fatal("a byte after the end")
	}
	if err := Forward(t.Context(), "256.0.0.1:0", socket); err == nil {
		t.Fatal("an address that does not exist was listened on")
	}
}

// TestCap: connections beyond the cap wait, and are served when a place is free.
func TestCap(t *testing.T) {
	began := make(chan net.Conn, MaxConns+1)
	addr := start(t, filepath.Join(t.TempDir(), "s"), func(c net.Conn) { began <- c })
	var clients []*net.TCPConn
	for range MaxConns {
		clients = append(clients, dial(t, addr))
	}
	var servers []net.Conn
	for range MaxConns {
		servers = append(servers, <-began)
	}
	extra := dial(t, addr)
	select {
	case <-began:
		t.Fatal("more connections are carried than the cap allows")
	default:
	}
	clients[0].Close()
	for _, s := range servers { // whichever it is, both its ends must go
		_ = s.Close()
	}
	s := <-began
	if _, err := io.WriteString(s, "hi"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2)
	if _, err := io.ReadFull(extra, b); err != nil || string(b) != "hi" {
		t.Fatalf("%q %v", b, err)
	}
	s.Close()
}

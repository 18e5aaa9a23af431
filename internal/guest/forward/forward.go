// Package forward owns the small relay inside a sandbox: it listens on the sandbox's own
// loopback and hands each connection to a Unix socket of the host, so that programs that know
// only TCP, package managers above all, reach what answers there.
//
// Invariants: it reads nothing of what it carries and decides nothing; whatever is refused is
// refused outside, behind the socket; it holds at most a fixed number of connections, and a closed
// direction is passed on so that no answer is cut.
package forward

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// MaxConns is how many connections are carried at once; more wait in the kernel's queue.
const MaxConns = 128

// Forward listens on a TCP address and relays until ctx ends. It returns nil after that.
func Forward(ctx context.Context, listen, socket string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	return Relay(ctx, l, socket)
}

// Relay does the same on a listener that is already open, and closes it at the end.
func Relay(ctx context.Context, l net.Listener, socket string) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	defer l.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, MaxConns)
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		in, err := l.Accept()
		if err != nil {
			<-places
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		wg.Go(func() {
			defer func() { <-places }()
			carry(ctx, in, socket)
		})
	}
}

// carry joins two connections until both directions have ended.
func carry(ctx context.Context, in net.Conn, socket string) {
	defer in.Close()
	d := net.Dialer{Timeout: 5 * time.Second}
	out, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return // the client sees its connection closed; nobody is there
	}
	defer out.Close()
	stop := context.AfterFunc(ctx, func() {
		_ = in.Close()
		_ = out.Close()
	})
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { half(out, in) })
	wg.Go(func() { half(in, out) })
	wg.Wait()
}

// half copies one direction and passes its end on. After an error the other direction has
// nobody left to talk to.
func half(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if cw, ok := to.(interface{ CloseWrite() error }); ok && err == nil && cw.CloseWrite() == nil {
		return
	}
	_ = to.Close()
	_ = from.Close()
}

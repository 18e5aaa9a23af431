package mirror

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Serve answers a session's clients on its own listener until ctx ends or the listener is
// closed, then waits up to two seconds for what is under way. One listener, one task: what one client
// does to its connections no other task feels. It returns nil after an orderly end.
func (m *Mirror) Serve(ctx context.Context, l net.Listener, s *Session) error {
	srv := &http.Server{
		Handler:           m.Handler(s),
		ReadHeaderTimeout: 5 * time.Second,
		// No ReadTimeout: there is no body to read, and a refused one gets a shorter deadline of its own.
		WriteTimeout:   fetchTimeout + time.Minute, // each piece of an answer has its own, shorter one
		IdleTimeout:    30 * time.Second,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(m.cfg.Log.Handler(), slog.LevelDebug),
		// "OPTIONS *" must reach our own refusal
		DisableGeneralOptionsHandler: true,
		Protocols:                    onlyHTTP1(),
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		s.Stop()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if srv.Shutdown(end) != nil {
			_ = srv.Close()
		}
	})
	err := srv.Serve(&capped{Listener: l, s: s, max: int64(s.cfg.Limits.Conns)})
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func onlyHTTP1() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	return p
}

// capped closes connections beyond the session's cap at once: a queue would be one more thing
// to fill.
type capped struct {
	net.Listener
	s      *Session
	max    int64
	open   atomic.Int64
	warned atomic.Bool
}

// Accept waits for a connection within the cap.
func (c *capped) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c.open.Add(1) <= c.max {
			return &cappedConn{Conn: conn, c: c}, nil
		}
		c.open.Add(-1)
		_ = conn.Close() // nothing was read from it
		if !c.warned.Swap(true) {
			c.s.refused(route{}, asRefusal(deny(http.StatusServiceUnavailable, ReasonConns, "more than %d connections at once", c.max)))
		}
	}
}

type cappedConn struct {
	net.Conn
	c      *capped
	closed atomic.Bool
}

// Close gives the place back once.
func (c *cappedConn) Close() error {
	if !c.closed.Swap(true) {
		c.c.open.Add(-1)
	}
	return c.Conn.Close()
}

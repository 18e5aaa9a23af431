package service

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/mirror"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Inside is the argument with which the process starts itself again once it is shut in.
const Inside = "inside"

const (
	channelFD   = 3
	memoryLimit = 2 << 30 // bytes the collector works towards
)

// Run is the process: without Inside as its argument it shuts itself in, with it it serves. It
// returns when the other end of the channel is gone.
func Run(ctx context.Context, args []string, stderr io.Writer) error {
	c, err := channelOn(channelFD)
	if err != nil {
		return &task.Error{Class: task.Invalid, Msg: "the mirror's process is started by daybreak itself", Err: err}
	}
	if len(args) == 0 {
		m, _, err := c.receive(maxOrder)
		if err != nil || m.Confine == nil {
			return errors.Join(errors.New("the mirror's process was not told its place"), err)
		}
		err = enter(*m.Confine, append(os.Args[:len(os.Args):len(os.Args)], Inside))
		return errors.Join(err, c.send(message{Ready: &ready{Error: err.Error()}}))
	}
	r, err := self()
	if err != nil {
		return errors.Join(err, c.send(message{Ready: &ready{Error: err.Error()}}))
	}
	debug.SetMemoryLimit(memoryLimit)
	s := &server{c: c, log: slog.New(slog.NewTextHandler(stderr, nil)), sessions: map[int64]*session{}}
	if err := s.configure(r); err != nil {
		return errors.Join(err, c.send(message{Ready: &ready{Error: err.Error()}}))
	}
	return s.serve(ctx)
}

// server is the process's side of the channel.
type server struct {
	c   *channel
	log *slog.Logger
	m   *mirror.Mirror

	mu       sync.Mutex
	sessions map[int64]*session
}

// session is one sandbox's.
type session struct {
	id     int64
	cancel context.CancelFunc

	mu      sync.Mutex
	n       int64
	waiting map[int64]chan answer
}

func (s *server) configure(r ready) error {
	m, _, err := s.c.receive(maxOrder)
	if err != nil {
		return err
	}
	if m.Configure == nil {
		return errors.New("the mirror's process was not configured first")
	}
	cfg, err := m.Configure.config(insideStore, time.Now, s.log)
	if err != nil {
		return err
	}
	if s.m, err = mirror.New(cfg); err != nil {
		return err
	}
	return s.c.send(message{Ready: &r})
}

// serve carries orders out until the channel ends.
func (s *server) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer s.m.Close()
	defer running.Wait()
	defer cancel()
	for {
		m, files, err := s.c.receive(maxOrder)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case m.Open != nil:
			ls, err := listeners(files)
			if err != nil {
				return err
			}
			running.Go(func() { s.open(ctx, *m.Open, ls) })
		case m.Close != nil:
			s.with(m.Close.Session, func(x *session) { x.cancel() })
		case m.Count != nil:
			n := s.m.Counts()
			s.tell(message{Counted: &n})
		case m.Answer != nil:
			s.with(m.Answer.Session, func(x *session) { x.answered(*m.Answer) })
		default:
			closeAll(files)
			return errors.New("an order that is none")
		}
	}
}

func (s *server) with(id int64, f func(*session)) {
	s.mu.Lock()
	x := s.sessions[id]
	s.mu.Unlock()
	if x != nil {
		f(x)
	}
}

func listeners(files []*os.File) (out []net.Listener, err error) {
	defer closeAll(files)
	for _, f := range files {
		l, err := net.FileListener(f)
		if err != nil {
			return out, err
		}
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false) // its name is the other side's
		}
		out = append(out, l)
	}
	if len(out) == 0 {
		return nil, errors.New("a session without a listener")
	}
	return out, nil
}

// open serves one session to its end.
func (s *server) open(ctx context.Context, o opening, ls []net.Listener) {
	defer func() {
		for _, l := range ls {
			_ = l.Close() // nothing was written
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x := &session{id: o.Session, cancel: cancel, waiting: map[int64]chan answer{}}
	about, front, err := s.begin(ctx, x, o.About, len(ls) > 1)
	reply := opened{Session: o.Session}
	if err != nil {
		reply.Error = err.Error()
		s.tell(message{Opened: &reply})
		return
	}
	if front != nil {
		reply.Authority = front.Authority()
	}
	s.mu.Lock()
	s.sessions[x.id] = x
	s.mu.Unlock()
	s.tell(message{Opened: &reply})
	var both sync.WaitGroup
	both.Go(func() { s.ended(s.m.Serve(ctx, ls[0], about)) })
	if front != nil {
		both.Go(func() { s.ended(front.Serve(ctx, ls[1])) })
	}
	both.Wait()
	s.mu.Lock()
	delete(s.sessions, x.id)
	s.mu.Unlock()
	s.tell(message{Closed: &sessionName{x.id}})
}

func (s *server) begin(ctx context.Context, x *session, d Description, wantFront bool) (*mirror.Session, *mirror.Front, error) {
	about, err := mirror.NewSession(mirror.SessionConfig{
		Task: task.ID(d.Task), Base: d.Base, Known: d.Known, KnownVersions: d.KnownVersions, GoSum: d.GoSum, Allow: d.Allow,
		MinAge: d.MinAge, Offline: d.Offline, Limits: d.Limits, SpentNames: d.SpentNames, SpentVersions: d.SpentVersions,
		Ledger: func(e mirror.Entry) error { return s.ledger(ctx, x, e) }, Now: time.Now,
	})
	if err != nil || !wantFront {
		return about, nil, err
	}
	front, err := s.m.NewFront(about)
	return about, front, err
}

// ended says why a listener stopped, if that was not asked for.
func (s *server) ended(err error) {
	if err != nil {
		s.log.Warn("a session's listener ended", "error", err)
	}
}

// tell writes to the other side. When that is gone the loop that reads from it ends everything.
func (s *server) tell(m message) {
	if err := s.c.send(m); err != nil {
		s.log.Debug("the channel is closed", "error", err)
	}
}

// ledger hands a line on; for a new name it waits until that is stored.
func (s *server) ledger(ctx context.Context, x *session, e mirror.Entry) error {
	x.mu.Lock()
	x.n++
	a := asked{Session: x.id, N: x.n, Waits: e.New, Entry: e}
	var in chan answer
	if a.Waits {
		in = make(chan answer, 1)
		x.waiting[a.N] = in
	}
	x.mu.Unlock()
	if err := s.c.send(message{Asked: &a}); err != nil || !a.Waits {
		return err
	}
	select {
	case got := <-in:
		switch {
		case got.OK:
			return nil
		case got.Reason != "":
			return &mirror.Denial{Reason: got.Reason, Detail: got.Detail}
		}
		return errors.New("it was not stored")
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (x *session) answered(a answer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if in := x.waiting[a.N]; in != nil {
		delete(x.waiting, a.N)
		in <- a
	}
}

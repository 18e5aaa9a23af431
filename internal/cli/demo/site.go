package demo

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/run"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// site is the demo's pages on the loopback.
type site struct {
	app    *app.App
	base   string
	failed chan error
	stop   context.CancelFunc
	ended  chan struct{}
}

// openSite serves the pages of an installation, at the configured address if it is free.
func openSite(ctx context.Context, a *app.App) (*site, error) {
	l, err := net.Listen("tcp", a.Config.Serve.Listen)
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, &task.Error{Class: task.Unavailable, Msg: "cannot listen on the loopback", Err: err, Fix: "run the demo without --serve"}
	}
	web, stop := context.WithCancel(context.WithoutCancel(ctx))
	hub := a.Hub()
	s, err := a.Server(web, func(context.Context) error { return nil }, hub, nil, false)
	if err != nil {
		stop()
		hub.Close()
		_ = l.Close() // nobody has it yet
		return nil, err
	}
	out := &site{app: a, base: app.BaseURL(a.Config.Serve, l.Addr().String()), failed: make(chan error, 1), stop: stop, ended: make(chan struct{})}
	context.AfterFunc(web, hub.Close) // live streams would hold the server's end up
	go func() {
		defer close(out.ended)
		out.failed <- s.Serve(web, l)
		hub.Close()
	}()
	return out, nil
}

// link signs its first visitor in and leads to a page.
func (s *site) link(ctx context.Context, page string) (string, error) {
	link, err := s.app.SignInLink(ctx, s.base)
	return link + "&next=" + url.QueryEscape(page), err
}

// rest prints the way to the task's page and serves until ctx ends.
func (s *site) rest(ctx context.Context, w io.Writer) error {
	res, err := run.Newest(ctx, s.app)
	if err != nil {
		return err
	}
	link, err := s.link(ctx, "/tasks/"+string(res.Task))
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\nthe task's page (the link signs you in once; ctrl-C ends)\n  %s\n", link)
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.failed:
		return err
	}
}

func (s *site) close() {
	s.stop()
	<-s.ended
}

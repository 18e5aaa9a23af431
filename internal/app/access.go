package app

import (
	"context"
	"encoding/base64"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/api"
	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/intake"
	"github.com/daybreak-agent/daybreak/internal/live"
	"github.com/daybreak-agent/daybreak/internal/server"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/web"
)

// Access is the part of the store that knows who may ask.
func (a *App) Access() (store.Access, error) {
	acc, ok := a.Store.(store.Access)
	if !ok {
		return nil, &task.Error{Class: task.Internal, Msg: "the store does not know who may ask"}
	}
	return acc, nil
}

// Guard stands before every route of the service. pages shows those of signing in and of refusals;
// nil is for plain ones.
func (a *App) Guard(pages *web.Site) (*access.Guard, error) {
	acc, err := a.Access()
	if err != nil {
		return nil, err
	}
	token, err := a.Token()
	if err != nil {
		return nil, err
	}
	c := a.Config.Serve
	cfg := access.GuardConfig{
		Operator: token, URL: c.URL, Hosts: c.Hosts, Session: c.Session, Access: acc, Now: a.Now, Rand: a.opts.Rand, Logger: a.opts.Logger,
	}
	if pages != nil {
		cfg.SignIn, cfg.Refused = pages.SignIn, pages.Refused
	}
	if o := c.OIDC; o != nil {
		secret, err := o.Secret(a.opts.Getenv)
		if err != nil {
			return nil, err
		}
		cfg.OIDC = &access.OIDC{
			Name: orDefault(o.Name, "your company's account"), Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: secret, Scopes: o.Scopes,
			Login: orDefault(o.Login, "preferred_username"), Logins: o.Logins, GroupClaim: o.GroupClaim, Operators: o.Operators, Domains: o.Domains,
		}
	}
	return access.NewGuard(cfg)
}

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// Gate asks the forges what people may see and do.
func (a *App) Gate() *access.Gate {
	return access.NewGate(access.GateConfig{
		Host: func(repo string) (forge.Host, bool) {
			f, err := a.Forges()
			if err != nil {
				return nil, false // refused, as what is not known
			}
			return f.Host(repo)
		},
		Task: a.Store.Task, Now: a.Now,
	})
}

// Hub brings the records to those who watch. It must be closed.
func (a *App) Hub() *live.Hub {
	s := a.Config.Serve.Streams
	return live.New(live.Config{Source: a.Store, Total: s.Total, Viewer: s.Viewer, Now: a.Now, Logger: a.opts.Logger})
}

// queuePolicy lets the queue's own pages set styles from their scripts, as their library does.
const queuePolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Server is the service's HTTP side with all its routes. What it does in the background ends with
// ctx; hub is closed by the caller once it stops. mail may be nil;
// storybook adds pages of hard states, for development.
func (a *App) Server(ctx context.Context, ready func(context.Context) error, hub *live.Hub, mail *intake.Intake, storybook bool) (*server.Server, error) {
	gate := a.Gate()
	board := a.board(gate, hub)
	site, err := web.New(web.Config{
		Source: a.Store, Desk: a.desk(), Gate: gate, Board: board, Hub: hub, Now: a.Now, Logger: a.opts.Logger,
		Key: base64.StdEncoding.EncodeToString(a.PublicKey()), SignOut: true, Storybook: storybook,
	})
	if err != nil {
		return nil, err
	}
	guard, err := a.Guard(site)
	if err != nil {
		return nil, err
	}
	watch, err := a.Watch()
	if err != nil {
		return nil, err
	}
	s := server.New(server.Config{Guard: guard, Ready: ready, Around: watch.HTTP, Logger: a.opts.Logger})
	if a.queue != nil {
		metrics, err := a.MetricsHandler()
		if err != nil {
			return nil, err
		}
		s.Mount(access.Route{Pattern: "GET /metrics", Policy: access.Proven, Handler: metrics})
	}
	s.Mount(site.Routes()...)
	s.Mount(api.New(api.Config{
		Records: a.Store, Desk: a.Desk(), Gate: gate, Board: board, Hub: hub, Key: base64.StdEncoding.EncodeToString(a.PublicKey()), Now: a.Now, Logger: a.opts.Logger,
	}).Routes()...)
	if a.queue != nil {
		pages, err := a.QueuePages(ctx, "/queue")
		if err != nil {
			return nil, err
		}
		s.Mount(access.Route{Pattern: "/queue/", Policy: access.Operators, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet && r.Method != http.MethodHead {
				w.Header().Set("Allow", "GET, HEAD")
				site.Refused(w, r, http.StatusMethodNotAllowed, "the queue's pages only show; daybreak task stop ends a task")
				return
			}
			w.Header().Set("Content-Security-Policy", queuePolicy)
			pages.ServeHTTP(w, r)
		})})
	}
	for path, h := range a.Hooks(mail) {
		s.Mount(access.Route{Pattern: path, Policy: access.Proven, Handler: h})
	}
	return s, nil
}

// BaseURL is where people reach a server that listens at an address.
func BaseURL(c config.Serve, listen string) string {
	if c.URL != "" {
		return strings.TrimSuffix(c.URL, "/")
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "http://" + listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// addressFile has the address of the service that was started last on this data directory.
const addressFile = "serve.address"

// KeepAddress notes where the service is reached, for commands on this machine.
func (a *App) KeepAddress(base string) error {
	return os.WriteFile(filepath.Join(a.Dir, addressFile), []byte(base+"\n"), 0o600)
}

// Address is where the service is reached, as far as this machine knows.
func (a *App) Address() string {
	if b, err := os.ReadFile(filepath.Join(a.Dir, addressFile)); err == nil && a.Config.Serve.URL == "" {
		return strings.TrimSpace(string(b))
	}
	return BaseURL(a.Config.Serve, a.Config.Serve.Listen)
}

// SignInLink makes a link that signs in whoever opens it first as an operator. It is for the one
// who may read the data directory.
func (a *App) SignInLink(ctx context.Context, base string) (string, error) {
	acc, err := a.Access()
	if err != nil {
		return "", err
	}
	name := "operator"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return access.NewLink(ctx, acc, a.opts.Rand, a.Now(), base, name)
}

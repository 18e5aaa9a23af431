package access

import (
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// GuardConfig is what a guard needs. All fields without "may be" are required.
type GuardConfig struct {
	Operator string        // the operator's token; may be "": there is none
	URL      string        // what people open, such as https://daybreak.example; may be ""
	Hosts    []string      // more names of this server; may be nil
	Session  time.Duration // how long a session is good
	OIDC     *OIDC         // may be nil: people sign in by link
	Access   store.Access
	// SignIn shows the page of signing in; may be nil for a plain one.
	SignIn func(w http.ResponseWriter, r *http.Request, s SignIn)
	// Refused shows the page of a refusal where people look; may be nil for a problem everywhere.
	Refused func(w http.ResponseWriter, r *http.Request, code int, say string)
	Now     func() time.Time
	Rand    io.Reader // may be nil
	Logger  *slog.Logger
}

// Guard stands before every route.
type Guard struct {
	cfg      GuardConfig
	secure   bool
	hosts    []string
	operator *[sha256.Size]byte
	cross    *http.CrossOriginProtection
	oidc     *provider
}

// NewGuard returns a guard. Class Invalid when the configuration makes no sense.
func NewGuard(cfg GuardConfig) (*Guard, error) {
	g := &Guard{cfg: cfg, cross: http.NewCrossOriginProtection()}
	if cfg.Operator != "" {
		h := sha256.Sum256([]byte(cfg.Operator))
		g.operator = &h
	}
	for _, h := range cfg.Hosts {
		g.hosts = append(g.hosts, strings.ToLower(h))
	}
	if cfg.URL != "" {
		u, err := url.Parse(cfg.URL)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			return nil, &task.Error{Class: task.Invalid, Msg: "serve.url is " + cfg.URL, Fix: "write what people open, such as https://daybreak.example, without a path"}
		}
		g.secure = u.Scheme == "https"
		g.hosts = append(g.hosts, strings.ToLower(u.Hostname()))
		// A proxy may speak to us under another name than the browser's.
		if err := g.cross.AddTrustedOrigin(u.Scheme + "://" + u.Host); err != nil {
			return nil, &task.Error{Class: task.Invalid, Msg: "serve.url", Err: err}
		}
	}
	if cfg.OIDC != nil {
		p, err := newProvider(*cfg.OIDC, cfg.URL)
		if err != nil {
			return nil, err
		}
		g.oidc = p
	}
	return g, nil
}

// Wrap puts a policy before a handler. The handler finds the viewer with [From].
func (g *Guard) Wrap(p Policy, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header(), g.secure)
		if p == Proven {
			h.ServeHTTP(w, r)
			return
		}
		if !g.ours(r.Host) {
			g.refuse(w, r, p, http.StatusMisdirectedRequest, "this server has no such name; the operator may add it to serve.hosts")
			return
		}
		if why := g.foreign(p, r); why != "" {
			g.refuse(w, r, p, http.StatusForbidden, why)
			return
		}
		if p == Open {
			h.ServeHTTP(w, r)
			return
		}
		v, byCookie, err := g.who(r)
		switch {
		case err != nil && task.ClassOf(err) != task.NotFound:
			g.cfg.Logger.ErrorContext(r.Context(), "nobody can be recognised now", "error", err)
			w.Header().Set("Retry-After", "10")
			g.refuse(w, r, p, http.StatusServiceUnavailable, "it cannot be found out who you are now; try again")
			return
		case err != nil:
			g.unknown(w, r, p)
			return
		}
		r = r.WithContext(With(r.Context(), v))
		switch {
		case byCookie && !safe(r.Method) && r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "":
			g.refuse(w, r, p, http.StatusForbidden, "a request with a session must say where it comes from: Origin is missing")
		case p == Operators && !v.Operates():
			g.refuse(w, r, p, http.StatusNotFound, "no such page")
		case p == API && !isJSON(r):
			Refuse(w, http.StatusUnsupportedMediaType, "the body must be application/json")
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// Lost answers what no route is for: code is 404 or 405. A viewer who can be recognised is, so that
// the page is theirs.
func (g *Guard) Lost(w http.ResponseWriter, r *http.Request, code int) {
	g.Wrap(Open, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		say := "no such page"
		if code == http.StatusMethodNotAllowed {
			say = "this address does not take " + r.Method
		}
		if v, _, err := g.who(r); err == nil {
			r = r.WithContext(With(r.Context(), v))
		}
		g.refuse(w, r, Open, code, say)
	})).ServeHTTP(w, r)
}

// Harden sets the headers of every answer before anything else does.
func (g *Guard) Harden(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header(), g.secure)
		h.ServeHTTP(w, r)
	})
}

// refuse answers with a page where people look, with a problem for programs.
func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, p Policy, code int, say string) {
	if g.cfg.Refused == nil || p == API || r.Header.Get("Authorization") != "" {
		Refuse(w, code, say)
		return
	}
	g.cfg.Refused(w, r, code, say)
}

// unknown answers somebody who did not show who they are.
func (g *Guard) unknown(w http.ResponseWriter, r *http.Request, p Policy) {
	if p == API || r.Header.Get("Authorization") != "" || !safe(r.Method) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="daybreak"`)
		g.refuse(w, r, p, http.StatusUnauthorized, "a valid token or session is needed: Authorization: Bearer …")
		return
	}
	http.Redirect(w, r, PathSignIn+"?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
}

// ours reports whether a Host names this server. A page of another name whose address was pointed
// here (DNS rebinding) must name itself; an address in numbers cannot be pointed anywhere.
func (g *Guard) ours(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	return name == "localhost" || slices.Contains(g.hosts, name)
}

// foreign says why a request that another site made a browser send is refused, "" for one that is
// not such a request. https://www.w3.org/TR/fetch-metadata/
func (g *Guard) foreign(p Policy, r *http.Request) string {
	if err := g.cross.Check(r); err != nil {
		return "another site asked for this: " + err.Error()
	}
	if p == Open || !safe(r.Method) {
		return ""
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "same-origin", "none":
		return ""
	case "":
		if o := r.Header.Get("Origin"); o != "" && !g.sameOrigin(o, r.Host) {
			return "another site asked for this"
		}
		return ""
	}
	if p != API && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
		return "" // a link was followed
	}
	return "another site asked for this"
}

func (g *Guard) sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	return strings.EqualFold(u.Host, host) || g.cfg.URL != "" && strings.EqualFold(strings.TrimSuffix(g.cfg.URL, "/"), origin)
}

// who finds the viewer: by token when one is shown, else by session.
func (g *Guard) who(r *http.Request) (v Viewer, byCookie bool, err error) {
	if a := r.Header.Get("Authorization"); a != "" {
		given, ok := strings.CutPrefix(a, "Bearer ")
		if !ok {
			return Viewer{}, false, errNobody()
		}
		v, err = g.token(r.Context(), given)
		return v, false, err
	}
	secret := g.cookieValue(r, sessionCookie)
	if secret == "" {
		return Viewer{}, false, errNobody()
	}
	v, err = g.session(r.Context(), secret)
	return v, true, err
}

func errNobody() error { return &task.Error{Class: task.NotFound, Msg: "nobody"} }

func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// isJSON reports whether a request has no body or says that it is JSON. A form or plain text, which
// any page may send anywhere, is neither.
func isJSON(r *http.Request) bool {
	kind := r.Header.Get("Content-Type")
	if safe(r.Method) || kind == "" && r.ContentLength == 0 {
		return true
	}
	t, _, err := mime.ParseMediaType(kind)
	return err == nil && t == "application/json"
}

// Still is nil while the viewer's session or token is good.
func (v Viewer) Still(ctx context.Context) error {
	if v.still == nil {
		return nil
	}
	err := v.still(ctx)
	if err != nil && task.ClassOf(err) == task.NotFound {
		return Gone()
	}
	return err
}

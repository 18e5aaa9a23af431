package access

import (
	"bytes"
	"encoding/json"
	"html/template"
	"net/http"
	"net/url"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// SignIn is what the page of signing in shows.
type SignIn struct {
	Message  string // what went wrong, one sentence; may be ""
	Provider string // name of the identity provider, "" for none
	Begin    string // where a sign-in with it begins
	Next     string // where the viewer wanted to go
}

// Routes are the guard's own.
func (g *Guard) Routes() []Route {
	rs := []Route{
		{"GET " + PathSignIn, Open, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.say(w, r, http.StatusOK, "") })},
		{"GET " + pathLink, Open, http.HandlerFunc(g.link)},
		{"POST " + PathOut, Open, http.HandlerFunc(g.out)},
	}
	if g.oidc != nil {
		rs = append(rs, Route{"GET " + pathOIDC, Open, http.HandlerFunc(g.begin)}, Route{"GET " + pathCallback, Open, http.HandlerFunc(g.finish)})
	}
	return rs
}

// link exchanges a one-time link for a session.
func (g *Guard) link(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.Header.Get("Sec-Purpose"), "prefetch") || r.Header.Get("Purpose") == "prefetch" || r.Method == http.MethodHead {
		g.refuse(w, r, Open, http.StatusForbidden, "a sign-in link is opened by a person") // and is not used up by a browser that looks ahead
		return
	}
	grant, err := g.cfg.Access.TakeGrant(r.Context(), kindLink, hashOf(r.URL.Query().Get("token")), g.cfg.Now())
	if err != nil && task.ClassOf(err) != task.NotFound {
		g.broken(w, r, err)
		return
	}
	if err != nil {
		g.cfg.Logger.WarnContext(r.Context(), "a sign-in link was not good", "remote", r.RemoteAddr)
		g.say(w, r, http.StatusForbidden, "This link was used before or is too old. Get a new one with: daybreak login-link")
		return
	}
	var v Viewer
	if err := json.Unmarshal(grant.Body, &v); err != nil {
		g.broken(w, r, err)
		return
	}
	if err := g.start(w, r, v); err != nil {
		g.broken(w, r, err)
		return
	}
	http.Redirect(w, r, local(r.URL.Query().Get("next")), http.StatusSeeOther)
}

// out ends the session. Without one there is nothing to do.
func (g *Guard) out(w http.ResponseWriter, r *http.Request) {
	if secret := g.cookieValue(r, sessionCookie); secret != "" {
		if _, err := g.cfg.Access.TakeGrant(r.Context(), kindSession, hashOf(secret), g.cfg.Now()); err != nil && task.ClassOf(err) != task.NotFound {
			g.broken(w, r, err)
			return
		}
	}
	http.SetCookie(w, g.cookie(sessionCookie, "", 0))
	http.Redirect(w, r, PathSignIn, http.StatusSeeOther)
}

// local is where a viewer may be sent after signing in: a path of this server and nothing else.
func local(next string) string {
	u, err := url.Parse(next)
	if err != nil || len(next) > 2000 || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" ||
		!strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\t\r\n") ||
		strings.HasPrefix(u.Path, "//") || strings.HasPrefix(u.Path, `/\`) || strings.HasPrefix(u.Path, PathSignIn) || u.Path == PathOut {
		return "/"
	}
	return u.RequestURI()
}

// broken answers what is no fault of the viewer's.
func (g *Guard) broken(w http.ResponseWriter, r *http.Request, err error) {
	g.cfg.Logger.ErrorContext(r.Context(), "a sign-in failed", "path", r.URL.Path, "error", err)
	g.say(w, r, http.StatusServiceUnavailable, "Signing in is not possible now. Try again in a while.")
}

// say shows the page of signing in with a message.
func (g *Guard) say(w http.ResponseWriter, r *http.Request, code int, message string) {
	s := SignIn{Message: message, Next: local(r.URL.Query().Get("next"))}
	if g.oidc != nil {
		s.Provider, s.Begin = g.oidc.cfg.Name, pathOIDC+"?next="+url.QueryEscape(s.Next)
	}
	if g.cfg.SignIn != nil {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(code)
		g.cfg.SignIn(w, r, s)
		return
	}
	var b bytes.Buffer
	if err := plain().Execute(&b, s); err != nil {
		Refuse(w, http.StatusInternalServerError, "the page cannot be shown")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes()) // a viewer that left cannot be told
}

func plain() *template.Template {
	return template.Must(template.New("sign-in").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Sign in · Daybreak</title></head>
<body><main><h1>Sign in</h1>
{{with .Message}}<p role="alert">{{.}}</p>
{{end}}{{if .Provider}}<p><a href="{{.Begin}}">Sign in with {{.Provider}}</a></p>
{{end}}<p>On the machine that runs Daybreak, <code>daybreak login-link</code> prints a link that signs you in as its operator.</p>
</main></body></html>
`))
}

package web

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/web/render"
)

// head is what the frame of a page needs.
type head struct {
	Title   string
	Nav     string // which place is current
	Theme   string // "", "light", "dark"
	Path    string
	Viewer  string
	SignOut bool
	CSS, JS string
	Book    bool
	Live    string // address of the page's stream, "" for none
	Now     time.Time
}

const themeCookie = "daybreak_theme"

func (s *Site) head(r *http.Request, title, nav string) head {
	h := head{
		Title: title, Nav: nav, Path: r.URL.RequestURI(), Viewer: viewer(r).Name, SignOut: s.cfg.SignOut && viewer(r).Name != "",
		CSS: s.assets.path("app.css"), JS: s.assets.path("app.js"), Book: s.cfg.Storybook, Now: s.cfg.Now(),
	}
	if c, err := r.Cookie(themeCookie); err == nil && (c.Value == "dark" || c.Value == "light") {
		h.Theme = c.Value
	}
	return h
}

// setTheme keeps the choice of light or dark in a cookie, so that the first byte of a page has it.
func (s *Site) setTheme(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, 8<<10)
	c := &http.Cookie{Name: themeCookie, Path: "/", SameSite: http.SameSiteLaxMode, MaxAge: 365 * 24 * 3600, Value: r.PostFormValue("theme")}
	if c.Value != "dark" && c.Value != "light" {
		c.Value, c.MaxAge = "", -1
	}
	http.SetCookie(w, c)
	http.Redirect(w, r, local(r.PostFormValue("next")), http.StatusSeeOther)
	return nil
}

// local is a path of this server, "/" for everything else.
func local(next string) string {
	if !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t") {
		return "/"
	}
	return next
}

// write renders a whole page before its first byte leaves, so that an error is still a page.
func (s *Site) write(w http.ResponseWriter, r *http.Request, code int, page templ.Component) {
	var b bytes.Buffer
	if err := page.Render(r.Context(), &b); err != nil {
		s.cfg.Logger.ErrorContext(r.Context(), "page failed", "path", r.URL.Path, "error", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	s.send(w, r, code, "text/html; charset=utf-8", b.Bytes())
}

// send answers with content that it packs when the browser can unpack it.
func (s *Site) send(w http.ResponseWriter, r *http.Request, code int, kind string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Add("Vary", "Accept-Encoding")
	if len(body) < 1400 || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.WriteHeader(code)
		_, _ = w.Write(body) // a viewer that left cannot be told
		return
	}
	h.Set("Content-Encoding", "gzip")
	w.WriteHeader(code)
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
	_, _ = z.Write(body)
	_ = z.Close()
}

// txt is one line of untrusted text.
func txt(s string) templ.Component { return raw(render.Inline(s)) }

// lines is untrusted text of several lines.
func lines(s string) templ.Component { return raw(render.Lines(s)) }

func raw(h render.HTML) templ.Component { return templ.Raw(string(h)) }

// leave names where a link of an untrusted text goes.
func (s *Site) leave(w http.ResponseWriter, r *http.Request) error {
	to := r.URL.Query().Get("to")
	if render.Link(to) == "" {
		return access.Gone()
	}
	s.write(w, r, http.StatusOK, leavePage(s.head(r, "Leaving", ""), to))
	return nil
}

// SignIn shows the page of signing in; the guard has written the head of the answer.
func (s *Site) SignIn(w http.ResponseWriter, r *http.Request, in access.SignIn) {
	h := s.head(r, "Sign in", "")
	h.SignOut = false
	if err := signInPage(h, in).Render(r.Context(), w); err != nil {
		s.cfg.Logger.ErrorContext(r.Context(), "page failed", "path", r.URL.Path, "error", err)
	}
}

package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// What grants are for.
const (
	kindSession = "session"
	kindLink    = "link"
	kindOIDC    = "oidc"
)

// LinkFor is how long a sign-in link is good.
const LinkFor = 15 * time.Minute

// newSecret returns 256 random bits as text and their hash, which is all that is kept.
func newSecret(r io.Reader) (secret string, hash []byte, err error) {
	if r == nil {
		r = rand.Reader
	}
	b := make([]byte, 32)
	if _, err := io.ReadFull(r, b); err != nil {
		return "", nil, err
	}
	secret = base64.RawURLEncoding.EncodeToString(b)
	return secret, hashOf(secret), nil
}

func hashOf(secret string) []byte {
	h := sha256.Sum256([]byte(secret))
	return h[:]
}

// NewLink makes a one-time link with which the machine's owner signs in as an operator. base is
// the server's address without a slash at the end.
func NewLink(ctx context.Context, a store.Access, r io.Reader, now time.Time, base, name string) (string, error) {
	secret, hash, err := newSecret(r)
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(Viewer{Name: name, Via: ViaLink, All: true, Scopes: []Scope{Admin}})
	if err != nil {
		return "", err
	}
	err = a.PutGrant(ctx, store.Grant{Hash: hash, Kind: kindLink, Body: body, Created: now, Expires: now.Add(LinkFor)})
	return base + pathLink + "?token=" + secret, err
}

// cookie is a cookie of ours with nothing left out: with TLS it has the prefix that binds it to
// this very host.
func (g *Guard) cookie(name, value string, age time.Duration) *http.Cookie {
	c := &http.Cookie{Name: g.cookieName(name), Value: value, Path: "/", HttpOnly: true, Secure: g.secure, SameSite: http.SameSiteLaxMode, MaxAge: int(age.Seconds())}
	if age <= 0 {
		c.MaxAge = -1
	}
	return c
}

func (g *Guard) cookieName(name string) string {
	if g.secure {
		return "__Host-" + name
	}
	return name
}

const (
	sessionCookie = "daybreak"
	flowCookie    = "daybreak-sign-in"
)

func (g *Guard) cookieValue(r *http.Request, name string) string {
	c, err := r.Cookie(g.cookieName(name))
	if err != nil || len(c.Value) > 100 {
		return ""
	}
	return c.Value
}

// start begins a session under a new secret; one that the browser had is over.
func (g *Guard) start(w http.ResponseWriter, r *http.Request, v Viewer) error {
	now := g.cfg.Now()
	v.Expires = now.Add(g.cfg.Session)
	secret, hash, err := newSecret(g.cfg.Rand)
	if err != nil {
		return err
	}
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if old := g.cookieValue(r, sessionCookie); old != "" {
		if _, err := g.cfg.Access.TakeGrant(r.Context(), kindSession, hashOf(old), now); err != nil && task.ClassOf(err) != task.NotFound {
			return err
		}
	}
	if err := g.cfg.Access.PutGrant(r.Context(), store.Grant{Hash: hash, Kind: kindSession, Body: body, Created: now, Expires: v.Expires}); err != nil {
		return err
	}
	http.SetCookie(w, g.cookie(sessionCookie, secret, g.cfg.Session))
	g.cfg.Logger.InfoContext(r.Context(), "signed in", "viewer", v.Name, "via", v.Via, "operates", v.Operates(), "remote", r.RemoteAddr)
	g.sweep(r.Context(), now)
	return nil
}

// sweep removes expired sessions and sign-ins.
func (g *Guard) sweep(ctx context.Context, now time.Time) {
	if _, err := g.cfg.Access.DropGrants(ctx, now); err != nil {
		g.cfg.Logger.WarnContext(ctx, "expired sessions and sign-ins were not removed", "error", err)
	}
}

// session finds the viewer of a session; class NotFound for none.
func (g *Guard) session(ctx context.Context, secret string) (Viewer, error) {
	grant, err := g.cfg.Access.Grant(ctx, kindSession, hashOf(secret), g.cfg.Now())
	if err != nil {
		return Viewer{}, err
	}
	var v Viewer
	if err := json.Unmarshal(grant.Body, &v); err != nil {
		return Viewer{}, err
	}
	v.still = func(ctx context.Context) error {
		_, err := g.cfg.Access.Grant(ctx, kindSession, hashOf(secret), g.cfg.Now())
		return err
	}
	return v, nil
}

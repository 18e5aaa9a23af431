package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// tokenPrefix begins every token, so that secret scanners and people know one.
const tokenPrefix = "dbk_"

// usedEvery is how exactly the last use of a token is known.
const usedEvery = 10 * time.Minute

// NewToken is a token to be made.
type NewToken struct {
	Name    string
	Scopes  []Scope
	Repos   []string  // globs; empty: any
	Expires time.Time // zero: never
	By      string    // who makes it
}

// CreateToken keeps a token and returns its id with what is shown once and never again. Class
// Invalid for what makes no sense, Conflict when the name is taken.
func CreateToken(ctx context.Context, a store.Access, r io.Reader, now time.Time, n NewToken) (id, secret string, err error) {
	invalid := func(msg, fix string) (string, string, error) {
		return "", "", &task.Error{Class: task.Invalid, Msg: msg, Fix: fix}
	}
	switch {
	case n.Name == "" || len(n.Name) > 100 || strings.ContainsFunc(n.Name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return invalid("a token needs a name of at most 100 characters", "use --name")
	case len(n.Scopes) == 0:
		return invalid("a token needs scopes", "use --scopes, such as read,create")
	case !n.Expires.IsZero() && !n.Expires.After(now):
		return invalid("the token would have expired already", "use a later time")
	}
	scopes := make([]string, len(n.Scopes))
	for i, s := range n.Scopes {
		if !slices.Contains(Scopes(), s) {
			return invalid("there is no scope "+string(s), "use some of read, create, steer, budget, approve, admin")
		}
		scopes[i] = string(s)
	}
	for _, g := range n.Repos {
		if _, err := path.Match(g, ""); err != nil {
			return invalid(g+" is not a glob", "")
		}
	}
	secret, hash, err := newSecret(r)
	if err != nil {
		return "", "", err
	}
	id = strings.ToLower(ulid.MustNew(ulid.Timestamp(now), readerOr(r)).String())
	err = a.AddToken(ctx, store.Token{ID: id, Name: n.Name, Hash: hash, Scopes: scopes, Repos: n.Repos, By: n.By, Created: now, Expires: n.Expires})
	return id, tokenPrefix + id + "_" + secret, err
}

func readerOr(r io.Reader) io.Reader {
	if r == nil {
		return ulid.DefaultEntropy()
	}
	return r
}

// token finds the viewer of a bearer token; class NotFound for one that is worth nothing.
func (g *Guard) token(ctx context.Context, given string) (Viewer, error) {
	if g.operator != nil {
		got := sha256.Sum256([]byte(given))
		if subtle.ConstantTimeCompare(got[:], g.operator[:]) == 1 {
			return Viewer{Name: "operator", Via: ViaOperator, All: true, Scopes: []Scope{Admin}}, nil
		}
	}
	none := &task.Error{Class: task.NotFound, Msg: "no such token"}
	rest, ok := strings.CutPrefix(given, tokenPrefix)
	id, secret, ok2 := strings.Cut(rest, "_")
	if !ok || !ok2 || len(given) > 200 || len(id) != ulid.EncodedSize || strings.ContainsFunc(id, notIDRune) {
		return Viewer{}, none
	}
	t, err := g.cfg.Access.Token(ctx, id)
	if err != nil {
		return Viewer{}, err
	}
	now := g.cfg.Now()
	if subtle.ConstantTimeCompare(hashOf(secret), t.Hash) != 1 || !good(t, now) {
		return Viewer{}, none
	}
	if now.Sub(t.Used) > usedEvery {
		if err := g.cfg.Access.TokenUsed(ctx, id, now); err != nil {
			g.cfg.Logger.WarnContext(ctx, "the use of a token was not noted", "token", t.Name, "error", err)
		}
	}
	v := Viewer{Name: t.Name, Via: ViaToken, All: true, Repos: t.Repos, Expires: t.Expires}
	for _, s := range t.Scopes {
		v.Scopes = append(v.Scopes, Scope(s))
	}
	v.still = func(ctx context.Context) error {
		if t, err := g.cfg.Access.Token(ctx, id); err != nil {
			return err
		} else if !good(t, g.cfg.Now()) {
			return none
		}
		return nil
	}
	return v, nil
}

func good(t store.Token, now time.Time) bool {
	return t.Revoked.IsZero() && (t.Expires.IsZero() || now.Before(t.Expires))
}

func notIDRune(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'z') }

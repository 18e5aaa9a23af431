// Package access says who is asking over HTTP and what they may see and do.
//
// Invariants: what a person may do with a task is what the forge says, at most [Fresh] ago, that
// they may do with its repository; whoever may not read a task learns nothing of it, not that it
// exists; a token can do what its scopes name and no more; no secret that somebody shows is kept,
// only its hash, and it is compared in constant time; a session begins with a new secret.
package access

import (
	"context"
	"path"
	"slices"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Scope is one thing that may be done with a task.
type Scope string

// The scopes. On a forge, Read needs the permission to read the repository and the others, but
// Admin, that to write to it. Admin is for operators: it looks after the installation.
const (
	Read    Scope = "read"
	Create  Scope = "create"
	Steer   Scope = "steer" // and stop, and retry
	Budget  Scope = "budget"
	Approve Scope = "approve"
	Admin   Scope = "admin"
)

// Scopes are all of them, the least first.
func Scopes() []Scope { return []Scope{Read, Create, Steer, Budget, Approve, Admin} }

// Via is how somebody showed who they are.
type Via string

// The ways.
const (
	ViaOperator Via = "operator" // the operator's token, DAYBREAK_TOKEN
	ViaToken    Via = "token"    // a token with scopes, see [Tokens]
	ViaLink     Via = "link"     // the one-time link that the machine's owner was shown
	ViaOIDC     Via = "oidc"     // the company's identity provider
)

// Viewer is somebody who is asking. The zero value may do nothing.
type Viewer struct {
	Name    string            `json:"name"` // for people and records
	Via     Via               `json:"via"`
	All     bool              `json:"all,omitempty"` // no forge is asked: Scopes and Repos alone decide
	Scopes  []Scope           `json:"scopes"`
	Repos   []string          `json:"repos,omitempty"`  // globs of the repositories that a token is for; empty: any
	Logins  map[string]string `json:"logins,omitempty"` // the account on each forge, by the forge's name; "" is for those that are not named
	Expires time.Time         `json:"expires,omitzero"` // of the session or the token

	still func(ctx context.Context) error // nil, or whether the session or the token is good by now
}

// Key names the viewer among all: two people of one name at different places are two.
func (v Viewer) Key() string { return string(v.Via) + ":" + v.Name }

// Signs is the name under which what the viewer says is recorded: a token is no person, whatever it is called.
func (v Viewer) Signs() string {
	switch v.Via {
	case ViaOperator:
		return "api"
	case ViaToken:
		return "token:" + v.Name
	}
	return v.Name
}

// Has reports whether the viewer's scopes name s. Admin names all.
func (v Viewer) Has(s Scope) bool {
	return slices.Contains(v.Scopes, s) || slices.Contains(v.Scopes, Admin)
}

// Operates reports whether the viewer looks after this installation: sees every task, the fleet
// and the queue.
func (v Viewer) Operates() bool { return v.All && v.Has(Admin) && len(v.Repos) == 0 }

// login is the viewer's account on a forge, "" for none.
func (v Viewer) login(forge string) string {
	if l, ok := v.Logins[forge]; ok {
		return l
	}
	return v.Logins[""]
}

// within reports whether a repository is one that the viewer's token is for.
func (v Viewer) within(repo string) bool {
	return len(v.Repos) == 0 || slices.ContainsFunc(v.Repos, func(g string) bool {
		ok, _ := path.Match(g, repo)
		return ok || g == repo
	})
}

type viewerKey struct{}

// With returns a context of a request by v.
func With(ctx context.Context, v Viewer) context.Context {
	return context.WithValue(ctx, viewerKey{}, v)
}

// From returns who asks; ok is false for somebody who did not say.
func From(ctx context.Context) (v Viewer, ok bool) {
	v, ok = ctx.Value(viewerKey{}).(Viewer)
	return v, ok
}

// Gone is the answer for a task that is not there, and for one that the viewer may not read.
func Gone() error { return &task.Error{Class: task.NotFound, Msg: "no such task"} }

// ErrForbidden is the class of what somebody may see but not do.
var ErrForbidden = &task.Error{Class: task.Auth, Msg: "you may not do that"}

package store

import (
	"context"
	"time"
)

// Token is what a program shows instead of a person signing in. The store has only the hash of
// its secret.
type Token struct {
	ID      string // part of what is shown, names the row
	Name    string // for people
	Hash    []byte // SHA-256 of the secret
	Scopes  []string
	Repos   []string // globs; empty: any
	By      string   // who made it
	Created time.Time
	Expires time.Time // zero: never
	Revoked time.Time // zero: it is good
	Used    time.Time // about when it was last shown; zero: never
}

// Grant is what a secret opens until it expires: a session, a sign-in link, a sign-in that is
// under way. The store has only the hash of the secret.
type Grant struct {
	Hash    []byte // SHA-256 of the secret
	Kind    string
	Body    []byte
	Created time.Time
	Expires time.Time
}

// Access is the part of a store that knows who may ask over HTTP. Every adapter offers it beside
// [Store]. Times are the caller's.
type Access interface {
	// AddToken keeps a new token. Class Conflict when one with its id or, not revoked, its name is
	// there.
	AddToken(ctx context.Context, t Token) error
	// Token finds one by its id, whatever it is worth. Class NotFound.
	Token(ctx context.Context, id string) (Token, error)
	// Tokens lists all, oldest first.
	Tokens(ctx context.Context) ([]Token, error)
	// RevokeToken makes one worth nothing, for good. Class NotFound for an id that is not there.
	RevokeToken(ctx context.Context, id string, at time.Time) error
	// TokenUsed notes that one was shown.
	TokenUsed(ctx context.Context, id string, at time.Time) error

	// PutGrant keeps one. Class Conflict when its hash is there.
	PutGrant(ctx context.Context, g Grant) error
	// Grant finds one of a kind that expires after now. Class NotFound.
	Grant(ctx context.Context, kind string, hash []byte, now time.Time) (Grant, error)
	// TakeGrant does the same and removes it: of many who take it at once one gets it.
	TakeGrant(ctx context.Context, kind string, hash []byte, now time.Time) (Grant, error)
	// DropGrants removes those that expired before a time and says how many.
	DropGrants(ctx context.Context, before time.Time) (int, error)
}

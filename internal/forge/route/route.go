// Package route sends each repository to the forge that it lives on.
//
// Invariant: a repository is on the forge whose address is a prefix of its own, up to a slash; on
// the fallback otherwise.
package route

import (
	"context"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/forge"
)

// Entry is one forge with the address below which its repositories are.
type Entry struct {
	URL  string
	Host forge.Host
}

// Route implements [forge.Forge].
type Route struct {
	fallback forge.Forge
	entries  []Entry
}

// New returns a route; fallback gets what is on none of the entries.
func New(fallback forge.Forge, entries ...Entry) *Route { return &Route{fallback, entries} }

// Host finds the forge of a repository; ok is false for one that is on the fallback.
func (r *Route) Host(repo string) (h forge.Host, ok bool) {
	for _, e := range r.entries {
		if strings.HasPrefix(strings.ToLower(repo), strings.ToLower(strings.TrimSuffix(e.URL, "/"))+"/") {
			return e.Host, true
		}
	}
	return nil, false
}

func (r *Route) of(repo string) forge.Forge {
	if h, ok := r.Host(repo); ok {
		return h
	}
	return r.fallback
}

// Name implements [forge.Forge].
func (r *Route) Name() string { return r.fallback.Name() }

// Push implements [forge.Forge].
func (r *Route) Push(ctx context.Context, p forge.Push) (bool, error) {
	return r.of(p.Repo).Push(ctx, p)
}

// FindPullRequest implements [forge.Forge].
func (r *Route) FindPullRequest(ctx context.Context, repo, branch string) (*forge.PullRequest, error) {
	return r.of(repo).FindPullRequest(ctx, repo, branch)
}

// Home implements [forge.Forge].
func (r *Route) Home(ctx context.Context, repo, branch string) (string, error) {
	return r.of(repo).Home(ctx, repo, branch)
}

// Keeper keeps a copy of a pull request that lives elsewhere, with its documents: a host takes
// none of them.
type Keeper interface {
	Keep(pr forge.PullRequest) error
}

// OpenPullRequest implements [forge.Forge]. The documents are kept by the fallback when that can.
func (r *Route) OpenPullRequest(ctx context.Context, pr forge.PullRequest) (forge.PullRequest, bool, error) {
	h, ok := r.Host(pr.Repo)
	if !ok {
		return r.fallback.OpenPullRequest(ctx, pr)
	}
	opened, found, err := h.OpenPullRequest(ctx, pr)
	if k, keeps := r.fallback.(Keeper); keeps && err == nil {
		pr.URL = opened.URL
		err = k.Keep(pr)
	}
	return opened, found, err
}

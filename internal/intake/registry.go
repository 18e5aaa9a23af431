package intake

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Repository is one that was registered.
type Repository struct {
	Forge string    `json:"forge"` // the name in the configuration
	ID    string    `json:"id"`    // the forge's number, which it is held to
	Path  string    `json:"path"`  // "owner/name"
	URL   string    `json:"url"`   // for git, and what its tasks have
	Bot   string    `json:"bot"`   // Daybreak's user there
	Label string    `json:"label"` // that asks for a task
	Added time.Time `json:"added"`
}

// Registry keeps the registered repositories in the store, for all processes.
type Registry struct {
	st  store.Store
	now func() time.Time

	mu    sync.Mutex
	list  []Repository
	read  time.Time
	trial []Repository
}

// NewRegistry returns the registry of a store.
func NewRegistry(st store.Store, now func() time.Time) *Registry { return &Registry{st: st, now: now} }

const registryKey = "forge/repositories"

// registryFresh is how long a list that was read is good.
const registryFresh = 5 * time.Second

func decodeList(b []byte) ([]Repository, error) {
	if len(b) == 0 {
		return nil, nil
	}
	var list []Repository
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, &task.Error{Class: task.Internal, Msg: "the list of repositories cannot be read", Err: err}
	}
	return list, nil
}

// List returns all, sorted.
func (r *Registry) List(ctx context.Context) ([]Repository, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if !r.read.IsZero() && now.Sub(r.read) < registryFresh {
		return append(slices.Clone(r.list), r.trial...), nil
	}
	var list []Repository
	err := r.st.Update(ctx, registryKey, func(old []byte) ([]byte, error) {
		var err error
		list, err = decodeList(old)
		return old, err
	})
	if err != nil {
		return nil, err
	}
	r.list, r.read = list, now
	return append(slices.Clone(list), r.trial...), nil
}

// Try registers a repository for this process alone, so that it can be looked at before it is
// registered for all.
func (r *Registry) Try(t Repository) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trial = append(r.trial, t)
}

// Find looks one up by its forge and number.
func (r *Registry) Find(ctx context.Context, forge, id string) (Repository, bool, error) {
	list, err := r.List(ctx)
	if err != nil {
		return Repository{}, false, err
	}
	i := slices.IndexFunc(list, func(x Repository) bool { return x.Forge == forge && x.ID == id })
	if i < 0 {
		return Repository{}, false, nil
	}
	return list[i], true, nil
}

// Pinned returns the number that a path of a forge was registered with, "" for none.
func (r *Registry) Pinned(ctx context.Context, forge, path string) string {
	list, err := r.List(ctx)
	if err != nil {
		return "" // refused, as what is not known
	}
	for _, x := range list {
		if x.Forge == forge && strings.EqualFold(x.Path, path) {
			return x.ID
		}
	}
	return ""
}

// Add registers a repository, or replaces what was registered under its number or its path.
func (r *Registry) Add(ctx context.Context, add Repository) error {
	return r.change(ctx, func(list []Repository) []Repository {
		list = slices.DeleteFunc(list, func(x Repository) bool {
			return x.Forge == add.Forge && (x.ID == add.ID || strings.EqualFold(x.Path, add.Path))
		})
		return append(list, add)
	})
}

// Remove takes one out; removed is false when it was not there.
func (r *Registry) Remove(ctx context.Context, url string) (removed bool, err error) {
	err = r.change(ctx, func(list []Repository) []Repository {
		n := len(list)
		list = slices.DeleteFunc(list, func(x Repository) bool {
			return x.URL == url || strings.TrimSuffix(x.URL, ".git") == strings.TrimSuffix(url, ".git")
		})
		removed = len(list) < n
		return list
	})
	return removed, err
}

func (r *Registry) change(ctx context.Context, do func([]Repository) []Repository) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = time.Time{}
	return r.st.Update(ctx, registryKey, func(old []byte) ([]byte, error) {
		list, err := decodeList(old)
		if err != nil {
			return nil, err
		}
		list = do(list)
		slices.SortFunc(list, func(a, b Repository) int { return strings.Compare(a.URL, b.URL) })
		return json.Marshal(list)
	})
}

package storetest

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// testAccess: tokens are found by their id and revoked for good; a grant opens until it expires,
// for its kind alone, and is taken once.
func testAccess(t *testing.T, st store.Store) {
	a, ok := st.(store.Access)
	if !ok {
		t.Fatal("the store does not know who may ask")
	}
	t.Run("Tokens", func(t *testing.T) { testTokens(t, a) })
	t.Run("Grants", func(t *testing.T) { testGrants(t, a) })
}

func testTokens(t *testing.T, a store.Access) {
	ctx := t.Context()
	at := time.Date(2026, 5, 1, 12, 0, 0, 1000, time.UTC)
	first := store.Token{
		ID: "one", Name: "ci", Hash: []byte{0, 1, 255}, Scopes: []string{"read", "create"}, Repos: []string{"https://forge/\"*'"},
		By: "olga", Created: at, Expires: at.Add(time.Hour),
	}
	if err := a.AddToken(ctx, first); err != nil {
		t.Fatal(err)
	}
	got, err := a.Token(ctx, "one")
	if err != nil || cmp.Diff(first, got) != "" {
		t.Errorf("%v\n%s", err, cmp.Diff(first, got))
	}
	second := store.Token{ID: "two", Name: "ci", Hash: []byte{2}, Scopes: []string{"read"}, By: "olga", Created: at.Add(time.Minute)}
	if err := a.AddToken(ctx, second); task.ClassOf(err) != task.Conflict {
		t.Errorf("two good tokens of one name: %v", err)
	}
	for _, when := range []time.Time{at.Add(time.Second), at.Add(time.Hour)} { // the second time changes nothing
		if err := a.RevokeToken(ctx, "one", when); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.AddToken(ctx, second); err != nil {
		t.Errorf("the name of a revoked one: %v", err)
	}
	if err := a.AddToken(ctx, store.Token{ID: "one", Name: "other", Hash: []byte{3}, Created: at}); task.ClassOf(err) != task.Conflict {
		t.Errorf("an id again: %v", err)
	}
	for _, used := range []time.Time{at.Add(2 * time.Hour), at.Add(time.Hour)} { // never goes back
		if err := a.TokenUsed(ctx, "two", used); err != nil {
			t.Fatal(err)
		}
	}
	first.Revoked, second.Used = at.Add(time.Second), at.Add(2*time.Hour)
	all, err := a.Tokens(ctx)
	if diff := cmp.Diff([]store.Token{first, second}, all); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := a.Token(ctx, "three"); task.ClassOf(err) != task.NotFound {
		t.Error(err)
	}
	if err := a.RevokeToken(ctx, "three", at); task.ClassOf(err) != task.NotFound {
		t.Error(err)
	}
}

func testGrants(t *testing.T, a store.Access) {
	ctx := t.Context()
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	hash := bytes.Repeat([]byte{7}, 32)
	g := store.Grant{Hash: hash, Kind: "session", Body: []byte("{\x00}"), Created: at, Expires: at.Add(time.Hour)}
	if err := a.PutGrant(ctx, g); err != nil {
		t.Fatal(err)
	}
	if err := a.PutGrant(ctx, g); task.ClassOf(err) != task.Conflict {
		t.Errorf("the same again: %v", err)
	}
	got, err := a.Grant(ctx, "session", hash, at)
	if diff := cmp.Diff(g, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for name, ask := range map[string]struct {
		kind string
		hash []byte
		now  time.Time
	}{
		"another kind": {"link", hash, at},
		"another hash": {"session", bytes.Repeat([]byte{8}, 32), at},
		"expired":      {"session", hash, g.Expires},
	} {
		if _, err := a.Grant(ctx, ask.kind, ask.hash, ask.now); task.ClassOf(err) != task.NotFound {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := a.TakeGrant(ctx, ask.kind, ask.hash, ask.now); task.ClassOf(err) != task.NotFound {
			t.Errorf("take %s: %v", name, err)
		}
	}
	var taken atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			switch got, err := a.TakeGrant(ctx, "session", hash, at); {
			case err == nil && string(got.Body) == string(g.Body):
				taken.Add(1)
			case task.ClassOf(err) != task.NotFound:
				t.Error(err)
			}
		})
	}
	if all.Wait(); taken.Load() != 1 {
		t.Errorf("taken %d times", taken.Load())
	}
	for i := range 3 {
		if err := a.PutGrant(ctx, store.Grant{Hash: []byte{byte(i)}, Kind: "link", Created: at, Expires: at.Add(time.Duration(i) * time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := a.DropGrants(ctx, at.Add(90*time.Minute)); n != 2 || err != nil {
		t.Errorf("dropped %d, %v", n, err)
	}
	if _, err := a.Grant(ctx, "link", []byte{2}, at); err != nil {
		t.Error(err)
	}
}

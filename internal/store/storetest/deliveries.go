package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// testDeliveries: what a forge told is kept once, listed until it is concluded, and known as
// told after that (HOOK-02).
func testDeliveries(t *testing.T, st store.Store) {
	d, ok := st.(store.Deliveries)
	if !ok {
		t.Fatal("the store keeps no deliveries")
	}
	ctx := t.Context()
	tell := func(forge, id, body string, want bool) {
		t.Helper()
		first, err := d.Deliver(ctx, store.Delivery{Forge: forge, ID: id, Body: []byte(body)})
		if err != nil || first != want {
			t.Fatalf("%s %s: first %v, %v", forge, id, first, err)
		}
	}
	// take takes up everything of a forge and gives it back, or postpones it.
	take := func(forge string, postpone time.Duration) string {
		t.Helper()
		var all []store.Delivery
		out := ""
		for n := 0; ; n++ {
			x, ok, err := d.TakeUp(ctx, forge, fmt.Sprintf("take %d", n), ttl)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			all = append(all, x)
			out += x.Forge + x.ID + string(x.Body) + " "
		}
		for _, x := range all {
			var err error
			if postpone != 0 {
				err = d.Postpone(ctx, x, postpone, "the forge\x00 was away")
			} else {
				err = d.Hold(ctx, x, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	undone := func(want string) {
		t.Helper()
		got, err := d.Undone(ctx)
		slices.Sort(got)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("undone is something of %q, want %q, %v", got, want, err)
		}
	}
	undone("")
	tell("a", "1", "one\x00\xff", true)
	tell("a", "1", "other", false)
	tell("b", "1", "", true)
	undone("a b")
	if got := take("a", 0) + take("b", 0); got != "a1one\x00\xff b1 " {
		t.Errorf("undone: %q", got)
	}
	undone("a b")
	if got := take("a", time.Hour); got != "a1one\x00\xff " {
		t.Errorf("undone: %q", got)
	}
	undone("b")
	tell("a", "2", "two", true)
	if got := take("a", -time.Second); got != "a2two " {
		t.Errorf("one is postponed: %q", got)
	}
	take("a", -time.Second)
	if x, ok, err := d.TakeUp(ctx, "a", "x", 0); err != nil || !ok || x.Tries != 2 || x.At.IsZero() || x.Claim != "x" {
		t.Errorf("%+v %v", x, err)
	}
	for _, f := range []string{"a", "b"} {
		if err := d.Conclude(ctx, f, "1", "done"); err != nil {
			t.Fatal(err)
		}
	}
	if got := take("a", 0) + take("b", 0); got != "a2two " {
		t.Errorf("after two were concluded: %q", got)
	}
	tell("a", "1", "replayed", false)
	if n, err := d.Forget(ctx, time.Now().Add(-time.Hour)); n != 0 || err != nil {
		t.Errorf("forgot %d, %v", n, err)
	}
	if n, err := d.Forget(ctx, time.Now().Add(time.Hour)); n != 2 || err != nil {
		t.Errorf("forgot %d, %v", n, err)
	}
	if got := take("a", 0); got != "a2two " {
		t.Errorf("what is undone was forgotten: %q", got)
	}
	_, err := d.Deliver(ctx, store.Delivery{Forge: "a"})
	wantClass(t, err, task.Invalid)

	var firsts atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			first, err := d.Deliver(ctx, store.Delivery{Forge: "a", ID: "at once"})
			if err != nil {
				t.Error(err)
			}
			if first {
				firsts.Add(1)
			}
		})
	}
	wg.Wait()
	if firsts.Load() != 1 {
		t.Errorf("%d were first", firsts.Load())
	}
}

// testClaims: what one process acts on no other one acts on, nor anything else of its repository,
// until it is concluded, postponed or given up, or its time is over.
func testClaims(t *testing.T, st store.Store) {
	d, ctx := st.(store.Deliveries), t.Context()
	for i, repo := range []string{"r", "r", "s", "s"} {
		if _, err := d.Deliver(ctx, store.Delivery{Forge: "a", ID: fmt.Sprint(i), Repository: repo, Body: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	take := func(claim, want string, ttl time.Duration) store.Delivery {
		t.Helper()
		x, ok, err := d.TakeUp(ctx, "a", claim, ttl)
		if err != nil || ok != (want != "") || x.ID != want {
			t.Fatalf("took up %q, want %q, %v", x.ID, want, err)
		}
		return x
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	first := take("one", "0", ttl)
	if first.Repository != "r" {
		t.Errorf("it is of %q", first.Repository)
	}
	other := take("two", "2", ttl)
	take("three", "", ttl)
	must(d.Conclude(ctx, "a", "0", "done"))
	wantClass(t, d.Hold(ctx, first, ttl), task.Stale)
	second := take("three", "1", ttl)
	must(d.Postpone(ctx, other, time.Hour, "later"))
	take("four", "3", -time.Second) // its process dies, and the claim ends
	over := take("five", "3", -time.Second)
	wantClass(t, d.Hold(ctx, store.Delivery{Forge: "a", ID: "3", Claim: "four"}, ttl), task.Stale)
	must(d.Postpone(ctx, store.Delivery{Forge: "a", ID: "3", Claim: "four"}, time.Hour, "too late"))
	must(d.Hold(ctx, over, ttl))
	take("six", "", ttl)
	must(d.Hold(ctx, second, 0))
	take("six", "1", ttl)

	for i := range 8 {
		if _, err := d.Deliver(ctx, store.Delivery{Forge: "c", ID: fmt.Sprint(i), Repository: "r", Body: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	var got atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, ok, err := d.TakeUp(ctx, "c", fmt.Sprint("at once ", i), ttl)
			if err != nil {
				t.Error(err)
			}
			if ok {
				got.Add(1)
			}
		})
	}
	wg.Wait()
	if got.Load() != 1 {
		t.Errorf("%d act on one repository at once", got.Load())
	}
}

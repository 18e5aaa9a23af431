package storetest

import (
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
	ids := func() string {
		t.Helper()
		ds, err := d.Undone(ctx, 10)
		if err != nil {
			t.Fatal(err)
		}
		out := ""
		for _, x := range ds {
			out += x.Forge + x.ID + string(x.Body) + " "
		}
		return out
	}
	tell("a", "1", "one\x00\xff", true)
	tell("a", "1", "other", false)
	tell("b", "1", "", true)
	tell("a", "2", "two", true)
	if got := ids(); got != "a1one\x00\xff b1 a2two " {
		t.Errorf("undone: %q", got)
	}
	if err := d.Postpone(ctx, "a", "1", time.Hour, "the forge\x00 was away"); err != nil {
		t.Fatal(err)
	}
	if got := ids(); got != "b1 a2two " {
		t.Errorf("one is postponed: %q", got)
	}
	if err := d.Postpone(ctx, "a", "1", -time.Second, "again"); err != nil {
		t.Fatal(err)
	}
	ds, err := d.Undone(ctx, 1)
	if err != nil || len(ds) != 1 || ds[0].Tries != 2 || ds[0].At.IsZero() {
		t.Errorf("%+v %v", ds, err)
	}
	for _, f := range []string{"a", "b"} {
		if err := d.Conclude(ctx, f, "1", "done"); err != nil {
			t.Fatal(err)
		}
	}
	if got := ids(); got != "a2two " {
		t.Errorf("after two were concluded: %q", got)
	}
	tell("a", "1", "replayed", false)
	if n, err := d.Forget(ctx, time.Now().Add(-time.Hour)); n != 0 || err != nil {
		t.Errorf("forgot %d, %v", n, err)
	}
	if n, err := d.Forget(ctx, time.Now().Add(time.Hour)); n != 2 || err != nil {
		t.Errorf("forgot %d, %v", n, err)
	}
	if got := ids(); got != "a2two " {
		t.Errorf("what is undone was forgotten: %q", got)
	}
	_, err = d.Deliver(ctx, store.Delivery{Forge: "a"})
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

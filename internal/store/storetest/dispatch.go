package storetest

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Scheduled is a store with a queue of orders beside it.
type Scheduled interface {
	store.Store
	store.Dispatch
}

// Orders reads the queue as another process would: the orders in it that were not cancelled.
type Orders func(t *testing.T) []store.Job

// RunDispatch runs the part of the suite that is about orders. open returns an empty store
// whose queue keeps its orders in the same database.
func RunDispatch(t *testing.T, open func(t *testing.T) (Scheduled, Orders)) {
	for _, tt := range []struct {
		name string
		run  func(*testing.T, Scheduled, Orders)
	}{
		{"OrderedWithTheTask", testOrderedWithTheTask},
		{"ClaimOnce", testClaimOnce},
		{"ClaimOnceAtOnce", testClaimOnceAtOnce},
		{"Caps", testCaps},
		{"CapsAtOnce", testCapsAtOnce},
		{"Handover", testHandover},
		{"Reap", testReap},
		{"ReapRace", testReapRace},
		{"ReapDead", testReapDead},
		{"Reissue", testReissue},
		{"Waiting", testWaiting},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st, orders := open(t)
			tt.run(t, st, orders)
		})
	}
}

func scheduled(t testing.TB, st Scheduled, n int, change func(*store.Task)) task.ID {
	t.Helper()
	row := store.Task{ID: ID(n), Key: "key-" + string(ID(n)), Repo: "repo", Dispatch: true, Author: "ann"}
	if change != nil {
		change(&row)
	}
	if _, created, err := st.Create(t.Context(), row, []event.Draft{Draft(t, event.TaskCreated{})}); err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	return row.ID
}

func claim(t testing.TB, st Scheduled, j store.Job, owner string) store.Lease {
	t.Helper()
	l, err := st.Claim(t.Context(), j, owner, ttl, store.Caps{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func only(t *testing.T, orders Orders) store.Job {
	t.Helper()
	all := orders(t)
	if len(all) != 1 {
		t.Fatalf("%d orders, want one: %+v", len(all), all)
	}
	return all[0]
}

func testOrderedWithTheTask(t *testing.T, st Scheduled, orders Orders) {
	id := scheduled(t, st, 1, func(r *store.Task) { r.Priority = store.FirstPriority })
	if j := only(t, orders); j.Task != id || j.Epoch != 0 || j.Priority != store.FirstPriority {
		t.Fatalf("%+v", j)
	}
	// Refused after the order went in: neither is there.
	row := store.Task{ID: ID(2), Dispatch: true}
	_, _, err := st.Create(t.Context(), row, []event.Draft{Draft(t, event.TaskCreated{}), change(t, task.Working, task.Verifying)})
	wantClass(t, err, task.Internal)
	only(t, orders)
	got, created, err := st.Create(t.Context(), store.Task{ID: ID(3), Key: "key-" + string(id), Dispatch: true}, []event.Draft{Draft(t, event.TaskCreated{})})
	if err != nil || created || got.ID != id || !got.Dispatch || got.Author != "ann" || got.Priority != store.FirstPriority {
		t.Fatalf("the same work again: %+v, created %v, %v", got, created, err)
	}
	only(t, orders)
	New(t, st, 4) // a person's own: nobody is ordered to work on it
	only(t, orders)
	if all, err := st.Unfinished(t.Context()); err != nil || len(all) != 1 || all[0].ID != id || all[0].Job != only(t, orders).ID {
		t.Fatalf("unfinished: %+v, %v", all, err)
	}
}

func testClaimOnce(t *testing.T, st Scheduled, orders Orders) {
	id := scheduled(t, st, 1, nil)
	j := only(t, orders)
	l := claim(t, st, j, "a")
	if l.Epoch != 1 || l.Task != id {
		t.Fatalf("%+v", l)
	}
	appendAll(t, st, l, note(t, 1))
	_, err := st.Claim(t.Context(), j, "b", ttl, store.Caps{})
	wantClass(t, err, task.Stale)
	if err := st.Release(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	_, err = st.Claim(t.Context(), j, "b", ttl, store.Caps{}) // the order was for epoch 0
	wantClass(t, err, task.Stale)
	_, err = st.Claim(t.Context(), store.Job{Task: ID(404)}, "b", ttl, store.Caps{})
	wantClass(t, err, task.NotFound)
}

func testClaimOnceAtOnce(t *testing.T, st Scheduled, orders Orders) {
	scheduled(t, st, 1, nil)
	j := only(t, orders)
	var wg sync.WaitGroup
	var won atomic.Int64
	for i := range 8 {
		wg.Go(func() {
			_, err := st.Claim(t.Context(), j, string(rune('a'+i)), ttl, store.Caps{Total: 8})
			if err == nil {
				won.Add(1)
			} else if task.ClassOf(err) != task.Stale {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Fatalf("one order was claimed %d times", won.Load())
	}
}

func testCaps(t *testing.T, st Scheduled, orders Orders) {
	for n, of := range [][2]string{{"r1", "ann"}, {"r1", "bob"}, {"r2", "ann"}, {"r3", "cid"}} {
		scheduled(t, st, n+1, func(r *store.Task) { r.Repo, r.Author = of[0], of[1] })
	}
	all := orders(t)
	held := claim(t, st, all[0], "w")
	for _, tt := range []struct {
		order int
		caps  store.Caps
		full  bool
	}{
		{1, store.Caps{Total: 1}, true},
		{1, store.Caps{Repo: 1}, true},
		{2, store.Caps{Author: 1}, true},
		{2, store.Caps{Total: 2, Repo: 1, Author: 2}, false},
		{3, store.Caps{Total: 3, Repo: 1, Author: 1}, false},
		{1, store.Caps{Total: 3}, true},
	} {
		l, err := st.Claim(t.Context(), all[tt.order], "w", ttl, tt.caps)
		if errors.Is(err, store.ErrFull) != tt.full || err == nil && l.Epoch != 1 {
			t.Fatalf("order %d under %+v: %v", tt.order, tt.caps, err)
		}
	}
	if err := st.Release(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Claim(t.Context(), all[1], "w", ttl, store.Caps{Total: 3, Repo: 1}); err != nil {
		t.Fatalf("after a place became free: %v", err)
	}
}

func testCapsAtOnce(t *testing.T, st Scheduled, orders Orders) {
	for n := range 8 {
		scheduled(t, st, n+1, nil)
	}
	var wg sync.WaitGroup
	var won atomic.Int64
	for _, j := range orders(t) {
		wg.Go(func() {
			_, err := st.Claim(t.Context(), j, "w", ttl, store.Caps{Repo: 3})
			if err == nil {
				won.Add(1)
			} else if !errors.Is(err, store.ErrFull) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 3 {
		t.Fatalf("%d run, the cap is 3", won.Load())
	}
}

func testHandover(t *testing.T, st Scheduled, orders Orders) {
	id := scheduled(t, st, 1, nil)
	l := claim(t, st, only(t, orders), "a")
	if err := st.Handover(t.Context(), l, 0); err != nil {
		t.Fatal(err)
	}
	_, err := st.Append(t.Context(), l, note(t, 1))
	wantClass(t, err, task.Stale)
	wantClass(t, st.Handover(t.Context(), l, 0), task.Stale)
	all := orders(t)
	next := all[len(all)-1]
	if next.Epoch != 1 {
		t.Fatalf("the next order is for epoch %d: %+v", next.Epoch, all)
	}
	l = claim(t, st, next, "b")
	appendAll(t, st, l, change(t, task.Queued, task.Stopped))
	if err := st.Handover(t.Context(), l, 0); err != nil {
		t.Fatal(err)
	}
	if again := orders(t); len(again) != len(all) {
		t.Fatalf("a task that is done was ordered again: %+v", again)
	}
	if row, err := st.Task(t.Context(), id); err != nil || row.Owner != "" {
		t.Fatalf("%+v, %v", row, err)
	}
}

// over lets a lease end now.
func over(t *testing.T, st Scheduled, l store.Lease) store.Lease {
	t.Helper()
	l, err := st.Renew(t.Context(), l, -time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func testReap(t *testing.T, st Scheduled, orders Orders) {
	id, other := scheduled(t, st, 1, nil), scheduled(t, st, 2, nil)
	first := orders(t)
	old, live := claim(t, st, first[0], "a"), claim(t, st, first[1], "b")
	appendAll(t, st, old, note(t, 1))
	if got, err := st.Reap(t.Context(), func(string) bool { return false }); err != nil || len(got) != 0 {
		t.Fatalf("live leases were taken: %+v, %v", got, err)
	}
	over(t, st, old)
	got, err := st.Reap(t.Context(), nil)
	if err != nil || len(got) != 1 || got[0].Task != id || got[0].Owner != "a" || got[0].Epoch != 2 || got[0].Late <= 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	now := orders(t)
	if len(now) != 2 || slices.ContainsFunc(now, func(j store.Job) bool { return j.ID == first[0].ID }) {
		t.Fatalf("the old order is still there, or the new one is not: %+v", now)
	}
	events := Log(t, st, id)
	if e := events[len(events)-1]; e.Kind != (event.LeaseTaken{}).EventKind() || e.Epoch != 2 {
		t.Fatalf("the log ends with %+v", e)
	}
	// The old owner wakes up: every door is shut.
	before := len(events)
	_, err = st.Append(t.Context(), old, note(t, 2))
	wantClass(t, err, task.Stale)
	_, err = st.Renew(t.Context(), old, ttl)
	wantClass(t, err, task.Stale)
	_, err = st.TakeSignals(t.Context(), old, nil, note(t, 2))
	wantClass(t, err, task.Stale)
	wantClass(t, st.Handover(t.Context(), old, 0), task.Stale)
	wantClass(t, st.Release(t.Context(), old), task.Stale)
	if n := len(Log(t, st, id)); n != before {
		t.Fatalf("a stale owner stored %d events", n-before)
	}
	l, err := st.Claim(t.Context(), store.Job{Task: id, Epoch: got[0].Epoch}, "c", ttl, store.Caps{})
	if err != nil || l.Epoch != 3 {
		t.Fatalf("%+v, %v", l, err)
	}
	appendAll(t, st, l, note(t, 3))
	appendAll(t, st, live, note(t, 1))
	if again, err := st.Reap(t.Context(), nil); err != nil || len(again) != 0 {
		t.Fatalf("reaped again: %+v, %v", again, err)
	}
	// A task that was done when its worker died gets a run that finishes its record.
	appendAll(t, st, live, change(t, task.Queued, task.Stopped))
	over(t, st, live)
	if got, err = st.Reap(t.Context(), nil); err != nil || len(got) != 1 || got[0].Task != other || got[0].Job == 0 {
		t.Fatalf("%+v, %v", got, err)
	}
}

// testReapRace: many reapers, one new order.
func testReapRace(t *testing.T, st Scheduled, orders Orders) {
	scheduled(t, st, 1, nil)
	over(t, st, claim(t, st, only(t, orders), "a"))
	var wg sync.WaitGroup
	var taken atomic.Int64
	for range 6 {
		wg.Go(func() {
			got, err := st.Reap(t.Context(), nil)
			if err != nil {
				t.Error(err)
			}
			taken.Add(int64(len(got)))
		})
	}
	wg.Wait()
	if taken.Load() != 1 {
		t.Fatalf("one lease was taken %d times", taken.Load())
	}
	if j := only(t, orders); j.Epoch != 2 {
		t.Fatalf("%+v", j)
	}
}

func testReapDead(t *testing.T, st Scheduled, orders Orders) {
	id := scheduled(t, st, 1, nil)
	claim(t, st, only(t, orders), "a")
	got, err := st.Reap(t.Context(), func(owner string) bool { return owner == "a" })
	if err != nil || len(got) != 1 || got[0].Task != id || got[0].Late != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	own := New(t, st, 2) // a person's own run is not the scheduler's to take
	Lease(t, st, own)
	if got, err := st.Reap(t.Context(), func(string) bool { return true }); err != nil || len(got) != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
}

func testReissue(t *testing.T, st Scheduled, orders Orders) {
	id := scheduled(t, st, 1, nil)
	old := only(t, orders)
	r, err := st.Reissue(t.Context(), id, "for a test")
	if err != nil || r.Epoch != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	j := only(t, orders)
	if j.ID != r.Job || j.ID == old.ID {
		t.Fatalf("order %+v after %+v", j, old)
	}
	_, err = st.Claim(t.Context(), old, "a", ttl, store.Caps{})
	wantClass(t, err, task.Stale)
	l := claim(t, st, j, "a")
	_, err = st.Reissue(t.Context(), id, "while it is held")
	wantClass(t, err, task.Conflict)
	appendAll(t, st, l, change(t, task.Queued, task.Stopped))
	if err := st.Release(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	_, err = st.Reissue(t.Context(), id, "although it is done")
	wantClass(t, err, task.Invalid)
	_, err = st.Reissue(t.Context(), ID(404), "")
	wantClass(t, err, task.NotFound)
	own := New(t, st, 2) // one that a person began is the scheduler's from now on
	if _, err := st.Reissue(t.Context(), own, "asked for"); err != nil {
		t.Fatal(err)
	}
	if all, err := st.Unfinished(t.Context()); err != nil || len(all) != 1 || all[0].ID != own {
		t.Fatalf("%+v, %v", all, err)
	}
}

func testWaiting(t *testing.T, st Scheduled, orders Orders) {
	add := func(n int, repo, author string, priority int) {
		scheduled(t, st, n, func(r *store.Task) { r.Repo, r.Author, r.Priority = repo, author, priority })
	}
	add(1, "busy", "ann", 0)
	add(2, "busy", "bob", 0)
	add(3, "busy", "ann", 0)
	add(4, "calm", "ann", 0)
	add(5, "calm", "cid", store.LastPriority)
	add(6, "busy", "dan", store.FirstPriority)
	claim(t, st, orders(t)[0], "w")
	want := func(c store.Caps, limit int, ids ...int) {
		t.Helper()
		got, err := st.Waiting(t.Context(), c, limit)
		if err != nil {
			t.Fatal(err)
		}
		var have, ws []task.ID
		for _, j := range got {
			have = append(have, j.Task)
		}
		for _, n := range ids {
			ws = append(ws, ID(n))
		}
		if !slices.Equal(have, ws) {
			t.Fatalf("%+v: %v, want %v", c, have, ws)
		}
	}
	want(store.Caps{}, 10, 6, 4, 2, 3, 5) // first priority; then the repository with none running
	want(store.Caps{}, 1, 6)
	want(store.Caps{Total: 3}, 10, 6, 4)
	want(store.Caps{Repo: 1}, 10, 4)
	want(store.Caps{Author: 1}, 10, 6, 2, 5)
	// What was put off is not chosen.
	l := claim(t, st, store.Job{Task: ID(6)}, "w")
	if err := st.Handover(t.Context(), l, time.Hour); err != nil {
		t.Fatal(err)
	}
	want(store.Caps{}, 1, 4)
}

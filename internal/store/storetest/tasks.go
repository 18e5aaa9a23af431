package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func testCreate(t *testing.T, st store.Store) {
	row := store.Task{ID: ID(1), Key: "k", Repo: "/srv/shop", Title: "coupon"}
	got, created, err := st.Create(t.Context(), row, []event.Draft{Draft(t, event.TaskCreated{Repo: "/srv/shop"}), note(t, 1)})
	if err != nil || !created {
		t.Fatal(created, err)
	}
	if got.ID != row.ID || got.Key != "k" || got.Repo != row.Repo || got.Title != row.Title ||
		got.State != task.Queued || got.LastSeq != 2 || got.Epoch != 0 || got.Owner != "" || got.Created.IsZero() {
		t.Fatalf("created row: %+v", got)
	}
	again, err := st.Task(t.Context(), row.ID)
	if err != nil || again != got {
		t.Fatalf("read back %+v, %v; created %+v", again, err, got)
	}
	events := Log(t, st, row.ID)
	if len(events) != 2 || events[0].Kind != "task.created" || events[0].Epoch != 0 {
		t.Fatalf("first events: %+v", events)
	}
}

func testCreateOncePerKey(t *testing.T, st store.Store) {
	first := []event.Draft{Draft(t, event.TaskCreated{})}
	a := New(t, st, 1)
	key := "key-" + string(a)
	got, created, err := st.Create(t.Context(), store.Task{ID: ID(2), Key: key}, first)
	if err != nil || created || got.ID != a {
		t.Fatalf("second task of the same key: %+v created %v, %v", got, created, err)
	}
	if _, err := st.Task(t.Context(), ID(2)); task.ClassOf(err) != task.NotFound {
		t.Fatalf("the refused task was stored: %v", err)
	}
	l := Lease(t, st, a)
	appendAll(t, st, l, change(t, task.Queued, task.Stopped))
	got, created, err = st.Create(t.Context(), store.Task{ID: ID(2), Key: key}, first)
	if err != nil || !created || got.ID != ID(2) {
		t.Fatalf("after the first is done: %+v created %v, %v", got, created, err)
	}
	for n := 3; n < 5; n++ { // no key: never the same
		if _, created, err := st.Create(t.Context(), store.Task{ID: ID(n)}, first); err != nil || !created {
			t.Fatalf("task %d without a key: created %v, %v", n, created, err)
		}
	}
}

func testCreateOncePerKeyAtOnce(t *testing.T, st store.Store) {
	var wg sync.WaitGroup
	var made atomic.Int64
	ids := make([]task.ID, 8)
	for i := range ids {
		wg.Go(func() {
			got, created, err := st.Create(t.Context(), store.Task{ID: ID(i + 1), Key: "same"}, []event.Draft{Draft(t, event.TaskCreated{})})
			if err != nil {
				t.Error(err)
			}
			if created {
				made.Add(1)
			}
			ids[i] = got.ID
		})
	}
	wg.Wait()
	if made.Load() != 1 {
		t.Fatalf("%d tasks were created for one key", made.Load())
	}
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("callers were given different tasks: %v", ids)
		}
	}
}

func testCreateRefuses(t *testing.T, st store.Store) {
	created := []event.Draft{Draft(t, event.TaskCreated{})}
	refuse := func(row store.Task, first []event.Draft, class task.Class) {
		t.Helper()
		_, _, err := st.Create(t.Context(), row, first)
		wantClass(t, err, class)
	}
	refuse(store.Task{ID: "../etc"}, created, task.Invalid)
	refuse(store.Task{ID: ID(1)}, nil, task.Invalid)
	refuse(store.Task{ID: ID(1)}, []event.Draft{note(t, 1)}, task.Invalid)
	refuse(store.Task{ID: ID(1)}, []event.Draft{created[0], change(t, task.Working, task.Verifying)}, task.Internal)
	if all, err := st.Tasks(t.Context(), store.Filter{}); err != nil || len(all) != 0 {
		t.Fatalf("refused tasks were stored: %v, %v", all, err)
	}
	id := New(t, st, 1)
	refuse(store.Task{ID: id, Key: "other"}, created, task.Conflict)
	Log(t, st, id)
}

func testAcquire(t *testing.T, st store.Store) {
	id := New(t, st, 1)
	a, err := st.Acquire(t.Context(), id, "a", ttl, nil)
	if err != nil {
		t.Fatal(err)
	}
	row, err := st.Task(t.Context(), id)
	if err != nil || row.Owner != "a" || row.Epoch != a.Epoch || !row.Until.Equal(a.Until) {
		t.Fatalf("row %+v, lease %+v, %v", row, a, err)
	}
	_, err = st.Acquire(t.Context(), id, "b", ttl, func(string) bool { return false })
	wantClass(t, err, task.Conflict)
	_, err = st.Acquire(t.Context(), id, "", ttl, nil)
	wantClass(t, err, task.Invalid)

	renewed, err := st.Renew(t.Context(), a, 2*ttl)
	if err != nil || renewed.Epoch != a.Epoch || !renewed.Until.After(a.Until) {
		t.Fatalf("renewed %+v from %+v, %v", renewed, a, err)
	}
	// Over at once: any engine's clock moves by a nanosecond between two statements.
	over, err := st.Renew(t.Context(), renewed, -time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if row, err := st.Task(t.Context(), id); err != nil || row.Owner != "" {
		t.Fatalf("an expired lease still shows its owner: %+v, %v", row, err)
	}
	appendAll(t, st, over, note(t, 1)) // nobody took it: still the only writer
	if over, err = st.Renew(t.Context(), over, -time.Second); err != nil {
		t.Fatalf("renewing an expired lease that nobody took: %v", err)
	}
	b, err := st.Acquire(t.Context(), id, "b", ttl, nil)
	if err != nil || b.Epoch <= over.Epoch {
		t.Fatalf("taking an expired lease: %+v after %+v, %v", b, over, err)
	}
	_, err = st.Renew(t.Context(), over, ttl)
	wantClass(t, err, task.Stale)
}

func testAcquireAtOnce(t *testing.T, st store.Store) {
	id := New(t, st, 1)
	var wg sync.WaitGroup
	var won atomic.Int64
	for i := range 8 {
		wg.Go(func() {
			_, err := st.Acquire(t.Context(), id, string(rune('a'+i)), ttl, nil)
			switch {
			case err == nil:
				won.Add(1)
			case task.ClassOf(err) != task.Conflict:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Fatalf("%d owners hold one lease", won.Load())
	}
}

func testDeadOwner(t *testing.T, st store.Store) {
	id := New(t, st, 1)
	a := Lease(t, st, id)
	asked := ""
	b, err := st.Acquire(t.Context(), id, "b", ttl, func(owner string) bool { asked = owner; return true })
	if err != nil || asked != "me" || b.Epoch != a.Epoch+1 {
		t.Fatalf("lease %+v, asked about %q, %v", b, asked, err)
	}
	_, err = st.Append(t.Context(), a, note(t, 1))
	wantClass(t, err, task.Stale)
}

// testDeadOwnerOnce: the word on a dead owner counts for that owner's lease, not for the one
// that somebody else took meanwhile.
func testDeadOwnerOnce(t *testing.T, st store.Store) {
	id := New(t, st, 1)
	Lease(t, st, id)
	var first store.Lease
	_, err := st.Acquire(t.Context(), id, "slow", ttl, func(string) bool {
		var err error
		if first, err = st.Acquire(t.Context(), id, "fast", ttl, func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}
		return true
	})
	wantClass(t, err, task.Conflict)
	appendAll(t, st, first, note(t, 1))
}

func testRelease(t *testing.T, st store.Store) {
	id := New(t, st, 1)
	a := Lease(t, st, id)
	if err := st.Release(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	_, err := st.Append(t.Context(), a, note(t, 1))
	wantClass(t, err, task.Stale)
	wantClass(t, st.Release(t.Context(), a), task.Stale)
	b, err := st.Acquire(t.Context(), id, "b", ttl, nil)
	if err != nil || b.Epoch <= a.Epoch {
		t.Fatalf("after a release: %+v, %v", b, err)
	}
	wantClass(t, st.Release(t.Context(), a), task.Stale)
	appendAll(t, st, b, note(t, 2))
}

func testFilters(t *testing.T, st store.Store) {
	for n := 1; n <= 120; n++ {
		repo := "even"
		if n%2 == 1 {
			repo = "odd"
		}
		row := store.Task{ID: ID(n), Key: "k" + string(ID(n)), Repo: repo, Author: fmt.Sprint("author ", n%3)}
		if _, _, err := st.Create(t.Context(), row, []event.Draft{Draft(t, event.TaskCreated{})}); err != nil {
			t.Fatal(err)
		}
	}
	appendAll(t, st, Lease(t, st, ID(7)), change(t, task.Queued, task.Preparing))
	appendAll(t, st, Lease(t, st, ID(8)), change(t, task.Queued, task.Stopped))
	list := func(f store.Filter, want int, first task.ID) {
		t.Helper()
		got, err := st.Tasks(t.Context(), f)
		if err != nil || len(got) != want || (want > 0 && got[0].ID != first) {
			t.Fatalf("%+v: %d tasks, first %v, %v; want %d, first %v", f, len(got), got[:min(1, len(got))], err, want, first)
		}
		for i := 1; i < len(got); i++ {
			if got[i].Created.After(got[i-1].Created) {
				t.Fatalf("%+v: not newest first at %d", f, i)
			}
		}
	}
	list(store.Filter{}, 100, ID(120))
	list(store.Filter{Limit: 1000}, 120, ID(120))
	list(store.Filter{Limit: 3}, 3, ID(120))
	list(store.Filter{Repo: "odd", Limit: 1000}, 60, ID(119))
	list(store.Filter{Key: "k" + string(ID(5))}, 1, ID(5))
	list(store.Filter{States: []task.State{task.Preparing}}, 1, ID(7))
	list(store.Filter{States: []task.State{task.Preparing, task.Stopped}}, 2, ID(8))
	list(store.Filter{States: []task.State{task.Preparing}, Repo: "even"}, 0, "")
	list(store.Filter{Repo: "' OR 1=1 --"}, 0, "")
	list(store.Filter{Author: "author 1", Limit: 1000}, 40, ID(118))
	list(store.Filter{Before: ID(100), Limit: 10}, 10, ID(99))
	list(store.Filter{Before: ID(100), Repo: "even", Limit: 1000}, 49, ID(98))
	list(store.Filter{Before: ID(1)}, 0, "")
	list(store.Filter{Before: ID(999)}, 0, "")
}

// testWatch: whatever changes a task wakes who watches it, once for any number of changes.
func testWatch(t *testing.T, st store.Store) {
	id, other := New(t, st, 1), New(t, st, 2)
	mine, err := st.Watch(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	all, err := st.Watch(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	quiet := func() { // whatever was told about what came before
		for {
			select {
			case <-mine:
			case <-all:
			case <-time.After(300 * time.Millisecond):
				return
			}
		}
	}
	wake := func(what string, chs ...<-chan struct{}) {
		t.Helper()
		for _, ch := range chs {
			select {
			case <-ch:
			case <-time.After(10 * time.Second):
				t.Fatalf("%s woke nobody", what)
			}
		}
	}
	l := Lease(t, st, id)
	wake("a lease", mine, all)
	appendAll(t, st, l, note(t, 1))
	wake("an append", mine, all)
	if err := st.Signal(t.Context(), store.Signal{ID: "s", Task: id, Kind: "stop"}); err != nil {
		t.Fatal(err)
	}
	wake("a signal", mine, all)
	quiet()
	if err := st.Signal(t.Context(), store.Signal{ID: "o", Task: other, Kind: "stop"}); err != nil {
		t.Fatal(err)
	}
	wake("another task's signal", all)
}

// testUpdate: what many change at once is changed by each.
func testUpdate(t *testing.T, st store.Store) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				if err := st.Update(t.Context(), "counter", func(old []byte) ([]byte, error) { return append(old, 'x'), nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	why := errors.New("no")
	err := st.Update(t.Context(), "counter", func(old []byte) ([]byte, error) {
		if len(old) != 40 {
			t.Errorf("%d of 40 changes", len(old))
		}
		return nil, why
	})
	if !errors.Is(err, why) {
		t.Fatal(err)
	}
	if err := st.Update(t.Context(), "new", func(old []byte) ([]byte, error) {
		if old != nil {
			t.Errorf("a new value is %q", old)
		}
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
}

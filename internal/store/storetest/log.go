package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func testOrder(t *testing.T, st store.Store) {
	id := New(t, st, 1)
	l := Lease(t, st, id)
	if got, err := st.Append(t.Context(), l); err != nil || len(got) != 0 {
		t.Fatalf("append of nothing: %v, %v", got, err)
	}
	var want []event.Event
	for step := 0; step < 9; step += 3 {
		want = append(want, appendAll(t, st, l, note(t, step), note(t, step+1), note(t, step+2))...)
	}
	got := Log(t, st, id)[1:]
	for i := range want {
		if got[i].Hash != want[i].Hash || !got[i].Time.Equal(want[i].Time) || !bytes.Equal(got[i].Payload, want[i].Payload) {
			t.Fatalf("event %d read back as %+v, appended as %+v", i, got[i], want[i])
		}
		if noteStep(t, got[i]) != i || got[i].Seq != int64(i)+2 || got[i].Epoch != l.Epoch {
			t.Fatalf("event %d: %+v", i, got[i])
		}
	}
	part, err := st.Events(t.Context(), id, 4, 3)
	if err != nil || len(part) != 3 || part[0].Seq != 5 {
		t.Fatalf("3 events after 4: %+v, %v", part, err)
	}
	if part, err = st.Events(t.Context(), id, 10, 0); err != nil || len(part) != 0 {
		t.Fatalf("events after the last: %+v, %v", part, err)
	}
}

func testNoGapsUnderConcurrency(t *testing.T, st store.Store) {
	const tasks, writers, each = 2, 4, 10
	var wg sync.WaitGroup
	for n := 1; n <= tasks; n++ {
		id := New(t, st, n)
		l := Lease(t, st, id)
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					if _, err := st.Append(t.Context(), l, note(t, w*each+i), note(t, w*each+i)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Go(func() { // a reader sees a whole prefix at any time, never half an append
			for range each {
				events, err := st.Events(t.Context(), id, 0, 0)
				if err == nil {
					err = event.VerifyChain(id, events)
				}
				if err != nil || len(events)%2 != 1 {
					t.Errorf("read while writing: %d events, %v", len(events), err)
					return
				}
			}
		})
	}
	wg.Wait()
	for n := 1; n <= tasks; n++ {
		if got := len(Log(t, st, ID(n))); got != 1+2*writers*each {
			t.Fatalf("task %d has %d events", n, got)
		}
	}
}

func testStaleLeaseIsFenced(t *testing.T, st store.Store) {
	id := New(t, st, 1)
	old := Lease(t, st, id)
	appendAll(t, st, old, note(t, 1))
	cur, err := st.Acquire(t.Context(), id, "other", ttl, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	before := len(Log(t, st, id))
	_, err = st.Append(t.Context(), old, note(t, 2))
	wantClass(t, err, task.Stale)
	_, err = st.TakeSignals(t.Context(), old, nil, note(t, 2))
	wantClass(t, err, task.Stale)
	forged := old
	forged.Epoch = cur.Epoch // a stale owner that guesses the epoch
	_, err = st.Append(t.Context(), forged, note(t, 2))
	wantClass(t, err, task.Stale)
	future := cur
	future.Epoch++
	_, err = st.Append(t.Context(), future, note(t, 2))
	wantClass(t, err, task.Stale)
	if got := len(Log(t, st, id)); got != before {
		t.Fatalf("a stale append was stored: %d events, had %d", got, before)
	}
	if got := appendAll(t, st, cur, note(t, 3)); got[0].Epoch != cur.Epoch {
		t.Fatalf("epoch %d, want %d", got[0].Epoch, cur.Epoch)
	}
}

func testTransitions(t *testing.T, st store.Store) {
	id := New(t, st, 1)
	l := Lease(t, st, id)
	for _, bad := range [][]event.Draft{
		{change(t, task.Queued, task.InReview)},                                               // not in the table
		{change(t, task.Working, task.Verifying)},                                             // not where the task is
		{note(t, 1), change(t, task.Queued, task.Merged)},                                     // not even the note
		{change(t, task.Queued, task.Preparing), change(t, task.Queued, task.Preparing)},      // the second
		{Draft(t, event.TaskCreated{})},                                                       // created twice
		{{Kind: "state.changed", Version: event.Current + 1, Payload: json.RawMessage(`{}`)}}, // cannot be judged
	} {
		_, err := st.Append(t.Context(), l, bad...)
		wantClass(t, err, task.Internal)
		if n := len(Log(t, st, id)); n != 1 {
			t.Fatalf("a refused append left %d events", n)
		}
	}
	appendAll(t, st, l, change(t, task.Queued, task.Preparing), change(t, task.Preparing, task.Working))
	row, err := st.Task(t.Context(), id)
	if err != nil || row.State != task.Working {
		t.Fatalf("%+v, %v", row, err)
	}
	appendAll(t, st, l, change(t, task.Working, task.Declined))
	_, err = st.Append(t.Context(), l, change(t, task.Declined, task.Working))
	wantClass(t, err, task.Internal)
	Log(t, st, id)
}

func toReview(t *testing.T) []event.Draft {
	steps := []task.State{task.Queued, task.Preparing, task.Working, task.Verifying, task.Publishing, task.InReview}
	var out []event.Draft
	for i := 1; i < len(steps); i++ {
		out = append(out, change(t, steps[i-1], steps[i]))
	}
	return out
}

func testBackFromReview(t *testing.T, st store.Store) {
	a := New(t, st, 1)
	l := Lease(t, st, a)
	appendAll(t, st, l, toReview(t)...)
	row := store.Task{ID: ID(2), Key: "key-" + string(a)}
	if _, created, err := st.Create(t.Context(), row, []event.Draft{Draft(t, event.TaskCreated{})}); err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	_, err := st.Append(t.Context(), l, change(t, task.InReview, task.Working))
	wantClass(t, err, task.Conflict)
	Log(t, st, a)
	appendAll(t, st, Lease(t, st, ID(2)), change(t, task.Queued, task.Stopped))
	appendAll(t, st, l, change(t, task.InReview, task.Working))
	Log(t, st, a)
}

func testBadDrafts(t *testing.T, st store.Store) {
	id := New(t, st, 1)
	l := Lease(t, st, id)
	for _, d := range []event.Draft{
		{Kind: "agent.notice", Version: 1, Payload: json.RawMessage(`{"step":`)},
		{Kind: "agent.notice", Version: 1, Payload: json.RawMessage(`{} {}`)},
		{Kind: "agent.notice", Version: 1},
		{Version: 1, Payload: json.RawMessage(`{}`)},
	} {
		_, err := st.Append(t.Context(), l, note(t, 1), d)
		wantClass(t, err, task.Invalid)
	}
	if n := len(Log(t, st, id)); n != 1 {
		t.Fatalf("a refused append left %d events", n)
	}
	appendAll(t, st, l, event.Draft{Kind: "from.the.future", Version: 9, Payload: json.RawMessage(`{"x":[1]}`)})
	if e := Log(t, st, id)[1]; e.Kind != "from.the.future" || e.Version != 9 || string(e.Payload) != `{"x":[1]}` {
		t.Fatalf("unknown kind kept as %+v", e)
	}
}

func testLargePayload(t *testing.T, st store.Store) {
	id := New(t, st, 1)
	l := Lease(t, st, id)
	big := strings.Repeat("0123456789abcdef", 4<<20/16)
	appendAll(t, st, l, Draft(t, event.Noticed{Text: big}), note(t, 2))
	p, err := event.Decode(Log(t, st, id)[1])
	if err != nil || p.(*event.Noticed).Text != big {
		t.Fatalf("4 MiB payload did not come back: %v", err)
	}
	many := make([]event.Draft, 500)
	for i := range many {
		many[i] = note(t, i)
	}
	appendAll(t, st, l, many...)
	if n := len(Log(t, st, id)); n != 503 {
		t.Fatalf("%d events", n)
	}
}

// testPayloadSurvivesJSON: an event that travels as JSON must keep its hash, whatever form
// its payload was handed over in.
func testPayloadSurvivesJSON(t *testing.T, st store.Store) {
	id := New(t, st, 1)
	l := Lease(t, st, id)
	appendAll(t, st, l,
		event.Draft{Kind: "x", Version: 1, Payload: json.RawMessage("{ \"a\" : \"<b>&\u2028\" ,\n \"n\": 1.0 }")},
		Draft(t, event.EffectIntended{Key: "k", Args: json.RawMessage(`{ "a": "<&>" }`)}),
		Draft(t, event.Noticed{Text: "bad \xff byte, \x1b[31m and \x00"}))
	wire, err := json.Marshal(Log(t, st, id))
	if err != nil {
		t.Fatal(err)
	}
	var back []event.Event
	if err := json.Unmarshal(wire, &back); err != nil {
		t.Fatal(err)
	}
	if err := event.VerifyChain(id, back); err != nil {
		t.Fatal(err)
	}
}

func testReopen(t *testing.T, st store.Store, reopen func(*testing.T, store.Store) store.Store) {
	id := New(t, st, 1)
	l := Lease(t, st, id)
	appendAll(t, st, l, note(t, 1))
	digest, err := st.PutBlob(t.Context(), []byte("kept"))
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Signal(t.Context(), store.Signal{ID: "s", Task: id, Kind: "stop"}); err != nil {
		t.Fatal(err)
	}
	before := Log(t, st, id)
	row, err := st.Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	st = reopen(t, st)
	after := Log(t, st, id)
	if len(after) != len(before) || after[1].Hash != before[1].Hash {
		t.Fatalf("log changed: %+v, was %+v", after, before)
	}
	if again, err := st.Task(t.Context(), id); err != nil || again != row {
		t.Fatalf("row %+v, was %+v, %v", again, row, err)
	}
	if b, err := st.Blob(t.Context(), digest); err != nil || string(b) != "kept" {
		t.Fatalf("blob %q, %v", b, err)
	}
	if s, err := st.Signals(t.Context(), id); err != nil || len(s) != 1 {
		t.Fatalf("signals %+v, %v", s, err)
	}
	appendAll(t, st, l, note(t, 2)) // the lease outlives the process
	Log(t, st, id)
}

func testCorruptEvent(t *testing.T, st store.Store, corrupt func(*testing.T, store.Store, task.ID, int64)) {
	id := New(t, st, 1)
	appendAll(t, st, Lease(t, st, id), note(t, 1), note(t, 2), note(t, 3))
	corrupt(t, st, id, 3)
	events, err := st.Events(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var bad *event.ChainError
	if err := event.VerifyChain(id, events); !errors.As(err, &bad) || bad.Seq != 3 {
		t.Fatalf("changed event 3, found: %v", err)
	}
}

func testCancelled(t *testing.T, st store.Store) {
	id := New(t, st, 1)
	l := Lease(t, st, id)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("told to stop")
	cancel(why)
	if _, err := st.Append(ctx, l, note(t, 1)); !errors.Is(err, why) && !errors.Is(err, context.Canceled) {
		t.Fatalf("append under a cancelled context: %v", err)
	}
	if n := len(Log(t, st, id)); n != 1 {
		t.Fatalf("it was stored: %d events", n)
	}
}

func testSignals(t *testing.T, st store.Store) {
	id, other := New(t, st, 1), New(t, st, 2)
	l := Lease(t, st, id)
	for _, s := range []store.Signal{
		{ID: "b", Task: id, Kind: "steer", Who: "ann", Text: "use UTC"},
		{ID: "a", Task: id, Kind: "stop", Who: "bob"},
		{ID: "c", Task: other, Kind: "stop"},
		{ID: "b", Task: id, Kind: "steer", Who: "ann", Text: "use UTC"}, // delivered twice
	} {
		if err := st.Signal(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	got, err := st.Signals(t.Context(), id)
	if err != nil || len(got) != 2 || got[0].ID != "b" || got[1].ID != "a" {
		t.Fatalf("waiting: %+v, %v", got, err)
	}
	if got[0].Text != "use UTC" || got[0].Who != "ann" || got[0].Kind != "steer" || got[0].Task != id || got[0].At.IsZero() {
		t.Fatalf("signal came back as %+v", got[0])
	}
	_, err = st.TakeSignals(t.Context(), l, []string{"b", "c"}, note(t, 1)) // c is another task's
	wantClass(t, err, task.Conflict)
	_, err = st.TakeSignals(t.Context(), l, []string{"b"}) // by no event
	wantClass(t, err, task.Invalid)
	if n := len(Log(t, st, id)); n != 1 {
		t.Fatalf("a refused take left %d events", n)
	}
	taken, err := st.TakeSignals(t.Context(), l, []string{"b"}, Draft(t, event.Steered{Signal: "b"}))
	if err != nil || len(taken) != 1 || taken[0].Kind != "task.steered" {
		t.Fatalf("%+v, %v", taken, err)
	}
	_, err = st.TakeSignals(t.Context(), l, []string{"b"}, Draft(t, event.Steered{Signal: "b"}))
	wantClass(t, err, task.Conflict)
	if got, err = st.Signals(t.Context(), id); err != nil || len(got) != 1 || got[0].ID != "a" {
		t.Fatalf("still waiting: %+v, %v", got, err)
	}
	// The same delivery once more, after it was taken, must not wake it up.
	if err := st.Signal(t.Context(), store.Signal{ID: "b", Task: id, Kind: "steer"}); err != nil {
		t.Fatal(err)
	}
	if got, err = st.Signals(t.Context(), id); err != nil || len(got) != 1 {
		t.Fatalf("after a redelivery: %+v, %v", got, err)
	}
	wantClass(t, st.Signal(t.Context(), store.Signal{ID: "x", Task: ID(9), Kind: "stop"}), task.NotFound)
	wantClass(t, st.Signal(t.Context(), store.Signal{Task: id, Kind: "stop"}), task.Invalid)
	Log(t, st, id)
}

func testSignalsTakenOnceAtOnce(t *testing.T, st store.Store) {
	id := New(t, st, 1)
	l := Lease(t, st, id)
	if err := st.Signal(t.Context(), store.Signal{ID: "s", Task: id, Kind: "steer"}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var won atomic.Int64
	for range 6 {
		wg.Go(func() {
			if _, err := st.TakeSignals(t.Context(), l, []string{"s"}, note(t, 1)); err == nil {
				won.Add(1)
			} else if task.ClassOf(err) != task.Conflict {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(Log(t, st, id)); won.Load() != 1 || n != 2 {
		t.Fatalf("taken %d times, %d events", won.Load(), n)
	}
}

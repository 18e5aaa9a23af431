// Package storetest owns the suite that every adapter of the store seam passes. It holds the
// seam's contract in tests and knows no engine.
//
// Invariants: a test makes its own store, so that order and parallelism do not matter; time
// comes from the store's clock, so that expiry is tested by short leases that are already
// over, never by waiting.
package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Hooks are what only an adapter can do. A nil hook leaves out the tests that need it.
type Hooks struct {
	// Reopen closes the store and opens the same data again.
	Reopen func(t *testing.T, st store.Store) store.Store
	// CorruptBlob replaces a stored blob's content behind the store's back.
	CorruptBlob func(t *testing.T, st store.Store, digest string)
	// CorruptEvent changes a stored payload behind the store's back.
	CorruptEvent func(t *testing.T, st store.Store, id task.ID, seq int64)
}

// ttl is longer than any test.
const ttl = time.Hour

// Run runs the suite. open returns a new empty store and closes it with the test.
func Run(t *testing.T, open func(t *testing.T) store.Store, hooks ...Hooks) {
	t.Helper()
	var h Hooks
	if len(hooks) > 0 {
		h = hooks[0]
	}
	tests := []struct {
		name string
		run  func(t *testing.T, st store.Store)
	}{
		{"Create", testCreate},
		{"CreateOncePerKey", testCreateOncePerKey},
		{"CreateOncePerKeyAtOnce", testCreateOncePerKeyAtOnce},
		{"CreateRefuses", testCreateRefuses},
		{"Order", testOrder},
		{"NoGapsUnderConcurrency", testNoGapsUnderConcurrency},
		{"StaleLeaseIsFenced", testStaleLeaseIsFenced},
		{"Acquire", testAcquire},
		{"AcquireAtOnce", testAcquireAtOnce},
		{"DeadOwner", testDeadOwner},
		{"DeadOwnerOnce", testDeadOwnerOnce},
		{"Release", testRelease},
		{"Transitions", testTransitions},
		{"BackFromReview", testBackFromReview},
		{"BadDrafts", testBadDrafts},
		{"LargePayload", testLargePayload},
		{"PayloadSurvivesJSON", testPayloadSurvivesJSON},
		{"Blobs", testBlobs},
		{"Texts", testTexts},
		{"Signals", testSignals},
		{"SignalsTakenOnceAtOnce", testSignalsTakenOnceAtOnce},
		{"Filters", testFilters},
		{"NotFound", testNotFound},
		{"Cancelled", testCancelled},
		{"Watch", testWatch},
		{"Update", testUpdate},
		{"Deliveries", testDeliveries},
		{"DeliveriesAreClaimed", testClaims},
		{"Access", testAccess},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, open(t)) })
	}
	if h.Reopen != nil {
		t.Run("Reopen", func(t *testing.T) { testReopen(t, open(t), h.Reopen) })
	}
	if h.CorruptBlob != nil {
		t.Run("CorruptBlob", func(t *testing.T) { testCorruptBlob(t, open(t), h.CorruptBlob) })
	}
	if h.CorruptEvent != nil {
		t.Run("CorruptEvent", func(t *testing.T) { testCorruptEvent(t, open(t), h.CorruptEvent) })
	}
}

// ID makes a valid task id from a number; greater numbers are newer.
func ID(n int) task.ID { return task.ID(fmt.Sprintf("t_01kh%022d", n)) }

// Draft encodes a payload.
func Draft(t testing.TB, p event.Payload) event.Draft {
	t.Helper()
	d, err := event.New(p)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// New creates task n with its first event.
func New(t testing.TB, st store.Store, n int) task.ID {
	t.Helper()
	id := ID(n)
	row := store.Task{ID: id, Key: "key-" + string(id), Repo: "repo", Title: "title"}
	_, created, err := st.Create(t.Context(), row, []event.Draft{Draft(t, event.TaskCreated{Repo: "repo", IssueTitle: "title"})})
	if err != nil || !created {
		t.Fatalf("create %s: created %v, %v", id, created, err)
	}
	return id
}

// Lease takes the task's lease as owner "me".
func Lease(t testing.TB, st store.Store, id task.ID) store.Lease {
	t.Helper()
	l, err := st.Acquire(t.Context(), id, "me", ttl, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Log reads the whole log and checks that it is one chain without gaps whose fold agrees
// with the task's row.
func Log(t testing.TB, st store.Store, id task.ID) []event.Event {
	t.Helper()
	events, err := st.Events(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := event.VerifyChain(id, events); err != nil {
		t.Fatal(err)
	}
	sum, err := event.Fold(events)
	if err != nil {
		t.Fatal(err)
	}
	row, err := st.Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if row.State != sum.State || row.LastSeq != sum.LastSeq {
		t.Fatalf("row says %s at %d, the log folds to %s at %d", row.State, row.LastSeq, sum.State, sum.LastSeq)
	}
	return events
}

func wantClass(t testing.TB, err error, want task.Class) {
	t.Helper()
	if got := task.ClassOf(err); got != want {
		t.Fatalf("error class %q, want %q: %v", got, want, err)
	}
}

func note(t testing.TB, step int) event.Draft {
	return Draft(t, event.Noticed{Step: step, What: "test", Text: fmt.Sprint("note ", step)})
}

func change(t testing.TB, from, to task.State) event.Draft {
	return Draft(t, event.StateChanged{From: from, To: to})
}

func noteStep(t testing.TB, e event.Event) int {
	t.Helper()
	var n event.Noticed
	if err := json.Unmarshal(e.Payload, &n); err != nil {
		t.Fatal(err)
	}
	return n.Step
}

func sha(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

func appendAll(t testing.TB, st store.Store, l store.Lease, drafts ...event.Draft) []event.Event {
	t.Helper()
	got, err := st.Append(context.WithoutCancel(t.Context()), l, drafts...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

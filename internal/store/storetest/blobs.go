package storetest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func testBlobs(t *testing.T, st store.Store) {
	for _, data := range [][]byte{nil, {}, []byte("text"), {0, 0xff, 0, '\''}, bytes.Repeat([]byte{7}, 8<<20)} {
		digest, err := st.PutBlob(t.Context(), data)
		if err != nil || digest != sha(data) {
			t.Fatalf("%d bytes: digest %s, %v", len(data), digest, err)
		}
		if again, err := st.PutBlob(t.Context(), data); err != nil || again != digest {
			t.Fatalf("stored again: %s, %v", again, err)
		}
		got, err := st.Blob(t.Context(), digest)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes came back as %d, %v", len(data), len(got), err)
		}
	}
	_, err := st.Blob(t.Context(), sha([]byte("never stored")))
	wantClass(t, err, task.NotFound)
}

func testCorruptBlob(t *testing.T, st store.Store, corrupt func(*testing.T, store.Store, string)) {
	digest, err := st.PutBlob(t.Context(), []byte("evidence"))
	if err != nil {
		t.Fatal(err)
	}
	corrupt(t, st, digest)
	got, err := st.Blob(t.Context(), digest)
	wantClass(t, err, task.Internal)
	if got != nil || !strings.Contains(err.Error(), digest) {
		t.Fatalf("returned %q, %v", got, err)
	}
}

func testTexts(t *testing.T, st store.Store) {
	for _, tt := range []struct {
		name, text string
		inline     bool
	}{
		{"empty", "", true},
		{"short", "héllo\x1b[31m\x00", true},
		{"limit", strings.Repeat("x", event.InlineLimit), true},
		{"above", strings.Repeat("x", event.InlineLimit+1), false},
		{"not UTF-8", "caf\xe9", false}, // JSON would replace the byte
	} {
		text, err := store.Spill(t.Context(), st, tt.text)
		if err != nil || (text.Blob == "") != tt.inline || text.Bytes != len(tt.text) {
			t.Fatalf("%s: %d bytes, blob %q, %v", tt.name, text.Bytes, text.Blob, err)
		}
		if got, err := store.Load(t.Context(), st, text); err != nil || got != tt.text {
			t.Fatalf("%s: came back as %d bytes, %v", tt.name, len(got), err)
		}
	}
	_, err := store.Load(t.Context(), st, event.Text{Blob: sha([]byte("gone")), Bytes: 4})
	wantClass(t, err, task.NotFound)
}

func testNotFound(t *testing.T, st store.Store) {
	id := ID(404)
	_, err := st.Task(t.Context(), id)
	wantClass(t, err, task.NotFound)
	_, err = st.Acquire(t.Context(), id, "me", ttl, nil)
	wantClass(t, err, task.NotFound)
	_, err = st.Append(t.Context(), store.Lease{Task: id, Epoch: 1, Owner: "me"}, note(t, 1))
	wantClass(t, err, task.NotFound)
	if events, err := st.Events(t.Context(), id, 0, 0); err != nil || len(events) != 0 {
		t.Fatalf("events of no task: %v, %v", events, err)
	}
	if s, err := st.Signals(t.Context(), id); err != nil || len(s) != 0 {
		t.Fatalf("signals of no task: %v, %v", s, err)
	}
}

package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

const testID = task.ID("t_01kh0000000000000000000001")

// testLog seals the payloads into a log of testID, one epoch per three events.
func testLog(t testing.TB, payloads ...Payload) []Event {
	t.Helper()
	var log []Event
	prev := Genesis(testID)
	at := time.Date(2026, 3, 1, 18, 0, 0, 0, time.UTC)
	for i, p := range payloads {
		d, err := New(p)
		if err != nil {
			t.Fatal(err)
		}
		e := Seal(testID, int64(i)+1, int64(i/3), at.Add(time.Duration(i)*time.Second), prev, d)
		prev = e.Hash
		log = append(log, e)
	}
	return log
}

func sevenNotes(t testing.TB) []Event {
	all := []Payload{TaskCreated{Repo: "r"}}
	for i := range 6 {
		all = append(all, Noticed{Step: i, Text: fmt.Sprint("note ", i)})
	}
	return testLog(t, all...)
}

// resealed returns the log with record i changed and its own hash computed anew, as a forger
// who knows the format would.
func resealed(log []Event, i int, change func(*Event)) []Event {
	log = slices.Clone(log)
	change(&log[i])
	log[i].Hash = log[i].computeHash()
	return log
}

func TestVerifyChain_LOG01(t *testing.T) {
	log := sevenNotes(t)
	if err := VerifyChain(testID, log); err != nil {
		t.Fatal(err)
	}
	if err := VerifyChain(testID, nil); err != nil {
		t.Fatal(err)
	}
	flip := func(s string) string { return string(s[0]^1) + s[1:] }
	const i = 3 // the record that is touched: event 4
	fields := map[string]func(*Event){
		"task":     func(e *Event) { e.Task = task.ID(flip(string(e.Task))) },
		"seq":      func(e *Event) { e.Seq ^= 1 },
		"epoch":    func(e *Event) { e.Epoch ^= 1 << 40 },
		"time":     func(e *Event) { e.Time = e.Time.Add(time.Microsecond) },
		"kind":     func(e *Event) { e.Kind = Kind(flip(string(e.Kind))) },
		"version":  func(e *Event) { e.Version ^= 1 },
		"payload":  func(e *Event) { e.Payload = json.RawMessage(flip(string(e.Payload))) },
		"longer":   func(e *Event) { e.Payload = append(slices.Clone(e.Payload), ' ') },
		"shift":    func(e *Event) { e.Kind, e.Payload = e.Kind+"{", e.Payload[1:] }, // same bytes, other frames
		"prev":     func(e *Event) { e.Prev = flip(e.Prev) },
		"hash":     func(e *Event) { e.Hash = flip(e.Hash) },
		"no hash":  func(e *Event) { e.Hash = "" },
		"negative": func(e *Event) { e.Seq = -e.Seq },
	}
	for name, change := range fields {
		t.Run(name, func(t *testing.T) {
			bad := slices.Clone(log)
			change(&bad[i])
			wantBroken(t, bad, i+1)
		})
	}
}

// TestVerifyChainForged_LOG01: recomputing the changed record's own hash moves the break to the
// next record, whose Prev no longer fits, or is found in the record itself.
func TestVerifyChainForged_LOG01(t *testing.T) {
	log := sevenNotes(t)
	other := testLog(t, TaskCreated{Repo: "other"}, Noticed{}, Noticed{}, Noticed{})
	tests := []struct {
		name string
		log  []Event
		seq  int64
	}{
		{"payload", resealed(log, 3, func(e *Event) { e.Payload = json.RawMessage(`{}`) }), 5},
		{"first", resealed(log, 0, func(e *Event) { e.Payload = json.RawMessage(`{}`) }), 2},
		{"prev", resealed(log, 3, func(e *Event) { e.Prev = log[1].Hash }), 4},
		{"old lease", resealed(log, 6, func(e *Event) { e.Epoch = 0 }), 7},
		{"first deleted", log[1:], 1},
		{"deleted", slices.Delete(slices.Clone(log), 3, 4), 4},
		{"inserted", slices.Insert(slices.Clone(log), 3, log[3]), 5},
		{"swapped", append(slices.Clone(log[:3]), log[4], log[3], log[5], log[6]), 4},
		{"forked", append(slices.Clone(log[:3]), other[3]), 4},
		{"of another task", resealed(log, 0, func(e *Event) { e.Task = "t_other"; e.Prev = Genesis("t_other") }), 1},
		{"replayed at the end", append(slices.Clone(log), log[0]), 8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { wantBroken(t, tt.log, tt.seq) })
	}
}

func wantBroken(t *testing.T, log []Event, seq int64) {
	t.Helper()
	err := VerifyChain(testID, log)
	var broken *ChainError
	if !errors.As(err, &broken) || broken.Seq != seq || broken.Task != testID {
		t.Fatalf("first bad record should be %d: %v", seq, err)
	}
	if msg := err.Error(); strings.Contains(msg, "\n") || !strings.Contains(msg, fmt.Sprint("event ", seq)) {
		t.Fatalf("message %q", msg)
	}
}

// TestHashIsStable pins the format: a hash that changes would break every log that exists.
// The two values were computed by another program.
func TestHashIsStable(t *testing.T) {
	const genesis = "023642fa30a9017c18e64cb9783b1a0731d1fb76b28175d2ae3c5f22f727132f"
	const hash = "21e742689a753bc381fcdb320d8ffe5a3a222e3288a4fd9bf1305bfc124c955a"
	if got := Genesis(testID); got != genesis {
		t.Errorf("genesis %s", got)
	}
	d := Draft{Kind: "agent.notice", Version: 1, Payload: json.RawMessage(`{"step":1,"what":"w","text":"t"}`)}
	if got := Seal(testID, 1, 0, time.UnixMicro(1), Genesis(testID), d).Hash; got != hash {
		t.Errorf("hash %s", got)
	}
}

func FuzzVerifyChain(f *testing.F) {
	seed := sevenNotes(f)
	log, err := json.Marshal(seed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(log)
	f.Add([]byte(`[{"seq":1}]`))
	f.Add([]byte(`[{"task":"t","seq":9223372036854775807,"payload":null,"time":"9999-01-01T00:00:00Z"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var events []Event
		if json.Unmarshal(data, &events) != nil {
			return
		}
		err := VerifyChain(testID, events)
		sum, ferr := Fold(events)
		for _, e := range events {
			p, derr := Decode(e)
			if (p == nil) == (derr == nil) {
				t.Fatalf("payload %v and error %v", p, derr)
			}
		}
		if ferr == nil && len(events) > 0 && sum.LastSeq != int64(len(events)) {
			t.Fatalf("folded to %d of %d events", sum.LastSeq, len(events))
		}
		if err != nil || len(events) == 0 {
			return
		}
		// Without breaking SHA-256 the only chains anyone can make are prefixes of the seed.
		for i, e := range events {
			if i >= len(seed) || e.Hash != seed[i].Hash || string(e.Payload) != string(seed[i].Payload) {
				t.Fatalf("a log that nobody wrote verifies: %+v", e)
			}
		}
	})
}

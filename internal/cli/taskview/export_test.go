package taskview

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/sqlite"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// recorded makes a task with texts in blobs, a verdict whose run has a log, an event of a
// later version and a signed checkpoint.
func recorded(t testing.TB) (store.Store, task.ID) {
	t.Helper()
	// One fixed time: the fuzzer's processes must all make the same seed.
	at := time.Date(2026, 3, 1, 18, 0, 0, 0, time.UTC)
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "d.db"), sqlite.Options{Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	spill := func(s string) event.Text {
		text, err := store.Spill(t.Context(), st, s)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	id := storetest.New(t, st, 1)
	l := storetest.Lease(t, st, id)
	log := spill(strings.Repeat("ok\n", 10000))
	doc, err := json.Marshal(task.Verdict{
		Kind:   task.Verified,
		Detail: strings.Repeat("d", event.InlineLimit),
		Phases: []task.PhaseRecord{{Phase: "P3", Runs: []task.RunRecord{{Log: log.Blob}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	big := spill(strings.Repeat("result <&> \x1b[31m", 2000))
	got, err := st.Append(t.Context(), l,
		storetest.Draft(t, event.ToolFinished{Step: 1, Call: "a", Result: big}),
		storetest.Draft(t, event.ToolFinished{Step: 2, Call: "b", Result: big}), // the same blob again
		storetest.Draft(t, event.VerificationFinished{Attempt: 1, Kind: task.Verified, Document: spill(string(doc))}),
		event.Draft{Kind: "from.the.future", Version: 7, Payload: json.RawMessage(`{"deep":[{"blob":"` + spill("caf\xe9").Blob + `"}]}`)},
	)
	if err != nil {
		t.Fatal(err)
	}
	last := got[len(got)-1]
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	if _, err := st.Append(t.Context(), l, storetest.Draft(t, event.SignCheckpoint(key, id, last.Seq, last.Hash))); err != nil {
		t.Fatal(err)
	}
	return st, id
}

func exported(t testing.TB) []string {
	t.Helper()
	st, id := recorded(t)
	var b bytes.Buffer
	if err := Export(t.Context(), st, id, &b); err != nil {
		t.Fatal(err)
	}
	return strings.SplitAfter(strings.TrimSuffix(b.String(), "\n"), "\n")
}

func verify(lines []string) error {
	_, err := VerifyExport(strings.NewReader(strings.Join(lines, "")))
	return err
}

func TestExport(t *testing.T) {
	lines := exported(t)
	if err := verify(lines); err != nil {
		t.Fatal(err)
	}
	types := map[string]int{}
	for _, line := range lines {
		var l exportLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		types[l.Type]++
	}
	if types["export"] != 1 || types["event"] != 6 || types["blob"] != 4 || types["end"] != 1 {
		t.Fatalf("lines by type: %v", types)
	}
	if again := exported(t); !slices.Equal(again, lines) {
		t.Fatal("the same task exports differently")
	}
}

func TestExportRefuses(t *testing.T) {
	st, _ := recorded(t)
	var b bytes.Buffer
	if err := Export(t.Context(), st, storetest.ID(9), &b); task.ClassOf(err) != task.NotFound {
		t.Fatalf("unknown task: %v", err)
	}
	id := storetest.New(t, st, 2)
	gone := event.Text{Blob: strings.Repeat("ab", 32), Bytes: 3}
	if _, err := st.Append(t.Context(), storetest.Lease(t, st, id), storetest.Draft(t, event.ToolFinished{Result: gone})); err != nil {
		t.Fatal(err)
	}
	if err := Export(t.Context(), st, id, &b); task.ClassOf(err) != task.NotFound || !strings.Contains(err.Error(), gone.Blob) {
		t.Fatalf("missing blob: %v", err)
	}
}

// TestVerifyExport_LOG01: each single change to the file is found and named. Lines are: head 1,
// events 2–7, blobs 8–11, end 12.
func TestVerifyExport_LOG01(t *testing.T) {
	lines := exported(t)
	edit := func(i int, old, new string) []string {
		out := slices.Clone(lines)
		out[i] = strings.Replace(out[i], old, new, 1)
		if out[i] == lines[i] {
			t.Fatalf("line %d has no %q: %.200s", i+1, old, lines[i])
		}
		return out
	}
	without := func(i int) []string { return slices.Delete(slices.Clone(lines), i, i+1) }
	for _, tt := range []struct {
		name  string
		lines []string
		says  string
	}{
		{"payload changed", edit(2, `"call":"a"`, `"call":"x"`), "event 2: its content was changed"},
		{"event dropped", without(3), "event 3"},
		{"last event dropped", without(6), "not whole"},
		{"events swapped", append(append(slices.Clone(lines[:2]), lines[3], lines[2]), lines[4:]...), "event 2"},
		{"other task in the head", edit(0, "t_01kh", "t_01kj"), "event 1: it belongs to task"},
		{"blob changed", edit(8, `"data":"`, `"data":"AAAA`), "line 9"},
		{"blob dropped", without(9), "is missing"},
		{"log of a run dropped", without(slices.IndexFunc(lines, func(s string) bool { return strings.Contains(s, `"data":"b2sK`) })), "is missing"},
		{"blob doubled", slices.Insert(slices.Clone(lines), 9, lines[8]), "line 10"},
		{"foreign blob", slices.Insert(slices.Clone(lines), 7, `{"type":"blob","digest":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}`+"\n"), "belong to no event"},
		{"event after a blob", slices.Insert(slices.Clone(lines), 9, lines[3]), "line 10"},
		{"end dropped", lines[:11], "cut off"},
		{"line cut", append(slices.Clone(lines[:11]), lines[11][:20]), "line 12 of the export: it is not JSON"},
		{"end counts other events", edit(11, `"events":6`, `"events":7`), "not whole"},
		{"something after the end", append(slices.Clone(lines), "\n", lines[1]), "line 13"},
		{"no head", lines[1:], "line 1"},
		{"two heads", slices.Insert(slices.Clone(lines), 1, lines[0]), "line 2"},
		{"newer format", edit(0, `"version":1`, `"version":2`), "line 1"},
		{"unknown line", slices.Insert(slices.Clone(lines), 1, `{"type":"script"}`+"\n"), "line 2"},
		{"empty", nil, "empty"},
		{"no events", []string{lines[0], `{"type":"end"}`}, "has no events"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := verify(tt.lines)
			if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("want %q: %v", tt.says, err)
			}
			var broken *event.ChainError
			if strings.HasPrefix(tt.says, "event") != errors.As(err, &broken) {
				t.Fatalf("a broken chain and nothing else is a ChainError: %v", err)
			}
		})
	}
}

// TestVerifyExportCheckpoint_LOG01_LOG05: a log that was rewritten as a whole no longer fits the
// checkpoint inside it.
func TestVerifyExportCheckpoint_LOG01_LOG05(t *testing.T) {
	st, _ := recorded(t)
	id := storetest.New(t, st, 2)
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	c := event.SignCheckpoint(key, id, 1, strings.Repeat("0", 64))
	if _, err := st.Append(t.Context(), storetest.Lease(t, st, id), storetest.Draft(t, c)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Export(t.Context(), st, id, &b); err != nil {
		t.Fatal(err)
	}
	if _, err := VerifyExport(&b); err == nil || !strings.Contains(err.Error(), "event 1: it is not the record that the checkpoint signed") {
		t.Fatal(err)
	}
}

func FuzzVerifyExport(f *testing.F) {
	lines := exported(f)
	f.Add([]byte(strings.Join(lines, "")))
	f.Add([]byte(strings.Join(lines[:3], "")))
	f.Add([]byte(`{"type":"export","version":1,"task":"t_01kh0000000000000000000001"}` + "\n" + `{"type":"end"}`))
	root := lines[len(lines)-1]
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := VerifyExport(bytes.NewReader(data)); err != nil {
			return
		}
		// Nobody can make another log: what verifies is this export.
		var end exportLine
		text := strings.Split(strings.TrimSpace(string(data)), "\n")
		if err := json.Unmarshal([]byte(text[len(text)-1]), &end); err != nil {
			t.Fatal(err)
		}
		if end.Root == "" || !strings.Contains(root, end.Root) {
			t.Fatalf("another log verifies: %.300s", data)
		}
	})
}

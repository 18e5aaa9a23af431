package replay

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/model"
)

func normal() *normaliser { return &normaliser{Rules(), map[string]int{}} }

func TestWhatMayDiffer(t *testing.T) {
	for _, c := range []struct{ rule, a, b string }{
		{"duration", "exit code 0 · 0.03 s · 3 lines", "exit code 0 · 12 s · 3 lines"},
		{"duration", "ok  \tshop/cart\t0.004s", "ok  \tshop/cart\t1.204s"},
		{"duration", "Ran 3 tests in 0.001s", "Ran 3 tests in 1m2.5s"},
		{"duration", "# duration_ms 12.25", "# duration_ms 9"},
		{"duration", `<testcase name="a" time="0.011" />`, `<testcase name="a" time="0.2" />`},
		{"duration", "1 failed in 5.02s", "1 failed in 65.02s (0:01:05)"},
		{"temporary path", "open /tmp/go-build123456/b001/x.go", "open /tmp/go-build99/b001/x.go"},
		{"process number", "process 12 is running", "process 7 is running"},
		{"process number", "goroutine 18 [running]:", "goroutine 7 [running]:"},
		{"address", "panic at 0xc000012345", "panic at 0xc0000ff000"},
		{"clock time", "2026-11-30T03:54:02.1Z start", "2027-01-02T13:04:02Z start"},
		{"clock time", "-rw-r--r-- 1 u u 12 Nov 30 03:54 a", "-rw-r--r-- 1 u u 12 Jan  2 13:04 a"},
		{"frame mark", "<result-0123456789abcdef>", "<result-fedcba9876543210>"},
	} {
		n := normal()
		if diff, ok := n.equal(c.a, c.b); !ok || n.used[c.rule] != 1 || len(n.used) != 1 {
			t.Errorf("%q and %q: equal %v by %v, want by %s: %s", c.a, c.b, ok, n.used, c.rule, diff)
		}
	}
}

// A ruler is as long as the time that stands in it leaves room for.
func TestRuler(t *testing.T) {
	n := normal()
	if diff, ok := n.equal("======= 1 failed in 0.02s =======", "====== 1 failed in 12.02s ======"); !ok || n.used["ruler"] != 1 || n.used["duration"] != 1 {
		t.Errorf("%v %s", n.used, diff)
	}
}

func TestWhatMayNotDiffer(t *testing.T) {
	for _, c := range [][2]string{
		{"exit code 0 · 0.03 s · 3 lines", "exit code 0 · 0.03 s · 4 lines"},
		{"3 passed in 0.1s", "2 passed in 0.1s"},
		{"a---b", "a--b"},
		{"got 32.61, want 35.58", "got 32.62, want 35.58"},
		{"net(5, 8) = -3", "net(5, 8) = 0"},
		{"version 1.2.3", "version 1.2.4"},
		{"/workspace/a1", "/workspace/a2"},
		{"commit 0123456789abcdef", "commit 0123456789abcdee"},
		{"a\n", "a"},
	} {
		if _, ok := normal().equal(c[0], c[1]); ok {
			t.Errorf("%q and %q pass for equal", c[0], c[1])
		}
	}
}

func TestShortDiff(t *testing.T) {
	long := strings.Repeat("x", 500)
	for _, c := range [][3]string{
		{"a\nb\nc", "a\nB\nc", "  a\n- b\n+ B\n"},
		{"a", "a\nb", "  a\n+ b\n"},
		{"", "", ""},
		{long + "1", long + "2", "- …" + strings.Repeat("x", 66) + "1\n+ …" + strings.Repeat("x", 66) + "2\n"},
		{strings.Repeat("o\n", 20), "", "- o\n- o\n- o\n- o\n- o\n- o\n- o\n- o\n- … 12 more lines\n"},
	} {
		if got := shortDiff(c[0], c[1]); got != c[2] {
			t.Errorf("%.20q, %.20q: %q, want %q", c[0], c[1], got, c[2])
		}
	}
}

// A request whose results differ only in what may differ has the recorded digest, and one whose
// results differ otherwise has not.
func TestAlike(t *testing.T) {
	request := func(result string) model.Request {
		return model.Request{System: "s", MaxOutput: 1, Messages: []model.Message{
			{Role: model.User, Blocks: []model.Block{{Type: model.TextBlock, Text: "issue"}}},
			{Role: model.Assistant, Blocks: []model.Block{{Type: model.ToolUseBlock, ID: "c", Name: "run", Input: json.RawMessage(`{}`)}}},
			{Role: model.User, Blocks: []model.Block{{Type: model.ToolResultBlock, ID: "c", Text: result}}},
		}}
	}
	sum := func(r model.Request) string {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return digest(b)
	}
	recorded := request("ok 0.1s")
	now := request("ok 0.2s")
	if sum(alike(normal(), now, recorded, false)) != sum(recorded) {
		t.Error("a wall time makes another request")
	}
	if now.Messages[2].Blocks[0].Text != "ok 0.2s" {
		t.Error("the request itself was changed")
	}
	if sum(alike(normal(), request("FAIL 0.1s"), recorded, false)) == sum(recorded) {
		t.Error("another result makes the same request")
	}
	now.System, now.Messages[0].Blocks[0].Text = "other", "other"
	if sum(alike(normal(), now, recorded, false)) == sum(recorded) {
		t.Error("another prompt makes the same request")
	}
	if sum(alike(normal(), now, recorded, true)) != sum(recorded) {
		t.Error("a prompt that is passed over makes another request")
	}
}

func logOf(t *testing.T, ps ...event.Payload) *record {
	t.Helper()
	var events []event.Event
	for i, p := range append([]event.Payload{event.TaskCreated{Model: "m/m"}}, ps...) {
		d, err := event.New(p)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, event.Event{Task: "t_1", Seq: int64(i) + 1, Kind: d.Kind, Version: d.Version, Payload: d.Payload})
	}
	log, err := read(Record{Events: events})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func TestAttempts(t *testing.T) {
	log := logOf(t,
		event.RunStarted{},                                // 2: nothing came of it
		event.RunStarted{}, event.ModelRequested{Step: 1}, // 3, 4
		event.RunStarted{}, event.ToolFinished{}, // 5, 6
		event.RunStarted{}, event.EffectIntended{}, // 7, 8: published
	)
	for to, want := range map[int64][]attempt{0: {{2, 4}, {4, 6}}, 1: {{2, 4}}, 4: {{2, 4}}, 5: {{4, 6}}, 8: {{4, 6}}} {
		got := log.attempts(to)
		if len(got) != len(want) {
			t.Errorf("to %d: %v, want %v", to, got, want)
			continue
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("to %d: %v, want %v", to, got, want)
			}
		}
	}
}

// Whatever two texts hold, equal ones are equal, comparing is even-handed, and a difference has a
// diff to show.
func FuzzEqual(f *testing.F) {
	f.Add("exit code 0 · 0.03 s", "exit code 0 · 3 s")
	f.Add("a\n\xff0x12345", "2026-11-30T03:54:02Z /tmp/a1")
	f.Fuzz(func(t *testing.T, a, b string) {
		if _, ok := normal().equal(a, a); !ok {
			t.Fatal("a text differs from itself")
		}
		diff, ok := normal().equal(a, b)
		if _, back := normal().equal(b, a); ok != back {
			t.Fatal("it depends on the order")
		}
		if ok != (diff == "") {
			t.Fatalf("equal %v of %q and %q, diff %q", ok, a, b, diff)
		}
	})
}

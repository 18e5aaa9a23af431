package story

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// written is a log of the given events, a second apart.
func written(t *testing.T, ps ...event.Payload) []event.Event {
	t.Helper()
	const id = task.ID("t_01kh0000000000000000000001")
	at := time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC)
	prev := event.Genesis(id)
	var out []event.Event
	for i, p := range ps {
		d, err := event.New(p)
		if err != nil {
			t.Fatal(err)
		}
		e := event.Seal(id, int64(i)+1, 1, at.Add(time.Duration(i)*time.Second), prev, d)
		prev = e.Hash
		out = append(out, e)
	}
	return out
}

func a(s string) event.Text { return event.Text{Inline: s, Bytes: len(s)} }

// TestFold: calls find their step and their result, also in a later run; what is beside the steps
// stands between them; nothing is left out.
func TestFold(t *testing.T) {
	exit := 2
	log := written(t,
		event.TaskCreated{Repo: "r"},                                                                              // 1
		event.StateChanged{From: task.Queued, To: task.Preparing},                                                 // 2
		event.StateChanged{From: task.Preparing, To: task.Working},                                                // 3
		event.ModelRequested{Step: 1},                                                                             // 4
		event.ModelResponded{Step: 1, Message: a(`{"blocks":[{"type":"text","text":"hi"}]}`), Cost: 5},            // 5
		event.ToolStarted{Step: 1, Call: "x", Name: "run", Args: a(`{"command":"ls"}`)},                           // 6
		event.NetworkRefused{Purpose: "agent", Reason: "origin"},                                                  // 7
		event.ToolFinished{Step: 1, Call: "x", Name: "run", ExitCode: &exit},                                      // 8
		event.ToolStarted{Step: 1, Call: "y", Name: "read"},                                                       // 9
		event.RunStarted{Worker: "w", Resumed: true},                                                              // 10
		event.ToolFinished{Step: 1, Call: "y", Name: "read", Interrupted: true},                                   // 11
		event.ModelRequested{Step: 2},                                                                             // 12
		event.ModelFailed{Step: 2, Error: "no", Attempts: 3},                                                      // 13
		event.Steered{Signal: "s", Who: "olga", Text: a("x")},                                                     // 14
		event.NetworkAsked{Purpose: "agent", New: true, Names: []event.NetworkName{{Ecosystem: "go", Name: "m"}}}, // 15
	)
	s, err := Fold(log)
	if err != nil {
		t.Fatal(err)
	}
	var got [][2]int64
	for _, it := range s.Items {
		got = append(got, [2]int64{it.Seq, it.Last})
	}
	if want := [][2]int64{{2, 2}, {3, 3}, {4, 11}, {7, 7}, {10, 10}, {12, 13}, {14, 14}, {15, 15}}; !slices.Equal(got, want) {
		t.Fatalf("items (first, newest) %v, want %v", got, want)
	}
	calls := s.Items[2].Step.Calls
	if w0, ok0 := calls[0].Outcome(); w0 != "exit 2" || ok0 {
		t.Errorf("first call %q %v", w0, ok0)
	}
	if w1, ok1 := calls[1].Outcome(); w1 != "interrupted" || ok1 || calls[1].Ended != 11 {
		t.Errorf("second call %q %v, ended at %d", w1, ok1, calls[1].Ended)
	}
	if s.Items[5].Step.Failed == nil {
		t.Error("the failed call is lost")
	}
	if n := len(s.Stages); n != 3 || s.Stages[1].Open || !s.Stages[2].Open || s.Stages[2].Steps != 2 || s.Stages[2].To != log[14].Time {
		t.Errorf("stages %+v", s.Stages)
	}
	one := New()
	for _, e := range log {
		if err := one.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(one.Items, s.Items) || !reflect.DeepEqual(one.Stages, s.Stages) {
		t.Error("one by one folds to something else")
	}
	if err := one.Apply(log[3]); err == nil {
		t.Error("an event was applied twice")
	}
}

// TestEveryKindHasWords: no kind that this build knows is shown as its bare name, unless it belongs
// to a step or to the head of a page.
func TestEveryKindHasWords(t *testing.T) {
	inSteps := []event.Kind{"task.created", "prompt.frozen", "model.request", "model.response", "model.failed", "tool.started", "tool.finished", "run.clocked"}
	src, err := os.ReadFile("../event/codec.go")
	if err != nil {
		t.Fatal(err)
	}
	kinds := regexp.MustCompile(`(?m)^\tcase "([a-z_.]+)":$`).FindAllStringSubmatch(string(src), -1)
	if len(kinds) < 40 {
		t.Fatalf("only %d kinds were found", len(kinds))
	}
	for _, m := range kinds {
		k := event.Kind(m[1])
		p, err := event.Decode(event.Event{Kind: k, Version: event.Current, Payload: []byte("{}")})
		if err != nil {
			t.Fatal(err)
		}
		if l := Say(p); (l.Text == string(k) || l.What == "event") != slices.Contains(inSteps, k) {
			t.Errorf("%s is told as %+v", k, l)
		}
	}
	if l := Say(event.Unknown{Kind: "from.the.future", Raw: []byte(`{"a":1}`)}); l.Text != "from.the.future (not known to this version)" || l.Body.Inline != `{"a":1}` {
		t.Errorf("an unknown kind: %+v", l)
	}
}

func TestSaid(t *testing.T) {
	text, thinking := Said(`{"role":"assistant","blocks":[{"type":"thinking","text":"hm"},{"type":"text","text":"\na\n"},{"type":"tool_use","name":"x"},{"type":"text","text":"b"}]}`)
	if text != "a\n\nb" || thinking != "hm" {
		t.Errorf("%q %q", text, thinking)
	}
	if text, _ := Said("not JSON"); text != "" {
		t.Errorf("%q", text)
	}
}

func TestArgument(t *testing.T) {
	for in, want := range map[string]string{
		`{"command":"ls","cwd":"x"}`: "ls", `{"tests":["a","b"]}`: "a b", `{"path":"p","old":"q"}`: "p", `{}`: "", `{"other":1}`: `{"other":1}`, "no": "no", "": "",
	} {
		if got := Argument(a(in)); got != want {
			t.Errorf("%s: %q", in, got)
		}
	}
	if got := Argument(event.Text{Blob: "ab", Bytes: 20_000}); got != "(20,000 bytes)" {
		t.Errorf("%q", got)
	}
}

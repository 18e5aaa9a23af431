package action

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const id = task.ID("t_0123456789abcdefghjkmnpqrs")

var errDisk = errors.New("disk full")

// memory is a log in memory with the real fold. It fails the appends whose number is in fail.
type memory struct {
	t      *testing.T
	events []event.Event
	fail   []int
	calls  int
	lost   error // what Held says
}

func newMemory(t *testing.T, fail ...int) *memory {
	m := &memory{t: t}
	if _, err := m.Append(t.Context(), event.TaskCreated{}); err != nil {
		t.Fatal(err)
	}
	m.calls, m.fail = 0, fail
	return m
}

func (m *memory) Append(ctx context.Context, ps ...event.Payload) ([]event.Event, error) {
	m.calls++
	if slices.Contains(m.fail, m.calls) {
		return nil, errDisk
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	prev := event.Genesis(id)
	if n := len(m.events); n > 0 {
		prev = m.events[n-1].Hash
	}
	for _, p := range ps {
		d, err := event.New(p)
		if err != nil {
			m.t.Fatal(err)
		}
		e := event.Seal(id, int64(len(m.events))+1, 1, time.Unix(1, 0), prev, d)
		prev = e.Hash
		m.events = append(m.events, e)
	}
	return nil, nil
}

func (m *memory) Held(context.Context) error { return m.lost }

func (m *memory) Summary() event.Summary {
	s, err := event.Fold(m.events)
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

func (m *memory) kinds() []string {
	var k []string
	for _, e := range m.events[1:] {
		k = append(k, string(e.Kind))
	}
	return k
}

// world is where effects happen.
type world struct {
	done, looked int
	err          error
}

type result struct{ URL string }

func (w *world) find(context.Context) (result, bool, error) {
	w.looked++
	if w.done > 0 {
		return result{"found"}, true, nil
	}
	return result{}, false, nil
}

func (w *world) do(context.Context) (result, error) {
	if w.err != nil {
		return result{}, w.err
	}
	w.done++
	return result{fmt.Sprintf("made %d", w.done)}, nil
}

func run(m *memory, w *world) (result, error) {
	return Do(m.t.Context(), m, "pr:1", "pull_request", map[string]int{"n": 1}, w.find, w.do)
}

func TestDoneOnceThenTakenFromTheLog(t *testing.T) {
	m, w := newMemory(t), &world{}
	for range 3 {
		if got, err := run(m, w); err != nil || got.URL != "made 1" {
			t.Fatal(got, err)
		}
	}
	if w.done != 1 || w.looked != 0 {
		t.Errorf("%+v", w)
	}
	if got := m.kinds(); !slices.Equal(got, []string{"effect.intended", "effect.done"}) {
		t.Errorf("%v", got)
	}
}

func TestNothingIsDoneWithoutARecordedIntent(t *testing.T) {
	m, w := newMemory(t, 1), &world{}
	if _, err := run(m, w); !errors.Is(err, errDisk) {
		t.Errorf("%v", err)
	}
	if w.done != 0 || w.looked != 0 {
		t.Errorf("%+v", w)
	}
}

// A crash after each record of a run: the next run must end with one effect.
func TestCrashAtEveryPointLeadsToOneEffect(t *testing.T) {
	for _, c := range []struct {
		name     string
		happened bool // the effect did, before the crash
		keep     int  // records that survived
		looked   int
		want     string
	}{
		{"before the intent", false, 0, 0, "made 1"},
		{"after the intent", false, 1, 1, "made 1"},
		{"after the effect", true, 1, 1, "found"},
		{"after the record of the end", true, 2, 0, "made 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			whole := newMemory(t)
			if _, err := run(whole, &world{}); err != nil {
				t.Fatal(err)
			}
			m, w := newMemory(t), &world{}
			m.events = whole.events[:1+c.keep]
			if c.happened {
				w.done = 1
			}
			got, err := run(m, w)
			if err != nil || got.URL != c.want || w.done != 1 || w.looked != c.looked {
				t.Errorf("got %v %v, world %+v", got, err, w)
			}
			if e := m.Summary().Effects["pr:1"]; e.Done == nil || e.Done.Found != (c.want == "found") {
				t.Errorf("recorded %+v", e.Done)
			}
		})
	}
}

func TestEffectThatCouldNotBeRecordedIsFoundLater(t *testing.T) {
	m, w := newMemory(t, 2), &world{}
	if _, err := run(m, w); !errors.Is(err, errDisk) {
		t.Fatal(err)
	}
	if got, err := run(m, w); err != nil || got.URL != "found" || w.done != 1 {
		t.Errorf("%v %v %+v", got, err, w)
	}
}

func TestFailureIsRecordedAndTriedAgain(t *testing.T) {
	m, w := newMemory(t), &world{err: &task.Error{Class: task.Transient, Msg: "cut off"}}
	if _, err := run(m, w); task.ClassOf(err) != task.Transient {
		t.Fatal(err)
	}
	if d := m.Summary().Effects["pr:1"].Done; d == nil || d.Error != "cut off" {
		t.Fatalf("%+v", d)
	}
	w.err = nil
	if got, err := run(m, w); err != nil || got.URL != "made 1" || w.looked != 1 {
		t.Errorf("%v %v %+v", got, err, w)
	}
}

func TestCancelledEffectIsStillRecorded(t *testing.T) {
	m := newMemory(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Do(ctx, m, "k", "push", 1, (&world{}).find, func(context.Context) (result, error) {
		cancel()
		return result{}, ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || m.Summary().Effects["k"].Done == nil {
		t.Errorf("%v %v", err, m.kinds())
	}
}

func TestFindThatFailsDoesNothing(t *testing.T) {
	m, w := newMemory(t, 2), &world{}
	_, _ = run(m, w)
	bad := errors.New("forge is down")
	_, err := Do(t.Context(), m, "pr:1", "pull_request", map[string]int{"n": 1}, func(context.Context) (result, bool, error) { return result{}, false, bad }, w.do)
	if !errors.Is(err, bad) || w.done != 1 {
		t.Errorf("%v %+v", err, w)
	}
}

// A worker that was stopped after it recorded its intent, and goes on when the task is
// another's, does nothing.
func TestNothingIsDoneUnderALostLease(t *testing.T) {
	m, w := newMemory(t), &world{}
	m.lost = &task.Error{Class: task.Stale, Msg: "lost"}
	if _, err := run(m, w); task.ClassOf(err) != task.Stale || w.done != 0 {
		t.Fatalf("%v, %+v", err, w)
	}
	m.lost = nil
	if got, err := run(m, w); err != nil || got.URL != "made 1" || w.looked != 1 {
		t.Fatalf("%v %v %+v", got, err, w)
	}
}

func TestOneKeyIsOneEffect(t *testing.T) {
	m, w := newMemory(t), &world{}
	if _, err := run(m, w); err != nil {
		t.Fatal(err)
	}
	_, err := Do(t.Context(), m, "pr:1", "pull_request", map[string]int{"n": 2}, w.find, w.do)
	if task.ClassOf(err) != task.Internal || w.done != 1 {
		t.Errorf("%v", err)
	}
}

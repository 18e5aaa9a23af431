package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/notify"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// hook is a sender that fails as it is told to.
type hook struct {
	fail  []error // one a try; then it works
	tries int
	got   []notify.Note
	see   func() // what it does while it sends
}

func (h *hook) Name() string { return "webhook" }

func (h *hook) Send(_ context.Context, n notify.Note) error {
	h.tries++
	if h.see != nil {
		h.see()
	}
	if h.tries <= len(h.fail) {
		return h.fail[h.tries-1]
	}
	h.got = append(h.got, n)
	return nil
}

func (r *rig) tells(h *hook) (pauses *[]time.Duration) {
	pauses = new([]time.Duration)
	r.cfg.Notify = Notify{
		Senders: []notify.Sender{h}, On: []notify.About{notify.PullRequest, notify.Waiting, notify.Exhausted},
		Page: func(id task.ID) string { return "https://daybreak.example/tasks/" + string(id) },
		Pause: func(_ context.Context, d time.Duration) bool {
			*pauses = append(*pauses, d)
			return true
		},
	}
	return pauses
}

func (r *rig) effects(t *testing.T) (intended, done, failed int) {
	t.Helper()
	events, err := r.cfg.Store.Events(t.Context(), r.id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		switch p, _ := event.Decode(e); p := p.(type) {
		case *event.EffectIntended:
			if p.Kind == "notify" {
				intended++
			}
		case *event.EffectDone:
			if p.Kind == "notify" && p.Error != "" {
				failed++
			} else if p.Kind == "notify" {
				done++
			}
		}
	}
	return intended, done, failed
}

// A change that waits, and then its pull request, is told once each, with its intent on record
// before, however often the task is run.
func TestTell(t *testing.T) {
	r := newRig(t, task.Limits{Wall: time.Hour})
	h := &hook{}
	r.tells(h)
	h.see = func() {
		if intended, done, _ := r.effects(t); intended != done+1 {
			t.Errorf("sent with %d intents and %d ends on record", intended, done)
		}
	}
	r.cfg.Hold = true
	r.verified(t)
	r.record(t, event.StateChanged{From: task.Verifying, To: task.Publishing})
	r.release(t)
	for range 2 {
		if _, err := r.Run(t.Context(), r.id); !errors.Is(err, ErrHeld) {
			t.Fatal(err)
		}
	}
	if len(h.got) != 1 || h.got[0].About != notify.Waiting || !strings.Contains(h.got[0].Fact, "1 files waits for an approval") || h.got[0].Page != "https://daybreak.example/tasks/"+string(r.id) {
		t.Fatalf("%+v", h.got)
	}
	sum, err := r.fold(t), error(nil)
	r.word(t, store.Approve, sum.Held.Tree)
	for range 2 {
		if sum, err = r.Run(t.Context(), r.id); err != nil || sum.State != task.InReview {
			t.Fatalf("%s, %v", sum.State, err)
		}
	}
	if len(h.got) != 2 || h.got[1].About != notify.PullRequest || h.got[1].Link != sum.PullRequest.URL || h.got[1].Key == h.got[0].Key {
		t.Fatalf("%+v", h.got)
	}
}

// A question is told of once, without its words, and a budget that ran out each time it does.
func TestTellOfQuestionsAndBudgets(t *testing.T) {
	r := newRig(t, task.Limits{Wall: time.Hour})
	h := &hook{}
	r.tells(h)
	r.asked(t, time.Date(2100, 1, 2, 3, 4, 0, 0, time.UTC))
	for range 2 {
		if _, err := r.Run(t.Context(), r.id); !errors.Is(err, ErrParked) {
			t.Fatal(err)
		}
	}
	if len(h.got) != 1 || h.got[0].Fact != "the agent has a question, open until 2100-01-02 03:04 UTC" || h.got[0].Key != "question:1" {
		t.Errorf("%+v", h.got)
	}

	r = newRig(t, task.Limits{Wall: time.Minute, Cost: 2_000_000})
	h = &hook{}
	r.tells(h)
	r.record(t, event.StateChanged{From: task.Queued, To: task.Preparing}, event.WallClocked{Elapsed: time.Minute})
	r.release(t)
	sum, err := r.Run(t.Context(), r.id)
	if err != nil || sum.State != task.Exhausted || len(h.got) != 1 || h.got[0].About != notify.Exhausted || h.got[0].Fact != "the budget is used up, 1m0s of 1m0s" {
		t.Errorf("%s %v: %+v", sum.State, err, h.got)
	}
}

// What can be tried again is, after as long as the other side asks for; what fails is recorded,
// stops nothing, and is tried again by the next run.
func TestTellFails(t *testing.T) {
	r := newRig(t, task.Limits{Wall: time.Hour})
	h := &hook{fail: []error{
		&task.Error{Class: task.RateLimited, Msg: "slowly", RetryAfter: 3 * time.Second}, &task.Error{Class: task.Transient, Msg: "away"},
		&task.Error{Class: task.Overloaded, Msg: "busy"}, &task.Error{Class: task.Auth, Msg: "who are you"},
	}}
	pauses := r.tells(h)
	r.cfg.Hold = true
	r.verified(t)
	r.record(t, event.StateChanged{From: task.Verifying, To: task.Publishing})
	r.release(t)
	run := func(tries, intended, done, failed int) {
		t.Helper()
		if _, err := r.Run(t.Context(), r.id); !errors.Is(err, ErrHeld) {
			t.Fatalf("a note stopped the task: %v", err)
		}
		if i, d, f := r.effects(t); h.tries != tries || i != intended || d != done || f != failed {
			t.Errorf("%d tries, %d intended, %d done, %d failed; want %d, %d, %d, %d", h.tries, i, d, f, tries, intended, done, failed)
		}
	}
	run(3, 1, 0, 1) // three tries
	run(4, 1, 0, 2) // refused for good: one
	run(5, 1, 1, 2)
	run(5, 1, 1, 2)
	if len(*pauses) != 2 || (*pauses)[0] != 3*time.Second || (*pauses)[1] != 2*time.Second {
		t.Errorf("pauses %v", *pauses)
	}
}

// A worker that died while it told somebody may have been heard: the next one does not say it
// again.
func TestTellAfterACrash(t *testing.T) {
	r := newRig(t, task.Limits{Wall: time.Hour})
	h := &hook{}
	r.tells(h)
	r.cfg.Hold = true
	r.verified(t)
	r.record(t, event.StateChanged{From: task.Verifying, To: task.Publishing})
	sum := r.fold(t)
	r.record(t, event.EffectIntended{Key: "notify:webhook:held:" + sum.Exported.Tree, Kind: "notify", Args: []byte(`{"about":"waiting","to":"webhook"}`)})
	r.release(t)
	if _, err := r.Run(t.Context(), r.id); !errors.Is(err, ErrHeld) {
		t.Fatal(err)
	}
	if i, d, _ := r.effects(t); h.tries != 0 || i != 1 || d != 1 {
		t.Errorf("%d tries, %d intended, %d done", h.tries, i, d)
	}
}

// Nothing is said of what nobody wants to hear of, nor of a task that was over before.
func TestTellOnlyWhatIsWanted(t *testing.T) {
	r := newRig(t, task.Limits{Wall: time.Hour})
	h := &hook{}
	r.tells(h)
	r.cfg.Notify.On = []notify.About{notify.PullRequest}
	r.cfg.Hold = true
	r.verified(t)
	r.release(t)
	if _, err := r.Run(t.Context(), r.id); !errors.Is(err, ErrHeld) || h.tries != 0 {
		t.Errorf("%d tries, %v", h.tries, err)
	}
	r.word(t, store.Stop, "no")
	for range 2 {
		if sum, err := r.Run(t.Context(), r.id); err != nil || sum.State != task.Stopped || h.tries != 0 {
			t.Errorf("%d tries, %s, %v", h.tries, sum.State, err)
		}
	}
}

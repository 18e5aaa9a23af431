package intake

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/store"
)

// slowly makes the forge wait, and returns what it is asked for and what lets it go on.
func (l *lab) slowly() (asking <-chan int, goOn func()) {
	c, slow := make(chan int, 10), make(chan struct{})
	l.town.asking, l.town.slow = c, slow
	return c, func() { close(slow) }
}

// kept puts a delivery into the store, as the hook does.
func (l *lab) kept(d forge.Delivery) {
	l.t.Helper()
	b, err := json.Marshal(d)
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.st.Deliver(l.t.Context(), store.Delivery{Forge: d.Forge, ID: d.ID, Repository: d.Repository, Body: b}); err != nil {
		l.t.Fatal(err)
	}
}

// TestTwoProcesses: of two processes on one store one acts on a delivery, however long the forge
// takes; when it is gone, the other does.
func TestTwoProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.real, l.now = true, time.Now()
		l.issue(1, "text")
		l.kept(l.labelled(1, "wanda"))
		asking, goOn := l.slowly()
		cfg := l.cfg
		cfg.Owner = "other"
		other := New(cfg)
		ctx, die := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Work(ctx) }()
		<-asking
		for range 10 { // the one that works is alive
			time.Sleep(claimFor / 2)
			if err := other.Work(t.Context()); err != nil || len(asking) != 0 {
				t.Fatalf("both act on one delivery: %v", err)
			}
		}
		die()
		if err := <-ended; err == nil {
			t.Error("it ended without a reason")
		}
		go func() { ended <- other.Work(t.Context()) }()
		<-asking // at once: what ends in order gives up what it has
		goOn()
		if err := <-ended; err != nil || len(l.made) != 1 {
			t.Errorf("%d tasks, %v", len(l.made), err)
		}
	})
}

// TestTakenOver: a process that cannot say that it lives stops what it does before another one begins.
func TestTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.real, l.now = true, time.Now()
		l.issue(1, "text")
		l.kept(l.labelled(1, "wanda"))
		asking, goOn := l.slowly()
		cfg := l.cfg
		cfg.Store, cfg.Owner = mute{l.st}, "mute"
		first := New(cfg)
		ended := make(chan error)
		go func() { ended <- first.hand(t.Context(), "town") }()
		<-asking
		time.Sleep(claimFor)
		<-asking // it takes the same one up again, which nobody else did
		go func() { ended <- l.Work(t.Context()) }()
		synctest.Wait()
		if len(asking) != 0 {
			t.Error("both act on one delivery")
		}
		goOn()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil || len(l.made) != 1 {
			t.Errorf("%d tasks, %v", len(l.made), err)
		}
	})
}

// mute is a store that hears no sign of life.
type mute struct{ *spy }

func (m mute) Hold(context.Context, store.Delivery, time.Duration) error {
	return fmt.Errorf("the store does not answer")
}

// TestSlowForge: what one forge takes long to say delays no other forge and no other repository;
// of one repository everything is acted on in order.
func TestSlowForge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.real, l.now = true, time.Now()
		fast := &town{}
		l.cfg.Hosts["fast"] = Host{Host: fast}
		for n := range 3 {
			l.issue(n, "text")
			l.kept(l.labelled(n, "wanda"))
		}
		asking, goOn := l.slowly()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		if n := <-asking; n != 0 {
			t.Errorf("issue %d is first", n)
		}
		late := []forge.Delivery{{Forge: "fast", ID: "f", Repository: "1"}, {Forge: "town", ID: "s", Repository: "43"}, {Forge: "gone", ID: "g", Repository: "1"}}
		for _, d := range late {
			l.kept(d)
		}
		time.Sleep(3 * time.Second)
		for _, d := range late {
			if l.outcome(d.ID) == "" {
				t.Errorf("%s of %s waits for a forge that is slow", d.ID, d.Forge)
			}
		}
		if len(asking) != 0 {
			t.Error("two of one repository at once")
		}
		goOn()
		for want := 1; want < 3; want++ {
			if n := <-asking; n != want {
				t.Errorf("issue %d comes before %d", n, want)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

package worker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/network"
	"github.com/daybreak-agent/daybreak/internal/policy/lockfile"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// ways opens ways that lead nowhere and remembers what was asked for.
type ways struct {
	asked  []network.Request
	closed int
}

func (w *ways) Open(_ context.Context, q network.Request) (*network.Way, error) {
	w.asked = append(w.asked, q)
	return &network.Way{
		Forwards: []sandbox.Forward{{Socket: "/run/s", Port: 4873}}, Env: []string{"GOPROXY=http://127.0.0.1:4873/go"}, Upstreams: []string{"go reg.test"},
		Close: func(context.Context) error { w.closed++; return nil },
	}, nil
}

// Outline implements network.Network.
func (w *ways) Outline(context.Context, network.Mode) (*network.Way, error) {
	return &network.Way{Forwards: []sandbox.Forward{{Port: 4873}}, Env: []string{"GOPROXY=http://127.0.0.1:4873/go"}}, nil
}

// TestReachByPurpose: preparing always reaches the registries, the agent unless somebody said
// offline, a verification what the mirror has; and nothing without a network.
func TestReachByPurpose(t *testing.T) {
	for _, c := range []struct {
		purpose       string
		none, offline bool
		repo          string
		prepared      bool
		want          network.Mode
	}{
		{purpose: "agent", want: network.Registries},
		{purpose: "agent", prepared: true, want: network.Registries},
		{purpose: "agent", offline: true, want: network.None},
		{purpose: "agent", repo: "offline", want: network.None},
		{purpose: "agent", none: true, want: network.None},
		{purpose: "prepare", want: network.Registries},
		{purpose: "prepare", offline: true, repo: "offline", want: network.Registries},
		{purpose: "prepare", none: true, want: network.None},
		{purpose: "green", prepared: true, want: network.Store},
		{purpose: "red", want: network.Registries},
		{purpose: "baseline", offline: true, want: network.None},
	} {
		r := &run{Worker: &Worker{cfg: Config{Network: &ways{}, Offline: c.offline}}}
		if c.none {
			r.cfg.Network = nil
		}
		r.set.repo = config.Repo{Network: c.repo}
		if c.prepared {
			r.setPrepared()
		}
		if got := r.mode(c.purpose); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestReachIsRecorded: a sandbox that is about to start gets its way, new names are one event
// each, known ones go together, the task's next sandbox is told what is spent, and an event that
// cannot be stored is an error to who asks.
func TestReachIsRecorded(t *testing.T) {
	st := &refusing{}
	j := &journal{st: st, now: time.Now, task: "t_1"}
	w := &ways{}
	r := &run{Worker: &Worker{cfg: Config{Network: w}}, j: j}
	r.reach.known = &lockfile.Known{Names: map[string][]string{"npm": {"a", "b"}}}
	spec := sandbox.Spec{Purpose: "agent", Env: []string{"GOPROXY=off"}}
	end, err := r.access(t.Context(), &spec)
	if err != nil || len(spec.Forwards) != 1 || !slices.Contains(spec.Env, "GOPROXY=http://127.0.0.1:4873/go") {
		t.Fatalf("%+v %v", spec, err)
	}
	record := w.asked[0].Record
	if err := record(t.Context(), []network.Entry{
		{Ecosystem: "npm", Name: "a"},
		{Ecosystem: "npm", Name: "b"},
		{Ecosystem: "npm", Name: "c", New: true},
		{Ecosystem: "go", Name: "x.test/m", Version: "v1.0.0", New: true},
		{Ecosystem: "npm", Name: "d", Refused: "name.budget"},
	}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(st.kinds, " "); got != "network.opened network.name network.name network.refused network.name" {
		t.Errorf("recorded %s", got)
	}
	if s := r.spentNames(); strings.Join(s.Names, " ") != "npm:c" || strings.Join(s.Versions, " ") != "go:x.test/m@v1.0.0" {
		t.Errorf("%+v", s)
	}
	if err := end(t.Context()); err != nil || w.closed != 1 {
		t.Errorf("%v, closed %d times", err, w.closed)
	}
	st.full = true
	if err := record(t.Context(), []network.Entry{{Ecosystem: "npm", Name: "e", New: true}}); err == nil {
		t.Error("an entry that was not stored was taken")
	}
	if _, err := r.access(t.Context(), &sandbox.Spec{Purpose: "agent"}); err == nil || w.closed != 2 {
		t.Errorf("a way nobody could record: %v, closed %d times", err, w.closed)
	}
}

// refusing is a store that appends, until it is full.
type refusing struct {
	store.Store
	kinds []string
	log   []event.Event
	full  bool
}

func (s *refusing) Events(context.Context, task.ID, int64, int) ([]event.Event, error) {
	return nil, errors.New("it is not read in this test")
}

func (s *refusing) Append(_ context.Context, _ store.Lease, ds ...event.Draft) ([]event.Event, error) {
	if s.full {
		return nil, errors.New("the disk is full")
	}
	if len(s.log) == 0 {
		d, err := event.New(event.TaskCreated{})
		if err != nil {
			return nil, err
		}
		ds = append([]event.Draft{d}, ds...)
	}
	first := len(s.log)
	for _, d := range ds {
		prev := event.Genesis("t_1")
		if n := len(s.log); n > 0 {
			prev = s.log[n-1].Hash
		}
		s.log = append(s.log, event.Seal(task.ID("t_1"), int64(len(s.log))+1, 0, time.Unix(0, 0), prev, d))
		if d.Kind != "task.created" {
			s.kinds = append(s.kinds, string(d.Kind))
		}
	}
	return s.log[first:], nil
}

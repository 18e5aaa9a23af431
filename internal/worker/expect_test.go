package worker

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// foreseeing is a runtime that remembers what it was told and asked.
type foreseeing struct {
	sandbox.Runtime
	expected, started []sandbox.Spec
}

func (f *foreseeing) Expect(s sandbox.Spec) { f.expected = append(f.expected, s) }

// Start "runs" a suite that leaves something in a HOME that is kept.
func (f *foreseeing) Start(_ context.Context, s sandbox.Spec) (sandbox.Sandbox, error) {
	f.started = append(f.started, s)
	if s.Home.Keep != "" {
		if err := os.WriteFile(filepath.Join(s.Home.Keep, "cache"), []byte("built"), 0o644); err != nil {
			return nil, err
		}
	}
	return &bare{sandbox.Handle{ID: "b" + s.Purpose, Task: s.Task, Purpose: s.Purpose}}, nil
}

type bare struct{ handle sandbox.Handle }

func (b *bare) Handle() sandbox.Handle        { return b.handle }
func (b *bare) Info() sandbox.Info            { return sandbox.Info{} }
func (b *bare) Guest() *guest.Client          { return nil }
func (b *bare) Destroy(context.Context) error { return nil }
func (b *bare) Export(context.Context, sandbox.ExportLimits) (sandbox.Manifest, error) {
	return sandbox.Manifest{}, nil
}

// When the baseline has filled HOME, the runtime hears of the very sandbox that the agent will ask
// for. Of a baseline of another stage it hears nothing.
func TestTheAgentIsExpected(t *testing.T) {
	r := newRig(t, task.Limits{})
	snap, err := r.cfg.Snapshots.Prepare(t.Context(), snapshot.Source{Repo: r.repo})
	if err != nil {
		t.Fatal(err)
	}
	rt := &foreseeing{}
	r.cfg.Runtime, r.cfg.Network, r.cfg.Sandbox.Env = rt, &ways{}, []string{"A=1"}
	j := &journal{st: r.cfg.Store, now: time.Now, task: r.id, lease: r.lease}
	if _, err := r.history(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	one := &run{Worker: r.Worker, j: j, snap: snap}
	if err := j.move(t.Context(), task.Preparing, ""); err != nil {
		t.Fatal(err)
	}
	bench := func(s snapshot.Snapshot) {
		t.Helper()
		b, err := one.prover().Bench(t.Context(), "baseline", s, true)
		if err != nil {
			t.Fatal(err)
		}
		if len(rt.expected) > 0 {
			t.Error("expected before HOME is there")
		}
		if err := b.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	bench(snap)
	if _, err := one.prover().Start(t.Context(), one.prover().Spec(purposeAgent, snap)); err != nil {
		t.Fatal(err)
	}
	if len(rt.expected) != 1 || len(rt.started) != 2 {
		t.Fatalf("%d expected, %d started", len(rt.expected), len(rt.started))
	}
	want := rt.started[1]
	want.Forwards[0].Socket = "" // of a session
	if diff := cmp.Diff(want, rt.expected[0]); diff != "" || len(want.Home.Lower) != 1 || want.Group == "" {
		t.Errorf("asked for %+v\nexpected otherwise:\n%s", want, diff)
	}

	if err := j.move(t.Context(), task.Working, ""); err != nil {
		t.Fatal(err)
	}
	rt.expected = nil
	one.homed(t.Context(), snap)
	if len(rt.expected) > 0 {
		t.Error("expected by a run whose agent works already")
	}
}

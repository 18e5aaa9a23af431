package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// waiting is a runtime that says when a sandbox is asked for, and then waits.
type waiting struct {
	sandbox.Runtime
	asked chan sandbox.Spec
	goOn  chan error
}

func (w *waiting) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	w.asked <- spec
	select {
	case err := <-w.goOn:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// indexing is a run on a tree that is said to have so many bytes.
func indexing(t *testing.T, rt sandbox.Runtime, bytes int64) (*run, func() []*event.IndexReady) {
	t.Helper()
	r := newRig(t, task.Limits{})
	snap, err := r.cfg.Snapshots.Prepare(t.Context(), snapshot.Source{Repo: r.repo})
	if err != nil {
		t.Fatal(err)
	}
	snap.Bytes = bytes
	r.cfg.Runtime = rt
	j := &journal{st: r.cfg.Store, now: time.Now, task: r.id, lease: r.lease}
	if _, err := r.history(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	one := &run{Worker: r.Worker, j: j, snap: snap}
	return one, func() (out []*event.IndexReady) {
		t.Helper()
		events, err := r.cfg.Store.Events(t.Context(), r.id, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if p, err := event.Decode(e); err == nil {
				if x, ok := p.(*event.IndexReady); ok {
					out = append(out, x)
				}
			}
		}
		return out
	}
}

// An index that cannot be built is recorded and is no reason to stop.
func TestIndexThatCannotBeBuilt(t *testing.T) {
	one, said := indexing(t, &leftovers{refuse: errors.New("no room")}, prover.IndexFrom)
	if err := one.index(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := said(); len(got) != 1 || got[0].Files != 0 || !strings.Contains(got[0].Trouble, "no room") || one.snap.Index != "" {
		t.Errorf("%+v", got)
	}
	one, said = indexing(t, &leftovers{refuse: errors.New("not asked")}, prover.IndexFrom-1)
	if err := one.index(t.Context()); err != nil || len(said()) > 0 {
		t.Errorf("a small tree: %v, %+v", err, said())
	}
}

// A large index is built beside the agent, and what is under way ends with the run.
func TestLargeIndexIsBuiltBesideTheAgent(t *testing.T) {
	rt := &waiting{asked: make(chan sandbox.Spec), goOn: make(chan error)}
	one, said := indexing(t, rt, prover.IndexAtOnce+1)
	if err := one.index(t.Context()); err != nil || one.snap.Index != "" {
		t.Fatal(err)
	}
	if spec := <-rt.asked; spec.Purpose != "index" || spec.Tree != one.snap.Tree || len(spec.Home.Lower) > 0 {
		t.Errorf("%+v", spec)
	}
	recorded := make(chan struct{})
	one.j.observe = func(event.Event, event.Payload) { close(recorded) }
	rt.goOn <- errors.New("no room")
	<-recorded
	one.endIndexing()
	got := said()
	if len(got) != 1 || !got[0].Later || !strings.Contains(got[0].Trouble, "no room") {
		t.Errorf("%+v", got)
	}
	// The run ends first.
	one.j.observe = nil
	if err := one.index(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-rt.asked
	one.endIndexing()
	if got := said(); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}

// The snapshot of a large tree gets a twin beside the agent, which is there when the run ends; one
// that was cancelled does not hold it up.
func TestTwinIsMadeBesideTheAgent(t *testing.T) {
	one, _ := indexing(t, &leftovers{}, 0)
	one.snap.Files = 100_000 // it is said to have
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	one.twin(cancelled)
	one.twin(t.Context())
	one.endTwin()
	if fi, err := os.Stat(filepath.Join(filepath.Dir(one.snap.Tree), "twin")); err != nil || !fi.IsDir() {
		t.Error(err)
	}
}

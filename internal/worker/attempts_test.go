package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify"
)

// stalled is a runtime whose sandboxes never start.
type stalled struct {
	*leftovers
	asked chan struct{} // filled once somebody waits for one
}

func (s *stalled) Start(ctx context.Context, _ sandbox.Spec) (sandbox.Sandbox, error) {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// tried makes a task of two attempts that both proved something: the second one's end is not on
// record where last is false.
func tried(t *testing.T, limits task.Limits, last bool) (*rig, *stalled) {
	t.Helper()
	r := newRig(t, task.Limits{})
	r.release(t)
	got, _, err := r.Create(t.Context(), Request{Repo: r.repo, Issue: []byte("it is broken twice"), Limits: limits, Attempts: 2})
	if err != nil {
		t.Fatal(err)
	}
	r.id = got.ID
	if r.lease, err = r.cfg.Store.Acquire(t.Context(), r.id, "before", time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	base := r.fold(t).Created.Base
	snap, err := r.cfg.Snapshots.Prepare(t.Context(), snapshot.Source{Repo: r.repo, Ref: base})
	if err != nil {
		t.Fatal(err)
	}
	r.record(
		t, event.StateChanged{From: task.Queued, To: task.Preparing},
		event.BaselineFinished{Document: text(t, verify.Baseline{Base: base})},
		event.StateChanged{From: task.Preparing, To: task.Working},
	)
	for n, word := range []string{"two\n", "twice\n"} {
		change := []git.Change{{Path: "a.txt", Mode: git.ModeFile, Content: []byte(word)}, {Path: "tests/a_test.sh", Mode: git.ModeExecutable, Content: []byte("grep -q two a.txt\n")}}
		tree, err := r.cfg.Git.BuildTree(t.Context(), snap.GitDir, base, change)
		if err != nil {
			t.Fatal(err)
		}
		r.record(
			t, event.AttemptStarted{N: n + 1, Of: 2}, event.WorkspaceSaved{Change: text(t, change), Files: 2},
			event.Submitted{Title: "fix it", Tests: []string{"tests/a_test.sh"}}, event.StateChanged{From: task.Working, To: task.Verifying}, event.Exported{Tree: tree, Paths: []string{"a.txt", "tests/a_test.sh"}},
			event.VerificationFinished{Attempt: 1, Kind: task.Verified, Document: text(t, task.Verdict{Kind: task.Verified, Base: base, HeadTree: tree})},
		)
		if n == 0 || last {
			r.record(t, event.StateChanged{From: task.Verifying, To: task.Working}, event.AttemptFinished{N: n + 1, Ending: "verified", Lines: 2})
		}
	}
	s := &stalled{r.boxes, make(chan struct{}, 1)}
	r.cfg.Runtime = s
	return r, s
}

// TestJudgingEnds: the clock that ends while attempts are judged, or that has ended before, neither
// loses what they proved nor leaves the judging without an end.
func TestJudgingEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		used time.Duration // of a minute, before the run
		last bool
	}{
		"in the middle":                         {time.Minute - 300*time.Millisecond, true},
		"before the run":                        {time.Minute, true},
		"before the run, and an end is missing": {time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := tried(t, task.Limits{Wall: time.Minute}, tt.last)
			r.cfg.Judging = 50 * time.Millisecond
			r.record(t, event.WallClocked{Elapsed: tt.used})
			r.release(t)
			sum, err := r.Run(t.Context(), r.id)
			if err != nil || sum.State != task.InReview {
				t.Fatalf("%s %q: %v", sum.State, sum.Reason, err)
			}
			if c := sum.Attempts.Chosen; c == nil || c.N != 1 || c.Rivals != 1 || len(sum.Attempts.Judged) != 0 {
				t.Errorf("%+v, %d judged", c, len(sum.Attempts.Judged))
			}
		})
	}
}

// TestJudgingIsStopped: a person's stop ends the judging after the clock as it ends anything else, and
// a worker that is to go leaves it to the next one.
func TestJudgingIsStopped(t *testing.T) {
	for _, kind := range []string{"stop", "interrupt", "drain"} {
		t.Run(kind, func(t *testing.T) {
			r, box := tried(t, task.Limits{Wall: time.Minute}, true)
			r.record(t, event.WallClocked{Elapsed: time.Minute})
			r.release(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			drain := make(chan struct{})
			r.cfg.Draining = drain
			if kind == "drain" {
				close(drain)
			}
			go func() {
				select {
				case <-box.asked:
				case <-ctx.Done():
					return
				}
				switch kind {
				case "stop":
					r.word(t, store.Stop, "never mind")
				case "interrupt":
					cancel()
				}
			}()
			sum, err := r.Run(ctx, r.id)
			if kind == "stop" && (err != nil || sum.State != task.Stopped || !strings.Contains(sum.Reason, "never mind")) || kind != "stop" && (!errors.Is(err, ErrPaused) || sum.State != task.Working) {
				t.Errorf("%s %q: %v", sum.State, sum.Reason, err)
			}
		})
	}
}

// deaf is a store that tells of changes when the test does.
type deaf struct {
	store.Store
	tell chan struct{}
}

func (d *deaf) Watch(context.Context, task.ID) (<-chan struct{}, error) { return d.tell, nil }

// TestAWordIsHeardAtOnce: the store's word that something changed is enough to look, long before it
// would be looked anyway.
func TestAWordIsHeardAtOnce(t *testing.T) {
	r, box := tried(t, task.Limits{Wall: time.Minute}, true)
	r.release(t)
	d := &deaf{r.cfg.Store, make(chan struct{}, 1)}
	r.cfg.Store = d
	var said time.Time
	go func() {
		<-box.asked
		r.word(t, store.Stop, "never mind")
		said = time.Now()
		d.tell <- struct{}{}
	}()
	sum, err := r.Run(t.Context(), r.id)
	if took := time.Since(said); err != nil || sum.State != task.Stopped || took > lookLate/2 {
		t.Errorf("%s after %s: %v", sum.State, took, err)
	}
}

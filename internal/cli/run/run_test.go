package run

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/worker"
)

func TestCodeFor(t *testing.T) {
	class := func(c task.Class) error { return &task.Error{Class: c, Msg: "trouble"} }
	paid := worker.ResultBudget{Steps: 7}
	for _, c := range []struct {
		name string
		res  worker.Result
		err  error
		want int
	}{
		{"proven", worker.Result{State: task.InReview, Verdict: task.Verified}, nil, kit.OK},
		{"proven, clearing up failed", worker.Result{State: task.InReview, Verdict: task.Verified}, errors.New("busy"), kit.OK},
		{"a person must judge", worker.Result{State: task.InReview, Verdict: task.NeedsHuman}, nil, kit.NotVerified},
		{"declined", worker.Result{State: task.Declined}, nil, kit.Declined},
		{"exhausted", worker.Result{State: task.Exhausted, Verdict: task.NotFixed}, nil, kit.Exhausted},
		{"stopped", worker.Result{State: task.Stopped}, nil, kit.Stopped},
		{"interrupted", worker.Result{State: task.Working}, worker.ErrInterrupted, kit.Stopped},
		{"sandbox refused", worker.Result{State: task.Preparing}, fmt.Errorf("%w: no ids", worker.ErrPaused), kit.Failure},
		{"held", worker.Result{State: task.Publishing}, worker.ErrHeld, kit.Waits},
		{"a question", worker.Result{State: task.Working}, worker.ErrParked, kit.Waits},
		{"provider away", worker.Result{State: task.Working}, fmt.Errorf("%w: %w", worker.ErrPaused, class(task.Transient)), kit.Failure},
		{"provider refuses, after a refusal", worker.Result{State: task.Failed, Verdict: task.NotRun, Budget: paid}, &model.FailedError{Attempts: 1, Err: class(task.Invalid)}, kit.Failure},
		{"bad input", worker.Result{State: task.Failed}, class(task.Invalid), kit.Usage},
		{"base cannot be verified", worker.Result{State: task.Failed, Verdict: task.EnvBlocked}, class(task.Invalid), kit.NotVerified},
		{"refused too often", worker.Result{State: task.Failed, Verdict: task.NotFixed, Budget: paid}, class(task.Invalid), kit.NotVerified},
		{"went in circles", worker.Result{State: task.Failed, Budget: paid}, nil, kit.NotVerified},
		{"ours, after a refusal", worker.Result{State: task.Failed, Verdict: task.NotFixed, Budget: paid}, class(task.Internal), kit.Failure},
		{"ours", worker.Result{State: task.Failed}, errors.New("broken"), kit.Failure},
	} {
		if got := codeFor(c.res, c.err); got != c.want {
			t.Errorf("%s: exit code %d, want %d", c.name, got, c.want)
		}
	}
}

func TestBudgetFlags(t *testing.T) {
	base := config.Budget{Steps: 10, USD: 2}
	if b, err := budget(base, Options{Steps: 3, Wall: time.Minute}); err != nil || b != (config.Budget{Steps: 3, USD: 2, Wall: time.Minute}) {
		t.Errorf("%+v %v", b, err)
	}
	for _, o := range []Options{{Steps: -1}, {Tokens: -1}, {USD: -1}, {Wall: -1}, {USD: math.NaN()}, {USD: math.Inf(1)}, {USD: 1e300}} {
		if b, err := budget(base, o); err == nil {
			t.Errorf("%+v is taken as %+v", o, b.Limits())
		}
	}
}

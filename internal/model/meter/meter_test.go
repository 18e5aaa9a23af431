package meter_test

import (
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/model/meter"
	"github.com/daybreak-agent/daybreak/internal/task"
)

type fixed struct {
	info   model.Info
	deltas []model.Delta
	err    error
}

func (f fixed) Info() model.Info { return f.info }

func (f fixed) Stream(context.Context, model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		for _, d := range f.deltas {
			if !yield(d, nil) {
				return
			}
		}
		if f.err != nil {
			yield(model.Delta{}, f.err)
		}
	}
}

func TestCost(t *testing.T) {
	done := &model.Response{Tokens: task.Tokens{Input: 1000, Output: 200, CacheRead: 10_000, CacheWrite: 400}, Wasted: task.Tokens{Input: 500}}
	info := model.Info{Priced: true, Price: model.Price{Input: 3_000_000, Output: 15_000_000, CacheRead: 300_000, CacheWrite: 3_750_000}}
	deltas := []model.Delta{{Text: "a"}, {Done: done}}
	var shown int
	r, err := model.Collect(meter.New(fixed{info: info, deltas: deltas}).Stream(t.Context(), model.Request{}), func(model.Delta) { shown++ })
	// 1500·3 + 200·15 + 10000·0.3 + 400·3.75 = 12,000 millionths
	if err != nil || r.Cost != 12_000 || !r.Priced || shown != 1 {
		t.Errorf("cost %d, priced %v, shown %d, err %v", r.Cost, r.Priced, shown, err)
	}
	if done.Cost != 0 {
		t.Error("the response of the client below was changed")
	}
	info.Priced = false
	r, _ = model.Collect(meter.New(fixed{info: info, deltas: deltas}).Stream(t.Context(), model.Request{}), nil)
	if r.Cost != 0 || r.Priced {
		t.Errorf("a model without a price costs %d", r.Cost)
	}
}

func TestErrorsPass(t *testing.T) {
	want := errors.New("no")
	if _, err := model.Collect(meter.New(fixed{err: want}).Stream(t.Context(), model.Request{}), nil); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}

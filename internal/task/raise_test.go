package task_test

import (
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestRaise: a budget goes up, meter by meter, as far as the operator lets it.
func TestRaise(t *testing.T) {
	now := task.Limits{Steps: 10, Cost: 1_000_000, Wall: time.Hour}
	most := task.Limits{Steps: 100, Cost: 5_000_000, Wall: 2 * time.Hour}
	for _, tt := range []struct {
		asked, want task.Limits
		err         string
	}{
		{task.Limits{Cost: 5_000_000}, task.Limits{Steps: 10, Cost: 5_000_000, Wall: time.Hour}, ""},
		{task.Limits{Steps: 11, Wall: 90 * time.Minute}, task.Limits{Steps: 11, Cost: 1_000_000, Wall: 90 * time.Minute}, ""},
		{task.Limits{Cost: 5_000_001}, task.Limits{}, "more than the 5 dollars"},
		{task.Limits{Wall: 3 * time.Hour}, task.Limits{}, "more than the 7200 seconds"},
		{task.Limits{Steps: 10}, task.Limits{}, "only ever raised"},
		{task.Limits{Steps: -1}, task.Limits{}, "only ever raised"},
		{task.Limits{Tokens: 5}, task.Limits{}, "no limit in tokens"},
		{task.Limits{}, task.Limits{}, "nothing was asked"},
	} {
		got, err := now.Raise(tt.asked, most)
		if tt.err == "" && (err != nil || got != tt.want) {
			t.Errorf("%+v: %+v %v", tt.asked, got, err)
		}
		if tt.err != "" && (task.ClassOf(err) != task.Invalid || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%+v: %v", tt.asked, err)
		}
	}
	if _, err := now.Raise(task.Limits{Steps: 11}, task.Limits{}); err == nil {
		t.Error("raised where the operator allows nothing")
	}
}

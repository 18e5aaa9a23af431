package prom

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/telemetry"
)

func scrape(t *testing.T, r *Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	b, err := io.ReadAll(w.Body)
	if err != nil || w.Code != 200 {
		t.Fatalf("%d %v: %s", w.Code, err, b)
	}
	return string(b)
}

func TestRegistry(t *testing.T) {
	var fail error
	r, err := New(func(context.Context) ([]telemetry.Sample, error) {
		return []telemetry.Sample{{Name: telemetry.TasksNow, Value: 3, Labels: []string{"working"}}, {Name: telemetry.QueueNow, Value: 2}, {Name: "unknown", Value: 1}}, fail
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Add(telemetry.ToolCalls, 2, "run", "ok")
	r.Add(telemetry.ToolCalls, 1, "run")      // a label is missing
	r.Add(telemetry.Steps, -1)                // counters only grow
	r.Add("daybreak_unknown_total", 1)        // not on the list
	r.Observe(telemetry.VerifyTime, 7)        //
	r.Observe(telemetry.VerifyTime, 7, "one") // a label too many
	got := scrape(t, r)
	for _, want := range []string{
		`daybreak_tool_calls_total{outcome="ok",tool="run"} 2`, "daybreak_steps_total 0", `daybreak_verification_seconds_bucket{le="15"} 1`, "daybreak_verification_seconds_count 1",
		`daybreak_tasks{state="working"} 3`, "daybreak_queue_tasks 2", "go_goroutines ", "process_start_time_seconds ",
	} {
		if !strings.Contains(got, want+"\n") && !strings.Contains(got, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if strings.Contains(got, "unknown") {
		t.Error("a number that is on no list")
	}
	fail = errors.New("the store is away")
	if got := scrape(t, r); !strings.Contains(got, "daybreak_steps_total 0") || strings.Contains(got, "daybreak_queue_tasks") {
		t.Errorf("without its store it says: %s", got)
	}
}

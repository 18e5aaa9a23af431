package event

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestReach: what sandboxes asked for survives the log, and a flood of refusals is counted
// but not held.
func TestReach(t *testing.T) {
	ps := []Payload{
		TaskCreated{},
		NetworkOpened{Purpose: "agent", Mode: "registries", Upstreams: []string{"npm reg.test"}, Known: 2},
		NetworkAsked{Purpose: "agent", Names: []NetworkName{{Ecosystem: "npm", Name: "a"}, {Ecosystem: "npm", Name: "b"}, {Ecosystem: "npm", Name: "c", Version: "1.0.0", Notes: []string{"yanked"}}}},
		NetworkAsked{Purpose: "agent", New: true, Names: []NetworkName{{Ecosystem: "npm", Name: "c", Version: "1.0.0", Notes: []string{"yanked"}}}},
	}
	for range MaxReachRefused + 5 {
		ps = append(ps, NetworkRefused{Purpose: "agent", Ecosystem: "npm", Name: "d", Reason: "name.budget"})
	}
	var log []Event
	prev := Genesis("t_reach")
	for i, p := range ps {
		d, err := New(p)
		if err != nil {
			t.Fatal(err)
		}
		e := Seal("t_reach", int64(i)+1, 0, time.Unix(0, 0), prev, d)
		log, prev = append(log, e), e.Hash
	}
	sum, err := Fold(log)
	if err != nil {
		t.Fatal(err)
	}
	r := sum.Reach
	if sum.State != task.Queued || r.Known != 2 || r.Refusals != MaxReachRefused+5 || len(r.Refused) != MaxReachRefused || len(r.Noted) != 1 || r.Noted[0].Notes[0] != "yanked" || r.Opened.Mode != "registries" {
		t.Errorf("%+v", r)
	}
	if d := cmp.Diff([]NetworkName{{Ecosystem: "npm", Name: "c", Version: "1.0.0", Notes: []string{"yanked"}}}, r.New); d != "" {
		t.Error(d)
	}
}

package api

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// crowd lists three tasks of an open repository among very many of a secret one.
type crowd struct{ store.Store }

const crowded = 3 * maxScan

func (crowd) Tasks(_ context.Context, f store.Filter) (out []store.Task, err error) {
	from := 0
	if f.Before != "" {
		n, err := strconv.Atoi(strings.TrimPrefix(string(f.Before), "t_01kh"))
		if err != nil {
			return nil, err
		}
		from = n + 1
	}
	for n := from; n < crowded && len(out) < f.Limit; n++ {
		t := store.Task{ID: storetest.ID(n), State: task.Queued, Repo: "https://hub/secret/x"}
		if n == 5 || n == 10 || n == maxScan/2 {
			t.Repo = "https://hub/open/x"
		}
		out = append(out, t)
	}
	return out, nil
}

// TestCursorIsReadable: a page ends after a look of bounded length, and no task is named to a viewer
// who may not read it, also not as the place where the next page begins.
func TestCursorIsReadable(t *testing.T) {
	l := newLab(t)
	l.cfg.Records = crowd{l.st}
	var found, cursors []task.ID
	next := ""
	for range 10 {
		page := decodeInto[Page](t, l.call(t, person("reader"), "GET", "/api/tasks?limit=4"+next, ""))
		for _, r := range page.Tasks {
			found = append(found, r.Task)
		}
		if page.Next == "" {
			break
		}
		cursors = append(cursors, page.Next)
		next = "&before=" + string(page.Next)
	}
	want := []task.ID{storetest.ID(5), storetest.ID(10), storetest.ID(maxScan / 2)}
	if len(found) != 3 || found[0] != want[0] || found[2] != want[2] {
		t.Errorf("found %v", found)
	}
	if len(cursors) != 1 || cursors[0] != want[2] {
		t.Errorf("cursors %v", cursors)
	}
	if w := l.call(t, person("stranger"), "GET", "/api/tasks?limit=4", ""); strings.Contains(w.Body.String(), "t_") {
		t.Errorf("a stranger is told %s", w.Body)
	}
}

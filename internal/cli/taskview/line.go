package taskview

import (
	"fmt"
	"time"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/story"
)

// Header is the line above a listing made of [Line].
func Header() string {
	return fmt.Sprintf("%-28s  %-10s  %8s  %6s  %-16s  %s", "TASK", "STATE", "AGE", "EVENTS", "REPOSITORY", "TITLE")
}

// Line shows one task in a listing, at the time now. A task that a worker holds is marked
// with an asterisk after its state.
func Line(t store.Task, now time.Time) string {
	state := string(t.State)
	if t.Owner != "" {
		state += "*"
	}
	return fmt.Sprintf("%-28s  %-10s  %8s  %6d  %-16s  %s", Escape(string(t.ID)), Escape(state),
		story.Age(now.Sub(t.Created)), t.LastSeq, cut(Escape(story.RepoName(t.Repo)), 16), cut(Escape(t.Title), 60))
}

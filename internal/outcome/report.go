package outcome

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Report is what became of many tasks: in all, in groups, and of each.
type Report struct {
	Since  time.Time `json:"since,omitzero"`
	Total  Totals    `json:"total"`
	By     string    `json:"by"`
	Groups []Totals  `json:"groups"`
	Tasks  []Outcome `json:"tasks"` // newest first
}

// NewReport adds up outcomes, which are of tasks made since a time, as they are at the time now.
func NewReport(since time.Time, by string, key func(Outcome) string, now time.Time, os []Outcome) Report {
	return Report{Since: since, Total: Sum("all", now, os), By: by, Groups: Group(now, os, key), Tasks: os}
}

// Grouping is what names the group of a task. Class Invalid for a word that names none.
func Grouping(by string) (func(Outcome) string, error) {
	switch by {
	case "repository":
		return func(o Outcome) string { return o.Repo }, nil
	case "week":
		return Week, nil
	case "month":
		return Month, nil
	}
	return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("--by is %.40q; use repository, week or month", by)}
}

// ParseSince reads a day or a time back from now; zero for "". Class Invalid.
func ParseSince(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.DateOnly, s); err == nil {
		return at, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n <= 36500 {
			return now.UTC().AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return now.UTC().Add(-d), nil
	}
	return time.Time{}, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("--since is %.40q; use a time back such as 30d or 12h, or a day such as 2026-01-31", s)}
}

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

// Spans names every week or month, as by is, from the first group's to the one of the time now, with
// none left out: groups are named by when their tasks were made.
func Spans(by string, groups []Totals, now time.Time) []string {
	layout, next := "2006-01", func(t time.Time) time.Time { return t.AddDate(0, 1, 0) }
	if by == "week" {
		layout, next = time.DateOnly, func(t time.Time) time.Time { return t.AddDate(0, 0, 7) }
	}
	if len(groups) == 0 {
		return nil
	}
	at, err := time.Parse(layout, groups[0].Name)
	if err != nil {
		return nil
	}
	var out []string
	last := max(groups[len(groups)-1].Name, span(by, now))
	for name := groups[0].Name; name <= last && len(out) < maxSpans; at, name = next(at), next(at).Format(layout) {
		out = append(out, name)
	}
	return out
}

// maxSpans bounds what a clock that was wrong once makes of a list of weeks.
const maxSpans = 4000

func span(by string, at time.Time) string {
	if by == "week" {
		return Week(Outcome{Created: at})
	}
	return Month(Outcome{Created: at})
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

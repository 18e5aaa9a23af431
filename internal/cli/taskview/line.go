package taskview

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/store"
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
		age(now.Sub(t.Created)), t.LastSeq, cut(repoName(t.Repo), 16), cut(Escape(t.Title), 60))
}

// repoName is the last element of a path or URL.
func repoName(repo string) string {
	return Escape(strings.TrimSuffix(path.Base(strings.TrimRight(repo, "/")), ".git"))
}

func age(d time.Duration) string {
	switch {
	case d < 0:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(d.Hours()/24))
}

// took shows a duration in milliseconds with the precision that a reader wants.
func took(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// count shows a number with thousands separated.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return count(int64(n)) + " " + what + "s"
}

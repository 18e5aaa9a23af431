package web

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/story"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/web/render"
)

// iconPath is the outline of an icon on a grid of 16, for a stroke of 1.5.
func iconPath(name string) string {
	switch name {
	case "check":
		return "M3 8.5 6.5 12 13 4.5"
	case "cross":
		return "M4 4l8 8M12 4l-8 8"
	case "warn":
		return "M8 2 1.5 13.5h13L8 2zM8 6.5v3.5M8 12h.01"
	case "hand":
		return "M5 3v10M11 3v10"
	case "stop":
		return "M4 4h8v8H4z"
	case "merge":
		return "M4 2v12M4 9c6 0 8-1 8-5M12 4a.5.5 0 1 0 0-2 .5.5 0 0 0 0 2z"
	case "eye":
		return "M1.5 8S4 3.5 8 3.5 14.5 8 14.5 8 12 12.5 8 12.5 1.5 8 1.5 8zM8 9.8a1.8 1.8 0 1 0 0-3.6 1.8 1.8 0 0 0 0 3.6z"
	case "spin":
		return "M8 2a6 6 0 1 0 6 6"
	case "clock":
		return "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 5v3l2 2"
	case "no":
		return "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM4 4l8 8"
	case "person":
		return "M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.5 14c.5-3 2.5-4.5 5.5-4.5s5 1.5 5.5 4.5"
	case "sun":
		return "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1"
	case "moon":
		return "M13.5 9.5A6 6 0 0 1 6.5 2.5a6 6 0 1 0 7 7z"
	case "auto":
		return "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 2v12"
	case "out":
		return "M6 3H3v10h10v-3M9 2.5h4.5V7M13.5 2.5 7.5 8.5"
	case "dash":
		return "M4 8h8"
	}
	return "M8 9h.01"
}

// look is the tone, the icon and the word of a state.
func look(s task.State, held, asked bool) (tone, ic, word string) {
	switch {
	case asked && !s.Done():
		return "wait", "person", "waits for an answer"
	case held && s == task.Publishing:
		return "wait", "hand", "waits for approval"
	}
	switch s {
	case task.Queued:
		return "idle", "clock", "queued"
	case task.Preparing, task.Working, task.Verifying, task.Publishing:
		return "run", "spin", story.Words(s)
	case task.InReview:
		return "review", "eye", "in review"
	case task.Merged:
		return "good", "merge", "merged"
	case task.Closed:
		return "idle", "cross", "closed"
	case task.Declined:
		return "idle", "no", "declined"
	case task.Exhausted:
		return "bad", "warn", "out of budget"
	case task.Stopped:
		return "idle", "stop", "stopped"
	case task.Failed:
		return "bad", "cross", "failed"
	}
	return "idle", "dash", story.Words(s)
}

// verdictLook is the same for a verdict.
func verdictLook(k task.VerdictKind) (tone, ic, word string) {
	switch {
	case k == "":
		return "idle", "dash", "none"
	case k == task.NeedsHuman:
		return "wait", "person", story.Words(k)
	case k == task.VerifiedWeak, k == task.VerifiedScript:
		return "wait", "check", story.Words(k)
	case k.Accepted():
		return "good", "check", story.Words(k)
	}
	return "bad", "cross", story.Words(k)
}

// statusLook is the same for a test.
func statusLook(s task.TestStatus) (tone, ic, word string) {
	switch s {
	case task.Pass:
		return "good", "check", "pass"
	case task.Fail, task.Errored, task.Timeout:
		return "bad", "cross", story.Words(s)
	case task.Flaky:
		return "wait", "warn", "flaky"
	case "":
		return "idle", "dash", "not run"
	}
	return "idle", "dash", story.Words(s)
}

// toneLook is the same for a moment of the story.
func toneLook(t story.Tone) (tone, ic string) {
	switch t {
	case story.Good:
		return "good", "check"
	case story.Bad:
		return "bad", "cross"
	case story.Warn:
		return "wait", "warn"
	case story.Human:
		return "human", "person"
	}
	return "idle", "dash"
}

func money(m task.MicroUSD) string {
	if m != 0 && m < 10_000 {
		return fmt.Sprintf("$%.4f", m.USD())
	}
	return fmt.Sprintf("$%.2f", m.USD())
}

// since shows a point in time as the time since the task began.
func since(start, at time.Time) string {
	d := max(0, at.Sub(start)).Truncate(time.Second)
	if d >= time.Hour {
		return fmt.Sprintf("%d:%02d:%02d", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

func span(d time.Duration) string { return story.Took(d.Milliseconds()) }

// webURL is an address that a page may link to: of the pull request or the issue, as the forge
// gave it.
func webURL(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())) {
		return ""
	}
	if render.Plain(s) != s {
		return ""
	}
	return u.String()
}

func loopback(host string) bool {
	return host == "localhost" || host == "::1" || strings.HasPrefix(host, "127.")
}

func plural(n int, what string) string  { return story.Plural(n, what) }
func count[T ~int | ~int64](n T) string { return story.Count(int64(n)) }

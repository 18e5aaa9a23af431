package web

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/daybreak-agent/daybreak/internal/live"
	"github.com/daybreak-agent/daybreak/internal/overview"
	"github.com/daybreak-agent/daybreak/internal/story"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/web/plot"
)

// How much of the fleet a page lists.
const (
	fleetRunning = 100
	fleetWaiting = 50
	fleetShares  = 12
)

// fleetView is the fleet as one viewer sees it.
type fleetView struct {
	overview.Fleet
	Now      time.Time
	Operates bool
	Boxes    map[task.ID][]overview.Sandbox
	Due      []overview.Queued // that a worker may take now, in the order in which they are taken
	Later    []overview.Queued // that rest until a time
	Repos    []overview.Share
	Authors  []overview.Share // for operators: who sees a part would count wrongly
}

func newFleetView(f overview.Fleet, operates bool, now time.Time) fleetView {
	v := fleetView{Fleet: f, Now: now, Operates: operates, Boxes: map[task.ID][]overview.Sandbox{}}
	for _, b := range f.Sandboxes {
		v.Boxes[b.Task] = append(v.Boxes[b.Task], b)
	}
	for _, q := range f.Queue {
		if q.Due.After(now) {
			v.Later = append(v.Later, q)
		} else {
			v.Due = append(v.Due, q)
		}
	}
	slices.SortStableFunc(v.Due, func(a, b overview.Queued) int { return cmp.Compare(a.Priority, b.Priority) })
	slices.SortStableFunc(v.Later, func(a, b overview.Queued) int { return a.Due.Compare(b.Due) })
	v.Repos = f.Shares(func(r overview.Running) string { return r.Repo }, func(q overview.Queued) string { return q.Repo })
	if operates {
		v.Authors = f.Shares(func(r overview.Running) string { return r.Author }, func(q overview.Queued) string { return q.Author })
	}
	return v
}

// Idle reports whether nothing runs and nothing waits.
func (v fleetView) Idle() bool { return len(v.Running)+len(v.Queue) == 0 }

// stat is one figure at the head of a page.
type stat struct{ Name, Value, Note string }

// stats are the fleet in a few numbers.
func (v fleetView) stats() []stat {
	out := []stat{
		{"At work", count(len(v.Running)), ""}, {"Waiting", count(len(v.Due)), "none has to wait"}, {"Sandboxes", count(len(v.Sandboxes)), "for tasks at work"},
	}
	if v.Caps.Total > 0 {
		out[0].Note = "of " + count(v.Caps.Total) + " at most"
	} else if v.Operates {
		out[0].Note = plural(len(v.Workers), "worker")
	}
	if at, ok := v.oldest(); ok {
		out[1].Note = "the oldest for " + roughly(v.Now.Sub(at))
	}
	if n := len(v.Later); n > 0 {
		out[1].Note += fmt.Sprintf("; %s later", count(n))
	}
	if s := v.Ready.Sums; s != nil {
		out = append(out, stat{"Ready sandboxes", count(s.Waiting), "of " + count(s.Most) + " at most"})
	}
	if s := v.Registries.Sums; s != nil {
		out = append(out, stat{"Registry requests", count(s.Served), plural2(s.Refused, "refused", "refused")})
	}
	return out
}

func plural2(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return story.Count(n) + " " + many
}

// oldest is since when the task waits that waits the longest of those that could be worked.
func (v fleetView) oldest() (at time.Time, ok bool) {
	for _, q := range v.Due {
		if since := later(q.Since, q.Due); !ok || since.Before(at) {
			at, ok = since, true
		}
	}
	return at, ok
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sums counts what waits by state and by priority, in words.
func (v fleetView) sums() (out []string) {
	states, priorities := map[task.State]int{}, map[int]int{}
	for _, q := range v.Due {
		states[q.State]++
		priorities[q.Priority]++
	}
	for _, s := range task.States() {
		if n := states[s]; n > 0 {
			word := map[bool]string{true: "goes", false: "go"}[n == 1] + " on " + story.Words(s)
			if s == task.Queued {
				word = "new"
			}
			out = append(out, count(n)+" "+word)
		}
	}
	for p := range 10 {
		if n := priorities[p]; n > 0 {
			out = append(out, fmt.Sprintf("priority %d: %s", p, count(n)))
		}
	}
	return out
}

// full reports whether a share has reached its cap.
func full(s overview.Share, most int) bool { return most > 0 && s.Running >= most }

// machine and process are the parts of a worker's name that people know.
func machine(owner string) (host, process string) {
	parts := strings.SplitN(owner, ":", 3)
	if len(parts) < 2 {
		return owner, ""
	}
	return parts[0], parts[1]
}

// roughly is a time in minutes, so that a page that is live does not flicker.
func roughly(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "<1m"
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh %02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// clock is a time of the day, and the day where it is another one.
func clock(now, at time.Time) string {
	at, now = at.UTC(), now.UTC()
	if at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return at.Format("15:04:05") + " UTC"
	}
	return at.Format("2 Jan 15:04") + " UTC"
}

// size is a number of bytes.
func size(n int64) string {
	for _, u := range []struct {
		name string
		of   int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.of {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.of), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// shareOf is a share of a whole in percent, "–" of nothing.
func shareOf(n, of int64) string {
	if of <= 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(n)/float64(of))
}

// width is a share of a whole as the width of a bar of 100.
func width(n, of int64) string {
	if of <= 0 {
		return "0"
	}
	return px(min(100, max(0, 100*float64(n)/float64(of))))
}

func (s *Site) fleetView(r *http.Request) (fleetView, error) {
	v := viewer(r)
	f, err := s.cfg.Board.Fleet(r.Context(), v)
	return newFleetView(f, v.Operates(), s.cfg.Now()), err
}

// fleet is the page of what runs and what waits.
func (s *Site) fleet(w http.ResponseWriter, r *http.Request) error {
	v, err := s.fleetView(r)
	if err != nil {
		return err
	}
	h := s.head(r, "Fleet", "fleet")
	h.Live = "/live/fleet"
	s.write(w, r, http.StatusOK, fleetPage(h, v))
	return nil
}

// fleetPart is a piece of the page that is sent anew when it changed.
type fleetPart struct {
	id   string
	made templ.Component
}

func (v fleetView) parts() []fleetPart {
	return []fleetPart{
		{"fleet-sum", fleetSum(v)},
		{"fleet-running", fleetRunningPart(v)},
		{"fleet-queue", fleetQueue(v)},
		{"fleet-shares", fleetSharesPart(v)},
		{"fleet-ready", fleetReady(v)},
		{"fleet-limits", fleetLimits(v)},
		{"fleet-workers", fleetWorkers(v)},
		{"fleet-registries", fleetRegistries(v)},
	}
}

// fleetLive sends the pieces of the page that changed, as often as the fleet is looked at. It ends with
// the viewer's session, and counts among their streams.
func (s *Site) fleetLive(w http.ResponseWriter, r *http.Request) error {
	who := viewer(r)
	list, err := s.cfg.Hub.SubscribeList(r.Context(), live.Watcher{Name: who.Key(), May: who.Still}, s.cfg.Now())
	if err != nil {
		return err
	}
	defer list.Close()
	out, err := live.NewSender(w)
	if err != nil {
		return nil
	}
	seed, sent := maphash.MakeSeed(), map[string]uint64{}
	for {
		v, err := s.fleetView(r)
		if err != nil {
			s.cfg.Logger.ErrorContext(r.Context(), "live page failed", "path", r.URL.Path, "error", err)
			return nil // the viewer comes back
		}
		var changed bytes.Buffer
		for _, p := range v.parts() {
			var b bytes.Buffer
			if err := p.made.Render(r.Context(), &b); err != nil {
				return nil
			}
			if h := maphash.Bytes(seed, b.Bytes()); sent[p.id] != h {
				sent[p.id] = h
				changed.Write(b.Bytes())
			}
		}
		if changed.Len() > 0 {
			out.Event("", "patch", changed.Bytes())
		} else {
			out.Comment("still here")
		}
		if out.Flush() != nil || !rest(r.Context(), list, s.every) {
			return nil
		}
	}
}

// rest waits, and reports false when the viewer left or may look no more.
func rest(ctx context.Context, list *live.List, d time.Duration) bool {
	tick, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		if _, err := list.Next(tick); err != nil {
			return tick.Err() != nil && ctx.Err() == nil
		}
	}
}

// compact is a number that may be large, in a few characters.
func compact(n int64) string {
	if n < 100_000 {
		return story.Count(n)
	}
	return plot.Counts.Say(float64(n))
}

// limitName is what a provider's limit is on.
func limitName(name string) string {
	switch name {
	case "input", "output":
		return name + " tokens"
	}
	return story.Words(name)
}

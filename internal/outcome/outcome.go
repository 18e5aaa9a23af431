// Package outcome owns what became of tasks once people had looked at them: one pure fold over a
// task's events, and the rates over many.
//
// Invariants: every figure comes from the record alone; a rate is kept with its denominator; the
// cost of what was merged includes what every other task cost, failed and declined ones too.
package outcome

import (
	"slices"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Window is how long after a merge a revert counts.
const Window = 30 * 24 * time.Hour

// Outcome is what became of one task.
type Outcome struct {
	Task     task.ID       `json:"task"`
	Repo     string        `json:"repo"`
	State    task.State    `json:"state"`
	Created  time.Time     `json:"created"`
	Cost     task.MicroUSD `json:"cost_micro_usd"`
	Unpriced bool          `json:"unpriced,omitempty"` // some reply had no known price: it cost more
	Steps    int           `json:"steps"`
	Tokens   task.Tokens   `json:"tokens"`
	Declined string        `json:"declined,omitempty"` // the kind of the agent's honest no, of a task that ended with one

	PullRequest string `json:"pull_request,omitempty"`
	Merged      bool   `json:"merged"`
	Closed      bool   `json:"closed"`   // by a person, unmerged
	Reverted    bool   `json:"reverted"` // within [Window] of the merge
	FollowUps   int    `json:"follow_ups"`
	Pushes      int    `json:"human_pushes"` // to the branch, by others than Daybreak

	ToPullRequest time.Duration `json:"to_pull_request_ns,omitempty"` // from the creation to the first one
	ToMerge       time.Duration `json:"to_merge_ns,omitempty"`        // from the creation to the merge
}

// Of folds a task's log. An event of a kind that this build does not know changes nothing.
// Errors are those of [event.Fold].
func Of(events []event.Event) (Outcome, error) {
	sum, err := event.Fold(events)
	if err != nil {
		return Outcome{}, err
	}
	o := Outcome{
		Task: sum.Task, Repo: sum.Created.Repo, State: sum.State, Created: sum.CreatedAt,
		Cost: sum.Spent.Cost, Unpriced: sum.Unpriced, Steps: sum.Spent.Steps, Tokens: sum.Spent.Tokens,
	}
	if sum.State == task.Declined && sum.Declined != nil {
		o.Declined = sum.Declined.Kind
	}
	for _, e := range events {
		p, err := event.Decode(e)
		if err != nil {
			return Outcome{}, err
		}
		o.take(e, p)
	}
	return o, nil
}

func (o *Outcome) take(e event.Event, p event.Payload) {
	switch p := p.(type) {
	case *event.PullRequestOpened:
		if o.PullRequest == "" {
			o.ToPullRequest = e.Time.Sub(o.Created)
		}
		o.PullRequest = p.URL
		if o.PullRequest == "" {
			o.PullRequest = p.Branch
		}
	case *event.StateChanged:
		if p.From == task.InReview && p.To == task.Working {
			o.FollowUps++
		}
	case *event.BranchPushed:
		o.Pushes++
	case *event.PullRequestEnded:
		o.Merged, o.Closed = p.Merged, !p.Merged
		if p.Merged {
			o.ToMerge = ended(p, e).Sub(o.Created)
		}
	case *event.PullRequestReverted:
		if o.Merged && p.At.Sub(o.Created.Add(o.ToMerge)) <= Window {
			o.Reverted = true
		}
	}
}

// ended is when the forge says that it was, or else when it was recorded.
func ended(p *event.PullRequestEnded, e event.Event) time.Time {
	if p.At.IsZero() {
		return e.Time
	}
	return p.At
}

// Rework reports whether a change needed more after a person had looked at it.
func (o Outcome) Rework() bool { return o.FollowUps > 0 || o.Pushes > 0 }

// Totals are the rates over some tasks.
type Totals struct {
	Name         string             `json:"name"`
	Tasks        int                `json:"tasks"` // all of them, also those under way
	States       map[task.State]int `json:"states"`
	PullRequests int                `json:"pull_requests"`
	Decided      int                `json:"decided"` // merged or closed by a person
	Merged       int                `json:"merged"`
	Closed       int                `json:"closed"`
	Reverted     int                `json:"reverted"`     // of the merged ones
	Settled      int                `json:"settled"`      // merged longer ago than [Window], so that none will be reverted in it any more
	Reworked     int                `json:"reworked"`     // of those with a pull request
	FollowUps    int                `json:"follow_ups"`   // in all
	Pushes       int                `json:"human_pushes"` // in all

	Declines map[string]int `json:"declines"` // the declined ones by the agent's reason

	Cost     task.MicroUSD `json:"cost_micro_usd"` // of all tasks
	Unpriced int           `json:"unpriced"`       // tasks whose cost is not all known
	Tokens   task.Tokens   `json:"tokens"`         // of all tasks

	OverAll     *float64 `json:"merge_rate_all"`            // merged / tasks; null without tasks
	OverDecided *float64 `json:"merge_rate_decided"`        // merged / decided; null without any
	PerMerged   *float64 `json:"usd_per_merged"`            // cost of all tasks / merged; null without any
	CacheHits   *float64 `json:"cache_hit_rate"`            // of the tokens sent, those read from a cache; null without any
	MedianPR    int64    `json:"median_to_pull_request_ms"` // 0 without any
	P90PR       int64    `json:"p90_to_pull_request_ms"`    // nine of ten were there by then; 0 without any
	MedianMerge int64    `json:"median_to_merge_ms"`        // 0 without any
}

// Sent is how many tokens went to models, read from a cache or not.
func (t Totals) Sent() int64 { return t.Tokens.Total() - t.Tokens.Output }

// Sum adds up outcomes as they are at the time now.
func Sum(name string, now time.Time, os []Outcome) Totals {
	t := Totals{Name: name, States: map[task.State]int{}, Declines: map[string]int{}}
	var toPR, toMerge []time.Duration
	for _, o := range os {
		t.Tasks++
		t.States[o.State]++
		t.Cost += o.Cost
		t.Tokens = t.Tokens.Add(o.Tokens)
		if o.Declined != "" {
			t.Declines[o.Declined]++
		}
		t.FollowUps += o.FollowUps
		t.Pushes += o.Pushes
		count(&t.Unpriced, o.Unpriced)
		count(&t.Merged, o.Merged)
		count(&t.Closed, o.Closed)
		count(&t.Reverted, o.Reverted)
		count(&t.Settled, o.Merged && now.Sub(o.Created.Add(o.ToMerge)) > Window)
		if o.PullRequest != "" {
			t.PullRequests++
			count(&t.Reworked, o.Rework())
			toPR = append(toPR, o.ToPullRequest)
		}
		if o.Merged {
			toMerge = append(toMerge, o.ToMerge)
		}
	}
	t.Decided = t.Merged + t.Closed
	t.OverAll, t.OverDecided = share(t.Merged, t.Tasks), share(t.Merged, t.Decided)
	if t.Merged > 0 {
		per := t.Cost.USD() / float64(t.Merged)
		t.PerMerged = &per
	}
	if sent := t.Sent(); sent > 0 {
		hits := float64(t.Tokens.CacheRead) / float64(sent)
		t.CacheHits = &hits
	}
	t.MedianPR, t.MedianMerge = median(toPR).Milliseconds(), median(toMerge).Milliseconds()
	t.P90PR = rank(toPR, 90).Milliseconds()
	return t
}

func count(n *int, yes bool) {
	if yes {
		*n++
	}
}

func share(part, whole int) *float64 {
	if whole == 0 {
		return nil
	}
	s := float64(part) / float64(whole)
	return &s
}

func median(ds []time.Duration) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	slices.Sort(ds)
	if n := len(ds); n%2 == 0 {
		return (ds[n/2-1] + ds[n/2]) / 2
	}
	return ds[len(ds)/2]
}

// rank is the least of the durations that at least so many of a hundred do not exceed.
func rank(ds []time.Duration, percent int) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	slices.Sort(ds)
	return ds[(len(ds)*percent+99)/100-1]
}

// Group sorts outcomes into named groups and adds up each, in the order of the names.
func Group(now time.Time, os []Outcome, by func(Outcome) string) []Totals {
	groups := map[string][]Outcome{}
	var names []string
	for _, o := range os {
		n := by(o)
		if _, ok := groups[n]; !ok {
			names = append(names, n)
		}
		groups[n] = append(groups[n], o)
	}
	slices.Sort(names)
	out := make([]Totals, len(names))
	for i, n := range names {
		out[i] = Sum(n, now, groups[n])
	}
	return out
}

// Week names the ISO week in which a task was created by its Monday, UTC.
func Week(o Outcome) string {
	at := o.Created.UTC()
	return at.AddDate(0, 0, -(int(at.Weekday())+6)%7).Format(time.DateOnly)
}

// Month names the month in which a task was created, UTC.
func Month(o Outcome) string { return o.Created.UTC().Format("2006-01") }

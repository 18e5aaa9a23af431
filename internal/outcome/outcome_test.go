package outcome

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func begin() time.Time { return time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC) } // a Wednesday

// log seals payloads an hour apart.
func log(t *testing.T, id task.ID, ps ...event.Payload) []event.Event {
	t.Helper()
	var out []event.Event
	prev := event.Genesis(id)
	for i, p := range ps {
		d, err := event.New(p)
		if err != nil {
			t.Fatal(err)
		}
		e := event.Seal(id, int64(i)+1, 1, begin().Add(time.Duration(i)*time.Hour), prev, d)
		prev = e.Hash
		out = append(out, e)
	}
	return out
}

func id(n string) task.ID { return task.ID("t_" + strings.Repeat("0", 25) + n) }

func to(from, state task.State) event.StateChanged { return event.StateChanged{From: from, To: state} }

// sent are a call's tokens: of 140 with those of a failed attempt, 80 were read from a cache.
func sent() task.Tokens { return task.Tokens{Input: 10, CacheRead: 80, CacheWrite: 10, Output: 7} }

// reviewed is a task up to its pull request, at hour 6.
func reviewed(more ...event.Payload) []event.Payload {
	return append([]event.Payload{
		event.TaskCreated{Repo: "shop/cart"},
		to(task.Queued, task.Preparing), to(task.Preparing, task.Working),
		event.ModelResponded{Cost: 2_000_000, Priced: true, Tokens: sent(), Wasted: task.Tokens{Input: 40}},
		to(task.Working, task.Verifying), to(task.Verifying, task.Publishing),
		event.PullRequestOpened{URL: "https://forge.test/1", Branch: "b"},
		to(task.Publishing, task.InReview),
	}, more...)
}

func TestOf(t *testing.T) {
	merged := begin().Add(20 * time.Hour)
	end := []event.Payload{event.PullRequestEnded{Number: 1, Merged: true, At: merged}, to(task.InReview, task.Merged)}
	base := Outcome{
		Task: id("1"), Repo: "shop/cart", Created: begin(), Cost: 2_000_000, Steps: 1, PullRequest: "https://forge.test/1", ToPullRequest: 6 * time.Hour,
		Tokens: task.Tokens{Input: 50, CacheRead: 80, CacheWrite: 10, Output: 7},
	}
	with := func(change func(*Outcome)) Outcome { o := base; change(&o); return o }
	late := append(end[:2:2], event.PullRequestReverted{At: merged.Add(Window + time.Second)})
	for name, c := range map[string]struct {
		log  []event.Payload
		want Outcome
	}{
		"in review": {reviewed(), with(func(o *Outcome) { o.State = task.InReview })},
		"merged":    {reviewed(end...), with(func(o *Outcome) { o.State, o.Merged, o.ToMerge = task.Merged, true, 20*time.Hour })},
		"closed": {reviewed(event.PullRequestEnded{Number: 1, At: merged}, to(task.InReview, task.Closed)), with(func(o *Outcome) {
			o.State, o.Closed = task.Closed, true
		})},
		"reverted": {reviewed(append(end[:2:2], event.PullRequestReverted{At: merged.Add(Window)})...), with(func(o *Outcome) {
			o.State, o.Merged, o.ToMerge, o.Reverted = task.Merged, true, 20*time.Hour, true
		})},
		"declined": {
			[]event.Payload{
				event.TaskCreated{Repo: "shop/cart"},
				to(task.Queued, task.Preparing), to(task.Preparing, task.Working),
				event.Declined{Kind: "out_of_scope", Reason: "r"},
				to(task.Working, task.Declined),
			},
			Outcome{Task: id("1"), Repo: "shop/cart", Created: begin(), State: task.Declined, Declined: "out_of_scope"},
		},
		"taken back later": {reviewed(late...), with(func(o *Outcome) { o.State, o.Merged, o.ToMerge = task.Merged, true, 20*time.Hour })},
		"reworked": {reviewed(event.BranchPushed{By: "olga"}, to(task.InReview, task.Working), event.ModelResponded{Cost: 1}), with(func(o *Outcome) {
			o.State, o.FollowUps, o.Pushes, o.Cost, o.Steps, o.Unpriced = task.Working, 1, 1, 2_000_001, 2, true
		})},
	} {
		got, err := Of(log(t, id("1"), c.log...))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if _, err := Of(log(t, id("1"), reviewed(to(task.Queued, task.Merged))...)); err == nil {
		t.Error("a log that does not fold has an outcome")
	}
}

// TestSum: what failed is in the cost of what was merged, and every rate has its denominator.
func TestSum(t *testing.T) {
	now := begin().Add(365 * 24 * time.Hour)
	os := []Outcome{
		{State: task.Merged, Merged: true, Cost: 1_000_000, PullRequest: "1", ToPullRequest: time.Hour, ToMerge: 2 * time.Hour, Created: begin(), Reverted: true, Tokens: sent()},
		{State: task.Merged, Merged: true, Cost: 2_000_000, PullRequest: "2", ToPullRequest: 3 * time.Hour, ToMerge: 4 * time.Hour, Created: now.Add(-24 * time.Hour), FollowUps: 2},
		{State: task.Closed, Closed: true, Cost: 1_000_000, PullRequest: "3", ToPullRequest: 2 * time.Hour, Pushes: 1},
		{State: task.Failed, Cost: 3_000_000, Unpriced: true},
		{State: task.Declined, Cost: 1_000_000, Declined: "out_of_scope", Tokens: task.Tokens{Input: 60, Output: 1000}},
	}
	got := Sum("all", now, os)
	all, decided, per, hits := 2.0/5, 2.0/3, 4.0, 0.5 // 80 of 160
	want := Totals{
		Name: "all", Tasks: 5, States: map[task.State]int{task.Merged: 2, task.Closed: 1, task.Failed: 1, task.Declined: 1},
		PullRequests: 3, Decided: 3, Merged: 2, Closed: 1, Reverted: 1, Settled: 1, Reworked: 2, FollowUps: 2, Pushes: 1,
		Cost: 8_000_000, Unpriced: 1, OverAll: &all, OverDecided: &decided, PerMerged: &per,
		Declines: map[string]int{"out_of_scope": 1}, Tokens: task.Tokens{Input: 70, CacheRead: 80, CacheWrite: 10, Output: 1007}, CacheHits: &hits,
		MedianPR: (2 * time.Hour).Milliseconds(), P90PR: (3 * time.Hour).Milliseconds(), MedianMerge: (3 * time.Hour).Milliseconds(),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if none := Sum("none", now, os[3:]); none.OverDecided != nil || none.PerMerged != nil || *none.OverAll != 0 || none.P90PR != 0 {
		t.Errorf("%+v", none)
	}
	if empty := Sum("empty", now, nil); empty.OverAll != nil || empty.CacheHits != nil {
		t.Errorf("%+v", empty)
	}
}

func TestGroup(t *testing.T) {
	os := []Outcome{{Repo: "b", Created: begin()}, {Repo: "a", Created: begin().Add(4 * 24 * time.Hour)}, {Repo: "b", Created: begin().Add(5 * 24 * time.Hour)}}
	names := func(ts []Totals) (out []string) {
		for _, x := range ts {
			out = append(out, x.Name)
		}
		return out
	}
	if got := names(Group(begin(), os, func(o Outcome) string { return o.Repo })); !cmp.Equal(got, []string{"a", "b"}) {
		t.Error(got)
	}
	if got := names(Group(begin(), os, Week)); !cmp.Equal(got, []string{"2026-03-02", "2026-03-09"}) { // Sunday is still the first week's
		t.Error(got)
	}
	if got := names(Group(begin(), os, Month)); !cmp.Equal(got, []string{"2026-03"}) {
		t.Error(got)
	}
}

// TestRank: of ten, nine are there by the ninth; of one, all are.
func TestRank(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 2, 9: 9, 10: 9, 11: 10, 100: 90} {
		var ds []time.Duration
		for i := range n {
			ds = append(ds, time.Duration(n-i))
		}
		if got := rank(ds, 90); got != time.Duration(want) {
			t.Errorf("of %d: %d, want %d", n, got, want)
		}
	}
}

// TestSpans: weeks and months in which nothing was asked for are there, up to now.
func TestSpans(t *testing.T) {
	groups := func(names ...string) (out []Totals) {
		for _, n := range names {
			out = append(out, Totals{Name: n})
		}
		return out
	}
	for _, c := range []struct {
		by     string
		groups []Totals
		now    time.Time
		want   []string
	}{
		{"week", groups("2026-03-02", "2026-03-23"), begin(), []string{"2026-03-02", "2026-03-09", "2026-03-16", "2026-03-23"}},
		{"week", groups("2026-02-23"), begin(), []string{"2026-02-23", "2026-03-02"}},
		{"month", groups("2025-12"), begin(), []string{"2025-12", "2026-01", "2026-02", "2026-03"}},
		{"month", nil, begin(), nil},
		{"month", groups("shop/cart"), begin(), nil},
	} {
		if got := Spans(c.by, c.groups, c.now); !cmp.Equal(got, c.want) {
			t.Errorf("%s %v: %v", c.by, c.groups, got)
		}
	}
	if got := Spans("week", groups("0001-01-01"), begin()); len(got) != maxSpans {
		t.Errorf("%d weeks since the first", len(got))
	}
}

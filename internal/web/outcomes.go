package web

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/daybreak-agent/daybreak/internal/outcome"
	"github.com/daybreak-agent/daybreak/internal/story"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/web/plot"
)

// outcomesView is what became of tasks as one viewer sees it.
type outcomesView struct {
	Repo, Since, By string
	Repos           []string
	Total           outcome.Totals
	Spans           []outcome.Totals // one a week or a month, without a gap
	Earlier         int              // spans before those that are drawn
	ByRepo          []outcome.Totals
	Declines        []declines
}

// declines is how many tasks were declined for one reason.
type declines struct {
	Reason string
	N      int
}

// Filtered reports whether another filter than the one of a new page is set.
func (v outcomesView) Filtered() bool {
	return v.Repo != "" || v.Since != sinceDefault || v.By != "week"
}

// The time that a page is over unless another is asked for, and the word for all of it.
const (
	sinceDefault = "90d"
	sinceAll     = "all"
)

// maxSpans is how many weeks or months a plot shows.
const maxSpans = 106

type choice struct{ Value, Name string }

// periods are those that the page offers, and the one that was asked for.
func (v outcomesView) periods() []choice {
	out := []choice{{"30d", "30 days"}, {sinceDefault, "90 days"}, {"365d", "a year"}, {sinceAll, "all time"}}
	if !slices.ContainsFunc(out, func(c choice) bool { return c.Value == v.Since }) {
		out = append(out, choice{v.Since, "since " + v.Since})
	}
	return out
}

// filter is the page with another repository.
func (v outcomesView) filter(repo string) templ.SafeURL {
	return templ.SafeURL("/outcomes?" + url.Values{"repo": {repo}, "since": {v.Since}, "by": {v.By}}.Encode())
}

// outcomes is the page of what became of tasks, and what it cost.
func (s *Site) outcomes(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	v := outcomesView{Repo: q.Get("repo"), Since: cmp.Or(q.Get("since"), sinceDefault), By: "week"}
	if q.Get("by") == "month" {
		v.By = "month"
	}
	now := s.cfg.Now()
	since := time.Time{}
	if v.Since != sinceAll {
		var err error
		if since, err = outcome.ParseSince(v.Since, now); err != nil {
			return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("the time %.40q is none", v.Since), Fix: "choose one of those that the page offers, or name a day such as 2026-01-31"}
		}
	}
	o, err := s.cfg.Board.Outcomes(r.Context(), viewer(r), since, v.Repo)
	if err != nil {
		return err
	}
	s.write(w, r, http.StatusOK, outcomesPage(s.head(r, "Outcomes", "outcomes"), newOutcomesView(v, o.All, o.Repos, now)))
	return nil
}

// newOutcomesView adds up for the filter of v.
func newOutcomesView(v outcomesView, all []outcome.Outcome, repos []string, now time.Time) outcomesView {
	v.Total = outcome.Sum("all", now, all)
	v.Repos = repos
	if v.Repo != "" && !slices.Contains(repos, v.Repo) {
		v.Repos = append([]string{v.Repo}, repos...)
	}
	v.ByRepo = outcome.Group(now, all, func(o outcome.Outcome) string { return o.Repo })
	slices.SortStableFunc(v.ByRepo, func(a, b outcome.Totals) int { return b.Tasks - a.Tasks })
	key := outcome.Week
	if v.By == "month" {
		key = outcome.Month
	}
	groups := outcome.Group(now, all, key)
	names := before(v.By, outcome.Spans(v.By, groups, now))
	v.Earlier = max(0, len(names)-maxSpans)
	for _, n := range names[v.Earlier:] {
		i, ok := slices.BinarySearchFunc(groups, n, func(t outcome.Totals, n string) int { return strings.Compare(t.Name, n) })
		if ok {
			v.Spans = append(v.Spans, groups[i])
		} else {
			v.Spans = append(v.Spans, outcome.Totals{Name: n})
		}
	}
	for reason, n := range v.Total.Declines {
		v.Declines = append(v.Declines, declines{reason, n})
	}
	slices.SortFunc(v.Declines, func(a, b declines) int { return cmp.Or(b.N-a.N, strings.Compare(a.Reason, b.Reason)) })
	return v
}

// leastSpans is how many weeks or months a plot shows at least, so that one alone does not fill it.
const leastSpans = 8

// before adds the weeks or months before the first one.
func before(by string, names []string) []string {
	for len(names) > 0 && len(names) < leastSpans {
		layout, months, days := time.DateOnly, 0, -7
		if by == "month" {
			layout, months, days = "2006-01", -1, 0
		}
		at, err := time.Parse(layout, names[0])
		if err != nil {
			break
		}
		names = append([]string{at.AddDate(0, months, days).Format(layout)}, names...)
	}
	return names
}

// stats are the outcomes in a few numbers.
func (v outcomesView) stats() []stat {
	t := v.Total
	took := "no pull request yet"
	if t.PullRequests > 0 {
		took = "in the middle; nine of ten within " + tookOr(t.P90PR, t.PullRequests)
	}
	return []stat{
		{"Merged of decided", percentOf(t.OverDecided), count(t.Merged) + " of " + count(t.Decided)},
		{"Merged of all", percentOf(t.OverAll), count(t.Merged) + " of " + plural(t.Tasks, "task")},
		{"Cost per merged", usd(t.PerMerged), money(t.Cost) + " for all tasks, failed and declined ones too"},
		{"To a pull request", tookOr(t.MedianPR, t.PullRequests), took},
		{"Cache hits", percentOf(t.CacheHits), "of " + plot.Counts.Say(float64(t.Sent())) + " tokens that models were sent"},
		{"Declined", part1(t.States[task.Declined], t.Tasks), count(t.States[task.Declined]) + " of " + plural(t.Tasks, "task")},
		{"Reverted", part1(t.Reverted, t.Merged), fmt.Sprintf("%s of %s merged; %s longer ago than 30 days", count(t.Reverted), count(t.Merged), count(t.Settled))},
		{"Reworked", part1(t.Reworked, t.PullRequests), count(t.Reworked) + " of " + plural(t.PullRequests, "pull request")},
	}
}

func part1(n, of int) string { return shareOf(int64(n), int64(of)) }

// percentOf is a share in percent, "–" where there is none.
func percentOf(f *float64) string {
	if f == nil {
		return "–"
	}
	return plot.Shares.Say(*f)
}

func usd(f *float64) string {
	if f == nil {
		return "–"
	}
	return money(task.MicroUSD(*f * 1e6))
}

func tookOr(ms int64, of int) string {
	if of == 0 {
		return "–"
	}
	return plot.Duration.Say(float64(ms) / 1000)
}

// spanName calls a week or a month; short is for under a plot.
func (v outcomesView) spanName(t outcome.Totals, short bool) string {
	if v.By == "month" {
		at, err := time.Parse("2006-01", t.Name)
		switch {
		case err != nil:
			return t.Name
		case short:
			return at.Format("Jan ’06")
		}
		return at.Format("January 2006")
	}
	at, err := time.Parse(time.DateOnly, t.Name)
	switch {
	case err != nil:
		return t.Name
	case short && len(v.Spans) <= 52:
		return at.Format("2 Jan")
	case short:
		return at.Format("Jan ’06")
	}
	return "week of " + at.Format("2 January 2006")
}

// figure is a plot with what it says in words and in a table.
type figure struct {
	ID, Title, Note string
	Plot            plot.Plot
	Legend          []legend
	Say             []string // sentences
	Head            []string
	Rows            [][]string // the first is the row's name
}

type legend struct{ Name, Class string }

// series is a row of figures over time, and how it is drawn.
type series struct {
	name, class string
	of          func(outcome.Totals) (value float64, known bool, n int) // n is what it stands on
	say         func(outcome.Totals) string
}

// few is on how many a rate must stand to be drawn as a full dot.
const few = 5

// over draws figures over time.
func (v outcomesView) over(id, title, note string, u plot.Unit, columns bool, all ...series) figure {
	f := figure{ID: id, Title: title, Note: note, Head: []string{map[bool]string{true: "Month", false: "Week of"}[v.By == "month"]}}
	across := make([]string, len(v.Spans))
	for i, t := range v.Spans {
		across[i] = v.spanName(t, true)
		row := []string{strings.TrimPrefix(v.spanName(t, false), "week of ")}
		for _, s := range all {
			row = append(row, s.say(t))
		}
		f.Rows = append(f.Rows, row)
	}
	slices.Reverse(f.Rows) // the newest first, as everywhere
	var drawn []plot.Series
	for _, s := range all {
		f.Head = append(f.Head, s.name)
		f.Legend = append(f.Legend, legend{s.name, s.class})
		p := plot.Series{Name: s.name, Class: s.class}
		for _, t := range v.Spans {
			value, known, n := s.of(t)
			p.Values = append(p.Values, plot.Value{V: value, Known: known, Few: n < few && !columns, Say: v.spanName(t, false) + ", " + s.name + ": " + s.say(t)})
		}
		drawn = append(drawn, p)
		f.Say = append(f.Say, v.inWords(u, s, p.Values))
	}
	if columns {
		f.Plot = plot.Columns(u, across, drawn...)
	} else {
		f.Plot = plot.Lines(u, across, drawn...)
	}
	return f
}

// inWords says what a line shows to who cannot see it.
func (v outcomesView) inWords(u plot.Unit, s series, vs []plot.Value) string {
	low, high, last := -1, -1, -1
	for i, x := range vs {
		if !x.Known {
			continue
		}
		if low < 0 || x.V < vs[low].V {
			low = i
		}
		if high < 0 || x.V > vs[high].V {
			high = i
		}
		last = i
	}
	if last < 0 {
		return s.name + ": nothing is known."
	}
	name := func(i int) string { return v.spanName(v.Spans[i], false) }
	if low == high {
		return fmt.Sprintf("%s: %s (%s).", s.name, u.Say(vs[last].V), name(last))
	}
	return fmt.Sprintf("%s: from %s (%s) to %s (%s), last %s (%s).", s.name, u.Say(vs[low].V), name(low), u.Say(vs[high].V), name(high), u.Say(vs[last].V), name(last))
}

func rate(f *float64, n int) (float64, bool, int) {
	if f == nil {
		return 0, false, n
	}
	return *f, true, n
}

func sayRate(f *float64, part, whole int) string {
	if f == nil {
		return "–"
	}
	return fmt.Sprintf("%s (%s of %s)", percentOf(f), count(part), count(whole))
}

// figures are the plots of the page.
func (v outcomesView) figures() []figure {
	states := func(name, class string, all ...task.State) series {
		n := func(t outcome.Totals) (sum int) {
			for _, s := range all {
				sum += t.States[s]
			}
			return sum
		}
		return series{
			name, class, func(t outcome.Totals) (float64, bool, int) { return float64(n(t)), true, n(t) },
			func(t outcome.Totals) string { return count(n(t)) },
		}
	}
	times := func(name, class string, ms func(outcome.Totals) int64) series {
		return series{
			name, class, func(t outcome.Totals) (float64, bool, int) {
				return float64(ms(t)) / 1000, t.PullRequests > 0, t.PullRequests
			},
			func(t outcome.Totals) string { return tookOr(ms(t), t.PullRequests) },
		}
	}
	return []figure{
		v.over("became", "What became of tasks", "By when they were made.", plot.Counts, true,
			states("merged", "s-good", task.Merged), states("in review", "s-review", task.InReview), states("under way", "s-run", task.Queued, task.Preparing, task.Working, task.Verifying, task.Publishing),
			states("closed", "s-idle", task.Closed), states("declined", "s-wait", task.Declined), states("failed, stopped or out of budget", "s-bad", task.Failed, task.Stopped, task.Exhausted)),
		v.over("merge-rate", "Merge rate", "Of the tasks that a person decided, and of all.", plot.Shares, false,
			series{
				"of decided", "s-good", func(t outcome.Totals) (float64, bool, int) { return rate(t.OverDecided, t.Decided) },
				func(t outcome.Totals) string { return sayRate(t.OverDecided, t.Merged, t.Decided) },
			},
			series{
				"of all", "s-run dashed", func(t outcome.Totals) (float64, bool, int) { return rate(t.OverAll, t.Tasks) },
				func(t outcome.Totals) string { return sayRate(t.OverAll, t.Merged, t.Tasks) },
			}),
		v.over("cost", "Cost per merged pull request", "What all tasks cost, failed and declined ones too, over the merged ones.", plot.Dollars, false,
			series{
				"per merged", "s-run", func(t outcome.Totals) (float64, bool, int) { return rate(t.PerMerged, t.Merged) },
				func(t outcome.Totals) string {
					if t.PerMerged == nil && t.Cost == 0 {
						return "–"
					}
					return fmt.Sprintf("%s (%s for %s)", usd(t.PerMerged), money(t.Cost), count(t.Merged)+" merged")
				},
			}),
		v.over("time", "Time to a pull request", "From the task's creation.", plot.Duration, false,
			times("in the middle", "s-run", func(t outcome.Totals) int64 { return t.MedianPR }),
			times("nine of ten", "s-review dashed", func(t outcome.Totals) int64 { return t.P90PR })),
		v.over("cache", "Cache hits", "Of the tokens that models were sent, those read from a cache.", plot.Shares, false,
			series{
				"read from a cache", "s-good", func(t outcome.Totals) (float64, bool, int) { return rate(t.CacheHits, t.Tasks) },
				func(t outcome.Totals) string {
					if t.CacheHits == nil {
						return "–"
					}
					return percentOf(t.CacheHits) + " of " + plot.Counts.Say(float64(t.Sent()))
				},
			}),
	}
}

// repoWords is a repository's name as one reads it: an address without its scheme, a path's end.
func repoWords(repo string) string {
	if _, rest, ok := strings.Cut(repo, "://"); ok {
		return strings.TrimSuffix(strings.TrimRight(rest, "/"), ".git")
	}
	return cmp.Or(story.RepoName(repo), repo)
}

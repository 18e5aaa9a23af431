package web

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/story"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// stateClass marks a moment that changed the task's state with its stage's colour.
func stateClass(it *story.Item) string {
	if p, ok := it.Moment.Payload.(*event.StateChanged); ok {
		return "at b-" + string(p.To)
	}
	return ""
}

// line is the time line: a bar of the stages with a tick for each step.
type line struct {
	Label  string
	Bars   []bar
	Ticks  []tick
	Stages []stageSum
}

type bar struct{ Class, X, W string }

type tick struct{ Class, X, Y, W, H string }

type stageSum struct{ Class, Name, Took, Note string }

// lineOf draws the stages in proportion to their time. Time in which nobody worked (queued, in
// review, waiting) has no width.
func lineOf(v *taskView) line {
	active := func(s story.Stage) bool {
		return s.State != task.Queued && !s.State.Done()
	}
	type stretch struct {
		story.Stage
		x, w float64
	}
	var total time.Duration
	var all []stretch
	for _, s := range v.Story.Stages {
		if active(s) {
			total += s.To.Sub(s.From)
			all = append(all, stretch{Stage: s})
		}
	}
	var l line
	x := 0.0
	sums := map[task.State]time.Duration{}
	times := map[task.State]int{}
	var order []task.State
	for i := range all {
		s := &all[i]
		d := s.To.Sub(s.From)
		s.x = x
		s.w = max(2, 1000*float64(d)/max(1, float64(total)))
		x += s.w
		if times[s.State] == 0 {
			order = append(order, s.State)
		}
		sums[s.State] += d
		times[s.State]++
	}
	scale := 1000 / max(1, x)
	for _, s := range all {
		l.Bars = append(l.Bars, bar{string(s.State), px(s.x * scale), px(max(1, s.w*scale-1))})
	}
	lastX := -10.0
	for _, m := range v.Story.Marks {
		for _, s := range all {
			if m.At.Before(s.From) || m.At.After(s.To) {
				continue
			}
			at := s.x
			if d := s.To.Sub(s.From); d > 0 {
				at += s.w * float64(m.At.Sub(s.From)) / float64(d)
			}
			at *= scale
			if m.Kind == "step" {
				if at-lastX < 1.5 {
					break
				}
				lastX = at
				l.Ticks = append(l.Ticks, tick{"step", px(at), "20", "1.2", "6"})
			} else {
				l.Ticks = append(l.Ticks, tick{m.Kind, px(min(at, 996)), "0", "4", "34"})
			}
			break
		}
	}
	var words []string
	for _, s := range order {
		note := ""
		if times[s] > 1 {
			note = fmt.Sprintf("in %d parts", times[s])
		}
		l.Stages = append(l.Stages, stageSum{string(s), story.Words(s), span(sums[s]), note})
		words = append(words, story.Words(s)+" "+span(sums[s]))
	}
	l.Label = "Stages: " + strings.Join(words, ", ")
	return l
}

func px(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) }

// meters are the budget as it is drawn.
type meters struct {
	Meters    []meter
	Classes   []class
	CacheRate string
}

type meter struct {
	Name, Used, Limit, W string
	Near, Full           bool
}

type class struct{ Name, Class, X, W, Count string }

func metersOf(v *taskView) meters {
	sum := v.Sum()
	var m meters
	limited := map[string]bool{}
	add := func(name, used, limit string, share float64) {
		x := meter{Name: name, Used: used, Limit: limit, Near: share >= 0.8 && share < 1, Full: share >= 1}
		if limit != "" {
			x.W = px(min(100, 100*share))
		}
		m.Meters = append(m.Meters, x)
	}
	for _, b := range sum.Created.Limits.Meters(sum.Spent) {
		limited[b.Name] = true
		used, limit := story.Count(int64(b.Used)), story.Count(int64(b.Limit))
		switch b.Name {
		case "usd":
			used, limit = money(sum.Spent.Cost), fmt.Sprintf("$%.2f", b.Limit)
		case "wall":
			used, limit = sum.Spent.Wall.Round(time.Second).String(), strings.TrimSuffix(strings.TrimSuffix((time.Duration(b.Limit)*time.Second).String(), "0s"), "0m")
		}
		add(meterName(b.Name), used, limit, b.Share())
	}
	if !limited["steps"] {
		add("steps", story.Count(int64(sum.Spent.Steps)), "", 0)
	}
	if !limited["usd"] {
		add("money", money(sum.Spent.Cost), "", 0)
	}
	if !limited["wall"] {
		add("time", sum.Spent.Wall.Round(time.Second).String(), "", 0)
	}
	t := sum.Spent.Tokens
	x := 0.0
	for _, c := range []struct {
		name, class string
		n           int64
	}{{"input", "c-in", t.Input}, {"cache read", "c-read", t.CacheRead}, {"cache write", "c-write", t.CacheWrite}, {"output", "c-out", t.Output}} {
		w := 1000 * float64(c.n) / max(1, float64(t.Total()))
		m.Classes = append(m.Classes, class{c.name, c.class, px(x), px(w), story.Count(c.n)})
		x += w
	}
	if in := t.Input + t.CacheRead + t.CacheWrite; in > 0 && t.CacheRead > 0 {
		m.CacheRate = fmt.Sprintf("%.0f %%", 100*float64(t.CacheRead)/float64(in))
	}
	return m
}

func meterName(s string) string {
	switch s {
	case "usd":
		return "money"
	case "wall":
		return "time"
	case "tokens":
		return "all tokens"
	}
	return story.Words(s)
}

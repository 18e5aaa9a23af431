// Package plot owns where the lines, bars and ticks of a plot are. It draws nothing.
//
// Invariants: pure; what is across is in percent of the width and what is up in pixels, so that a
// plot is drawn at any width without scaling its texts; every number is finite, whatever the values
// are; a value that is not known is a gap, not a zero.
package plot

import (
	"math"
	"strconv"
)

// The heights of a plot, in pixels.
const (
	Height = 208 // in all
	top    = 10  // of the highest tick
	bottom = 180 // of the lowest
	labels = 200 // of the line under the labels of what is across
)

// Value is one value of a series.
type Value struct {
	V     float64
	Known bool
	Few   bool   // it stands on little, and is drawn so
	Say   string // all of it in words
}

// Series is one row of values, as many as there are names across.
type Series struct {
	Name, Class string
	Values      []Value
}

// Tick is a place with its name.
type Tick struct {
	At    string
	Name  string
	Place string // "start", "middle", "end": which part of the name is there
}

// Segment is a straight piece of a line.
type Segment struct{ X1, Y1, X2, Y2 string }

// Dot is one known value.
type Dot struct {
	X, Y string
	Few  bool
	Say  string
}

// Line is a series that is drawn as one.
type Line struct {
	Name, Class string
	Segments    []Segment
	Dots        []Dot
}

// Bar is a part of a column.
type Bar struct{ Class, X, Y, W, H, Say string }

// Plot is what there is to draw.
type Plot struct {
	Empty bool // no value is known
	Y, X  []Tick
	Lines []Line
	Bars  []Bar
	Base  string // where 0 is
}

// Lines draws each series as a line.
func Lines(u Unit, across []string, all ...Series) Plot {
	p, scale := frame(u, across, highest(all))
	p.Empty = true
	for _, s := range all {
		l := Line{Name: s.Name, Class: s.Class}
		last := -2
		var before Dot
		for i := range across {
			v, ok := s.at(i)
			if !ok {
				continue
			}
			d := Dot{X: percent(middle(i, len(across))), Y: px(scale(v.V)), Few: v.Few, Say: v.Say}
			if last == i-1 {
				l.Segments = append(l.Segments, Segment{before.X, before.Y, d.X, d.Y})
			}
			l.Dots = append(l.Dots, d)
			before, last, p.Empty = d, i, false
		}
		p.Lines = append(p.Lines, l)
	}
	return p
}

// Columns stacks the series' values, the first one lowest.
func Columns(u Unit, across []string, all ...Series) Plot {
	sums := make([]Value, len(across))
	for _, s := range all {
		for i := range across {
			if v, ok := s.at(i); ok {
				sums[i].V, sums[i].Known = sums[i].V+v.V, true
			}
		}
	}
	p, scale := frame(u, across, highest([]Series{{Values: sums}}))
	p.Empty = true
	width := 100 / float64(max(1, len(across)))
	for i := range across {
		below := 0.0
		for _, s := range all {
			v, ok := s.at(i)
			if !ok || v.V <= 0 {
				continue
			}
			low, high := scale(below), scale(below+v.V)
			p.Bars = append(p.Bars, Bar{Class: s.Class, X: percent((float64(i) + .14) * width), W: percent(.72 * width), Y: px(high), H: px(low - high), Say: v.Say})
			below, p.Empty = below+v.V, false
		}
	}
	return p
}

// at is the ith value, if it can be drawn.
func (s Series) at(i int) (Value, bool) {
	if i >= len(s.Values) {
		return Value{}, false
	}
	v := s.Values[i]
	return v, v.Known && !math.IsNaN(v.V) && !math.IsInf(v.V, 0)
}

func highest(all []Series) float64 {
	h := 0.0
	for _, s := range all {
		for i := range s.Values {
			if v, ok := s.at(i); ok {
				h = max(h, v.V)
			}
		}
	}
	if h == 0 {
		return 1
	}
	return h
}

// names is how many names there are across at most: so many fit on a phone.
const names = 4

// frame is a plot with its ticks, and where a value is in it.
func frame(u Unit, across []string, high float64) (Plot, func(float64) float64) {
	ticks := u.ticks(high)
	high = max(ticks[len(ticks)-1], min(high, math.MaxFloat64))
	scale := func(v float64) float64 {
		return bottom - (bottom-top)*min(max(v/high, 0), 1)
	}
	p := Plot{Base: px(bottom)}
	for _, t := range ticks {
		p.Y = append(p.Y, Tick{At: px(scale(t)), Name: u.Say(t)})
	}
	step := (len(across) + names - 1) / names
	for i := len(across) - 1; i >= 0; i -= step {
		t := Tick{At: percent(middle(i, len(across))), Name: across[i], Place: "middle"}
		switch at := middle(i, len(across)); {
		case at > 92:
			t.At, t.Place = "100%", "end"
		case at < 8:
			t.At, t.Place = "0%", "start"
		}
		p.X = append(p.X, t)
	}
	return p, scale
}

// Labels is where the names across stand.
func (Plot) Labels() string { return px(labels) }

func middle(i, n int) float64 { return (float64(i) + .5) * 100 / float64(n) }

func percent(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) + "%" }

func px(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

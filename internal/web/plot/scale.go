package plot

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Unit is what values are of; it decides where the ticks are and how they are called.
type Unit int

// The units.
const (
	Counts   Unit = iota
	Shares        // of 1
	Dollars       // and parts of them
	Duration      // in seconds
)

const day = 24 * time.Hour

// steps are distances between ticks of times that people count in.
func steps() []time.Duration {
	return []time.Duration{
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 7 * day, 14 * day, 28 * day,
	}
}

// most is how many distances between ticks there are at most.
const most = 4

// ticks are round values from 0 to at least top, which is positive and finite.
func (u Unit) ticks(top float64) []float64 {
	if u == Shares {
		return []float64{0, .25, .5, .75, 1}
	}
	step := 0.0
	if u == Duration {
		step = round(top/most/day.Seconds()) * day.Seconds()
		for _, s := range steps() {
			if s.Seconds()*most >= top {
				step = s.Seconds()
				break
			}
		}
	}
	if u != Duration {
		step = round(top / most)
	}
	if u == Counts {
		step = max(1, step)
	}
	out := []float64{0}
	for i := 1; i <= most; i++ {
		if at := float64(i) * step; !math.IsInf(at, 0) {
			out = append(out, at)
		}
		if out[len(out)-1] >= top {
			break
		}
	}
	return out
}

// round is the least of 1, 2 and 5 times a power of ten that is not below v, as far as there is one.
func round(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 2, 5, 10} {
		if step := n * power; step >= v*(1-1e-9) && !math.IsInf(step, 0) {
			return step
		}
	}
	return v
}

// Say calls a value by its unit, briefly.
func (u Unit) Say(v float64) string {
	switch u {
	case Shares:
		return strconv.FormatFloat(100*v, 'f', 0, 64) + " %"
	case Dollars:
		return "$" + short(v, true)
	case Duration:
		return sayTime(v)
	}
	return short(v, false)
}

// short is a number in a few characters.
func short(v float64, cents bool) string {
	switch {
	case v >= 1e15:
		return strconv.FormatFloat(v, 'e', 0, 64)
	case v >= 1e12:
		return trim(v/1e12, 1) + "T"
	case v >= 1e9:
		return trim(v/1e9, 1) + "G"
	case v >= 1e6:
		return trim(v/1e6, 1) + "M"
	case v >= 1e4:
		return trim(v/1e3, 1) + "k"
	case cents && v > 0 && v < .01:
		return strconv.FormatFloat(v, 'g', 2, 64)
	case cents && v != math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v != math.Trunc(v):
		return trim(v, 2)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

func trim(v float64, digits int) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(v, 'f', digits, 64), "0"), ".")
}

func sayTime(s float64) string {
	switch {
	case s >= 1e5*day.Seconds():
		return short(s/day.Seconds(), false) + " d"
	case s < 60:
		return trim(s, 1) + " s"
	}
	d := time.Duration(s * float64(time.Second)).Round(time.Second)
	if d >= 10*time.Minute {
		d = d.Round(time.Minute)
	}
	part := func(whole, rest time.Duration, a, b string) string {
		out := strconv.FormatInt(int64(d/whole), 10) + " " + a
		if n := d % whole / rest; n > 0 {
			out += " " + strconv.FormatInt(int64(n), 10) + " " + b
		}
		return out
	}
	switch {
	case d < time.Hour:
		return part(time.Minute, time.Second, "m", "s")
	case d < 2*day:
		return part(time.Hour, time.Minute, "h", "m")
	}
	return part(day, time.Hour, "d", "h")
}

package task

import (
	"fmt"
	"time"
)

// Tokens counts the four classes that providers price apart. Input excludes both cache
// classes, whatever the provider's own convention is.
type Tokens struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cache_read"`
	CacheWrite int64 `json:"cache_write"`
}

// Add returns the sum of both counts.
func (t Tokens) Add(o Tokens) Tokens {
	return Tokens{t.Input + o.Input, t.Output + o.Output, t.CacheRead + o.CacheRead, t.CacheWrite + o.CacheWrite}
}

// Total is the sum of the four classes.
func (t Tokens) Total() int64 { return t.Input + t.Output + t.CacheRead + t.CacheWrite }

// MicroUSD is money in millionths of a US dollar: an integer, so that sums are exact.
type MicroUSD int64

// USD gives dollars, for display and JSON only.
func (m MicroUSD) USD() float64 { return float64(m) / 1e6 }

func (m MicroUSD) String() string { return fmt.Sprintf("$%.4f", m.USD()) }

// Limits is a task's budget. A zero field is unlimited; configuration never leaves all of
// them zero.
type Limits struct {
	Steps  int           `json:"steps"`  // model calls
	Tokens int64         `json:"tokens"` // all four classes together
	Class  Tokens        `json:"class"`  // per class
	Cost   MicroUSD      `json:"cost"`
	Wall   time.Duration `json:"wall_ns"` // time under a lease, across runs; waiting for a person is not counted
}

// Spent is what a task has used so far, over all its runs and including failed and retried
// model calls.
type Spent struct {
	Steps  int           `json:"steps"`
	Tokens Tokens        `json:"tokens"`
	Cost   MicroUSD      `json:"cost"`
	Wall   time.Duration `json:"wall_ns"`
}

// Add returns the sum.
func (s Spent) Add(o Spent) Spent {
	return Spent{s.Steps + o.Steps, s.Tokens.Add(o.Tokens), s.Cost + o.Cost, s.Wall + o.Wall}
}

// Meter is one dimension of a budget.
type Meter struct {
	Name  string  // "steps", "tokens", "input", "output", "cache_read", "cache_write", "usd", "wall"
	Used  float64 // in the meter's unit: count, tokens, dollars or seconds
	Limit float64 // same unit; > 0
}

// Share is used / limit.
func (m Meter) Share() float64 { return m.Used / m.Limit }

func (m Meter) String() string {
	switch m.Name {
	case "usd":
		return fmt.Sprintf("$%.2f of $%.2f", m.Used, m.Limit)
	case "wall":
		return fmt.Sprintf("%s of %s", time.Duration(m.Used*1e9).Round(time.Second), time.Duration(m.Limit*1e9))
	}
	return fmt.Sprintf("%.0f of %.0f %s", m.Used, m.Limit, m.Name)
}

// Meters lists the limited dimensions in a fixed order.
func (l Limits) Meters(s Spent) []Meter {
	all := []Meter{
		{"steps", float64(s.Steps), float64(l.Steps)},
		{"tokens", float64(s.Tokens.Total()), float64(l.Tokens)},
		{"input", float64(s.Tokens.Input), float64(l.Class.Input)},
		{"output", float64(s.Tokens.Output), float64(l.Class.Output)},
		{"cache_read", float64(s.Tokens.CacheRead), float64(l.Class.CacheRead)},
		{"cache_write", float64(s.Tokens.CacheWrite), float64(l.Class.CacheWrite)},
		{"usd", s.Cost.USD(), l.Cost.USD()},
		{"wall", s.Wall.Seconds(), l.Wall.Seconds()},
	}
	out := all[:0:0]
	for _, m := range all {
		if m.Limit > 0 {
			out = append(out, m)
		}
	}
	return out
}

// Exceeded returns the first meter that spent + worst would put above its limit, where worst
// is the most the next call can cost. ok is false when everything fits.
func (l Limits) Exceeded(s, worst Spent) (m Meter, ok bool) {
	for _, m := range l.Meters(s.Add(worst)) {
		if m.Used > m.Limit {
			return m, true
		}
	}
	return Meter{}, false
}

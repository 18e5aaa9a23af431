package plot

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func known(vs ...float64) (out []Value) {
	for _, v := range vs {
		out = append(out, Value{V: v, Known: true, Say: fmt.Sprint(v)})
	}
	return out
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		u    Unit
		top  float64
		want string
	}{
		{Counts, 1, "0 1"},
		{Counts, 3, "0 1 2 3"},
		{Counts, 4, "0 1 2 3 4"},
		{Counts, 7, "0 2 4 6 8"},
		{Counts, 412, "0 200 400 600"},
		{Counts, 52_000, "0 20k 40k 60k"},
		{Shares, .01, "0 % 25 % 50 % 75 % 100 %"},
		{Dollars, 3.12, "$0 $1 $2 $3 $4"},
		{Dollars, .7, "$0 $0.20 $0.40 $0.60 $0.80"},
		{Dollars, .003, "$0 $0.001 $0.002 $0.003"},
		{Dollars, 1_500_000, "$0 $500k $1M $1.5M"},
		{Duration, 3, "0 s 1 s 2 s 3 s"},
		{Duration, 41 * 60, "0 s 15 m 30 m 45 m"},
		{Duration, 3 * 3600, "0 s 1 h 2 h 3 h"},
		{Duration, 90 * 60, "0 s 30 m 1 h 1 h 30 m"},
		{Duration, 86400 * 9, "0 s 7 d 14 d"},
		{Duration, 86400 * 1e9, "0 s 500M d 1G d"},
	} {
		var got []string
		for _, v := range c.u.ticks(c.top) {
			got = append(got, c.u.Say(v))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%d up to %g: %s, want %s", c.u, c.top, s, c.want)
		}
	}
}

func TestSay(t *testing.T) {
	for _, c := range []struct {
		u    Unit
		v    float64
		want string
	}{
		{Shares, .713, "71 %"},
		{Dollars, 3.1234, "$3.12"},
		{Dollars, 12, "$12"},
		{Dollars, .0042, "$0.0042"},
		{Dollars, 0, "$0"},
		{Duration, 0, "0 s"},
		{Duration, 90, "1 m 30 s"},
		{Duration, 3 * 86400, "3 d"},
		{Duration, 47*3600 + 60, "47 h 1 m"},
		{Counts, 1e18, "1e+18"},
		{Duration, 59.99, "60 s"},
		{Counts, 999, "999"},
	} {
		if got := c.u.Say(c.v); got != c.want {
			t.Errorf("%g: %q, want %q", c.v, got, c.want)
		}
	}
}

// TestGap: a value that is not known parts the line; one alone is still a dot.
func TestGap(t *testing.T) {
	vs := known(0, .5, 1, .25, 0)
	vs[2].Known = false
	p := Lines(Shares, strings.Fields("a b c d e"), Series{Name: "s", Class: "k", Values: vs})
	l := p.Lines[0]
	want := []Segment{{"10.00%", "180.0", "30.00%", "95.0"}, {"70.00%", "137.5", "90.00%", "180.0"}}
	if !slices.Equal(l.Segments, want) || len(l.Dots) != 4 || p.Empty || p.Base != "180.0" {
		t.Errorf("%+v", p)
	}
}

func TestOneAndNone(t *testing.T) {
	p := Lines(Dollars, []string{"Mar"}, Series{Values: known(2)})
	if l := p.Lines[0]; len(l.Segments) != 0 || len(l.Dots) != 1 || l.Dots[0].X != "50.00%" || l.Dots[0].Y != "10.0" || len(p.X) != 1 || p.X[0].Place != "middle" {
		t.Errorf("%+v", p)
	}
	for name, p := range map[string]Plot{
		"nothing": Lines(Dollars, nil), "no value": Lines(Dollars, []string{"a"}, Series{Values: make([]Value, 1)}), "fewer": Lines(Counts, []string{"a"}, Series{}),
		"no column": Columns(Counts, nil), "columns of nothing": Columns(Counts, []string{"a"}, Series{Values: known(0)}),
	} {
		if !p.Empty || len(p.Y) == 0 {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestColumns(t *testing.T) {
	p := Columns(Counts, []string{"a", "b"}, Series{Class: "x", Values: known(1, 3)}, Series{Class: "y", Values: known(3, 0)})
	want := []Bar{{"x", "7.00%", "137.5", "36.00%", "42.5", "1"}, {"y", "7.00%", "10.0", "36.00%", "127.5", "3"}, {"x", "57.00%", "52.5", "36.00%", "127.5", "3"}}
	if !slices.Equal(p.Bars, want) {
		t.Errorf("%+v", p.Bars)
	}
}

// TestNamesFit: however many there are across, four names at most are written, the newest always.
func TestNamesFit(t *testing.T) {
	for n := 1; n < 120; n++ {
		across := make([]string, n)
		for i := range across {
			across[i] = strconv.Itoa(i)
		}
		p := Lines(Counts, across)
		if len(p.X) > names || p.X[0].Name != strconv.Itoa(n-1) {
			t.Fatalf("%d: %+v", n, p.X)
		}
	}
}

// FuzzPlot: whatever the values are, every place is a finite number inside the plot.
func FuzzPlot(f *testing.F) {
	for _, v := range []float64{0, 1, math.MaxFloat64, math.SmallestNonzeroFloat64, math.Inf(1), math.NaN(), -3, 1e18} {
		f.Add(v, 2.0, uint8(3), 0)
	}
	f.Fuzz(func(t *testing.T, a, b float64, n uint8, unit int) {
		u := Unit(((unit % 4) + 4) % 4)
		across := make([]string, n)
		vs := known(a, b, a+b, a, b)
		for _, p := range []Plot{Lines(u, across, Series{Values: vs}, Series{Values: known(b)}), Columns(u, across, Series{Values: vs}, Series{Values: vs})} {
			inside := func(s string, most float64) {
				v, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
				if err != nil || !(v >= 0 && v <= most) {
					t.Fatalf("%q of %v %v, %d", s, a, b, n)
				}
			}
			for _, l := range p.Lines {
				for _, d := range l.Dots {
					inside(d.X, 100)
					inside(d.Y, bottom)
				}
				for _, s := range l.Segments {
					inside(s.X1, 100)
					inside(s.Y2, bottom)
				}
			}
			for _, r := range p.Bars {
				inside(r.X, 100)
				inside(r.Y, bottom)
				inside(r.H, bottom)
			}
			if len(p.Y) < 2 || len(p.Y) > most+1 {
				t.Fatalf("%d ticks for %v %v", len(p.Y), a, b)
			}
			for _, y := range append(p.Y, p.X...) {
				inside(y.At, 180)
			}
		}
	})
}

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one line of the table. aim is what p50 (and, in brackets, p95) should stay within.
type row struct {
	what, p50, p95, aim, met, beside string
}

type table struct{ rows []row }

// durations adds a row of times. aim50 and aim95 may be 0: no aim.
func (t *table) durations(what string, d []time.Duration, aim50, aim95 time.Duration, beside string) {
	p50, p95 := percentile(d, 50), percentile(d, 95)
	r := row{what: what, p50: millis(p50), p95: millis(p95), beside: beside}
	switch {
	case aim50 > 0 && aim95 > 0:
		r.aim, r.met = fmt.Sprintf("≤ %s / %s", millis(aim50), millis(aim95)), yes(p50 <= aim50 && p95 <= aim95)
	case aim50 > 0:
		r.aim, r.met = "≤ "+millis(aim50), yes(p50 <= aim50)
	}
	t.rows = append(t.rows, r)
}

// value adds a row with one figure.
func (t *table) value(what, figure, aim string, met bool, beside string) {
	r := row{what: what, p50: figure, aim: aim, beside: beside}
	if aim != "" {
		r.met = yes(met)
	}
	t.rows = append(t.rows, r)
}

func (t *table) write(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tP50\tP95\tAIM\tMET\tBESIDE, IN THE SAME RUN")
	for _, r := range t.rows {
		line := strings.Join([]string{r.what, r.p50, dash(r.p95), dash(r.aim), dash(r.met), r.beside}, "\t")
		fmt.Fprintln(w, strings.TrimRight(line, "\t"))
	}
	_ = w.Flush() // a lost standard output shows by itself
}

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func yes(ok bool) string {
	if ok {
		return "yes"
	}
	return "NO"
}

// percentile is the nearest-rank percentile; 0 of nothing.
func percentile(d []time.Duration, p int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(d))
	return s[min(max((len(s)*p+99)/100-1, 0), len(s)-1)]
}

func millis(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.2f ms", ms)
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// times says how a compares with b.
func times(a, b time.Duration) string {
	if b <= 0 {
		return "–"
	}
	if a > 0 && b/a >= 2 {
		return fmt.Sprintf("1/%.0f of it", float64(b)/float64(a))
	}
	return fmt.Sprintf("%.1f×", float64(a)/float64(b))
}

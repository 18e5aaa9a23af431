package repo

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
)

func TestLineFits(t *testing.T) {
	for _, c := range []struct{ done, total, width int }{{0, 1, 40}, {1, 3, 80}, {9123, 9123, 200}, {5, 3, 60}, {-1, 3, 60}} {
		got := line("checking out", c.done, c.total, c.width)
		if n := utf8.RuneCountInString(got); n > c.width {
			t.Errorf("%v: %d columns: %q", c, n, got)
		}
		if full := strings.Contains(got, "100%"); full != (c.done >= c.total) || full == strings.Contains(got, "░") {
			t.Errorf("%v: %q", c, got)
		}
	}
}

// TestBar: what is done is told with its time on a terminal, and in lines elsewhere.
func TestBar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, errs bytes.Buffer
		env := &kit.Env{Out: &out, Err: &errs, Now: time.Now, Getenv: func(string) string { return "" }}
		b := newBar(env)
		b.status("fetching")
		b.note("1 of 2: npm\x1b[31m ci")
		b.at("fetching", 1, 2)
		b.end()
		if got := out.String(); got != "" {
			t.Errorf("no terminal: %q", got)
		}
		if got := errs.String(); strings.Count(got, "\n") != 1 || strings.Contains(got, "\x1b") || !strings.Contains(got, "1 of 2: npm") {
			t.Errorf("lines %q", got)
		}
		b = begun(env, 40)
		b.note("installing " + strings.Repeat("x", 60))
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		b.at("checking out", 1, 2)
		time.Sleep(2 * time.Second)
		b.end()
		frames := strings.Split(out.String(), "\r\x1b[K")
		if len(frames) != 7 || !strings.HasSuffix(frames[4], "…  3.0s") || !strings.Contains(frames[5], "1/2") || frames[6] != "" {
			t.Errorf("%q", frames)
		}
		for _, f := range frames {
			if utf8.RuneCountInString(f) > 40 {
				t.Errorf("too wide: %q", f)
			}
		}
	})
}

// TestCosts: what was there is told from what was made.
func TestCosts(t *testing.T) {
	for want, parts := range map[string][]part{
		"prepared":     {{"snapshot", true, time.Second}},
		"was prepared": {{"snapshot", false, 0}, {"dependencies", false, 0}},
		"prepared (snapshot was there, dependencies 2.0s)": {{"snapshot", false, 0}, {"dependencies", true, 2 * time.Second}},
	} {
		if got := how(parts) + costs(parts); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestNotes: a warning is told once for a repository.
func TestNotes(t *testing.T) {
	a, b := "1f0c"+strings.Repeat("a", 36), "1f0d"+strings.Repeat("b", 36)
	got := notes([]snapshot.Kept{
		{Repo: "r", Base: a, Made: time.Unix(1, 0), Warnings: []string{"one", "two"}},
		{Repo: "r", Base: b, Made: time.Unix(2, 0), Warnings: []string{"two"}},
		{Repo: "q", Base: a, Warnings: []string{"two"}},
		{Kind: "mirror"},
	})
	if want := "r 1f0dbbbbbbbb: two\nr 1f0caaaaaaaa: one\nq 1f0caaaaaaaa: two"; strings.Join(got, "\n") != want {
		t.Errorf("%q", got)
	}
}

// TestWhole: what a listing shows of a commit is enough to name it, if it is of one.
func TestWhole(t *testing.T) {
	a, b := "1f0c"+strings.Repeat("a", 36), "1f0d"+strings.Repeat("b", 36)
	kept := []snapshot.Kept{{Kind: "mirror"}, {Base: a}, {Base: b}, {Base: a}}
	for part, want := range map[string]string{a[:12]: a, "1f0d": b, "1f0": "fits several commits", "2": "nothing is kept of a commit"} {
		got, err := whole(part, kept)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", part, got, want)
		}
	}
}

func TestAge(t *testing.T) {
	now := time.Unix(1e9, 0)
	for d, want := range map[time.Duration]string{0: "0s", -time.Hour: "0s", 90 * time.Second: "1m", 47 * time.Hour: "47h", 72 * time.Hour: "3d"} {
		if got := age(now, now.Add(-d)); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
	if got := age(now, time.Time{}); got != "-" {
		t.Error(got)
	}
}

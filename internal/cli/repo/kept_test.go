package repo

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

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

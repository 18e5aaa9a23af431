package snapshot

import (
	"fmt"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git"
)

// Names are compared directory by directory.
func TestCollisions(t *testing.T) {
	for name, c := range map[string]struct {
		paths []string
		want  string
	}{
		"none":               {[]string{"a", "b/a", "c/a", "c/b"}, "[]"},
		"files":              {[]string{"A", "a", "b/C", "b/c"}, "[[A a] [b/C b/c]]"},
		"directories":        {[]string{"Dir/a", "dir/b"}, "[[Dir dir]]"},
		"deep":               {[]string{"x/Dir/e/a", "x/dir/f"}, "[[x/Dir x/dir]]"},
		"all below as well":  {[]string{"Dir/a", "Dir/b/c", "dir/A", "dir/b/c"}, "[[Dir dir] [Dir/a dir/A]]"},
		"file and directory": {[]string{"Docs", "docs/a"}, "[[Docs docs]]"},
		"between":            {[]string{"a-b", "a.c", "a/x", "a/y/z", "a0"}, "[]"},
		"three":              {[]string{"AA", "Aa", "aa"}, "[[AA Aa] [AA aa]]"},
	} {
		var entries []git.Entry
		for _, p := range c.paths {
			entries = append(entries, git.Entry{Path: p, Mode: git.ModeFile})
		}
		if got := fmt.Sprint(collisions(entries)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func BenchmarkCollisions(b *testing.B) {
	for _, n := range []int{50_000, 500_000} {
		entries := make([]git.Entry, n)
		for i := range entries {
			entries[i].Path = fmt.Sprintf("d%03d/e%02d/some/depth/f%06d.go", i/5000, i/100%50, i)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				begin := time.Now()
				collisions(entries)
				b.ReportMetric(float64(time.Since(begin).Nanoseconds())/float64(n), "ns/file")
			}
		})
	}
}

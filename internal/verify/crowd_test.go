package verify

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestKnownFlakesInACrowd: a test that flaked before may still come to depend on other tests by a
// change, and a flake that fails as it always did is none of the change's doing.
func TestKnownFlakesInACrowd(t *testing.T) {
	needCommand(t, "/usr/bin/python3", "-m", "pytest", "--version")
	s := loadSample(t, "guard.txtar")
	const id = "test_zz.py::test_last"
	for _, c := range []struct {
		name    string
		flaked  int
		of      int
		fails   string // its runs that fail by themselves; two are the base's own, the third the suite's first, the next four those without the others
		depends bool   // the change makes it depend on the tests before it
		want    task.VerdictKind
		runs    int // of it, in all
	}{
		{name: "an order that no chance explains", flaked: 1, of: 10, depends: true, want: task.Regression, runs: 11},
		{name: "a rare flake, twice", flaked: 1, of: 10, fails: " 2 7 ", want: task.Verified, runs: 9},
		{name: "a flake in half of the runs", flaked: 5, of: 10, fails: " 2 7 8 9 10 ", want: task.Verified, runs: 12},
		{name: "an order, of a test that flakes in half of the runs", flaked: 5, of: 10, depends: true, want: task.Regression, runs: 14},
		{name: "one that nearly always fails", flaked: 9, of: 10, fails: " 2 4 5 6 ", want: task.Verified, runs: 7},
		{name: "one that now fails on the base too", flaked: 1, of: 10, fails: " 2 7 8 9 ", want: task.Verified, runs: 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := context.Background()
			v, _ := newVerifier(t, Settings{Guard: -1})
			counter := filepath.Join(t.TempDir(), "runs")
			last := fmt.Sprintf("import pathlib, price\n\ndef test_last():\n    n = pathlib.Path(%q)\n    seen = int(n.read_text()) if n.exists() else 0\n    n.write_text(str(seen + 1))\n    assert f' {seen} ' not in %q\n    assert not getattr(price, 'used', False)\n", counter, c.fails)
			s.layers["last"] = map[string]string{"test_zz.py": last}
			snap := s.snapshot(t, "base", "last")
			base, err := v.Baseline(ctx, snap, nil)
			if err != nil {
				t.Fatal(err)
			}
			fix := s.changes(t, "fix", "test")
			if c.depends {
				for i := range fix {
					if fix[i].Path == "price.py" {
						fix[i].Content = []byte(strings.ReplaceAll(string(fix[i].Content), "def net(total, coupon):\n", "def net(total, coupon):\n    globals()['used'] = True\n"))
					}
				}
			}
			job := Job{Snapshot: snap, HeadTree: "tree", Baseline: base, Changes: fix, Flakes: map[string]int{id: c.flaked}, Earlier: c.of}
			got, err := v.Verify(ctx, job)
			if err != nil || got.Kind != c.want {
				t.Fatalf("%s: %s, %v, want %s\n%s", got.Kind, got.Reason, err, c.want, outline(got))
			}
			if c.want == task.Verified && !slices.Contains(got.Suite.Flaky, id) {
				t.Errorf("%s is not said to flake: %+v", id, got.Suite)
			}
			if n, err := os.ReadFile(counter); err != nil || string(n) != fmt.Sprint(c.runs) {
				t.Errorf("it ran %s times (%v), want %d\n%s", n, err, c.runs, outline(got))
			}
		})
	}
}

func TestCrowdRuns(t *testing.T) {
	for _, c := range []struct{ flaked, of, want int }{{0, 0, 2}, {0, 50, 2}, {1, 50, 2}, {1, 10, 2}, {1, 4, 3}, {5, 10, 5}, {1, 1, 8}, {1, 0, 8}, {9, 10, 17}} {
		if got := crowdRunsFor(c.flaked, c.of); got != c.want {
			t.Errorf("%d of %d: %d runs, want %d", c.flaked, c.of, got, c.want)
		}
	}
}

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// inAttempt fits the first event of a kind in an attempt.
func inAttempt(n string, k string) func(line) bool {
	started := with("attempt.started", "n", n)
	in := false
	return func(l line) bool {
		in = in || started(l)
		return in && l.Kind == k
	}
}

// TestKillInAttempts kills the process between and in two independent attempts: the same command
// goes on in the attempt that was under way, pays for no reply twice, and ends in one pull request
// for the smaller of two changes that pass each other's tests.
func TestKillInAttempts(t *testing.T) {
	onRuncAlone(t)
	need(t, "python3")
	files, err := txtar.ParseFile("testdata/attempts.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []killPoint{
		{name: "attempt.finished", match: kind("attempt.finished")},
		{name: "attempt.started, the second", match: with("attempt.started", "n", "2")},
		{name: "tool.finished in the second", match: inAttempt("2", "tool.finished")},
		{name: "verification.finished in the second", match: inAttempt("2", "verification.finished")},
		{name: "attempt.judged", match: kind("attempt.judged")},
		{name: "attempt.chosen", match: kind("attempt.chosen")},
	} {
		t.Run(strings.ReplaceAll(p.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			in := install(t, files)
			config := filepath.Join(in.dir, "daybreak.yaml")
			b, err := os.ReadFile(config)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(config, append(b, "\nattempts: 2\n"...), 0o644); err != nil {
				t.Fatal(err)
			}
			target := fingerprint(filepath.Join(in.dir, "shop"))
			if _, killed := in.run(t, p.match); !killed {
				t.Fatalf("the first run never came to %s", p.name)
			}
			second, _ := in.run(t, nil)
			if last := second[len(second)-1]; last.Type != "result" {
				t.Fatalf("no result at the end: %+v", last)
			}
			in.judge(t, &outcome{name: p.name}, target)
			show := in.output(t, "task", "show")
			for _, once := range []string{"attempt 1 of at most 2 begins", "attempt 2 of at most 2 begins", "attempt 1: verified ·", "attempt 2: verified ·", "of attempt 1 passes the tests of attempt 2", "of attempt 2 passes the tests of attempt 1"} {
				if strings.Count(show, once) != 1 {
					t.Errorf("%d times %q in\n%s", strings.Count(show, once), once, show)
				}
			}
			if !strings.Contains(show, "attempt 1 of 2: it passes the tests of 1 of 1 other verified attempts") {
				t.Errorf("the choice is not told:\n%s", show)
			}
		})
	}
}

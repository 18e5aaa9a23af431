package verify

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// A test that fails in the runs that the schedule names, however many there are: a file outside
// the bench counts them. With the fix it passes.
const sometimes = `n=$(cat %q 2>/dev/null || echo 0)
echo $((n + 1)) > %q
[ $((n % %d)) != %d ] || [ "$(cat price)" = 0 ] || { echo "want 0"; exit 1; }
`

// sometimesSuite runs each file of a directory as a test, and is quick.
const sometimesSuite = `n=0 bad=0
for f in cases/*.sh; do
  n=$((n + 1))
  if out=$(sh $f); then echo "ok $n - $(basename $f .sh)"; else bad=1; printf 'not ok %d - %s\n  ---\n  message: "%s"\n  ...\n' $n $(basename $f .sh) "$out"; fi
done
echo 1..$n
exit $bad
`

// TestSometimesRed: a test that passes on the base at first is run again before it is refused.
func TestSometimesRed(t *testing.T) {
	s := sample{map[string]map[string]string{"base": {"run.sh": sometimesSuite, "cases/old.sh": "true\n", "price": "3\n"}, "fix": {"price": "0\n"}}}
	for _, c := range []struct {
		name     string
		text     string
		each, at string // it fails in every each-th run, the at-th of them first
		declared bool
		race     bool
		want     task.VerdictKind
		reason   string
		note     string
		once     task.VerdictKind // what Reproduce says
	}{
		{name: "a race", each: "2", at: "1", declared: true, race: true, want: task.Verified, reason: "fails in 5 of 10 runs on the base, for the right reason, and passes in all 6", note: "no race detector for custom: repeated, 10 times in all", once: task.Verified},
		{name: "a race that nobody named", each: "2", at: "1", race: true, want: task.Verified, reason: "in 5 of 10 runs", once: task.Verified},
		{name: "a race that shows late", each: "5", at: "4", declared: true, race: true, want: task.Verified, reason: "fails in 2 of 10 runs on the base, for the right reason, and passes in all 15", once: task.Verified},
		{name: "a rare race", each: "10", at: "8", declared: true, race: true, want: task.FlakyRepro, reason: "in only 10 % of 10 runs"},
		{name: "no race at all", each: "100", at: "99", declared: true, race: true, want: task.NotReproducing, reason: "passes on the base in all 10 runs (a race that shows in 20 % of the runs is missed in as many with a probability of 0.11)", once: task.NotReproducing},
		{name: "declared, and it passes once", each: "2", at: "1", declared: true, want: task.Verified, reason: "fails in 5 of 10 runs"},
		{name: "declared, and it passes", each: "100", at: "99", declared: true, want: task.NotReproducing, reason: "passes on the base in all 3 runs, so", once: task.NotReproducing},
		{name: "not named", each: "100", at: "99", want: task.NotReproducing, reason: "no test fails on the base and passes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := context.Background()
			v, _ := newVerifier(t, Settings{Guard: -1, Test: "sh run.sh", Format: "tap", TestGlobs: []string{"cases/**"}})
			snap := s.snapshot(t, "base")
			base, err := v.Baseline(ctx, snap, nil)
			if err != nil {
				t.Fatal(err)
			}
			counter := filepath.Join(t.TempDir(), "runs")
			text := strings.NewReplacer("%q", counter, "%d", c.each, "!= %d", "!= "+c.at).Replace(sometimes)
			job := Job{Snapshot: snap, HeadTree: "tree", Baseline: base, Race: c.race, Changes: append(s.changes(t, "fix"), git.Change{Path: "cases/net.sh", Mode: git.ModeFile, Content: []byte(text)})}
			if c.declared {
				job.Declared = []string{"net"}
			}
			got, err := v.Verify(ctx, job)
			if err != nil || got.Kind != c.want || !strings.Contains(got.Reason, c.reason) {
				t.Fatalf("%s: %s, %v, want %s: …%s…\n%s", got.Kind, got.Reason, err, c.want, c.reason, outline(got))
			}
			if !strings.Contains(outline(got), c.note) {
				t.Errorf("no %q in\n%s", c.note, outline(got))
			}
			if got.Table != nil {
				for i, r := range got.Reproduction {
					reds := 0
					for _, run := range got.Table.Runs {
						if run.What == "base + tests" && run.Seen[i] != ' ' {
							reds++
						}
					}
					if reds != r.BaseRuns {
						t.Errorf("the table shows %d runs on base + tests, the reproduction %d", reds, r.BaseRuns)
					}
				}
			}
			if c.once == "" {
				return
			}
			if err := os.Remove(counter); err != nil {
				t.Fatal(err)
			}
			if answer, err := v.Reproduce(ctx, job); err != nil || answer.Kind != c.once {
				t.Errorf("Reproduce: %s %v\n%s", answer.Kind, err, answer.Text)
			}
		})
	}
}

// TestOutOfTime: what never ends is not said to pass, and what was printed is shown.
func TestOutOfTime(t *testing.T) {
	needCommand(t, "/usr/bin/python3", "-m", "pytest", "--version")
	ctx := context.Background()
	s := loadSample(t, "guard.txtar")
	snap := s.snapshot(t, "base")
	v, _ := newVerifier(t, Settings{Guard: -1})
	base, err := v.Baseline(ctx, snap, nil)
	if err != nil {
		t.Fatal(err)
	}
	v.Settings.Timeout = 3 * time.Second
	text := "import time\nprint('before the wait', flush=True)\n\ndef test_net():\n    time.sleep(600)\n"
	for _, c := range []struct {
		name   string
		hang   bool
		reason string
	}{
		{"a test that sleeps", false, "did not end within 3s on the base, and no test ended before that: make the new test end by itself"},
		{"a hang that nobody named", true, "name the test that hangs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := Job{Snapshot: snap, HeadTree: "tree", Baseline: base, Hang: c.hang, Changes: append(s.changes(t, "fix"), git.Change{Path: "test_net.py", Mode: git.ModeFile, Content: []byte(text)})}
			got, err := v.Verify(ctx, job)
			if err != nil || got.Kind != task.InvalidRed || !strings.Contains(got.Reason, c.reason) || !strings.Contains(got.Detail, "pytest") {
				t.Errorf("%s: %s, %v, want …%s…\n%s", got.Kind, got.Reason, err, c.reason, got.Detail)
			}
		})
	}
}

func TestWhyMissing(t *testing.T) {
	for want, r := range map[string]ran{
		"":                   {records: []task.RunRecord{{Command: "pytest", Outcome: "complete"}}},
		"it does not parse":  {problems: []string{"it does not parse"}, records: []task.RunRecord{{Command: "pytest", Outcome: "no_report"}}},
		"left no report":     {records: []task.RunRecord{{Command: "a", Outcome: "complete"}, {Command: "pytest", ExitCode: 3, Outcome: "no_report"}}},
		"a part of a report": {records: []task.RunRecord{{Command: "pytest", ExitCode: 3, Outcome: "partial"}}},
	} {
		if got := whyMissing(r); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for message, want := range map[string]Cause{
		"OSError: [Errno 28] No space left on device":                     CauseSpace,
		"AssertionError: expected 'saved', got 'No space left on device'": CauseRight,
		"BlockingIOError: [Errno 11] Resource temporarily unavailable":    CauseRight, // what a socket says as well
	} {
		if got := causeOf(Case{Status: task.Fail, Message: message}, false); got != want {
			t.Errorf("%s: %q, want %q", message, got, want)
		}
	}
}

package worker

import (
	"os"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// What the change does not bear out stands nowhere that leaves: not in the text, the title, the
// commit or the branch's name. Each sentence of it is recorded once, whatever number of runs it takes.
func TestClaimsLeaveNothingBehind_MOD06(t *testing.T) {
	r := newRig(t, task.Limits{})
	r.verified(t)
	byDeadRun := event.ClaimDropped{Where: "title", Text: "All tests pass", Why: "how tests and measurements came out is said by the record"}
	sum := r.fold(t)
	r.record(
		t, event.Submitted{
			Title: "All tests pass", Cause: "The word in a.txt is wrong. It is read by no_such_name.", Fix: "It says `two` instead of `one`. The whole suite\nis green. It changes tests/none.sh.",
		}, *sum.Verification, event.StateChanged{From: task.Verifying, To: task.Publishing}, byDeadRun,
	)
	r.release(t)
	sum, err := r.Run(t.Context(), r.id)
	if err != nil || sum.State != task.InReview {
		t.Fatalf("%s %v", sum.State, err)
	}
	body, err := os.ReadFile(sum.PullRequest.URL)
	if err != nil {
		t.Fatal(err)
	}
	left := string(body) + gittest.Run(t, r.repo, "log", "--all", "--format=%B %D")
	for _, s := range []string{"The word in a.txt is wrong.", "It says `two` instead of `one`.", "Left out: 3 sentences", "In the agent's words; names were looked up"} {
		if !strings.Contains(left, s) {
			t.Errorf("no %q in\n%s", s, left)
		}
	}
	for _, s := range []string{"tests pass", "tests-pass", "is green", "no_such_name", "none.sh"} {
		if strings.Contains(left, s) {
			t.Errorf("%q left with\n%s", s, left)
		}
	}
	if b := sum.PullRequest.Branch; !strings.HasSuffix(b, "-it-is-broken") {
		t.Errorf("the branch is %s", b)
	}
	var got []string
	for _, c := range sum.Dropped {
		got = append(got, c.Where+": "+c.Text)
	}
	want := "title: All tests pass\ncause: It is read by no_such_name.\nfix: The whole suite is green.\nfix: It changes tests/none.sh."
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("recorded are\n%s\nwant\n%s", s, want)
	}
}

package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestTheTargetMoved: a target branch that left the base is named in the pull request, with what
// conflicts; what is published is what was proven all the same.
func TestTheTargetMoved(t *testing.T) {
	for _, tt := range []struct {
		name, path, want string
		conflicts        int
	}{
		{"stays", "", "", 0},
		{"elsewhere", "b.txt", "merges into it without a conflict; it was verified on the base alone", 0},
		{"the same lines", "a.txt", "conflicts with it in `a.txt`.** It was verified on the base alone", 1},
		{"gone", "-", "could not be compared with the base", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, task.Limits{})
			r.verified(t)
			r.release(t)
			switch tt.path {
			case "":
			case "-":
				gittest.Run(t, r.repo, "branch", "-m", "main", "trunk")
			default:
				if err := os.WriteFile(filepath.Join(r.repo, tt.path), []byte("three\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				gittest.Run(t, r.repo, "add", "-A")
				gittest.Run(t, r.repo, "commit", "-qm", "meanwhile")
			}
			sum, err := r.Run(t.Context(), r.id)
			if err != nil || sum.State != task.InReview {
				t.Fatalf("%s %v", sum.State, err)
			}
			body, err := (&journal{st: r.cfg.Store}).Load(t.Context(), sum.PullRequest.Body)
			if err != nil || !strings.Contains(body, tt.want) || (tt.want == "") == strings.Contains(body, "Meanwhile") && tt.path != "-" {
				t.Errorf("%v\n%s", err, body)
			}
			if m := sum.Moved; (m == nil) != (tt.want == "") || m != nil && len(m.Conflicts) != tt.conflicts {
				t.Errorf("%+v", m)
			}
			if got := gittest.Run(t, r.repo, "show", sum.PullRequest.Branch+":a.txt"); got != "two" {
				t.Errorf("the branch holds %q", got)
			}
			if parent := gittest.Run(t, r.repo, "rev-parse", sum.PullRequest.Branch+"^"); parent != sum.Created.Base {
				t.Errorf("its parent is %s", parent)
			}
			events, err := r.cfg.Store.Events(t.Context(), r.id, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, e := range events {
				if e.Kind == (event.TargetMoved{}).EventKind() {
					n++
				}
			}
			if n > 1 {
				t.Errorf("looked at %d times", n)
			}
		})
	}
}

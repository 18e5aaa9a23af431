package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify"
)

// moves commits a file on the target branch and returns its new tip.
func (r *rig) moves(t *testing.T, name string) string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.repo, name), []byte("three\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, r.repo, "add", "-A")
	gittest.Run(t, r.repo, "commit", "-qm", "meanwhile "+name)
	return gittest.Run(t, r.repo, "rev-parse", "HEAD")
}

// TestRebaseUndone: a sandbox that cannot be had leaves the rebase where it is; a base on which
// nothing can be proven is left again, and the change is published where it was proven.
func TestRebaseUndone(t *testing.T) {
	r := newRig(t, task.Limits{Wall: time.Hour})
	r.cfg.Rebase = config.RebaseVerify
	r.verified(t)
	r.record(t, event.WallClocked{Elapsed: 2 * time.Hour}) // what was proven is not lost to the clock
	base := gittest.Run(t, r.repo, "rev-parse", "HEAD")
	tip := r.moves(t, "b.txt")
	r.release(t)
	r.boxes.refuse = &sandbox.RefusedError{Layer: "test", Err: errors.New("not now")}
	for range 2 {
		sum, err := r.Run(t.Context(), r.id)
		if !errors.Is(err, ErrPaused) || !sum.Rebasing() || sum.Created.Base != tip || sum.Rebases != 1 || len(sum.Effects) != 0 {
			t.Fatalf("%s on %s, %d rebases, %v", sum.State, sum.Created.Base, sum.Rebases, err)
		}
	}
	r.boxes.refuse = &task.Error{Class: task.Invalid, Msg: "the suite does not run"}
	sum, err := r.Run(t.Context(), r.id)
	if err != nil || sum.State != task.InReview || sum.Created.Base != base || sum.Undone == nil || sum.Undone.Head != tip || sum.Rebases != 1 {
		t.Fatalf("%s on %s: %+v %v", sum.State, sum.Created.Base, sum.Undone, err)
	}
	if parent := gittest.Run(t, r.repo, "rev-parse", sum.PullRequest.Branch+"^"); parent != base {
		t.Errorf("its parent is %s", parent)
	}
	body, err := (&journal{st: r.cfg.Store}).Load(t.Context(), sum.PullRequest.Body)
	if err != nil || !strings.Contains(body, "is not proven there") || !strings.Contains(body, "merges into it without a conflict") || strings.Contains(body, "While Daybreak worked") {
		t.Errorf("%v\n%s", err, body)
	}
}

// TestNotRebased: what was pushed, or what a person was asked to approve, stays what it is, and so
// does a change whose target was followed often enough.
func TestNotRebased(t *testing.T) {
	for name, happened := range map[string]func(r *rig, sum *event.Summary) []event.Payload{
		"pushed": func(_ *rig, sum *event.Summary) []event.Payload {
			return []event.Payload{event.EffectIntended{Key: "push:daybreak/x", Kind: "push", Args: []byte(`{"Branch": "daybreak/x", "Old": ""}`)}}
		},
		"held": func(_ *rig, sum *event.Summary) []event.Payload {
			return []event.Payload{event.PublicationHeld{Tree: sum.Exported.Tree}}
		},
		"looked":  func(*rig, *event.Summary) []event.Payload { return []event.Payload{event.TargetMoved{Target: "main"}} },
		"say":     func(r *rig, _ *event.Summary) []event.Payload { r.cfg.Rebase = config.RebaseSay; return nil },
		"nothing": nil,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, task.Limits{})
			r.cfg.Rebase = config.RebaseVerify
			r.verified(t)
			sum := r.fold(t)
			if happened != nil {
				r.record(t, happened(r, &sum)...)
			}
			r.record(t, event.StateChanged{From: task.Verifying, To: task.Publishing})
			r.moves(t, "b.txt")
			r.release(t)
			r.boxes.refuse = &sandbox.RefusedError{Layer: "test", Err: errors.New("not now")}
			sum, err := r.Run(t.Context(), r.id)
			if began := sum.Rebases > 0; began != (happened == nil) {
				t.Errorf("%s: %d rebases, %v", sum.State, sum.Rebases, err)
			}
		})
	}
}

func (r *rig) fold(t *testing.T) event.Summary {
	t.Helper()
	events, err := r.cfg.Store.Events(t.Context(), r.id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := event.Fold(events)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// openings remembers what a forge is told of the titles that pull requests had before.
type openings struct {
	forge.Forge
	before []string
}

func (o *openings) OpenPullRequest(ctx context.Context, pr forge.PullRequest) (forge.PullRequest, bool, error) {
	o.before = append(o.before, pr.Before)
	return o.Forge.OpenPullRequest(ctx, pr)
}

// TestFollowUpOnANewBase: what is under review keeps its commits; the target's tip comes into the
// branch by a merge, whose tree is what was proven.
func TestFollowUpOnANewBase(t *testing.T) {
	r := newRig(t, task.Limits{})
	opened := &openings{Forge: r.cfg.Forge}
	r.cfg.Forge = opened
	r.verified(t)
	r.release(t)
	first, err := r.Run(t.Context(), r.id)
	if err != nil || first.PullRequest.Base != first.Created.Base {
		t.Fatalf("%+v %v", first.PullRequest, err)
	}
	tip := r.moves(t, "b.txt")
	lease, err := r.cfg.Store.Acquire(t.Context(), r.id, "before", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.lease = lease
	change := []git.Change{{Path: "a.txt", Mode: git.ModeFile, Content: []byte("two and a half\n")}}
	snap, err := r.cfg.Snapshots.Prepare(t.Context(), snapshot.Source{Repo: r.repo, Ref: tip})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := r.cfg.Git.BuildTree(t.Context(), snap.GitDir, tip, change)
	if err != nil {
		t.Fatal(err)
	}
	r.record(
		t, event.StateChanged{From: task.InReview, To: task.Working}, event.StateChanged{From: task.Working, To: task.Verifying},
		event.Submitted{Title: "fix it"}, event.Exported{Tree: first.Exported.Tree, Paths: []string{"a.txt"}},
		event.VerificationFinished{Kind: task.Verified, Document: text(t, task.Verdict{Kind: task.Verified})},
		event.StateChanged{From: task.Verifying, To: task.Publishing},
		event.Rebased{Target: "main", From: first.Created.Base, To: tip, Round: 1}, event.WorkspaceSaved{Change: text(t, change), Files: 1},
		event.StateChanged{From: task.Publishing, To: task.Verifying},
		event.BaselineFinished{Document: text(t, verify.Baseline{Base: tip})}, event.Exported{Tree: tree, Paths: []string{"a.txt"}},
		event.VerificationFinished{Attempt: 1, Kind: task.Verified, Document: text(t, task.Verdict{Kind: task.Verified, Base: tip, HeadTree: tree})},
		event.StateChanged{From: task.Verifying, To: task.Publishing},
	)
	r.release(t)
	sum, err := r.Run(t.Context(), r.id)
	if err != nil || sum.State != task.InReview || sum.PullRequest.Base != tip {
		t.Fatalf("%s %+v %v", sum.State, sum.PullRequest, err)
	}
	if got := opened.before; len(got) != 2 || got[0] != "" || got[1] != first.PullRequest.Title {
		t.Errorf("the forge is told of the titles %q", got)
	}
	branch := sum.PullRequest.Branch
	if got := gittest.Run(t, r.repo, "rev-parse", branch+"^1", branch+"^2"); got != first.PullRequest.Head+"\n"+tip {
		t.Errorf("its parents are %s", got)
	}
	if got := gittest.Run(t, r.repo, "diff", "--name-only", "main", branch); got != "a.txt" {
		t.Errorf("it changes %q", got)
	}
	body, err := (&journal{st: r.cfg.Store}).Load(t.Context(), sum.PullRequest.Body)
	if err != nil || !strings.Contains(body, "from `"+first.Created.Base+"` to `"+tip+"`") {
		t.Errorf("%v\n%s", err, body)
	}
	if left, err := r.cfg.Store.Tasks(t.Context(), store.Filter{States: []task.State{task.InReview}}); err != nil || len(left) != 1 {
		t.Errorf("%+v %v", left, err)
	}
}

// TestAPersonsPush: a follow-up begins with what people pushed, on the target's tip if they brought
// that in; where it cannot be told what is theirs they are asked; what is pushed while it works is
// not pushed over.
func TestAPersonsPush(t *testing.T) {
	for _, tt := range []struct {
		name    string
		people  func(r *rig, in func(args ...string) string)
		base    string // "old", "tip" or "" for a question
		changed []string
	}{
		{"their own file", func(r *rig, in func(args ...string) string) { r.put(t, "c.txt"); in("commit", "-qam", "x") }, "old", []string{"c.txt"}},
		{"an update of the branch", func(r *rig, in func(args ...string) string) { in("merge", "-q", "--no-edit", "main") }, "tip", []string{"b.txt"}},
		{"the same as on the target", func(r *rig, in func(args ...string) string) { r.put(t, "b.txt"); in("commit", "-qam", "x") }, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, task.Limits{})
			r.cfg.Questions = Questions{Most: 1, Wait: time.Hour}
			r.verified(t)
			r.release(t)
			first, err := r.Run(t.Context(), r.id)
			if err != nil {
				t.Fatal(err)
			}
			tip := r.moves(t, "b.txt")
			in := func(args ...string) string { return gittest.Run(t, r.repo, args...) }
			in("checkout", "-q", first.PullRequest.Branch)
			tt.people(r, func(args ...string) string { in("add", "-A"); return in(args...) })
			theirs := in("rev-parse", "HEAD")
			in("checkout", "-q", "main")
			if r.lease, err = r.cfg.Store.Acquire(t.Context(), r.id, "before", time.Minute, nil); err != nil {
				t.Fatal(err)
			}
			r.record(t, event.StateChanged{From: task.InReview, To: task.Working})
			one := &run{Worker: r.Worker, j: &journal{st: r.cfg.Store, task: r.id, now: time.Now, lease: r.lease, summary: r.fold(t)}}
			if one.snap, err = r.cfg.Snapshots.Prepare(t.Context(), snapshot.Source{Repo: r.repo, Ref: first.Created.Base}); err != nil {
				t.Fatal(err)
			}
			r.boxes.refuse = &sandbox.RefusedError{Layer: "test", Err: errors.New("not now")} // of the new base's suite
			err = one.adopt(t.Context())
			sum := one.j.Summary()
			if tt.base == "" {
				if !errors.Is(err, ErrParked) || !sum.Parked() || sum.Adopted != nil || !strings.Contains(sum.Asked.Question, "merge the tip of main") {
					t.Fatalf("%v, %+v", err, sum.Asked)
				}
				return
			}
			want := map[string]string{"old": first.Created.Base, "tip": tip}[tt.base]
			if a := sum.Adopted; a == nil || a.Head != theirs || a.Base != want || sum.Created.Base != want || sum.PullRequest.Head != theirs || sum.PullRequest.Base != want || strings.Join(a.Paths, " ") != strings.Join(tt.changed, " ") {
				t.Fatalf("%+v on %s: %v", a, sum.Created.Base, err)
			}
			if (tt.base == "tip") != (err != nil) || sum.Rebasing() {
				t.Errorf("%v, rebasing: %v", err, sum.Rebasing())
			}
			files, err := one.savedWorkspace(t.Context())
			if err != nil || files[0].Path != "a.txt" || string(files[0].Content) != "two\n" || (len(files) == 2) != (tt.base == "old") {
				t.Errorf("%+v %v", files, err)
			}
		})
	}
}

func (r *rig) put(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.repo, name), []byte("a person's\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPushedMeanwhile: what people pushed while a follow-up worked is left to them.
func TestPushedMeanwhile(t *testing.T) {
	r := newRig(t, task.Limits{})
	r.verified(t)
	r.release(t)
	first, err := r.Run(t.Context(), r.id)
	if err != nil {
		t.Fatal(err)
	}
	if r.lease, err = r.cfg.Store.Acquire(t.Context(), r.id, "before", time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	snap, err := r.cfg.Snapshots.Prepare(t.Context(), snapshot.Source{Repo: r.repo, Ref: first.Created.Base})
	if err != nil {
		t.Fatal(err)
	}
	change := []git.Change{{Path: "a.txt", Mode: git.ModeFile, Content: []byte("two and a half\n")}}
	tree, err := r.cfg.Git.BuildTree(t.Context(), snap.GitDir, snap.Base, change)
	if err != nil {
		t.Fatal(err)
	}
	r.record(
		t, event.StateChanged{From: task.InReview, To: task.Working}, event.StateChanged{From: task.Working, To: task.Verifying},
		event.Submitted{Title: "fix it"}, event.WorkspaceSaved{Change: text(t, change), Files: 1}, event.Exported{Tree: tree, Paths: []string{"a.txt"}},
		event.VerificationFinished{Kind: task.Verified, Document: text(t, task.Verdict{Kind: task.Verified, Base: snap.Base, HeadTree: tree})},
		event.StateChanged{From: task.Verifying, To: task.Publishing},
	)
	r.release(t)
	gittest.Run(t, r.repo, "checkout", "-q", first.PullRequest.Branch)
	gittest.Run(t, r.repo, "commit", "-q", "--allow-empty", "-m", "by hand")
	theirs := gittest.Run(t, r.repo, "rev-parse", "HEAD")
	gittest.Run(t, r.repo, "checkout", "-q", "main")
	sum, err := r.Run(t.Context(), r.id)
	if err != nil || sum.State != task.InReview || !strings.Contains(sum.Reason, "was not pushed") {
		t.Fatalf("%s %q %v", sum.State, sum.Reason, err)
	}
	if now := gittest.Run(t, r.repo, "rev-parse", first.PullRequest.Branch); now != theirs {
		t.Errorf("the branch is at %s", now)
	}
}

package event

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/task"
)

func TestFold(t *testing.T) {
	log := testLog(t,
		TaskCreated{Repo: "shop", IssueTitle: "coupon", Limits: task.Limits{Steps: 9}},
		StateChanged{To: task.Queued}, // says the same again
		RunStarted{Worker: "w1"},
		StateChanged{From: task.Queued, To: task.Preparing},
		SnapshotReady{Digest: "d"},
		SandboxStarted{ID: "s1"}, SandboxStarted{ID: "s2"}, SandboxEnded{ID: "s1"},
		BaselineFinished{Passed: 4},
		StateChanged{From: task.Preparing, To: task.Working},
		PromptFrozen{Hash: "p"},
		ModelRequested{Step: 1},
		ModelFailed{Step: 1, Wasted: task.Tokens{Input: 5}, Cost: 2},
		ModelRequested{Step: 2},
		ModelResponded{Step: 2, Tokens: task.Tokens{Input: 10, CacheRead: 3}, Wasted: task.Tokens{Output: 1}, Cost: 7},
		ToolStarted{Step: 2, Call: "a", Name: "read"}, ToolStarted{Step: 2, Call: "b", Name: "run"},
		ToolFinished{Step: 2, Call: "a"},
		WallClocked{Elapsed: time.Second}, WallClocked{Elapsed: time.Minute},
		WorkspaceSaved{Step: 2, Files: 1}, WorkspaceSaved{Step: 3, Files: 2},
		ReproductionChecked{Step: 3, Kind: task.NotReproducing}, ReproductionChecked{Step: 4, Kind: task.Verified},
		Submitted{Title: "fix"},
		Exported{Tree: "t"},
		PolicyFound{Finding: task.Finding{Kind: "held_path", Path: ".github/ci.yml"}},
		PolicyFound{Finding: task.Finding{Kind: "secret"}},
		VerificationFinished{Attempt: 1, Kind: task.Verified, Document: Text{Blob: "v"}},
		EffectIntended{Key: "push", Kind: "git.push"}, EffectDone{Key: "push"}, EffectIntended{Key: "pr"},
		RunStarted{Worker: "w2", Resumed: true},
		ToolFinished{Step: 3, Call: "never started", Interrupted: true},
		PullRequestOpened{Branch: "daybreak/x"},
		StopRequested{Who: "ann"}, Declined{Kind: "out_of_scope"},
		Checkpoint{Seq: 30},
		ModelRequested{Step: 5},
	)
	d := Draft{Kind: "from.the.future", Version: 1, Payload: []byte(`{}`)}
	last := log[len(log)-1]
	log = append(log, Seal(testID, last.Seq+1, last.Epoch, last.Time, last.Hash, d))

	s, err := Fold(log)
	if err != nil {
		t.Fatal(err)
	}
	if s.Task != testID || s.LastSeq != int64(len(log)) || s.LastHash != log[len(log)-1].Hash ||
		s.Epoch != last.Epoch || s.CreatedAt != log[0].Time || s.UpdatedAt != last.Time {
		t.Errorf("place in the log: %+v", s)
	}
	want := task.Spent{Steps: 2, Tokens: task.Tokens{Input: 15, Output: 1, CacheRead: 3}, Cost: 9, Wall: 61 * time.Second}
	if diff := cmp.Diff(want, s.Spent); diff != "" {
		t.Errorf("spent:\n%s", diff)
	}
	if s.State != task.Working || s.Created.IssueTitle != "coupon" || s.Runs != 2 || s.Unknown != 1 {
		t.Errorf("state %s, created %+v, %d runs, %d unknown", s.State, s.Created, s.Runs, s.Unknown)
	}
	if len(s.OpenCalls) != 1 || s.OpenCalls[0].Call != "b" {
		t.Errorf("open calls %+v", s.OpenCalls)
	}
	if s.OpenRequest == nil || s.OpenRequest.Step != 5 || log[s.LastResponse-1].Kind != "model.response" {
		t.Errorf("open request %+v, last response %d", s.OpenRequest, s.LastResponse)
	}
	if s.Workspace.Step != 3 || s.Reproduction.Step != 4 || s.Verification.Document.Blob != "v" || s.Baseline.Passed != 4 ||
		s.Submitted.Title != "fix" || s.Exported.Tree != "t" || s.PullRequest.Branch != "daybreak/x" || s.Stop.Who != "ann" ||
		s.Declined.Kind != "out_of_scope" || s.Checkpoint.Seq != 30 || s.Prompt.Hash != "p" || s.Snapshot.Digest != "d" {
		t.Errorf("newest of each kind: %+v", s)
	}
	if len(s.Findings) != 2 || s.Findings[0].Path != ".github/ci.yml" {
		t.Errorf("findings %+v", s.Findings)
	}
	if e := s.Effects["push"]; e.Intended == nil || e.Intended.Kind != "git.push" || e.Done == nil {
		t.Errorf("done effect %+v", e)
	}
	if e := s.Effects["pr"]; e.Intended == nil || e.Done != nil {
		t.Errorf("intended effect %+v", e)
	}
	if _, live := s.Sandboxes["s2"]; !live || len(s.Sandboxes) != 1 {
		t.Errorf("sandboxes %+v", s.Sandboxes)
	}
}

// TestFoldInParts: a summary that is taken up again folds to the same as one pass.
func TestFoldInParts(t *testing.T) {
	log := sevenNotes(t)
	whole, err := Fold(log)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range log {
		part, err := Fold(log[:cut])
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range log[cut:] {
			if err := part.Apply(e); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(whole, part); diff != "" {
			t.Fatalf("cut at %d:\n%s", cut, diff)
		}
	}
}

func TestFoldRefuses(t *testing.T) {
	created := TaskCreated{}
	tests := []struct {
		name string
		log  []Event
		says string
	}{
		{"not in the table", testLog(t, created, StateChanged{From: task.Queued, To: task.Merged}), `event 2 of ` + string(testID)},
		{"not where the task is", testLog(t, created, StateChanged{From: task.Working, To: task.Verifying}), `but the task is "queued"`},
		{"created twice", testLog(t, created, created), "event 2"},
		{"changed before it is created", testLog(t, StateChanged{From: task.Queued, To: task.Preparing}), "event 1"},
		{"back to the start", testLog(t, created, StateChanged{From: task.Queued, To: task.Preparing}, StateChanged{To: task.Queued}), "event 3"},
		{"a gap", append(testLog(t, created), sevenNotes(t)[2]), "event 3 follows event 1"},
		{"another task", append(testLog(t, created), Event{Task: "t_other", Seq: 2}), "belongs to task t_other"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Fold(tt.log)
			if task.ClassOf(err) != task.Internal || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("want %q: %v", tt.says, err)
			}
			if s.LastSeq != int64(len(tt.log))-1 {
				t.Fatalf("the summary moved to %d by a refused event", s.LastSeq)
			}
		})
	}
	bad := testLog(t, created, Noticed{})
	bad[1].Payload = []byte(`{"step":"x"}`)
	if s, err := Fold(bad); err == nil || s.LastSeq != 1 {
		t.Fatalf("undecodable event: %+v, %v", s, err)
	}
}

func TestNextState(t *testing.T) {
	for _, tr := range task.Transitions() {
		if tr.From == "" {
			continue
		}
		d, err := New(StateChanged{From: tr.From, To: tr.To})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := NextState(tr.From, d); err != nil || got != tr.To {
			t.Errorf("%s → %s: %s, %v", tr.From, tr.To, got, err)
		}
	}
	d, _ := New(Noticed{})
	if got, err := NextState(task.Verifying, d); err != nil || got != task.Verifying {
		t.Errorf("a notice moved the task to %s, %v", got, err)
	}
	for _, d := range []Draft{
		{Kind: "state.changed", Version: Current + 1, Payload: []byte(`{}`)},
		{Kind: "task.created", Version: 1, Payload: []byte(`[]`)},
	} {
		if _, err := NextState("", d); task.ClassOf(err) != task.Internal {
			t.Errorf("%+v: %v", d, err)
		}
	}
}

// TestAgentTouched: a sandbox in which nothing was begun holds nothing that is worth saving.
func TestAgentTouched(t *testing.T) {
	var s Summary
	add := func(want bool, p Payload) {
		t.Helper()
		d, err := New(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Apply(Seal("t_x", s.LastSeq+1, 1, time.Unix(0, 0), s.LastHash, d)); err != nil {
			t.Fatal(err)
		}
		if s.AgentTouched != want {
			t.Errorf("after %T: touched %v", p, s.AgentTouched)
		}
	}
	add(false, TaskCreated{})
	add(false, SandboxStarted{ID: "a", Purpose: "agent"})
	add(true, ToolStarted{Call: "1"})
	add(true, SandboxStarted{ID: "b", Purpose: "baseline"})
	add(false, SandboxStarted{ID: "c", Purpose: "agent"})
}

// TestFollowUpStartsAnew: what was proven before a review does not count for what comes after it.
func TestFollowUpStartsAnew(t *testing.T) {
	var s Summary
	s.take(1, &Submitted{Title: "one"})
	s.take(2, &Exported{Tree: "t"})
	s.take(3, &VerificationFinished{Kind: task.Verified})
	s.VerifiedSeq, s.VerifiedHash = 3, "h"
	s.take(4, &PullRequestOpened{Head: "a"})
	s.take(5, &StateChanged{From: task.InReview, To: task.Working})
	if s.Submitted != nil || s.Exported != nil || s.Verification != nil || s.VerifiedSeq != 0 || s.VerifiedHash != "" {
		t.Errorf("%+v", s)
	}
	if s.PullRequest == nil || s.PullRequest.Head != "a" {
		t.Error("the pull request is forgotten")
	}
}

// TestARaisedBudgetStartsAnew: what was proven before the budget ran out is not what the agent makes
// with more of it.
func TestARaisedBudgetStartsAnew(t *testing.T) {
	s, err := Fold(testLog(t, TaskCreated{}, StateChanged{From: task.Queued, To: task.Preparing}, StateChanged{From: task.Preparing, To: task.Working},
		Submitted{Title: "one"}, StateChanged{From: task.Working, To: task.Verifying}, Exported{Tree: "t"}, WorkspaceSaved{Files: 1}, VerificationFinished{Kind: task.Verified},
		StateChanged{From: task.Verifying, To: task.Exhausted}, StateChanged{From: task.Exhausted, To: task.Working}, StateChanged{From: task.Working, To: task.Verifying}))
	if err != nil || s.Verification != nil || s.Exported != nil || s.Submitted != nil || s.VerifiedHash != "" || s.Workspace == nil {
		t.Errorf("%+v %v", s, err)
	}
}

// TestFoldRebase: what was proven is put aside by a rebase, brought back when that is undone, and
// replaced when the change is proven on the new base.
func TestFoldRebase(t *testing.T) {
	proven := []Payload{
		TaskCreated{Base: "b0"},
		StateChanged{From: task.Queued, To: task.Preparing},
		SnapshotReady{Digest: "d0"},
		BaselineFinished{Runner: "r0"},
		StateChanged{From: task.Preparing, To: task.Working},
		StateChanged{From: task.Working, To: task.Verifying},
		Exported{Tree: "t0"},
		WorkspaceSaved{Step: 1},
		VerificationFinished{Kind: task.Verified, Attempt: 1},
		StateChanged{From: task.Verifying, To: task.Publishing},
	}
	moved := append(proven[:len(proven):len(proven)], Rebased{From: "b0", To: "b1"}, WorkspaceSaved{Step: 2}, StateChanged{From: task.Publishing, To: task.Verifying},
		SnapshotReady{Digest: "d1"}, BaselineFinished{Runner: "r1"}, Exported{Tree: "t1"})
	before, err := Fold(testLog(t, proven...))
	if err != nil {
		t.Fatal(err)
	}
	on := func(more ...Payload) Summary {
		s, err := Fold(testLog(t, append(moved[:len(moved):len(moved)], more...)...))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := on(); !s.Rebasing() || s.Created.Base != "b1" || s.Verification != nil || s.Rebases != 1 {
		t.Errorf("under way: %+v", s)
	}
	if s := on(VerificationFinished{Kind: task.Verified, Attempt: 2}); s.Rebasing() || s.Created.Base != "b1" || s.Verification.Attempt != 2 || s.Exported.Tree != "t1" || s.Workspace.Step != 2 {
		t.Errorf("proven: %+v", s)
	}
	s := on(VerificationFinished{Kind: task.Regression, Attempt: 2}, RebaseUndone{To: "b0"}, StateChanged{From: task.Verifying, To: task.Publishing})
	if s.Rebasing() || s.Undone == nil || s.Rebased != nil {
		t.Errorf("undone: %+v", s)
	}
	for _, x := range []*Summary{&s, &before} { // what is about the log itself, and the word of the undoing
		x.LastSeq, x.Epoch, x.LastHash, x.UpdatedAt, x.Undone, x.Rebases = 0, 0, "", before.CreatedAt, nil, 0
	}
	if diff := cmp.Diff(before, s); diff != "" {
		t.Errorf("undone:\n%s", diff)
	}
}

// TestAnswers: a word is an answer when it came after the question, by clocks that may differ a little.
func TestAnswers(t *testing.T) {
	s, err := Fold(testLog(t, TaskCreated{}, StateChanged{From: task.Queued, To: task.Preparing}, StateChanged{From: task.Preparing, To: task.Working}, QuestionAsked{N: 1}))
	if err != nil || s.AskedAt.IsZero() {
		t.Fatal(s.AskedAt, err)
	}
	for d, want := range map[time.Duration]bool{-time.Minute: false, -time.Second: true, time.Hour: true} {
		if got := s.Answers(s.AskedAt.Add(d)); got != want {
			t.Errorf("%s: %v", d, got)
		}
	}
}

// TestParked: a task rests from its question until that is answered, or the task has ended.
func TestParked(t *testing.T) {
	ps := []Payload{
		TaskCreated{},
		StateChanged{From: task.Queued, To: task.Preparing},
		StateChanged{From: task.Preparing, To: task.Working},
		QuestionAsked{N: 1},
		QuestionAnswered{N: 1},
		QuestionAsked{N: 2},
		StateChanged{From: task.Working, To: task.Declined},
	}
	for i, want := range []bool{false, false, false, true, false, true, false} {
		s, err := Fold(testLog(t, ps[:i+1]...))
		if err != nil {
			t.Fatal(err)
		}
		if s.Parked() != want {
			t.Errorf("after %s: %v", ps[i].EventKind(), s.Parked())
		}
	}
}

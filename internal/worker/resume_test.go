package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/forge/local"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/sqlite"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify"
)

// leftovers is a runtime that starts nothing and finds the sandbox of a run that died.
type leftovers struct {
	sandbox.Runtime
	manifest  sandbox.Manifest
	destroyed int
	refuse    error
}

func (l *leftovers) Start(context.Context, sandbox.Spec) (sandbox.Sandbox, error) {
	return nil, l.refuse
}

func (l *leftovers) Recover(context.Context, string) (sandbox.Sandbox, error) { return &left{l}, nil }

type left struct{ l *leftovers }

func (b *left) Handle() sandbox.Handle { return sandbox.Handle{ID: "box"} }
func (b *left) Info() sandbox.Info     { return sandbox.Info{} }
func (b *left) Guest() *guest.Client   { return nil }
func (b *left) Export(context.Context, sandbox.ExportLimits) (sandbox.Manifest, error) {
	return b.l.manifest, nil
}

func (b *left) Destroy(context.Context) error {
	b.l.destroyed++
	return nil
}

// rig is a worker on real git and a real store whose sandboxes are not real.
type rig struct {
	*Worker
	repo  string
	boxes *leftovers
	id    task.ID
	lease store.Lease
}

// newRig makes a task in the state queued and takes its lease.
func newRig(t *testing.T, limits task.Limits) *rig {
	t.Helper()
	dir, repo := t.TempDir(), t.TempDir()
	gittest.Run(t, repo, "init", "-q", "-b", "main")
	if err := os.WriteFile(filepath.Join(repo, "a.txt"), []byte("one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, repo, "add", "-A")
	gittest.Run(t, repo, "commit", "-qm", "first")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	st, err := sqlite.Open(t.Context(), filepath.Join(dir, "daybreak.db"), sqlite.Options{})
	must(err)
	t.Cleanup(func() { _ = st.Close() })
	g, err := git.New(git.Config{Home: filepath.Join(dir, "home")})
	must(err)
	log := slog.New(slog.DiscardHandler)
	snaps, err := snapshot.New(snapshot.Config{Dir: dir, Git: g, Now: time.Now, Logger: log})
	must(err)
	pulls, err := local.New(local.Config{Dir: dir, Git: g})
	must(err)
	r := &rig{repo: repo, boxes: &leftovers{}}
	r.Worker = New(Config{
		Store: st, Runtime: r.boxes, Git: g, Snapshots: snaps, Forge: pulls,
		Model: func(string) (model.Client, error) { return nil, errors.New("no model call is expected") },
		Owner: "test", Now: time.Now, Rand: bytes.NewReader(bytes.Repeat([]byte{7}, 4096)), Logger: log,
	})
	got, _, err := r.Create(t.Context(), Request{Repo: repo, Issue: []byte("it is broken"), Limits: limits})
	must(err)
	r.id = got.ID
	r.lease, err = st.Acquire(t.Context(), r.id, "before", time.Minute, nil)
	must(err)
	return r
}

func (r *rig) record(t *testing.T, ps ...event.Payload) {
	t.Helper()
	for _, p := range ps {
		d, err := event.New(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.cfg.Store.Append(t.Context(), r.lease, d); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *rig) release(t *testing.T) {
	t.Helper()
	if err := r.cfg.Store.Release(t.Context(), r.lease); err != nil {
		t.Fatal(err)
	}
}

func text(t *testing.T, v any) event.Text {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return event.Text{Inline: string(b), Bytes: len(b)}
}

// verified records everything up to an accepted verdict on a change of a.txt.
func (r *rig) verified(t *testing.T) {
	t.Helper()
	base := gittest.Run(t, r.repo, "rev-parse", "HEAD")
	snap, err := r.cfg.Snapshots.Prepare(t.Context(), snapshot.Source{Repo: r.repo, Ref: base})
	if err != nil {
		t.Fatal(err)
	}
	change := []git.Change{{Path: "a.txt", Mode: git.ModeFile, Content: []byte("two\n")}}
	tree, err := r.cfg.Git.BuildTree(t.Context(), snap.GitDir, base, change)
	if err != nil {
		t.Fatal(err)
	}
	r.record(
		t, event.StateChanged{From: task.Queued, To: task.Preparing},
		event.BaselineFinished{Document: text(t, verify.Baseline{Base: base})},
		event.StateChanged{From: task.Preparing, To: task.Working},
		event.WorkspaceSaved{Change: text(t, change), Files: 1},
		event.Submitted{Title: "fix it"},
		event.StateChanged{From: task.Working, To: task.Verifying},
		event.Exported{Tree: tree, Paths: []string{"a.txt"}},
		event.VerificationFinished{Attempt: 1, Kind: task.Verified, Document: text(t, task.Verdict{Kind: task.Verified, Base: base, HeadTree: tree})},
	)
}

// TestWhatIsProvenIsPublished: neither a crash nor a wall clock that has run out since keeps a
// verified change from its pull request.
func TestWhatIsProvenIsPublished(t *testing.T) {
	for _, state := range []task.State{task.Verifying, task.Publishing} {
		t.Run(string(state), func(t *testing.T) {
			r := newRig(t, task.Limits{Wall: time.Hour})
			r.verified(t)
			if state == task.Publishing {
				r.record(t, event.StateChanged{From: task.Verifying, To: task.Publishing})
			}
			r.record(t, event.WallClocked{Elapsed: 2 * time.Hour})
			r.release(t)
			sum, err := r.Run(t.Context(), r.id)
			if err != nil || sum.State != task.InReview {
				t.Fatalf("state %s, error %v", sum.State, err)
			}
			if got := gittest.Run(t, r.repo, "show", sum.PullRequest.Branch+":a.txt"); got != "two" {
				t.Errorf("the branch holds %q", got)
			}
			again, err := r.Run(t.Context(), r.id)
			if err != nil || again.LastSeq != sum.LastSeq {
				t.Errorf("a second run wrote %d records, error %v", again.LastSeq-sum.LastSeq, err)
			}
		})
	}
}

// TestOnlyWhatWasProvenIsPublished: a verdict about another tree or another base, or one that refuses,
// publishes nothing.
func TestOnlyWhatWasProvenIsPublished(t *testing.T) {
	for name, change := range map[string]func(v *task.Verdict){
		"another tree": func(v *task.Verdict) { v.HeadTree = strings.Repeat("a", 40) },
		"another base": func(v *task.Verdict) { v.Base = strings.Repeat("a", 40) },
		"no tree":      func(v *task.Verdict) { v.HeadTree = "" },
		"a refusal":    func(v *task.Verdict) { v.Kind = task.Regression },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, task.Limits{})
			r.verified(t)
			sum := r.fold(t)
			v := task.Verdict{Kind: task.Verified, Base: sum.Created.Base, HeadTree: sum.Exported.Tree}
			change(&v)
			r.record(t, event.VerificationFinished{Attempt: 1, Kind: task.Verified, Document: text(t, v)})
			r.release(t)
			sum, err := r.Run(t.Context(), r.id)
			if task.ClassOf(err) != task.Internal || sum.State != task.Failed || sum.PullRequest != nil || len(sum.Effects) != 0 {
				t.Errorf("%s %q, %+v: %v", sum.State, sum.Reason, sum.Effects, err)
			}
			if got := gittest.Run(t, r.repo, "branch", "--list", "daybreak/*"); got != "" {
				t.Errorf("there is %s", got)
			}
		})
	}
}

func TestTheWallClockEndsATask(t *testing.T) {
	for _, state := range []task.State{task.Queued, task.Preparing} {
		r := newRig(t, task.Limits{Wall: time.Hour})
		if state == task.Preparing {
			r.record(t, event.StateChanged{From: task.Queued, To: task.Preparing})
		}
		r.record(t, event.WallClocked{Elapsed: time.Hour})
		r.release(t)
		sum, err := r.Run(t.Context(), r.id)
		if err != nil || sum.State != task.Exhausted {
			t.Errorf("%s: state %s, error %v", state, sum.State, err)
		}
	}
}

// TestASandboxThatWasBeingFilledIsNoSource: the worker died while it put the agent's files
// back, so what the sandbox holds is less than what the log has.
func TestASandboxThatWasBeingFilledIsNoSource(t *testing.T) {
	for _, touched := range []bool{false, true} {
		r := newRig(t, task.Limits{})
		saved := []git.Change{{Path: "a.txt", Mode: git.ModeFile, Content: []byte("two\n")}, {Path: "b.txt", Mode: git.ModeFile, Content: []byte("b\n")}}
		r.boxes.manifest = sandbox.Manifest{Entries: []sandbox.Entry{{Path: "a.txt", Mode: git.ModeFile, Content: []byte("three\n")}}}
		r.record(
			t, event.StateChanged{From: task.Queued, To: task.Preparing}, event.StateChanged{From: task.Preparing, To: task.Working},
			event.SandboxStarted{ID: "old", Purpose: purposeAgent}, event.ToolStarted{Step: 1, Call: "1", Name: "edit"},
			event.SandboxEnded{ID: "old"}, event.WorkspaceSaved{Step: 1, Change: text(t, saved), Files: 2},
			event.SandboxStarted{ID: "box", Purpose: purposeAgent},
		)
		if touched {
			r.record(t, event.ToolStarted{Step: 2, Call: "2", Name: "edit"})
		}
		events, err := r.cfg.Store.Events(t.Context(), r.id, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		j := &journal{st: r.cfg.Store, now: time.Now, task: r.id, lease: r.lease}
		if j.summary, err = event.Fold(events); err != nil {
			t.Fatal(err)
		}
		one := &run{Worker: r.Worker, j: j}
		if one.snap, err = r.cfg.Snapshots.Prepare(t.Context(), snapshot.Source{Repo: r.repo}); err != nil {
			t.Fatal(err)
		}
		files, lost, err := one.leftBehind(t.Context())
		if err != nil || lost != "" || r.boxes.destroyed != 1 {
			t.Errorf("lost %q, destroyed %d, error %v", lost, r.boxes.destroyed, err)
		}
		if want := map[bool]int{false: 2, true: 1}[touched]; len(files) != want {
			t.Errorf("touched %v: %d files, want %d", touched, len(files), want)
		}
	}
}

// A launch that was refused is in the log with its layer, and no command ran.
func TestARefusedSandboxIsOnRecord_GW09(t *testing.T) {
	r := newRig(t, task.Limits{})
	r.boxes.refuse = &sandbox.RefusedError{Layer: "seccomp", Err: errors.New("filter refused"), Fix: "install runc"}
	r.release(t)
	if _, err := r.Run(t.Context(), r.id); !errors.Is(err, ErrPaused) {
		t.Errorf("%v", err)
	}
	events, err := r.cfg.Store.Events(t.Context(), r.id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	said := 0
	for _, e := range events {
		switch p, err := event.Decode(e); p := p.(type) {
		case *event.SandboxRefused:
			said++
			if p.Layer != "seccomp" || !strings.Contains(p.Error, "filter refused") || err != nil {
				t.Errorf("%+v %v", p, err)
			}
		case *event.SandboxStarted, *event.ToolStarted, *event.ModelRequested:
			t.Errorf("%s after a refusal", e.Kind)
		}
	}
	if said != 1 {
		t.Errorf("%d refusals on record", said)
	}
}

// TestATaskOutlivesTroubleOfTheMachine: what a person can put right ends no task.
func TestATaskOutlivesTroubleOfTheMachine(t *testing.T) {
	for _, c := range []struct {
		err   error
		state task.State
	}{
		{&sandbox.RefusedError{Layer: "privileges", Err: errors.New("not root")}, task.Preparing},
		{&os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, task.Preparing},
		{errors.New("a bug of ours"), task.Failed},
	} {
		r := newRig(t, task.Limits{})
		r.boxes.refuse = c.err
		r.release(t)
		sum, err := r.Run(t.Context(), r.id)
		if sum.State != c.state || errors.Is(err, ErrPaused) != (c.state == task.Preparing) {
			t.Errorf("%v: state %s, error %v", c.err, sum.State, err)
		}
	}
}

// TestAskingAgainFindsTheTask: also when the branch has moved, or the repository is away.
func TestAskingAgainFindsTheTask(t *testing.T) {
	r := newRig(t, task.Limits{})
	ask := func(q Request) (store.Task, bool) {
		t.Helper()
		q.Repo = r.repo
		got, isNew, err := r.Create(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return got, isNew
	}
	same := Request{Issue: []byte("it is broken")}
	gittest.Run(t, r.repo, "commit", "-q", "--allow-empty", "-m", "second")
	if got, isNew := ask(same); isNew || got.ID != r.id {
		t.Errorf("after a commit: %s, new %v", got.ID, isNew)
	}
	if got, isNew := ask(Request{Issue: same.Issue, Ref: "HEAD"}); isNew || got.ID != r.id {
		t.Errorf("with the default named: %s, new %v", got.ID, isNew)
	}
	for _, q := range []Request{{Issue: []byte("another")}, {Issue: same.Issue, Ref: "HEAD~1"}, {Issue: same.Issue, Fresh: true}} {
		if got, isNew := ask(q); !isNew || got.ID == r.id {
			t.Errorf("%+v found %s", q, got.ID)
		}
	}
	if err := os.Rename(r.repo, r.repo+".away"); err != nil {
		t.Fatal(err)
	}
	if got, isNew := ask(same); isNew || got.ID != r.id {
		t.Errorf("without the repository: %s, new %v", got.ID, isNew)
	}
	r.record(t, event.StateChanged{From: task.Queued, To: task.Failed})
	if _, _, err := r.Create(t.Context(), Request{Repo: r.repo, Issue: same.Issue}); task.ClassOf(err) != task.Invalid {
		t.Errorf("an ended task is no reason to go on: %v", err)
	}
}

// TestLongGuidanceIsNamed: what does not fit is said to be left out, not dropped in silence.
func TestLongGuidanceIsNamed(t *testing.T) {
	for size, want := range map[int]bool{100: false, 30 << 10: true} {
		r := newRig(t, task.Limits{})
		if err := os.WriteFile(filepath.Join(r.repo, "AGENTS.md"), bytes.Repeat([]byte("x"), size), 0o644); err != nil {
			t.Fatal(err)
		}
		gittest.Run(t, r.repo, "add", "-A")
		gittest.Run(t, r.repo, "commit", "-qm", "guidance")
		one := &run{Worker: r.Worker, j: &journal{}}
		var err error
		if one.snap, err = r.cfg.Snapshots.Prepare(t.Context(), snapshot.Source{Repo: r.repo}); err != nil {
			t.Fatal(err)
		}
		if err := one.readSettings(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(one.snap.Warnings, " "), "AGENTS.md"); got != want || (one.set.guidance == "") != want {
			t.Errorf("%d bytes: named %v, given %d bytes", size, got, len(one.set.guidance))
		}
	}
}

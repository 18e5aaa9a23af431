package prover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify"
)

// maxBlob is the largest changed file that is verified, in bytes.
const maxBlob = 64 << 20

// Request is a change that anyone made: two commits of a repository.
type Request struct {
	Repo        string // a directory or a URL
	Base, Head  string // revisions
	Exact       bool   // take Base itself, not the commit where Head left its line
	Tests       []string
	Hang        bool   // the change is about a hang: a timeout may show the bug
	Race        bool   // the change is about a race: its tests run under the race detector
	Environment string // digest of what a sandbox looks like
	Found       func() // the base and the change are there; may be nil
	Progress    func(note string)
}

// Outcome is what came of it.
type Outcome struct {
	Verdict    task.Verdict
	Base, Head string // commit ids
	Snapshot   snapshot.Snapshot
	Changes    []git.Change
	Took       time.Duration
}

// Change verifies the difference of two commits as a task's would be. An error is Invalid or
// NotFound where the request is at fault; what is wrong with the change is in the verdict.
func (p *Prover) Change(ctx context.Context, q Request) (Outcome, error) {
	start := p.cfg.Now()
	if q.Progress == nil {
		q.Progress = func(string) {}
	}
	var out Outcome
	var err error
	base := q.Base
	if !q.Exact {
		mb, err := p.cfg.Git.MergeBase(ctx, q.Repo, q.Base, q.Head)
		if err != nil {
			return out, err
		}
		base = cmp.Or(mb, base)
	}
	q.Progress("fetching the commits")
	if out.Head, _, err = p.cfg.Snapshots.Resolve(ctx, q.Repo, q.Head); err != nil {
		return out, err
	}
	if out.Snapshot, err = p.cfg.Snapshots.Prepare(ctx, snapshot.Source{Repo: q.Repo, Ref: base, Environment: q.Environment}); err != nil {
		return out, err
	}
	out.Base = out.Snapshot.Base
	if out.Base == out.Head {
		return out, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("there is nothing to verify: %q has no commit that %q lacks", q.Head, q.Base), Fix: "name the revision before the change with --base and the one with it with --head"}
	}
	tree, err := p.cfg.Git.TreeID(ctx, out.Snapshot.GitDir, out.Head)
	if err != nil {
		return out, err
	}
	if out.Changes, err = Changes(ctx, p.cfg.Git, out.Snapshot.GitDir, out.Base, out.Head); err != nil {
		return out, err
	}
	if q.Found != nil {
		q.Found()
	}
	repo, err := p.Settings(ctx, out.Snapshot)
	if err != nil {
		return out, err
	}
	var steps setupRuns
	if out.Snapshot, _, err = p.Setup(ctx, out.Snapshot, repo, &steps, q.Progress); err != nil {
		var failed *SetupError
		if !errors.As(err, &failed) {
			return out, err
		}
		out.Verdict, out.Took = unprepared(out, tree, failed, steps), p.cfg.Now().Sub(start)
		return out, nil
	}
	b, _, _, err := p.Baseline(ctx, out.Snapshot, repo, q.Progress)
	if err != nil {
		return out, err
	}
	p.expectBench(out.Snapshot)
	out.Verdict, err = p.Verify(ctx, repo, verify.Job{
		Snapshot: out.Snapshot, HeadTree: tree, Changes: out.Changes, Declared: q.Tests, Hang: q.Hang, Race: q.Race,
		Baseline: b, Progress: func(_, note string) { q.Progress(note) },
	})
	out.Took = p.cfg.Now().Sub(start)
	return out, err
}

// setupRuns are the commands of a setup, for the record of a verdict.
type setupRuns []task.RunRecord

// StepStarted implements SetupRecord.
func (r *setupRuns) StepStarted(context.Context, SetupStep) error { return nil }

// StepFinished implements SetupRecord.
func (r *setupRuns) StepFinished(_ context.Context, d SetupDone) error {
	run := task.RunRecord{Command: oneLine(d.Line(), 300), ExitCode: d.ExitCode, Millis: d.Wall.Milliseconds(), Log: d.Log, Outcome: "built"}
	if d.TimedOut {
		run.Outcome = "timeout"
	} else if d.ExitCode != 0 {
		run.Outcome = "not built"
	}
	*r = append(*r, run)
	return nil
}

// unprepared is the verdict where the base's dependencies cannot be installed. Unlike a task, which
// a person lets go on once that is put right, a verification ends with it.
func unprepared(out Outcome, tree string, failed *SetupError, runs setupRuns) task.Verdict {
	why := failed.Error()
	return task.Verdict{
		Kind: task.EnvBlocked,
		Reason: "nothing can be verified here: " + why + ". Repair it on the base, name the steps under setup in .daybreak.yaml there, " +
			"or, where the host has all that the tests need, have nothing installed with `setup: named` under sandbox in the configuration",
		Detail: strings.Join(failed.Tail, "\n"), Base: out.Base, HeadTree: tree,
		Tests: []string{}, Source: []string{}, Config: []string{}, Reproduction: []task.Reproduction{}, Findings: []task.Finding{},
		Environment: out.Snapshot.Digest, Verifier: verify.Version,
		Phases: []task.PhaseRecord{
			{Phase: "P0", Name: "prepare", Note: oneLine(why, 600), Runs: runs},
			{Phase: "P8", Name: "verdict", Note: string(task.EnvBlocked), Complete: true},
		},
	}
}

// Changes reads the difference of two trees. A submodule is a commit of another repository and
// cannot be placed: a change of one is refused, since what it does would not be seen.
func Changes(ctx context.Context, g *git.Git, gitdir, base, head string) ([]git.Change, error) {
	diff, err := g.ChangedPaths(ctx, gitdir, base, head)
	if err != nil {
		return nil, err
	}
	list, err := g.ListTree(ctx, gitdir, head)
	if err != nil {
		return nil, err
	}
	byPath := make(map[string]git.Entry, len(diff))
	for _, d := range diff {
		byPath[d.Path] = git.Entry{}
	}
	var want []git.Entry
	for _, e := range list {
		if _, changed := byPath[e.Path]; changed {
			byPath[e.Path] = e
			want = append(want, e)
		}
	}
	blobs, err := g.Blobs(ctx, gitdir, want, maxBlob)
	if err != nil {
		return nil, err
	}
	var out []git.Change
	for _, d := range diff {
		if d.OldMode == git.ModeSubmodule || d.NewMode == git.ModeSubmodule {
			return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q is a submodule that the change moves, and its content is not in the repository", d.Path), Fix: "verify the rest of the change apart from it"}
		}
		c := git.Change{Path: d.Path, Mode: d.NewMode, Deleted: d.NewMode == 0}
		if !c.Deleted {
			content, ok := blobs[byPath[d.Path].ID]
			if !ok {
				return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q is larger than %d MiB", d.Path, maxBlob>>20)}
			}
			c.Content = slices.Clip(content)
		}
		out = append(out, c)
	}
	return out, nil
}

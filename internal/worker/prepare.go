package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify"
)

// settings are what the base commit itself says: read once per run, from the commit, never
// from the agent's tree.
type settings struct {
	repo     config.Repo
	guidance string // AGENTS.md
	baseline verify.Baseline
}

// prepare makes sure of the snapshot and the baseline. It is cheap when both are there.
func (r *run) prepare(ctx context.Context) error {
	sum := r.j.Summary()
	begin := r.cfg.Now()
	r.progress("prepare", "checking out "+short(sum.Created.Base))
	snap, err := r.cfg.Snapshots.Prepare(ctx, snapshot.Source{
		Repo: r.source(sum.Created.Repo), Ref: sum.Created.Base, Environment: r.cfg.Environment,
	})
	if err != nil {
		return err
	}
	r.snap, r.names, r.base, r.indexed = snap, nil, nil, false
	if err := r.cfg.Snapshots.Pin(sum.Task, snap); err != nil {
		return err
	}
	if sum.Snapshot == nil || sum.Snapshot.Digest != snap.Digest || snap.Rebuilt != "" {
		if _, err := r.j.Append(ctx, event.SnapshotReady{
			Digest: snap.Digest, Base: snap.Base, Files: snap.Files, Bytes: snap.Bytes,
			Warnings: snap.Warnings, Cached: snap.Cached, Rebuilt: snap.Rebuilt, Millis: r.since(begin),
		}); err != nil {
			return err
		}
	}
	if err := r.readSettings(ctx); err != nil {
		return err
	}
	if err := r.collect(ctx); err != nil {
		return err
	}
	if err := r.setup(ctx); err != nil {
		return err
	}
	if r.j.state() == task.Preparing { // before homed, which says what the agent's sandbox stands on
		if err := r.index(ctx); err != nil {
			return err
		}
		r.indexed = true
		r.twin(ctx)
	}
	return r.baseline(ctx)
}

// homed has the agent's sandbox made ready where sandboxes are: the baseline goes on for as long
// as another run of the suite takes. It implements prover.Config.Homed.
func (r *run) homed(ctx context.Context, s snapshot.Snapshot) {
	if r.j.state() != task.Preparing {
		return // a baseline of the target's new tip, where no agent works
	}
	if err := r.prover().Expect(ctx, s); err != nil {
		r.cfg.Logger.WarnContext(ctx, "no sandbox is made ready for the agent", "error", err)
	}
}

// readSettings reads what the base commit says about itself.
func (r *run) readSettings(ctx context.Context) error {
	var err error
	if r.set.repo, err = r.prover().Settings(ctx, r.snap); err != nil {
		return err
	}
	const maxGuidance = 24 << 10
	b, mode, err := r.cfg.Git.File(ctx, r.snap.GitDir, r.snap.Base, "AGENTS.md", maxGuidance)
	switch {
	case err == nil && mode&0o170000 == 0o100000:
		r.set.guidance = string(b)
	case task.ClassOf(err) == task.Invalid: // too large
		r.snap.Warnings = append(slices.Clip(r.snap.Warnings), "AGENTS.md is too long to be given here; read what concerns you in the file")
	case err != nil && task.ClassOf(err) != task.NotFound:
		return err
	}
	return nil
}

// baseline runs the suite on the base, or takes the ledger from the log or from an earlier
// task on the same base and environment.
func (r *run) baseline(ctx context.Context) error {
	sum := r.j.Summary()
	if sum.Baseline != nil {
		doc, err := r.j.Load(ctx, sum.Baseline.Document)
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(doc), &r.set.baseline); err != nil {
			return fmt.Errorf("recorded baseline: %w", err)
		}
		return r.refuseBlocked()
	}
	begin := r.cfg.Now()
	b, doc, cached, err := r.prover().Baseline(ctx, r.snap, r.set.repo, func(note string) { r.progress("baseline", note) })
	if err != nil {
		return err
	}
	r.set.baseline = b
	t, err := r.j.Text(ctx, string(doc))
	if err != nil {
		return err
	}
	passed, failed, skipped := b.Counts()
	note := ""
	if cached {
		note = "from an earlier task on the same base"
	}
	if _, err := r.j.Append(ctx, event.BaselineFinished{
		Runner: b.Runner, Command: b.Command(), Passed: passed, Failed: failed, Skipped: skipped,
		Flaky: b.Flickering, Runs: b.Runs(), Problem: b.Blocked, Document: t,
	}, event.StageFinished{Stage: "baseline", Millis: r.since(begin), Note: note}); err != nil {
		return err
	}
	return r.refuseBlocked()
}

// refuseBlocked ends the task before any model call when nothing could ever be verified.
func (r *run) refuseBlocked() error {
	if b := r.set.baseline; b.Blocked != "" {
		return &task.Error{Class: task.Invalid, Msg: string(task.EnvBlocked) + ": " + b.Blocked, Fix: "make the suite run on this commit, or name its commands in " + config.RepoFile}
	}
	return nil
}

func (r *run) verifier() *verify.Verifier { return r.prover().Verifier(r.set.repo) }

// prover is the installation's, with this task's log as its record.
func (r *run) prover() *prover.Prover {
	return prover.New(prover.Config{
		Runtime: r.cfg.Runtime, Git: r.cfg.Git, Snapshots: r.cfg.Snapshots, Sandbox: r.cfg.Sandbox,
		Owner: string(r.j.Summary().Task), Record: boxes{r}, Access: r.access, Outline: r.outline, Homed: r.homed, Setup: r.cfg.Setup, Now: r.cfg.Now, Rand: r.cfg.Rand, Logger: r.cfg.Logger,
	})
}

// collect ends the sandboxes that earlier runs of this task left, except the agent's, whose
// files are wanted: see restore.
func (r *run) collect(ctx context.Context) error {
	for id, s := range r.j.Summary().Sandboxes {
		if s.Purpose == purposeAgent {
			continue
		}
		if err := r.discard(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) discard(ctx context.Context, id string) error {
	box, err := r.cfg.Runtime.Recover(ctx, id)
	if err == nil {
		err = box.Destroy(ctx)
	}
	if err != nil && task.ClassOf(err) != task.NotFound {
		return fmt.Errorf("end a sandbox that an earlier run left: %w", err)
	}
	_, err = r.j.Append(ctx, event.SandboxEnded{ID: id, Reason: "left by an earlier run"})
	return err
}

// purposeAgent is the sandbox whose files are the agent's work.
const purposeAgent = "agent"

// boxes records sandboxes in the task's log.
type boxes struct{ r *run }

// Started implements prover.Record.
func (b boxes) Started(ctx context.Context, spec sandbox.Spec, box sandbox.Sandbox) error {
	info := box.Info()
	_, err := b.r.j.Append(ctx, event.SandboxStarted{
		ID: box.Handle().ID, Purpose: spec.Purpose, Runtime: info.Runtime, Isolation: info.Isolation,
		Profile: info.Profile, Limits: info.Limits, Millis: info.Ready.Milliseconds(), Stood: info.Stood,
	})
	return err
}

// Ended implements prover.Record.
func (b boxes) Ended(ctx context.Context, id string) error {
	_, err := b.r.j.Append(ctx, event.SandboxEnded{ID: id, Reason: "done"})
	return err
}

// Log implements prover.Record.
func (b boxes) Log(ctx context.Context, data []byte) (string, error) {
	return b.r.cfg.Store.PutBlob(ctx, data)
}

func (r *run) progress(stage, note string) {
	if r.cfg.Progress != nil {
		r.cfg.Progress(stage, note)
	}
}

func (r *run) since(t time.Time) int64 { return r.cfg.Now().Sub(t).Milliseconds() }

func short(id string) string { return id[:min(len(id), 12)] }

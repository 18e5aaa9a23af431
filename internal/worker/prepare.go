package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/event"
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
		Repo: sum.Created.Repo, Ref: sum.Created.Base, Environment: r.cfg.Environment,
	})
	if err != nil {
		return err
	}
	r.snap = snap
	if sum.Snapshot == nil || sum.Snapshot.Digest != snap.Digest {
		if _, err := r.j.Append(ctx, event.SnapshotReady{
			Digest: snap.Digest, Base: snap.Base, Files: snap.Files, Bytes: snap.Bytes,
			Warnings: snap.Warnings, Cached: snap.Cached, Millis: r.since(begin),
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
	return r.baseline(ctx)
}

// readSettings reads what the base commit says about itself.
func (r *run) readSettings(ctx context.Context) error {
	if b, _, err := r.cfg.Git.File(ctx, r.snap.GitDir, r.snap.Base, config.RepoFile, 64<<10+1); err == nil {
		if r.set.repo, err = config.ParseRepo(b); err != nil {
			return err
		}
	} else if task.ClassOf(err) != task.NotFound {
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
	name := "baseline-" + r.settingsDigest() + ".json"
	doc, err := r.cfg.Snapshots.Note(r.snap, name)
	cached := err == nil && json.Unmarshal(doc, &r.set.baseline) == nil
	if !cached {
		r.progress("baseline", "running the suite on the base commit")
		v := r.verifier()
		b, err := v.Baseline(ctx, r.snap, func(phase, note string) { r.progress("baseline", note) })
		if err != nil {
			return err
		}
		r.set.baseline = b
		if doc, err = json.Marshal(b); err != nil {
			return err
		}
		if b.Usable() {
			if err := r.cfg.Snapshots.SetNote(r.snap, name, doc); err != nil {
				return err
			}
		}
	}
	t, err := r.j.Text(ctx, string(doc))
	if err != nil {
		return err
	}
	b := r.set.baseline
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

func (r *run) verifier() *verify.Verifier {
	c := r.set.repo
	return &verify.Verifier{
		Lab: &lab{r}, Env: r.cfg.Sandbox.Env, Rand: r.cfg.Rand, Now: r.cfg.Now, Log: r.cfg.Logger,
		Settings: verify.Settings{
			Build: c.Build, Test: c.Test, TestOne: c.TestOne, Format: c.Format,
			Report: c.Report, TestGlobs: c.TestGlobs, Timeout: c.Timeout,
		},
	}
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

// lab gives the verifier its benches.
type lab struct{ r *run }

// Bench implements verify.Lab.
func (l *lab) Bench(ctx context.Context, purpose string, s snapshot.Snapshot, keepHome bool) (sandbox.Sandbox, error) {
	spec := l.r.spec(purpose, s)
	var commit func() error
	if keepHome {
		dir, done, err := l.r.cfg.Snapshots.KeepHome(s)
		if err != nil {
			return nil, err
		}
		if dir != "" {
			spec.Home = sandbox.Layers{Keep: dir}
			commit = done
		}
	}
	box, err := l.r.startBox(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &bench{Sandbox: box, r: l.r, commit: commit}, nil
}

// Log implements verify.Lab.
func (l *lab) Log(ctx context.Context, data []byte) (string, error) {
	return l.r.cfg.Store.PutBlob(ctx, data)
}

// bench records its end and hands its HOME to the snapshot.
type bench struct {
	sandbox.Sandbox
	r      *run
	commit func() error
}

// Destroy implements sandbox.Sandbox.
func (b *bench) Destroy(ctx context.Context) error {
	if err := b.Sandbox.Destroy(ctx); err != nil {
		return err
	}
	var err error
	if b.commit != nil {
		err, b.commit = b.commit(), nil
	}
	_, aerr := b.r.j.Append(context.WithoutCancel(ctx), event.SandboxEnded{ID: b.Handle().ID, Reason: "done"})
	return errors.Join(err, aerr)
}

// spec is the operator's template on a snapshot.
func (r *run) spec(purpose string, s snapshot.Snapshot) sandbox.Spec {
	spec := r.cfg.Sandbox
	spec.Env = append(verify.Offline(), spec.Env...)
	spec.Task, spec.Purpose, spec.Tree = string(r.j.Summary().Task), purpose, s.Tree
	if r.cfg.Snapshots.HasHome(s) {
		spec.Home.Lower = []string{s.Home}
	}
	return spec
}

// startBox starts a sandbox and records it.
func (r *run) startBox(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	box, err := r.cfg.Runtime.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	info := box.Info()
	if _, err := r.j.Append(ctx, event.SandboxStarted{
		ID: box.Handle().ID, Purpose: spec.Purpose, Runtime: info.Runtime, Isolation: info.Isolation,
		Profile: info.Profile, Limits: info.Limits, Millis: info.Ready.Milliseconds(),
	}); err != nil {
		return nil, errors.Join(err, box.Destroy(context.WithoutCancel(ctx)))
	}
	return box, nil
}

func (r *run) progress(stage, note string) {
	if r.cfg.Progress != nil {
		r.cfg.Progress(stage, note)
	}
}

func (r *run) since(t time.Time) int64 { return r.cfg.Now().Sub(t).Milliseconds() }

func short(id string) string { return id[:min(len(id), 12)] }

// settingsDigest names the repository's own words about its tests, on which a baseline depends
// beside the snapshot.
func (r *run) settingsDigest() string {
	b, _ := json.Marshal([]any{verify.Version, r.set.repo}) // a ledger of another verifier may name tests otherwise
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:8])
}

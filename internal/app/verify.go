package app

import (
	"context"

	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/store"
)

// standAlone owns the sandboxes of verifications that belong to no task.
const standAlone = "verify"

// Boxes remembers what isolated a stand-alone verification, and keeps the logs of its runs.
type Boxes struct {
	Info sandbox.Info // of the last sandbox
	st   store.Store
}

// Started implements prover.Record.
func (b *Boxes) Started(_ context.Context, _ sandbox.Spec, box sandbox.Sandbox) error {
	b.Info = box.Info()
	return nil
}

// Ended implements prover.Record.
func (b *Boxes) Ended(context.Context, string) error { return nil }

// Log implements prover.Record.
func (b *Boxes) Log(ctx context.Context, data []byte) (string, error) { return b.st.PutBlob(ctx, data) }

// Prover builds what verifies a change that has no task: the same verifier, sandbox and
// snapshots as a task's.
func (a *App) Prover() (*prover.Prover, *Boxes, error) {
	rt, err := a.Runtime()
	if err != nil {
		return nil, nil, err
	}
	rec := &Boxes{st: a.Store}
	return prover.New(prover.Config{
		Runtime: rt, Git: a.Git, Snapshots: a.Snapshots, Sandbox: a.SandboxSpec(""), Owner: standAlone, Record: rec, Setup: a.setup(),
		Now: a.Now, Rand: a.opts.Rand, Logger: a.opts.Logger,
	}), rec, nil
}

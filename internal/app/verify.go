package app

import (
	"context"

	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/store"
)

// standAlone owns the sandboxes of verifications that belong to no task.
const standAlone = "verify"

// logs keeps the outputs of a stand-alone verification's runs. What ran in which sandbox is in
// the verdict; there is no task to record it for.
type logs struct{ st store.Store }

// Started implements prover.Record.
func (logs) Started(context.Context, sandbox.Spec, sandbox.Sandbox) error { return nil }

// Ended implements prover.Record.
func (logs) Ended(context.Context, string) error { return nil }

// Log implements prover.Record.
func (b logs) Log(ctx context.Context, data []byte) (string, error) { return b.st.PutBlob(ctx, data) }

// Prover builds what verifies a change that has no task: the same verifier, sandbox and
// snapshots as a task's.
func (a *App) Prover() (*prover.Prover, error) {
	rt, err := a.Runtime()
	if err != nil {
		return nil, err
	}
	return prover.New(prover.Config{
		Runtime: rt, Git: a.Git, Snapshots: a.Snapshots, Sandbox: a.SandboxSpec(""), Owner: standAlone, Record: logs{a.Store}, Setup: a.setup(),
		Now: a.Now, Rand: a.opts.Rand, Logger: a.opts.Logger,
	}), nil
}

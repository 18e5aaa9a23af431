package app

import (
	"context"
	"path/filepath"

	"github.com/daybreak-agent/daybreak/internal/network"
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
	reach, err := a.Network()
	if err != nil {
		return nil, err
	}
	return prover.New(prover.Config{
		Runtime: a.keepNext(rt), Git: a.Git, Snapshots: a.Snapshots, Sandbox: a.SandboxSpec(""), Owner: standAlone, Record: logs{a.Store}, Setup: a.setup(),
		Access: a.prepareOnly(reach), Now: a.Now, Rand: a.opts.Rand, Logger: a.opts.Logger,
	}), nil
}

// prepareOnly lets the sandbox that installs dependencies reach the registries, and no other.
func (a *App) prepareOnly(reach network.Network) func(context.Context, *sandbox.Spec) (func(context.Context) error, error) {
	return func(ctx context.Context, spec *sandbox.Spec) (func(context.Context) error, error) {
		if spec.Purpose != "prepare" {
			return nil, nil
		}
		// The checkout has a repository of its own, of the one commit.
		known, err := prover.KnownNames(ctx, a.Git, filepath.Join(spec.Tree, ".git"), "HEAD")
		if err != nil {
			return nil, err
		}
		way, err := reach.Open(ctx, network.Request{
			Task: standAlone, Purpose: spec.Purpose, Mode: network.Registries, Known: known,
			Record: func(ctx context.Context, entries []network.Entry) error {
				for _, e := range entries {
					if e.Refused != "" {
						a.opts.Logger.WarnContext(ctx, "a package was refused", "ecosystem", e.Ecosystem, "name", e.Name, "version", e.Version, "reason", e.Refused)
					}
				}
				return nil
			},
		})
		if err != nil || way == nil {
			return nil, err
		}
		spec.Forwards = append(spec.Forwards, way.Forwards...)
		spec.Files = append(spec.Files, way.Files...)
		spec.Env = append(spec.Env, way.Env...)
		return way.Close, nil
	}
}

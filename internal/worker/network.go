package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/network"
	"github.com/daybreak-agent/daybreak/internal/policy/lockfile"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// purposePrepare is the sandbox in which dependencies are set up, before any text of the issue
// is read. It may reach the registries in every mode.
const purposePrepare = "prepare"

// reach is what a run knows about the registries.
type reach struct {
	mu       sync.Mutex
	known    *lockfile.Known // of the base commit, once asked for
	prepared bool            // the snapshot holds what setup installed
}

// setPrepared says that dependencies were prepared: a verification then needs no registry.
func (r *run) setPrepared() {
	r.reach.mu.Lock()
	defer r.reach.mu.Unlock()
	r.reach.prepared = true
}

// mode is how far a sandbox may reach. A verification gets what the mirror has already, which is
// what the agent's sandbox was given, and asks no registry; only where nothing was prepared does
// the suite itself need one.
func (r *run) mode(purpose string) network.Mode {
	r.reach.mu.Lock()
	prepared := r.reach.prepared
	r.reach.mu.Unlock()
	switch {
	case r.cfg.Network == nil:
		return network.None
	case purpose == purposePrepare:
		return network.Registries
	case r.cfg.Offline || r.set.repo.Network == network.Offline:
		return network.None
	case purpose == purposeAgent || !prepared:
		return network.Registries
	}
	return network.Store
}

// access opens the way to the registries for a sandbox that is about to start. It implements
// prover.Config.Access.
func (r *run) access(ctx context.Context, spec *sandbox.Spec) (func(context.Context) error, error) {
	mode := r.mode(spec.Purpose)
	if mode == network.None {
		return nil, nil
	}
	known, err := r.knownNames(ctx)
	if err != nil {
		return nil, err
	}
	purpose := spec.Purpose
	way, err := r.cfg.Network.Open(ctx, network.Request{
		Task: r.j.Summary().Task, Purpose: purpose, Mode: mode, Known: known, Spent: r.spentNames,
		Record: func(ctx context.Context, entries []network.Entry) error { return r.recordReach(ctx, purpose, entries) },
	})
	if err != nil {
		return nil, fmt.Errorf("open the way to the package registries: %w", err)
	}
	if way == nil {
		return nil, nil
	}
	if _, err := r.j.Append(ctx, event.NetworkOpened{Purpose: purpose, Mode: string(mode), Upstreams: way.Upstreams, Known: countNames(known)}); err != nil {
		return nil, errors.Join(err, way.Close(context.WithoutCancel(ctx)))
	}
	take(spec, way)
	return way.Close, nil
}

// outline adds to a spec what access will. It implements prover.Config.Outline.
func (r *run) outline(ctx context.Context, spec *sandbox.Spec) error {
	mode := r.mode(spec.Purpose)
	if mode == network.None {
		return nil
	}
	way, err := r.cfg.Network.Outline(ctx, mode)
	if err == nil && way != nil {
		take(spec, way)
	}
	return err
}

func take(spec *sandbox.Spec, way *network.Way) {
	spec.Forwards = append(spec.Forwards, way.Forwards...)
	spec.Files = append(spec.Files, way.Files...)
	spec.Env = append(spec.Env, way.Env...)
}

// recordReach writes the ledger into the task's log.
func (r *run) recordReach(ctx context.Context, purpose string, entries []network.Entry) error {
	var ps []event.Payload
	var known []event.NetworkName
	for _, e := range entries {
		n := event.NetworkName{Ecosystem: e.Ecosystem, Name: e.Name, Version: e.Version, Notes: e.Notes}
		switch {
		case e.Refused != "":
			ps = append(ps, event.NetworkRefused{Purpose: purpose, Ecosystem: e.Ecosystem, Name: e.Name, Version: e.Version, Reason: e.Refused, Detail: e.Detail})
		case e.New:
			ps = append(ps, event.NetworkAsked{Purpose: purpose, New: true, Names: []event.NetworkName{n}})
		default:
			known = append(known, n)
		}
	}
	if len(known) > 0 {
		ps = append(ps, event.NetworkAsked{Purpose: purpose, Names: known})
	}
	_, err := r.j.Append(ctx, ps...)
	return err
}

// spentNames is what the task's earlier sandboxes used of its budget, from the log: a new
// sandbox or a resumed run gets no new budget.
func (r *run) spentNames() network.Spent {
	var s network.Spent
	for _, n := range r.j.Summary().Reach.New {
		name := n.Ecosystem + ":" + n.Name
		if n.Version == "" {
			s.Names = append(s.Names, name)
		} else {
			s.Versions = append(s.Versions, name+"@"+n.Version)
		}
	}
	return s
}

// knownNames reads the lockfiles of the base commit, once per run.
func (r *run) knownNames(ctx context.Context) (lockfile.Known, error) {
	r.reach.mu.Lock()
	defer r.reach.mu.Unlock()
	if r.reach.known != nil {
		return *r.reach.known, nil
	}
	k, err := prover.KnownNames(ctx, r.cfg.Git, r.snap.GitDir, r.snap.Base)
	if err != nil {
		return k, err
	}
	r.reach.known = &k
	return k, nil
}

func countNames(k lockfile.Known) int {
	n := 0
	for _, list := range k.Names {
		n += len(list)
	}
	return n
}

package worker

import (
	"context"
	"slices"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/prover"
)

// setup prepares the dependencies of the base, before any text of the issue is read. From here
// on every sandbox of the run starts with them.
func (r *run) setup(ctx context.Context) error {
	begin := r.cfg.Now()
	snap, done, err := r.prover().Setup(ctx, r.snap, r.set.repo, steps{r}, func(note string) { r.progress("setup", note) })
	if err != nil {
		return err
	}
	snap.Warnings = slices.Concat(snap.Warnings, done.Warnings)
	r.snap = snap
	if err := r.cfg.Snapshots.Pin(r.j.Summary().Task, snap); err != nil {
		return err
	}
	if len(done.Commands) > 0 {
		r.setPrepared()
	}
	l, old := snap.Layers, r.j.Summary().Setup
	if old != nil && old.Digest == l.Digest || l.Digest == "" && len(done.Warnings) == 0 {
		return nil
	}
	_, err = r.j.Append(ctx, event.SetupReady{
		Digest: l.Digest, Cached: done.Cached, Commands: done.Commands, Warnings: done.Warnings,
		Undone: l.Undone, Left: l.Left, Millis: r.since(begin),
	})
	return err
}

// steps records the commands of a setup in the task's log.
type steps struct{ r *run }

// StepStarted implements prover.SetupRecord.
func (s steps) StepStarted(ctx context.Context, p prover.SetupStep) error {
	_, err := s.r.j.Append(ctx, event.SetupStarted{
		N: p.N, Of: p.Of, Name: p.Name, Command: p.Line(), Dir: p.Dir, Root: p.Root, Why: p.Why,
	})
	return err
}

// StepFinished implements prover.SetupRecord.
func (s steps) StepFinished(ctx context.Context, d prover.SetupDone) error {
	_, err := s.r.j.Append(ctx, event.SetupFinished{
		N: d.N, Name: d.Name, Command: d.Line(), ExitCode: d.ExitCode, TimedOut: d.TimedOut, Optional: d.Optional,
		Millis: d.Wall.Milliseconds(), Log: event.Text{Blob: d.Log, Bytes: d.LogBytes},
	})
	return err
}

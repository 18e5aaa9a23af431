// Package prover gives the verifier what it needs of an installation: benches in the operator's
// sandbox on a prepared snapshot, the repository's own settings, prepared dependencies, and
// baselines that are kept beside the snapshot. A task's worker and `daybreak verify` both go through it.
//
// Invariants: there is one way to verify, whoever made the change; the repository's settings
// come from the base commit alone; every bench is recorded by its owner before a command runs
// in it; only a baseline with which changes can be verified is kept.
package prover

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify"
)

// Record is where the owner of the benches writes down what happens to them.
type Record interface {
	// Started is told of every sandbox before anything runs in it. An error ends the sandbox.
	Started(ctx context.Context, spec sandbox.Spec, box sandbox.Sandbox) error
	// Ended is told when it is gone.
	Ended(ctx context.Context, id string) error
	// Log keeps the whole output of a run and returns its digest.
	Log(ctx context.Context, data []byte) (digest string, err error)
}

// Config is what a prover needs. All fields are required but those that may be nil.
type Config struct {
	Runtime   sandbox.Runtime
	Git       *git.Git
	Snapshots *snapshot.Store
	Sandbox   sandbox.Spec // template of every sandbox
	Owner     string       // names the sandboxes' owner: a task, or a stand-alone verification
	Record    Record
	// Access gives a sandbox that is about to start its way to the package registries: it adds to
	// the spec what that needs, and returns how to end it, nil when there is none. Access itself
	// may be nil: no sandbox reaches anything.
	Access func(ctx context.Context, spec *sandbox.Spec) (end func(context.Context) error, err error)
	// Outline adds to a spec what Access will, as far as that is known before. May be nil, as Access.
	Outline func(ctx context.Context, spec *sandbox.Spec) error
	// Homed is told when the HOME of a snapshot was filled: what stands on it from then on is what
	// later sandboxes stand on. May be nil.
	Homed  func(ctx context.Context, s snapshot.Snapshot)
	Setup  Setup // its zero value is the default
	Now    func() time.Time
	Rand   io.Reader
	Logger *slog.Logger
}

// Prover hands out verifiers. It is safe for concurrent use when its parts are.
type Prover struct{ cfg Config }

// New returns a prover.
func New(cfg Config) *Prover { return &Prover{cfg} }

// Settings reads what the commit says about its own tests. None is the zero value; class
// Invalid when it cannot be read.
func (p *Prover) Settings(ctx context.Context, s snapshot.Snapshot) (config.Repo, error) {
	b, _, err := p.cfg.Git.File(ctx, s.GitDir, s.Base, config.RepoFile, 64<<10+1)
	if err == nil {
		return config.ParseRepo(b)
	}
	if task.ClassOf(err) == task.NotFound {
		err = nil
	}
	return config.Repo{}, err
}

// Verifier runs the protocol with the repository's settings.
func (p *Prover) Verifier(c config.Repo) *verify.Verifier {
	return &verify.Verifier{
		Lab: p, Env: p.cfg.Sandbox.Env, Rand: p.cfg.Rand, Now: p.cfg.Now, Log: p.cfg.Logger,
		Settings: verify.Settings{
			Build: c.Build, Test: c.Test, TestOne: c.TestOne, Format: c.Format,
			Report: c.Report, TestGlobs: c.TestGlobs, Timeout: c.Timeout,
		},
	}
}

// Baseline runs the suite on the base, or takes the ledger of an earlier verification on the
// same base and environment. doc is its JSON; cached says that nothing was run.
func (p *Prover) Baseline(ctx context.Context, s snapshot.Snapshot, c config.Repo, progress func(note string)) (b verify.Baseline, doc []byte, cached bool, err error) {
	name := "baseline-" + settingsDigest(c, s.Layers.Digest) + ".json"
	if doc, err = p.cfg.Snapshots.Note(s, name); err == nil && json.Unmarshal(doc, &b) == nil {
		return b, doc, true, nil
	}
	progress("running the suite on the base commit")
	if b, err = p.Verifier(c).Baseline(ctx, s, func(_, note string) { progress(note) }); err != nil {
		return b, nil, false, err
	}
	if doc, err = json.Marshal(b); err != nil {
		return b, nil, false, err
	}
	if b.Usable() {
		err = p.cfg.Snapshots.SetNote(s, name, doc)
	}
	return b, doc, false, err
}

// settingsDigest names the repository's own words about its tests and the prepared dependencies,
// on which a baseline depends beside the snapshot.
func settingsDigest(c config.Repo, layers string) string {
	b, _ := json.Marshal([]any{verify.Version, c, layers}) // a ledger of another verifier may name tests otherwise
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:8])
}

// Spec is the operator's template on a snapshot.
func (p *Prover) Spec(purpose string, s snapshot.Snapshot) sandbox.Spec {
	spec := p.cfg.Sandbox
	spec.Task, spec.Purpose, spec.Tree, spec.Group = p.cfg.Owner, purpose, s.Tree, s.GitDir
	layered(&spec, s.Layers)
	if purpose == purposeAgent {
		spec.Index = s.Index
	}
	spec.Once = purpose == purposeIndex
	if p.cfg.Snapshots.HasHome(s) {
		spec.Home.Lower = append(slices.Clip(spec.Home.Lower), s.Home)
	}
	if s.Built != "" {
		spec.Home.Lower, spec.Once = append(slices.Clip(spec.Home.Lower), s.Built), true // it is gone with who made it
	}
	return spec
}

// Start starts a sandbox, with its way to the registries, and records it. The operator's own
// environment comes last and so has the last word.
func (p *Prover) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	own, end := spec.Env, func(context.Context) error { return nil }
	spec.Env = slices.Clip(verify.Offline())
	if p.cfg.Access != nil {
		done, err := p.cfg.Access(ctx, &spec)
		if err != nil {
			return nil, err
		}
		if done != nil {
			end = done
		}
	}
	spec.Env = lastOf(slices.Concat(spec.Env, own))
	box, err := p.cfg.Runtime.Start(ctx, spec)
	if err != nil {
		return nil, errors.Join(err, end(context.WithoutCancel(ctx)))
	}
	box = &connected{Sandbox: box, end: end}
	if err := p.cfg.Record.Started(ctx, spec, box); err != nil {
		return nil, errors.Join(err, box.Destroy(context.WithoutCancel(ctx)))
	}
	return box, nil
}

// Expect tells a runtime that keeps sandboxes ready that the agent's on the snapshot is next.
func (p *Prover) Expect(ctx context.Context, s snapshot.Snapshot) error {
	keeper, ok := p.cfg.Runtime.(sandbox.Expecter)
	if !ok {
		return nil
	}
	spec := p.Spec(purposeAgent, s)
	own := spec.Env
	spec.Env = slices.Clip(verify.Offline())
	if p.cfg.Outline != nil {
		if err := p.cfg.Outline(ctx, &spec); err != nil {
			return err
		}
	}
	spec.Env = lastOf(slices.Concat(spec.Env, own))
	keeper.Expect(spec)
	return nil
}

// expectBench is Expect for a bench of a verification that has no way to the registries.
func (p *Prover) expectBench(s snapshot.Snapshot) {
	if keeper, ok := p.cfg.Runtime.(sandbox.Expecter); ok {
		spec := p.Spec("red", s)
		spec.Env = lastOf(slices.Concat(verify.Offline(), spec.Env))
		keeper.Expect(spec)
	}
}

// lastOf keeps the last value of every variable: programs differ in which of two they see.
func lastOf(env []string) []string {
	at := map[string]int{}
	for i, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		at[name] = i
	}
	var out []string
	for i, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); at[name] == i {
			out = append(out, kv)
		}
	}
	return out
}

// connected ends its way to the registries with itself.
type connected struct {
	sandbox.Sandbox
	end func(context.Context) error
}

// Destroy implements sandbox.Sandbox. A way that ends with an error is not tried again: it is
// closed all the same, and the error is about its record.
func (c *connected) Destroy(ctx context.Context) error {
	err := c.Sandbox.Destroy(ctx)
	if err != nil {
		return err
	}
	end := c.end
	c.end = func(context.Context) error { return nil }
	return end(ctx)
}

// Bench implements verify.Lab.
func (p *Prover) Bench(ctx context.Context, purpose string, s snapshot.Snapshot, keepHome bool) (sandbox.Sandbox, error) {
	spec := p.Spec(purpose, s)
	var commit func(context.Context) error
	if keepHome {
		dir, done, err := p.cfg.Snapshots.KeepHome(s)
		if err != nil {
			return nil, err
		}
		if dir != "" {
			spec.Home.Keep = dir
			commit = func(ctx context.Context) error {
				err := done()
				if err == nil && p.cfg.Homed != nil {
					p.cfg.Homed(ctx, s)
				}
				return err
			}
		}
	}
	box, err := p.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &bench{Sandbox: box, rec: p.cfg.Record, commit: commit}, nil
}

// BuildBench implements verify.Lab.
func (p *Prover) BuildBench(ctx context.Context, s snapshot.Snapshot) (sandbox.Sandbox, snapshot.Snapshot, func() error, error) {
	dir, drop, err := p.cfg.Snapshots.Aside(s)
	if err != nil {
		return nil, s, nil, err
	}
	spec := p.Spec("build", s)
	spec.Home.Keep = dir
	box, err := p.Start(ctx, spec)
	if err != nil {
		return nil, s, nil, errors.Join(err, drop())
	}
	s.Built = dir
	return &bench{Sandbox: box, rec: p.cfg.Record, commit: func(context.Context) error { return snapshot.Only(dir, verify.BuildHome) }}, s, drop, nil
}

// Log implements verify.Lab.
func (p *Prover) Log(ctx context.Context, data []byte) (string, error) {
	return p.cfg.Record.Log(ctx, data)
}

// bench records its end and hands its HOME on.
type bench struct {
	sandbox.Sandbox
	rec    Record
	commit func(context.Context) error
}

// Destroy implements sandbox.Sandbox.
func (b *bench) Destroy(ctx context.Context) error {
	if err := b.Sandbox.Destroy(ctx); err != nil {
		return err
	}
	var err error
	if b.commit != nil {
		err, b.commit = b.commit(ctx), nil
	}
	return errors.Join(err, b.rec.Ended(context.WithoutCancel(ctx), b.Handle().ID))
}

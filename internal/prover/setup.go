package prover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/setup"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// DefaultSetupTimeout is the limit of a whole setup when nobody names one.
const DefaultSetupTimeout = 20 * time.Minute

// purposePrepare is the sandbox in which dependencies are installed.
const purposePrepare = "prepare"

const (
	keepSetupOutput = 1 << 20 // bytes of a step's output kept from each end
	maxSetupTail    = 20      // lines of a failing step's output in its error
)

// Setup says how far preparing dependencies may go.
type Setup struct {
	Off     bool          // only what the repository names itself is run, nothing is detected
	Timeout time.Duration // of all steps together; 0: [DefaultSetupTimeout]
}

// SetupStep is one command of a setup on its way.
type SetupStep struct {
	setup.Step
	N, Of int // counted from 1
}

// SetupDone is how it ended.
type SetupDone struct {
	SetupStep
	ExitCode int
	TimedOut bool
	Wall     time.Duration
	Log      string // digest of the command with its output
	LogBytes int
}

// SetupRecord is where the steps are written down. An error of it ends the setup.
type SetupRecord interface {
	StepStarted(ctx context.Context, s SetupStep) error
	StepFinished(ctx context.Context, d SetupDone) error
}

// Prepared says what a setup did. Commands is empty when there was nothing to do.
type Prepared struct {
	Cached   bool     `json:"-"` // an earlier setup of the same lockfiles and commands was taken
	Commands []string `json:"commands"`
	Warnings []string `json:"warnings,omitempty"`
}

// SetupError is a step that failed. It is the repository's or the host's trouble: nothing is
// kept and nothing else may begin.
type SetupError struct {
	Step   setup.Step
	Reason string   // one line
	Tail   []string // last lines of the output
}

func (e *SetupError) Error() string {
	where := ""
	if e.Step.Dir != "." && e.Step.Dir != "" {
		where = " in " + e.Step.Dir
	}
	s := "setup failed: "
	if e.Step.Run != "" {
		s += "`" + oneLine(e.Step.Line(), 200) + "`" + where + " "
	}
	s += e.Reason
	if l := e.telling(); l != "" {
		s += ": " + oneLine(l, 300)
	}
	return s
}

var (
	errorLine = regexp.MustCompile(`(?i)\b(?:error|err!|fatal|failed|failure|cannot|could not|no such|not found)\b`)
	// What package managers write into lines of errors beside the error itself.
	besideIt = regexp.MustCompile(`(?i)^\W*(?:note|hint|tip|warning|warn|npm warn|npm (?:error|err!) (?:code|errno|syscall|type|path|command)|npm (?:error|err!)\s*$)\b|complete log of this run|exited with (?:code|status)|exit code: ?\d|did not run successfully|^\W*error: subprocess-exited-with-error`)
)

// telling is the line of the output's end that says most: the first that names an error, else the
// last one.
func (e *SetupError) telling() string {
	for _, l := range e.Tail {
		if errorLine.MatchString(l) && !besideIt.MatchString(l) {
			return l
		}
	}
	if n := len(e.Tail); n > 0 {
		return e.Tail[n-1]
	}
	return ""
}

// oneLine is what a sandbox printed as one line that is safe on a terminal.
func oneLine(s string, n int) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}

// Setup prepares the dependencies of the base and returns the snapshot with them. An earlier
// setup of the same repository, environment, commands and lockfiles is used as it is. rec and
// progress may be nil. A failing step is a *[SetupError], after which nothing is kept.
func (p *Prover) Setup(ctx context.Context, s snapshot.Snapshot, c config.Repo, rec SetupRecord, progress func(note string)) (snapshot.Snapshot, Prepared, error) {
	if progress == nil {
		progress = func(string) {}
	}
	entries, err := p.cfg.Git.ListTree(ctx, s.GitDir, s.Base)
	if err != nil {
		return s, Prepared{}, err
	}
	plan, err := p.setupPlan(ctx, s, c, entries)
	if err != nil || len(plan.Steps) == 0 {
		return s, Prepared{Warnings: plan.Notes}, err
	}
	tree, err := p.cfg.Git.TreeID(ctx, s.GitDir, s.Base)
	if err != nil {
		return s, Prepared{}, err
	}
	ids := make(map[string]string, len(entries))
	for _, e := range entries {
		ids[e.Path] = e.ID
	}
	key := plan.Key(ids, tree)
	layers, err := p.cfg.Snapshots.Layers(ctx, s, key)
	cached := err == nil
	if task.ClassOf(err) == task.NotFound {
		progress("installing dependencies")
		layers, cached, err = p.install(ctx, s, c, key, plan, entries, rec, progress)
	}
	if err != nil {
		return s, Prepared{}, err
	}
	var done Prepared
	if err := json.Unmarshal(layers.Record, &done); err != nil {
		return s, done, fmt.Errorf("record of prepared dependencies %s: %w", layers.Digest, err)
	}
	done.Cached = cached
	if layers.Rebuilt != "" {
		done.Warnings = append(done.Warnings, "made anew: "+layers.Rebuilt)
	}
	layers.Env, layers.Path = plan.Env, plan.Path
	return s.With(layers), done, nil
}

// setupPlan is what the repository names, or what is found in the base commit.
func (p *Prover) setupPlan(ctx context.Context, s snapshot.Snapshot, c config.Repo, entries []git.Entry) (setup.Plan, error) {
	if c.Setup != nil {
		steps := make([]setup.Step, len(c.Setup))
		for i, n := range c.Setup {
			steps[i] = setup.Step{Run: n.Run, Root: n.Root, Files: n.Files}
		}
		return setup.Named(steps), nil
	}
	if p.cfg.Setup.Off {
		return setup.Plan{}, nil
	}
	var t setup.Tree
	var want []git.Entry
	byPath := map[string]git.Entry{}
	for _, e := range entries {
		if e.Mode&0o170000 != 0o100000 {
			continue
		}
		t.Files = append(t.Files, e.Path)
		if setup.Reads(e.Path) {
			want, byPath[e.Path] = append(want, e), e
		}
	}
	slices.Sort(t.Files)
	const maxManifests = 2000
	blobs, err := p.cfg.Git.Blobs(ctx, s.GitDir, want[:min(len(want), maxManifests)], setup.MaxFile)
	if err != nil {
		return setup.Plan{}, err
	}
	t.Read = func(name string) []byte { return blobs[byPath[name].ID] }
	return setup.Detect(t, sandbox.HomeDir), nil
}

// install runs the plan and keeps the result. It waits for another process that does the same.
func (p *Prover) install(ctx context.Context, s snapshot.Snapshot, c config.Repo, key string, plan setup.Plan, entries []git.Entry, rec SetupRecord, progress func(string)) (l snapshot.Layers, cached bool, err error) {
	m, got, err := p.cfg.Snapshots.BeginLayers(ctx, s, key)
	if err != nil || m == nil {
		return got, err == nil, err
	}
	defer func() { err = errors.Join(err, m.Abandon()) }()
	i := &installer{p: p, snap: s, rec: rec, progress: progress, total: len(plan.Steps)}
	limit := DefaultSetupTimeout
	if p.cfg.Setup.Timeout > 0 {
		limit = p.cfg.Setup.Timeout
	}
	if c.SetupTimeout > 0 {
		limit = min(limit, c.SetupTimeout)
	}
	i.limit, i.deadline = limit, p.cfg.Now().Add(limit)
	if err := i.all(ctx, m, plan); err != nil {
		return l, false, err
	}
	record, err := json.Marshal(i.done)
	if err != nil {
		return l, false, err
	}
	l, err = m.Commit(ctx, s.Tree, entries, record)
	return l, false, err
}

// installer is one setup under way.
type installer struct {
	p        *Prover
	snap     snapshot.Snapshot
	rec      SetupRecord
	progress func(string)
	limit    time.Duration
	deadline time.Time
	n, total int
	done     Prepared
}

// all runs the steps of root in a sandbox that keeps the system, then the others in one that
// keeps the work tree and HOME.
func (i *installer) all(ctx context.Context, m *snapshot.Making, plan setup.Plan) error {
	i.done.Warnings = slices.Clone(plan.Notes)
	var root, rest setup.Plan
	rest = plan
	rest.Steps = nil
	for _, s := range plan.Steps {
		if s.Root {
			root.Steps = append(root.Steps, s)
		} else {
			rest.Steps = append(rest.Steps, s)
		}
	}
	bare := i.snap.With(snapshot.Layers{})
	if len(root.Steps) > 0 {
		spec := i.p.Spec(purposePrepare, bare)
		spec.Home, spec.System.Keep = sandbox.Layers{}, m.System
		if err := i.inside(ctx, spec, root); err != nil {
			return err
		}
	}
	if len(rest.Steps) == 0 {
		return nil
	}
	spec := i.p.Spec(purposePrepare, bare)
	spec.Home, spec.Work.Keep = sandbox.Layers{Keep: m.Home}, m.Work
	if len(root.Steps) > 0 {
		spec.System.Lower = []string{m.System}
	}
	return i.inside(ctx, spec, rest)
}

// inside runs the plan's steps in one sandbox, which is gone when it returns.
func (i *installer) inside(ctx context.Context, spec sandbox.Spec, plan setup.Plan) (err error) {
	box, err := i.p.Start(ctx, spec)
	if err != nil {
		return err
	}
	defer func() {
		end := context.WithoutCancel(ctx)
		derr := box.Destroy(end)
		if derr == nil {
			derr = i.p.cfg.Record.Ended(end, box.Handle().ID)
		}
		err = errors.Join(err, derr)
	}()
	g := box.Guest()
	if programs := plan.Programs(); len(programs) > 0 {
		have, err := installed(ctx, g, programs)
		if err != nil {
			return err
		}
		all, before := len(plan.Steps), len(plan.Notes)
		if plan, err = plan.Settle(func(name string) bool { return slices.Contains(have, name) }); err != nil {
			return &SetupError{Reason: err.Error()}
		}
		i.total -= all - len(plan.Steps)
		i.done.Warnings = append(i.done.Warnings, plan.Notes[before:]...)
	}
	for _, s := range plan.Steps {
		i.n++
		if err := i.step(ctx, g, SetupStep{Step: s, N: i.n, Of: i.total}); err != nil {
			return err
		}
		i.done.Commands = append(i.done.Commands, s.Line())
	}
	return nil
}

// installed asks which of the programs the sandbox has.
func installed(ctx context.Context, g *guest.Client, programs []string) ([]string, error) {
	res, err := g.Exec(ctx, guest.ExecRequest{
		Argv:    append([]string{"sh", "-c", `for p in "$@"; do command -v "$p" >/dev/null && echo "$p"; done; true`, "sh"}, programs...),
		Timeout: time.Minute,
	})
	if err != nil {
		return nil, fmt.Errorf("ask what is installed: %w", err)
	}
	return strings.Fields(string(res.Head)), nil
}

func (i *installer) step(ctx context.Context, g *guest.Client, s SetupStep) error {
	i.progress(fmt.Sprintf("%d of %d: %s", s.N, s.Of, oneLine(s.Line(), 120)))
	if i.rec != nil {
		if err := i.rec.StepStarted(ctx, s); err != nil {
			return err
		}
	}
	res, err := g.Exec(ctx, guest.ExecRequest{
		Shell: s.Run, Dir: s.Dir, Timeout: max(i.deadline.Sub(i.p.cfg.Now()), time.Second),
		Head: keepSetupOutput, Tail: keepSetupOutput,
		Env: append([]string{"CI=true", "TERM=dumb", "NO_COLOR=1", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"}, s.Env...),
	})
	died := err != nil && g.Err() != nil && ctx.Err() == nil
	if err != nil && !died {
		return fmt.Errorf("run %q: %w", s.Line(), err)
	}
	if died {
		res.ExitCode = 137
		res.Error = "the sandbox died under this command"
	}
	out := output(res)
	text := fmt.Sprintf("$ cd %s && %s\nexit code %d, %s, timed out: %t\n%s", path.Join(sandbox.WorkDir, s.Dir), s.Run, res.ExitCode, res.Wall.Round(time.Millisecond), res.TimedOut, out)
	log, err := i.p.cfg.Record.Log(ctx, []byte(text))
	if err != nil {
		return err
	}
	if i.rec != nil {
		if err := i.rec.StepFinished(ctx, SetupDone{SetupStep: s, ExitCode: res.ExitCode, TimedOut: res.TimedOut, Wall: res.Wall, Log: log, LogBytes: len(text)}); err != nil {
			return err
		}
	}
	if res.ExitCode == 0 && !res.TimedOut && res.Error == "" {
		return nil
	}
	failed := &SetupError{Step: s.Step, Reason: fmt.Sprintf("ended with exit code %d", res.ExitCode), Tail: lastLines(out, maxSetupTail)}
	switch {
	case died:
		failed.Reason = "took its sandbox with it, at a limit on memory, processes or space (sandbox.memory, pids, work_size, home_size)"
		failed.Tail = nil
		return failed
	case res.TimedOut:
		failed.Reason = fmt.Sprintf("did not end within the setup's %s (sandbox.setup_timeout)", i.limit)
		return failed
	case s.Optional:
		i.done.Warnings = append(i.done.Warnings, fmt.Sprintf("a step of setup failed, which was taken as no reason to stop: %q %s", oneLine(s.Line(), 200), failed.Reason))
		return nil
	}
	return failed
}

func output(res guest.ExecResult) string {
	s := string(res.Head)
	if len(res.Tail) > 0 {
		s += "\n[…]\n" + string(res.Tail)
	}
	if res.Error != "" {
		s += "\n" + res.Error
	}
	return s
}

func lastLines(s string, n int) []string {
	var out []string
	for line := range strings.Lines(s) {
		if line = strings.TrimRight(line, "\r\n"); strings.TrimSpace(line) != "" {
			out = append(out, line)
		}
	}
	return out[max(0, len(out)-n):]
}

// layered adds prepared dependencies to a spec: the layers, and an environment in which they are
// found. What the operator set comes after it.
func layered(spec *sandbox.Spec, l snapshot.Layers) {
	if l.Digest == "" {
		return
	}
	for _, at := range []struct {
		dir string
		in  *sandbox.Layers
	}{{l.Work, &spec.Work}, {l.Home, &spec.Home}, {l.System, &spec.System}} {
		if at.dir != "" {
			at.in.Lower = append(slices.Clip(at.in.Lower), at.dir)
		}
	}
	own := slices.Clone(spec.Env)
	spec.Env = slices.Clone(l.Env)
	if len(l.Path) > 0 {
		rest := sandbox.Path
		own = slices.DeleteFunc(own, func(kv string) bool {
			v, ok := strings.CutPrefix(kv, "PATH=")
			if ok {
				rest = v
			}
			return ok
		})
		spec.Env = append(spec.Env, "PATH="+strings.Join(append(slices.Clone(l.Path), rest), ":"))
	}
	spec.Env = append(spec.Env, own...)
}

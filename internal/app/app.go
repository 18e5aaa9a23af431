// Package app builds the graph: configuration in, a working Daybreak out. It is the only
// package that names adapters.
//
// Invariants: it holds no policy of its own; everything it opens is closed by [App.Close];
// data of one installation stays below its directory.
package app

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/evidence"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/intake"
	"github.com/daybreak-agent/daybreak/internal/mirror/service"
	"github.com/daybreak-agent/daybreak/internal/model/catalog"
	"github.com/daybreak-agent/daybreak/internal/network"
	"github.com/daybreak-agent/daybreak/internal/policy"
	"github.com/daybreak-agent/daybreak/internal/policy/secrets"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/sandbox/oci"
	"github.com/daybreak-agent/daybreak/internal/sandbox/warm"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/worker"
)

// Options say what to open.
type Options struct {
	Dir     string // data directory, absolute; made when missing
	Config  config.Config
	Getenv  func(string) string
	Now     func() time.Time
	Rand    io.Reader
	Logger  *slog.Logger
	BaseURL string // overrides the base URL of every provider; used by the demo's scripted server
	Key     string // and the key that goes with it

	Dispatch bool // open the scheduler's part too: this process serves, or works for one that does
}

// App is an opened installation.
type App struct {
	Store     store.Store
	Config    config.Config
	Dir       string
	Now       func() time.Time
	Git       *git.Git
	Snapshots *snapshot.Store
	// Forges opens the configured forges, once. Commands that need none work without their tokens.
	Forges func() (*Forges, error)

	opts     Options
	queue    *queue // nil unless Options.Dispatch
	signer   *signer
	registry *intake.Registry
	runtime  *oci.Runtime            // once asked for
	ready    *warm.Pool              // where tasks are served, unless it is off
	slots    int                     // tasks that this process works on at once
	asked    *recent                 // what its sandboxes asked the registries
	mirror   *service.Keeper         // once asked for
	known    func() *catalog.Catalog // the embedded one, decoded at first use
	watch    *watch                  // once asked for
}

// DefaultDir is the XDG state directory's "daybreak".
func DefaultDir(getenv func(string) string) (string, error) {
	if d := getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "daybreak"), nil
	}
	home := getenv("HOME")
	if home == "" {
		return "", &task.Error{Class: task.Invalid, Msg: "neither XDG_STATE_HOME nor HOME is set", Fix: "use --dir"}
	}
	return filepath.Join(home, ".local", "state", "daybreak"), nil
}

// Open opens the store and what does not need a sandbox. Commands that only look at records
// work on a machine that could not run one.
func Open(ctx context.Context, o Options) (*App, error) {
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(filepath.Join(o.Dir, "git-home"), 0o700); err != nil {
		return nil, &task.Error{Class: task.Unavailable, Msg: "cannot make the data directory", Err: err, Fix: "use --dir to name one that you may write"}
	}
	a := &App{Config: o.Config, Dir: o.Dir, Now: o.Now, opts: o, asked: &recent{}}
	o.Logger = maskedLogger(o.Logger, a.secrets)
	a.opts.Logger = o.Logger
	err := a.openStore(ctx, o)
	if err != nil {
		return nil, err
	}
	a.known = sync.OnceValue(func() *catalog.Catalog { return catalog.New() })
	a.registry, a.Forges = intake.NewRegistry(a.Store, o.Now), sync.OnceValues(a.openForges)
	if a.Git, err = git.New(git.Config{Home: filepath.Join(o.Dir, "git-home"), Credential: a.credential}); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	if a.Snapshots, err = snapshot.New(snapshot.Config{Dir: o.Dir, Git: a.Git, Now: o.Now, Logger: o.Logger, Full: a.makeRoom}); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	if a.signer, err = openSigner(filepath.Join(o.Dir, "keys"), o.Rand); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// Close unmounts what sandboxes shared and closes the store.
func (a *App) Close() error {
	var err error
	if a.ready != nil {
		end, cancel := context.WithTimeout(context.Background(), time.Minute)
		err = a.ready.Close(end)
		cancel()
	}
	if a.mirror != nil {
		err = errors.Join(err, a.mirror.Close())
	}
	if a.runtime != nil {
		err = errors.Join(err, a.runtime.Close())
	}
	if a.queue != nil {
		err = errors.Join(err, a.queue.close())
	}
	return errors.Join(err, a.closeWatch(), a.Store.Close())
}

// PublicKey verifies the checkpoints of this installation.
func (a *App) PublicKey() []byte { return a.signer.public() }

// Attest signs evidence with this installation's key.
func (a *App) Attest() evidence.Signer { return a.signer }

// Runtime returns the sandbox runtime. It starts nothing. It must not be called from two
// goroutines at once.
func (a *App) Runtime() (*oci.Runtime, error) {
	if a.runtime != nil {
		return a.runtime, nil
	}
	runtime, err := find(a.Config.Sandbox.RuntimePath, a.Config.Sandbox.Runtime)
	if err != nil {
		return nil, err
	}
	guest, err := find(a.Config.Sandbox.GuestPath, "daybreak-guest")
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	a.runtime, err = oci.New(oci.Config{
		Holder: append([]string{self}, HolderArgs()...),
		Dir:    a.Dir, Engine: a.Config.Sandbox.Runtime, Runtime: runtime, Guest: guest, Owner: Owner(), Now: a.Now, Logger: a.opts.Logger, Rand: a.opts.Rand,
	})
	return a.runtime, err
}

// HolderArgs are the arguments with which this program holds an ordinary user's sandboxes.
func HolderArgs() []string { return []string{"sandbox", "hold"} }

// HoldSandboxes is what this program does with [HolderArgs].
func HoldSandboxes(ctx context.Context) error { return oci.Hold(ctx, os.Stdin, os.Stdout) }

// find looks for a helper program: where the operator says, beside this program, in the
// project's tools folder next to it, on PATH.
func find(configured, name string) (string, error) {
	if configured != "" {
		if _, err := os.Stat(configured); err != nil {
			return "", &task.Error{Class: task.Unavailable, Msg: "the configured " + name + " is not there", Err: err}
		}
		return filepath.Abs(configured)
	}
	if exe, err := os.Executable(); err == nil {
		dir := filepath.Dir(exe)
		for _, p := range []string{filepath.Join(dir, name), filepath.Join(dir, "..", ".tools", "bin", name), filepath.Join(dir, "..", "libexec", "daybreak", name)} {
			if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
				return p, nil
			}
		}
	}
	if p, err := exec.LookPath(name); err == nil {
		return filepath.Abs(p)
	}
	fix := "run `make setup build` in the source folder, or set sandbox.runtime_path"
	switch name {
	case "runsc":
		fix = "run `make gvisor` in the source folder, or set sandbox.runtime_path"
	case "daybreak-guest":
		fix = "run `make setup build` in the source folder, or set sandbox.guest_path"
	}
	return "", &task.Error{Class: task.Unavailable, Msg: name + " was not found", Fix: fix}
}

// Owner names this process in leases and sandboxes: host, process and its start time, so that
// a later process can tell whether it is gone.
func Owner() string {
	host, _ := os.Hostname()
	pid := os.Getpid()
	return fmt.Sprintf("%s:%d:%s", host, pid, startTime(pid))
}

// Gone reports whether an owner was a process of this machine that no longer runs.
func Gone(owner string) bool {
	owner, where, service := strings.Cut(owner, "@")
	if service && where != place() {
		return false // its process number means nothing here
	}
	parts := strings.Split(owner, ":")
	host, _ := os.Hostname()
	if len(parts) != 3 || parts[0] != host {
		return false
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil {
		return false
	}
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return true
	}
	return startTime(pid) != parts[2]
}

// startTime is the process's start in clock ticks since boot: with the pid it names a process
// once and for all on a running machine.
func startTime(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "gone"
	}
	s := string(b)
	fields := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(fields) < 20 {
		return "unknown"
	}
	return fields[19]
}

// Hooks are the live display.
type Hooks struct {
	Observe  worker.Observer
	Progress func(stage, note string)
	Show     func(d Delta)
	Far      git.Progress // of fetches and checkouts; may be nil
}

// Worker builds a worker.
func (a *App) Worker(h Hooks) (*worker.Worker, error) {
	cfg, err := a.workerConfig(h)
	if err != nil {
		return nil, err
	}
	return worker.New(cfg), nil
}

func (a *App) workerConfig(h Hooks) (worker.Config, error) {
	cfg, err := a.localConfig(h)
	if err != nil {
		return worker.Config{}, err
	}
	watch, err := a.Watch()
	if err != nil {
		return worker.Config{}, err
	}
	cfg.Observe = watched(watch, h.Observe)
	if cfg.Notify, err = a.notify(); err != nil {
		return worker.Config{}, err
	}
	pulls, err := a.Forges()
	cfg.Forge = pulls
	return cfg, err
}

// localConfig is all of a worker but where it publishes.
func (a *App) localConfig(h Hooks) (worker.Config, error) {
	rt, err := a.Runtime()
	if err != nil {
		return worker.Config{}, err
	}
	c := a.Config
	spec := a.SandboxSpec("")
	reach, err := a.Network()
	if err != nil {
		return worker.Config{}, err
	}
	return worker.Config{
		Network: reach, Offline: c.Network == network.Offline,
		Store: a.Store, Runtime: rt, Git: a.Git, Snapshots: a.Snapshots.Telling(h.Far),
		Model: a.Model, Redactor: policy.NewRedactor(a.secrets()), Secrets: secrets.New(a.secrets()), Sandbox: spec, Environment: a.Environment(),
		Setup: a.setup(), Hold: c.Publish == config.Hold, Most: c.Most.Limits(), Protected: c.Protected, AuthorName: c.Author.Name, AuthorEmail: c.Author.Email,
		Rebase: c.Rebase, MaxOutput: c.Reply.MaxOutput, Thinking: c.Reply.Thinking,
		Owner: Owner(), Dead: Gone, Sign: a.signer.sign, Attest: a.signer, Now: a.Now, Rand: a.opts.Rand, Logger: a.opts.Logger,
		Observe: h.Observe, Show: h.Show, Progress: h.Progress,
	}, nil
}

// setup is how the operator lets dependencies be prepared.
func (a *App) setup() prover.Setup {
	return prover.Setup{Off: a.Config.Sandbox.Setup == "named", Timeout: a.Config.Sandbox.SetupTimeout}
}

// SandboxSpec is the operator's sandbox, without a tree.
func (a *App) SandboxSpec(purpose string) sandbox.Spec {
	c := a.Config
	spec := sandbox.Spec{Purpose: purpose, Env: c.Sandbox.Env, Limits: sandbox.Limits{
		Memory: int64(c.Sandbox.Memory), Pids: c.Sandbox.Pids, CPU: c.Sandbox.CPUs,
		WorkBytes: int64(c.Sandbox.WorkSize), HomeBytes: int64(c.Sandbox.HomeSize), TempBytes: int64(c.Sandbox.TmpSize),
	}}
	for _, m := range c.Sandbox.Mounts {
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: m.Source, Target: m.Target})
	}
	return spec
}

// Environment is the digest of the operator's sandbox, part of a snapshot's identity.
func (a *App) Environment() string {
	return environment(a.Config.Sandbox.Runtime, a.SandboxSpec(""))
}

// environment is the digest of what decides how commands behave in a sandbox: what the operator
// set, and the tool chains of the host's /usr, which every sandbox sees. A ledger of tests from
// before an upgrade must not be compared with runs after it.
func environment(runtime string, s sandbox.Spec) string {
	b, _ := json.Marshal([]any{s.Mounts, s.Env, s.Limits})
	h := sha256.New()
	h.Write(b)
	if runtime != oci.Runc { // another kernel answers its programs
		fmt.Fprintf(h, "%s\x00", runtime)
	}
	for _, p := range []string{"/usr/bin", "/usr/lib", "/usr/local/bin", "/usr/local/lib", "/usr/local/go/VERSION", "/var/lib/dpkg/status"} {
		if st, err := os.Stat(p); err == nil {
			fmt.Fprintf(h, "%s %d %d\x00", p, st.Size(), st.ModTime().UnixNano())
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// secrets are the values this process was given that must not be stored, shown or sent.
func (a *App) secrets() []policy.Secret {
	var out []policy.Secret
	add := func(name, v string) {
		if len(v) >= 8 {
			out = append(out, policy.Secret{Name: name, Value: v})
		}
	}
	for name, p := range a.Config.Providers {
		if k, err := p.Key(a.opts.Getenv); err == nil {
			add(name+" key", k)
		}
	}
	for name, f := range a.Config.Forges {
		if t, err := f.Token(a.opts.Getenv); err == nil {
			add("token of "+name, t)
		}
		if t, err := f.Fork.Token(a.opts.Getenv); err == nil {
			add("token of the forks on "+name, t)
		}
		if now, old, err := f.Secrets(a.opts.Getenv); err == nil {
			add("webhook secret of "+name, now)
			add("old webhook secret of "+name, old)
		}
	}
	for _, n := range a.Config.Redact {
		add(n, a.opts.Getenv(n))
	}
	if w := a.Config.Notify.Webhook; w != nil {
		if v, err := w.Address(a.opts.Getenv); err == nil {
			add("webhook", v)
		}
	}
	if m := a.Config.Notify.Mail; m != nil {
		if v, err := m.Password(a.opts.Getenv); err == nil {
			add("mail password", v)
		}
	}
	add("OTLP headers", a.opts.Getenv("OTEL_EXPORTER_OTLP_HEADERS"))
	for name, token := range a.registryTokens() {
		add(name, token)
	}
	if t, err := a.Config.Serve.Token(a.opts.Getenv); err == nil {
		add("API token", t)
	}
	if a.Config.Store.Engine == config.Postgres {
		if dsn, err := a.Config.Store.DSN(a.opts.Getenv); err == nil {
			add("store address", dsn)
			add("store password", passwordIn(dsn))
		}
	}
	return out
}

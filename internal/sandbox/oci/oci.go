// Package oci runs sandboxes with an OCI runtime such as runc. It owns the bundle (root file
// system, overlay mounts, seccomp list, limits), the host's mounts and cgroups below its own
// paths, and one directory per sandbox that holds handle.json. For an ordinary user it owns
// a holder as well: a process in a user and mount namespace of the user's own that does what
// needs privileges.
//
// Invariants: handle.json is there before the first mount (and safe from a power cut where anything
// of the sandbox is), so that every sandbox can be found and removed; mount points are made on
// memory that no sandbox can write, before it runs; two live sandboxes share no host user id (of an ordinary user: none but the user's own,
// as which they run); root and user differ in [standing] alone; the worker opens no file that a sandbox
// wrote, a second sandbox reads them and a bounded decoder takes its stream; when Start
// fails nothing is left behind.
package oci

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Config of a [Runtime]. Dir, Runtime and Guest are needed.
type Config struct {
	Dir     string           // state directory of this installation, absolute
	Runtime string           // path of the OCI runtime
	Engine  string           // which runtime that is: [Runc], the default, or [Runsc]
	Guest   string           // path of the static guest binary
	RootFS  string           // directory that becomes /usr, default /usr
	Etc     string           // directory that the toolchains' part of /etc is taken from, default /etc
	RunDir  string           // directory for mounts, default /run/daybreak, or a directory of the ordinary user
	IDBase  uint32           // first host id given to root's sandboxes, default 200000; 4,096 ranges of 65,536 follow
	Holder  []string         // command that calls [Hold]; needed by an ordinary user
	Owner   string           // names this process in handles
	Now     func() time.Time // default time.Now
	Logger  *slog.Logger     // default: none
	Rand    io.Reader        // default crypto/rand
}

// Runtime implements [sandbox.Runtime].
type Runtime struct {
	cfg    Config
	base   string // <RunDir>/<digest of Dir>: mounts and the runtime's state
	groups cgroups
	engine engine
	alter  func(*specs.Spec) // tests only: takes a layer away to show that it is needed

	stand  standing // of an ordinary user: known once the host was found fit
	holder *holder  // does what needs privileges; nil when this process has them
	user   userFiles

	mu      sync.Mutex
	version string // of the OCI runtime, once asked

	sharing  sync.Mutex
	etc      string   // template, once built
	guest    string   // our copy of the guest binary
	prepared bool     // base is mounted and filled
	using    *os.File // locked as long as base is in use by this process
}

var _ sandbox.Runtime = (*Runtime)(nil)

// New checks the configuration. It neither mounts nor starts anything.
func New(cfg Config) (*Runtime, error) {
	for _, p := range []struct{ name, path string }{{"state directory", cfg.Dir}, {"OCI runtime", cfg.Runtime}, {"guest binary", cfg.Guest}} {
		if !filepath.IsAbs(p.path) {
			return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%s %q is not an absolute path", p.name, p.path)}
		}
	}
	if cfg.RootFS == "" {
		cfg.RootFS = "/usr"
	}
	if cfg.Etc == "" {
		cfg.Etc = "/etc"
	}
	cfg.Dir = filepath.Clean(cfg.Dir)
	if cfg.RunDir == "" {
		cfg.RunDir = defaultRunDir(cfg.Dir, os.Geteuid())
	}
	if cfg.IDBase == 0 {
		cfg.IDBase = defaultBase
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, "sandboxes"), 0o700); err != nil {
		return nil, err
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	engine, err := engineOf(cfg.Engine)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(cfg.Dir))
	r := &Runtime{
		cfg:    cfg,
		base:   filepath.Join(cfg.RunDir, hex.EncodeToString(sum[:4])),
		groups: readCgroups(info),
		engine: engine,
		alter:  layersOff(),
		stand:  rootStanding(cfg.IDBase),
		user:   hostFiles(os.Geteuid()),
	}
	if r.user.uid != 0 {
		r.stand = userStanding(0, "")
		r.holder = &holder{command: cfg.Holder, base: r.base}
	}
	return r, nil
}

func (r *Runtime) idsDir() string { return filepath.Join(r.cfg.RunDir, "ids") }

func refused(layer, fix string, err error) error {
	if err == nil {
		return nil
	}
	return &sandbox.RefusedError{Layer: layer, Fix: fix, Err: err}
}

// Start implements [sandbox.Runtime].
func (r *Runtime) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	began := r.cfg.Now()
	if err := r.check(spec); err != nil {
		return nil, err
	}
	if err := r.noSystem(spec.System); err != nil {
		return nil, err
	}
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	stand := r.standing()
	id, start, err := r.newID()
	if err != nil {
		return nil, err
	}
	rec := record{
		Handle: sandbox.Handle{
			ID: id, Task: spec.Task, Purpose: spec.Purpose, Runtime: r.engine.name,
			Owner: r.cfg.Owner, Started: began.UTC(),
		},
		Mounts: filepath.Join(r.base, id),
		Cgroup: stand.Cgroup + "/" + id,
	}
	rec.Kept = keeps(spec, id)
	if err := r.newRecord(rec); err != nil {
		return nil, refused("state directory", "check that "+r.cfg.Dir+" can be written", err)
	}
	s := &box{r: r, rec: rec, limits: withDefaults(spec.Limits), late: lateFiles(spec)}
	if err := r.launch(ctx, s, spec, start); err != nil {
		s.closeStreams()
		if _, cleanup := r.do(context.WithoutCancel(ctx), order{Do: doTeardown, Rec: s.rec}); cleanup != nil {
			r.cfg.Logger.Error("sandbox left behind", "id", id, "error", cleanup)
		}
		return nil, err
	}
	s.info.Ready = r.cfg.Now().Sub(began)
	return s, nil
}

// launch takes a recorded sandbox from nothing to an answering guest.
func (r *Runtime) launch(ctx context.Context, s *box, spec sandbox.Spec, start uint32) error {
	var err error
	stand := r.standing()
	s.rec.IDBase, err = reserveIDs(r.idsDir(), stand.IDs, s.rec.ID, r.recordDir(s.rec.ID), start)
	if err != nil {
		return refused("user ids", "", err)
	}
	if err := r.writeRecord(s.rec); err != nil {
		return refused("state directory", "check that "+r.cfg.Dir+" can be written", err)
	}
	extra := spec.Env
	if spec.System.Keep != "" {
		extra = append([]string{"USER=root", "LOGNAME=root"}, extra...)
	}
	env, err := environment(extra)
	if err != nil {
		return &task.Error{Class: task.Invalid, Msg: err.Error()}
	}
	c := container{
		engine: r.engine, writable: writablePlaces(),
		root: s.path("root"), cgroup: s.rec.Cgroup, stand: stand, idBase: s.rec.IDBase, uid: sandbox.UID,
		args: append([]string{guestPath, "serve"}, forwardArgs(spec.Forwards)...), env: env, cwd: sandbox.WorkDir,
		caps: []string{}, limits: s.limits, swap: r.groups.swapAccounting(), tmpfs: true, noFiles: noFiles(),
		landlock: r.landlock(), limit: r.engine.host,
	}
	if spec.System.Keep != "" {
		c.system, c.uid, c.caps = true, 0, systemCaps()
		c.writable = append(c.writable, "/usr", "/etc", "/var")
	}
	conf := ociSpec(c)
	if r.alter != nil {
		r.alter(conf)
	}
	conf.Process.Args = append(conf.Process.Args, expects(conf)...)
	profile, err := profileDigest(conf)
	if err != nil {
		return err
	}
	if _, err := r.do(ctx, order{Do: doBuild, Rec: s.rec, Limits: s.limits, Spec: spec, Conf: conf}); err != nil {
		return err
	}
	if err := s.run(ctx); err != nil {
		return err
	}
	if stand.Rootless {
		if err := s.group().holds(conf.Linux.Resources); err != nil {
			return refused("cgroup", delegateFix(r.groups.mode, r.user.uid), err)
		}
	}
	s.info = sandbox.Info{
		Runtime: r.engine.name + " " + r.version, Isolation: r.engine.isolates(stand), Profile: profile, Limits: describe(s.limits),
		Rootless: stand.Rootless, Landlock: c.landlock,
	}
	s.watchKept()
	if s.limits.Wall > 0 {
		s.wall = time.AfterFunc(s.limits.Wall, s.wallReached)
	}
	return nil
}

// check refuses a spec that cannot be honoured, before anything is made.
func (r *Runtime) check(spec sandbox.Spec) error {
	if miss := r.groups.missing(); len(miss) > 0 {
		return refused("cgroup", "mount or delegate the controllers", fmt.Errorf("no %s controller (%s)", strings.Join(miss, ", "), r.groups.mode))
	}
	if err := errors.Join(checkLayers(spec), checkForwards(spec.Forwards), checkFiles(spec)); err != nil {
		return &task.Error{Class: task.Invalid, Msg: strings.ReplaceAll(err.Error(), "\n", "; ")}
	}
	if spec.Index != "" && !filepath.IsAbs(spec.Index) {
		return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("search index %q is not an absolute path", spec.Index)}
	}
	var targets []string
	for _, m := range spec.Mounts {
		err := checkTarget(m.Target)
		for _, t := range targets {
			if m.Target == t || strings.HasPrefix(m.Target, t+"/") || strings.HasPrefix(t, m.Target+"/") {
				err = fmt.Errorf("mount targets %q and %q touch", t, m.Target)
			}
		}
		if err == nil && !filepath.IsAbs(m.Source) {
			err = fmt.Errorf("mount source %q is not an absolute path", m.Source)
		}
		if err != nil {
			return &task.Error{Class: task.Invalid, Msg: err.Error(), Fix: "mount below /opt, /mnt or /srv"}
		}
		targets = append(targets, m.Target)
	}
	return nil
}

// prepare looks at the OCI runtime and the host, once per process, and makes what all
// sandboxes of this installation share.
func (r *Runtime) prepare(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.version == "" {
		f, err := r.features(ctx)
		if err != nil {
			return refused("runtime", r.engine.needs, err)
		}
		if miss := r.lacking(f); len(miss) > 0 {
			return refused("runtime", r.engine.needs, errors.New(strings.Join(miss, "; ")))
		}
		if r.version, err = r.engine.version(ctx, r.cfg.Runtime, f); err != nil {
			return refused("runtime", r.engine.needs, err)
		}
	}
	if r.stand.Rootless && r.stand.Cgroup == "" {
		stand, err := r.fit()
		if err != nil {
			return err
		}
		r.stand = stand
	}
	_, err := r.order(ctx, r.stand, order{Do: doShare})
	return err
}

// standing is known after prepare.
func (r *Runtime) standing() standing {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stand
}

// share makes what all sandboxes of this installation share, once per process, and returns
// the /etc and the guest that they get.
func (r *Runtime) share() (etc, guest string, err error) {
	r.sharing.Lock()
	defer r.sharing.Unlock()
	if !r.prepared {
		err = r.fill()
	}
	return r.etc, r.guest, err
}

func (r *Runtime) fill() error {
	fix := "check that " + r.cfg.RunDir + " can be written"
	if err := makeDir(r.cfg.RunDir); err != nil {
		return refused("mount directory", fix, err)
	}
	unlock, err := lockFile(filepath.Join(r.cfg.RunDir, "lock"))
	if err != nil {
		return refused("mount directory", fix, err)
	}
	defer unlock()
	// Shared with the other processes of this installation; see Close.
	using, err := os.OpenFile(r.base+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return refused("mount directory", fix, err)
	}
	if err := unix.Flock(int(using.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		using.Close()
		return refused("mount directory", "run it again", err)
	}
	defer func() {
		if !r.prepared {
			using.Close()
		}
	}()
	if err := makeDir(r.base); err != nil {
		return refused("mount directory", fix, err)
	}
	if err := ensureOwn(r.base); err != nil {
		return refused("mount directory", "the worker needs CAP_SYS_ADMIN", err)
	}
	if err := r.stand.probeMarks(r.base); err != nil {
		return refused("overlay", marksFix, err)
	}
	if r.etc, err = etcTemplate(r.base, r.cfg.Etc); err != nil {
		return refused("/etc", "", err)
	}
	if r.guest, err = guestCopy(r.base, r.cfg.Guest); err != nil {
		return refused("guest", "build cmd/daybreak-guest with CGO_ENABLED=0", err)
	}
	r.prepared, r.using = true, using
	return nil
}

func makeDir(d string) error {
	return errors.Join(os.MkdirAll(d, 0o711), os.Chmod(d, 0o711)) // whatever the umask
}

// Close unmounts what the sandboxes of this installation share, unless one of them is left or
// another process uses them.
func (r *Runtime) Close() error {
	if r.holder != nil {
		return r.holder.dismiss()
	}
	r.sharing.Lock()
	defer r.sharing.Unlock()
	if _, err := os.Stat(r.base); err != nil {
		return nil // nothing was ever shared, or it is gone
	}
	unlock, err := lockFile(filepath.Join(r.cfg.RunDir, "lock")) // nobody prepares meanwhile
	if err != nil {
		return err
	}
	defer unlock()
	if r.using == nil { // what a process that was killed has left is ours to clear up
		if r.using, err = os.OpenFile(r.base+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600); err != nil {
			return err
		}
	}
	defer func() {
		r.using.Close()
		r.prepared, r.using = false, nil
	}()
	left, err := r.List(context.Background())
	if err != nil || len(left) > 0 {
		return err
	}
	if err := unix.Flock(int(r.using.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil // somebody else has it
	}
	defer os.Remove(r.base + ".lock")
	if err := unmountBelow(r.base); err != nil {
		return err
	}
	if err := os.Remove(r.base); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		return err
	}
	return nil
}

// newID returns 128 random bits in hex and where to start the search for an id range.
func (r *Runtime) newID() (string, uint32, error) {
	var b [20]byte
	if _, err := io.ReadFull(r.cfg.Rand, b[:]); err != nil {
		return "", 0, fmt.Errorf("random bytes for a sandbox id: %w", err)
	}
	return hex.EncodeToString(b[:16]), binary.BigEndian.Uint32(b[16:]), nil
}

// Recover implements [sandbox.Runtime].
func (r *Runtime) Recover(ctx context.Context, id string) (sandbox.Sandbox, error) {
	rec, err := r.readRecord(id)
	if err != nil {
		return nil, err
	}
	s := &box{r: r, rec: rec}
	s.info = sandbox.Info{Runtime: rec.Runtime, Isolation: isolationOf(rec.Runtime, r.standing()), Rootless: r.holder != nil}
	if err := s.kill(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// List implements [sandbox.Runtime]. Damaged records are listed by their id alone.
func (r *Runtime) List(ctx context.Context) ([]sandbox.Handle, error) {
	entries, err := os.ReadDir(filepath.Join(r.cfg.Dir, "sandboxes"))
	if err != nil {
		return nil, err
	}
	var out []sandbox.Handle
	for _, e := range entries {
		if !validID.MatchString(e.Name()) {
			continue
		}
		rec, err := r.readRecord(e.Name())
		switch {
		case task.ClassOf(err) == task.NotFound && !errors.Is(err, errCut):
		case err != nil:
			out = append(out, sandbox.Handle{ID: e.Name()})
		default:
			out = append(out, rec.Handle)
		}
	}
	slices.SortFunc(out, func(a, b sandbox.Handle) int {
		return cmp.Or(a.Started.Compare(b.Started), strings.Compare(a.ID, b.ID))
	})
	return out, ctx.Err()
}

// Collect destroys every sandbox for which alive answers false, half-made ones included, and
// returns them. What a power cut left is not asked about. It goes on after an error and returns the
// errors joined.
func (r *Runtime) Collect(ctx context.Context, alive func(sandbox.Handle) bool) ([]sandbox.Handle, error) {
	all, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	var gone []sandbox.Handle
	var errs []error
	for _, h := range all {
		rec, err := r.readRecord(h.ID)
		if !errors.Is(err, errCut) && alive(h) {
			continue
		}
		if err != nil { // damaged: all but the overlay scratch beside Keep follows from the id
			rec = record{Handle: h, Mounts: filepath.Join(r.base, h.ID), Cgroup: r.standing().Cgroup + "/" + h.ID}
		}
		if _, err := r.do(ctx, order{Do: doTeardown, Rec: rec}); err != nil {
			errs = append(errs, fmt.Errorf("destroy sandbox %s: %w", h.ID, err))
			continue
		}
		gone = append(gone, h)
	}
	return gone, errors.Join(errs...)
}

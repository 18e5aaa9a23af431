package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

const (
	killTime  = 2 * time.Second  // for the kernel to end all processes
	cleanTime = 10 * time.Second // for everything else of a teardown
	startTime = time.Minute      // for the OCI runtime and the guest's greeting
	maxStderr = 8 << 10
)

// box implements [sandbox.Sandbox].
type box struct {
	r      *Runtime
	rec    record
	limits sandbox.Limits
	info   sandbox.Info
	guest  *guest.Client
	stream *duplex
	stderr *tail
	wall   *time.Timer
	late   []sandbox.File // that come with its owner
	unkeep func()         // stops watching what is kept; nil without it

	mu        sync.Mutex // held by Adopt, Export and Destroy
	given     bool       // to another owner
	destroyed bool
}

// path is a place below the sandbox's mount directory.
func (s *box) path(parts ...string) string {
	return filepath.Join(append([]string{s.rec.Mounts}, parts...)...)
}

func (s *box) group() group       { return group{s.r.groups, s.rec.Cgroup} }
func (s *box) exportGroup() group { return group{s.r.groups, s.rec.Cgroup + "-x"} }

// Handle implements [sandbox.Sandbox].
func (s *box) Handle() sandbox.Handle { return s.rec.Handle }

// Info implements [sandbox.Sandbox].
func (s *box) Info() sandbox.Info { return s.info }

// Guest implements [sandbox.Sandbox].
func (s *box) Guest() *guest.Client { return s.guest }

// run starts the container and waits for the guest's greeting.
func (s *box) run(ctx context.Context) error {
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	stream, stderr, err := s.r.start(ctx, s.rec.ID, s.path("bundle"))
	s.stream, s.stderr = stream, stderr
	if err != nil {
		return err
	}
	s.guest, err = guest.NewClient(ctx, stream)
	if err != nil {
		if outer.Err() != nil {
			return outer.Err()
		}
		said := stderr.suffix()
		layer, fix := blameGuest(said)
		return refused(layer, fix, fmt.Errorf("%w%s", err, said))
	}
	return nil
}

// start runs the OCI runtime detached: it sets up the container and leaves, and our pipes are
// the container's only descriptors. The container dies with us because its first process
// ends when its input does, and the kernel then ends the rest of its pid namespace.
func (r *Runtime) start(ctx context.Context, id, bundle string) (*duplex, *tail, error) {
	in, toGuest, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	fromGuest, out, err := os.Pipe()
	if err != nil {
		toGuest.Close()
		return nil, nil, err
	}
	defer out.Close()
	errRead, errWrite, err := os.Pipe()
	if err != nil {
		toGuest.Close()
		fromGuest.Close()
		return nil, nil, err
	}
	stderr := collect(errRead, maxStderr)
	stream := &duplex{r: fromGuest, w: toGuest}
	_, err = r.do(ctx, order{Do: doRun, ID: id, Bundle: bundle}, in, out, errWrite)
	errWrite.Close()
	if err != nil {
		stream.Close()
		in.Close()
		out.Close()
		if ctx.Err() != nil {
			return nil, stderr, ctx.Err()
		}
		err = fmt.Errorf("%w%s", err, stderr.suffix())
		return nil, stderr, refused(blame(stderr.text()), "", err)
	}
	return stream, stderr, nil
}

// blame names the layer that the runtime's message speaks of. It is for people; nothing is
// decided by it.
func blame(msg string) string {
	for _, l := range []struct{ word, layer string }{
		{"createContainer hook", "user namespace limit"},
		{"seccomp", "seccomp"},
		{"cgroup", "cgroup"},
		{"user namespace", "user namespace"},
		{"uid_map", "user namespace"},
		{"gid_map", "user namespace"},
		{"sysctl", "sysctl"},
		{"mount", "mounts"},
		{"capabilit", "capabilities"},
		{"rlimit", "rlimits"},
	} {
		if strings.Contains(msg, l.word) {
			return l.layer
		}
	}
	return "runtime"
}

// blameGuest names the layer without which the guest went away, and what to do.
func blameGuest(said string) (layer, fix string) {
	for _, l := range []string{"landlock", "masked paths", "read-only paths"} {
		if strings.Contains(said, "daybreak-guest: "+l+": ") {
			return l, "see `daybreak doctor`"
		}
	}
	return "guest", "check that the guest binary is static and of this version"
}

func (s *box) wallReached() {
	s.r.cfg.Logger.Warn("sandbox reached its wall time and is killed", "id", s.rec.ID, "wall", s.limits.Wall)
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	if err := s.kill(ctx); err != nil {
		s.r.cfg.Logger.Error("kill sandbox", "id", s.rec.ID, "error", err)
	}
}

// kill ends every process of the sandbox and of its exporter.
func (s *box) kill(ctx context.Context) error {
	_, err := s.r.do(ctx, order{Do: doKill, Rec: s.rec})
	return err
}

func (r *Runtime) killAll(ctx context.Context, rec record) error {
	ctx, cancel := context.WithTimeout(ctx, killTime)
	defer cancel()
	err := errors.Join(group{r.groups, rec.Cgroup}.kill(ctx), group{r.groups, rec.Cgroup + "-x"}.kill(ctx))
	if err != nil {
		return fmt.Errorf("sandbox %s has processes that do not die: %w", rec.ID, err)
	}
	return nil
}

// Destroy implements [sandbox.Sandbox].
func (s *box) Destroy(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // a half-done teardown helps nobody; it is bounded below
	if s.wall != nil {
		s.wall.Stop()
	}
	if s.unkeep != nil {
		s.unkeep()
	}
	killed := s.kill(ctx) // first, so that an export that holds the lock ends
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.destroyed {
		return nil
	}
	s.closeStreams()
	if killed != nil {
		return killed
	}
	if _, err := s.r.do(ctx, order{Do: doTeardown, Rec: s.rec}); err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", s.rec.ID, err)
	}
	s.destroyed = true
	return nil
}

func (s *box) closeStreams() {
	if s.guest != nil {
		_ = s.guest.Close()
	}
	if s.stream != nil {
		_ = s.stream.Close()
	}
}

// teardown removes all that a record stands for, whatever of it exists. The record itself
// goes last, so that a failure is tried again by Collect.
func (r *Runtime) teardown(ctx context.Context, rec record) error {
	if err := r.killAll(ctx, rec); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cleanTime)
	defer cancel()
	for _, id := range []string{rec.ID, rec.ID + "-x"} {
		if err := r.forget(id); err != nil {
			return err
		}
	}
	for _, path := range []string{rec.Cgroup, rec.Cgroup + "-x"} {
		if err := (group{r.groups, path}).remove(ctx); err != nil {
			return err
		}
	}
	if err := unmountBelow(rec.Mounts); err != nil {
		return err
	}
	if err := os.RemoveAll(rec.Mounts); err != nil {
		return err
	}
	for _, k := range rec.Kept {
		if err := os.RemoveAll(k.Scratch); err != nil {
			return err
		}
		if _, setup := rec.kept(placeSystem); setup && k.Place != placeSystem {
			if err := claim(k.Dir, r.stand.agent(rec.IDBase)); err != nil {
				return err
			}
		}
		if err := r.stand.openKept(ctx, k.Dir); err != nil {
			return err
		}
	}
	if err := releaseIDs(r.idsDir(), r.stand.IDs, rec.IDBase, rec.ID); err != nil {
		return err
	}
	return os.RemoveAll(r.recordDir(rec.ID))
}

// duplex is the guest's standard input and output as one stream.
type duplex struct {
	r, w *os.File
	once sync.Once
	err  error
}

func (d *duplex) Read(p []byte) (int, error)  { return d.r.Read(p) }
func (d *duplex) Write(p []byte) (int, error) { return d.w.Write(p) }

// Close ends both directions; blocked calls return.
func (d *duplex) Close() error {
	d.once.Do(func() { d.err = errors.Join(d.w.Close(), d.r.Close()) })
	return d.err
}

// tail keeps the last bytes of a stream.
type tail struct {
	mu  sync.Mutex
	buf []byte
	max int
	end chan struct{} // closed at the stream's end
}

// collect reads f to its end in the background.
func collect(f *os.File, limit int) *tail {
	t := &tail{max: limit, end: make(chan struct{})}
	go func() {
		defer close(t.end)
		defer f.Close()
		_, _ = io.Copy(t, f)
	}()
	return t
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if n := len(t.buf) - t.max; n > 0 {
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
	return len(p), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf))
}

// suffix is the text as the end of a one-line message. It is asked for when the writer is
// gone or about to be.
func (t *tail) suffix() string {
	select {
	case <-t.end:
	case <-time.After(time.Second):
	}
	s := t.text()
	if s == "" {
		return ""
	}
	return fmt.Sprintf(" (%q)", s)
}

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/git"
)

// lock takes a file lock for this caller alone, which the kernel drops when the process dies.
func (s *Store) lock(ctx context.Context, name string) (unlock func(), err error) {
	f, err := s.flock(ctx, name, unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}

// tryLock is lock without waiting; unlock is nil when somebody has it. The lock's file goes with
// it, when last is told so: it names something that is gone.
func (s *Store) tryLock(name string) (unlock func(last bool), err error) {
	f, err := s.flock(context.Background(), name, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return func(last bool) {
		if last {
			_ = os.Remove(s.lockFile(name)) // an empty file
		}
		f.Close()
	}, nil
}

// sweepLocks removes the files of all locks that nobody has: of things that are gone, and of
// others, whose next user makes them again.
func (s *Store) sweepLocks() {
	found, _ := filepath.Glob(s.lockFile("*")) // the pattern is well-formed
	for _, p := range found {
		if unlock, err := s.tryLock(strings.TrimSuffix(filepath.Base(p), ".lock")); err == nil && unlock != nil {
			unlock(true)
		}
	}
}

func (s *Store) lockFile(name string) string {
	return filepath.Join(s.cfg.Dir, "locks", name+".lock")
}

func (s *Store) flock(ctx context.Context, name string, how int) (*os.File, error) {
	for {
		f, err := os.OpenFile(s.lockFile(name), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err := wait(ctx, f, how); err != nil {
			return nil, err
		}
		// Who had it before may have removed the file: then the lock is nobody's.
		mine, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, err
		}
		if there, err := os.Stat(s.lockFile(name)); err == nil && os.SameFile(mine, there) {
			return f, nil
		}
		f.Close()
	}
}

// wait locks f and closes it on an error.
func wait(ctx context.Context, f *os.File, how int) error {
	got := make(chan error, 1)
	try := func() {
		for {
			err := unix.Flock(int(f.Fd()), how)
			if !errors.Is(err, unix.EINTR) {
				got <- err
				return
			}
		}
	}
	if how&unix.LOCK_NB != 0 {
		try()
	} else {
		go try()
	}
	select {
	case err := <-got:
		if err != nil {
			f.Close()
			return fmt.Errorf("lock %s: %w", filepath.Base(f.Name()), err)
		}
		return nil
	case <-ctx.Done():
		go func() { // the waiting call cannot be taken back; give the lock up once it comes
			<-got
			f.Close()
		}()
		return context.Cause(ctx)
	}
}

// held is a shared lock on something that must not be collected.
type held struct {
	file *os.File
	n    int
}

func useLock(digest string) string { return "use-" + digest }

// hold keeps the collector of every process away from a snapshot or layers.
func (s *Store) hold(ctx context.Context, digest string) error {
	s.mu.Lock()
	h := s.held[digest]
	if h != nil {
		h.n++
	}
	s.mu.Unlock()
	if h != nil {
		return nil
	}
	f, err := s.flock(ctx, useLock(digest), unix.LOCK_SH)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[digest]; h != nil { // another goroutine was as fast
		f.Close()
		h.n++
		return nil
	}
	s.held[digest] = &held{file: f, n: 1}
	return nil
}

func (s *Store) letGo(digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[digest]
	if h == nil {
		return
	}
	if h.n--; h.n == 0 {
		h.file.Close()
		delete(s.held, digest)
	}
}

// Done says that the caller starts no further sandbox on the snapshot and its layers, and has
// ended those it started: they may be collected. Every [Store.Prepare] holds its snapshot and the
// mirror until
// then, or until the process ends; so do prepared dependencies. A snapshot may be held many
// times.
func (s *Store) Done(snap Snapshot) {
	s.letGo(snap.Digest)
	s.letGo(mirrorOf(snap))
	if snap.Layers.Digest != "" {
		s.letGo(snap.Layers.Digest)
	}
}

// Scoped is the store for one piece of work: [Store.Release] lets everything go that it held, in
// whatever way the work ended.
func (s *Store) Scoped() *Store { return &Store{cfg: s.cfg, held: map[string]*held{}} }

// Telling is [Store.Scoped] for work of which somebody watches how far fetches and checkouts are.
func (s *Store) Telling(p git.Progress) *Store {
	t := s.Scoped()
	t.cfg.progress = p
	return t
}

// Release is [Store.Done] for everything that the store holds. Nothing may be started on it any
// more.
func (s *Store) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for digest, h := range s.held {
		h.file.Close()
		delete(s.held, digest)
	}
}

// HoldPaths holds the snapshots and layers that directories belong to, for somebody who outlives
// the caller. ok is false, and nothing is held, when one of the directories is gone.
func (s *Store) HoldPaths(ctx context.Context, dirs []string) (release func(), ok bool) {
	var got []string
	release = func() {
		for _, d := range got {
			s.letGo(d)
		}
		got = nil
	}
	for _, dir := range dirs {
		rel, err := filepath.Rel(s.cfg.Dir, dir)
		parts := strings.Split(filepath.ToSlash(rel), "/")
		if err == nil && len(parts) > 1 && (parts[0] == "snapshots" || parts[0] == "layers") && validDigest(parts[1]) {
			if err = s.hold(ctx, parts[1]); err == nil {
				got = append(got, parts[1])
			}
		}
		if err == nil {
			_, err = os.Stat(dir)
		}
		if err != nil {
			release()
			return func() {}, false
		}
	}
	return release, true
}

package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Config is what a store needs; every field but Full is required.
type Config struct {
	Dir    string // absolute; nothing else writes below it
	Git    *git.Git
	Now    func() time.Time
	Logger *slog.Logger
	// Full makes room when the disk is full, and says what went for it; then what did not fit is
	// tried again.
	Full func(ctx context.Context) ([]Kept, error)

	progress git.Progress // see [Store.Telling]
}

// Store keeps mirrors and snapshots below one directory. Any number of processes may use the
// same directory. It is safe for concurrent use.
type Store struct {
	cfg Config

	mu   sync.Mutex
	held map[string]*held // by digest of a snapshot or of layers; see [Store.Done]
}

// Source names what to prepare.
type Source struct {
	Repo        string       // path or URL
	Ref         string       // commit id, branch or tag; "" is HEAD
	Environment string       // digest of what else decides a sandbox's file tree
	Progress    git.Progress // may be nil: the store's own, see [Store.Telling]
}

// New makes the directory.
func New(cfg Config) (*Store, error) {
	if !filepath.IsAbs(cfg.Dir) {
		return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("snapshot directory %q is not absolute", cfg.Dir)}
	}
	for _, d := range []string{"repos", "snapshots", "layers", "locks", "pins"} {
		// Private source, and files that a sandbox may have made set-user-id: nobody else passes,
		// whatever the mode of the directory above.
		at := filepath.Join(cfg.Dir, d)
		if err := errors.Join(os.MkdirAll(at, 0o700), os.Chmod(at, 0o700)); err != nil {
			return nil, fmt.Errorf("make the snapshot directory: %w", err)
		}
	}
	return &Store{cfg: cfg, held: map[string]*held{}}, nil
}

// HasHome reports whether the snapshot's caches are there.
func (s *Store) HasHome(snap Snapshot) bool {
	fi, err := os.Stat(snap.Home)
	return err == nil && fi.IsDir()
}

// KeepHome gives a directory that may be filled with caches, and the function that makes it
// the snapshot's Home at once and for good. dir is "" when the snapshot has one already;
// commit is never nil, and the first one wins. A directory that is never committed is swept
// away a day later.
func (s *Store) KeepHome(snap Snapshot) (dir string, commit func() error, err error) {
	if s.HasHome(snap) {
		return "", func() error { return nil }, nil
	}
	if dir, err = os.MkdirTemp(filepath.Dir(snap.Home), ".home-"); err != nil {
		return "", nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", nil, err
	}
	return dir, func() error {
		// RENAME_NOREPLACE also spares an empty directory, which a plain rename replaces.
		err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, snap.Home, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EEXIST) {
			return os.RemoveAll(dir)
		}
		if err != nil {
			return fmt.Errorf("keep the caches of snapshot %s: %w", snap.Digest, err)
		}
		return nil
	}, nil
}

// Aside gives a directory that may be filled over the snapshot's Home for a while, and how to
// remove it. What is not removed is swept away a day later.
func (s *Store) Aside(snap Snapshot) (dir string, remove func() error, err error) {
	if dir, err = os.MkdirTemp(filepath.Dir(snap.Home), ".home-"); err != nil {
		return "", nil, err
	}
	return dir, func() error { return removeTree(dir) }, os.Chmod(dir, 0o755)
}

// Only removes all that is below a directory which a sandbox filled, but one path below it.
func Only(dir, keep string) error {
	for name := range strings.SplitSeq(keep, "/") {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("list what was built: %w", err)
		}
		there := false
		for _, e := range entries {
			if e.Name() == name && e.IsDir() { // a link leads elsewhere
				there = true
			} else if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
		if !there {
			return nil
		}
		dir = filepath.Join(dir, name)
	}
	return nil
}

func (s *Store) mirror(repo string) string {
	return filepath.Join(s.cfg.Dir, "repos", mirrorName(repo)+".git")
}

func (s *Store) dir(digest string) string { return filepath.Join(s.cfg.Dir, "snapshots", digest) }

// mirrorName is the same with and without credentials in a URL, and for every spelling of a
// path.
func mirrorName(repo string) string {
	return hash("daybreak.mirror.v1", canonical(repo))
}

func canonical(repo string) string {
	repo = git.RedactURL(repo)
	if p, ok := strings.CutPrefix(repo, "file://"); ok {
		repo = p
	}
	if strings.Contains(repo, "://") {
		return repo
	}
	if abs, err := filepath.EvalSymlinks(repo); err == nil {
		repo = abs
	}
	if abs, err := filepath.Abs(repo); err == nil && !strings.Contains(repo, ":") {
		repo = abs
	}
	return repo
}

func digest(src Source, base string) string {
	return hash("daybreak.snapshot.v1", canonical(src.Repo), base, src.Environment)
}

func hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func validDigest(d string) bool {
	return len(d) == 32 && strings.Trim(d, "0123456789abcdef") == ""
}

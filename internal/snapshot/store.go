package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Config is what a store needs; every field is required.
type Config struct {
	Dir    string // absolute; nothing else writes below it
	Git    *git.Git
	Now    func() time.Time
	Logger *slog.Logger
}

// Store keeps mirrors and snapshots below one directory. Any number of processes may use the
// same directory.
type Store struct{ cfg Config }

// Source names what to prepare.
type Source struct {
	Repo        string // path or URL
	Ref         string // commit id, branch or tag; "" is HEAD
	Environment string // digest of what else decides a sandbox's file tree
}

// New makes the directory.
func New(cfg Config) (*Store, error) {
	if !filepath.IsAbs(cfg.Dir) {
		return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("snapshot directory %q is not absolute", cfg.Dir)}
	}
	for _, d := range []string{"repos", "snapshots", "layers", "locks"} {
		// Private source, and files that a sandbox may have made set-user-id: nobody else passes,
		// whatever the mode of the directory above.
		at := filepath.Join(cfg.Dir, d)
		if err := errors.Join(os.MkdirAll(at, 0o700), os.Chmod(at, 0o700)); err != nil {
			return nil, fmt.Errorf("make the snapshot directory: %w", err)
		}
	}
	return &Store{cfg}, nil
}

// meta is the record of a complete snapshot.
type meta struct {
	Repo     string    `json:"repo"`
	Base     string    `json:"base"`
	Env      string    `json:"environment"`
	Files    int       `json:"files"`
	Bytes    int64     `json:"bytes"`
	Warnings []string  `json:"warnings"`
	Made     time.Time `json:"made"`
}

// Resolve brings the commit that ref names into our mirror, and says which branch of the
// source a pull request for it would aim at ("" for none).
func (s *Store) Resolve(ctx context.Context, repo, ref string) (commit, target string, err error) {
	unlock, err := s.lock(ctx, mirrorName(repo))
	if err != nil {
		return "", "", err
	}
	defer unlock()
	if commit, err = s.fetch(ctx, repo, ref); err != nil {
		return "", "", err
	}
	if target, err = s.cfg.Git.TargetBranch(ctx, repo, ref); err != nil {
		return "", "", err
	}
	return commit, target, nil
}

func (s *Store) fetch(ctx context.Context, repo, ref string) (string, error) {
	dir := s.mirror(repo)
	if err := s.cfg.Git.EnsureBare(ctx, dir); err != nil {
		return "", err
	}
	return s.cfg.Git.FetchCommit(ctx, dir, repo, ref)
}

// Notes reads what the commits on a branch of the source say, newest first, none from before
// since. Classes are those of [git.Git.Notes].
func (s *Store) Notes(ctx context.Context, repo, branch string, since time.Time) ([]git.Note, error) {
	name := mirrorName(repo)
	unlock, err := s.lock(ctx, name+"-history")
	if err != nil {
		return nil, err
	}
	defer unlock()
	return s.cfg.Git.Notes(ctx, filepath.Join(s.cfg.Dir, "history", name+".git"), repo, branch, since)
}

// Prepare returns the snapshot, making what is missing. When ref is a commit id that was
// prepared before, the source is not looked at and nothing is run. Classes are those of
// [git.Git.FetchCommit].
func (s *Store) Prepare(ctx context.Context, src Source) (Snapshot, error) {
	if git.IsID(src.Ref) {
		if got, err := s.load(src, src.Ref); err == nil {
			return got, nil
		}
	}
	unlock, err := s.lock(ctx, mirrorName(src.Repo))
	if err != nil {
		return Snapshot{}, err
	}
	defer unlock()
	base, err := s.fetch(ctx, src.Repo, src.Ref)
	if err != nil {
		return Snapshot{}, err
	}
	if got, err := s.load(src, base); err == nil {
		return got, nil // somebody else made it meanwhile
	}
	return s.build(ctx, src, base)
}

// build makes a snapshot aside and renames it into place. The mirror's lock is held.
func (s *Store) build(ctx context.Context, src Source, base string) (Snapshot, error) {
	begin := s.cfg.Now()
	s.sweep()
	tmp, err := os.MkdirTemp(filepath.Join(s.cfg.Dir, "snapshots"), ".tmp-")
	if err != nil {
		return Snapshot{}, err
	}
	defer os.RemoveAll(tmp) // after the rename there is nothing to remove
	if err := os.Chmod(tmp, 0o755); err != nil {
		return Snapshot{}, err
	}
	tree := filepath.Join(tmp, "tree")
	laid, err := s.cfg.Git.Checkout(ctx, s.mirror(src.Repo), base, tree)
	if err != nil {
		return Snapshot{}, err
	}
	entries, err := s.cfg.Git.ListTree(ctx, s.mirror(src.Repo), base)
	if err != nil {
		return Snapshot{}, err
	}
	m := meta{
		Repo: git.RedactURL(src.Repo), Base: base, Env: src.Environment, Files: laid.Files, Bytes: laid.Bytes,
		Warnings: warnings(tree, entries), Made: s.cfg.Now().UTC(),
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return Snapshot{}, err
	}
	if err := os.WriteFile(filepath.Join(tmp, "meta.json"), append(b, '\n'), 0o644); err != nil {
		return Snapshot{}, err
	}
	if err := syncAll(tmp); err != nil {
		return Snapshot{}, err
	}
	dest := s.dir(digest(src, base))
	if err := os.Rename(tmp, dest); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return Snapshot{}, fmt.Errorf("put the snapshot in place: %w", err)
	}
	got, err := s.load(src, base)
	if err != nil {
		return Snapshot{}, err
	}
	got.Cached = false
	s.cfg.Logger.InfoContext(ctx, "snapshot made", "digest", got.Digest, "files", got.Files, "bytes", got.Bytes, "took", s.cfg.Now().Sub(begin))
	return got, nil
}

// syncAll makes the file system of dir durable, so that a snapshot which is in place after a
// power cut is whole.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// load reads a complete snapshot.
func (s *Store) load(src Source, base string) (Snapshot, error) {
	d := digest(src, base)
	b, err := os.ReadFile(filepath.Join(s.dir(d), "meta.json"))
	if err != nil {
		return Snapshot{}, err
	}
	var m meta
	if err := json.Unmarshal(b, &m); err != nil {
		return Snapshot{}, fmt.Errorf("snapshot %s: %w", d, err)
	}
	if _, err := os.Stat(filepath.Join(s.mirror(src.Repo), "HEAD")); err != nil {
		return Snapshot{}, err
	}
	return Snapshot{
		Digest: d, Base: base, Tree: filepath.Join(s.dir(d), "tree"), Home: filepath.Join(s.dir(d), "home"),
		Environment: m.Env, GitDir: s.mirror(src.Repo), Files: m.Files, Bytes: m.Bytes, Warnings: m.Warnings, Cached: true,
	}, nil
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

// Note returns a document kept beside a snapshot, class NotFound when there is none.
func (s *Store) Note(snap Snapshot, name string) ([]byte, error) {
	p, err := s.note(snap, name)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &task.Error{Class: task.NotFound, Msg: fmt.Sprintf("snapshot %s has no %s", snap.Digest, name)}
	}
	return b, err
}

// SetNote keeps a document beside a snapshot, replacing one of that name at once.
func (s *Store) SetNote(snap Snapshot, name string, data []byte) error {
	p, err := s.note(snap, name)
	if err != nil {
		return err
	}
	return replace(p, data)
}

func (s *Store) note(snap Snapshot, name string) (string, error) {
	if !noteName(name) || !validDigest(snap.Digest) {
		return "", &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q is not a name for a note", name)}
	}
	return filepath.Join(s.dir(snap.Digest), "notes", name), nil
}

// RepoNote returns a document kept beside the mirror of the snapshot's repository, class
// NotFound when there is none.
func (s *Store) RepoNote(snap Snapshot, name string) ([]byte, error) {
	p, err := s.repoNote(snap, name)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &task.Error{Class: task.NotFound, Msg: "the repository has no " + name}
	}
	return b, err
}

// ChangeRepoNote replaces a document beside the mirror by what change makes of it (nil when
// there is none), while nobody else does.
func (s *Store) ChangeRepoNote(ctx context.Context, snap Snapshot, name string, change func(old []byte) ([]byte, error)) error {
	p, err := s.repoNote(snap, name)
	if err != nil {
		return err
	}
	unlock, err := s.lock(ctx, strings.TrimSuffix(filepath.Base(snap.GitDir), ".git"))
	if err != nil {
		return err
	}
	defer unlock()
	old, err := os.ReadFile(p)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	b, err := change(old)
	if err != nil {
		return err
	}
	return replace(p, b)
}

func (s *Store) repoNote(snap Snapshot, name string) (string, error) {
	mirror, ok := strings.CutSuffix(filepath.Base(snap.GitDir), ".git")
	if !noteName(name) || !ok || !validDigest(mirror) {
		return "", &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q is not a name for a note", name)}
	}
	return filepath.Join(s.cfg.Dir, "repos", mirror+".notes", name), nil
}

func noteName(name string) bool {
	return name != "" && name[0] != '.' && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-_") == ""
}

// replace writes a file aside and puts it in place at once.
func replace(p string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(p), ".tmp-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(p), err)
	}
	return os.Rename(f.Name(), p)
}

// Remove deletes a snapshot; the mirror stays. The caller knows that no sandbox uses it.
func (s *Store) Remove(digest string) error {
	if !validDigest(digest) {
		return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q is not a snapshot digest", digest)}
	}
	// First out of the way at once, so that nobody finds half a snapshot.
	away, err := os.MkdirTemp(filepath.Join(s.cfg.Dir, "snapshots"), ".tmp-")
	if err != nil {
		return err
	}
	err = os.Rename(s.dir(digest), filepath.Join(away, "gone"))
	if errors.Is(err, fs.ErrNotExist) {
		err = &task.Error{Class: task.NotFound, Msg: "no snapshot " + digest}
	}
	if rerr := os.RemoveAll(away); err == nil {
		err = rerr
	}
	return err
}

// sweep removes what crashed builds and abandoned homes left more than a day ago.
func (s *Store) sweep() {
	for _, pattern := range []string{"snapshots/.tmp-*", "snapshots/*/.home-*", "layers/.tmp-*"} {
		found, _ := filepath.Glob(filepath.Join(s.cfg.Dir, pattern)) // the pattern is well-formed
		for _, p := range found {
			if fi, err := os.Lstat(p); err == nil && s.cfg.Now().Sub(fi.ModTime()) > 24*time.Hour {
				if err := os.RemoveAll(p); err != nil {
					s.cfg.Logger.Warn("left-over directory cannot be removed", "path", p, "err", err)
				}
			}
		}
	}
}

// lock takes a file lock, which the kernel drops when the process dies.
func (s *Store) lock(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.cfg.Dir, "locks", name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	got := make(chan error, 1)
	go func() {
		for {
			err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
			if !errors.Is(err, unix.EINTR) {
				got <- err
				return
			}
		}
	}()
	select {
	case err := <-got:
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock the mirror: %w", err)
		}
		return func() { f.Close() }, nil
	case <-ctx.Done():
		go func() { // the waiting call cannot be taken back; give the lock up once it comes
			<-got
			f.Close()
		}()
		return nil, context.Cause(ctx)
	}
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

package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// treeForm changes with how a tree and its index are laid out: one of another form is no base
// for a new one.
const treeForm = 1

// meta is the record of a complete snapshot. Its file's time is when it was last used.
type meta struct {
	Repo     string    `json:"repo"`
	Mirror   string    `json:"mirror"`
	Base     string    `json:"base"`
	Env      string    `json:"environment"`
	Files    int       `json:"files"`
	Bytes    int64     `json:"bytes"`
	Warnings []string  `json:"warnings"`
	Pointers []string  `json:"pointers,omitempty"` // paths of Git LFS pointers
	Form     int       `json:"form"`
	From     string    `json:"from,omitempty"` // digest of the snapshot it was advanced from
	Made     time.Time `json:"made"`
	Millis   int64     `json:"ms"` // that it took
	Seal     string    `json:"seal,omitempty"`
	Disk     int64     `json:"disk,omitempty"` // bytes on disk of the checkout that are no other snapshot's
}

// Prepare returns the snapshot, making what is missing, and holds it; see [Store.Done]. When ref
// is a commit id that was prepared before, the source is not looked at and nothing is run.
// Classes are those of [git.Git.FetchCommit].
func (s *Store) Prepare(ctx context.Context, src Source) (got Snapshot, err error) {
	if src.Progress == nil {
		src.Progress = s.cfg.progress
	}
	err = s.withRoom(ctx, src.Repo, func() error {
		got, err = s.prepare(ctx, src)
		return err
	})
	return got, err
}

func (s *Store) prepare(ctx context.Context, src Source) (Snapshot, error) {
	if git.IsID(src.Ref) {
		if got, err := s.take(ctx, src, src.Ref); err == nil {
			got.Rebuilt = s.rebuilt(src.Repo)
			return got, nil
		}
	}
	// From here on the mirror stays, whether it has a snapshot or not.
	if err := s.hold(ctx, mirrorName(src.Repo)); err != nil {
		return Snapshot{}, err
	}
	defer s.letGo(mirrorName(src.Repo))
	base, err := s.fetch(ctx, src, src.Ref)
	if err != nil {
		return Snapshot{}, err
	}
	unlock, err := s.lock(ctx, makeLock(kindSnapshot, digest(src, base)))
	if err != nil {
		return Snapshot{}, err
	}
	defer unlock()
	healed := ""
	got, err := s.take(ctx, src, base)
	if isDamaged(err) {
		s.cfg.Logger.WarnContext(ctx, "a damaged snapshot is made anew", "digest", digest(src, base), "err", err)
	}
	if err != nil { // nobody else made it meanwhile
		if got, err = s.build(ctx, src, base); err != nil {
			again, why := s.heal(ctx, src, base, err)
			if !again {
				return Snapshot{}, err
			}
			healed = why
			got, err = s.build(ctx, src, base)
		}
	}
	if err == nil {
		words := []string{cmp.Or(healed, s.rebuilt(src.Repo)), told(kindSnapshot, s.dir(got.Digest))}
		got.Rebuilt = strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), "; ")
	}
	return got, err
}

// previous is the snapshot that another is advanced from. It is held meanwhile.
type previous struct {
	digest   string
	dir      string // of the snapshot: its tree and whatever else it keeps
	base     string
	changed  map[string]bool // paths whose entry in the new tree is another, or gone
	pointers map[string]bool // Git LFS pointers of its tree
}

// build makes a snapshot aside and renames it into place. The lock of its digest is held.
func (s *Store) build(ctx context.Context, src Source, base string) (Snapshot, error) {
	begin := s.cfg.Now()
	d := digest(src, base)
	s.sweep(d, false)
	tmp, err := os.MkdirTemp(filepath.Join(s.cfg.Dir, "snapshots"), ".tmp-"+d+"-")
	if err != nil {
		return Snapshot{}, err
	}
	defer os.RemoveAll(tmp) // after the rename there is nothing to remove
	if err := os.Chmod(tmp, 0o755); err != nil {
		return Snapshot{}, err
	}
	laid, prev, err := s.lay(ctx, src, base, tmp)
	if prev != nil {
		defer s.letGo(prev.digest)
	}
	if err != nil {
		return Snapshot{}, err
	}
	m := meta{
		Repo: git.RedactURL(src.Repo), Mirror: mirrorName(src.Repo), Base: base, Env: src.Environment, Files: laid.Files, Bytes: laid.Bytes,
		Form: treeForm, Made: s.cfg.Now().UTC(),
	}
	if prev != nil {
		m.From = prev.digest
	}
	warned := make(chan struct{})
	go func() { // each looks at every entry
		defer close(warned)
		m.Warnings, m.Pointers = warnings(filepath.Join(tmp, "tree"), laid.Entries, prev)
	}()
	m.Disk, err = added(filepath.Join(tmp, "tree"), laid.Entries, prev)
	if <-warned; err != nil {
		return Snapshot{}, err
	}
	if m.Seal, err = seal(filepath.Join(tmp, "tree")); err != nil {
		return Snapshot{}, err
	}
	m.Millis = s.cfg.Now().Sub(begin).Milliseconds()
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
	if err := place(d, tmp, s.dir(d), func() error { return s.look(d) }); err != nil {
		return Snapshot{}, fmt.Errorf("put the snapshot in place: %w", err)
	}
	got, err := s.take(ctx, src, base)
	if err != nil {
		return Snapshot{}, err
	}
	got.Cached = false
	s.cfg.Logger.InfoContext(ctx, "snapshot made", "digest", got.Digest, "files", got.Files, "bytes", got.Bytes, "from", m.From, "took", s.cfg.Now().Sub(begin))
	return got, nil
}

// lay lays the tree out below tmp: from the nearest snapshot and the difference where there is
// one, else from nothing.
func (s *Store) lay(ctx context.Context, src Source, base, tmp string) (git.Laid, *previous, error) {
	g, gitdir, tree := s.cfg.Git.Telling(src.Progress), s.mirror(src.Repo), filepath.Join(tmp, "tree")
	prev, err := s.nearest(ctx, src, base)
	if err != nil {
		return git.Laid{}, nil, err
	}
	if prev == nil {
		laid, err := g.Checkout(ctx, gitdir, base, tree)
		return laid, nil, err
	}
	twin, err := s.takeTwin(prev.digest, tree)
	if err != nil { // then it is done without
		s.cfg.Logger.WarnContext(ctx, "the twin of a snapshot cannot be taken", "digest", prev.digest, "err", err)
	}
	for {
		laid, err := g.Advance(ctx, gitdir, base, prev.base, filepath.Join(prev.dir, "tree"), tree, twin)
		if err == nil || task.ClassOf(err) != task.Unavailable {
			return laid, prev, err
		}
		s.cfg.Logger.WarnContext(ctx, "a snapshot cannot be advanced as it should be", "from", prev.digest, "twin", twin, "err", err)
		if err := removeTree(tree); err != nil {
			return git.Laid{}, prev, err
		}
		if !twin {
			break
		}
		twin = false
	}
	s.letGo(prev.digest)
	laid, err := g.Checkout(ctx, gitdir, base, tree)
	return laid, nil, err
}

// Bounds on the search for the nearest snapshot.
const (
	candidates = 4  // most recently used ones that are compared
	mostShare  = 50 // percent of the files that may differ
)

// nearest holds the snapshot of the repository whose tree differs least, nil when none is near.
func (s *Store) nearest(ctx context.Context, src Source, base string) (*previous, error) {
	all, err := s.metas()
	if err != nil {
		return nil, err
	}
	name, gitdir := mirrorName(src.Repo), s.mirror(src.Repo)
	all = slices.DeleteFunc(all, func(m found) bool { return m.Mirror != name || m.Form != treeForm || !pinned(gitdir, m.Base) })
	slices.SortFunc(all, func(a, b found) int {
		if x, y := a.Base == base, b.Base == base; x != y {
			return cmp.Compare(b2i(y), b2i(x))
		}
		return b.used.Compare(a.used)
	})
	var best *previous
	for _, m := range all[:min(len(all), candidates)] {
		if err := s.hold(ctx, m.digest); err != nil {
			return nil, err
		}
		p, err := s.compare(ctx, gitdir, m, base)
		if err != nil && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil || len(p.changed) > m.Files*mostShare/100 || best != nil && len(p.changed) >= len(best.changed) {
			s.letGo(m.digest)
			continue
		}
		if best != nil {
			s.letGo(best.digest)
		}
		if best = p; m.Base == base {
			break
		}
	}
	return best, nil
}

// compare says how far a snapshot that is held is from a commit.
func (s *Store) compare(ctx context.Context, gitdir string, m found, base string) (*previous, error) {
	p := &previous{digest: m.digest, dir: s.dir(m.digest), base: m.Base, changed: map[string]bool{}, pointers: map[string]bool{}}
	if _, err := os.Stat(filepath.Join(p.dir, "meta.json")); err != nil { // it was not held when it was found
		return nil, err
	}
	for _, name := range m.Pointers {
		p.pointers[name] = true
	}
	if m.Base == base {
		return p, nil
	}
	diffs, err := s.cfg.Git.ChangedPaths(ctx, gitdir, m.Base, base)
	for _, d := range diffs {
		p.changed[d.Path] = true
	}
	return p, err
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// found is a complete snapshot on disk.
type found struct {
	meta
	digest string
	used   time.Time
}

// metas reads the records of all complete snapshots.
func (s *Store) metas() ([]found, error) {
	entries, err := os.ReadDir(filepath.Join(s.cfg.Dir, "snapshots"))
	if err != nil {
		return nil, err
	}
	var out []found
	for _, e := range entries {
		if !validDigest(e.Name()) {
			continue
		}
		m, used, err := s.meta(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was collected just now
		}
		if err != nil {
			s.passOver(kindSnapshot, e.Name(), s.dir(e.Name()), func() error { _, _, err := s.meta(e.Name()); return err }, err)
			continue
		}
		out = append(out, found{m, e.Name(), used})
	}
	return out, nil
}

func (s *Store) meta(digest string) (m meta, used time.Time, err error) {
	used, err = readRecord(s.dir(digest), &m)
	if err == nil && (!validDigest(m.Mirror) || !git.IsID(m.Base)) {
		err = &damage{"its record names no repository and commit"}
	}
	if err != nil {
		err = fmt.Errorf("snapshot %s: %w", digest, err)
	}
	return m, used, err
}

// look says what is wrong with a snapshot that is in place, as far as that is told cheaply.
func (s *Store) look(digest string) error {
	m, _, err := s.meta(digest)
	if err == nil {
		err = whole(s.dir(digest), m)
	}
	return err
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

// take holds a complete snapshot and its mirror, and reads it.
func (s *Store) take(ctx context.Context, src Source, base string) (Snapshot, error) {
	d, mirror := digest(src, base), mirrorName(src.Repo)
	if err := s.hold(ctx, mirror); err != nil {
		return Snapshot{}, err
	}
	if err := s.hold(ctx, d); err != nil {
		s.letGo(mirror)
		return Snapshot{}, err
	}
	m, _, err := s.meta(d)
	if err == nil {
		err = whole(s.dir(d), m)
	}
	if err == nil && !pinned(s.mirror(src.Repo), base) {
		err = fs.ErrNotExist // the mirror was made anew, or is gone
	}
	if err != nil {
		s.letGo(d)
		s.letGo(mirror)
		return Snapshot{}, err
	}
	s.touch(s.dir(d))
	return Snapshot{
		Digest: d, Base: base, Tree: filepath.Join(s.dir(d), "tree"), Home: filepath.Join(s.dir(d), "home"),
		Environment: m.Env, GitDir: s.mirror(src.Repo), Files: m.Files, Bytes: m.Bytes, Warnings: m.Warnings, Cached: true,
	}, nil
}

// touch says that a snapshot or layers are used now.
func (s *Store) touch(dir string) {
	now := s.cfg.Now()
	if err := os.Chtimes(filepath.Join(dir, "meta.json"), now, now); err != nil {
		s.cfg.Logger.Warn("the use of a snapshot was not noted", "path", dir, "err", err)
	}
}

// Remove deletes a snapshot; the mirror stays. Class Conflict: somebody uses it.
func (s *Store) Remove(digest string) error {
	if !validDigest(digest) {
		return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q is not a snapshot digest", digest)}
	}
	return s.remove(kindSnapshot, digest, s.dir(digest))
}

// remove deletes a snapshot or layers unless somebody holds them.
func (s *Store) remove(kind, digest, dir string) error {
	unlock, err := s.tryLock(useLock(digest))
	if err != nil {
		return err
	}
	if unlock == nil {
		return &task.Error{Class: task.Conflict, Msg: kind + " " + digest + " is in use", Fix: "wait for the tasks that use it, or end them"}
	}
	// First out of the way at once, so that nobody finds half of it.
	away, err := os.MkdirTemp(filepath.Dir(dir), ".tmp-")
	if err == nil {
		err = os.Rename(dir, filepath.Join(away, "gone"))
	}
	unlock(true)
	if made, merr := s.tryLock(makeLock(kind, digest)); merr == nil && made != nil {
		made(true)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = &task.Error{Class: task.NotFound, Msg: "no " + kind + " " + digest}
	}
	if away == "" {
		return err
	}
	return errors.Join(err, removeTree(away))
}

// makeLock is held by who makes a snapshot or layers.
func makeLock(kind, digest string) string {
	if kind == kindLayers {
		return "layers-" + digest
	}
	return "build-" + digest
}

// sweep removes what crashed builds and abandoned homes left. What a build left is nobody's once
// its lock is free, which for own is the caller's; for the rest a day must have passed. What was
// put aside goes once nobody needs it, with all even before somebody was told.
func (s *Store) sweep(own string, all bool) {
	for _, pattern := range []string{"snapshots/.tmp-*", "snapshots/.broken-*", "snapshots/*/.home-*", "snapshots/*/" + twinTmp + "*", "layers/.tmp-*", "layers/.broken-*", "repos/.broken-*"} {
		left, _ := filepath.Glob(filepath.Join(s.cfg.Dir, pattern)) // the pattern is well-formed
		for _, p := range left {
			fi, err := os.Lstat(p)
			if err != nil {
				continue
			}
			old := s.cfg.Now().Sub(fi.ModTime()) > 24*time.Hour
			if aside(p) && !s.forsaken(p, old || all) || !aside(p) && !old && !s.abandoned(p, own) {
				continue
			}
			if err := removeTree(p); err != nil {
				s.cfg.Logger.Warn("left-over directory cannot be removed", "path", p, "err", err)
			}
		}
	}
}

// abandoned reports whether a directory was made by a build that died: it is named for what it
// was to be, and nobody builds that.
func (s *Store) abandoned(p, own string) bool {
	name := filepath.Base(p)
	if filepath.Base(filepath.Dir(p)) != "snapshots" || len(name) < len(".tmp-")+33 || !validDigest(name[5:37]) || name[37:38] != "-" {
		return false
	}
	if name[5:37] == own {
		return true
	}
	unlock, err := s.tryLock(makeLock(kindSnapshot, name[5:37]))
	if err != nil || unlock == nil {
		return false
	}
	unlock(false)
	return true
}

package snapshot

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// twinDir is in a snapshot's directory the twin of its checkout, if it has one: complete or absent.
const twinDir = "twin"

// twinTmp begins the names of directories beside it in which twins are made.
const twinTmp = ".twin-"

// twinFrom is how many files a checkout has of which there is a twin: fewer are linked in no time.
const twinFrom = 1000

// Twin makes ready what the snapshot of a later commit begins with: the files of this one, linked,
// so that making that one takes as long as the difference. Its directories are all that it takes
// on disk. Of each repository one snapshot has one: the caller's, which holds it, unless one that
// was made later has. After a crash it is there or not, as the file system keeps the order of links
// and renames.
func (s *Store) Twin(ctx context.Context, snap Snapshot) error {
	if snap.Files < twinFrom {
		return nil
	}
	return s.twin(ctx, snap)
}

func (s *Store) twin(ctx context.Context, snap Snapshot) error {
	unlock, err := s.tryLock("twin-" + mirrorOf(snap))
	if err != nil || unlock == nil { // somebody makes one now
		return err
	}
	defer unlock(false)
	dir := s.dir(snap.Digest)
	if s.hasTwin(snap.Digest) {
		return nil
	}
	all, err := s.metas()
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(m found) bool { return m.Mirror != mirrorOf(snap) })
	own := slices.IndexFunc(all, func(m found) bool { return m.digest == snap.Digest })
	for _, m := range all {
		if own >= 0 && m.Made.After(all[own].Made) && s.hasTwin(m.digest) {
			return nil
		}
	}
	for _, m := range all {
		if m.digest != snap.Digest {
			if err := s.dropTwin(m.digest); err != nil {
				return err
			}
		}
		left, _ := filepath.Glob(filepath.Join(s.dir(m.digest), twinTmp+"*")) // the pattern is well-formed
		for _, p := range left {                                              // we hold the lock, so nobody fills them
			if err := removeTree(p); err != nil {
				return err
			}
		}
	}
	tmp, err := os.MkdirTemp(dir, twinTmp)
	if err != nil {
		return err
	}
	made := filepath.Join(tmp, twinDir)
	err = s.cfg.Git.Twin(ctx, filepath.Join(dir, "tree"), made)
	if err == nil {
		err = os.Rename(made, filepath.Join(dir, twinDir))
	}
	return errors.Join(err, removeTree(tmp))
}

// takeTwin moves the twin of a snapshot to a path. ok is false when there is none.
func (s *Store) takeTwin(digest, to string) (ok bool, err error) {
	err = os.Rename(filepath.Join(s.dir(digest), twinDir), to)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (s *Store) hasTwin(digest string) bool {
	_, err := os.Lstat(filepath.Join(s.dir(digest), twinDir))
	return err == nil
}

// dropTwin removes the twin of a snapshot, if there is one. Nothing is made for that: the disk may
// be full.
func (s *Store) dropTwin(digest string) error {
	away := filepath.Join(s.dir(digest), twinTmp+strconv.FormatInt(s.cfg.Now().UnixNano(), 36))
	if ok, err := s.takeTwin(digest, away); !ok {
		return err
	}
	return removeTree(away)
}

// dropTwins removes all and says whether there were any: what is made without them takes longer, and
// no more.
func (s *Store) dropTwins() (some bool) {
	found, _ := filepath.Glob(filepath.Join(s.cfg.Dir, "snapshots", "*", twinDir)) // the pattern is well-formed
	for _, p := range found {
		if err := s.dropTwin(filepath.Base(filepath.Dir(p))); err != nil {
			s.cfg.Logger.Warn("the twin of a snapshot cannot be removed", "path", p, "err", err)
			continue
		}
		some = true
	}
	return some
}

package snapshot

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// twinDir is in a snapshot's directory the twin of its checkout, if it has one: complete or absent.
const twinDir = "twin"

// twinTmp begins the names of directories beside it in which twins are made.
const twinTmp = ".twin-"

// twinFrom is how many files a checkout has of which there is a twin: fewer are linked in no time.
const twinFrom = 1000

// Twin makes ready what the snapshot of a later commit begins with: the files of this one, linked,
// so that making that one takes as long as the difference. Its directories are all that it takes
// on disk. Of each repository only the snapshot that was asked for last has one. The caller holds
// the snapshot.
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
	if _, err := os.Lstat(filepath.Join(dir, twinDir)); !errors.Is(err, fs.ErrNotExist) {
		return err // it is there
	}
	all, err := s.metas()
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Mirror != mirrorOf(snap) {
			continue
		}
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
		err = syncAll(tmp)
	}
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

// dropTwin removes the twin of a snapshot, if there is one.
func (s *Store) dropTwin(digest string) error {
	if _, err := os.Lstat(filepath.Join(s.dir(digest), twinDir)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	away, err := os.MkdirTemp(filepath.Join(s.cfg.Dir, "snapshots"), ".tmp-")
	if err != nil {
		return err
	}
	_, err = s.takeTwin(digest, filepath.Join(away, "gone"))
	return errors.Join(err, removeTree(away))
}

// dropTwins removes all: what is made without them takes longer, and no more.
func (s *Store) dropTwins() {
	found, _ := filepath.Glob(filepath.Join(s.cfg.Dir, "snapshots", "*", twinDir)) // the pattern is well-formed
	for _, p := range found {
		if err := s.dropTwin(filepath.Base(filepath.Dir(p))); err != nil {
			s.cfg.Logger.Warn("the twin of a snapshot cannot be removed", "path", p, "err", err)
		}
	}
}

package oci

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"
)

const (
	watchEvery = time.Second // how often the size of what is kept is looked at, at the most
	maxSystem  = 4 << 30     // bytes of System.Keep
)

// watchKept kills the sandbox when what it writes into a host directory passes the cap of that
// place, each file counted with at least the space of its inode. Memory layers are capped by
// the kernel; plain file systems have no quota for a directory. Between two looks a sandbox
// may write as much as the disk takes in that time.
func (s *box) watchKept() {
	caps := map[string]int64{placeWork: s.limits.WorkBytes, placeHome: s.limits.HomeBytes, placeSystem: maxSystem}
	var stops []func()
	for _, k := range s.rec.Kept {
		stops = append(stops, s.watch(k, caps[k.Place]))
	}
	if len(stops) > 0 {
		s.unkeep = func() {
			for _, stop := range stops {
				stop()
			}
		}
	}
}

func (s *box) watch(k kept, enough int64) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for {
			began := time.Now()
			got, err := s.r.do(ctx, order{Do: doMeasure, Keep: k.Dir, Enough: enough})
			if err == nil && got.Size > enough {
				s.r.cfg.Logger.Warn("sandbox passed the cap on what it may keep and is killed", "id", s.rec.ID, "place", k.Place, "cap", enough)
				if err := s.kill(context.WithoutCancel(ctx)); err != nil {
					s.r.cfg.Logger.Error("kill sandbox", "id", s.rec.ID, "error", err)
				}
				return
			}
			// A walk may take a twentieth of the time, no more.
			t := time.NewTimer(max(watchEvery, 20*time.Since(began)))
			select {
			case <-ctx.Done():
				t.Stop()
				return
			case <-t.C:
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// sizeOf sums up the space of the files below dir until it passes enough. It opens
// directories only, and through [os.Root] none outside dir, whatever the sandbox moves about.
func sizeOf(ctx context.Context, dir string, enough int64) (int64, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	var total int64
	err = fs.WalkDir(root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return nil //nolint // it vanished while we looked
		}
		total += inodeBytes
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
		if total > enough {
			return fs.SkipAll
		}
		return nil
	})
	return total, err
}

// openKept makes the directories of a filled layer passable for its owner, whatever the
// sandbox did to them: root passes anyway, a user must be able to read and remove them.
func (st standing) openKept(ctx context.Context, keep string) error {
	if !st.Rootless || keep == "" {
		return nil
	}
	root, err := os.OpenRoot(keep)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if !d.IsDir() {
			return nil
		}
		info, err := d.Info()
		if err != nil || info.Mode().Perm()&0o700 == 0o700 {
			return err
		}
		return root.Chmod(name, info.Mode().Perm()|0o700)
	})
}

package oci

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	watchEvery = time.Second // how often the size of what is kept is looked at, at the most
	maxSystem  = 4 << 30     // bytes of System.Keep
)

// watchKept kills the sandbox when what it writes into a host directory passes the cap of that
// place, each file counted with at least the space of its inode. Memory layers are capped by
// the kernel; plain file systems have no quota for a directory. Between two looks a sandbox
// may write as much as the disk takes in that time, or until the disk has lost as much as the
// sandbox may still keep.
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
			began, before := time.Now(), roomAt(k.Dir)
			got, err := s.r.do(ctx, order{Do: doMeasure, Keep: k.Dir, Enough: enough})
			if err == nil && got.Size > enough {
				s.r.cfg.Logger.Warn("sandbox passed the cap on what it may keep and is killed", "id", s.rec.ID, "place", k.Place, "cap", enough)
				if err := s.kill(context.WithoutCancel(ctx)); err != nil {
					s.r.cfg.Logger.Error("kill sandbox", "id", s.rec.ID, "error", err)
				}
				return
			}
			// A walk may take a twentieth of the time; half of it while the disk fills.
			walk := time.Since(began)
			if !rest(ctx, k.Dir, before, enough-got.Size, walk, max(watchEvery, 20*walk)) {
				return
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// room is what a file system has left.
type room struct{ bytes, files int64 }

func roomAt(dir string) room {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return room{} // then time alone decides when to look
	}
	return room{int64(st.Bavail) * st.Bsize, int64(st.Ffree)}
}

// lost is what has gone since, each file counted as in [sizeOf].
func (before room) lost(now room) int64 {
	return max(before.bytes-now.bytes, (before.files-now.files)*inodeBytes)
}

// rest waits for at most most, and not less than least, until the file system of dir has lost
// more than left bytes. It returns false when ctx has ended.
func rest(ctx context.Context, dir string, before room, left int64, least, most time.Duration) bool {
	end := time.NewTimer(most)
	defer end.Stop()
	tick := time.NewTicker(watchEvery / 4)
	defer tick.Stop()
	begin := time.Now()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-end.C:
			return true
		case <-tick.C:
			if time.Since(begin) >= least && before.lost(roomAt(dir)) > left {
				return true
			}
		}
	}
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

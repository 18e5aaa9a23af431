package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Twin makes dest, which must not exist, the files of the checkout from, by links and without a
// repository: what [Git.Advance] can begin with, made before anybody waits for it. What holds for
// from in Advance holds here.
func (g *Git) Twin(ctx context.Context, from, dest string) error {
	entries, _, err := indexOf(from)()
	if err != nil {
		return err
	}
	var subs []int
	for i := range entries {
		if entries[i].mode() == ModeSubmodule {
			subs = append(subs, i)
		}
	}
	dirs := directories(entries)
	if err := makeDirs(ctx, dest, dirs); err != nil {
		return err
	}
	for _, n := range subs {
		p := filepath.Join(dest, entries[n].path)
		if err := os.Mkdir(p, 0o755); err != nil {
			return err
		}
		if err := settleOne(p, &entries[n]); err != nil {
			return err
		}
	}
	return each(ctx, dirs, func(i int) error { return linkDir(from, dest, dirs[i], entries, subs) })
}

// turn makes a twin of the checkout before what entries say: what diffs names goes, directories in
// which nothing is left go with it, and the fresh entries are written.
func (g *Git) turn(ctx context.Context, gitdir, dest string, dirs []*directory, entries []dirEntry, fresh []int, diffs []PathDiff) error {
	stay := make(map[string]bool, len(dirs))
	for _, d := range dirs {
		stay[d.path] = true
	}
	touched := map[string]bool{".": true} // the repository is new in it
	touch := func(p string) {
		for d := path.Dir(p); !touched[d]; d = path.Dir(d) {
			touched[d] = true
		}
	}
	for _, d := range diffs {
		if d.OldMode == 0 || d.OldMode == ModeTree {
			continue
		}
		if err := os.Remove(filepath.Join(dest, d.Path)); err != nil {
			return unlinkable(d.Path, err)
		}
		touch(d.Path)
	}
	var gone []string
	for d := range touched {
		if d != "." && !stay[d] {
			gone = append(gone, d)
		}
	}
	slices.SortFunc(gone, func(a, b string) int { return strings.Compare(b, a) }) // what is in a directory before it
	for _, d := range gone {
		delete(touched, d)
		if err := os.Remove(filepath.Join(dest, d)); err != nil {
			return unlinkable(d, err)
		}
	}
	for _, n := range fresh {
		touch(entries[n].path)
		if err := os.MkdirAll(filepath.Join(dest, path.Dir(entries[n].path)), 0o755); err != nil {
			return err
		}
	}
	if err := g.layFresh(ctx, gitdir, dest, entries, fresh); err != nil {
		return err
	}
	for d := range touched {
		if err := settleDir(filepath.Join(dest, d)); err != nil {
			return err
		}
	}
	return nil
}

// settleDir gives a directory the time and the mode that [settle] gives.
func settleDir(p string) error {
	f, err := os.OpenFile(p, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return settleFd(int(f.Fd()))
}

func settleFd(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&0o555 != 0o555 { // a strict umask of this process
		if err := unix.Fchmod(fd, st.Mode&0o777|0o555); err != nil {
			return err
		}
	}
	when := unix.NsecToTimeval(checkoutTime * 1e9)
	return unix.Futimes(fd, []unix.Timeval{when, when})
}

// makeDirs makes the directories of a tree, none of which is there but perhaps its top.
func makeDirs(ctx context.Context, dest string, dirs []*directory) error {
	for _, level := range levels(dirs) {
		if err := each(ctx, level, func(i int) error {
			d := level[i]
			if err := os.Mkdir(filepath.Join(dest, d.path), 0o755); err != nil && (d.path != "" || !errors.Is(err, fs.ErrExist)) {
				return fmt.Errorf("make %q: %w", d.path, err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Advance is [Git.Checkout] for a tree of which another checkout has the most: files that both
// have are linked, not written, and what differs is taken from the mirror. from is a checkout
// that this package laid out and that nobody has written to since, on the same file system;
// its commit has the tree of old. The two checkouts share files: neither may ever be written
// to. The result has the same paths, modes, bytes and times as one laid out from nothing, and
// like that one no object of another commit.
//
// An error of class Unavailable says that from cannot be linked: not on this file system, or not
// any more.
func (g *Git) Advance(ctx context.Context, gitdir, rev, old, from, dest string) (Laid, error) {
	var l Laid
	var err error
	if l.Tree, err = g.TreeID(ctx, gitdir, rev); err != nil {
		return l, err
	}
	if l.Commit, err = g.Commit(ctx, gitdir, l.Tree, "", neutral()); err != nil {
		return l, err
	}
	laid := make(chan error, 1)
	go func() { laid <- g.layAdvanced(ctx, gitdir, l.Commit, from, dest) }()
	var fresh []string
	l.Entries, fresh, err = g.linkTree(ctx, gitdir, rev, old, from, dest)
	if err := errors.Join(<-laid, err); err != nil {
		return l, err
	}
	if err := g.layFiles(ctx, dest, fresh); err != nil {
		return l, err
	}
	if err := settleSome(dest, l.Entries, fresh); err != nil {
		return l, err
	}
	for _, e := range l.Entries {
		if e.Mode != ModeSubmodule {
			l.Files++
		}
		if e.Mode == ModeFile || e.Mode == ModeExecutable {
			l.Bytes += e.Size
		}
	}
	return l, g.refresh(ctx, dest)
}

// linkTree links what did not change, and returns the tree with the paths that must be written.
func (g *Git) linkTree(ctx context.Context, gitdir, rev, old, from, dest string) (entries []Entry, fresh []string, err error) {
	diffs, err := g.ChangedPaths(ctx, gitdir, old, rev)
	if err != nil {
		return nil, nil, err
	}
	changed := make(map[string]bool, len(diffs))
	for _, d := range diffs {
		changed[d.Path] = true
	}
	if entries, err = g.ListTree(ctx, gitdir, rev); err != nil {
		return nil, nil, err
	}
	fresh, err = linkFiles(from, dest, entries, changed)
	return entries, fresh, err
}

// layAdvanced writes dest/.git, whose index knows the files that from has as well.
func (g *Git) layAdvanced(ctx context.Context, gitdir, commit, from, dest string) error {
	if err := g.layRepository(ctx, gitdir, commit, dest); err != nil {
		return err
	}
	index, err := os.ReadFile(filepath.Join(from, ".git", "index"))
	if errors.Is(err, fs.ErrNotExist) {
		return &task.Error{Class: task.Unavailable, Msg: from + " has no index any more"}
	}
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dest, ".git", "index"), index, 0o644); err != nil {
		return err
	}
	if err := g.inTree(ctx, dest, nil, "read-tree", "-m", commit); err != nil {
		return &task.Error{Class: task.Invalid, Msg: "commit " + commit + " cannot be checked out", Err: err}
	}
	return nil
}

// linkFiles links every entry that did not change, and returns the paths that must be written.
func linkFiles(from, dest string, entries []Entry, changed map[string]bool) (fresh []string, err error) {
	src, dst, at := -1, -1, ""
	shut := func() {
		if src >= 0 {
			unix.Close(src)
			unix.Close(dst)
			src, dst = -1, -1
		}
	}
	defer shut()
	for _, e := range entries {
		if changed[e.Path] || e.Mode == ModeSubmodule {
			fresh = append(fresh, e.Path)
			continue
		}
		dir, name := path.Split(e.Path)
		if src < 0 || dir != at {
			shut()
			if src, dst, err = openPair(from, dest, dir); err != nil {
				return nil, err
			}
			at = dir
		}
		if err := unix.Linkat(src, name, dst, name, 0); err != nil {
			return nil, unlinkable(e.Path, err)
		}
	}
	return fresh, nil
}

// openPair opens the same directory of two trees, and makes it in the second.
func openPair(from, dest, dir string) (src, dst int, err error) {
	if err := os.MkdirAll(filepath.Join(dest, dir), 0o755); err != nil {
		return -1, -1, err
	}
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if src, err = unix.Open(filepath.Join(from, dir), flags, 0); err != nil {
		return -1, -1, unlinkable(dir, err)
	}
	if dst, err = unix.Open(filepath.Join(dest, dir), flags, 0); err != nil {
		unix.Close(src)
		return -1, -1, err
	}
	return src, dst, nil
}

func unlinkable(name string, err error) error {
	for _, no := range []error{unix.EXDEV, unix.EMLINK, unix.EPERM, unix.ENOENT, unix.ENOTDIR, unix.EOPNOTSUPP, unix.ELOOP} {
		if errors.Is(err, no) {
			return &task.Error{Class: task.Unavailable, Msg: fmt.Sprintf("%q cannot be linked", name), Err: err}
		}
	}
	return fmt.Errorf("link %q: %w", name, err)
}

// settleSome gives the fresh files and every directory of the tree the time and the mode that
// [settle] gives: the others have theirs, and are shared.
func settleSome(dest string, entries []Entry, fresh []string) error {
	when := []unix.Timespec{{Sec: checkoutTime}, {Sec: checkoutTime}}
	settle := func(name string) error {
		p := filepath.Join(dest, name)
		fi, err := os.Lstat(p)
		if err != nil {
			return err
		}
		if fi.Mode()&fs.ModeSymlink == 0 {
			if err := openUp(p, fi); err != nil {
				return err
			}
		}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, p, when, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("set the time of %s: %w", p, err)
		}
		return nil
	}
	for _, name := range fresh {
		if err := settle(name); err != nil {
			return err
		}
	}
	done := map[string]bool{".": true}
	if err := settle("."); err != nil {
		return err
	}
	for _, e := range entries {
		for d := path.Dir(e.Path); !done[d]; d = path.Dir(d) {
			done[d] = true
			if err := settle(d); err != nil {
				return err
			}
		}
	}
	return nil
}

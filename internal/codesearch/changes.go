package codesearch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Changes are the differences of a work tree from the tree that was indexed, as far as they
// matter to a search. The index's answer without them, and ripgrep's about them, are together
// what ripgrep says about the work tree.
type Changes struct {
	Files []string // changed since, in the index or not, in no order; ignored files are among them
	// Rules says that a file which decides what is ignored is among the changes: the index
	// cannot know what that means.
	Rules bool

	changed  map[string]bool
	replaced map[string]bool // directories that are something else now
}

// Skip reports whether the index's word on a file no longer counts.
func (c *Changes) Skip(p string) bool {
	if c.changed[p] {
		return true
	}
	if len(c.replaced) > 0 {
		for d := path.Dir(p); d != "."; d = path.Dir(d) {
			if c.replaced[d] {
				return true
			}
		}
	}
	return false
}

// maxChanges is when looking at the changes costs more than a search of everything.
const maxChanges = 20_000

// Changes finds what was changed in a work tree since a moment, as [Clock] told it, at which the
// tree was as it was indexed. It goes by change times, which the kernel alone sets, and, because
// a hard link that is made to a file elsewhere renews its change time too, by the times at which
// inodes were made, where the file system knows them: one that is older is of a lower layer,
// which never changes.
//
// The tree must be an overlay without redirect_dir (kernel documentation, "Overlay Filesystem"):
// there a file that is changed is copied up with all directories above it, and a directory is
// moved by copying, so that one whose change time is old holds nothing new, and only the changed
// part of the tree is walked. Elsewhere, and when too much was changed, the error is [ErrAsk].
func (x *Index) Changes(ctx context.Context, tree string, since int64) (*Changes, error) {
	var vfs unix.Statfs_t
	if err := unix.Statfs(tree, &vfs); err != nil {
		return nil, fmt.Errorf("look at the tree %s: %w", tree, err)
	}
	if vfs.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return nil, ErrAsk
	}
	w := &walk{tree: tree, since: since, c: &Changes{changed: make(map[string]bool), replaced: make(map[string]bool)}}
	return w.c, w.dir(ctx, "")
}

type walk struct {
	tree  string
	since int64
	c     *Changes
}

// ChangeTime of a file is in nanoseconds since 1970. The kernel alone sets it.
func ChangeTime(st fs.FileInfo) int64 {
	return st.Sys().(*syscall.Stat_t).Ctim.Nano()
}

// madeBefore reports whether it is known that the inode of a file is older than a moment.
func madeBefore(name string, t int64) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &st)
	return err == nil && st.Mask&unix.STATX_BTIME != 0 && st.Btime.Sec*1e9+int64(st.Btime.Nsec) < t
}

func (w *walk) dir(ctx context.Context, dir string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	entries, err := os.ReadDir(path.Join(w.tree, dir))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil // gone meanwhile, or not for ripgrep to see either
	}
	if err != nil {
		return fmt.Errorf("look for changes in %q: %w", dir, err)
	}
	for _, e := range entries {
		p := path.Join(dir, e.Name())
		if e.Name() == ".git" {
			continue
		}
		if err := w.entry(ctx, p, e); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) entry(ctx context.Context, p string, e fs.DirEntry) error {
	st, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if ChangeTime(st) < w.since || madeBefore(path.Join(w.tree, p), w.since) {
		return nil // what is below it is as it was, too
	}
	switch {
	case st.IsDir():
		return w.dir(ctx, p)
	case st.Mode().IsRegular():
		w.c.changed[p] = true
		w.c.Files = append(w.c.Files, p)
		switch path.Base(p) {
		case ".gitignore", ".ignore", ".rgignore":
			w.c.Rules = true
		}
		if len(w.c.Files) > maxChanges {
			return ErrAsk
		}
	default:
		w.c.replaced[p], w.c.changed[p] = true, true
	}
	return nil
}

// holds reports whether the index has a file below a directory.
func (x *Index) holds(dir string) (bool, error) {
	found := false
	err := x.Children(dir, func(string) bool { found = true; return false })
	return found, err
}

// Holds reports whether the index has a file, or one below a directory, of that name.
func (x *Index) Holds(p string) (bool, error) {
	if p == "." {
		return true, nil
	}
	if ok, err := x.Has(p); ok || err != nil {
		return ok, err
	}
	return x.holds(p)
}

// ChangedSince reports whether a file of an overlay was changed since a moment. One that is not
// there was not.
func ChangedSince(name string, since int64) bool {
	st, err := os.Lstat(name)
	return err == nil && ChangeTime(st) >= since && !madeBefore(name, since)
}

// Clock tells the moment by the clock that change times are taken from, by making a file in dir.
// What is changed afterwards has no earlier time.
func Clock(dir string) (int64, error) {
	f, err := os.CreateTemp(dir, ".clock-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return ChangeTime(st), nil
}

// Wants returns those of the files, none of them ignored, that a query looks at.
func (q Query) Wants(files []string) ([]string, error) {
	g, err := parseGlobs(q.Globs)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range files {
		if wanted(f, q.Paths, g) {
			out = append(out, f)
		}
	}
	return out, nil
}

// GlobFor is a --glob of ripgrep that stands for one file of the tree and no other.
func GlobFor(p string) string {
	var b strings.Builder
	b.WriteByte('/')
	for i := range len(p) {
		if strings.IndexByte(`\*?[]{}!`, p[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(p[i])
	}
	return b.String()
}

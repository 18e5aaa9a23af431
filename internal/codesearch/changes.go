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
	Files []string // changed since, in the index or not, in no order; none of them is ignored
	// Rules says that what decides what is ignored is another for files that the index knows, or
	// is what git does not know: the index cannot know what that means.
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

// Unknown is a file or a directory that the index knows nothing of.
type Unknown struct {
	Path string
	Dir  bool
	// Rules stands for the rules that were written since and have a word on it: while it is the
	// same, so is the answer.
	Rules string
}

// Ignored says which of the files and directories git ignores, in their order.
type Ignored func(ctx context.Context, list []Unknown) ([]bool, error)

// Changes finds what was changed in a work tree since a moment, as [Clock] told it, at which the
// tree was as it was indexed. It goes by change times, which the kernel alone sets, and, because
// a hard link that is made to a file elsewhere renews its change time too, by the times at which
// inodes were made, where the file system knows them: one that is older is of a lower layer,
// which never changes. A directory that is ignored is not looked into.
//
// The tree must be an overlay without redirect_dir (kernel documentation, "Overlay Filesystem"):
// there a file that is changed is copied up with all directories above it, and a directory is
// moved by copying, so that one whose change time is old holds nothing new, and only the changed
// part of the tree is walked. Elsewhere, and when too much was changed, the error is [ErrAsk].
func (x *Index) Changes(ctx context.Context, tree string, since int64, ignored Ignored) (*Changes, error) {
	var vfs unix.Statfs_t
	if err := unix.Statfs(tree, &vfs); err != nil {
		return nil, fmt.Errorf("look at the tree %s: %w", tree, err)
	}
	if vfs.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return nil, ErrAsk
	}
	w := &walk{index: x, tree: tree, since: since, c: &Changes{changed: make(map[string]bool), replaced: make(map[string]bool)}}
	for level := []dir{{known: true}}; len(level) > 0; {
		w.below, w.asks = nil, nil
		for _, d := range level {
			if err := w.dir(ctx, d); err != nil {
				return nil, err
			}
		}
		if err := w.ask(ctx, ignored); err != nil {
			return nil, err
		}
		level = w.below
	}
	gone, err := x.rulesGone(tree)
	w.c.Rules = w.c.Rules || gone
	return w.c, err
}

// walk goes through the changed directories of a tree, all of one depth together.
type walk struct {
	index *Index
	tree  string
	since int64
	c     *Changes
	seen  int   // files and directories, but for those that the index knows
	below []dir // of the next depth
	asks  []dir // files and directories of it, of which it is not known whether they are ignored
}

// dir is a directory that is looked into, or what is asked about.
type dir struct {
	Unknown
	known  bool // the index has files below it
	nested bool // it belongs to a repository inside the tree, where git and ripgrep differ
}

// isRules reports whether a file of that name decides what is ignored.
func isRules(name string) bool { return name == ".gitignore" || foreignRules(name) }

// foreignRules reports whether they are rules that git does not know.
func foreignRules(name string) bool { return name == ".ignore" || name == ".rgignore" }

func (w *walk) dir(ctx context.Context, d dir) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	entries, err := os.ReadDir(path.Join(w.tree, d.Path))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil // gone meanwhile, or not for ripgrep to see either
	}
	if err != nil {
		return fmt.Errorf("look for changes in %q: %w", d.Path, err)
	}
	for _, e := range entries { // they have a word on the others
		switch {
		case e.Name() == ".git" && d.Path != "":
			d.nested = true
		case e.Name() == ".gitignore":
			if st, err := e.Info(); err == nil {
				d.Rules += fmt.Sprintf("%d %d ", len(d.Path), ChangeTime(st))
			}
		}
	}
	for _, e := range entries {
		if err := w.entry(d, e); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) entry(d dir, e fs.DirEntry) error {
	p := path.Join(d.Path, e.Name())
	st, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// What the index knows nothing of was ignored or is new: all of it is looked at.
	if d.known && (ChangeTime(st) < w.since || madeBefore(path.Join(w.tree, p), w.since)) {
		return nil // what is below it is as it was, too
	}
	if e.Name() == ".git" {
		w.c.Rules = w.c.Rules || d.Path != "" // a repository of its own begins here
		return nil
	}
	if isRules(e.Name()) && (d.known || !st.Mode().IsRegular() || foreignRules(e.Name())) {
		w.c.Rules = true
	}
	one := dir{Unknown: Unknown{p, st.IsDir(), d.Rules}, nested: d.nested}
	switch {
	case st.IsDir():
		one.known, err = w.index.holds(p)
	case st.Mode().IsRegular():
		one.known, err = w.index.Has(p)
	default:
		w.c.replaced[p], w.c.changed[p] = true, true
		return nil
	}
	if err != nil || one.known {
		return errors.Join(err, w.take(one))
	}
	if w.asks = append(w.asks, one); w.seen+len(w.asks) > maxChanges {
		return ErrAsk
	}
	return nil
}

// take has what is not ignored looked into, or searched.
func (w *walk) take(d dir) error {
	if d.Dir {
		w.below = append(w.below, d)
		return nil
	}
	w.c.changed[d.Path] = true
	if w.c.Files = append(w.c.Files, d.Path); len(w.c.Files) > maxChanges {
		return ErrAsk
	}
	return nil
}

// ask takes what is not ignored of the unknown.
func (w *walk) ask(ctx context.Context, ignored Ignored) error {
	if len(w.asks) == 0 {
		return nil
	}
	w.seen += len(w.asks)
	list := make([]Unknown, len(w.asks))
	for i, d := range w.asks {
		list[i] = d.Unknown
		w.c.Rules = w.c.Rules || d.nested
	}
	drop, err := ignored(ctx, list)
	if err != nil {
		return err
	}
	for i, d := range w.asks {
		if !drop[i] {
			if err := w.take(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// rulesGone reports whether a file of the index that decides what is ignored is missing where its
// directory is not.
func (x *Index) rulesGone(tree string) (bool, error) {
	list, err := x.rules()
	for _, p := range list {
		if _, err := os.Lstat(path.Join(tree, p)); err == nil {
			continue
		}
		if st, err := os.Lstat(path.Join(tree, path.Dir(p))); err == nil && st.IsDir() {
			return true, nil
		}
	}
	return false, err
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

package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

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
// dest must not exist, or with twin be what [Git.Twin] made of from: then no more is done than the
// difference takes.
//
// An error of class Unavailable says that from cannot be linked: not on this file system, or not
// any more.
func (g *Git) Advance(ctx context.Context, gitdir, rev, old, from, dest string, twin bool) (Laid, error) {
	var l Laid
	var err error
	index := indexOf(from) // while git is asked
	if l.Tree, err = g.TreeID(ctx, gitdir, rev); err != nil {
		return l, err
	}
	if l.Commit, err = g.Commit(ctx, gitdir, l.Tree, "", neutral()); err != nil {
		return l, err
	}
	if err := layEmpty(l.Commit, dest); err != nil {
		return l, err
	}
	entries, err := g.advanceTree(ctx, gitdir, l, old, from, dest, twin, index)
	if err != nil {
		return l, err
	}
	l.Entries = make([]Entry, len(entries))
	for i := range entries {
		e := entries[i].entry()
		l.Entries[i] = e
		if e.Mode != ModeSubmodule {
			l.Files++
		}
		if e.Mode == ModeFile || e.Mode == ModeExecutable {
			l.Bytes += e.Size
		}
	}
	return l, nil
}

// sizeOf is how many bytes the files of an index have, without those that are to be written.
func sizeOf(entries []dirEntry) (n int64) {
	for i := range entries {
		if entries[i].mode() != ModeSubmodule {
			n += entries[i].size()
		}
	}
	return n
}

// advanceTree lays out the objects, the files and the index. The index is the other's with the
// difference: no file that both have is looked at.
func (g *Git) advanceTree(ctx context.Context, gitdir string, l Laid, old, from, dest string, twin bool, index indexed) ([]dirEntry, error) {
	diffs, err := g.changed(ctx, gitdir, old, l.Tree, "-t")
	if err != nil {
		return nil, err
	}
	for _, d := range diffs {
		if d.NewMode != 0 && !usual(d.Path, d.NewMode) {
			return nil, &task.Error{Class: task.Unavailable, Msg: fmt.Sprintf("%q is a name that a checkout has to be asked about", d.Path)}
		}
	}
	entries, trees, err := index()
	if err != nil {
		return nil, err
	}
	entries, fresh, err := advanceEntries(entries, trees, diffs)
	if err != nil {
		return nil, err
	}
	if trees != nil {
		trees[""] = l.Tree
	}
	dirs := directories(entries)
	laid, ids, size := make(chan error, 1), objects(l.Commit, dirs, trees, entries), packSize(sizeOf(entries))
	go func() {
		if ids != nil {
			laid <- g.sharePacks(ctx, gitdir, from, dest, size, ids)
		} else {
			laid <- g.layPack(ctx, gitdir, l.Commit, dest, size)
		}
	}()
	if twin {
		err = g.turn(ctx, gitdir, dest, dirs, entries, fresh, diffs)
	} else {
		err = g.advanceFiles(ctx, gitdir, from, dest, dirs, entries, fresh)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dest, ".git", "index"), writeIndex(entries, trees), 0o644)
	}
	return entries, errors.Join(<-laid, err)
}

// indexed waits for the index of a checkout.
type indexed func() (entries []dirEntry, trees map[string]string, err error)

// indexOf begins to read one.
func indexOf(checkout string) indexed {
	var entries []dirEntry
	var trees map[string]string
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var b []byte
		if b, err = os.ReadFile(filepath.Join(checkout, ".git", "index")); err != nil {
			err = unlinkable(".git/index", err)
		} else if entries, trees, err = readIndex(b); err != nil {
			err = &task.Error{Class: task.Unavailable, Msg: "the index of " + checkout + " cannot be taken over", Err: err}
		}
	}()
	return func() ([]dirEntry, map[string]string, error) {
		<-ended
		return entries, trees, err
	}
}

// advanceFiles lays out the files, and notes in the entries what the fresh ones are like.
func (g *Git) advanceFiles(ctx context.Context, gitdir, from, dest string, dirs []*directory, entries []dirEntry, fresh []int) error {
	if err := makeDirs(ctx, dest, dirs); err != nil {
		return err
	}
	if err := g.layFresh(ctx, gitdir, dest, entries, fresh); err != nil {
		return err
	}
	return each(ctx, dirs, func(i int) error { return linkDir(from, dest, dirs[i], entries, fresh) })
}

// layFresh writes the files that are another than before, out of the mirror, and notes them.
func (g *Git) layFresh(ctx context.Context, gitdir, dest string, entries []dirEntry, fresh []int) error {
	if len(fresh) == 0 {
		return nil
	}
	some := make([]dirEntry, len(fresh))
	for i, n := range fresh {
		some[i] = entries[n]
	}
	own := filepath.Join(dest, ".git")
	index := filepath.Join(own, "fresh")
	if err := os.WriteFile(index, writeIndex(some, nil), 0o644); err != nil {
		return err
	}
	_, err := g.run(ctx, call{
		dir: dest, env: []string{"GIT_INDEX_FILE=" + index, "GIT_OBJECT_DIRECTORY=" + filepath.Join(gitdir, "objects")}, max: 1 << 20,
		args: []string{"--git-dir=" + own, "--work-tree=" + dest, "checkout-index", "--all", "--quiet", "--force"},
	})
	if err = errors.Join(noRoom(dest, err), os.Remove(index)); err != nil {
		return &task.Error{Class: task.Invalid, Msg: "what changed cannot be checked out", Err: err}
	}
	for _, n := range fresh {
		if err := settleOne(filepath.Join(dest, entries[n].path), &entries[n]); err != nil {
			return err
		}
	}
	return nil
}

// settleOne gives a file, a link or the directory of a submodule the time and the mode that
// [settle] gives.
func settleOne(p string, e *dirEntry) error {
	fi, err := os.Lstat(p)
	if err != nil {
		return err
	}
	if e.mode() != ModeLink {
		if err := openUp(p, fi); err != nil {
			return err
		}
	}
	when := []unix.Timespec{{Sec: checkoutTime}, {Sec: checkoutTime}}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, p, when, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set the time of %s: %w", p, err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		return err
	}
	e.setStat(&st)
	return nil
}

// directory of a tree, with the numbers of the entries that are in it itself.
type directory struct {
	path string
	in   []int
}

// directories are all of a tree, each before what is in it.
func directories(entries []dirEntry) []*directory {
	root := &directory{}
	out, known := []*directory{root}, map[string]*directory{"": root}
	var find func(dir string) *directory
	find = func(dir string) *directory {
		if d := known[dir]; d != nil {
			return d
		}
		up, _ := path.Split(dir)
		find(strings.TrimSuffix(up, "/"))
		d := &directory{path: dir}
		known[dir], out = d, append(out, d)
		return d
	}
	at := root
	for i := range entries {
		dir, _ := path.Split(entries[i].path)
		if dir = strings.TrimSuffix(dir, "/"); dir != at.path {
			at = find(dir)
		}
		at.in = append(at.in, i)
	}
	return out
}

// levels are the directories by their depth.
func levels(dirs []*directory) (out [][]*directory) {
	for _, d := range dirs {
		n := 0
		if d.path != "" {
			n = 1 + strings.Count(d.path, "/")
		}
		for len(out) <= n {
			out = append(out, nil)
		}
		out[n] = append(out[n], d)
	}
	return out
}

// each calls do with every index of a list, for a few at once.
func each[T any](ctx context.Context, list []T, do func(i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(len(list), max(2, runtime.GOMAXPROCS(0))) {
		wg.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range list {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

// linkDir links every file of a directory that was not written, and gives the directory its time.
func linkDir(from, dest string, d *directory, entries []dirEntry, fresh []int) error {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	dst, err := unix.Open(filepath.Join(dest, d.path), flags, 0)
	if err != nil {
		return fmt.Errorf("open %q: %w", d.path, err)
	}
	defer unix.Close(dst)
	src := -1
	defer func() {
		if src >= 0 {
			unix.Close(src)
		}
	}()
	for _, n := range d.in {
		if _, written := slices.BinarySearch(fresh, n); written {
			continue
		}
		if src < 0 {
			if src, err = unix.Open(filepath.Join(from, d.path), flags, 0); err != nil {
				return unlinkable(d.path, err)
			}
		}
		name := path.Base(entries[n].path)
		if err := unix.Linkat(src, name, dst, name, 0); err != nil {
			return unlinkable(entries[n].path, err)
		}
	}
	return settleFd(dst)
}

func unlinkable(name string, err error) error {
	for _, no := range []error{unix.EXDEV, unix.EMLINK, unix.EPERM, unix.ENOENT, unix.ENOTDIR, unix.EOPNOTSUPP, unix.ELOOP} {
		if errors.Is(err, no) {
			return &task.Error{Class: task.Unavailable, Msg: fmt.Sprintf("%q cannot be linked", name), Err: err}
		}
	}
	return fmt.Errorf("link %q: %w", name, err)
}

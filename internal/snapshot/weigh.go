package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/daybreak-agent/daybreak/internal/git"
)

// weight is what files take on disk.
type weight struct {
	disk int64 // of a file that several names have, this name's share
	own  int64 // without files that have other names as well
}

func (w *weight) add(fi fs.FileInfo) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return
	}
	bytes := st.Blocks * 512
	if fi.IsDir() || st.Nlink <= 1 {
		w.disk += bytes
		w.own += bytes
	} else {
		w.disk += bytes / int64(st.Nlink)
	}
}

// weigh looks at everything below a path.
func weigh(ctx context.Context, at string) (w weight, err error) {
	err = look(ctx, at, w.add)
	return w, err
}

// weighDirs looks at directories alone: a twin's files are the checkout's.
func weighDirs(ctx context.Context, at string) (w weight, err error) {
	err = look(ctx, at, func(fi fs.FileInfo) {
		if fi.IsDir() {
			w.add(fi)
		}
	})
	return w, err
}

// treeWeight is what a snapshot's checkout takes on disk, with the names for its files of the twin,
// and of one that is made now: they go together.
func (s *Store) treeWeight(ctx context.Context, digest string) (tree weight, err error) {
	more := map[uint64]uint64{}                                          // names of a file
	twins, _ := filepath.Glob(filepath.Join(s.dir(digest), twinTmp+"*")) // the pattern is well-formed
	for _, at := range append(twins, filepath.Join(s.dir(digest), twinDir)) {
		if err := look(ctx, at, func(fi fs.FileInfo) {
			if st, ok := fi.Sys().(*syscall.Stat_t); ok && !fi.IsDir() {
				more[st.Ino]++
				tree.disk += st.Blocks * 512 / int64(st.Nlink)
			}
		}); err != nil {
			return tree, err
		}
	}
	err = look(ctx, filepath.Join(s.dir(digest), "tree"), func(fi fs.FileInfo) {
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && more[st.Ino] > 0 && uint64(st.Nlink) == 1+more[st.Ino] {
			tree.own += st.Blocks * 512
		}
		tree.add(fi)
	})
	return tree, err
}

// look calls do for everything below a path.
func look(ctx context.Context, at string, do func(fs.FileInfo)) error {
	return filepath.WalkDir(at, func(_ string, d fs.DirEntry, err error) error {
		var fi fs.FileInfo
		if err == nil {
			fi, err = d.Info()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return ctx.Err() // collected, or packed, meanwhile
		}
		if err != nil {
			return err
		}
		do(fi)
		return ctx.Err()
	})
}

// added is what a checkout that nobody has linked yet takes on disk besides what it shares with
// the one it was advanced from, of which only what differs is looked at.
func added(tree string, entries []git.Entry, prev *previous) (int64, error) {
	if prev == nil {
		w, err := weigh(context.Background(), tree)
		return w.own, err
	}
	w, err := weigh(context.Background(), filepath.Join(tree, ".git"))
	if err != nil {
		return 0, err
	}
	look := func(name string) error {
		fi, err := os.Lstat(filepath.Join(tree, name))
		if err == nil && (fi.IsDir() || prev.changed[name]) {
			w.add(fi)
		}
		return err
	}
	if err := look("."); err != nil {
		return 0, err
	}
	for dir := range dirs(entries) {
		if err := look(dir); err != nil {
			return 0, err
		}
	}
	for _, e := range entries {
		if prev.changed[e.Path] || e.Mode == git.ModeSubmodule {
			if err := look(e.Path); err != nil {
				return 0, err
			}
		}
	}
	return w.own, nil
}

// dirs are the directories that entries are in, but for the top.
func dirs(entries []git.Entry) map[string]bool {
	out, last := map[string]bool{}, ""
	for _, e := range entries {
		dir := path.Dir(e.Path)
		if dir == last {
			continue
		}
		last = dir
		for ; dir != "." && !out[dir]; dir = path.Dir(dir) {
			out[dir] = true
		}
	}
	return out
}

// scales is what the collector remembers of what it has weighed, so that it looks at what is new
// alone. Every byte on disk is counted once: with the checkout that was the first to have it, or
// when that is gone with its repository.
type scales struct {
	Trees map[string]string `json:"trees"` // mirror, by snapshot
	Rest  map[string]int64  `json:"rest"`  // by mirror: of checkouts that are gone, what later ones share
	Dirs  map[string]dirSum `json:"dirs"`  // of build caches and layers, by path below the store
}

type dirSum struct {
	Bytes int64 `json:"bytes"`
	Time  int64 `json:"time"` // of the directory: another one has another
}

func (s *Store) scalesFile() string { return filepath.Join(s.cfg.Dir, "sizes.json") }

func (s *Store) readScales() scales {
	var z scales
	if b, err := os.ReadFile(s.scalesFile()); err != nil || json.Unmarshal(b, &z) != nil {
		return scales{} // everything is weighed again
	}
	return z
}

func (s *Store) writeScales(z scales) error {
	b, err := json.Marshal(z)
	if err == nil {
		err = replace(s.scalesFile(), b)
	}
	return err
}

// total weighs everything together. The lock of the collector is held.
func (s *Store) total(ctx context.Context, all []Kept) (sum int64, now scales, err error) {
	before := s.readScales()
	now = scales{Trees: map[string]string{}, Rest: map[string]int64{}, Dirs: map[string]dirSum{}}
	families := map[string][]Kept{}
	for _, k := range all {
		var n int64
		switch k.Kind {
		case kindSnapshot:
			families[k.mirror] = append(families[k.mirror], k)
			now.Trees[k.Digest] = k.mirror
			n, err = s.beside(ctx, k, before, now)
		case kindLayers:
			n, err = s.remembered(ctx, s.path(k), weigh, before, now)
		default:
			var w weight
			w, err = weigh(ctx, s.path(k))
			n = w.disk
		}
		if err != nil {
			return 0, now, fmt.Errorf("measure %s %s: %w", k.Kind, k.Digest, err)
		}
		sum += n
	}
	lost := map[string]bool{} // a checkout is gone, and nobody has weighed what is left of it
	for digest, mirror := range before.Trees {
		lost[mirror] = lost[mirror] || now.Trees[digest] == ""
	}
	for mirror, family := range families {
		n, known := int64(0), before.Trees != nil && !lost[mirror]
		for _, k := range family {
			n += k.added
			known = known && k.added > 0
		}
		if now.Rest[mirror] = before.Rest[mirror]; !known {
			real := int64(0)
			for _, k := range family {
				w, err := s.treeWeight(ctx, k.Digest)
				if err != nil {
					return 0, now, fmt.Errorf("measure snapshot %s: %w", k.Digest, err)
				}
				real += w.disk
			}
			now.Rest[mirror] = real - n
		}
		sum += n + now.Rest[mirror]
	}
	return sum, now, nil
}

// beside weighs what a snapshot has besides its checkout.
func (s *Store) beside(ctx context.Context, k Kept, before, now scales) (sum int64, err error) {
	entries, err := os.ReadDir(s.path(k))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if fi, err := os.Lstat(s.path(k)); err == nil {
		var w weight
		w.add(fi)
		sum = w.disk
	}
	for _, e := range entries {
		at, n := filepath.Join(s.path(k), e.Name()), int64(0)
		switch {
		case e.Name() == "tree":
			continue
		case e.Name() == "home" || strings.HasPrefix(e.Name(), "home-"):
			n, err = s.remembered(ctx, at, weigh, before, now)
		case e.Name() == twinDir: // all of one snapshot are alike, and so is their time
			n, err = s.remembered(ctx, at, weighDirs, before, now)
		case strings.HasPrefix(e.Name(), twinTmp):
			var w weight
			w, err = weighDirs(ctx, at)
			n = w.disk
		default: // few files, or such as are written now
			var w weight
			w, err = weigh(ctx, at)
			n = w.disk
		}
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// remembered weighs a directory that nobody writes to once it is there.
func (s *Store) remembered(
	ctx context.Context, at string, weigh func(context.Context, string) (weight, error), before, now scales,
) (int64, error) {
	fi, err := os.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // collected just now
	}
	if err != nil {
		return 0, err
	}
	name := strings.TrimPrefix(at, s.cfg.Dir+"/")
	sum, ok := before.Dirs[name]
	if !ok || sum.Time != fi.ModTime().UnixNano() {
		w, err := weigh(ctx, at)
		if err != nil {
			return 0, err
		}
		sum = dirSum{w.disk, fi.ModTime().UnixNano()}
	}
	now.Dirs[name] = sum
	return sum.Bytes, nil
}

// without forgets something that is gone, whose checkout alone had tree bytes.
func (z *scales) without(k Kept, path string) {
	maps.DeleteFunc(z.Dirs, func(name string, _ dirSum) bool { return name == path || strings.HasPrefix(name, path+"/") })
	if k.Kind != kindSnapshot {
		return
	}
	delete(z.Trees, k.Digest)
	z.Rest[k.mirror] += k.added - k.tree
	for _, mirror := range z.Trees {
		if mirror == k.mirror {
			return
		}
	}
	delete(z.Rest, k.mirror)
}

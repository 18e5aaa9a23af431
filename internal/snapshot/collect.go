package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// The kinds of [Kept].
const (
	kindSnapshot = "snapshot"
	kindLayers   = "layers"
	kindMirror   = "mirror"
)

// Kept is one thing that the store keeps on disk.
type Kept struct {
	Kind        string   // "snapshot", "layers" (prepared dependencies) or "mirror"
	Digest      string   // of a mirror: its name
	Repo        string   // without credentials; "" where it is not known
	Base        string   // commit
	Environment string   //
	From        string   // the snapshot it was advanced from
	Layers      []string // digests of the layers that were used with it
	Files       int      // of the checkout
	Bytes       int64    // of the checkout's files
	Disk        int64    // bytes on disk, of files shared with other snapshots this one's share
	Own         int64    // bytes on disk that go with it
	Made        time.Time
	Took        time.Duration // to make it
	Used        time.Time     // last
	InUse       bool          // a process has it, or an unfinished task needs it
	Warnings    []string      // see [Snapshot.Warnings]
	Index       int64         // bytes of its search indexes, 0 for none

	mirror string
	added  int64 // bytes on disk of its checkout that were no other's when it was made
	tree   int64 // part of Own that is the checkout's
}

// Policy says what may stay.
type Policy struct {
	Disk   int64         // bytes of everything together; 0: no bound
	Free   int64         // bytes of the disk that are left to others; 0: it is not looked at
	Unused time.Duration // what nobody used for so long goes; 0: nothing goes for that
	Every  time.Duration // nothing is done if it was done less than this ago and the disk has room; 0: always
	// Full: something did not fit on the disk. What nobody uses goes until there is room for the like of it.
	Full bool
	// Need says what must stay for a task. nil: everything.
	Need func(task.ID) Need
}

// unpinAfter is how long a commit without a snapshot or a task stays in the mirror: somebody may
// be about to make one of it.
const unpinAfter = time.Hour

// pruneAfter is how long objects stay that nothing refers to: changes of tasks are among them.
const pruneAfter = 30 * 24 * time.Hour

// checkEvery is how often a mirror's connections are checked.
const checkEvery = 24 * time.Hour

// List says what is on disk, the most recently used first. Sizes are read from the file system,
// which takes a while. need is that of [Policy].
func (s *Store) List(ctx context.Context, need func(task.ID) Need) ([]Kept, error) {
	needed, err := s.needed(need, false)
	if err != nil {
		return nil, err
	}
	out, err := s.list(needed)
	if err != nil {
		return nil, err
	}
	for i := range out {
		if err := s.measure(ctx, &out[i]); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(out, func(a, b Kept) int { return b.Used.Compare(a.Used) })
	return out, nil
}

// needs are digests and commits (as "mirror/commit") that tasks need.
type needs map[string]bool

func (s *Store) needed(need func(task.ID) Need, prune bool) (needs, error) {
	tasks, err := s.tasks(need, prune)
	if err != nil {
		return nil, err
	}
	out := needs{}
	for _, p := range tasks {
		out[p.Snapshot], out[p.Layers], out[p.Mirror], out[p.Mirror+"/"+p.Base] = true, true, true, true
	}
	return out, nil
}

// list finds everything without its size.
func (s *Store) list(need needs) ([]Kept, error) {
	metas, err := s.metas()
	if err != nil {
		return nil, err
	}
	var out []Kept
	repos := map[string]string{}
	for _, m := range metas {
		repos[m.Mirror] = m.Repo
		k := Kept{
			Kind: kindSnapshot, Digest: m.digest, Repo: m.Repo, Base: m.Base, Environment: m.Env, From: m.From, Files: m.Files, Bytes: m.Bytes,
			Made: m.Made, Took: time.Duration(m.Millis) * time.Millisecond, Used: m.used, mirror: m.Mirror,
			InUse: need[m.digest], Warnings: m.Warnings, Index: indexes(s.dir(m.digest)), added: m.Disk,
		}
		used, _ := os.ReadDir(filepath.Join(s.dir(m.digest), "layers")) // none, if there is no such directory
		for _, l := range used {
			k.Layers = append(k.Layers, l.Name())
		}
		out = append(out, k)
	}
	layers, err := s.listLayers(need, repos)
	if err != nil {
		return nil, err
	}
	mirrors, err := s.listMirrors(need, repos)
	out = slices.Concat(out, layers, mirrors)
	for i := range out {
		if err == nil && !out[i].InUse {
			out[i].InUse, err = s.busy(out[i])
		}
	}
	return out, err
}

func (s *Store) listLayers(need needs, repos map[string]string) ([]Kept, error) {
	entries, err := os.ReadDir(filepath.Join(s.cfg.Dir, "layers"))
	if err != nil {
		return nil, err
	}
	var out []Kept
	for _, e := range entries {
		if !validDigest(e.Name()) {
			continue
		}
		m, used, err := s.layersMeta(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was collected just now
		}
		if err != nil {
			s.passOver(kindLayers, e.Name(), s.layersDir(e.Name()), func() error { _, _, err := s.layersMeta(e.Name()); return err }, err)
			continue
		}
		out = append(out, Kept{
			Kind: kindLayers, Digest: e.Name(), Repo: repos[m.Mirror], Base: m.Base, Made: m.Made, Took: time.Duration(m.Millis) * time.Millisecond,
			Used: used, InUse: need[e.Name()], mirror: m.Mirror,
		})
	}
	return out, nil
}

func (s *Store) listMirrors(need needs, repos map[string]string) ([]Kept, error) {
	entries, err := os.ReadDir(filepath.Join(s.cfg.Dir, "repos"))
	if err != nil {
		return nil, err
	}
	var out []Kept
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".git")
		if !ok || !validDigest(name) {
			continue
		}
		k := Kept{Kind: kindMirror, Digest: name, Repo: repos[name], InUse: need[name], mirror: name}
		if last, err := readFetched(filepath.Join(s.cfg.Dir, "repos", name+".fetched")); err == nil && k.Repo == "" {
			k.Repo = last.Repo
		}
		// The newest fetch, or the making of the mirror.
		for _, p := range []string{name + ".fetched", filepath.Join(e.Name(), "HEAD")} {
			if fi, err := os.Stat(filepath.Join(s.cfg.Dir, "repos", p)); err == nil && fi.ModTime().After(k.Used) {
				k.Used = fi.ModTime()
			}
		}
		if fi, err := os.Stat(filepath.Join(s.cfg.Dir, "repos", e.Name(), "config")); err == nil {
			k.Made = fi.ModTime()
		}
		out = append(out, k)
	}
	return out, nil
}

// busy reports whether a process has it right now.
func (s *Store) busy(k Kept) (bool, error) {
	names := []string{useLock(k.Digest)}
	if k.Kind == kindMirror { // it is read, or fetched into
		names = append(names, k.Digest)
	}
	for _, name := range names {
		unlock, err := s.tryLock(name)
		if err != nil || unlock == nil {
			return err == nil, err
		}
		unlock(false)
	}
	return false, nil
}

func (s *Store) path(k Kept) string {
	switch k.Kind {
	case kindSnapshot:
		return s.dir(k.Digest)
	case kindLayers:
		return s.layersDir(k.Digest)
	}
	return filepath.Join(s.cfg.Dir, "repos", k.Digest+".git")
}

// indexes is the size of the search indexes in a snapshot's directory, by their records.
func indexes(dir string) (bytes int64) {
	found, _ := filepath.Glob(filepath.Join(dir, "index-*")) // the pattern is well-formed
	for _, p := range found {
		if m, err := readIndexMeta(p); err == nil {
			for _, f := range m.Files {
				bytes += f.Size
			}
		}
	}
	return bytes
}

// measure fills the sizes in. A file that snapshots share counts for each in part.
func (s *Store) measure(ctx context.Context, k *Kept) error {
	w, err := weigh(ctx, s.path(*k))
	var tree weight
	if err == nil && k.Kind == kindSnapshot {
		alone := weight{}
		if tree, err = s.treeWeight(ctx, k.Digest); err == nil {
			alone, err = weigh(ctx, filepath.Join(s.path(*k), "tree"))
		}
		w.own += tree.own - alone.own
	}
	if err != nil {
		return fmt.Errorf("measure %s %s: %w", k.Kind, k.Digest, err)
	}
	k.Disk, k.Own, k.tree = w.disk, w.own, tree.own
	return nil
}

// Collect removes what nobody used for long, and the least recently used for as long as everything
// together is larger than it may be, or the disk has less room than it should; never what a process has or an unfinished task needs. It
// returns what it removed, and goes on after an error.
func (s *Store) Collect(ctx context.Context, p Policy) ([]Kept, error) {
	unlock, err := s.tryLock("collect")
	if err == nil && unlock == nil && p.Full { // what the others let go may not be enough
		var waited func()
		waited, err = s.lock(ctx, "collect")
		unlock = func(bool) { waited() }
	}
	if err != nil || unlock == nil { // somebody else collects
		return nil, err
	}
	defer unlock(false)
	done := filepath.Join(s.cfg.Dir, "collected")
	if fi, err := os.Stat(done); err == nil && p.Every > 0 && s.cfg.Now().Sub(fi.ModTime()) < p.Every && !s.short(p) {
		return nil, nil
	}
	gone, err := s.collect(ctx, p)
	return gone, errors.Join(err, replace(done, nil))
}

func (s *Store) collect(ctx context.Context, p Policy) ([]Kept, error) {
	s.sweep("", p.Full)
	if p.Full {
		s.dropTwins()
	}
	need, err := s.needed(p.Need, true)
	if err != nil {
		return nil, err
	}
	all, err := s.list(need)
	if err != nil {
		return nil, err
	}
	// A mirror goes last: its snapshots cannot be used without it.
	slices.SortStableFunc(all, func(a, b Kept) int {
		if x, y := a.Kind == kindMirror, b.Kind == kindMirror; x != y {
			return b2i(x) - b2i(y)
		}
		return a.Used.Compare(b.Used)
	})
	total, weighed, err := s.total(ctx, all)
	if err != nil {
		return nil, err
	}
	limit := s.limit(p, total, all)
	var errs []error
	standing := map[string]int{}
	for _, k := range all {
		if k.Kind == kindSnapshot {
			standing[k.mirror]++
		}
	}
	var gone []Kept
	for _, k := range all {
		old := p.Unused > 0 && s.cfg.Now().Sub(k.Used) > p.Unused
		if k.InUse || !old && total <= limit || k.Kind == kindMirror && standing[k.Digest] > 0 {
			continue
		}
		if err := s.measure(ctx, &k); err != nil { // others may have shared its files
			return gone, err
		}
		err := s.drop(ctx, k)
		if c := task.ClassOf(err); c == task.Conflict || c == task.NotFound {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		total -= k.Own
		weighed.without(k, strings.TrimPrefix(s.path(k), s.cfg.Dir+"/"))
		if k.Kind == kindSnapshot {
			standing[k.mirror]--
		}
		gone = append(gone, k)
		s.cfg.Logger.InfoContext(ctx, "collected", "kind", k.Kind, "digest", k.Digest, "repo", k.Repo, "bytes", k.Own, "used", k.Used)
	}
	errs = append(errs, s.writeScales(weighed))
	s.sweepLocks()
	if !p.Full { // packing takes room of its own
		errs = append(errs, s.upkeep(ctx, need))
	}
	return gone, errors.Join(errs...)
}

// drop removes one thing unless somebody has it.
func (s *Store) drop(ctx context.Context, k Kept) error {
	if k.Kind == kindMirror {
		return s.dropMirror(k.Digest)
	}
	if err := s.remove(k.Kind, k.Digest, s.path(k)); err != nil || k.Kind != kindLayers {
		return err
	}
	// Caches that were filled over these layers are of no use to others.
	homes, _ := filepath.Glob(filepath.Join(s.cfg.Dir, "snapshots", "*", "home-"+k.Digest)) // the pattern is well-formed
	var errs []error
	for _, h := range homes {
		errs = append(errs, removeTree(h))
	}
	return errors.Join(append(errs, ctx.Err())...)
}

func (s *Store) dropMirror(name string) error {
	for _, lock := range []string{useLock(name), name} {
		unlock, err := s.tryLock(lock)
		if err != nil {
			return err
		}
		if unlock == nil {
			return &task.Error{Class: task.Conflict, Msg: "mirror " + name + " is in use"}
		}
		defer unlock(true)
	}
	dir := filepath.Join(s.cfg.Dir, "repos")
	away, err := os.MkdirTemp(dir, ".broken-")
	if err != nil {
		return err
	}
	if err = os.Rename(filepath.Join(dir, name+".git"), filepath.Join(away, "old.git")); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, more := range []string{".fetched", ".checked", ".rebuilt"} {
		_ = os.Remove(filepath.Join(dir, name+more)) // there is none of a mirror that was never fetched
	}
	return errors.Join(err, removeTree(away), removeTree(filepath.Join(s.cfg.Dir, "history", name+".git")))
}

// upkeep lets commits go that neither a snapshot nor a task needs, packs the mirrors, and puts
// those aside of which something is missing: the next fetch makes them anew. It keeps nobody
// from fetching meanwhile.
func (s *Store) upkeep(ctx context.Context, need needs) error {
	metas, err := s.metas()
	if err != nil {
		return err
	}
	for _, m := range metas {
		need[m.Mirror+"/"+m.Base] = true
	}
	mirrors, err := s.listMirrors(need, map[string]string{})
	if err != nil {
		return err
	}
	var errs []error
	for _, k := range mirrors {
		errs = append(errs, s.tidy(ctx, k.Digest, need))
	}
	return errors.Join(errs...)
}

func (s *Store) tidy(ctx context.Context, name string, need needs) error {
	gitdir := filepath.Join(s.cfg.Dir, "repos", name+".git")
	checked := filepath.Join(s.cfg.Dir, "repos", name+".checked")
	if fi, err := os.Stat(checked); err != nil || s.cfg.Now().Sub(fi.ModTime()) > checkEvery {
		if s.cfg.Git.Disconnected(ctx, gitdir) {
			s.cfg.Logger.WarnContext(ctx, "a mirror is damaged and will be made anew when nobody uses it", "mirror", gitdir)
			return s.setAside(name)
		}
		if err := replace(checked, nil); err != nil {
			return err
		}
	}
	if err := s.unpin(ctx, name, gitdir, need); err != nil {
		return err
	}
	s.sweepObjects(gitdir, 24*time.Hour)
	return s.cfg.Git.Tidy(ctx, gitdir, pruneAfter)
}

// unpin lets go of the commits that nobody needs.
func (s *Store) unpin(ctx context.Context, name, gitdir string, need needs) error {
	unlock, err := s.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	var free []string
	for _, c := range pins(gitdir) {
		fi, err := os.Stat(filepath.Join(gitdir, pinsDir, c))
		if err == nil && !need[name+"/"+c] && s.cfg.Now().Sub(fi.ModTime()) > unpinAfter {
			free = append(free, c)
		}
	}
	return s.cfg.Git.Unpin(ctx, gitdir, free)
}

// setAside puts a damaged mirror where [Store.fetch] finds that it must be made anew, unless
// somebody uses it: then the next look does, or who meets the damage.
func (s *Store) setAside(name string) error {
	for _, lock := range []string{useLock(name), name} {
		unlock, err := s.tryLock(lock)
		if err != nil || unlock == nil {
			return err
		}
		defer unlock(false)
	}
	if _, err := os.Stat(s.damaged(name)); err == nil {
		return nil // on its way already
	}
	return os.Rename(filepath.Join(s.cfg.Dir, "repos", name+".git"), s.damaged(name))
}

// Forget removes what is kept of a repository: of one commit, its snapshots, the dependencies
// that were prepared from it and every snapshot that used those; of all commits ("") the mirror
// as well. A task that needs its [Base] alone, in the sense of [Policy], keeps nothing from going: it
// fetches that again. Class Conflict when something of it is in use; then the rest is gone already.
func (s *Store) Forget(ctx context.Context, repo, commit string, need func(task.ID) Need) ([]Kept, error) {
	needed, err := s.needed(func(id task.ID) Need {
		if need != nil && need(id) != All {
			return Nothing
		}
		return All
	}, false)
	if err != nil {
		return nil, err
	}
	all, err := s.list(needed)
	if err != nil {
		return nil, err
	}
	name, tainted := mirrorName(repo), map[string]bool{}
	for _, k := range all {
		// Layers of before their origin was recorded may be anybody's.
		if k.Kind == kindLayers && (k.mirror == "" || k.mirror == name && (commit == "" || k.Base == commit)) {
			tainted[k.Digest] = true
		}
	}
	var gone []Kept
	var errs []error
	for _, kind := range []string{kindSnapshot, kindLayers, kindMirror} {
		for _, k := range all {
			hit := k.Kind == kind && k.mirror == name && (commit == "" || kind == kindSnapshot && k.Base == commit)
			hit = hit || kind == kindLayers && tainted[k.Digest]
			hit = hit || kind == kindSnapshot && slices.ContainsFunc(k.Layers, func(l string) bool { return tainted[l] })
			if !hit || k.Kind != kind {
				continue
			}
			if k.InUse {
				errs = append(errs, &task.Error{Class: task.Conflict, Msg: fmt.Sprintf("%s %s is in use", k.Kind, k.Digest), Fix: "wait for the tasks that use it, or end them"})
				continue
			}
			if err := s.measure(ctx, &k); err != nil {
				return gone, err
			}
			if err := s.drop(ctx, k); err != nil {
				errs = append(errs, err)
				continue
			}
			gone = append(gone, k)
		}
	}
	s.sweep("", true)
	s.sweepLocks()
	return gone, errors.Join(errs...)
}

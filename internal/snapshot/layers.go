package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Layers are what preparing the dependencies of a base left, in the form in which sandboxes
// take it: over the checkout, in HOME and in the system. The zero value is none.
type Layers struct {
	Digest  string   // of repository, environment and the setup's key; "" for none
	Home    string   // host directories; "" where nothing was written
	Work    string   //
	System  string   //
	Left    []string // topmost paths of Work that the base does not track, directories with a slash; sorted
	Undone  []string // tracked paths that setup had changed or deleted: the layer leaves them as the base has them
	Record  []byte   // JSON of whoever made them
	Rebuilt string   // why they had to be made anew; "" for the usual

	// Env (KEY=VALUE) and Path (directories that come first on PATH) are what makes them found;
	// whoever prepares sets both, they are not stored.
	Env, Path []string
}

// maxLeft bounds [Layers.Left], in bytes of its paths: they are in the task's log.
const maxLeft = 512 << 10

// layersMeta is the record of complete layers.
type layersMeta struct {
	Mirror string          `json:"mirror"` // name of the repository's mirror
	Base   string          `json:"base"`   // the commit whose setup made them
	Left   []string        `json:"left"`
	Undone []string        `json:"undone"`
	Record json.RawMessage `json:"record"`
	Made   time.Time       `json:"made"`
	Parts  []string        `json:"parts,omitempty"` // of "home", "work" and "system"
	Millis int64           `json:"ms"`              // that it took
}

// With is the snapshot with prepared dependencies. Its caches are kept apart from those of the
// bare checkout.
func (s Snapshot) With(l Layers) Snapshot {
	s.Layers = l
	if l.Digest != "" {
		s.Home = filepath.Join(filepath.Dir(s.Tree), "home-"+l.Digest)
	}
	return s
}

// Layers finds what an earlier setup of the same key left, for this repository and
// environment, whatever the commit, and holds it; see [Store.Done]. Class NotFound when there is
// none.
func (s *Store) Layers(ctx context.Context, snap Snapshot, key string) (Layers, error) {
	return s.takeLayers(ctx, snap, layersDigest(snap, key))
}

// takeLayers holds complete layers for a snapshot, which from then on is known to use them.
func (s *Store) takeLayers(ctx context.Context, snap Snapshot, digest string) (Layers, error) {
	if err := s.hold(ctx, digest); err != nil {
		return Layers{}, err
	}
	l, err := s.loadLayers(digest)
	if err == nil && validDigest(snap.Digest) {
		if err = os.MkdirAll(filepath.Join(s.dir(snap.Digest), "layers"), 0o755); err == nil {
			err = os.WriteFile(filepath.Join(s.dir(snap.Digest), "layers", digest), nil, 0o644)
		}
	}
	if err != nil {
		s.letGo(digest)
		return Layers{}, err
	}
	s.touch(s.layersDir(digest))
	return l, nil
}

func layersDigest(snap Snapshot, key string) string {
	return hash("daybreak.layers.v1", filepath.Base(snap.GitDir), snap.Environment, key)
}

func mirrorOf(snap Snapshot) string { return strings.TrimSuffix(filepath.Base(snap.GitDir), ".git") }

func (s *Store) layersDir(digest string) string { return filepath.Join(s.cfg.Dir, "layers", digest) }

func (s *Store) loadLayers(digest string) (Layers, error) {
	dir := s.layersDir(digest)
	m, _, err := s.layersMeta(digest)
	if errors.Is(err, fs.ErrNotExist) {
		return Layers{}, &task.Error{Class: task.NotFound, Msg: "no prepared dependencies " + digest}
	}
	if isDamaged(err) { // as good as none
		s.cfg.Logger.Warn("damaged dependencies are made anew", "digest", digest, "err", err)
		return Layers{}, &task.Error{Class: task.NotFound, Msg: "no whole prepared dependencies " + digest, Err: err}
	}
	if err != nil {
		return Layers{}, err
	}
	l := Layers{Digest: digest, Left: m.Left, Undone: m.Undone, Record: m.Record}
	for name, at := range map[string]*string{"home": &l.Home, "work": &l.Work, "system": &l.System} {
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.IsDir() {
			*at = filepath.Join(dir, name)
		}
	}
	return l, nil
}

// layersMeta reads the record of layers and looks whether their directories are there.
func (s *Store) layersMeta(digest string) (m layersMeta, used time.Time, err error) {
	used, err = readRecord(s.layersDir(digest), &m)
	if err == nil && len(m.Record) == 0 {
		err = &damage{"its record does not say how they were made"}
	}
	for _, part := range m.Parts {
		if fi, serr := os.Lstat(filepath.Join(s.layersDir(digest), part)); err == nil && (serr != nil || !fi.IsDir()) {
			err = &damage{"its directory " + part + " is gone"}
		}
	}
	if err != nil {
		err = fmt.Errorf("prepared dependencies %s: %w", digest, err)
	}
	return m, used, err
}

// Making is a setup that is under way. Its directories are for sandboxes to fill.
type Making struct {
	Home, Work, System string

	store  *Store
	snap   Snapshot
	digest string
	dir    string
	begin  time.Time
	unlock func()
}

// BeginLayers waits until no other process prepares the same and takes what one has made
// meanwhile, or starts: exactly one of the results is set. What a dead process left is removed.
func (s *Store) BeginLayers(ctx context.Context, snap Snapshot, key string) (*Making, Layers, error) {
	digest := layersDigest(snap, key)
	unlock, err := s.lock(ctx, makeLock(kindLayers, digest))
	if err != nil {
		return nil, Layers{}, err
	}
	got, err := s.takeLayers(ctx, snap, digest)
	if err == nil {
		unlock()
		return nil, got, nil
	}
	m := &Making{store: s, snap: snap, digest: digest, begin: s.cfg.Now(), unlock: unlock}
	if task.ClassOf(err) == task.NotFound {
		err = m.open()
	}
	if err != nil {
		return nil, Layers{}, errors.Join(err, m.Abandon())
	}
	return m, Layers{}, nil
}

func (m *Making) open() error {
	left, err := filepath.Glob(filepath.Join(m.store.cfg.Dir, "layers", ".tmp-"+m.digest+"-*"))
	if err != nil {
		return err
	}
	for _, p := range left { // we hold the lock, so nobody fills them
		if err := removeTree(p); err != nil {
			return fmt.Errorf("remove what an interrupted setup left: %w", err)
		}
	}
	if m.dir, err = os.MkdirTemp(filepath.Join(m.store.cfg.Dir, "layers"), ".tmp-"+m.digest+"-"); err != nil {
		return err
	}
	if err := os.Chmod(m.dir, 0o755); err != nil {
		return err
	}
	m.Home, m.Work, m.System = filepath.Join(m.dir, "home"), filepath.Join(m.dir, "work"), filepath.Join(m.dir, "system")
	for _, d := range []string{m.Home, m.Work, m.System} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// Abandon removes everything and lets others try. It is idempotent and does nothing after
// [Making.Commit] succeeded.
func (m *Making) Abandon() error {
	if m.unlock == nil {
		return nil
	}
	defer func() { m.unlock(); m.unlock = nil }()
	if m.dir == "" {
		return nil
	}
	return removeTree(m.dir)
}

// Commit puts the filled directories in place, at once and for good, after it took out of Work
// what hides or changes a path that the base tracks, and any repository's own data. No sandbox
// may write to them any more. record is a JSON value. The layers are held; see [Store.Done].
func (m *Making) Commit(ctx context.Context, tree string, tracked []git.Entry, record []byte) (Layers, error) {
	left, undone, err := scrub(m.Work, tree, tracked)
	if err != nil {
		return Layers{}, fmt.Errorf("look through what setup left: %w", err)
	}
	names := 0
	for _, p := range left {
		names += len(p)
	}
	if names > maxLeft {
		return Layers{}, &task.Error{
			Class: task.Invalid, Msg: fmt.Sprintf("setup left %d files and directories beside those of the base", len(left)),
			Fix: "have it write to HOME or to one directory",
		}
	}
	var parts []string
	for _, d := range []string{m.Home, m.Work, m.System} {
		err := unix.Rmdir(d)
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			parts, err = append(parts, filepath.Base(d)), nil
		}
		if err != nil {
			return Layers{}, err
		}
	}
	now := m.store.cfg.Now()
	b, err := json.MarshalIndent(layersMeta{
		Mirror: mirrorOf(m.snap), Base: m.snap.Base, Left: left, Undone: undone, Record: record, Made: now.UTC(),
		Parts: parts, Millis: now.Sub(m.begin).Milliseconds(),
	}, "", "  ")
	if err != nil {
		return Layers{}, err
	}
	if err := os.WriteFile(filepath.Join(m.dir, "meta.json"), append(b, '\n'), 0o644); err != nil {
		return Layers{}, err
	}
	if err := syncAll(m.dir); err != nil {
		return Layers{}, err
	}
	if err := place(m.digest, m.dir, m.store.layersDir(m.digest), func() error { _, _, err := m.store.layersMeta(m.digest); return err }); err != nil {
		return Layers{}, fmt.Errorf("put the prepared dependencies in place: %w", err)
	}
	m.dir = ""
	m.unlock()
	m.unlock = nil
	l, err := m.store.takeLayers(ctx, m.snap, m.digest)
	l.Rebuilt = told(kindLayers, m.store.layersDir(m.digest))
	return l, err
}

// removeTree removes directories that a package manager made read-only as well.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	root, rerr := os.OpenRoot(dir)
	if rerr != nil {
		return err
	}
	defer root.Close()
	_ = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = root.Chmod(name, 0o700) // RemoveAll says what is still in the way
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// scrub makes an overlay's layer over the checkout harmless to what the base tracks. The layer
// was written by a stranger's code: directories are opened one by one, and no link is followed.
func scrub(layer, tree string, tracked []git.Entry) (left, undone []string, err error) {
	root, err := os.OpenRoot(layer)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	base, err := os.OpenRoot(tree)
	if err != nil {
		return nil, nil, err
	}
	defer base.Close()
	c := scrubber{layer: root, base: base, files: map[string]bool{}, dirs: map[string]bool{".": true}}
	for _, e := range tracked {
		if e.Mode != git.ModeSubmodule {
			c.files[e.Path] = true
		}
		for d := path.Dir(e.Path); !c.dirs[d]; d = path.Dir(d) {
			c.dirs[d] = true
		}
	}
	if err := root.RemoveAll(".git"); err != nil {
		return nil, nil, err
	}
	if err := c.dir("."); err != nil {
		return nil, nil, err
	}
	slices.Sort(c.left)
	slices.Sort(c.undone)
	return c.left, c.undone, nil
}

type scrubber struct {
	layer, base  *os.Root
	files, dirs  map[string]bool // of the base
	left, undone []string
}

// dir looks through a directory that the base has too.
func (c *scrubber) dir(name string) error {
	f, err := c.layer.Open(name)
	if err != nil {
		return err
	}
	hid, err := lift(f)
	entries, rerr := f.ReadDir(-1)
	if err := errors.Join(err, rerr, f.Close()); err != nil {
		return err
	}
	if hid {
		c.undone = append(c.undone, name+"/")
	}
	for _, e := range entries {
		p := path.Join(name, e.Name())
		switch {
		case c.files[p]:
			if !c.same(p) {
				c.undone = append(c.undone, p)
			}
			err = c.layer.RemoveAll(p)
		case e.Name() == ".git": // of a repository inside: programs would take it for the checkout's own
			err = c.layer.RemoveAll(p)
		case c.dirs[p] && e.IsDir():
			err = c.dir(p)
		case c.dirs[p]: // deleted, or something else in its place
			c.undone = append(c.undone, p+"/")
			err = c.layer.RemoveAll(p)
		case e.Type()&fs.ModeCharDevice != 0: // hides nothing
			err = c.layer.RemoveAll(p)
		case e.IsDir():
			c.left = append(c.left, p+"/")
		default:
			c.left = append(c.left, p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lift takes the marks off a directory of an overlay that hide what is below it (kernel's
// overlayfs.rst: "opaque", "redirect_dir"), and reports whether there were any.
func lift(dir *os.File) (hid bool, err error) {
	for _, space := range []string{"trusted", "user"} {
		for _, mark := range []string{"opaque", "redirect"} {
			name := space + ".overlay." + mark
			var buf [1]byte
			n, err := unix.Fgetxattr(int(dir.Fd()), name, buf[:])
			if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) {
				continue
			}
			if err != nil && !errors.Is(err, unix.ERANGE) {
				return hid, err
			}
			if n == 1 && buf[0] == 'x' { // "x": only that files in it may be marked, of newer kernels
				continue
			}
			if err := unix.Fremovexattr(int(dir.Fd()), name); err != nil {
				return hid, fmt.Errorf("remove %s: %w", name, err)
			}
			hid = true
		}
	}
	return hid, nil
}

// same reports whether a tracked path in the layer is what the base has: a package manager that
// writes a file anew with what was in it changed nothing.
func (c *scrubber) same(p string) bool {
	a, err := c.layer.Lstat(p)
	if err != nil {
		return false
	}
	b, err := c.base.Lstat(p)
	if err != nil || a.Mode().Type() != b.Mode().Type() {
		return false
	}
	switch {
	case a.Mode().Type() == fs.ModeSymlink:
		x, xerr := c.layer.Readlink(p)
		y, yerr := c.base.Readlink(p)
		return xerr == nil && yerr == nil && x == y
	case !a.Mode().IsRegular() || a.Size() != b.Size() || (a.Mode()^b.Mode())&0o111 != 0:
		return false
	}
	x, err := c.layer.Open(p)
	if err != nil {
		return false
	}
	defer x.Close()
	y, err := c.base.Open(p)
	if err != nil {
		return false
	}
	defer y.Close()
	return sameBytes(x, y)
}

func sameBytes(x, y io.Reader) bool {
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, xerr := io.ReadFull(x, a)
		m, yerr := io.ReadFull(y, b)
		if n != m || !bytes.Equal(a[:n], b[:m]) {
			return false
		}
		if xerr != nil || yerr != nil {
			return xerr == yerr // both at their end
		}
	}
}

// Owns reports whether the path is one that setup left, or lies below one. It is no work of
// whoever had the checkout afterwards.
func (l Layers) Owns(p string) bool {
	return slices.ContainsFunc(l.Left, func(left string) bool {
		return p == strings.TrimSuffix(left, "/") || strings.HasSuffix(left, "/") && strings.HasPrefix(p, left)
	})
}

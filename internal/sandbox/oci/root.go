package oci

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

const guestPath = sandbox.GuestPath

// Names below a sandbox's mount directory.
const (
	dirRoot  = "root"  // the container's root file system
	dirWork  = "w"     // memory: upper and scratch of the work tree
	dirHome  = "h"     // memory: upper and scratch of HOME
	dirLower = "l"     // idmapped clone of the tree
	dirX     = "xroot" // root file system of the exporter
)

// build makes all of a sandbox that is not a process: its mounts and its bundle.
func (s *box) build(spec sandbox.Spec, conf *specs.Spec) error {
	if err := s.buildRoot(spec); err != nil {
		return err
	}
	if conf.Hooks != nil {
		_, guest, err := s.r.share()
		if err != nil {
			return err
		}
		for i := range conf.Hooks.CreateContainer {
			conf.Hooks.CreateContainer[i].Path = guest
		}
	}
	return refused("bundle", "", writeBundle(s.path("bundle"), conf))
}

// buildRoot mounts everything the sandbox sees. Each mount point is made on fresh memory
// before any process of the sandbox exists.
func (s *box) buildRoot(spec sandbox.Spec) error {
	r := s.r
	etc, guest, err := r.share()
	if err != nil {
		return err
	}
	m := s.rec.Mounts
	if err := os.Mkdir(m, 0o710); err != nil {
		return refused("mount directory", "", err)
	}
	// The sandbox's root may pass, other users of the host may not.
	if err := errors.Join(os.Chown(m, 0, int(s.rec.IDBase)), os.Chmod(m, 0o710)); err != nil {
		return refused("mount directory", "", err)
	}
	for _, d := range []string{dirRoot, dirWork, dirHome, dirLower, dirFiles} {
		if err := os.Mkdir(s.path(d), 0o755); err != nil {
			return refused("mount directory", "", err)
		}
	}
	root := s.path(dirRoot)
	if err := mountTmpfs(root, 4<<20+sizeOfFiles(spec.Files), 4096, "755"); err != nil {
		return refused("root file system", "", err)
	}
	if err := errors.Join(skeleton(root, r.cfg.RootFS), s.fenceTree(root)); err != nil {
		return refused("root file system", "", err)
	}
	if err := attach(guest, filepath.Join(root, guestPath), attrRead, -1, false); err != nil {
		return refused("root file system", "", err)
	}
	maps := &idmaps{agent: r.stand.agent(s.rec.IDBase)}
	defer maps.close()
	own := spec
	spec.Files = withoutOwn(spec)
	if err := s.mountSystem(root, etc, spec, maps); err != nil {
		return err
	}
	if err := s.mountOwn(root, own); err != nil {
		return refused("files", "", err)
	}
	if err := s.rootFiles(root, spec); err != nil {
		return refused("files", "", err)
	}
	for i, f := range spec.Forwards {
		if err := s.attachForward(root, i, f); err != nil {
			return refused("forward of port "+strconv.Itoa(f.Port), forwardFix, err)
		}
	}
	if spec.Index != "" {
		if err := s.attachOperator(root, sandbox.Mount{Source: spec.Index, Target: sandbox.IndexDir}); err != nil {
			return refused("search index", "", err)
		}
	}
	for _, mount := range spec.Mounts {
		if err := s.attachOperator(root, mount); err != nil {
			return refused("mount "+mount.Target, "check the operator's mounts", err)
		}
	}
	if err := s.mountWork(spec, maps); err != nil {
		return err
	}
	if err := s.mountHome(spec, maps); err != nil {
		return err
	}
	if err := unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return refused("root file system", "", err)
	}
	return nil
}

// attachOperator adds one read-only directory or file of the operator.
func (s *box) attachOperator(root string, m sandbox.Mount) error {
	st, err := os.Stat(m.Source)
	if err != nil {
		return err
	}
	src, err := filepath.EvalSymlinks(m.Source)
	if err != nil {
		return err
	}
	dst := filepath.Join(root, m.Target)
	if st.IsDir() {
		err = os.MkdirAll(dst, 0o755)
	} else {
		err = errors.Join(os.MkdirAll(filepath.Dir(dst), 0o755), os.WriteFile(dst, nil, 0o644))
	}
	if err != nil {
		return err
	}
	for p := dst; err == nil && p != root; p = filepath.Dir(p) {
		err = s.r.stand.fence(p, s.rec.IDBase)
	}
	if err != nil {
		return err
	}
	return attach(src, dst, attrRead, -1, true)
}

// fenceTree fences all below root, which is not mounted upon yet.
func (s *box) fenceTree(root string) error {
	if !s.r.stand.Rootless {
		return nil
	}
	return filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
		return errors.Join(err, s.r.stand.fence(p, s.rec.IDBase))
	})
}

const overlayFix = "use a kernel from 5.19 on with overlayfs, and keep the state directory on ext4, xfs, btrfs or tmpfs"

// mountWork mounts the work tree: a read-only clone of the prepared tree, the layers over it
// and memory.
func (s *box) mountWork(spec sandbox.Spec, maps *idmaps) error {
	if err := s.uppers(dirWork, s.limits.WorkBytes); err != nil {
		return refused(placeWork, "", err)
	}
	if spec.Tree != "" {
		if err := s.r.stand.attachLayer(maps, spec.Tree, s.path(dirLower)); err != nil {
			return refused("idmapped mount", overlayFix, err)
		}
	}
	return s.mountStack(stack{place: placeWork, at: sandbox.WorkDir, dir: dirWork, base: []string{s.path(dirLower)}, lower: spec.Work.Lower}, maps)
}

// mountHome mounts HOME: the layers that earlier sandboxes filled and the files of this one.
func (s *box) mountHome(spec sandbox.Spec, maps *idmaps) error {
	if err := s.uppers(dirHome, s.limits.HomeBytes); err != nil {
		return refused(placeHome, "", err)
	}
	k := stack{place: placeHome, at: sandbox.HomeDir, dir: dirHome, base: []string{s.path(dirHome, "e")}, lower: spec.Home.Lower}
	if files := filesBelow(spec.Files, sandbox.HomeDir); len(files) > 0 {
		layer, agent := s.path(dirHome, "f"), s.r.stand.agent(s.rec.IDBase)
		if err := errors.Join(os.Lchown(layer, agent, agent), writeFiles(layer, files, agent)); err != nil {
			return refused("files", "", err)
		}
		k.top = []string{layer}
	}
	return s.mountStack(k, maps)
}

// idmaps makes idmapped clones for one sandbox, with one user namespace per owner of a layer.
type idmaps struct {
	agent int // host id of the sandbox's user
	made  map[[2]int]*os.File
	all   map[int]*os.File // of all ids of a sandbox, by the first of the layer
}

func (m *idmaps) close() {
	for _, f := range m.made {
		f.Close()
	}
	for _, f := range m.all {
		f.Close()
	}
}

// attachAll places a read-only clone of a directory of the root at dst, on which the ids from
// its owner's on are those of a sandbox from first on.
func (m *idmaps) attachAll(dir, dst string, first int) error {
	src, owner, err := layer(dir)
	if err != nil {
		return err
	}
	f := m.all[owner[0]]
	if f == nil {
		ids := rangeMappings(owner[0], first)
		if f, err = idmapOf(ids, ids); err != nil {
			return fmt.Errorf("user namespace: %w", err)
		}
		if m.all == nil {
			m.all = map[int]*os.File{}
		}
		m.all[owner[0]] = f
	}
	return attach(src, dst, attrRead, int(f.Fd()), false)
}

// attach places a read-only clone of dir at dst, on which the files of dir's owner belong to
// the sandbox's user.
func (m *idmaps) attach(dir, dst string) error {
	src, owner, err := layer(dir)
	if err != nil {
		return err
	}
	f := m.made[owner]
	if f == nil {
		if f, err = idmap(owner[0], owner[1], m.agent, m.agent); err != nil {
			return fmt.Errorf("user namespace: %w", err)
		}
		if m.made == nil {
			m.made = map[[2]int]*os.File{}
		}
		m.made[owner] = f
	}
	return attach(src, dst, attrRead, int(f.Fd()), false)
}

// layer resolves a directory that becomes a layer, and names its owner.
func layer(dir string) (src string, owner [2]int, err error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", owner, fmt.Errorf("%s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return "", owner, fmt.Errorf("%s is not a directory", dir)
	}
	src, err = filepath.EvalSymlinks(dir)
	return src, [2]int{int(st.Uid), int(st.Gid)}, err
}

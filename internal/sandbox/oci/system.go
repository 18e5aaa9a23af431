package oci

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

const (
	dirSystem = "y" // below a sandbox's mount directory: clones of the layers of its root
	systemFix = "use a kernel from 6.3 on, with the state directory and /usr on ext4, xfs or btrfs"
)

// systemDirs are the directories that layers of the root may change.
func systemDirs() []string { return []string{"usr", "etc", "var"} }

// systemCaps are what a package manager does as root of the sandbox's own user namespace: hand
// files over and become somebody else. None of them reaches beyond the ids of the sandbox.
func systemCaps() []string {
	return []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_SETUID", "CAP_SETGID"}
}

// layered reports whether there are layers over the root file system.
func layered(l sandbox.Layers) bool { return len(l.Lower) > 0 || l.Keep != "" }

// checkLayers refuses directories that cannot be layers.
func checkLayers(spec sandbox.Spec) error {
	var errs []error
	for _, p := range slices.Concat([]string{spec.Tree, spec.Work.Keep, spec.Home.Keep, spec.System.Keep}, spec.Work.Lower, spec.Home.Lower, spec.System.Lower) {
		if p != "" && !filepath.IsAbs(p) {
			errs = append(errs, fmt.Errorf("sandbox directory %q is not an absolute path", p))
		}
	}
	all := keeps(spec, "")
	for i, a := range all {
		for _, b := range all[:i] {
			if beneath(a.Dir, b.Dir) || beneath(b.Dir, a.Dir) {
				errs = append(errs, fmt.Errorf("kept directories %q and %q touch", b.Dir, a.Dir))
			}
		}
	}
	return errors.Join(errs...)
}

// noSystem refuses layers of the root to whom cannot have them: the host's files can be given
// to ids of a sandbox by root alone.
func (r *Runtime) noSystem(l sandbox.Layers) error {
	if !layered(l) {
		return nil
	}
	if r.holder != nil {
		return refused("system layers", "run the worker as root for setup that installs system packages, or have the operator install them on the host",
			errors.New("an ordinary user cannot give the host's files to a sandbox's root"))
	}
	return nil
}

// mountSystem places /usr, /etc and, where layers of the root are asked for, /var.
func (s *box) mountSystem(root, etc string, spec sandbox.Spec, maps *idmaps) error {
	files, err := s.rootLayers(etc, spec)
	if err != nil {
		return refused("files", "", err)
	}
	if layered(spec.System) {
		return s.mountSystemLayers(root, etc, spec.System, files, maps)
	}
	if err := attach(s.r.cfg.RootFS, filepath.Join(root, "usr"), attrRead, -1, true); err != nil {
		return refused("root file system", "", err)
	}
	etcs := []string{etc}
	if files["etc"] != "" {
		etcs = append(etcs, files["etc"])
	}
	return refused("/etc", overlayFix, s.r.stand.mountUnion(filepath.Join(root, "etc"), etcs))
}

// rootLayers makes the layers of the sandbox's own files, by the directory they belong to.
func (s *box) rootLayers(etc string, spec sandbox.Spec) (map[string]string, error) {
	below := filesBelow(spec.Files, "/etc")
	out := map[string]string{}
	dirs := []string{"etc"}
	if layered(spec.System) {
		below = append(below, filesBelow(spec.Files, "/var")...)
		dirs = append(dirs, "var")
	}
	if len(below) == 0 {
		return out, nil
	}
	if err := mountTmpfs(s.path(dirFiles), sizeOfFiles(below)+1<<20, 8*maxFiles, "755"); err != nil {
		return nil, err
	}
	if err := noLinkOn(etc, filesBelow(spec.Files, "/etc")); err != nil {
		return nil, err
	}
	for _, name := range dirs {
		dir, err := s.filesLayer(spec.Files, name)
		if err != nil {
			return nil, err
		}
		out[name] = dir
	}
	return out, nil
}

// mountSystemLayers joins the host's directories, the layers and, for setup, the directory
// that is kept. On all of them the sandbox's root is root.
func (s *box) mountSystemLayers(root, etc string, l sandbox.Layers, files map[string]string, maps *idmaps) error {
	var errs []error
	for _, d := range systemDirs() {
		errs = append(errs, os.MkdirAll(s.path(dirSystem, d), 0o755))
	}
	template, err := s.r.systemTemplate()
	if err := errors.Join(append(errs, err)...); err != nil {
		return refused("system layers", "", err)
	}
	keep, keeps := s.rec.kept(placeSystem)
	if keeps {
		if err := prepareSystemKeep(keep, int(s.rec.IDBase)); err != nil {
			return refused("system layers", "give System.Keep an empty directory, and the filled one as System.Lower", err)
		}
	}
	for name, dirs := range map[string][]string{
		"usr": {s.r.cfg.RootFS}, "etc": {etc, filepath.Join(template, "etc")}, "var": {filepath.Join(template, "var")},
	} {
		for _, dir := range l.Lower {
			dirs = append(dirs, filepath.Join(dir, name))
		}
		var lower []string
		for i, dir := range dirs {
			at := s.path(dirSystem, name, strconv.Itoa(i))
			if err := os.Mkdir(at, 0o755); err != nil {
				return refused("system layers", "", err)
			}
			if err := maps.attachAll(dir, at, int(s.rec.IDBase)); err != nil {
				return refused("system layers", systemFix, err)
			}
			lower = append(lower, at)
		}
		if files[name] != "" {
			lower = append(lower, files[name])
		}
		dst := filepath.Join(root, name)
		if keeps {
			err = s.r.stand.mountOverlay(dst, lower, filepath.Join(keep.Dir, name), filepath.Join(keep.Scratch, name))
		} else {
			err = s.r.stand.mountUnion(dst, lower)
		}
		if err != nil {
			return refused("system layers", overlayFix, fmt.Errorf("/%s: %w", name, err))
		}
	}
	return nil
}

// prepareSystemKeep makes the upper layers of the root's directories.
func prepareSystemKeep(k kept, owner int) error {
	if err := prepareKeep(k, owner); err != nil {
		return err
	}
	for _, name := range systemDirs() {
		dir := filepath.Join(k.Dir, name)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755), os.Lchown(dir, owner, owner), os.Mkdir(filepath.Join(k.Scratch, name), 0o700)); err != nil {
			return err
		}
	}
	return nil
}

// claim gives all below a kept directory to one id: a setup's root wrote it for commands that
// are not root.
func claim(dir string, owner int) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeCharDevice != 0 { // overlay's mark of what was removed
			return nil
		}
		return root.Lchown(name, owner, owner)
	})
}

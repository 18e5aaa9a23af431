package oci

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

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
	for i, a := range keeps(spec, "") {
		for _, b := range keeps(spec, "")[:i] {
			if beneath(a.Dir, b.Dir) || beneath(b.Dir, a.Dir) {
				errs = append(errs, fmt.Errorf("kept directories %q and %q touch", b.Dir, a.Dir))
			}
		}
	}
	return errors.Join(errs...)
}

// mountSystem places /usr and /etc.
func (s *box) mountSystem(root, etc string, spec sandbox.Spec) error {
	if layered(spec.System) {
		return refused("system layers", "", errors.New("not known yet"))
	}
	if err := attach(s.r.cfg.RootFS, filepath.Join(root, "usr"), attrRead, -1, true); err != nil {
		return refused("root file system", "", err)
	}
	etcs := []string{etc}
	if files := filesBelow(spec.Files, "/etc"); len(files) > 0 {
		if err := mountTmpfs(s.path(dirFiles), sizeOfFiles(files)+1<<20, 4*maxFiles, "755"); err != nil {
			return refused("files", "", err)
		}
		if err := noLinkOn(etc, files); err != nil {
			return refused("files", "", err)
		}
		layer, err := s.filesLayer(spec.Files, "etc")
		if err != nil {
			return refused("files", "", err)
		}
		etcs = append(etcs, layer)
	}
	return refused("/etc", overlayFix, s.r.stand.mountUnion(filepath.Join(root, "etc"), etcs))
}

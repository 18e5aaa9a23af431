package oci

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// kept is a host directory that receives what a sandbox writes to one of its places.
type kept struct {
	Place   string `json:"place"`   // "work tree", "home" or "system"
	Dir     string `json:"dir"`     //
	Scratch string `json:"scratch"` // overlay's own, beside it and gone with the sandbox
}

const (
	placeWork   = "work tree"
	placeHome   = "home"
	placeSystem = "system"
)

// keeps lists what a sandbox of that id keeps.
func keeps(spec sandbox.Spec, id string) []kept {
	var out []kept
	for _, k := range []struct{ place, mark, dir string }{
		{placeWork, "w", spec.Work.Keep}, {placeHome, "h", spec.Home.Keep}, {placeSystem, "s", spec.System.Keep},
	} {
		if k.dir != "" {
			dir := filepath.Clean(k.dir)
			out = append(out, kept{k.place, dir, filepath.Join(filepath.Dir(dir), ".daybreak-work-"+id+"-"+k.mark)})
		}
	}
	return out
}

func (r record) kept(place string) (kept, bool) {
	for _, k := range r.Kept {
		if k.Place == place {
			return k, true
		}
	}
	return kept{}, false
}

// stack is one writable place of a sandbox: an overlay.
type stack struct {
	place string
	at    string   // inside
	dir   string   // its memory below the sandbox's mounts: dirWork or dirHome
	base  []string // lowest layers, in place already
	lower []string // host directories over them
	top   []string // layers of ours over those, in place already
}

// mountStack joins the layers of a place under memory, or under the directory that is kept.
func (s *box) mountStack(k stack, maps *idmaps) error {
	lower := slices.Clone(k.base)
	for i, dir := range k.lower {
		at := s.path(k.dir + strconv.Itoa(i))
		if err := os.Mkdir(at, 0o755); err != nil {
			return refused(k.place, "", err)
		}
		if err := s.r.stand.attachLayer(maps, dir, at); err != nil {
			return refused("idmapped mount", overlayFix, err)
		}
		lower = append(lower, at)
	}
	lower = append(lower, k.top...)
	upper, work := s.path(k.dir, "u"), s.path(k.dir, "s")
	if keep, ok := s.rec.kept(k.place); ok {
		agent := s.r.stand.agent(s.rec.IDBase)
		if err := prepareKeep(keep, agent); err != nil {
			return refused(k.place, "give it an empty directory to keep, and the filled one as a lower layer", err)
		}
		upper, work = keep.Dir, keep.Scratch
	}
	err := s.r.stand.mountOverlay(filepath.Join(s.path(dirRoot), k.at), lower, upper, work)
	return refused("overlay", overlayFix, err)
}

// workLowers are the layers below what the sandbox changed in its work tree, lowest first.
func (s *box) workLowers() []string {
	out := []string{s.path(dirLower)}
	for i := 0; ; i++ {
		at := s.path(dirWork + strconv.Itoa(i))
		if _, err := os.Lstat(at); err != nil {
			return out
		}
		out = append(out, at)
	}
}

// workUpper is the layer with what the sandbox changed in its work tree.
func (s *box) workUpper() string {
	if k, ok := s.rec.kept(placeWork); ok {
		return k.Dir
	}
	return s.path(dirWork, "u")
}

// prepareKeep hands an empty host directory to an id, with overlay's scratch beside it, on the
// same file system.
func prepareKeep(k kept, owner int) error {
	if err := os.MkdirAll(k.Dir, 0o700); err != nil {
		return err
	}
	st, err := os.Lstat(k.Dir)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return fmt.Errorf("%s is not a directory", k.Dir)
	}
	entries, err := os.ReadDir(k.Dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty", k.Dir)
	}
	if err := os.Mkdir(k.Scratch, 0o700); err != nil {
		return err
	}
	return errors.Join(os.Chmod(k.Dir, 0o755), os.Lchown(k.Dir, owner, owner))
}

// uppers mounts memory of at most size bytes at name: u is an upper layer that the sandbox
// owns, s overlay's scratch, e an empty lower layer, f a layer for files of ours.
func (s *box) uppers(name string, size int64) error {
	dir := s.path(name)
	if err := mountTmpfs(dir, size, inodes(size), "700"); err != nil {
		return err
	}
	for _, d := range []string{"u", "s", "e", "f"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	agent := s.r.stand.agent(s.rec.IDBase)
	return os.Chown(filepath.Join(dir, "u"), agent, agent)
}

// mountUnion joins lower layers, lowest first, read-only at dst.
func (st standing) mountUnion(dst string, lower []string) error {
	if len(lower) == 1 {
		return attach(lower[0], dst, attrRead, -1, false)
	}
	return st.mountOverlay(dst, lower, "", "")
}

// layerFD opens a layer for the options of an overlay mount.
func layerFD(dir string) (int, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", dir, err)
	}
	return fd, nil
}

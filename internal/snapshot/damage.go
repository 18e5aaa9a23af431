package snapshot

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// damage is why a snapshot or layers that are in place cannot be used. They count as absent: who
// needs them makes them anew.
type damage struct{ why string }

func (d *damage) Error() string { return d.why }

func isDamaged(err error) bool {
	var d *damage
	return errors.As(err, &d)
}

// readRecord reads the meta.json of a snapshot or of layers. [fs.ErrNotExist]: there is no such
// thing.
func readRecord(dir string, into any) (used time.Time, err error) {
	at := filepath.Join(dir, "meta.json")
	b, err := os.ReadFile(at)
	if errors.Is(err, fs.ErrNotExist) {
		if _, derr := os.Stat(dir); derr != nil {
			return used, fs.ErrNotExist
		}
		if b, err = os.ReadFile(at); errors.Is(err, fs.ErrNotExist) { // it is none that came just now
			return used, &damage{"its record is gone"}
		}
	}
	if err != nil {
		return used, err
	}
	fi, err := os.Stat(at)
	if err != nil {
		return used, err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fi.ModTime(), &damage{"its record cannot be read: " + oneLine(err)}
	}
	return fi.ModTime(), nil
}

// passOver says that one of the things on disk does not count. A damaged one is put aside unless
// somebody has it or makes it anew. read looks at it again.
func (s *Store) passOver(kind, digest, dir string, read func() error, err error) {
	s.cfg.Logger.Warn("what is kept cannot be read and is passed over", "kind", kind, "digest", digest, "err", err)
	if !isDamaged(err) {
		return
	}
	for _, lock := range []string{makeLock(kind, digest), useLock(digest)} {
		unlock, err := s.tryLock(lock)
		if err != nil || unlock == nil {
			return
		}
		defer unlock(false)
	}
	if err := read(); !isDamaged(err) {
		return
	}
	if err := putAside(digest, dir, err); err != nil {
		s.cfg.Logger.Warn("what is damaged cannot be put aside", "kind", kind, "digest", digest, "err", err)
	}
}

// asidePrefix begins the names of directories with something damaged in them.
const asidePrefix = ".broken-"

// putAside moves a damaged snapshot or damaged layers away, with a word for who makes them anew.
// Sandboxes that stand on them keep them.
func putAside(digest, dir string, why error) error {
	away, err := os.MkdirTemp(filepath.Dir(dir), asidePrefix+digest+"-")
	if err != nil {
		return err
	}
	if err := os.Rename(dir, filepath.Join(away, "gone")); err != nil {
		return errors.Join(err, os.Remove(away))
	}
	return os.WriteFile(filepath.Join(away, "why"), []byte(oneLine(why)), 0o600)
}

// place renames what was made into its place. What stands there is what another process made, or
// is damaged and gives way: read says which. The lock of who makes it is held.
func place(digest, made, dir string, read func() error) error {
	err := os.Rename(made, dir)
	if !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	why := read()
	if !isDamaged(why) {
		return why
	}
	if err := putAside(digest, dir, why); err != nil {
		return err
	}
	return os.Rename(made, dir)
}

// told takes the word that something was damaged before it was made anew, "" when there is none.
func told(kind, dir string) string {
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), asidePrefix+filepath.Base(dir)+"-*", "why")) // the pattern is well-formed
	word := ""
	for _, p := range left {
		if b, err := os.ReadFile(p); err == nil && os.Remove(p) == nil {
			word = map[string]string{kindSnapshot: "the snapshot was damaged: ", kindLayers: "the prepared dependencies were damaged: "}[kind] + string(b)
		}
	}
	return word
}

// aside reports whether a directory is one of [putAside].
func aside(p string) bool {
	name, ok := strings.CutPrefix(filepath.Base(p), asidePrefix)
	return ok && len(name) > 32 && validDigest(name[:32])
}

// forsaken reports whether nobody needs what was put aside: no sandbox stands on it, and its
// word was taken. With all the word does not matter.
func (s *Store) forsaken(p string, all bool) bool {
	if _, err := os.Lstat(filepath.Join(p, "why")); err == nil && !all {
		return false
	}
	unlock, err := s.tryLock(useLock(filepath.Base(p)[len(asidePrefix):][:32]))
	if err != nil || unlock == nil {
		return false
	}
	unlock(true)
	return true
}

// seal sums up what can be told of a checkout without looking at its files: the names at its top,
// its own repository's references and packs, and the size and the checksum of its index.
func seal(tree string) (string, error) {
	own := filepath.Join(tree, ".git")
	var parts []string
	for _, name := range []string{"HEAD", "config", "refs/heads/main"} {
		b, err := os.ReadFile(filepath.Join(own, name))
		if err != nil {
			return "", err
		}
		parts = append(parts, name, string(b))
	}
	index, err := os.Open(filepath.Join(own, "index"))
	if err != nil {
		return "", err
	}
	defer index.Close()
	size, err := index.Seek(0, io.SeekEnd)
	if err != nil {
		return "", err
	}
	end := make([]byte, min(size, 20))
	if _, err := index.ReadAt(end, size-int64(len(end))); err != nil {
		return "", err
	}
	parts = append(parts, "index", fmt.Sprint(size), hex.EncodeToString(end))
	for _, dir := range []string{tree, filepath.Join(own, "objects", "pack")} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return "", err
		}
		parts = append(parts, filepath.Base(dir))
		for _, e := range entries {
			parts = append(parts, e.Name(), e.Type().String())
			if dir == tree {
				continue
			}
			fi, err := e.Info()
			if err != nil {
				return "", err
			}
			parts = append(parts, fmt.Sprint(fi.Size()))
		}
	}
	return hash(parts...), nil
}

// whole compares a snapshot's checkout with what was laid out, as far as that is told cheaply.
func whole(dir string, m meta) error {
	got, err := seal(filepath.Join(dir, "tree"))
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		return &damage{"its checkout lacks " + strings.TrimPrefix(pathOf(err), dir+"/")}
	case err != nil:
		return err
	case m.Seal != "" && got != m.Seal:
		return &damage{"its checkout is not what was laid out"}
	}
	return nil
}

func pathOf(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Path
	}
	return "files"
}

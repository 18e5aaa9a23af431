package git

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // git's object ids are SHA-1
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// A checkout's objects are in packs of about the same size, so that one which is advanced from it
// shares those of which every object is its own too, and has the others written anew.
const (
	leastPack = 1 << 20 // bytes; git makes no smaller ones on purpose
	manyPacks = 32      // of one checkout, about
)

// packSize is how large a pack may be that is made of what gitdir has.
func packSize(gitdir string) (int64, error) {
	packs, err := filepath.Glob(filepath.Join(gitdir, "objects", "pack", "*.pack"))
	if err != nil {
		return 0, err
	}
	total := int64(0)
	for _, p := range packs {
		if fi, err := os.Stat(p); err == nil { // it may have been packed with others meanwhile
			total += fi.Size()
		}
	}
	return max(leastPack, total/manyPacks), nil
}

// sharePacks gives dest the objects with these ids and no other: whole packs of from by hard
// links, the rest out of the mirror. ids are in the order in which they are to be written.
func (g *Git) sharePacks(ctx context.Context, gitdir, from, dest string, ids []string) error {
	size, err := packSize(gitdir)
	if err != nil {
		return err
	}
	missing := make(map[string]bool, len(ids))
	for _, id := range ids {
		missing[id] = true
	}
	packs, err := filepath.Glob(filepath.Join(from, ".git", "objects", "pack", "*.pack"))
	if err != nil {
		return err
	}
	for _, p := range packs {
		has, err := shared(p, size/4, missing)
		if err != nil {
			return err
		}
		if has == nil {
			continue
		}
		for _, ext := range []string{".pack", ".idx"} {
			name := strings.TrimSuffix(p, ".pack") + ext
			if err := os.Link(name, filepath.Join(dest, ".git", "objects", "pack", filepath.Base(name))); err != nil {
				return unlinkable(name, err)
			}
		}
		for _, id := range has {
			delete(missing, id)
		}
	}
	var in bytes.Buffer
	for _, id := range ids {
		if missing[id] {
			in.WriteString(id + "\n")
			delete(missing, id)
		}
	}
	if in.Len() == 0 {
		return nil
	}
	return g.packInto(ctx, gitdir, dest, &in, size)
}

// shared are the objects of a pack if all of them are wanted and it is not a small one: of those
// there would be ever more. nil: it is not to be shared.
func shared(pack string, least int64, wanted map[string]bool) ([]string, error) {
	fi, err := os.Stat(pack)
	if err != nil {
		return nil, unlinkable(pack, err)
	}
	if fi.Size() < least {
		return nil, nil
	}
	b, err := os.ReadFile(strings.TrimSuffix(pack, ".pack") + ".idx")
	if err != nil {
		return nil, unlinkable(pack, err)
	}
	ids, err := readPackIndex(b)
	if err != nil {
		return nil, &task.Error{Class: task.Unavailable, Msg: filepath.Base(pack) + " cannot be shared", Err: err}
	}
	for _, id := range ids {
		if !wanted[id] {
			return nil, nil
		}
	}
	return ids, nil
}

var errPackIndex = errors.New("the index of a pack is damaged or of an unknown form")

// readPackIndex reads the object ids of a pack's index of version 2 (gitformat-pack(5)).
func readPackIndex(b []byte) ([]string, error) {
	const head, fan = 8, 256 * 4
	if len(b) < head+fan+2*sha1.Size || string(b[:head]) != "\xfftOc\x00\x00\x00\x02" {
		return nil, errPackIndex
	}
	if sum := sumOf(b[:len(b)-sha1.Size]); !bytes.Equal(sum[:], b[len(b)-sha1.Size:]) {
		return nil, errPackIndex
	}
	n := int(binary.BigEndian.Uint32(b[head+fan-4:]))
	b = b[head+fan:]
	if n == 0 || n > len(b)/sha1.Size {
		return nil, errPackIndex
	}
	ids := make([]string, n)
	for i := range ids {
		ids[i] = hex.EncodeToString(b[i*sha1.Size : (i+1)*sha1.Size])
	}
	return ids, nil
}

// objects are the ids of a commit, of its directories and of its files, in that order; nil when
// one of the directories' is not known.
func objects(commit string, dirs []*directory, trees map[string]string, entries []dirEntry) []string {
	out := make([]string, 0, 1+len(dirs)+len(entries))
	out = append(out, commit)
	for _, d := range dirs {
		if trees[d.path] == "" {
			return nil
		}
		out = append(out, trees[d.path])
	}
	for i := range entries {
		if entries[i].mode() != ModeSubmodule {
			out = append(out, hex.EncodeToString(entries[i].id[:]))
		}
	}
	return out
}

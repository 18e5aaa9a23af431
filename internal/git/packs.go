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
)

// A checkout's objects are in packs of about the same size, so that one which is advanced from it
// shares those of which every object is its own too, and has the others copied in part or written anew.
const (
	leastPack = 1 << 20  // bytes; git makes no smaller ones on purpose
	manyPacks = 32       // of one checkout, about
	shrinks   = 4        // times, that text does in a pack, at least
	mostTrim  = 64 << 20 // bytes of a pack that is read into memory
)

// packSize is how large a pack of a checkout of so many bytes may be.
func packSize(bytes int64) int64 { return max(leastPack, bytes/shrinks/manyPacks) }

// sharePacks gives dest the objects with these ids and no other: whole packs of from by hard
// links, packs of which most is wanted without the rest, and what is left out of the mirror, in
// packs of size at most. ids are in the order in which they are to be written.
func (g *Git) sharePacks(ctx context.Context, gitdir, from, dest string, size int64, ids []string) error {
	missing := make(map[objectID]bool, len(ids))
	for _, id := range ids {
		missing[rawID(id)] = true
	}
	packs, err := filepath.Glob(filepath.Join(from, ".git", "objects", "pack", "*.pack"))
	if err != nil {
		return err
	}
	shared := make([][]objectID, len(packs))
	if err := each(ctx, packs, func(i int) (err error) {
		shared[i], err = sharePack(packs[i], filepath.Join(dest, ".git", "objects", "pack"), size/4, missing)
		return err
	}); err != nil {
		return err
	}
	for _, ids := range shared {
		for _, id := range ids {
			delete(missing, id)
		}
	}
	var in bytes.Buffer
	for _, id := range ids {
		if raw := rawID(id); missing[raw] {
			in.WriteString(id + "\n")
			delete(missing, raw)
		}
	}
	if in.Len() == 0 {
		return nil
	}
	return g.packInto(ctx, gitdir, dest, &in, size)
}

// sharePack puts the objects of a pack that are wanted into dir, unless it is a small one, of which
// there would be ever more, or few of them are, or it is huge; and says which those are.
func sharePack(pack, dir string, least int64, wanted map[objectID]bool) ([]objectID, error) {
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
	objects, err := readPackIndex(b)
	if err != nil {
		return nil, nil // damaged, or for a huge file: the mirror has the same
	}
	has := make([]objectID, 0, len(objects))
	for _, o := range objects {
		if wanted[o.id] {
			has = append(has, o.id)
		}
	}
	switch {
	case len(has) == len(objects):
		return has, linkPack(pack, dir)
	case 2*len(has) < len(objects) || fi.Size() > mostTrim:
		return nil, nil
	}
	b, err = os.ReadFile(pack)
	if err != nil {
		return nil, unlinkable(pack, err)
	}
	if has, err = trimPack(b, objects, func(id objectID) bool { return wanted[id] }, dir); errors.Is(err, errPack) {
		return nil, nil
	}
	return has, err
}

func linkPack(pack, dir string) error {
	for _, ext := range []string{".pack", ".idx"} {
		name := strings.TrimSuffix(pack, ".pack") + ext
		if err := os.Link(name, filepath.Join(dir, filepath.Base(name))); err != nil {
			return unlinkable(name, err)
		}
	}
	return nil
}

var errPackIndex = errors.New("the index of a pack is damaged or of an unknown form")

// objectID is a SHA-1, which is what mirrors have.
type objectID [sha1.Size]byte

// rawID is that of 40 hexadecimal digits.
func rawID(id string) (raw objectID) {
	_, _ = hex.Decode(raw[:], []byte(id[:2*sha1.Size])) // ids come from git or from an index
	return raw
}

// packed is an object of a pack.
type packed struct {
	id  objectID
	at  uint32 // offset of its entry in the pack
	sum uint32 // CRC-32 of its entry
}

// readPackIndex reads a pack's index of version 2 (gitformat-pack(5)), of a pack of less than 2 GiB.
func readPackIndex(b []byte) ([]packed, error) {
	const head, fan, each = 8, 256 * 4, sha1.Size + 4 + 4
	if len(b) < head+fan+2*sha1.Size || string(b[:head]) != "\xfftOc\x00\x00\x00\x02" {
		return nil, errPackIndex
	}
	if sum := sumOf(b[:len(b)-sha1.Size]); !bytes.Equal(sum[:], b[len(b)-sha1.Size:]) {
		return nil, errPackIndex
	}
	n := int(binary.BigEndian.Uint32(b[head+fan-4:]))
	if b = b[head+fan : len(b)-2*sha1.Size]; n == 0 || len(b)%each != 0 || n != len(b)/each {
		return nil, errPackIndex
	}
	sums, offsets := b[n*sha1.Size:], b[n*(sha1.Size+4):]
	out := make([]packed, n)
	for i := range out {
		copy(out[i].id[:], b[i*sha1.Size:])
		out[i].sum, out[i].at = binary.BigEndian.Uint32(sums[4*i:]), binary.BigEndian.Uint32(offsets[4*i:])
	}
	return out, nil
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

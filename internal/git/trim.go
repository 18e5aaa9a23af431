package git

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // git's object ids and checksums are SHA-1
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// errPack says that a pack is not what its index says, or of a form that git does not write.
var errPack = errors.New("a pack is damaged or of an unknown form")

const (
	packHead = 12

	// Types of a pack's entries that are made of another object.
	offsetDelta = 6
	refDelta    = 7
)

// trimPack writes a pack without some of its objects, and its index, into dir: entry for entry as
// it was, but for how far back the ones are that a difference is from (gitformat-pack(5)). An
// object that is a difference from one that goes, or from one that is named, goes as well. It
// compares the checksums of what it copies, and says which objects stayed; with none it writes nothing.
func trimPack(b []byte, objects []packed, keep func(objectID) bool, dir string) ([]objectID, error) {
	end := len(b) - sha1.Size
	if end < packHead || len(b) > math.MaxInt32 || string(b[:8]) != "PACK\x00\x00\x00\x02" || int(binary.BigEndian.Uint32(b[8:])) != len(objects) {
		return nil, errPack
	}
	objects = slices.Clone(objects)
	slices.SortFunc(objects, func(x, y packed) int { return int(int64(x.at) - int64(y.at)) })
	moved := make(map[uint32]uint32, len(objects)) // offsets of entries that stay: there, here
	out, stay := make([]byte, packHead, len(b)), []packed{}
	copy(out, b[:8])
	for i, o := range objects {
		next := uint32(end)
		if i+1 < len(objects) {
			next = objects[i+1].at
		}
		if o.at < packHead || o.at >= next || int(next) > end {
			return nil, errPack
		}
		entry := b[o.at:next]
		if crc32.ChecksumIEEE(entry) != o.sum {
			return nil, errPack
		}
		if !keep(o.id) {
			continue
		}
		head, base, rest, err := entryHead(entry, o.at)
		if err != nil {
			return nil, err
		}
		at := uint32(len(out))
		switch kind := head[0] >> 4 & 7; kind {
		case refDelta:
			continue
		case offsetDelta:
			here, ok := moved[base]
			if !ok {
				continue
			}
			out = append(appendDistance(append(out, head...), at-here), rest...)
		default:
			out = append(out, entry...)
		}
		moved[o.at] = at
		stay = append(stay, packed{o.id, at, crc32.ChecksumIEEE(out[at:])})
	}
	if len(stay) == 0 {
		return nil, nil
	}
	binary.BigEndian.PutUint32(out[8:], uint32(len(stay)))
	sum := sumOf(out)
	ids := make([]objectID, len(stay))
	for i, o := range stay {
		ids[i] = o.id
	}
	at := filepath.Join(dir, "pack-"+hex.EncodeToString(sum[:]))
	return ids, errors.Join(writeNew(at+".pack", append(out, sum[:]...)), writeNew(at+".idx", writePackIndex(stay, sum)))
}

// writeNew writes a file that is not there: one that is may be another checkout's as well.
func writeNew(name string, b []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// entryHead takes an entry that begins at an offset apart: its type and size, where the entry is
// that it is a difference from, if it is one, and what comes after both.
func entryHead(entry []byte, at uint32) (head []byte, base uint32, rest []byte, err error) {
	n := slices.IndexFunc(entry, func(c byte) bool { return c&0x80 == 0 }) + 1
	if n == 0 || n > 10 {
		return nil, 0, nil, errPack
	}
	if head, rest = entry[:n], entry[n:]; head[0]>>4&7 != offsetDelta {
		return head, 0, rest, nil
	}
	distance := uint64(0)
	for i, c := range rest {
		if i > 4 {
			break
		}
		if i > 0 {
			distance++
		}
		if distance = distance<<7 | uint64(c&0x7f); c&0x80 != 0 {
			continue
		}
		if distance == 0 || distance > uint64(at) {
			break
		}
		return head, at - uint32(distance), rest[i+1:], nil
	}
	return nil, 0, nil, errPack
}

// appendDistance is a distance as an entry has it.
func appendDistance(b []byte, distance uint32) []byte {
	var text [5]byte
	i := len(text) - 1
	text[i] = byte(distance & 0x7f)
	for distance >>= 7; distance > 0; distance >>= 7 {
		distance--
		i--
		text[i] = byte(distance&0x7f) | 0x80
	}
	return append(b, text[i:]...)
}

// writePackIndex is [readPackIndex] the other way round.
func writePackIndex(objects []packed, pack [sha1.Size]byte) []byte {
	objects = slices.Clone(objects)
	slices.SortFunc(objects, func(x, y packed) int { return bytes.Compare(x.id[:], y.id[:]) })
	b := []byte("\xfftOc\x00\x00\x00\x02")
	n := 0
	for first := range 256 {
		for n < len(objects) && int(objects[n].id[0]) == first {
			n++
		}
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	for _, o := range objects {
		b = append(b, o.id[:]...)
	}
	for _, o := range objects {
		b = binary.BigEndian.AppendUint32(b, o.sum)
	}
	for _, o := range objects {
		b = binary.BigEndian.AppendUint32(b, o.at)
	}
	b = append(b, pack[:]...)
	sum := sumOf(b)
	return append(b, sum[:]...)
}

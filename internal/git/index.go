package git

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // git's checksums are SHA-1
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// dirEntry is one entry of the index of a checkout (gitformat-index(5)). Of what the file system
// says about a file, stat is what the index keeps: times, device, inode, mode, owner and size.
type dirEntry struct {
	stat [40]byte
	id   [20]byte
	path string
}

func (e *dirEntry) mode() uint32 { return binary.BigEndian.Uint32(e.stat[24:]) }

func (e *dirEntry) size() int64 { return int64(binary.BigEndian.Uint32(e.stat[36:])) }

func (e *dirEntry) entry() Entry {
	out := Entry{Path: e.path, Mode: e.mode(), ID: hex.EncodeToString(e.id[:])}
	if out.Mode != ModeSubmodule {
		out.Size = e.size()
	}
	return out
}

// setStat notes what a file is like now, with the time that every file of a checkout has.
func (e *dirEntry) setStat(st *unix.Stat_t) {
	mode := e.mode()
	for i, n := range []uint32{
		uint32(st.Ctim.Sec), uint32(st.Ctim.Nsec), checkoutTime, 0, uint32(st.Dev), uint32(st.Ino), mode, st.Uid, st.Gid, uint32(st.Size),
	} {
		binary.BigEndian.PutUint32(e.stat[4*i:], n)
	}
}

// newEntry is an entry of a file that was not written yet.
func newEntry(d PathDiff) (e dirEntry, err error) {
	e.path = d.Path
	binary.BigEndian.PutUint32(e.stat[24:], d.NewMode)
	if n, err := hex.Decode(e.id[:], []byte(d.NewID)); err != nil || n != len(e.id) {
		return e, fmt.Errorf("%q is no object id", d.NewID)
	}
	return e, nil
}

// errIndex says that an index is not one that a checkout of ours has.
var errIndex = errors.New("the index of a checkout is damaged or of an unknown form")

const (
	indexHead  = 12
	entryFixed = 62
)

// readIndex reads a whole index of version 2. trees are the ids of the directories ("" is the
// root) as far as the index knows all of them, else nil.
func readIndex(b []byte) (entries []dirEntry, trees map[string]string, err error) {
	body := len(b) - sha1.Size
	if body < indexHead || string(b[:4]) != "DIRC" || binary.BigEndian.Uint32(b[4:]) != 2 {
		return nil, nil, errIndex
	}
	if sum := sumOf(b[:body]); !bytes.Equal(sum[:], b[body:]) {
		return nil, nil, errIndex
	}
	n := int(binary.BigEndian.Uint32(b[8:]))
	b = b[:body]
	if n > len(b)/entryFixed {
		return nil, nil, errIndex
	}
	at := indexHead
	entries = make([]dirEntry, n)
	for i := range entries {
		e := &entries[i]
		if len(b)-at < entryFixed {
			return nil, nil, errIndex
		}
		copy(e.stat[:], b[at:])
		copy(e.id[:], b[at+40:])
		// Anything but a name's length is a stage, or a mark that no checkout of ours has.
		if flags := binary.BigEndian.Uint16(b[at+60:]); flags&0xf000 != 0 {
			return nil, nil, errIndex
		}
		end := bytes.IndexByte(b[at+entryFixed:], 0)
		if end <= 0 {
			return nil, nil, errIndex
		}
		e.path = string(b[at+entryFixed : at+entryFixed+end])
		if i > 0 && entries[i-1].path >= e.path {
			return nil, nil, errIndex
		}
		at += (entryFixed + end + 8) &^ 7
		if at > len(b) {
			return nil, nil, errIndex
		}
	}
	for len(b)-at >= 8 {
		name, size := string(b[at:at+4]), int(binary.BigEndian.Uint32(b[at+4:]))
		if at += 8; size > len(b)-at || name[0] < 'A' || name[0] > 'Z' {
			return nil, nil, errIndex
		}
		if name == "TREE" {
			trees = readTrees(b[at : at+size])
		}
		at += size
	}
	if at != len(b) {
		return nil, nil, errIndex
	}
	return entries, trees, nil
}

func sumOf(b []byte) [sha1.Size]byte { return sha1.Sum(b) } //nolint:gosec // see above

// readTrees reads the index's own record of directories; nil when it does not know one of them.
func readTrees(b []byte) map[string]string {
	out := map[string]string{}
	type level struct {
		path string
		left int // directories in it that are still to come
	}
	var above []level
	for len(b) > 0 {
		name, rest, ok := bytes.Cut(b, []byte{0})
		line, rest, ok2 := bytes.Cut(rest, []byte{'\n'})
		count, subs, ok3 := strings.Cut(string(line), " ")
		n, err := strconv.Atoi(count)
		k, err2 := strconv.Atoi(subs)
		if !ok || !ok2 || !ok3 || err != nil || err2 != nil || n < 0 || k < 0 || len(rest) < sha1.Size {
			return nil
		}
		for len(above) > 0 && above[len(above)-1].left == 0 {
			above = above[:len(above)-1]
		}
		p := string(name)
		if len(above) > 0 {
			up := &above[len(above)-1]
			up.left--
			p = join(up.path, p)
		} else if len(out) > 0 || p != "" {
			return nil
		}
		out[p] = hex.EncodeToString(rest[:sha1.Size])
		above = append(above, level{p, k})
		b = rest[sha1.Size:]
	}
	return out
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// writeIndex is the file of these entries, which are sorted. trees are the ids of all their
// directories, or nil: then git finds them out when it needs them.
func writeIndex(entries []dirEntry, trees map[string]string) []byte {
	b := make([]byte, 0, len(entries)*(entryFixed+60)+1<<16)
	b = append(b, "DIRC"...)
	b = binary.BigEndian.AppendUint32(b, 2)
	b = binary.BigEndian.AppendUint32(b, uint32(len(entries)))
	for i := range entries {
		e := &entries[i]
		b = append(b, e.stat[:]...)
		b = append(b, e.id[:]...)
		b = binary.BigEndian.AppendUint16(b, uint16(min(len(e.path), 0xfff)))
		b = append(b, e.path...)
		b = append(b, make([]byte, 8-(entryFixed+len(e.path))%8)...)
	}
	if text, ok := writeTrees(entries, trees); ok {
		b = append(b, "TREE"...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
		b = append(b, text...)
	}
	sum := sumOf(b)
	return append(b, sum[:]...)
}

// writeTrees is [readTrees] the other way round; ok is false when an id is missing.
func writeTrees(entries []dirEntry, trees map[string]string) (text []byte, ok bool) {
	var walk func(dir, name string, in []dirEntry) bool
	walk = func(dir, name string, in []dirEntry) bool {
		id, err := hex.DecodeString(trees[dir])
		if err != nil || len(id) != sha1.Size {
			return false
		}
		type sub struct {
			name string
			in   []dirEntry
		}
		var subs []sub
		from := len(dir)
		if dir != "" {
			from++
		}
		for i := 0; i < len(in); {
			name, _, below := strings.Cut(in[i].path[from:], "/")
			if !below {
				i++
				continue
			}
			end, prefix := i+1, name+"/"
			for end < len(in) && strings.HasPrefix(in[end].path[from:], prefix) {
				end++
			}
			subs = append(subs, sub{name, in[i:end]})
			i = end
		}
		text = append(text, name...)
		text = fmt.Appendf(text, "\x00%d %d\n", len(in), len(subs))
		text = append(text, id...)
		for _, s := range subs {
			if !walk(join(dir, s.name), s.name, s.in) {
				return false
			}
		}
		return true
	}
	if len(trees) == 0 || !walk("", "", entries) {
		return nil, false
	}
	return text, true
}

// advanceEntries applies the difference of two trees to the entries of the first. fresh are the
// numbers of those that have to be written, submodules among them, in order; the directories that
// changed are noted in trees, which may be nil.
func advanceEntries(entries []dirEntry, trees map[string]string, diffs []PathDiff) (out []dirEntry, fresh []int, err error) {
	var add []dirEntry
	gone := make(map[string]bool, len(diffs))
	for _, d := range diffs {
		switch {
		case d.OldMode == ModeTree || d.NewMode == ModeTree:
			if trees != nil && d.NewMode == ModeTree {
				trees[d.Path] = d.NewID
			}
			if d.OldMode == ModeTree || d.OldMode == 0 {
				continue // the files in it are named themselves
			}
			gone[d.Path] = true
			continue
		}
		gone[d.Path] = true
		if d.NewMode != 0 {
			e, err := newEntry(d)
			if err != nil {
				return nil, nil, err
			}
			add = append(add, e)
		}
	}
	slices.SortFunc(add, func(a, b dirEntry) int { return strings.Compare(a.path, b.path) })
	out = make([]dirEntry, 0, len(entries)+len(add))
	take := func(e dirEntry, isNew bool) {
		if isNew || e.mode() == ModeSubmodule {
			fresh = append(fresh, len(out))
		}
		out = append(out, e)
	}
	for _, e := range entries {
		for len(add) > 0 && add[0].path < e.path {
			take(add[0], true)
			add = add[1:]
		}
		if !gone[e.path] {
			take(e, false)
		}
	}
	for _, e := range add {
		take(e, true)
	}
	return out, fresh, nil
}

// usual reports whether git takes an entry for sure. What only git can tell (names that some file
// system takes for ".git" are refused) it is to be asked about.
func usual(p string, mode uint32) bool {
	if !plain(p) || strings.HasSuffix(p, "/") {
		return false
	}
	for c := range strings.SplitSeq(strings.ToLower(p), "/") {
		letters := strings.Map(func(r rune) rune {
			if r > 0x7f {
				return -1 // some of them are looked through
			}
			return r
		}, c)
		rest, dotgit := strings.CutPrefix(letters, ".git")
		switch {
		case dotgit && (letters != c || rest == "" || rest[0] < 'a' || rest[0] > 'z'):
			return false
		case strings.HasPrefix(c, "git~"), strings.ContainsAny(c, `\:`), mode == ModeLink && (dotgit || strings.Contains(c, "~")):
			return false
		}
	}
	return true
}

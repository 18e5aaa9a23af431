// Package symbols owns the file of a tree's definitions: names with where they are defined, as
// universal-ctags finds them, sorted and mapped into memory; and how ctags is asked and read.
//
// Invariants: what ctags says is taken for hostile (bounded lines and counts, nothing that is not
// printable text, paths among those asked about alone); a file that ctags does not get through in
// its time is named and left out, never waited for; a damaged file of symbols is an error, never
// a crash; a file is complete or absent, and nothing writes to it afterwards.
package symbols

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// Tag is one definition.
type Tag struct {
	Name  string
	Path  string // below the tree
	Line  int    // from 1
	Kind  string // in ctags' word: "func", "class", …
	Scope string // what it is defined in, dotted; may be empty
}

// ErrDamaged says that a file of symbols is not what was written.
var ErrDamaged = errors.New("the file of symbols is damaged; it has to be built again")

// The file, all numbers little-endian:
//
//	header   magic, the counts of the sections, checksum of the header
//	strings  the offset and the length of each
//	names    a string and the number of its first tag, sorted by the folded name, then the name
//	tags     path, line, kind and scope, in the order of names, then by path and line
//	text     the bytes of the strings
const (
	magic      = "daybreak symbols 1\n"
	headerSize = 48
	stringSize = 6
	nameSize   = 8
	tagSize    = 16
	maxString  = 1<<16 - 1
)

// table numbers strings.
type table struct {
	ids  map[string]uint32
	list []string
}

func (t *table) id(s string) uint32 {
	if n, ok := t.ids[s]; ok {
		return n
	}
	n := uint32(len(t.list))
	t.ids[s], t.list = n, append(t.list, s)
	return n
}

// order sorts tags as the file has them.
func order(a, b Tag) int {
	return cmp.Or(
		byName(a.Name, b.Name),
		strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line),
		strings.Compare(a.Kind, b.Kind), strings.Compare(a.Scope, b.Scope),
	)
}

func byName(a, b string) int { return cmp.Or(strings.Compare(fold(a), fold(b)), strings.Compare(a, b)) }

// fold makes letters of ASCII small.
func fold(s string) string {
	for i := range len(s) {
		if c := s[i]; 'A' <= c && c <= 'Z' {
			b := []byte(s)
			for j := i; j < len(b); j++ {
				if 'A' <= b[j] && b[j] <= 'Z' {
					b[j] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}

// Write writes the tags to a new file. It sorts them. Tags whose strings are longer than 65,535
// bytes are left out.
func Write(name string, tags []Tag) error {
	tags = slices.DeleteFunc(tags, func(t Tag) bool {
		return max(len(t.Name), len(t.Path), len(t.Kind), len(t.Scope)) > maxString
	})
	slices.SortFunc(tags, order)
	tags = slices.Compact(tags)
	t := table{ids: map[string]uint32{}}
	var names, records []byte
	for i, tag := range tags {
		if i == 0 || tags[i-1].Name != tag.Name {
			names = binary.LittleEndian.AppendUint32(names, t.id(tag.Name))
			names = binary.LittleEndian.AppendUint32(names, uint32(i))
		}
		for _, n := range []uint32{t.id(tag.Path), uint32(tag.Line), t.id(tag.Kind), t.id(tag.Scope)} {
			records = binary.LittleEndian.AppendUint32(records, n)
		}
	}
	var index, text []byte
	for _, s := range t.list {
		index = binary.LittleEndian.AppendUint32(index, uint32(len(text)))
		index = binary.LittleEndian.AppendUint16(index, uint16(len(s)))
		text = append(text, s...)
	}
	if len(text) > 1<<32-1 {
		return errors.New("the tree has more symbols than a file of them can hold")
	}
	head := make([]byte, 0, headerSize)
	head = append(head, magic...)
	for _, n := range []int{len(t.list), len(names) / nameSize, len(tags), len(text)} {
		head = binary.LittleEndian.AppendUint32(head, uint32(n))
	}
	head = append(head, make([]byte, headerSize-4-len(head))...)
	head = binary.LittleEndian.AppendUint32(head, crc32.ChecksumIEEE(head))
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	for _, part := range [][]byte{head, index, names, records, text} {
		if err == nil {
			_, err = f.Write(part)
		}
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write the file of symbols: %w", err)
	}
	return nil
}

// File is an open file of symbols. It is safe for concurrent use until it is closed.
type File struct {
	data                       []byte
	strings, names, tags, text []byte

	since *File           // symbols of the paths that are gone from this one; nil: none are
	gone  map[string]bool //
}

// Open maps a file, with what [File.WriteSince] put beside it. Its header is checked here, the
// rest as it is read.
func Open(name string) (*File, error) {
	f, err := openOne(name)
	if err != nil {
		return nil, err
	}
	if err := f.openSince(name); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func openOne(name string) (*File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() < headerSize || st.Size() > 1<<34 {
		return nil, ErrDamaged
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the file of symbols: %w", err)
	}
	s, err := parse(data)
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(data))
	}
	s.data = data
	return s, nil
}

// Close lets go of the mapping. No query may be under way.
func (f *File) Close() error {
	data, since := f.data, f.since
	if data == nil {
		return nil
	}
	*f = File{}
	err := unix.Munmap(data)
	if since != nil {
		err = errors.Join(err, since.Close())
	}
	return err
}

func parse(data []byte) (*File, error) {
	if len(data) < headerSize || !bytes.HasPrefix(data, []byte(magic)) {
		return nil, ErrDamaged
	}
	if crc32.ChecksumIEEE(data[:headerSize-4]) != binary.LittleEndian.Uint32(data[headerSize-4:]) {
		return nil, ErrDamaged
	}
	size := [4]uint64{}
	for i, each := range []uint64{stringSize, nameSize, tagSize, 1} {
		size[i] = each * uint64(binary.LittleEndian.Uint32(data[len(magic)+4*i:]))
	}
	if headerSize+size[0]+size[1]+size[2]+size[3] != uint64(len(data)) {
		return nil, ErrDamaged
	}
	f := &File{}
	rest := data[headerSize:]
	for i, part := range []*[]byte{&f.strings, &f.names, &f.tags, &f.text} {
		*part, rest = rest[:size[i]:size[i]], rest[size[i]:]
	}
	return f, nil
}

// Len is how many tags and names the file itself has.
func (f *File) Len() (tags, names int) { return len(f.tags) / tagSize, len(f.names) / nameSize }

func (f *File) string(id uint32) (string, error) {
	at := uint64(id) * stringSize
	if at+stringSize > uint64(len(f.strings)) {
		return "", ErrDamaged
	}
	off, n := uint64(binary.LittleEndian.Uint32(f.strings[at:])), uint64(binary.LittleEndian.Uint16(f.strings[at+4:]))
	if off+n > uint64(len(f.text)) {
		return "", ErrDamaged
	}
	return string(f.text[off : off+n]), nil
}

func (f *File) nameAt(i int) (string, error) {
	return f.string(binary.LittleEndian.Uint32(f.names[i*nameSize:]))
}

// tagsOf reads the tags of the name with a number.
func (f *File) tagsOf(i int, name string) ([]Tag, error) {
	all, names := f.Len()
	first, end := int(binary.LittleEndian.Uint32(f.names[i*nameSize+4:])), all
	if i+1 < names {
		end = int(binary.LittleEndian.Uint32(f.names[(i+1)*nameSize+4:]))
	}
	if first > end || end > all {
		return nil, ErrDamaged
	}
	out := make([]Tag, 0, end-first)
	for n := first; n < end; n++ {
		r := f.tags[n*tagSize:]
		t := Tag{Name: name, Line: int(binary.LittleEndian.Uint32(r[4:]))}
		for off, s := range map[int]*string{0: &t.Path, 8: &t.Kind, 12: &t.Scope} {
			var err error
			if *s, err = f.string(binary.LittleEndian.Uint32(r[off:])); err != nil {
				return nil, err
			}
		}
		out = append(out, t)
	}
	return out, nil
}

// from is the number of the first name that is not below, in the order of the file.
func (f *File) from(folded, name string) (int, error) {
	var bad error
	_, names := f.Len()
	i := sort.Search(names, func(i int) bool {
		n, err := f.nameAt(i)
		if err != nil {
			bad = err
			return true
		}
		return cmp.Or(strings.Compare(fold(n), folded), strings.Compare(n, name)) >= 0
	})
	return i, bad
}

// Match says how a name is to be met.
type Match int

// The ways.
const (
	Exact  Match = iota
	Folded       // without regard to case
	Prefix       // it begins so, without regard to case
)

// Meets reports whether a name is one that is looked for.
func (m Match) Meets(name, want string) bool {
	switch m {
	case Exact:
		return name == want
	case Folded:
		return fold(name) == fold(want)
	}
	return strings.HasPrefix(fold(name), fold(want))
}

// find is [File.Find] in this file alone.
func (f *File) find(want string, m Match, yield func([]Tag) bool) error {
	first := want
	if m != Exact {
		first = ""
	}
	i, err := f.from(fold(want), first)
	if err != nil {
		return err
	}
	for _, names := f.Len(); i < names; i++ {
		name, err := f.nameAt(i)
		if err != nil {
			return err
		}
		if !m.Meets(name, want) {
			return nil
		}
		tags, err := f.tagsOf(i, name)
		if err != nil {
			return err
		}
		if !yield(tags) {
			return nil
		}
	}
	return nil
}

package symbols

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// A file of symbols may have two small ones beside it: the symbols of what changed since, and the
// paths, each with a NUL after it, for which the large one no longer holds.
const (
	sinceSuffix = ".since"
	goneSuffix  = ".gone"
	maxGone     = 64 << 20 // bytes
)

// WriteSince writes, beside where a copy of the file itself will be, what it takes to bring it up
// to date: for the paths that are out (read again, or gone) fresh holds and nothing else. It
// returns how many tags there are in all.
func (f *File) WriteSince(name string, fresh []Tag, out []string) (int, error) {
	gone := make(map[string]bool, len(f.gone)+len(out))
	for p := range f.gone {
		gone[p] = true
	}
	again := make(map[string]bool, len(out))
	for _, p := range out {
		gone[p], again[p] = true, true
	}
	tags := fresh
	if f.since != nil {
		old, err := f.since.All()
		if err != nil {
			return 0, err
		}
		tags = append(slices.DeleteFunc(old, func(t Tag) bool { return again[t.Path] }), fresh...)
	}
	if err := Write(name+sinceSuffix, tags); err != nil {
		return 0, err
	}
	var list strings.Builder
	total := len(tags)
	ids := map[uint32]bool{} // of the paths
	for id := range len(f.strings) / stringSize {
		s, err := f.string(uint32(id))
		if err != nil {
			return 0, err
		}
		if gone[s] {
			ids[uint32(id)] = true
		}
	}
	for n := range len(f.tags) / tagSize {
		if !ids[binary.LittleEndian.Uint32(f.tags[n*tagSize:])] {
			total++
		}
	}
	for p := range gone {
		list.WriteString(p + "\x00")
	}
	if err := os.WriteFile(name+goneSuffix, []byte(list.String()), 0o644); err != nil {
		return 0, fmt.Errorf("write the file of symbols: %w", err)
	}
	return total, nil
}

// Stale reports whether what changed since is so much that writing the whole anew is the better
// way to bring it up to date.
func (f *File) Stale() bool {
	if f.since == nil {
		return false
	}
	all, _ := f.Len()
	later, _ := f.since.Len()
	return later*2 > all
}

// WriteWhole is [File.WriteSince] into one new file. It returns how many tags that has.
func (f *File) WriteWhole(name string, fresh []Tag, out []string) (int, error) {
	again := make(map[string]bool, len(out))
	for _, p := range out {
		again[p] = true
	}
	tags, err := f.All()
	if err != nil {
		return 0, err
	}
	tags = append(slices.DeleteFunc(tags, func(t Tag) bool { return again[t.Path] }), fresh...)
	return len(tags), Write(name, tags)
}

// openSince opens what is beside the file, if anything is.
func (f *File) openSince(name string) error {
	st, err := os.Stat(name + goneSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Size() > maxGone {
		return ErrDamaged
	}
	b, err := os.ReadFile(name + goneSuffix)
	if err != nil {
		return err
	}
	f.gone = readGone(b)
	f.since, err = openOne(name + sinceSuffix)
	return err
}

func readGone(b []byte) map[string]bool {
	gone := map[string]bool{}
	for p := range strings.SplitSeq(string(b), "\x00") {
		if p != "" {
			gone[p] = true
		}
	}
	return gone
}

// Find calls yield with the tags of each name that is met, in the order of names, until it
// returns false.
func (f *File) Find(want string, m Match, yield func([]Tag) bool) error {
	if f.since == nil {
		return f.find(want, m, yield)
	}
	var later [][]Tag
	if err := f.since.find(want, m, func(tags []Tag) bool { later = append(later, tags); return true }); err != nil {
		return err
	}
	more := true
	give := func(tags []Tag) bool {
		if len(tags) > 0 {
			more = yield(tags)
		}
		return more
	}
	err := f.find(want, m, func(tags []Tag) bool {
		if len(tags) == 0 {
			return true
		}
		name := tags[0].Name
		for len(later) > 0 && byName(later[0][0].Name, name) < 0 {
			if !give(later[0]) {
				return false
			}
			later = later[1:]
		}
		tags = slices.DeleteFunc(tags, func(t Tag) bool { return f.gone[t.Path] })
		if len(later) > 0 && later[0][0].Name == name {
			tags, later = append(tags, later[0]...), later[1:]
			slices.SortFunc(tags, order)
		}
		return give(tags)
	})
	for _, tags := range later {
		if err != nil || !more || !give(tags) {
			break
		}
	}
	return err
}

// All returns every tag.
func (f *File) All() ([]Tag, error) {
	var out []Tag
	err := f.Find("", Prefix, func(tags []Tag) bool { out = append(out, tags...); return true })
	return out, err
}

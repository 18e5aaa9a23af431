package snapshot

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/git"
)

// lfsHead starts every Git LFS pointer (git-lfs spec, version 1).
const lfsHead = "version https://git-lfs.github.com/spec/v1\n"

// warnings says, one line each, what of a tree is not what it seems, and which files are Git LFS
// pointers. tree is our own fresh checkout of the entries. Of files that prev has as well nothing
// is read.
func warnings(tree string, entries []git.Entry, prev *previous) (out, pointers []string) {
	var subs, lfs, links, cases []string
	for _, pair := range collisions(entries) {
		cases = append(cases, fmt.Sprintf("%q and %q", pair[0], pair[1]))
	}
	for _, e := range entries {
		switch {
		case e.Mode == git.ModeSubmodule:
			subs = append(subs, fmt.Sprintf("%q", e.Path))
		case e.Mode == git.ModeLink:
			text, err := os.Readlink(filepath.Join(tree, e.Path))
			if err == nil && leaves(e.Path, text) {
				links = append(links, fmt.Sprintf("%q → %q", e.Path, text))
			}
		case e.Size > int64(len(lfsHead)) && e.Size < 1024 && isPointer(tree, e.Path, prev):
			lfs, pointers = append(lfs, fmt.Sprintf("%q", e.Path)), append(pointers, e.Path)
		}
	}
	say := func(items []string, one, many string) {
		switch n := len(items); {
		case n == 1:
			out = append(out, fmt.Sprintf("%s: %s", one, items[0]))
		case n > 5:
			out = append(out, fmt.Sprintf("%d %s: %s and %d more", n, many, strings.Join(items[:5], ", "), n-5))
		case n > 1:
			out = append(out, fmt.Sprintf("%d %s: %s", n, many, strings.Join(items, ", ")))
		}
	}
	say(subs, "submodule, left as an empty directory", "submodules, left as empty directories")
	say(lfs, "Git LFS pointer, whose content is not here", "Git LFS pointers, whose content is not here")
	say(links, "link that leaves the tree, kept as it is and dead in the sandbox", "links that leave the tree, kept as they are and dead in the sandbox")
	say(cases, "names that differ only in case", "pairs of names that differ only in case")
	return out, pointers
}

// collisions are the pairs of names in one directory that differ only in case, as far as their
// directories are the same in spelling or differ only in case too: on a file system that does not
// tell cases apart they are one.
func collisions(entries []git.Entry) (pairs [][2]string) {
	type spelling struct{ entry, end int32 } // a part of a path; without pointers, as there are many
	seed, lower, last := maphash.MakeSeed(), make(map[uint64]spelling, len(entries)), ""
	see := func(i, end int) {
		name := entries[i].Path[:end]
		key := maphash.String(seed, strings.ToLower(name))
		first, ok := lower[key]
		if !ok {
			lower[key] = spelling{int32(i), int32(end)}
			return
		}
		// Where only their directories differ, those are named already.
		if other := entries[first.entry].Path[:first.end]; path.Base(other) != path.Base(name) && strings.EqualFold(other, name) {
			pairs = append(pairs, [2]string{other, name})
		}
	}
	for i, e := range entries {
		// What is in a directory comes together: what a path shares with the one before was seen.
		for at := common(last, e.Path); at < len(e.Path); at++ {
			if e.Path[at] == '/' {
				see(i, at)
			}
		}
		see(i, len(e.Path))
		last = e.Path
	}
	return pairs
}

// common is how far two paths have the same directories.
func common(a, b string) int {
	n := 0
	for i := 0; i < len(a) && i < len(b) && a[i] == b[i]; i++ {
		if a[i] == '/' {
			n = i + 1
		}
	}
	return n
}

func leaves(at, target string) bool {
	if path.IsAbs(target) {
		return true
	}
	end := path.Join(path.Dir(at), target)
	return end == ".." || strings.HasPrefix(end, "../")
}

func isPointer(tree, name string, prev *previous) bool {
	if prev != nil && !prev.changed[name] {
		return prev.pointers[name]
	}
	p := filepath.Join(tree, name)
	fi, err := os.Lstat(p)
	if err != nil || !fi.Mode().IsRegular() {
		return false
	}
	b, err := os.ReadFile(p)
	return err == nil && bytes.HasPrefix(b, []byte(lfsHead))
}

package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/codesearch"
)

// IndexChange is a file that is not as it was when an earlier index was made.
type IndexChange struct {
	Path string
	How  IndexHow
}

// IndexHow says what became of a file.
type IndexHow byte

// The ways.
const (
	IndexWritten IndexHow = '~' // its content is another
	IndexAdded   IndexHow = '+' // it was not there, or was no file
	IndexGone    IndexHow = '-' // it is not there, or is no file
)

// Bounds on what changed.
const (
	maxPaths = 64 << 20 // bytes of names
	maxGlobs = 2000     // that a listing of a part of the tree is worth
)

// WriteChanges is what [ReadChanges] reads.
func WriteChanges(changes []IndexChange) []byte {
	out := []byte{}
	for _, c := range changes {
		out = append(append(append(out, byte(c.How)), c.Path...), 0)
	}
	return out
}

// ReadChanges reads changes, each as its [IndexHow] and its path with a NUL behind them. It is never
// nil.
func ReadChanges(in io.Reader) ([]IndexChange, error) {
	b, err := io.ReadAll(io.LimitReader(in, maxPaths))
	if err != nil {
		return nil, err
	}
	out := []IndexChange{}
	for p := range strings.SplitSeq(string(b), "\x00") {
		if p == "" {
			continue
		}
		c := IndexChange{Path: p[1:], How: IndexHow(p[0])}
		if c.How != IndexWritten && c.How != IndexAdded && c.How != IndexGone || c.Path == "." || path.Clean(c.Path) != c.Path || !fs.ValidPath(strings.ToValidUTF8(c.Path, "x")) {
			return nil, fmt.Errorf("%.60q is no change of a file", p)
		}
		out = append(out, c)
	}
	return out, nil
}

// since finds what of an earlier index does not hold any more: files to be read again, and those
// that are gone. What is ignored is the same as before unless a file that rules it changed, so
// that only files which the index does not know have to be looked up.
func since(ctx context.Context, old *codesearch.Index, root string, changes []IndexChange) (again, gone []string, err error) {
	asks := map[string]bool{} // ripgrep is to say whether it is searched; true: it was until now
	for _, c := range changes {
		switch path.Base(c.Path) {
		case ".gitignore", ".ignore", ".rgignore":
			return compare(ctx, old, root, changes)
		}
		had, err := old.Has(c.Path)
		if err != nil {
			return nil, nil, err
		}
		_, serr := os.Lstat(filepath.Join(root, c.Path))
		switch {
		case errors.Is(serr, fs.ErrNotExist) || errors.Is(serr, unix.ENOTDIR):
			if had {
				gone = append(gone, c.Path)
			}
		case c.How == IndexWritten && had:
			again = append(again, c.Path)
		default:
			asks[c.Path] = had
		}
	}
	if len(asks) == 0 {
		return again, gone, nil
	}
	globs, ok := elsewhere(root, asks)
	if !ok {
		return compare(ctx, old, root, changes)
	}
	files, err := listed(ctx, root, globs...)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range files {
		if _, asked := asks[f]; asked {
			again = append(again, f)
			delete(asks, f)
		}
	}
	for p, had := range asks {
		if had {
			gone = append(gone, p)
		}
	}
	return again, gone, nil
}

// elsewhere are globs for all directories that none of the files is in: what is left to list is
// little. ok is false where ripgrep cannot be told, or not in few words.
func elsewhere(root string, files map[string]bool) (globs []string, ok bool) {
	above := map[string]bool{".": true}
	for f := range files {
		for d := path.Dir(f); !above[d]; d = path.Dir(d) {
			above[d] = true
		}
	}
	for d := range above {
		entries, err := os.ReadDir(filepath.Join(root, d))
		if err != nil {
			return nil, false
		}
		for _, e := range entries {
			p := path.Join(d, e.Name())
			if !e.IsDir() || above[p] || p == ".git" {
				continue
			}
			if globs = append(globs, codesearch.GlobFor(p)); len(globs) > maxGlobs || !utf8.ValidString(p) || strings.ContainsAny(p, "\r\n") {
				return nil, false
			}
		}
	}
	return globs, true
}

// compare is since by a listing of the whole tree.
func compare(ctx context.Context, old *codesearch.Index, root string, changes []IndexChange) (again, gone []string, err error) {
	files, err := listed(ctx, root)
	if err != nil {
		return nil, nil, err
	}
	now := make(map[string]bool, len(files))
	for _, f := range files {
		now[f] = true
	}
	had := make(map[string]bool, len(files))
	if err := old.Children("", func(p string) bool {
		if had[p] = true; !now[p] {
			gone = append(gone, p)
		}
		return true
	}); err != nil {
		return nil, nil, err
	}
	differs := make(map[string]bool, len(changes))
	for _, c := range changes {
		differs[c.Path] = true
	}
	for _, f := range files {
		if !had[f] || differs[f] {
			again = append(again, f)
		}
	}
	return again, gone, nil
}

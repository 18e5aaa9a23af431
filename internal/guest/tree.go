package guest

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// maxHash is the longest file that is hashed and counted to its end; a longer one can be
// read but not edited.
const maxHash = 256 << 20

// maxEntries caps a listing.
const maxEntries = 2_000

// tree is the work tree. Its root opens every path component by component and refuses one
// that leaves the tree by a link.
type tree struct {
	dir  string
	root *os.Root
}

func openTree(dir string) (*tree, error) {
	dir = filepath.Clean(dir)
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("the work tree must be an absolute path, not %q", dir)
	}
	r, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the work tree: %w", err)
	}
	return &tree{dir: dir, root: r}, nil
}

func (t *tree) close() { t.root.Close() }

// rel returns p relative to the tree. ok is false when p, as it is spelled, is outside.
func (t *tree) rel(p string) (string, bool) {
	if p == "" {
		return ".", true
	}
	p = path.Clean(p)
	if path.IsAbs(p) {
		if p == t.dir {
			return ".", true
		}
		cut, ok := strings.CutPrefix(p, t.dir+"/")
		return cut, ok
	}
	return p, p != ".." && !strings.HasPrefix(p, "../")
}

// open opens a path for reading without waiting on a fifo. An absolute path outside the tree
// is the sandbox's own and is opened as it is.
func (t *tree) open(p string) (*os.File, error) {
	if strings.ContainsRune(p, 0) {
		return nil, fmt.Errorf("path %q holds a NUL", p)
	}
	rel, ok := t.rel(p)
	if ok {
		return t.root.OpenFile(rel, os.O_RDONLY|unix.O_NONBLOCK, 0)
	}
	if !path.IsAbs(p) {
		return nil, fmt.Errorf("%s is outside the work tree", p)
	}
	return os.OpenFile(path.Clean(p), os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// read answers a ReadRequest. A missing file is an error.
func (t *tree) read(r ReadRequest) (ReadResult, error) {
	file, err := t.open(r.Path)
	if err != nil {
		if link, target := t.linkOn(r.Path); link != "" {
			return ReadResult{Kind: KindLink, Target: target}, nil
		}
		if errors.Is(err, syscall.ENXIO) {
			return ReadResult{Kind: KindOther}, nil
		}
		return ReadResult{}, plainPathError(r.Path, err)
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return ReadResult{}, plainPathError(r.Path, err)
	}
	switch {
	case st.IsDir():
		return t.readDir(r, file)
	case !st.Mode().IsRegular():
		return ReadResult{Kind: KindOther}, nil
	}
	return readText(file, r)
}

func (t *tree) readDir(r ReadRequest, dir *os.File) (ReadResult, error) {
	res := ReadResult{Kind: KindDir}
	if rel, ok := t.rel(r.Path); ok && rel != "." && t.isSubmodule(rel) {
		res.Kind = KindModule
	}
	// A bounded read, so that a directory of a million files costs neither memory nor a frame.
	list, err := dir.ReadDir(maxEntries * 10)
	if err != nil && !errors.Is(err, io.EOF) {
		return ReadResult{}, plainPathError(r.Path, err)
	}
	res.Total = len(list)
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	if len(list) > maxEntries {
		list, res.Cut = list[:maxEntries], true
	}
	for _, e := range list {
		name := Escape([]byte(e.Name()), false)
		switch {
		case e.IsDir():
			name += "/"
		case e.Type()&fs.ModeSymlink != 0:
			name += "@"
		}
		res.Entries = append(res.Entries, name)
	}
	return res, nil
}

// readText streams a file: the wanted lines are kept, the rest is only counted and hashed.
func readText(file io.Reader, r ReadRequest) (ReadResult, error) {
	first, limit := max(r.Offset, 1), r.Limit
	if limit <= 0 {
		limit = DefaultLines
	}
	sum := sha256.New()
	in := bufio.NewReaderSize(io.TeeReader(io.LimitReader(file, maxHash+1), sum), 64<<10)
	start, err := in.Peek(8000)
	if err != nil && !errors.Is(err, io.EOF) {
		return ReadResult{}, fmt.Errorf("read %s: %w", r.Path, err)
	}
	res := ReadResult{Kind: KindText, CRLF: usesCRLF(start)}
	switch {
	case looksLFS(start):
		res.Kind = KindLFS
	case looksBinary(start):
		res.Kind = KindBinary
	}
	lines := lineReader{in: in, keep: MaxLineBytes}
	shown, full := 0, false
	for {
		more, err := lines.next()
		if err != nil {
			return ReadResult{}, fmt.Errorf("read %s: %w", r.Path, err)
		}
		if !more {
			break
		}
		res.Total++
		if res.Kind == KindBinary || full || res.Total < first || len(res.Lines) >= limit {
			continue
		}
		text := lines.text(res.Total == 1)
		if shown += len(text) + 1; shown > MaxReadBytes && len(res.Lines) > 0 {
			full, res.Cut = true, true
			continue
		}
		res.Lines = append(res.Lines, text)
	}
	res.Size = lines.size
	res.Latin1 = lines.invalid && res.Kind == KindText
	if res.Size <= maxHash {
		res.SHA256 = hex.EncodeToString(sum.Sum(nil))
	} else {
		res.Cut = true
	}
	return res, nil
}

// lineReader reads lines of any length in constant memory.
type lineReader struct {
	in      *bufio.Reader
	keep    int
	line    []byte // the start of the line, a little over keep bytes, without its end
	length  int    // of the whole line
	size    int64
	invalid bool // some line is not UTF-8
}

// next reads one line. more is false at the end of the input.
func (l *lineReader) next() (more bool, err error) {
	l.line, l.length = l.line[:0], 0
	var carry []byte // a rune cut by the buffer's border
	for {
		part, err := l.in.ReadSlice('\n')
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return more, err
		}
		l.size += int64(len(part))
		more = more || len(part) > 0
		if !l.invalid {
			if len(carry) > 0 {
				carry = l.check(append(carry, part...), err == nil)
			} else {
				carry = l.check(part, err == nil)
			}
		}
		if err == nil {
			part = bytes.TrimSuffix(part, []byte{'\n'})
			part = bytes.TrimSuffix(part, []byte{'\r'})
		}
		l.length += len(part)
		l.line = append(l.line, part[:min(len(part), l.keep+utf8.UTFMax-len(l.line))]...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		l.invalid = l.invalid || len(carry) > 0
		return more, nil
	}
}

// check validates what it can of b and returns a copy of the unfinished rune at its end.
func (l *lineReader) check(b []byte, ended bool) []byte {
	n := len(b)
	for back := 1; !ended && back < utf8.UTFMax && back <= len(b); back++ {
		if utf8.RuneStart(b[len(b)-back]) {
			if !utf8.FullRune(b[len(b)-back:]) {
				n = len(b) - back
			}
			break
		}
	}
	if !utf8.Valid(b[:n]) {
		l.invalid = true
	}
	return bytes.Clone(b[n:])
}

func (l *lineReader) text(first bool) string {
	line, length := l.line, l.length
	if first && bytes.HasPrefix(line, bom) {
		line, length = line[len(bom):], length-len(bom)
	}
	return cutLine(line, length, l.keep)
}

// linkOn finds the first component of p that is a link, for the message about it.
func (t *tree) linkOn(p string) (link, target string) {
	rel, ok := t.rel(p)
	if !ok {
		target, err := os.Readlink(p)
		if err != nil {
			return "", ""
		}
		return p, Escape([]byte(target), false)
	}
	parts := strings.Split(rel, "/")
	for i := range parts {
		sub := strings.Join(parts[:i+1], "/")
		st, err := t.root.Lstat(sub)
		if err != nil {
			return "", ""
		}
		if st.Mode()&fs.ModeSymlink != 0 {
			target, err := t.root.Readlink(sub)
			if err != nil {
				return "", ""
			}
			return sub, Escape([]byte(target), false)
		}
	}
	return "", ""
}

// isSubmodule reports whether rel is, or lies in, a submodule of the work tree.
func (t *tree) isSubmodule(rel string) bool {
	named := t.submodules()
	parts := strings.Split(rel, "/")
	for i := range parts {
		sub := strings.Join(parts[:i+1], "/")
		if slices.Contains(named, sub) {
			return true
		}
		if st, err := t.root.Lstat(sub + "/.git"); err == nil && st.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// submodules reads the paths of .gitmodules.
func (t *tree) submodules() []string {
	file, err := t.root.OpenFile(".gitmodules", os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, 1<<20))
	if err != nil {
		return nil
	}
	var out []string
	for _, line := range splitLines(b) {
		key, value, ok := strings.Cut(string(line), "=")
		if ok && strings.EqualFold(strings.TrimSpace(key), "path") {
			out = append(out, path.Clean(strings.Trim(strings.TrimSpace(value), `"`)))
		}
	}
	return out
}

// plainPathError names the path as the model wrote it, not as a syscall saw it.
func plainPathError(p string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s does not exist", p)
	}
	return fmt.Errorf("%s: %w", p, err)
}

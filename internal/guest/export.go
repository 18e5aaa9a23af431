package guest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// The export stream is the change of a work tree on its way to the host: a magic line, then
// records, then an end record that counts them.
//
//	record  = kind(1 byte) uvarint(len(path)) path [mode(4 bytes, big endian) uvarint(len(content)) content]
//	end     = 'E' uvarint(records)
//	failure = 'F' uvarint(len(text)) text
//
// Only file and link records carry mode and content.
const (
	exportMagic   = "daybreak-export 1\n"
	recordFile    = 'f'
	recordDeleted = 'd'
	recordSkipped = 's'
	recordName    = 'n' // names alone: a changed file or link
	recordDir     = 'D' // names alone: a new directory
	recordEnd     = 'E'
	recordLimit   = 'L' // failure: a limit was reached
	recordFailure = 'F'

	maxExportPath  = 4096
	maxExportText  = 1024
	maxExportSkips = 10_000
	maxExportNames = 500_000
	maxExportVisit = 2_000_000 // directory entries looked at
	maxExportDepth = 1000
)

// Limits of an export when the caller names none.
const (
	DefaultExportFiles = 2000
	DefaultExportBytes = 64 << 20
)

// ExportEntry is one changed path.
type ExportEntry struct {
	Path    string // relative, slash-separated, raw bytes
	Mode    uint32 // 0o100644, 0o100755, 0o120000; 0 when deleted
	Content []byte // file bytes, or link text
	Deleted bool
}

// Export is a decoded stream: the entries sorted by path.
type Export struct {
	Entries []ExportEntry
	Skipped []string // neither file, directory nor link; or unreadable
}

// ExportLimitError says that a change is larger than an export may be.
type ExportLimitError struct{ Text string }

func (e *ExportLimitError) Error() string { return e.Text }

// ExportOptions names the three trees of an overlay and the caps of the export.
type ExportOptions struct {
	Lower, Upper, Merged string
	Files                int             // default [DefaultExportFiles]
	Bytes                int64           // default [DefaultExportBytes]
	Names                bool            // write the names alone, see [DecodeNames]
	Leave                map[string]bool // paths that are left out, with all below them
}

func exportCaps(files int, size int64) (int, int64) {
	if files <= 0 {
		files = DefaultExportFiles
	}
	if size <= 0 {
		size = DefaultExportBytes
	}
	return files, size
}

// ExportServe writes the change between the lower and the merged tree to out. Only paths that
// the upper tree holds are looked at. No link is followed; a file that is not regular is
// never opened for reading. The error, if any, is in the stream too.
func ExportServe(out io.Writer, o ExportOptions) error {
	o.Files, o.Bytes = exportCaps(o.Files, o.Bytes)
	w := &exporter{out: bufio.NewWriterSize(out, 256<<10), files: o.Files, bytes: o.Bytes, names: o.Names, leave: o.Leave}
	if o.Names {
		w.files = maxExportNames
	}
	_, err := w.out.WriteString(exportMagic)
	if err == nil {
		err = w.trees(o)
	}
	var limit *ExportLimitError
	switch {
	case err == nil:
		w.out.WriteByte(recordEnd)
		w.uvarint(uint64(w.records))
	case errors.As(err, &limit):
		w.out.WriteByte(recordLimit)
		w.text(err.Error(), maxExportText)
	default:
		w.out.WriteByte(recordFailure)
		w.text(err.Error(), maxExportText)
	}
	return errors.Join(err, w.out.Flush())
}

type exporter struct {
	out     *bufio.Writer
	files   int
	bytes   int64
	skips   int
	visited int
	records int
	names   bool
	leave   map[string]bool
}

// trio is one directory in the three trees; lower is -1 where the base has no such directory.
type trio struct{ lower, upper, merged int }

func (t trio) close() {
	for _, fd := range []int{t.lower, t.upper, t.merged} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

const openDirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK

func (w *exporter) trees(o ExportOptions) error {
	t := trio{-1, -1, -1}
	defer func() { t.close() }()
	for _, d := range []struct {
		fd   *int
		name string
	}{{&t.lower, o.Lower}, {&t.upper, o.Upper}, {&t.merged, o.Merged}} {
		fd, err := unix.Open(d.name, openDirFlags, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", d.name, err)
		}
		*d.fd = fd
	}
	return w.dir("", t, 0)
}

// dir exports one directory that exists in upper and merged.
func (w *exporter) dir(rel string, t trio, depth int) error {
	if depth > maxExportDepth {
		return w.skip(rel)
	}
	inUpper, err := w.list(t.upper)
	if err != nil {
		return err
	}
	inMerged, err := w.list(t.merged)
	if err != nil {
		return err
	}
	var inLower map[string]uint32
	if t.lower >= 0 {
		if inLower, err = w.list(t.lower); err != nil {
			return err
		}
	}
	for _, name := range sortedNames(inLower) {
		if _, still := inMerged[name]; still || rel == "" && name == ".git" {
			continue
		}
		if err := w.deleted(join(rel, name), t.lower, name, inLower[name], depth+1); err != nil {
			return err
		}
	}
	for _, name := range sortedNames(inUpper) {
		now, there := inMerged[name]
		if !there || rel == "" && name == ".git" {
			continue // a whiteout, reported above
		}
		if err := w.path(join(rel, name), name, t, inLower[name], now, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// path exports one name that exists in upper and merged. was and now are the file types in
// lower (0: absent) and merged.
func (w *exporter) path(rel, name string, t trio, was, now uint32, depth int) error {
	if w.leave[rel] {
		return nil
	}
	if was != 0 && was != now && (was == unix.S_IFDIR || now != unix.S_IFREG && now != unix.S_IFLNK) {
		// What was there is gone and no file or link of the same name says so.
		if err := w.deleted(rel, t.lower, name, was, depth); err != nil {
			return err
		}
	}
	if len(rel) > maxExportPath {
		return w.skip(rel)
	}
	switch now {
	case unix.S_IFDIR:
		sub := trio{-1, -1, -1}
		defer func() { sub.close() }()
		var err error
		if sub.upper, err = unix.Openat(t.upper, name, openDirFlags, 0); err != nil {
			return w.skip(rel)
		}
		if sub.merged, err = unix.Openat(t.merged, name, openDirFlags, 0); err != nil {
			return w.skip(rel)
		}
		if w.names && was != unix.S_IFDIR {
			if err := w.record(recordDir, rel); err != nil {
				return err
			}
		}
		if was == unix.S_IFDIR {
			if sub.lower, err = unix.Openat(t.lower, name, openDirFlags, 0); err != nil {
				return fmt.Errorf("open base of %q: %w", rel, err)
			}
		}
		return w.dir(rel, sub, depth)
	case unix.S_IFREG:
		return w.file(rel, name, t, was)
	case unix.S_IFLNK:
		if w.names {
			return w.record(recordName, rel)
		}
		text, err := readlinkat(t.merged, name)
		if err != nil {
			return w.skip(rel)
		}
		if was == unix.S_IFLNK {
			if old, err := readlinkat(t.lower, name); err == nil && old == text {
				return nil
			}
		}
		return w.entry(rel, 0o120000, []byte(text))
	}
	return w.skip(rel)
}

func (w *exporter) file(rel, name string, t trio, was uint32) error {
	if w.names {
		return w.record(recordName, rel)
	}
	content, mode, err := readRegular(t.merged, name, w.bytes)
	switch {
	case errors.Is(err, errTooLong):
		if was == unix.S_IFREG && sameLarge(t, name) {
			return nil
		}
		return &ExportLimitError{fmt.Sprintf("the change holds more than the %d bytes allowed; the file that passed the limit: %.200q", w.bytes, rel)}
	case err != nil:
		return w.skip(rel)
	}
	if was == unix.S_IFREG {
		old, oldMode, err := readRegular(t.lower, name, int64(len(content)))
		if err == nil && oldMode == mode && bytes.Equal(old, content) {
			return nil // copied up, not changed
		}
	}
	return w.entry(rel, mode, content)
}

// sameLarge compares a file that is too big for the export with its base, in pieces.
func sameLarge(t trio, name string) bool {
	a, amode, err := openRegular(t.lower, name)
	if err != nil {
		return false
	}
	defer a.Close()
	b, bmode, err := openRegular(t.merged, name)
	if err != nil {
		return false
	}
	defer b.Close()
	if amode != bmode {
		return false
	}
	x, y := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		n, errA := io.ReadFull(a, x)
		m, errB := io.ReadFull(b, y)
		if n != m || !bytes.Equal(x[:n], y[:m]) {
			return false
		}
		if errA != nil || errB != nil {
			end := func(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
			return end(errA) && end(errB)
		}
	}
}

// deleted reports a path of the base that is gone, and all below it.
func (w *exporter) deleted(rel string, parent int, name string, kind uint32, depth int) error {
	switch kind {
	case unix.S_IFREG, unix.S_IFLNK:
		return w.record(recordDeleted, rel)
	case unix.S_IFDIR:
	default:
		return nil
	}
	if depth > maxExportDepth {
		return w.skip(rel)
	}
	fd, err := unix.Openat(parent, name, openDirFlags, 0)
	if err != nil {
		return fmt.Errorf("open base of %q: %w", rel, err)
	}
	defer unix.Close(fd)
	names, err := w.list(fd)
	if err != nil {
		return err
	}
	for _, n := range sortedNames(names) {
		if err := w.deleted(join(rel, n), fd, n, names[n], depth+1); err != nil {
			return err
		}
	}
	return nil
}

// list returns a directory's names with their types.
func (w *exporter) list(dir int) (map[string]uint32, error) {
	fd, err := unix.Openat(dir, ".", openDirFlags, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	out := map[string]uint32{}
	for {
		batch, err := f.ReadDir(1024)
		if w.visited += len(batch); w.visited > maxExportVisit {
			return nil, &ExportLimitError{fmt.Sprintf("the work tree has more than %d changed or neighbouring entries", maxExportVisit)}
		}
		for _, e := range batch {
			var st unix.Stat_t
			if unix.Fstatat(dir, e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			out[e.Name()] = st.Mode & unix.S_IFMT
		}
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

var errTooLong = errors.New("longer than the limit")

func openRegular(dir int, name string) (*os.File, uint32, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, 0, err
	}
	f := os.NewFile(uintptr(fd), name)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		f.Close()
		return nil, 0, errors.Join(err, fs.ErrInvalid)
	}
	mode := uint32(0o100644)
	if st.Mode&0o100 != 0 {
		mode = 0o100755
	}
	return f, mode, nil
}

// readRegular reads a file of at most limit bytes.
func readRegular(dir int, name string, limit int64) ([]byte, uint32, error) {
	f, mode, err := openRegular(dir, name)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = errTooLong
	}
	return b, mode, err
}

func readlinkat(dir int, name string) (string, error) {
	buf := make([]byte, maxExportPath)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

func sortedNames(m map[string]uint32) []string {
	out := make([]string, 0, len(m))
	for n := range m {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func (w *exporter) uvarint(n uint64) {
	var b [binary.MaxVarintLen64]byte
	w.out.Write(b[:binary.PutUvarint(b[:], n)])
}

func (w *exporter) text(s string, limit int) {
	if len(s) > limit {
		s = s[:limit]
	}
	w.uvarint(uint64(len(s)))
	w.out.WriteString(s)
}

func (w *exporter) record(kind byte, rel string) error {
	if w.files--; w.files < 0 {
		return &ExportLimitError{"the change has more paths than an export may have"}
	}
	w.records++
	w.out.WriteByte(kind)
	w.text(rel, maxExportPath)
	return nil
}

func (w *exporter) entry(rel string, mode uint32, content []byte) error {
	if w.bytes -= int64(len(content)); w.bytes < 0 {
		return &ExportLimitError{"the change holds more bytes than an export may hold"}
	}
	if err := w.record(recordFile, rel); err != nil {
		return err
	}
	var m [4]byte
	binary.BigEndian.PutUint32(m[:], mode)
	w.out.Write(m[:])
	w.uvarint(uint64(len(content)))
	_, err := w.out.Write(content)
	return err
}

func (w *exporter) skip(rel string) error {
	if w.skips++; w.skips > maxExportSkips {
		return &ExportLimitError{fmt.Sprintf("more than %d sockets, devices or unreadable files", maxExportSkips)}
	}
	w.records++
	w.out.WriteByte(recordSkipped)
	w.text(rel, maxExportPath)
	return nil
}

package guest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// DecodeExport reads a stream made by [ExportServe] on the host. Every byte of it counts as
// hostile: lengths are checked against the caps before anything is allocated, paths must be
// relative and without "." or "..", no path may come twice, and a stream without its end
// record is an error.
func DecodeExport(in io.Reader, files int, size int64) (Export, error) {
	files, size = exportCaps(files, size)
	return decodeExport(in, &exportDecoder{files: files, bytes: size})
}

// DecodeNames reads a stream of names alone: changed files and links as they are, new
// directories with a slash at the end, sorted. It is as wary as [DecodeExport].
func DecodeNames(in io.Reader) ([]string, error) {
	x, err := decodeExport(in, &exportDecoder{files: maxExportNames, names: true})
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(x.Entries))
	for _, e := range x.Entries {
		if !e.Deleted {
			out = append(out, e.Path)
		}
	}
	return out, nil
}

func decodeExport(in io.Reader, d *exportDecoder) (Export, error) {
	d.in, d.seen = bufio.NewReaderSize(in, 256<<10), map[string]bool{}
	magic := make([]byte, len(exportMagic))
	if _, err := io.ReadFull(d.in, magic); err != nil || string(magic) != exportMagic {
		return Export{}, errors.New("export stream has no header")
	}
	for {
		done, err := d.next()
		if err != nil {
			return Export{}, err
		}
		if done {
			break
		}
	}
	slices.SortFunc(d.out.Entries, func(a, b ExportEntry) int { return strings.Compare(a.Path, b.Path) })
	slices.Sort(d.out.Skipped)
	return d.out, nil
}

type exportDecoder struct {
	in      *bufio.Reader
	files   int
	bytes   int64
	seen    map[string]bool
	records uint64
	names   bool
	out     Export
}

func (d *exportDecoder) next() (done bool, err error) {
	kind, err := d.in.ReadByte()
	if err != nil {
		return false, errors.New("export stream was cut")
	}
	switch kind {
	case recordEnd:
		n, err := binary.ReadUvarint(d.in)
		if err != nil || n != d.records {
			return false, errors.New("export stream has a wrong count")
		}
		return true, nil
	case recordLimit, recordFailure:
		text, err := d.blob(maxExportText)
		if err != nil {
			return false, err
		}
		if kind == recordLimit {
			return false, &ExportLimitError{fmt.Sprintf("%q", text)}
		}
		return false, fmt.Errorf("the exporter failed: %q", text)
	case recordFile:
		if d.names {
			return false, errors.New("export stream of names has content")
		}
	case recordName, recordDir:
		if !d.names {
			return false, errors.New("export stream has a name without content")
		}
	case recordDeleted, recordSkipped:
	default:
		return false, fmt.Errorf("export stream has an unknown record %#x", kind)
	}
	path, err := d.path()
	if err != nil {
		return false, err
	}
	d.records++
	if kind == recordSkipped {
		if len(d.out.Skipped) >= maxExportSkips {
			return false, errors.New("export stream skips too many paths")
		}
		d.out.Skipped = append(d.out.Skipped, path)
		return false, nil
	}
	if len(d.out.Entries) >= d.files {
		return false, &ExportLimitError{fmt.Sprintf("the change has more than the %d paths allowed", d.files)}
	}
	if d.seen[path] {
		return false, fmt.Errorf("export stream names %.200q twice", path)
	}
	d.seen[path] = true
	e := ExportEntry{Path: path, Deleted: kind == recordDeleted}
	if kind == recordDir {
		e.Path += "/"
	}
	if kind == recordFile {
		if err := d.content(&e); err != nil {
			return false, err
		}
	}
	d.out.Entries = append(d.out.Entries, e)
	return false, nil
}

func (d *exportDecoder) content(e *ExportEntry) error {
	var m [4]byte
	if _, err := io.ReadFull(d.in, m[:]); err != nil {
		return errors.New("export stream was cut")
	}
	e.Mode = binary.BigEndian.Uint32(m[:])
	limit := d.bytes
	switch e.Mode {
	case 0o100644, 0o100755:
	case 0o120000:
		limit = min(limit, maxExportPath)
	default:
		return fmt.Errorf("export stream has the mode %o", e.Mode)
	}
	b, err := d.blob(limit)
	d.bytes -= int64(len(b))
	e.Content = b
	return err
}

func (d *exportDecoder) path() (string, error) {
	b, err := d.blob(maxExportPath)
	if err != nil {
		return "", err
	}
	for part := range bytes.SplitSeq(b, []byte("/")) {
		if s := string(part); s == "" || s == "." || s == ".." || strings.ContainsRune(s, 0) {
			return "", fmt.Errorf("export stream has the path %.200q", b)
		}
	}
	return string(b), nil
}

// blob reads a length and that many bytes. Memory grows with what arrives, not with what the
// length promises.
func (d *exportDecoder) blob(limit int64) ([]byte, error) {
	n, err := binary.ReadUvarint(d.in)
	if err != nil {
		return nil, errors.New("export stream was cut")
	}
	if n > uint64(limit) {
		return nil, &ExportLimitError{fmt.Sprintf("the export holds %d bytes where %d are allowed", n, limit)}
	}
	var buf bytes.Buffer
	if m, err := io.CopyN(&buf, d.in, int64(n)); err != nil || uint64(m) != n {
		return nil, errors.New("export stream was cut")
	}
	return buf.Bytes(), nil
}

// maxLeave bounds the list that [ReadLeave] takes.
const maxLeave = 64 << 20

// WriteLeave sends the paths to be left out to an exporter that was told to expect them.
func WriteLeave(out io.Writer, paths []string) error {
	text := strings.Join(paths, "\x00")
	_, err := out.Write(append(binary.BigEndian.AppendUint64(nil, uint64(len(text))), text...))
	return err
}

// ReadLeave reads what [WriteLeave] wrote.
func ReadLeave(in io.Reader) (map[string]bool, error) {
	var n [8]byte
	if _, err := io.ReadFull(in, n[:]); err != nil {
		return nil, fmt.Errorf("read the list of paths to leave out: %w", err)
	}
	size := binary.BigEndian.Uint64(n[:])
	if size > maxLeave {
		return nil, fmt.Errorf("the list of paths to leave out has %d bytes", size)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(in, b); err != nil {
		return nil, fmt.Errorf("read the list of paths to leave out: %w", err)
	}
	leave := map[string]bool{}
	for p := range strings.SplitSeq(string(b), "\x00") {
		if p = strings.TrimSuffix(p, "/"); p != "" {
			leave[p] = true
		}
	}
	return leave, nil
}

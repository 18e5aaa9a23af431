package codesearch

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// maxPostings bounds a segment and with it the memory that building takes: 8 bytes each.
const maxPostings = 24 << 20

// BuildOptions of an index.
type BuildOptions struct {
	Workers  int                   // default: as many as processors
	Progress func(done, total int) // called now and then with numbers of files; may be nil
}

// Stats of what was built.
type Stats struct {
	Files   int   `json:"files"`   // in the index
	Skipped int   `json:"skipped"` // larger than MaxFileSize, not regular, or gone
	Text    int64 `json:"text"`    // bytes of the files in the index
	Index   int64 `json:"index"`   // bytes of the index
}

// Build writes the index of files below tree into dir, which must be empty or absent. The files
// are those that a search of the whole tree looks at, relative, slash-separated and cleaned. When
// it fails, dir is not an index.
func Build(ctx context.Context, dir, tree string, files []string, o BuildOptions) (Stats, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Stats{}, err
	}
	b := &builder{dir: dir, o: o}
	if err := b.add(ctx, tree, files); err != nil {
		return Stats{}, err
	}
	return b.finish(nil)
}

type builder struct {
	dir   string
	o     BuildOptions
	man   manifest
	stats Stats
}

// scanned is one file's contribution.
type scanned struct {
	path string
	size int64
	kind kind
	tri  []trigram // unique, unsorted
	skip bool
}

// add writes segments for the files.
func (b *builder) add(ctx context.Context, tree string, files []string) error {
	files = slices.Clone(files)
	slices.Sort(files)
	files = slices.Compact(files)
	root, err := unix.Open(tree, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the tree %s: %w", tree, err)
	}
	defer unix.Close(root)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	workers := b.o.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	// Slots keep the order of files while workers run ahead by a bounded number.
	slots := make(chan chan scanned, 4*workers)
	type job struct {
		path string
		out  chan scanned
	}
	jobs := make(chan job)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			s := scanner{seen: make([]uint64, 1<<24/64)}
			for j := range jobs {
				sc, err := s.scan(root, j.path)
				if err != nil {
					cancel(err)
					sc.skip = true
				}
				j.out <- sc
			}
		})
	}
	wg.Go(func() {
		defer close(slots)
		defer close(jobs)
		for _, f := range files {
			out := make(chan scanned, 1)
			select {
			case slots <- out:
			case <-ctx.Done():
				return
			}
			select {
			case jobs <- job{f, out}:
			case <-ctx.Done():
				out <- scanned{skip: true}
				return
			}
		}
	})
	seg := &draft{}
	var werr error
	done := 0
	for out := range slots {
		sc := <-out
		done++
		if b.o.Progress != nil && done%1000 == 0 {
			b.o.Progress(done, len(files))
		}
		if werr != nil || ctx.Err() != nil {
			continue
		}
		if sc.skip {
			b.stats.Skipped++
			continue
		}
		if seg.postings+len(sc.tri) > maxPostings && len(seg.docs) > 0 {
			if werr = b.write(seg); werr != nil {
				cancel(werr)
			}
			seg = &draft{}
		}
		seg.add(sc)
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if len(seg.docs) == 0 {
		return nil
	}
	return b.write(seg)
}

// wideMark is a trigram that no line has; the files whose bytes rule nothing out carry it.
const wideMark trigram = '\n'<<16 | '\n'<<8 | '\n'

// scanner finds the trigrams of files, one at a time.
type scanner struct {
	seen []uint64 // a bit for each trigram; all zero between files
	text []byte
	fold []byte
}

func (s *scanner) scan(root int, name string) (scanned, error) {
	var err error
	out := scanned{path: name}
	s.text, err = readFile(root, name, s.text)
	switch {
	case errors.Is(err, errNoFile):
		out.skip = true
		return out, nil
	case err != nil:
		return out, fmt.Errorf("read %s for the search index: %w", name, err)
	case len(name) > 1<<16-1:
		out.skip = true
		return out, nil
	}
	out.size, out.kind = int64(len(s.text)), kindOf(s.text)
	if out.kind == kindWide {
		out.tri = []trigram{wideMark}
		return out, nil // its bytes rule nothing out
	}
	if out.kind == kindASCII && bytes.IndexByte(s.text, '\v') >= 0 {
		out.kind = kindUTF8 // where \s means another thing
	}
	text := s.text
	if end := bytes.IndexByte(text, 0); end >= 0 {
		text = text[:end] // where ripgrep stops
	}
	s.fold = foldText(s.fold, text, out.kind == kindASCII)
	var t trigram
	run := 0
	for _, c := range s.fold {
		if c == '\n' {
			run = 0
			continue
		}
		t = (t<<8 | trigram(c)) & 0xffffff
		if run++; run < 3 {
			continue
		}
		if w, bit := t>>6, uint64(1)<<(t&63); s.seen[w]&bit == 0 {
			s.seen[w] |= bit
			out.tri = append(out.tri, t)
		}
	}
	for _, t := range out.tri {
		s.seen[t>>6] = 0
	}
	return out, nil
}

// errNoFile says that there is no regular file of a size to search.
var errNoFile = errors.New("no such file to search")

// readFile reads a regular file of at most MaxFileSize below the directory root into buf.
func readFile(root int, name string, buf []byte) ([]byte, error) {
	fd, err := unix.Openat(root, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ENXIO), errors.Is(err, unix.EACCES):
		return buf[:0], errNoFile
	case err != nil:
		return buf[:0], err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return buf[:0], err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > MaxFileSize {
		return buf[:0], errNoFile
	}
	if int64(cap(buf)) <= st.Size {
		buf = make([]byte, st.Size+st.Size/4+1)
	}
	buf = buf[:cap(buf)]
	n := 0
	for n < len(buf) {
		m, err := unix.Read(fd, buf[n:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return buf[:0], err
		}
		if m == 0 || n+m > int(st.Size) && n+m > MaxFileSize {
			break
		}
		if n += m; n >= int(st.Size) {
			break
		}
	}
	return buf[:n], nil
}

// draft is a segment in memory.
type draft struct {
	docs     []scanned
	postings int
}

func (d *draft) add(s scanned) {
	d.docs = append(d.docs, s)
	d.postings += len(s.tri)
}

// write lays the segment down as a file.
func (b *builder) write(d *draft) error {
	name := fmt.Sprintf("%04d.seg", len(b.man.Segments))
	f, err := os.OpenFile(filepath.Join(b.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	sum := crc32.New(castagnoli())
	w := bufio.NewWriterSize(io.MultiWriter(f, sum), 1<<20)
	size, err := d.encode(w)
	if err = errors.Join(err, w.Flush(), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write the search index: %w", err)
	}
	for _, s := range d.docs {
		b.stats.Text += s.size
		b.man.Rules = b.man.Rules || foreignRules(path.Base(s.path))
	}
	b.stats.Files += len(d.docs)
	b.man.Segments = append(b.man.Segments, segmentInfo{Name: name, Docs: len(d.docs), Bytes: size, Sum: sum.Sum32()})
	return nil
}

// fewPostings is when a table of all trigrams takes longer to clear than the postings to sort.
const fewPostings = 1 << 20

// lists calls yield with the documents of each trigram, ascending both. What yield is given is its
// own until it returns.
func (d *draft) lists(yield func(t trigram, docs []uint32)) {
	if d.postings > fewPostings {
		d.listsOfMany(yield)
		return
	}
	pairs := make([]uint64, 0, d.postings)
	for i, doc := range d.docs {
		for _, t := range doc.tri {
			pairs = append(pairs, uint64(t)<<32|uint64(i))
		}
	}
	slices.Sort(pairs)
	var docs []uint32
	for i, p := range pairs {
		docs = append(docs, uint32(p))
		if t := p >> 32; i+1 == len(pairs) || pairs[i+1]>>32 != t {
			yield(trigram(t), docs)
			docs = docs[:0]
		}
	}
}

// listsOfMany is lists by a counting sort: documents come in ascending order, so each list ends up
// sorted.
func (d *draft) listsOfMany(yield func(t trigram, docs []uint32)) {
	next := make([]uint32, 1<<24)
	var occurring []trigram
	for _, doc := range d.docs {
		for _, t := range doc.tri {
			if next[t]++; next[t] == 1 {
				occurring = append(occurring, t)
			}
		}
	}
	slices.Sort(occurring)
	at := uint32(0)
	for _, t := range occurring {
		n := next[t]
		next[t] = at
		at += n
	}
	all := make([]uint32, d.postings)
	for i, doc := range d.docs {
		for _, t := range doc.tri {
			all[next[t]] = uint32(i)
			next[t]++
		}
		d.docs[i].tri = nil
	}
	at = 0
	for _, t := range occurring {
		yield(t, all[at:next[t]])
		at = next[t]
	}
}

func (d *draft) encode(w io.Writer) (int64, error) {
	var table, postings []byte
	d.lists(func(t trigram, docs []uint32) {
		table = append(table, byte(t>>16), byte(t>>8), byte(t))
		table = binary.LittleEndian.AppendUint32(table, uint32(len(docs)))
		off := uint64(len(postings))
		table = append(table, byte(off), byte(off>>8), byte(off>>16), byte(off>>24), byte(off>>32))
		postings = appendList(postings, docs, len(d.docs))
	})
	var records, paths []byte
	for _, doc := range d.docs {
		records = binary.LittleEndian.AppendUint32(records, uint32(len(paths)))
		records = binary.LittleEndian.AppendUint16(records, uint16(len(doc.path)))
		records = append(records, byte(doc.kind), 0)
		records = binary.LittleEndian.AppendUint32(records, uint32(doc.size))
		paths = append(paths, doc.path...)
	}
	head := make([]byte, headerSize)
	copy(head, magic)
	h := head[len(magic):]
	binary.LittleEndian.PutUint32(h, uint32(len(d.docs)))
	binary.LittleEndian.PutUint32(h[4:], uint32(len(paths)))
	binary.LittleEndian.PutUint32(h[8:], uint32(len(table)/entrySize))
	binary.LittleEndian.PutUint64(h[12:], uint64(len(postings)))
	binary.LittleEndian.PutUint32(head[headerSize-4:], crc32.ChecksumIEEE(head[:headerSize-4]))
	total := int64(0)
	for _, part := range [][]byte{head, records, paths, table, postings} {
		n, err := w.Write(part)
		if total += int64(n); err != nil {
			return total, err
		}
	}
	return total, nil
}

package codesearch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
	"os"
	"sort"

	"golang.org/x/sys/unix"
)

// A segment file, all numbers little-endian:
//
//	header    magic, counts, sizes, checksums of the sections
//	documents a record of recordSize bytes each, sorted by path
//	paths     their bytes, in that order
//	trigrams  an entry of entrySize bytes each, sorted
//	postings  for each trigram the documents that have it
//
// A list of postings is the differences of document numbers in Rice's code, or, where that is
// shorter, a bit for each document.
const (
	magic      = "daybreak trigrams 1\n"
	headerSize = 64
	recordSize = 12
	entrySize  = 12
)

var errDamaged = errors.New("the search index is damaged; it has to be built again")

type segment struct {
	data     []byte // the mapping
	docs     int
	records  []byte
	paths    []byte
	table    []byte
	postings []byte
}

// document is one file of a segment.
type document struct {
	path []byte
	size int64
	kind kind
}

// openSegment maps a file. The header is checked here, the rest as it is read: opening must not
// cost more for a large index. Full verification is [segment.verify].
func openSegment(name string) (*segment, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() < headerSize || st.Size() > 1<<40 {
		return nil, errDamaged
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the search index: %w", err)
	}
	s, err := parseSegment(data)
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(data))
	}
	s.data = data
	return s, nil
}

func (s *segment) close() error {
	if s.data == nil {
		return nil
	}
	data := s.data
	s.data, s.records, s.paths, s.table, s.postings = nil, nil, nil, nil, nil
	return unix.Munmap(data)
}

func parseSegment(data []byte) (*segment, error) {
	if len(data) < headerSize || !bytes.HasPrefix(data, []byte(magic)) {
		return nil, errDamaged
	}
	h := data[len(magic):headerSize]
	if crc32.ChecksumIEEE(data[:headerSize-4]) != binary.LittleEndian.Uint32(data[headerSize-4:]) {
		return nil, errDamaged
	}
	docs, paths := uint64(binary.LittleEndian.Uint32(h)), uint64(binary.LittleEndian.Uint32(h[4:]))
	entries, postings := uint64(binary.LittleEndian.Uint32(h[8:])), binary.LittleEndian.Uint64(h[12:])
	if postings > 1<<40 || headerSize+docs*recordSize+paths+entries*entrySize+postings != uint64(len(data)) {
		return nil, errDamaged
	}
	s := &segment{docs: int(docs)}
	rest := data[headerSize:]
	take := func(n uint64) []byte {
		part := rest[:n:n]
		rest = rest[n:]
		return part
	}
	s.records, s.paths = take(docs*recordSize), take(paths)
	s.table, s.postings = take(entries*entrySize), take(postings)
	return s, nil
}

// verify reads everything once and compares it with the checksum that the manifest has.
func (s *segment) verify(sum uint32) error {
	if crc32.Checksum(s.data, castagnoli()) != sum {
		return errDamaged
	}
	return nil
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func (s *segment) doc(i int) (document, error) {
	r := s.records[i*recordSize:]
	off, n := uint64(binary.LittleEndian.Uint32(r)), uint64(binary.LittleEndian.Uint16(r[4:]))
	if off+n > uint64(len(s.paths)) || r[6] > byte(kindWide) {
		return document{}, errDamaged
	}
	return document{path: s.paths[off : off+n : off+n], kind: kind(r[6]), size: int64(binary.LittleEndian.Uint32(r[8:]))}, nil
}

// find is the number of the first document whose path is not below p in byte order.
func (s *segment) find(p string) (int, error) {
	var bad error
	i := sort.Search(s.docs, func(i int) bool {
		d, err := s.doc(i)
		if err != nil {
			bad = err
			return true
		}
		return string(d.path) >= p
	})
	return i, bad
}

// entry is one line of the trigram table.
type entry struct {
	off   uint64
	count int
	size  int
}

func (s *segment) entries() int { return len(s.table) / entrySize }

// lookup finds the postings of t; count is 0 when no document has it.
func (s *segment) lookup(t trigram) (entry, error) {
	n := s.entries()
	i := sort.Search(n, func(i int) bool { return s.key(i) >= t })
	if i == n || s.key(i) != t {
		return entry{}, nil
	}
	return s.entryAt(i)
}

// A table entry is the trigram in 3 bytes, the count in 4 and the offset in 5.
func (s *segment) key(i int) trigram {
	e := s.table[i*entrySize:]
	return trigram(e[0])<<16 | trigram(e[1])<<8 | trigram(e[2])
}

func (s *segment) offset(i int) uint64 {
	e := s.table[i*entrySize+7:]
	return uint64(e[0]) | uint64(e[1])<<8 | uint64(e[2])<<16 | uint64(e[3])<<24 | uint64(e[4])<<32
}

func (s *segment) entryAt(i int) (entry, error) {
	e := entry{off: s.offset(i), count: int(binary.LittleEndian.Uint32(s.table[i*entrySize+3:]))}
	end := uint64(len(s.postings))
	if i+1 < s.entries() {
		end = s.offset(i + 1)
	}
	if e.off > end || end > uint64(len(s.postings)) || e.count < 1 || e.count > s.docs {
		return entry{}, errDamaged
	}
	e.size = int(end - e.off)
	return e, nil
}

// list decodes postings; the first byte says how they are written.
func (s *segment) list(e entry) ([]uint32, error) {
	b := s.postings[e.off : e.off+uint64(e.size)]
	if len(b) == 0 {
		return nil, errDamaged
	}
	form, b := b[0], b[1:]
	out := make([]uint32, 0, e.count)
	switch form {
	case formBits:
		if len(b) != (s.docs+7)/8 {
			return nil, errDamaged
		}
		for i, c := range b {
			for ; c != 0; c &= c - 1 {
				out = append(out, uint32(i*8+bits.TrailingZeros8(c)))
			}
		}
	case formRice:
		if out = readRice(out, b, e.count, s.docs); out == nil {
			return nil, errDamaged
		}
	default:
		return nil, errDamaged
	}
	if len(out) != e.count || int(out[len(out)-1]) >= s.docs {
		return nil, errDamaged
	}
	return out, nil
}

const (
	formRice = 0
	formBits = 1
)

// appendList writes the numbers of documents, ascending, in the shorter form.
func appendList(b []byte, docs []uint32, total int) []byte {
	start := len(b)
	b = appendRice(append(b, formRice), docs)
	size := (total + 7) / 8
	if len(b)-start-1 <= size {
		return b
	}
	b = append(b[:start], formBits)
	at := len(b)
	b = append(b, make([]byte, size)...)
	for _, d := range docs {
		b[at+int(d)/8] |= 1 << (d % 8)
	}
	return b
}

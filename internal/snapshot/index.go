package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// indexVersion is raised when an index of before is of no use any more.
const indexVersion = 1

// Index is what a search of the snapshot, with its layers, is answered from. What is in its
// files was written in a sandbox and is never read by the host.
type Index struct {
	Dir    string // host directory, for sandboxes to have at [sandbox.IndexDir]
	Bytes  int64
	Record []byte // JSON of whoever made it

	files []indexFile
}

// indexMeta is the record of a complete index, outside of what sandboxes see.
type indexMeta struct {
	Version int             `json:"version"`
	Mirror  string          `json:"mirror"`
	Env     string          `json:"environment"`
	Base    string          `json:"base"`
	Layers  string          `json:"layers"`
	Data    string          `json:"data"` // directory of the files: another for each that is made, as sandboxes that wait have one by name
	Files   []indexFile     `json:"files"`
	Record  json.RawMessage `json:"record"`
	Made    time.Time       `json:"made"`
}

type indexFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	Sum  uint32 `json:"crc32c"`
}

// indexRec is the record's name in an index's directory.
const indexRec = "meta.json"

// indexKey names an index among those of its snapshot.
func indexKey(snap Snapshot) string {
	return "index-" + hash("daybreak.index.v1", fmt.Sprint(indexVersion), snap.Layers.Digest)
}

// indexDir is beside the snapshot's tree and goes with it.
func indexDir(snap Snapshot) string { return filepath.Join(filepath.Dir(snap.Tree), indexKey(snap)) }

// Index finds the snapshot's index and compares it with its checksums. Class NotFound when there
// is none; class Invalid when it is damaged: [Store.BeginIndex] makes another.
func (s *Store) Index(snap Snapshot) (Index, error) {
	dir := indexDir(snap)
	m, err := readIndexMeta(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Index{}, &task.Error{Class: task.NotFound, Msg: "snapshot " + snap.Digest + " has no search index"}
	}
	if err == nil && (m.Version != indexVersion || m.Data == "" || m.Data != filepath.Base(m.Data) || m.Base != snap.Base || !m.of(snap)) {
		err = errors.New("it is another's")
	}
	if err == nil {
		err = m.verify(dir)
	}
	if err != nil {
		return Index{}, &task.Error{Class: task.Invalid, Msg: "the search index of snapshot " + snap.Digest + " is damaged", Err: err}
	}
	x := Index{Dir: filepath.Join(dir, m.Data), Record: m.Record, files: m.Files}
	for _, f := range m.Files {
		x.Bytes += f.Size
	}
	return x, nil
}

func readIndexMeta(dir string) (m indexMeta, err error) {
	b, err := os.ReadFile(filepath.Join(dir, indexRec))
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(b, &m)
}

// of reports whether the index is of the snapshot's repository, environment and layers.
func (m indexMeta) of(snap Snapshot) bool {
	return m.Mirror == filepath.Base(snap.GitDir) && m.Env == snap.Environment && m.Layers == snap.Layers.Digest
}

func (m indexMeta) verify(dir string) error {
	for _, f := range m.Files {
		in, err := os.Open(filepath.Join(dir, m.Data, f.Name))
		if err != nil {
			return err
		}
		sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
		n, err := io.Copy(sum, in)
		if err = errors.Join(err, in.Close()); err != nil {
			return err
		}
		if n != f.Size || sum.Sum32() != f.Sum {
			return fmt.Errorf("%s is not what was written", f.Name)
		}
	}
	return nil
}

// maxNear is how many indexes are compared to find the nearest one.
const maxNear = 5

// Earlier finds the index of another snapshot of the same repository, environment and layers that
// the fewest files changed since, among the newest, and the commit that it is of. Class NotFound
// when there is none.
func (s *Store) Earlier(ctx context.Context, snap Snapshot) (x Index, base string, err error) {
	found, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(snap.Tree)), "*", indexKey(snap), indexRec))
	if err != nil {
		return Index{}, "", err
	}
	type candidate struct {
		indexMeta
		dir string
		far int
	}
	var all []candidate
	for _, p := range found {
		dir := filepath.Dir(p)
		if m, err := readIndexMeta(dir); err == nil && m.Version == indexVersion && m.Base != snap.Base && m.of(snap) {
			all = append(all, candidate{m, dir, math.MaxInt})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int { return b.Made.Compare(a.Made) })
	if len(all) > 1 {
		for i := range all[:min(len(all), maxNear)] {
			// One whose commit the mirror no longer has is as far as can be.
			if diffs, err := s.cfg.Git.ChangedPaths(ctx, snap.GitDir, all[i].Base, snap.Base); err == nil {
				all[i].far = len(diffs)
			}
		}
		slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.far, b.far) })
	}
	for _, m := range all { // a damaged one is passed over; the others need not be read
		if m.verify(m.dir) == nil {
			return Index{Dir: filepath.Join(m.dir, m.Data), Record: m.Record, files: m.Files}, m.Base, nil
		}
	}
	return Index{}, "", &task.Error{Class: task.NotFound, Msg: "no earlier search index of the repository"}
}

// IndexMaking is an index that is being made.
type IndexMaking struct {
	store  *Store
	snap   Snapshot
	dir    string
	data   string // name of the directory in dir
	files  []indexFile
	unlock func()
}

// BeginIndex waits until no other process makes the same and takes what one has made meanwhile,
// or starts: exactly one of the results is set. A damaged index is removed.
func (s *Store) BeginIndex(ctx context.Context, snap Snapshot) (*IndexMaking, Index, error) {
	unlock, err := s.lock(ctx, hash("daybreak.index.lock", snap.Digest, indexKey(snap)))
	if err != nil {
		return nil, Index{}, err
	}
	got, err := s.Index(snap)
	if err == nil {
		unlock()
		return nil, got, nil
	}
	m := &IndexMaking{store: s, snap: snap, unlock: unlock}
	err = nil
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(snap.Tree), ".tmp-"+indexKey(snap)+"-*")) // the pattern is well-formed
	for _, p := range append(left, indexDir(snap)) {                                              // we hold the lock, so nobody fills them
		err = errors.Join(err, os.RemoveAll(p))
	}
	if err == nil {
		m.dir, err = os.MkdirTemp(filepath.Dir(snap.Tree), ".tmp-"+indexKey(snap)+"-")
	}
	if err == nil {
		m.data = "data" + m.dir[strings.LastIndexByte(m.dir, '-'):]
		err = errors.Join(os.Chmod(m.dir, 0o755), os.Mkdir(filepath.Join(m.dir, m.data), 0o755))
	}
	if err != nil {
		return nil, Index{}, errors.Join(err, m.Abandon())
	}
	return m, Index{}, nil
}

// Add makes one file of what write gives. name is a plain one that is not there yet.
func (m *IndexMaking) Add(name string, write func(io.Writer) error) error {
	if name != filepath.Base(name) || name == "." || name == ".." {
		return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q is no name for a file of an index", name)}
	}
	f, err := os.OpenFile(filepath.Join(m.dir, m.data, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	err = write(io.MultiWriter(f, sum))
	st, serr := f.Stat()
	if err = errors.Join(err, serr, f.Chmod(0o644), f.Close()); err != nil {
		return fmt.Errorf("write the search index: %w", err)
	}
	m.files = append(m.files, indexFile{name, st.Size(), sum.Sum32()})
	return nil
}

// Keep takes a file of an earlier index as it is: nobody ever writes to either. size is what the
// file must have.
func (m *IndexMaking) Keep(earlier Index, name string, size int64) error {
	i := slices.IndexFunc(earlier.files, func(f indexFile) bool { return f.Name == name && f.Size == size })
	if i < 0 {
		return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("the earlier search index has no file %.40q of %d bytes", name, size)}
	}
	if err := os.Link(filepath.Join(earlier.Dir, name), filepath.Join(m.dir, m.data, name)); err != nil {
		return fmt.Errorf("keep a file of the earlier search index: %w", err)
	}
	m.files = append(m.files, earlier.files[i])
	return nil
}

// Commit puts the index in place, at once and for good. record is a JSON value.
func (m *IndexMaking) Commit(record []byte) (Index, error) {
	b, err := json.MarshalIndent(indexMeta{
		Version: indexVersion, Mirror: filepath.Base(m.snap.GitDir), Env: m.snap.Environment, Base: m.snap.Base, Layers: m.snap.Layers.Digest,
		Data: m.data, Files: slices.Clone(m.files), Record: record, Made: m.store.cfg.Now().UTC(),
	}, "", "  ")
	if err != nil {
		return Index{}, err
	}
	if err := os.WriteFile(filepath.Join(m.dir, indexRec), append(b, '\n'), 0o644); err != nil {
		return Index{}, err
	}
	if err := syncAll(m.dir); err != nil {
		return Index{}, err
	}
	if err := os.Rename(m.dir, indexDir(m.snap)); err != nil {
		return Index{}, fmt.Errorf("put the search index in place: %w", err)
	}
	m.dir = ""
	m.unlock()
	m.unlock = nil
	x := Index{Dir: filepath.Join(indexDir(m.snap), m.data), Record: record, files: m.files}
	for _, f := range m.files {
		x.Bytes += f.Size
	}
	return x, nil
}

// Abandon removes everything and lets others try. It is idempotent and does nothing after
// [IndexMaking.Commit] succeeded.
func (m *IndexMaking) Abandon() error {
	if m.unlock == nil {
		return nil
	}
	defer func() { m.unlock(); m.unlock = nil }()
	if m.dir == "" {
		return nil
	}
	return os.RemoveAll(m.dir)
}

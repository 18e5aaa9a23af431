package codesearch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// ManifestName is the file of an index without which it is none.
const ManifestName = "index.json"

// manifest lists the segments. It is written last: a directory without one is no index.
type manifest struct {
	Version  int           `json:"version"`
	Segments []segmentInfo `json:"segments"`
	Stats    Stats         `json:"stats"`
	Rules    bool          `json:"rules,omitempty"` // has an .ignore or .rgignore, which git does not know
}

type segmentInfo struct {
	Name  string   `json:"name"`
	Docs  int      `json:"docs"`
	Bytes int64    `json:"bytes"`
	Sum   uint32   `json:"crc32c"`
	Dead  []uint32 `json:"dead,omitempty"` // documents that a later segment replaces, or that are gone
}

const (
	manifestVersion = 1
	maxManifest     = 64 << 20
)

func (b *builder) finish(dead [][]uint32) (Stats, error) {
	for i, d := range dead {
		b.man.Segments[i].Dead = d
	}
	b.man.Version, b.stats.Index = manifestVersion, 0
	for _, s := range b.man.Segments {
		b.stats.Index += s.Bytes
	}
	b.man.Stats = b.stats
	text, err := json.Marshal(b.man)
	if err != nil {
		return Stats{}, err
	}
	tmp, err := os.CreateTemp(b.dir, ".new-")
	if err != nil {
		return Stats{}, err
	}
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), filepath.Join(b.dir, ManifestName))
	}
	return b.stats, err
}

// Index answers queries. It is safe for concurrent use until it is closed.
type Index struct {
	dir   string
	man   manifest
	parts []part
	rules func() ([]string, error) // files that decide what is ignored
}

type part struct {
	*segment
	dead []uint32 // sorted
}

// Open maps an index.
func Open(dir string) (*Index, error) {
	f, err := os.Open(filepath.Join(dir, ManifestName))
	if err != nil {
		return nil, fmt.Errorf("open the search index: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	x := &Index{dir: dir}
	x.rules = sync.OnceValues(x.findRules)
	if st.Size() > maxManifest {
		return nil, errDamaged
	}
	if err := json.NewDecoder(f).Decode(&x.man); err != nil || x.man.Version != manifestVersion {
		return nil, errDamaged
	}
	for _, info := range x.man.Segments {
		if info.Name != filepath.Base(info.Name) || info.Name == "." || info.Name == ".." {
			return nil, errors.Join(errDamaged, x.Close())
		}
		s, err := openSegment(filepath.Join(dir, info.Name))
		if err != nil {
			return nil, errors.Join(err, x.Close())
		}
		x.parts = append(x.parts, part{s, info.Dead})
		if s.docs != info.Docs || int64(len(s.data)) != info.Bytes || !slices.IsSorted(info.Dead) {
			return nil, errors.Join(errDamaged, x.Close())
		}
	}
	return x, nil
}

// Verify reads the whole index and reports damage.
func (x *Index) Verify() error {
	for i, p := range x.parts {
		if err := p.verify(x.man.Segments[i].Sum); err != nil {
			return err
		}
	}
	return nil
}

// Close lets go of the mapping. No query may be under way.
func (x *Index) Close() error {
	var errs []error
	for _, p := range x.parts {
		errs = append(errs, p.close())
	}
	x.parts = nil
	return errors.Join(errs...)
}

// Stats of the index as it was built.
func (x *Index) Stats() Stats { return x.man.Stats }

// ForeignRules reports whether the tree has rules about ignored files that git does not know.
func (x *Index) ForeignRules() bool { return x.man.Rules }

// findRules looks through the names of all files.
func (x *Index) findRules() (list []string, err error) {
	err = x.Children("", func(p string) bool {
		if isRules(path.Base(p)) {
			list = append(list, p)
		}
		return true
	})
	return list, err
}

// Has reports whether a file is in the index.
func (x *Index) Has(path string) (bool, error) {
	i, _, err := x.locate(path)
	return i >= 0, err
}

// locate finds a living document; its part is -1 when there is none.
func (x *Index) locate(path string) (part, doc int, err error) {
	for i := len(x.parts) - 1; i >= 0; i-- {
		p := x.parts[i]
		n, err := p.find(path)
		if err != nil {
			return -1, 0, err
		}
		if n == p.docs {
			continue
		}
		d, err := p.doc(n)
		if err != nil {
			return -1, 0, err
		}
		if string(d.path) == path && !p.isDead(uint32(n)) {
			return i, n, nil
		}
	}
	return -1, 0, nil
}

func (p part) isDead(doc uint32) bool {
	_, dead := slices.BinarySearch(p.dead, doc)
	return dead
}

// Children calls yield with each file of the index below a directory ("" is the root), by its
// path, until it returns false. The order is by segment, then by path.
func (x *Index) Children(dir string, yield func(path string) bool) error {
	prefix := ""
	if dir != "" {
		prefix = dir + "/"
	}
	for _, p := range x.parts {
		n, err := p.find(prefix)
		if err != nil {
			return err
		}
		for ; n < p.docs; n++ {
			d, err := p.doc(n)
			if err != nil {
				return err
			}
			if !strings.HasPrefix(string(d.path), prefix) {
				break
			}
			if !p.isDead(uint32(n)) && !yield(string(d.path)) {
				return nil
			}
		}
	}
	return nil
}

// Advance writes the index of another tree into dir: old's, less the files that are gone, with
// those that changed or are new read from tree. The files of old that kept names belong to the
// result as they are, and the caller gives dir the same; what is written is in proportion to the
// changes. kept is nil, and nothing is written, when building anew is the better way.
//
// What was written for earlier changes is read again together with the new ones, as in a
// log-structured merge tree (O'Neil and others, 1996), for as long as it is no more than twice as
// much: so the parts grow geometrically, and their number with the logarithm of the changes.
func Advance(ctx context.Context, dir string, old *Index, tree string, changed, gone []string, o BuildOptions) (st Stats, kept []string, err error) {
	if len(old.parts) == 0 || (len(changed)+len(gone))*4 > old.man.Stats.Files {
		return Stats{}, nil, nil
	}
	b := &builder{dir: dir, o: o, stats: old.man.Stats}
	b.man.Rules = old.man.Rules
	dead, err := b.bury(old, slices.Concat(changed, gone))
	if err != nil {
		return Stats{}, nil, err
	}
	stay, docs, buried := len(old.parts), 0, 0
	for size := len(changed); stay > 0; stay-- {
		living := old.parts[stay-1].docs - len(dead[stay-1])
		if living > 2*size {
			break
		}
		size += living
	}
	for i, p := range old.parts[:stay] {
		docs, buried = docs+p.docs, buried+len(dead[i])
	}
	if buried*2 >= docs {
		return Stats{}, nil, nil
	}
	read := slices.Clone(changed)
	for i, p := range old.parts[stay:] {
		more, err := b.take(p, dead[stay+i])
		if err != nil {
			return Stats{}, nil, err
		}
		read = append(read, more...)
	}
	for _, info := range old.man.Segments[:stay] {
		kept = append(kept, info.Name)
		b.man.Segments = append(b.man.Segments, segmentInfo{Name: info.Name, Docs: info.Docs, Bytes: info.Bytes, Sum: info.Sum})
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Stats{}, nil, err
	}
	if err := b.add(ctx, tree, read); err != nil {
		return Stats{}, nil, err
	}
	st, err = b.finish(dead[:stay])
	return st, kept, err
}

// bury finds the documents of each part of old that no longer hold, sorted, and takes those that
// held until now from the figures.
func (b *builder) bury(old *Index, paths []string) ([][]uint32, error) {
	dead := make([][]uint32, len(old.parts))
	for i, p := range old.parts {
		dead[i] = slices.Clone(p.dead)
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		i, n, err := old.locate(path)
		if err != nil {
			return nil, err
		}
		if i < 0 {
			continue
		}
		d, err := old.parts[i].doc(n)
		if err != nil {
			return nil, err
		}
		dead[i] = append(dead[i], uint32(n))
		b.stats.Files--
		b.stats.Text -= d.size
	}
	for i := range dead {
		slices.Sort(dead[i])
	}
	return dead, nil
}

// take names the living documents of a part that will be read again, and takes them from the
// figures.
func (b *builder) take(p part, dead []uint32) (paths []string, err error) {
	for n := range p.docs {
		if _, gone := slices.BinarySearch(dead, uint32(n)); gone {
			continue
		}
		d, err := p.doc(n)
		if err != nil {
			return nil, err
		}
		paths = append(paths, string(d.path))
		b.stats.Files--
		b.stats.Text -= d.size
	}
	return paths, nil
}

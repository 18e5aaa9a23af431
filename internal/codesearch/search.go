package codesearch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Tree is the directory that an index is of, or a work tree over it.
type Tree struct {
	fd int
	// Skip says which files of the index are to be left out, since they are not what they were;
	// nil: none.
	Skip func(path string) bool
}

// OpenTree opens a directory for searching. Close it after use.
func OpenTree(dir string, skip func(path string) bool) (*Tree, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the tree %s: %w", dir, err)
	}
	return &Tree{fd, skip}, nil
}

// Close lets go of the directory.
func (t *Tree) Close() error { return unix.Close(t.fd) }

// candidate is a file that may match.
type candidate struct {
	path string
	kind kind
	size int64
}

// Search counts the matching lines of the index's files. It returns [ErrAsk] for a query that
// only ripgrep can answer.
func (x *Index) Search(ctx context.Context, t *Tree, q Query) (Answer, error) {
	p, err := compile(q)
	if err != nil {
		return Answer{}, err
	}
	list, err := x.candidates(p, t, q)
	if err != nil {
		return Answer{}, err
	}
	var ans Answer
	list = slices.DeleteFunc(list, func(c candidate) bool {
		ask := c.kind >= kindOdd || (c.kind == kindUTF8 && p.unicode)
		if ask {
			ans.Ask = append(ans.Ask, c.path)
		}
		return ask
	})
	if q.MostAsk > 0 && len(ans.Ask) > q.MostAsk {
		return Answer{}, ErrAsk
	}
	ans.Files = len(list)
	var long, seen, read atomic.Int64
	long.Store(maxLong)
	most := max(engineFree, x.man.Stats.Text/engineShare)
	if q.IgnoreCase {
		most /= engineFold
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	counts, err := each(ctx, t, p, list, func(m *matcher, i int, text []byte) (n int) {
		m.long, m.seen = &long, 0
		m.lines(text, list[i].kind, func(int, int) bool { n++; return true })
		if s, r := seen.Add(m.seen), read.Add(1); r >= engineFirst && s*int64(len(list))/r > most {
			stop(ErrAsk)
		}
		if m.ask {
			return -1
		}
		return n
	})
	if err != nil {
		return Answer{}, err
	}
	for i, n := range counts {
		if n > 0 {
			ans.Counts = append(ans.Counts, Count{list[i].path, n})
		}
		if n < 0 {
			ans.Ask = append(ans.Ask, list[i].path)
		}
	}
	if q.MostAsk > 0 && len(ans.Ask) > q.MostAsk {
		return Answer{}, ErrAsk
	}
	slices.Sort(ans.Ask)
	slices.SortFunc(ans.Counts, func(a, b Count) int { return cmp.Compare(a.Path, b.Path) })
	return ans, nil
}

// Lines returns lines of some files of the index with their neighbours, by their numbers. The files
// are those of an [Answer.Counts] of the same query.
func (x *Index) Lines(ctx context.Context, t *Tree, q Query, paths []string, pick Pick) ([][]Line, error) {
	p, err := compile(q)
	if err != nil {
		return nil, err
	}
	list := make([]candidate, len(paths))
	for i, path := range paths {
		s, n, err := x.locate(path)
		if err != nil {
			return nil, err
		}
		if s < 0 {
			return nil, fmt.Errorf("%s is not in the search index", path)
		}
		d, err := x.parts[s].doc(n)
		if err != nil {
			return nil, err
		}
		list[i] = candidate{path, d.kind, d.size}
	}
	return each(ctx, t, p, list, func(m *matcher, i int, text []byte) []Line {
		picked := func(int) bool { return true }
		if pick.Only != nil {
			picked = func(number int) bool {
				_, ok := slices.BinarySearch(pick.Only[i], number)
				return ok
			}
		}
		return m.collect(text, list[i].kind, pick, picked)
	})
}

// collect copies matching lines and their neighbours.
func (m *matcher) collect(text []byte, k kind, pick Pick, picked func(number int) bool) []Line {
	type span struct{ start, end int }
	var hits []span
	m.lines(text, k, func(start, end int) bool {
		hits = append(hits, span{start, end})
		return len(hits) < pick.First
	})
	var out []Line
	number, last := 0, 0 // last: number of the latest line that is in out
	add := func(n int, s span, match bool) {
		line := text[s.start:s.end]
		size := len(line)
		if pick.Bytes > 0 && size > pick.Bytes {
			size = len(bytes.TrimSuffix(line, []byte{'\r'}))
			line = line[:pick.Bytes]
		}
		out, last = append(out, Line{n, match, slices.Clone(line), size}), n
	}
	var before []span // the latest lines that are not
	trail := 0
	for at := 0; at < len(text) && (len(hits) > 0 || trail > 0); {
		s := span{at, len(text)}
		if n := bytes.IndexByte(text[at:], '\n'); n >= 0 {
			s.end = at + n
		}
		number++
		hit := len(hits) > 0 && hits[0].start == at
		if hit {
			hits = hits[1:]
		}
		switch {
		case hit && picked(number):
			for i, s := range before {
				if n := number - len(before) + i; n > last {
					add(n, s, false)
				}
			}
			before = before[:0]
			add(number, s, true)
			trail = pick.Around
		case trail > 0:
			add(number, s, false)
			trail--
		case pick.Around > 0:
			if len(before) == pick.Around {
				before = slices.Delete(before, 0, 1)
			}
			before = append(before, s)
		}
		at = s.end + 1
	}
	return out
}

// each reads the files on all processors and hands their texts over, with the places of the files
// in the list; so are the results ordered. A file that is gone gives the zero value.
func each[T any](ctx context.Context, t *Tree, p *plan, list []candidate, do func(m *matcher, i int, text []byte) T) ([]T, error) {
	out := make([]T, len(list))
	order, workers := shares(list)
	var next atomic.Int64
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	work := func() {
		m := &matcher{plan: p}
		for ctx.Err() == nil {
			n := int(next.Add(1)) - 1
			if n >= len(list) {
				return
			}
			i, err := order(n), error(nil)
			m.text, err = readFile(t.fd, list[i].path, m.text)
			if errors.Is(err, errNoFile) {
				continue
			}
			if err != nil {
				mu.Lock()
				failed = cmp.Or(failed, fmt.Errorf("search %s: %w", list[i].path, err))
				mu.Unlock()
				return
			}
			out[i] = do(m, i, m.text)
		}
	}
	for range workers - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	return out, errors.Join(failed, context.Cause(ctx))
}

// worth is how many bytes, or files, another processor is woken for.
const (
	worth      = 256 << 10
	worthFiles = 16
)

// shares says by how many files are read at once, and in which order: of few files the largest comes
// first, so that nobody is left alone with it at the end.
func shares(list []candidate) (order func(n int) int, workers int) {
	bytes := int64(0)
	for _, c := range list {
		bytes += c.size
	}
	workers = max(len(list)/worthFiles, int(min(bytes/worth, int64(len(list))))) + 1
	workers = min(workers, runtime.GOMAXPROCS(0), len(list))
	if workers < 2 || len(list) > engineFirst {
		return func(n int) int { return n }, workers
	}
	places := make([]int, len(list))
	for i := range places {
		places[i] = i
	}
	slices.SortStableFunc(places, func(a, b int) int { return cmp.Compare(list[b].size, list[a].size) })
	return func(n int) int { return places[n] }, workers
}

// candidates are the living files that may match, in no order.
func (x *Index) candidates(p *plan, t *Tree, q Query) ([]candidate, error) {
	globs, err := parseGlobs(q.Globs)
	if err != nil {
		return nil, err
	}
	var out []candidate
	for _, part := range x.parts {
		docs, all, err := part.eval(p.need)
		if err != nil {
			return nil, err
		}
		keep := func(n uint32) error {
			d, err := part.doc(int(n))
			if err != nil {
				return err
			}
			path := string(d.path)
			if wanted(path, q.Paths, globs) && !part.isDead(n) && (t.Skip == nil || !t.Skip(path)) {
				out = append(out, candidate{path, d.kind, d.size})
			}
			return nil
		}
		if all {
			for n := range part.docs {
				if err := keep(uint32(n)); err != nil {
					return nil, err
				}
			}
			continue
		}
		wide, err := part.postingsOf(wideMark)
		if err != nil {
			return nil, err
		}
		for _, n := range union(docs, wide) {
			if err := keep(n); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// wanted reports whether a search of paths looks at a file; no paths are everything.
func wanted(path string, paths []string, g globs) bool {
	for _, p := range paths {
		switch {
		case p == "." || p == "":
			p = ""
		case path != p && !strings.HasPrefix(path, p+"/"):
			continue
		}
		if g.keep(path, p) {
			return true
		}
	}
	return len(paths) == 0 && g.keep(path, "")
}

func (s *segment) postingsOf(t trigram) ([]uint32, error) {
	e, err := s.lookup(t)
	if err != nil || e.count == 0 {
		return nil, err
	}
	return s.list(e)
}

// eval finds the documents that meet a need; all says that every one does.
func (s *segment) eval(n need) (docs []uint32, all bool, err error) {
	switch n.op {
	case needNone:
		return nil, false, nil
	case needAnd:
		return s.evalAnd(n)
	case needOr:
		for _, t := range n.tri {
			l, err := s.postingsOf(t)
			if err != nil {
				return nil, false, err
			}
			docs = union(docs, l)
		}
		for _, sub := range n.sub {
			l, all, err := s.eval(sub)
			if all || err != nil {
				return nil, all, err
			}
			docs = union(docs, l)
		}
		return docs, false, nil
	}
	return nil, true, nil
}

func (s *segment) evalAnd(n need) (docs []uint32, all bool, err error) {
	found := make([]entry, 0, len(n.tri))
	for _, t := range n.tri {
		e, err := s.lookup(t)
		if err != nil || e.count == 0 {
			return nil, false, err
		}
		found = append(found, e)
	}
	slices.SortFunc(found, func(a, b entry) int { return cmp.Compare(a.count, b.count) })
	all = true
	for _, e := range found {
		// A list that is much longer than what is left costs more than reading a few files.
		if !all && (len(docs) == 0 || e.count > 200*len(docs)) {
			break
		}
		if all && e.count == s.docs {
			break // the rarest is everywhere
		}
		l, err := s.list(e)
		if err != nil {
			return nil, false, err
		}
		if all {
			docs, all = l, false
		} else {
			docs = intersect(docs, l)
		}
	}
	for _, sub := range n.sub {
		l, every, err := s.eval(sub)
		if err != nil {
			return nil, false, err
		}
		switch {
		case every:
		case all:
			docs, all = l, false
		default:
			docs = intersect(docs, l)
		}
	}
	return docs, all, nil
}

// union of sorted lists; it may return one of them.
func union(a, b []uint32) []uint32 {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	out := make([]uint32, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			out, a = append(out, a[0]), a[1:]
		case a[0] > b[0]:
			out, b = append(out, b[0]), b[1:]
		default:
			out, a, b = append(out, a[0]), a[1:], b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// intersect sorted lists, in a's memory.
func intersect(a, b []uint32) []uint32 {
	out := a[:0]
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			a = a[1:]
		case a[0] > b[0]:
			b = b[1:]
		default:
			out, a, b = append(out, a[0]), a[1:], b[1:]
		}
	}
	return out
}

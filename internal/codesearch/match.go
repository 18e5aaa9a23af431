package codesearch

import (
	"bytes"
	"strings"
	"sync/atomic"
)

const (
	longLine = 4 << 10 // bytes
	maxLong  = 1 << 20 // bytes of long lines that one search goes through by regular expression

	// A search is ripgrep's when our engine would have to see more than this share of the tree's text,
	// and more than ripgrep needs to be started: ours takes some ten times as long for a line, and
	// where case is ignored some fifty times.
	engineShare = 8
	engineFold  = 5
	engineFree  = 1 << 20 // bytes
	engineFirst = 64      // files that are read before that is judged
)

// matcher finds the matching lines of one text after another. It is not safe for concurrent use.
type matcher struct {
	*plan
	text []byte // of the file that is read
	fold []byte // it in lower case
	next []int  // where each literal is found next
	rare []int  // which byte of each literal it is looked for by
	// long is what is left of maxLong, for all who search at once; nil: as much as it takes. Our engine
	// takes a hundred times as long as ripgrep's for a match far into a line.
	long *atomic.Int64
	ask  bool  // it was not enough for this text
	seen int64 // bytes of lines that the engine was given
}

// matches reports whether a line that has one of the literals matches.
func (m *matcher) matches(line []byte) bool {
	if m.re == nil {
		return true
	}
	if m.long != nil && len(line) > longLine && m.long.Add(-int64(len(line))) < 0 {
		m.ask = true
		return false
	}
	m.seen += int64(len(line))
	return m.re.Match(line)
}

// lines calls yield with the start and end of each line of text that matches, without its line
// feed, until yield returns false or only ripgrep can go on. The file's kind is k.
func (m *matcher) lines(text []byte, k kind, yield func(start, end int) bool) {
	m.ask = false
	hay := text
	if m.plan.fold {
		if k != kindASCII && (bytes.Contains(text, longSBytes) || bytes.Contains(text, kelvinBytes)) {
			m.everyLine(text, yield)
			return
		}
		if cap(m.fold) < len(text) {
			m.fold = make([]byte, len(text)+len(text)/4)
		}
		m.fold = m.fold[:len(text)]
		lower(m.fold, text)
		hay = m.fold
	}
	m.next = m.next[:0]
	for i, l := range m.lits {
		if m.next = append(m.next, -1); len(m.rare) == i {
			m.rare = append(m.rare, rarest(l))
		}
	}
	for at := 0; at < len(hay); {
		hit := m.first(hay, at)
		if hit < 0 {
			return
		}
		start := at + bytes.LastIndexByte(hay[at:hit], '\n') + 1
		end := len(hay)
		if n := bytes.IndexByte(hay[hit:], '\n'); n >= 0 {
			end = hit + n
		}
		if m.matches(text[start:end]) && !yield(start, end) || m.ask {
			return
		}
		at = end + 1
	}
}

// first is where the first of the literals is at or after at, or -1.
func (m *matcher) first(hay []byte, at int) int {
	best := -1
	for i, l := range m.lits {
		n := m.next[i]
		if n == len(hay) {
			continue
		}
		if n < at {
			if n = indexBy(hay[at:], l, m.rare[i]); n < 0 {
				m.next[i] = len(hay)
				continue
			}
			n += at
			m.next[i] = n
		}
		if best < 0 || n < best {
			best = n
		}
	}
	return best
}

// usual are the bytes of source text by how often they come, most often first; others are rarer.
const usual = " etnraoislcdpu\tfmg.h\n\"(),_y:=/v-k01{}bw;S2xECTIARPN*3[]LDqzjFO4>U5MB<"

// rarest is where in a literal its rarest byte is: as ripgrep's engine does, that one is looked for.
func rarest(l []byte) (at int) {
	least := -1
	for i, c := range l {
		rank := strings.IndexByte(usual, c)
		if rank < 0 {
			rank = len(usual)
		}
		if rank > least {
			least, at = rank, i
		}
	}
	return at
}

// indexBy is [bytes.Index] of a literal by one of its bytes. Where that comes too often after all it
// goes on as bytes.Index does.
func indexBy(hay, l []byte, by int) int {
	if len(l) == 0 {
		return 0
	}
	for at, fails := 0, 0; len(hay)-at >= len(l); fails++ {
		if fails > 16+at/16 {
			n := bytes.Index(hay[at:], l)
			if n >= 0 {
				n += at
			}
			return n
		}
		n := bytes.IndexByte(hay[at+by:len(hay)-(len(l)-1-by)], l[by])
		if n < 0 {
			return -1
		}
		if at += n; bytes.Equal(hay[at:at+len(l)], l) {
			return at
		}
		at++
	}
	return -1
}

// everyLine is for a text with letters that fold to ASCII ones.
func (m *matcher) everyLine(text []byte, yield func(start, end int) bool) {
	for at := 0; at < len(text); {
		end := len(text)
		if n := bytes.IndexByte(text[at:], '\n'); n >= 0 {
			end = at + n
		}
		line := text[at:end]
		hit := false
		if m.re != nil {
			hit = m.matches(line)
		} else {
			folded := foldText(nil, line, false)
			for _, l := range m.lits {
				hit = hit || bytes.Contains(folded, l)
			}
		}
		if hit && !yield(at, end) || m.ask {
			return
		}
		at = end + 1
	}
}

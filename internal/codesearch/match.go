package codesearch

import "bytes"

// matcher finds the matching lines of one text after another. It is not safe for concurrent use.
type matcher struct {
	*plan
	text []byte // of the file that is read
	fold []byte // it in lower case
	next []int  // where each literal is found next
}

// lines calls yield with the start and end of each line of text that matches, without its line
// feed, until yield returns false. The file's kind is k.
func (m *matcher) lines(text []byte, k kind, yield func(start, end int) bool) {
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
	for range m.lits {
		m.next = append(m.next, -1)
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
		if (m.re == nil || m.re.Match(text[start:end])) && !yield(start, end) {
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
			if n = bytes.Index(hay[at:], l); n < 0 {
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
			hit = m.re.Match(line)
		} else {
			folded := foldText(nil, line, false)
			for _, l := range m.lits {
				hit = hit || bytes.Contains(folded, l)
			}
		}
		if hit && !yield(at, end) {
			return
		}
		at = end + 1
	}
}

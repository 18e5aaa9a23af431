package guest

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
)

// maxListed caps the line numbers of an ambiguous match.
const maxListed = 50

// maxCompared bounds the line comparisons of one edit, against files made to be slow.
const maxCompared = 5_000_000

// matched is where and how a piece was found, or why not.
type matched struct {
	problem    string
	lines      []int
	nearest    []string
	after      []byte // the new content
	at         int    // byte offset of the first change
	inserted   []byte
	count      int
	whitespace bool
	unescaped  bool
}

// match replaces old by repl in content: the exact bytes, else the same text with the file's
// CRLF line ends, else with \xNN read as the byte that a read showed that way, else whole
// lines that differ in leading white space alone. Nothing is ever matched by likeness.
func match(content, old, repl []byte, all bool) matched {
	plainOld, plainNew := old, repl
	try := func(o, n []byte) (matched, bool) {
		at := findAll(content, o)
		switch {
		case len(at) == 0:
			return matched{}, false
		case len(at) > 1 && !all:
			return matched{problem: "many_matches", lines: lineNumbers(content, at)}, true
		}
		n = fitEnds(content, at[0], o, n)
		return matched{after: splice(content, at, len(o), n), at: at[0], inserted: n, count: len(at)}, true
	}
	if m, ok := try(old, repl); ok {
		return m
	}
	hasCRLF := bytes.Contains(content, []byte("\r\n"))
	if hasCRLF && bytes.IndexByte(old, '\n') >= 0 && bytes.IndexByte(old, '\r') < 0 {
		old, repl = toCRLF(old), toCRLF(repl)
		if m, ok := try(old, repl); ok {
			return m
		}
	}
	if o, n := unescape(old), unescape(repl); !bytes.Equal(o, old) {
		if m, ok := try(o, n); ok {
			m.unescaped = true
			return m
		}
	}
	if !all {
		if m, ok := matchLines(content, plainOld, plainNew); ok {
			return m
		}
	}
	return matched{problem: "no_match", nearest: nearest(content, plainOld)}
}

// findAll returns the offsets of the occurrences, without overlap.
func findAll(content, old []byte) []int {
	var at []int
	for from := 0; ; {
		i := bytes.Index(content[from:], old)
		if i < 0 {
			return at
		}
		at = append(at, from+i)
		from += i + len(old)
	}
}

func lineNumbers(content []byte, at []int) []int {
	var out []int
	line, from := 1, 0
	for _, i := range at[:min(len(at), maxListed)] {
		line += bytes.Count(content[from:i], []byte{'\n'})
		from = i
		out = append(out, line)
	}
	return out
}

func splice(content []byte, at []int, n int, repl []byte) []byte {
	out := make([]byte, 0, len(content)+len(at)*(len(repl)-n)+1)
	from := 0
	for _, i := range at {
		out = append(out, content[from:i]...)
		out = append(out, repl...)
		from = i + n
	}
	return append(out, content[from:]...)
}

// fitEnds gives the new text the line ends of the place it goes to, and keeps the file's
// final line end when the old text reached it.
func fitEnds(content []byte, at int, old, repl []byte) []byte {
	if bytes.IndexByte(repl, '\n') >= 0 && bytes.IndexByte(repl, '\r') < 0 && crlfAt(content, at, old) {
		repl = toCRLF(repl)
	}
	atEnd := at+len(old) == len(content)
	if atEnd && len(repl) > 0 && bytes.HasSuffix(old, []byte{'\n'}) && !bytes.HasSuffix(repl, []byte{'\n'}) {
		end := "\n"
		if bytes.HasSuffix(old, []byte("\r\n")) {
			end = "\r\n"
		}
		repl = append(bytes.Clone(repl), end...)
	}
	return repl
}

// crlfAt reports which line end is in use where old was found.
func crlfAt(content []byte, at int, old []byte) bool {
	if i := bytes.IndexByte(old, '\n'); i >= 0 {
		return i > 0 && old[i-1] == '\r' || i == 0 && at > 0 && content[at-1] == '\r'
	}
	if i := bytes.IndexByte(content[at+len(old):], '\n'); i >= 0 {
		i += at + len(old)
		return i > 0 && content[i-1] == '\r'
	}
	return usesCRLF(content)
}

// highEscape is how a read shows a byte that is not UTF-8.
var highEscape = regexp.MustCompile(`\\x[89A-Fa-f][0-9A-Fa-f]`)

func unescape(b []byte) []byte {
	return highEscape.ReplaceAllFunc(b, func(m []byte) []byte {
		n, err := strconv.ParseUint(string(m[2:]), 16, 8)
		if err != nil {
			return m
		}
		return []byte{byte(n)}
	})
}

// matchLines is the one retry: whole lines, leading white space apart, unique. The new text
// gets the indentation that its old neighbours turned out to have.
func matchLines(content, old, repl []byte) (matched, bool) {
	want := splitLines(old)
	have := bytes.SplitAfter(content, []byte{'\n'})
	if len(have) > 0 && len(have[len(have)-1]) == 0 {
		have = have[:len(have)-1]
	}
	if len(want) == 0 || len(want) > len(have) || len(bytes.TrimSpace(old)) == 0 {
		return matched{}, false
	}
	core := func(l []byte) []byte { return bytes.TrimLeft(l, " \t") }
	var hits []int
	budget := maxCompared
	for i := 0; i+len(want) <= len(have); i++ {
		same := true
		for j := range want {
			if budget--; budget < 0 {
				return matched{}, false
			}
			if !bytes.Equal(core(trimEnd(have[i+j])), core(want[j])) {
				same = false
				break
			}
		}
		if same {
			hits = append(hits, i)
		}
	}
	if len(hits) == 0 {
		return matched{}, false
	}
	if len(hits) > 1 {
		m := matched{problem: "many_matches"}
		for _, h := range hits[:min(len(hits), maxListed)] {
			m.lines = append(m.lines, h+1)
		}
		return m, true
	}
	at := 0
	for _, l := range have[:hits[0]] {
		at += len(l)
	}
	region := have[hits[0] : hits[0]+len(want)]
	n := 0
	for _, l := range region {
		n += len(l)
	}
	inserted := reindent(repl, want, region)
	// Whole lines: the new text ends as the replaced lines did.
	last := region[len(region)-1]
	if end := last[len(trimEnd(last)):]; len(inserted) > 0 && len(end) > 0 && !bytes.HasSuffix(inserted, []byte{'\n'}) {
		inserted = append(inserted, end...)
	} else if len(end) == 0 {
		inserted = trimEnd(inserted)
	}
	if bytes.Contains(region[0], []byte("\r\n")) {
		inserted = toCRLF(inserted)
	}
	return matched{after: splice(content, []int{at}, n, inserted), at: at, inserted: inserted, count: 1, whitespace: true}, true
}

func trimEnd(l []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(l, []byte{'\n'}), []byte{'\r'})
}

func indentOf(l []byte) string {
	return string(l[:len(l)-len(bytes.TrimLeft(l, " \t"))])
}

// reindent maps each indentation that the model wrote to the one the file has there.
func reindent(repl []byte, want, region [][]byte) []byte {
	real := make(map[string]string)
	var known []string
	for i, w := range want {
		if len(bytes.TrimSpace(w)) == 0 {
			continue
		}
		in := indentOf(w)
		if _, ok := real[in]; !ok {
			real[in] = indentOf(region[i])
			known = append(known, in)
		}
	}
	// The longest known indentation that a line begins with decides.
	slices.SortFunc(known, func(a, b string) int { return len(b) - len(a) })
	var out []byte
	for _, l := range bytes.SplitAfter(repl, []byte{'\n'}) {
		in := indentOf(l)
		if len(bytes.TrimSpace(l)) == 0 {
			out = append(out, l...)
			continue
		}
		for _, k := range known {
			if len(in) >= len(k) && in[:len(k)] == k {
				out = append(out, real[k]...)
				l = l[len(k):]
				break
			}
		}
		out = append(out, l...)
	}
	return out
}

// nearest shows the lines that look most like old, for the model to correct itself. It is
// never used to edit.
func nearest(content, old []byte) []string {
	have, want := splitLines(content), splitLines(old)
	if len(have) == 0 || len(want) == 0 {
		return nil
	}
	at := bestWindow(have, want)
	if at < 0 {
		return nil
	}
	return numbered(have, at+1-around, at+min(len(want), 20)+around)
}

// bestWindow lets each line of want that appears in have vote for where the whole would
// start; without any vote the line sharing most words with want's longest line wins.
func bestWindow(have, want [][]byte) int {
	byText := make(map[string][]int)
	for j, w := range want[:min(len(want), 400)] {
		if w = bytes.TrimSpace(w); len(w) > 2 && len(byText[string(w)]) < 4 {
			byText[string(w)] = append(byText[string(w)], j)
		}
	}
	votes := make(map[int]int)
	for i, h := range have {
		for _, j := range byText[string(bytes.TrimSpace(h))] {
			votes[max(i-j, 0)]++
		}
	}
	best, most := -1, 0
	for at, n := range votes {
		if n > most || n == most && at < best {
			best, most = at, n
		}
	}
	if best >= 0 {
		return best
	}
	longest := 0
	for j := range want {
		if len(bytes.TrimSpace(want[j])) > len(bytes.TrimSpace(want[longest])) {
			longest = j
		}
	}
	words := make(map[string]bool)
	for _, w := range bytes.FieldsFunc(want[longest][:min(len(want[longest]), 2000)], notWord) {
		words[string(w)] = true
	}
	score := 0.0
	for i, h := range have {
		fields := bytes.FieldsFunc(h[:min(len(h), 2000)], notWord)
		shared := 0
		for _, w := range fields {
			if words[string(w)] {
				shared++
			}
		}
		if s := float64(shared) / float64(len(fields)+len(words)+1); s > score {
			best, score = max(i-longest, 0), s
		}
	}
	if score < 0.1 {
		return -1
	}
	return best
}

func notWord(r rune) bool {
	return !(r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r > 0x7f)
}

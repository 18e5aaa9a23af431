package guest

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"unicode/utf8"
)

// maxRGLine is how much of a line of rg's JSON is in memory.
const maxRGLine = 64 << 10

// rgText is text or, when it is not UTF-8, its bytes.
type rgText struct {
	Text  *string `json:"text"`
	Bytes string  `json:"bytes"`
}

func (t rgText) raw() []byte {
	if t.Text != nil {
		return []byte(*t.Text)
	}
	b, err := base64.StdEncoding.DecodeString(t.Bytes)
	if err != nil {
		return nil
	}
	return b
}

type rgMessage struct {
	Type string `json:"type"`
	Data struct {
		Path  rgText `json:"path"`
		Lines rgText `json:"lines"`
		Line  int    `json:"line_number"`
	} `json:"data"`
}

// message is what is wanted of one of rg's.
type message struct {
	kind string // "match", "context" or another
	path string
	line int
	text []byte // the beginning of the line, without its end
	size int    // of the whole line
}

// parseMatches reads those of rg's JSON lines that are wanted.
func parseMatches(in io.Reader, w lines) ([]Match, error) {
	b := bufio.NewReaderSize(in, maxRGLine)
	var out []Match
	for {
		m, err := readMessage(b)
		if err != nil {
			return out, ignoreEOF(err)
		}
		if m.kind != "match" && m.kind != "context" {
			continue
		}
		one := Match{Path: Escape([]byte(filepath.Clean(m.path)), false), Line: m.line, Context: m.kind == "context"}
		if !w.wants(&one) {
			continue
		}
		one.Text = cutLine(m.text, m.size, MaxMatchBytes)
		if out = append(out, one); len(out) > maxLooked*2 {
			return out, nil
		}
	}
}

// readMessage reads one message. Of one that does not fit in the buffer it reads what comes before
// the places of the matches, which are the longer part.
func readMessage(b *bufio.Reader) (message, error) {
	line, err := b.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return readLong(b, line)
	}
	if err != nil {
		return message{}, err
	}
	var m rgMessage
	if err := json.Unmarshal(line, &m); err != nil {
		return message{}, fmt.Errorf("not JSON: %.40q", line)
	}
	out := message{kind: m.Type, path: string(m.Data.Path.raw()), line: m.Data.Line}
	if text := splitLines(m.Data.Lines.raw()); len(text) > 0 {
		out.text, out.size = text[0], len(text[0])
	}
	return out, nil
}

// readLong reads a message that begins with head, and goes on in b. One that is not as rg writes
// them is passed over.
func readLong(b *bufio.Reader, head []byte) (out message, err error) {
	const before = `,"lines":{"`
	at := bytes.Index(head, []byte(before)) // in a path its quotes were escaped
	var m rgMessage
	if at < 0 || json.Unmarshal(append(bytes.Clone(head[:at]), "}}"...), &m) != nil {
		return message{}, drop(b)
	}
	var l longText
	rest := head[at+len(before):]
	if l.base64 = bytes.HasPrefix(rest, []byte(`bytes":"`)); !l.base64 && !bytes.HasPrefix(rest, []byte(`text":"`)) {
		return message{}, drop(b)
	}
	rest = rest[bytes.IndexByte(rest, ':')+2:]
	for {
		if rest = l.add(rest); l.ended {
			break
		}
		if rest, err = b.ReadSlice('\n'); err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return message{}, err
		}
	}
	after := bytes.Clone(rest) // what stands behind the text, with the number of the line
	for len(after) < 64 && !bytes.HasSuffix(after, []byte{'\n'}) {
		c, err := b.ReadByte()
		if err != nil {
			return message{}, err
		}
		after = append(after, c)
	}
	if !bytes.HasSuffix(after, []byte{'\n'}) {
		if err := drop(b); err != nil {
			return message{}, err
		}
	}
	number, ok := bytes.CutPrefix(after, []byte(`},"line_number":`))
	digits := number[:max(bytes.IndexByte(number, ','), 0)]
	if out.line, err = strconv.Atoi(string(digits)); err != nil || !ok {
		return message{}, nil
	}
	out.kind, out.path = m.Type, string(m.Data.Path.raw())
	out.text, out.size = l.done()
	return out, nil
}

// drop reads to the end of a line.
func drop(b *bufio.Reader) error {
	for {
		if _, err := b.ReadSlice('\n'); !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// longText is a JSON string of which the beginning, the end and the length are wanted.
type longText struct {
	base64 bool   // it is encoded so
	ended  bool   // its closing quote was seen
	start  []byte // of its value, or, encoded, of the letters
	end    []byte // the last 8 of the same
	size   int
	escape []byte // from a backslash on
}

const maxStart = MaxMatchBytes + utf8.UTFMax // bytes of a line that are shown, and whole runes

// add takes what it is given up to the closing quote and returns the rest.
func (l *longText) add(b []byte) (rest []byte) {
	for i, c := range b {
		switch {
		case len(l.escape) > 0:
			l.escape = append(l.escape, c)
			if len(l.escape) == 6 || len(l.escape) == 2 && c != 'u' {
				var s string
				if json.Unmarshal([]byte(`"`+string(l.escape)+`"`), &s) != nil {
					s = "?"
				}
				for _, c := range []byte(s) {
					l.put(c)
				}
				l.escape = l.escape[:0]
			}
		case c == '"':
			l.ended = true
			return b[i+1:]
		case c == '\\':
			l.escape = append(l.escape, c)
		default:
			l.put(c)
		}
	}
	return nil
}

func (l *longText) put(c byte) {
	room := maxStart
	if l.base64 {
		room = (maxStart + 2) / 3 * 4
	}
	if len(l.start) < room {
		l.start = append(l.start, c)
	}
	if len(l.end) == 8 {
		l.end = append(l.end[:0], l.end[1:]...)
	}
	l.end = append(l.end, c)
	l.size++
}

// done is the beginning of the line and the length of all of it, without its end.
func (l *longText) done() (start []byte, size int) {
	start, end, size := l.start, l.end, l.size
	if l.base64 {
		var err error
		if start, err = base64.StdEncoding.DecodeString(string(start)); err != nil {
			return nil, 0
		}
		if end, err = base64.StdEncoding.DecodeString(string(end)); err != nil {
			return nil, 0
		}
		size = size/4*3 - 6 + len(end) // what the last 8 letters stand for may be less than 6 bytes
	}
	if trimmed, ok := bytes.CutSuffix(end, []byte{'\n'}); ok {
		end, size = trimmed, size-1
	}
	if bytes.HasSuffix(end, []byte{'\r'}) {
		size--
	}
	return start, max(size, 0)
}

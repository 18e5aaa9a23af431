package result

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// newXMLText returns r as UTF-8 that Go's XML decoder accepts: UTF-16 and Latin-1 decoded,
// invalid bytes replaced, characters that XML 1.0 forbids left out, raw or as references.
func newXMLText(r io.Reader) io.Reader {
	br := bufio.NewReaderSize(r, 64<<10)
	head, _ := br.Peek(200)
	x := &xmlText{br: br, decode: decodeUTF8}
	switch {
	case bytes.HasPrefix(head, []byte{0xEF, 0xBB, 0xBF}):
		_, _ = br.Discard(3)
	case bytes.HasPrefix(head, []byte{0xFF, 0xFE}):
		_, _ = br.Discard(2)
		x.decode = decodeUTF16(binary.LittleEndian)
	case bytes.HasPrefix(head, []byte{0xFE, 0xFF}):
		_, _ = br.Discard(2)
		x.decode = decodeUTF16(binary.BigEndian)
	case bytes.HasPrefix(head, []byte{'<', 0}):
		x.decode = decodeUTF16(binary.LittleEndian)
	case bytes.HasPrefix(head, []byte{0, '<'}):
		x.decode = decodeUTF16(binary.BigEndian)
	default:
		if m := xmlEncoding.FindSubmatch(head); m != nil {
			switch strings.ToLower(string(m[1])) {
			case "iso-8859-1", "latin1", "latin-1", "windows-1252", "cp1252", "iso-8859-15":
				x.decode = decodeLatin1
			}
		}
	}
	return x
}

var xmlEncoding = regexp.MustCompile(`^\s*<\?xml[^>]*encoding=["']([A-Za-z0-9._-]+)["']`)

type xmlText struct {
	br     *bufio.Reader
	decode func(*bufio.Reader) (rune, error)
	out    []byte
	ref    []byte // a character reference that has begun
	err    error
}

func (x *xmlText) Read(p []byte) (int, error) {
	for len(x.out) < len(p) && x.err == nil {
		c, err := x.decode(x.br)
		if err != nil {
			x.out = append(x.out, x.ref...)
			x.ref, x.err = nil, err
			break
		}
		x.put(c)
	}
	if len(x.out) == 0 {
		return 0, x.err
	}
	n := copy(p, x.out)
	x.out = x.out[:copy(x.out, x.out[n:])]
	return n, nil
}

func (x *xmlText) put(c rune) {
	if !xmlChar(c) {
		return
	}
	if len(x.ref) == 0 {
		if c == '&' {
			x.ref = append(x.ref, '&')
			return
		}
		x.out = utf8.AppendRune(x.out, c)
		return
	}
	if c == '&' || len(x.ref) > 12 || c >= utf8.RuneSelf { // not a short reference after all
		x.out = append(x.out, x.ref...)
		x.ref = x.ref[:0]
		x.put(c)
		return
	}
	x.ref = append(x.ref, byte(c))
	if c == ';' {
		if !forbiddenRef(x.ref) {
			x.out = append(x.out, x.ref...)
		}
		x.ref = x.ref[:0]
	}
}

// forbiddenRef reports whether "&#…;" names a character that the decoder refuses.
func forbiddenRef(ref []byte) bool {
	s, ok := strings.CutPrefix(string(ref), "&#")
	if !ok {
		return false
	}
	s = strings.TrimSuffix(s, ";")
	base := 10
	if strings.HasPrefix(s, "x") {
		s, base = s[1:], 16
	}
	n, err := strconv.ParseUint(s, base, 32)
	return err == nil && (n > utf8.MaxRune || !xmlChar(rune(n)))
}

// xmlChar is XML 1.0's Char production.
func xmlChar(c rune) bool {
	return c == '\t' || c == '\n' || c == '\r' || c >= 0x20 && c <= 0xD7FF || c >= 0xE000 && c <= 0xFFFD || c >= 0x10000 && c <= utf8.MaxRune
}

func decodeUTF8(br *bufio.Reader) (rune, error) {
	c, _, err := br.ReadRune() // U+FFFD for invalid bytes
	return c, err
}

func decodeLatin1(br *bufio.Reader) (rune, error) {
	b, err := br.ReadByte()
	return rune(b), err
}

func decodeUTF16(order binary.ByteOrder) func(*bufio.Reader) (rune, error) {
	unit := func(br *bufio.Reader) (rune, error) {
		var b [2]byte
		if _, err := io.ReadFull(br, b[:]); err != nil {
			if err == io.ErrUnexpectedEOF {
				err = io.EOF
			}
			return 0, err
		}
		return rune(order.Uint16(b[:])), nil
	}
	return func(br *bufio.Reader) (rune, error) {
		c, err := unit(br)
		if err != nil || !utf16.IsSurrogate(c) {
			return c, err
		}
		d, err := unit(br)
		if err != nil {
			return utf8.RuneError, nil
		}
		return utf16.DecodeRune(c, d), nil
	}
}

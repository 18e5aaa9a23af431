package codesearch

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// Two letters beyond ASCII are the same as an ASCII one where case does not count.
const (
	longS  = '\u017f'
	kelvin = '\u212a'
)

// foldRune maps a letter to the form in which the index has it: case of ASCII letters alone
// is folded, and what folds to them.
func foldRune(r rune) rune {
	switch {
	case 'A' <= r && r <= 'Z':
		return r + 'a' - 'A'
	case r == longS:
		return 's'
	case r == kelvin:
		return 'k'
	}
	return r
}

var (
	longSBytes  = []byte(string(longS))
	kelvinBytes = []byte(string(kelvin))
)

// lower writes b with ASCII letters in lower case to dst, which has b's length: eight bytes at a
// time, as every search without regard to case does it to every file that may match.
func lower(dst, b []byte) {
	const ones = 0x0101010101010101
	dst = dst[:len(b)]
	for len(b) >= 8 {
		x := binary.LittleEndian.Uint64(b)
		low := x & (0x7f * ones)
		upper := (low + (0x80-'A')*ones) &^ (low + (0x7f-'Z')*ones) &^ x & (0x80 * ones)
		binary.LittleEndian.PutUint64(dst, x|upper>>2)
		b, dst = b[8:], dst[8:]
	}
	for i, c := range b {
		if c-'A' < 26 {
			c += 'a' - 'A'
		}
		dst[i] = c
	}
}

// foldText is b as the index sees it. It reuses buf.
func foldText(buf, b []byte, ascii bool) []byte {
	if cap(buf) < len(b) {
		buf = make([]byte, len(b)+len(b)/4)
	}
	buf = buf[:len(b)]
	lower(buf, b)
	if ascii || (!bytes.Contains(buf, longSBytes) && !bytes.Contains(buf, kelvinBytes)) {
		return buf
	}
	out := buf[:0] // folding only shortens
	for i := 0; i < len(buf); {
		r, n := utf8.DecodeRune(buf[i:])
		if f := foldRune(r); f != r {
			out = append(out, byte(f))
		} else {
			out = append(out, buf[i:i+n]...)
		}
		i += n
	}
	return out
}

// kind is what a file's bytes are; it decides who may judge it.
type kind uint8

const (
	kindASCII kind = iota // every reading of a pattern agrees
	kindUTF8              // valid, with letters beyond ASCII
	kindOdd               // for ripgrep to judge: NUL bytes, not UTF-8, a byte order mark
	kindWide              // UTF-16: ripgrep decodes it, so that its bytes rule nothing out
)

func kindOf(b []byte) kind {
	switch {
	case bytes.HasPrefix(b, []byte{0xff, 0xfe}), bytes.HasPrefix(b, []byte{0xfe, 0xff}):
		return kindWide
	case bytes.HasPrefix(b, []byte{0xef, 0xbb, 0xbf}), bytes.IndexByte(b, 0) >= 0:
		return kindOdd
	case isASCII(b):
		return kindASCII
	case utf8.Valid(b):
		return kindUTF8
	}
	return kindOdd
}

func isASCII(b []byte) bool {
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b)&0x8080808080808080 != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

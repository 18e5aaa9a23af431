package guest

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

var bom = []byte("\xef\xbb\xbf")

// Escape returns b as printable text: a tab and every printable character stay, bytes that
// are not UTF-8 and control characters become \xNN, other invisible characters (bidi
// controls, zero-width and private ones, fillers, variation selectors but that of emoji)
// \u{N}. A line feed stays when keepLF is set.
func Escape(b []byte, keepLF bool) string {
	if plain(b, keepLF) {
		return string(b)
	}
	var out strings.Builder
	out.Grow(len(b) + len(b)/4)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && n <= 1:
			fmt.Fprintf(&out, `\x%02X`, b[0])
			n = 1
		case r == '\n' && keepLF, r == '\t':
			out.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&out, `\x%02X`, r)
		case !unicode.IsGraphic(r) || unseen(r):
			fmt.Fprintf(&out, `\u{%X}`, r)
		default:
			out.WriteRune(r)
		}
		b = b[n:]
	}
	return out.String()
}

// unseen reports graphic characters without a look of their own, which can carry a text that
// nobody sees. The emoji selector is left alone: it is common, and carries a bit at most.
func unseen(r rune) bool {
	switch {
	case r < 0x34F || r == 0xFE0F:
		return false
	case unicode.Is(unicode.Variation_Selector, r), unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r), r == 0x2800:
		return true
	}
	return false
}

// plain reports whether Escape would change nothing, for the usual case of ASCII.
func plain(b []byte, keepLF bool) bool {
	for _, c := range b {
		if c >= 0x20 && c < 0x7f || c == '\t' || c == '\n' && keepLF {
			continue
		}
		return false
	}
	return true
}

// cutLine escapes the start of a line of length bytes; beyond limit it is cut at a rune's
// border, with a note.
func cutLine(start []byte, length, limit int) string {
	if length <= limit {
		return Escape(start, false)
	}
	n := min(limit, len(start))
	for n > 0 && n < len(start) && n > limit-utf8.UTFMax && !utf8.RuneStart(start[n]) {
		n--
	}
	return fmt.Sprintf("%s… [%d more bytes in this line]", Escape(start[:n], false), length-n)
}

// oneLine makes an error's text fit a frame and a line.
func oneLine(s string) string {
	s = Escape([]byte(strings.TrimSpace(s)), true)
	s = strings.ReplaceAll(s, "\n", "; ")
	if len(s) > 500 {
		s = strings.ToValidUTF8(s[:500], "") + "…"
	}
	return s
}

// lineCount is the number of lines, an unended last one included.
func lineCount(b []byte) int {
	n := bytes.Count(b, []byte{'\n'})
	if len(b) > 0 && b[len(b)-1] != '\n' {
		n++
	}
	return n
}

// splitLines returns the lines without their ends.
func splitLines(b []byte) [][]byte {
	if len(b) == 0 {
		return nil
	}
	lines := bytes.Split(b, []byte{'\n'})
	if len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	for i, l := range lines {
		lines[i] = bytes.TrimSuffix(l, []byte{'\r'})
	}
	return lines
}

// numbered shows the lines from..to (from 1, inclusive, clamped) with their numbers.
func numbered(lines [][]byte, from, to int) []string {
	from, to = max(from, 1), min(to, len(lines))
	var out []string
	for i := from; i <= to; i++ {
		l := lines[i-1]
		if i == 1 {
			l = bytes.TrimPrefix(l, bom)
		}
		out = append(out, fmt.Sprintf("%6d\t%s", i, cutLine(l, len(l), MaxMatchBytes)))
	}
	return out
}

// usesCRLF reports whether most lines end in CRLF.
func usesCRLF(b []byte) bool {
	crlf := bytes.Count(b, []byte("\r\n"))
	return crlf > 0 && crlf*2 > bytes.Count(b, []byte{'\n'})
}

// toCRLF makes every bare LF a CRLF.
func toCRLF(b []byte) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
}

// looksBinary follows git: a NUL in the first bytes.
func looksBinary(b []byte) bool {
	return bytes.IndexByte(b[:min(len(b), 8000)], 0) >= 0
}

// looksLFS reports whether a whole file is a Git LFS pointer.
func looksLFS(b []byte) bool {
	return len(b) < 1024 && bytes.HasPrefix(b, []byte("version https://git-lfs.github.com/spec/v1\n")) && bytes.Contains(b, []byte("\noid "))
}

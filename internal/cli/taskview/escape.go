package taskview

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape makes one line of a text that may come from an attacker: what moves a cursor,
// colours, hides or reorders text on a terminal is shown as a code point instead of acting.
// Line feeds and tabs become \n and \t.
func Escape(s string) string { return escape(s, false) }

// EscapeLines is [Escape] for a text of several lines: line feeds and tabs stay.
func EscapeLines(s string) string { return escape(s, true) }

func escape(s string, lines bool) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || acts(r) }) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case lines && (r == '\n' || r == '\t'):
			b.WriteRune(r)
		case lines && r == '\r' && strings.HasPrefix(s[i+1:], "\n"): // CRLF is one line end
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x80 && acts(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		case acts(r):
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return b.String()
}

// acts reports whether the rune does something else than show itself: controls, format
// characters (bidi, zero width, tags), separators that break lines, private use, and the
// letters that are drawn as nothing.
func acts(r rune) bool {
	switch {
	case r < 0x20 || r == 0x7f:
		return true
	case r < 0x80:
		return false
	case r == 0x115f || r == 0x1160 || r == 0x3164 || r == 0xffa0: // Hangul fillers
		return true
	case r >= 0xe0100 && r <= 0xe01ef: // variation selectors supplement
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co)
}

// cut shortens a line to at most n runes.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// firstLine is the first line with words on it.
func firstLine(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}

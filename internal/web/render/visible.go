// Package render turns untrusted text into HTML that cannot act: plain text, terminal output,
// Markdown, diffs with highlighting, file names.
//
// Invariants: what comes out holds the elements and attributes written in this package and none of
// the input's; no image, no style, no script, no link but https ones through the leaving page;
// characters that have no look of their own or reorder others are shown as code points; output
// is bounded by the caps of each function whatever the input is.
package render

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/daybreak-agent/daybreak/internal/policy"
)

// HTML is markup that this package made.
type HTML string

// MaxColumns is how many characters of one line are shown.
const MaxColumns = 2000

// Acts reports whether a character has no look of its own, or changes the look or order of others.
// Line feeds and tabs do not count.
func Acts(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x20 || r == 0x7f:
		return true
	case r < 0x7f:
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co) || policy.Invisible(r)
}

// Inline is one line of text: line feeds and tabs are shown as code points as well.
func Inline(s string) HTML {
	var b strings.Builder
	if cut := clip(s, MaxColumns); len(cut) < len(s) {
		writeText(&b, cut, true)
		left(&b, len(s)-len(cut))
	} else {
		writeText(&b, s, true)
	}
	return HTML(b.String())
}

// Lines is text of several lines, for an element that keeps white space. CRLF is one line end.
func Lines(s string) HTML {
	var b strings.Builder
	for line := range strings.Lines(s) {
		body, end := cutEnd(line)
		if cut := clip(body, MaxColumns); len(cut) < len(body) {
			writeText(&b, cut, false)
			left(&b, len(body)-len(cut))
		} else {
			writeText(&b, body, false)
		}
		b.WriteString(end)
	}
	return HTML(b.String())
}

// Exact is text of several lines whole, without a cap on columns, in which the code points that
// normalising wrote out ("[U+202E]") stand out. The element's text is s, as long as s holds no
// character that acts.
func Exact(s string) HTML {
	var b strings.Builder
	for s != "" {
		i := strings.Index(s, "[U+")
		if i < 0 {
			break
		}
		j := i + 3
		for j < len(s) && j-i < 10 && isHex(s[j]) {
			j++
		}
		if j == i+3 || j >= len(s) || s[j] != ']' {
			writeText(&b, s[:j], false)
			s = s[j:]
			continue
		}
		writeText(&b, s[:i], false)
		b.WriteString(`<mark class="cp">` + s[i:j+1] + `</mark>`)
		s = s[j+1:]
	}
	writeText(&b, s, false)
	return HTML(b.String())
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'A' && c <= 'F' }

// Plain replaces what acts by ⟨U+202E⟩ in plain text, for attributes and for sources that are
// parsed further.
func Plain(s string) string {
	if plain(s, false) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b.WriteString("⟨" + hexByte(s[i]) + "⟩")
		case r == '\r' && strings.HasPrefix(s[i+1:], "\n"):
		case Acts(r):
			b.WriteString("⟨" + point(r) + "⟩")
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// plain reports whether s is shown as it is.
func plain(s string, oneLine bool) bool {
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if c < 0x20 && (oneLine || c != '\n' && c != '\t') || c == 0x7f {
				return false
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || Acts(r) {
			return false
		}
		i += n
	}
	return true
}

// writeText escapes s and shows what acts.
func writeText(b *strings.Builder, s string, oneLine bool) {
	if plain(s, oneLine) {
		escape(b, s)
		return
	}
	from := 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		bad := r == utf8.RuneError && n == 1
		if bad || Acts(r) || oneLine && (r == '\n' || r == '\t') {
			escape(b, s[from:i])
			b.WriteString(`<span class="cp" title="invisible character">`)
			if bad {
				b.WriteString(hexByte(s[i]))
			} else {
				b.WriteString(point(r))
			}
			b.WriteString(`</span>`)
			from = i + n
		}
		i += n
	}
	escape(b, s[from:])
}

func escape(b *strings.Builder, s string) {
	from := 0
	for i := range len(s) {
		var e string
		switch s[i] {
		case '<':
			e = "&lt;"
		case '>':
			e = "&gt;"
		case '&':
			e = "&amp;"
		case '"':
			e = "&#34;"
		case '\'':
			e = "&#39;"
		default:
			continue
		}
		b.WriteString(s[from:i])
		b.WriteString(e)
		from = i + 1
	}
	b.WriteString(s[from:])
}

func point(r rune) string {
	h := strings.ToUpper(strconv.FormatInt(int64(r), 16))
	return "U+" + strings.Repeat("0", max(0, 4-len(h))) + h
}

func hexByte(c byte) string {
	const digits = "0123456789ABCDEF"
	return `\x` + string(digits[c>>4]) + string(digits[c&15])
}

// clip is the first n characters of s.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

func left(b *strings.Builder, bytes int) {
	b.WriteString(`<span class="cut">… ` + strconv.Itoa(bytes) + ` more bytes on this line</span>`)
}

func cutEnd(line string) (body, end string) {
	if b, ok := strings.CutSuffix(line, "\r\n"); ok {
		return b, "\n"
	}
	if b, ok := strings.CutSuffix(line, "\n"); ok {
		return b, "\n"
	}
	return line, ""
}

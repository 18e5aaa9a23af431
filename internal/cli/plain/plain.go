// Package plain owns how text from outside (a model, a repository, an issue, a tool) is made
// safe to print on a terminal.
//
// Invariants: what [Clean] returns holds no control character but line feeds, no escape
// sequence and no invisible or bidirectional formatting character; each is shown as what it
// is, never dropped.
package plain

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean escapes what a terminal would obey or hide. Tabs become four spaces, CRLF a line feed.
func Clean(s string) string {
	clean := true
	for _, r := range s {
		if r != '\n' && (r == utf8.RuneError || !unicode.IsPrint(r)) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n <= 1:
			fmt.Fprintf(&b, `\x%02X`, s[i])
		case r == '\n' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r == '\t':
			b.WriteString("    ")
		case r == '\r' && strings.HasPrefix(s[i+n:], "\n"):
		case unicode.Is(unicode.Zs, r): // no-break space and its kin
			b.WriteByte(' ')
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\x%02X`, r)
		default:
			fmt.Fprintf(&b, "U+%04X", r)
		}
		i += n
	}
	return b.String()
}

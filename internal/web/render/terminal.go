package render

import (
	"strconv"
	"strings"
)

// Terminal is what a command wrote: colours and weights become classes, every other sequence is
// shown as what it is.
func Terminal(s string) HTML {
	if !strings.Contains(s, "\x1b[") {
		return Lines(s)
	}
	var b strings.Builder
	var st style
	for line := range strings.Lines(s) {
		body, end := cutEnd(line)
		cols := 0
		for body != "" {
			i := strings.Index(body, "\x1b[")
			codes, n := "", 0
			if i >= 0 {
				codes, n = sgr(body[i:])
			}
			text := body
			switch {
			case i >= 0 && n > 0:
				text, body = body[:i], body[i+n:]
			case i >= 0:
				text, body = body[:i+1], body[i+1:]
			default:
				body = ""
			}
			if room := max(0, MaxColumns-cols); len(text) > room {
				kept := clip(text, room)
				if len(kept) < len(text) {
					st.write(&b, kept)
					left(&b, len(text)-len(kept)+len(body))
					break
				}
			}
			cols += len(text)
			st.write(&b, text)
			if n > 0 {
				st.apply(codes)
			}
		}
		b.WriteString(end)
	}
	return HTML(b.String())
}

// sgr returns the parameters of a colour sequence at the start of s, and its length; 0 when it is
// none.
func sgr(s string) (codes string, n int) {
	for i := 2; i < len(s) && i < 40; i++ {
		switch c := s[i]; {
		case c == 'm':
			return s[2:i], i + 1
		case c >= '0' && c <= '9' || c == ';' || c == ':':
		default:
			return "", 0
		}
	}
	return "", 0
}

type style struct {
	fg                           int // 0: none, 1 to 16
	bold, dim, italic, underline bool
}

func (t *style) write(b *strings.Builder, text string) {
	if text == "" {
		return
	}
	var classes []string
	if t.fg > 0 {
		classes = append(classes, "f"+strconv.Itoa(t.fg-1))
	}
	for _, c := range []struct {
		on   bool
		name string
	}{{t.bold, "fb"}, {t.dim, "fd"}, {t.italic, "fi"}, {t.underline, "fu"}} {
		if c.on {
			classes = append(classes, c.name)
		}
	}
	if len(classes) == 0 {
		writeText(b, text, false)
		return
	}
	b.WriteString(`<span class="` + strings.Join(classes, " ") + `">`)
	writeText(b, text, false)
	b.WriteString(`</span>`)
}

func (t *style) apply(codes string) {
	parts := strings.FieldsFunc(codes, func(r rune) bool { return r == ';' || r == ':' })
	if len(parts) == 0 {
		*t = style{}
	}
	for i := 0; i < len(parts); i++ {
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			continue
		}
		switch {
		case n == 0:
			*t = style{}
		case n == 1:
			t.bold = true
		case n == 2:
			t.dim = true
		case n == 3:
			t.italic = true
		case n == 4:
			t.underline = true
		case n == 22:
			t.bold, t.dim = false, false
		case n == 23:
			t.italic = false
		case n == 24:
			t.underline = false
		case n >= 30 && n <= 37:
			t.fg = n - 29
		case n >= 90 && n <= 97:
			t.fg = n - 81
		case n == 39:
			t.fg = 0
		case n == 38 || n == 48: // 256 colours or RGB: the parameters are no codes of their own
			if i+1 < len(parts) && parts[i+1] == "5" {
				i += 2
			} else {
				i += 4
			}
		}
	}
}

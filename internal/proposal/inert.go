package proposal

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// prose makes free text inert. It will stand in a fenced block, where forges render nothing;
// but bots read the raw body, so what they look for is broken up as well.
func prose(s string, max int) string {
	s = unmarked(strings.ReplaceAll(visible(s), "\r\n", "\n"))
	for _, r := range []struct{ expr, by string }{
		{`(?i)\b(https?|ftp|ssh|git|file|data|javascript|mailto):`, "$1[:]"},                   // no address is clickable
		{`(^|[^A-Za-z0-9_.@])@([A-Za-z0-9])`, "$1@ $2"},                                        // mentions
		{`(?m)(^|[^A-Za-z0-9&])(?:[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+)?[#!](\d+)\b`, "${1}no. $2"}, // references, with closing keywords or without
		{`(?i)\bGH-(\d+)\b`, "no. $1"},
	} {
		s = regexp.MustCompile(r.expr).ReplaceAllString(s, r.by)
	}
	return noCommands(strings.TrimSpace(head(s, max)))
}

// unmarked drops comments, tags, images and links to other places, and keeps their text.
func unmarked(s string) string {
	for _, r := range []struct{ expr, by string }{
		{`(?s)<!--.*?(?:-->|\z)`, ""},
		{`!\[([^\]\n]*)\]\([^)\n]*\)`, "$1"},                             // images
		{`\[([^\]\n]*)\]\(\s*<?[a-zA-Z][a-zA-Z0-9+.-]*:[^)\n]*\)`, "$1"}, // links to other places
		{`(?i)</?(?:a|abbr|audio|b|base|body|br|button|center|code|details|div|em|embed|font|form|frame|h[1-6]|head|hr|html|i|iframe|img|input|ins|kbd|label|li|link|math|meta|object|ol|option|p|picture|pre|q|s|samp|script|select|source|span|strike|strong|style|sub|summary|sup|svg|table|tbody|td|textarea|tfoot|th|thead|title|tr|track|tt|u|ul|video)(?:[\s/][^<>\n]*)?>`, ""},
	} {
		s = regexp.MustCompile(r.expr).ReplaceAllString(s, r.by)
	}
	return s
}

// noCommands breaks up what a bot would take for an order: a slash at the start of a line.
func noCommands(s string) string {
	return regexp.MustCompile(`(?m)^([ \t>]*)/([A-Za-z])`).ReplaceAllString(s, "$1[/]$2")
}

// line is prose on one line, at most max bytes.
func line(s string, max int) string {
	s = strings.Join(strings.Fields(prose(s, 4*max)), " ")
	if len(s) > max {
		s = strings.TrimSpace(strings.ToValidUTF8(s[:max-3], "")) + "…"
	}
	return s
}

// text is line with everything escaped that Markdown gives a meaning to.
func text(s string, max int) string {
	var b strings.Builder
	for _, r := range line(s, max) {
		if strings.ContainsRune("\\`*_{}[]<>#|~&$", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// code is a code span that holds any text.
func code(s string) string {
	s = strings.Join(strings.Fields(visible(s)), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:297], "") + "…"
	}
	if s == "" {
		return ""
	}
	ticks := strings.Repeat("`", longestRun(s)+1)
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		s = " " + s + " "
	}
	return ticks + s + ticks
}

// cell is code inside a table, where a bar would end the cell.
func cell(s string) string { return strings.ReplaceAll(code(s), "|", `\|`) }

// fence is a code block that no text can close.
func fence(lang, s string) string {
	ticks := strings.Repeat("`", max(3, longestRun(s)+1))
	return ticks + lang + "\n" + strings.TrimRight(s, "\n") + "\n" + ticks + "\n"
}

func longestRun(s string) int {
	longest, run := 0, 0
	for i := range len(s) {
		if s[i] != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}

func details(b *strings.Builder, summary, block string) {
	fmt.Fprintf(b, "<details><summary>%s</summary>\n\n%s\n</details>\n\n", htmlText(summary), block)
}

func htmlText(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// visible drops what is not text and writes out what cannot be seen.
func visible(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r == '\r':
		case unicode.IsControl(r) || r > 0xA0 && (unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Variation_Selector, r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)) || r == 0x2028 || r == 0x2029:
			fmt.Fprintf(&b, "[U+%04X]", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func head(s string, max int) string {
	if len(s) <= max {
		return s
	}
	return strings.ToValidUTF8(s[:max], "") + fmt.Sprintf("\n[… %d bytes more]", len(s)-max)
}

func tail(s string, max int) string {
	if len(s) <= max {
		return s
	}
	return fmt.Sprintf("[%d bytes before …]\n", len(s)-max) + strings.ToValidUTF8(s[len(s)-max:], "")
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n  ") + "\n"
}

// wrap breaks long lines at spaces; lines that look preformatted stay.
func wrap(s string, width int) string {
	var out []string
	for l := range strings.SplitSeq(s, "\n") {
		if strings.HasPrefix(l, "  ") || strings.HasPrefix(l, "\t") {
			out = append(out, strings.TrimRight(l, " "))
			continue
		}
		cur := ""
		for _, w := range strings.Fields(l) {
			switch {
			case cur == "":
				cur = w
			case utf8.RuneCountInString(cur)+1+utf8.RuneCountInString(w) > width:
				out = append(out, cur)
				cur = w
			default:
				cur += " " + w
			}
		}
		out = append(out, cur)
	}
	return noCommands(strings.TrimSpace(strings.Join(out, "\n")))
}

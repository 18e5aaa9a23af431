package notify

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"a\r\nBcc: x@y.z":        "a Bcc: x@y.z",
		"  a \t b  ":             "a b",
		"a\u202eb\u200bc":        "abc",
		"\x1b[31mred\x00":        "[31mred",
		"\xffbad":                "\ufffdbad",
		"Ä ✓":                    "Ä ✓",
		"":                       "",
		"one\u2028two":           "one two",
		strings.Repeat("x", 150): strings.Repeat("x", 120) + "…",
	} {
		if got := Line(in); got != want {
			t.Errorf("Line(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add("a\r\nb\u202e\x00\xff")
	f.Fuzz(func(t *testing.T, s string) {
		got := Line(s)
		if !utf8.ValidString(got) || strings.ContainsAny(got, "\r\n\x00\x1b\u202e\u2028") || utf8.RuneCountInString(got) > maxTitle+1 {
			t.Fatalf("%q", got)
		}
	})
}

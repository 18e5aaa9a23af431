package content

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/daybreak-agent/daybreak/internal/policy"
)

// bidi reports the controls that change the order in which text is shown (UAX #9): with them
// code reads as something else than what is compiled.
func bidi(r rune) bool { return r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069 }

// unseen reports new characters without a look of their own. Bidirectional controls in code
// refuse the change.
func (r *review) unseen(f File, added []line) {
	shown, more := 0, 0
	for _, l := range added {
		if ascii(l.text) {
			continue
		}
		worst, points := "", []string(nil)
		prev := rune(0)
		for i, c := range l.text {
			if l.number == 1 && i == 0 && c == 0xFEFF {
				continue
			}
			if bidi(c) && !prose(f.Path) {
				worst = "block"
			}
			if (policy.Invisible(c) || unicode.IsControl(c) && c != '\t' && c != '\f' && c != 0x1b) && !dresses(c, prev, next(l.text[i:])) {
				points = append(points, fmt.Sprintf("U+%04X", c))
			}
			prev = c
		}
		if len(points) == 0 {
			continue
		}
		if shown == maxShown && worst == "" {
			more++
			continue
		}
		shown++
		slices.Sort(points)
		points = slices.Compact(points)
		list := strings.Join(points[:min(len(points), 8)], ", ")
		if worst == "block" {
			r.add("bidi", "block", f.Path, l.number, "has characters that change the order in which code is shown: "+list+"; write them as escapes")
			continue
		}
		r.add("invisible", "warn", f.Path, l.number, "has characters that cannot be seen: "+list)
	}
	if more > 0 {
		r.add("invisible", "warn", f.Path, 0, fmt.Sprintf("has characters that cannot be seen on %d more lines", more))
	}
}

func next(s string) rune {
	_, n := utf8.DecodeRuneInString(s)
	r, _ := utf8.DecodeRuneInString(s[n:])
	return r
}

// dresses reports whether an invisible character does what it is for: the style of a symbol,
// the joint of an emoji, the joining of letters in scripts that need it.
func dresses(r, before, after rune) bool {
	switch {
	case r == 0xFE0F || r == 0xFE0E:
		return unicode.In(before, unicode.So, unicode.Sm, unicode.Po, unicode.Nd, unicode.Sk)
	case r == 0x200D && unicode.In(before, unicode.So, unicode.Sk, unicode.Variation_Selector) && unicode.Is(unicode.So, after):
		return true
	case r == 0x200C || r == 0x200D:
		return unicode.In(before, unicode.Arabic, unicode.Syriac, unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati,
			unicode.Oriya, unicode.Tamil, unicode.Telugu, unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Khmer, unicode.Myanmar)
	}
	return false
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf || s[i] < ' ' && s[i] != '\t' {
			return false
		}
	}
	return true
}

// mixed reports new words that mix Latin letters with look-alikes of other scripts.
func (r *review) mixed(f File, added []line) {
	shown := 0
	seen := map[string]bool{}
	for _, l := range added {
		if ascii(l.text) {
			continue
		}
		for w := range strings.FieldsFuncSeq(l.text, func(c rune) bool {
			return !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '_' && !unicode.Is(unicode.Mn, c)
		}) {
			if ascii(w) || seen[w] {
				continue
			}
			latin, alike := false, []string(nil)
			for _, c := range w {
				switch {
				case c < utf8.RuneSelf && unicode.IsLetter(c):
					latin = true
				case lookAlike(c):
					alike = append(alike, fmt.Sprintf("U+%04X", c))
				}
			}
			if !latin || len(alike) == 0 {
				continue
			}
			seen[w] = true
			if shown++; shown > maxShown {
				continue
			}
			slices.Sort(alike)
			r.add("mixed_script", "warn", f.Path, l.number,
				fmt.Sprintf("the word %s mixes Latin letters with look-alikes: %s", codePoints(w), strings.Join(slices.Compact(alike), ", ")))
		}
	}
	if shown > maxShown {
		r.add("mixed_script", "warn", f.Path, 0, fmt.Sprintf("mixes scripts in %d more words", shown-maxShown))
	}
}

// lookAlike reports letters that are taken for Latin ones (UTS #39). Of Greek only those
// count: the others stand in formulas and units.
func lookAlike(r rune) bool {
	switch {
	case unicode.In(r, unicode.Cyrillic, unicode.Armenian, unicode.Cherokee, unicode.Coptic, unicode.Lisu, unicode.Deseret, unicode.Osage, unicode.Glagolitic, unicode.Gothic):
		return true
	case r >= 0xFF21 && r <= 0xFF5A, r >= 0x1D400 && r <= 0x1D7FF, r == 0x0131, r == 0x017F, r == 0x212A:
		return true
	}
	return strings.ContainsRune("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹϺαγικνορυϲϳ", r)
}

// codePoints writes out every letter of a word that is not ASCII.
func codePoints(w string) string {
	var b strings.Builder
	for _, c := range w {
		if b.Len() > 100 {
			b.WriteString("…")
			break
		}
		if c < utf8.RuneSelf {
			b.WriteRune(c)
		} else {
			fmt.Fprintf(&b, "[U+%04X]", c)
		}
	}
	return b.String()
}

// escape makes a value from a file fit for a finding.
func escape(s string) string {
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "…"
	}
	var b strings.Builder
	for _, c := range strings.ToValidUTF8(s, "\uFFFD") {
		if unicode.IsControl(c) || policy.Invisible(c) {
			fmt.Fprintf(&b, "[U+%04X]", c)
			continue
		}
		b.WriteRune(c)
	}
	return b.String()
}

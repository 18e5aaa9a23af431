package proposal

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Claim is a sentence of the agent's that the record does not bear out.
type Claim struct {
	Where string // "title", "cause" or "fix"
	Text  string
	Why   string // one line
}

// Filter keeps the sentences that name only what exists and leaves to the record what it says:
// how tests and measurements came out, and who looked at the change. Lines of a paragraph are
// read as one, the way people read them. What is kept is kept again.
func Filter(where, words string, f *Facts) (kept string, dropped []Claim) {
	kept = strings.ReplaceAll(words, "\r\n", "\n")
	if n := len(kept) - maxWords; n > 0 {
		kept = strings.ToValidUTF8(kept[:maxWords], "")
		dropped = append(dropped, Claim{where, fmt.Sprintf("the last %d bytes", n), "it is longer than what anybody is shown"})
	}
	for range maxPasses { // what is not shown must not part what is
		shown := unmarked(kept)
		if shown == kept {
			break
		}
		kept = shown
	}
	for range maxPasses {
		text, gone := pass(where, kept, f)
		kept, dropped = text, append(dropped, gone...)
		if len(gone) == 0 && unmarked(kept) == kept {
			return kept, dropped
		}
	}
	// Whatever goes gives another meaning to what is beside it: this is no plain text.
	return "", append(dropped, Claim{where, kept, "it reads differently whenever something is left out"})
}

const (
	maxPasses = 8
	maxWords  = 5 * maxProse // bytes
)

func pass(where, words string, f *Facts) (string, []Claim) {
	var (
		b       strings.Builder
		dropped []Claim
		head    string // the line that announces what follows
		hole    bool   // something was left out just before
	)
	for _, u := range unitsOf(words) {
		keep, gone := u.judge(head, f)
		for _, c := range gone {
			c.Where = where
			dropped = append(dropped, c)
		}
		switch s := strings.TrimSpace(u.text); {
		case len(gone) == 0 && (u.heading || !u.code && strings.HasSuffix(s, ":")):
			head = s
		case !u.code && u.lead == "":
			head = ""
		}
		if strings.TrimSpace(keep) == "" {
			hole = true
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
			if u.gap || hole && u.lead == "" {
				b.WriteByte('\n')
			}
		}
		b.WriteString(u.lead + strings.TrimRight(keep, " \t\n"))
		hole = false
	}
	// The first line may be code, so that its indentation stays.
	return strings.TrimRight(b.String(), " \t\n"), dropped
}

// unit is what stands on its own: a paragraph, an item of a list, a heading, a block of code.
type unit struct {
	lead    string // the mark of an item or a heading
	text    string // its lines
	code    bool
	heading bool
	gap     bool // an empty line stands before it
}

var (
	leadRE  = regexp.MustCompile(`^(?:[ \t]*(?:[-*+•–]|\d{1,3}[.)])[ \t]+|[ \t]{0,3}#{1,6}[ \t]+)`)
	fenceRE = regexp.MustCompile("^[ \t]*(```+|~~~+)")
)

// unitsOf loses nothing but empty lines.
func unitsOf(words string) []unit {
	var (
		out   []unit
		open  bool // the last unit goes on with the next line
		fence string
		gap   bool
	)
	add := func(u unit) { u.gap, gap, open = gap, false, true; out = append(out, u) }
	more := func(l string) { out[len(out)-1].text += "\n" + l }
	for l := range strings.SplitSeq(words, "\n") {
		marks := fenceRE.FindStringSubmatch(l)
		lead := leadRE.FindString(l)
		isCode := strings.HasPrefix(l, "  ") || strings.HasPrefix(l, "\t") || strings.HasPrefix(strings.TrimSpace(l), "|")
		switch {
		case fence != "":
			more(l)
			if marks != nil && strings.HasPrefix(marks[1], fence) {
				fence, open = "", false
			}
		case strings.TrimSpace(l) == "":
			open, gap = false, gap || len(out) > 0
		case marks != nil:
			add(unit{text: l, code: true})
			fence = marks[1]
		case lead != "" && len(lead) < len(l):
			add(unit{lead: lead, text: l[len(lead):], heading: strings.Contains(lead, "#")})
			open = !strings.Contains(lead, "#")
		case open && (!out[len(out)-1].code || isCode):
			more(l)
		default:
			add(unit{text: l, code: isCode})
		}
	}
	return out
}

// judge keeps what of the unit is not in doubt. Under a line that announces it, a bare word for
// an outcome is one.
func (u unit) judge(head string, f *Facts) (string, []Claim) {
	parts := sentences(u.text)
	if u.code {
		if why := inDoubt(head, u.text); why != "" {
			return "", []Claim{{Text: strings.TrimSpace(u.text), Why: why}}
		}
		parts = strings.SplitAfter(u.text, "\n")
	}
	var b strings.Builder
	var gone []Claim
	for _, s := range parts {
		why := ""
		if !u.code {
			why = inDoubt(head, s)
		}
		if why == "" {
			why = f.unknown(s)
		}
		if why == "" {
			b.WriteString(s)
			continue
		}
		gone = append(gone, Claim{Text: strings.Join(strings.Fields(s), " "), Why: why})
	}
	return b.String(), gone
}

var (
	sentenceEnd  = regexp.MustCompile(`[.!?]["')\]*_\x60]*\s+|[。！？]\s*`)
	abbreviation = regexp.MustCompile(`(?i)(?:^|[\s(])(?:e\.g|i\.e|etc|vs|cf|approx|incl|resp|no|fig|al|ca)\.\s+$`)
)

// sentences splits a paragraph and loses no byte. A small letter after a full stop goes on with
// the sentence.
func sentences(text string) []string {
	var out []string
	begin, from := 0, 0
	for {
		at := sentenceEnd.FindStringIndex(text[from:])
		if at == nil {
			return append(out, text[begin:])
		}
		from += at[1]
		next, _ := utf8.DecodeRuneInString(text[from:])
		if from < len(text) && (unicode.IsLower(next) || abbreviation.MatchString(text[begin:from])) {
			continue
		}
		out, begin = append(out, text[begin:from]), from
		if from == len(text) {
			return out
		}
	}
}

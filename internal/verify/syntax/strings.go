package syntax

import "strings"

// textStart takes a string, a character or a heredoc's opening, if there is one here.
func (x *lexer) textStart(c byte, rest string) bool {
	n := x.prefix(rest) // letters in front of the quote
	if n < 0 {
		switch {
		case x.l == Ruby && c == '%' && x.percent(rest):
			return true
		case x.l == Ruby && strings.HasPrefix(rest, "<<"), x.l == PHP && strings.HasPrefix(rest, "<<<"):
			return x.heredocStart(rest)
		}
		return false
	}
	if x.l == Rust && c == '\'' {
		return x.rustQuote(rest)
	}
	x.emit(Text, x.stringEnd(x.i+n, rest[:n]))
	return true
}

// prefix is how many bytes stand in front of a quote that begins a string here, -1 for none.
func (x *lexer) prefix(rest string) int {
	n := 0
	allowed := map[Lang]string{Python: "rRbBfFuUtT", Rust: "rbc#", C: "RuUL8", CSharp: "$@"}[x.l]
	for n < len(rest) && n < 20 && strings.IndexByte(allowed, rest[n]) >= 0 {
		n++
	}
	if n == len(rest) {
		return -1
	}
	if n > 0 { // an ordinary word may begin with the same letters
		if x.l == Rust && (rest[0] == '#' || strings.Contains(rest[:n], "#") && !strings.Contains(rest[:n], "r")) || x.l == Python && n > 2 || x.l == C && rest[n] == '\'' && n > 2 {
			return -1
		}
	}
	switch q := rest[n]; {
	case q == '"':
		return n
	case q == '\'' && (n == 0 || x.l == Python || x.l == C || x.l == Rust && rest[:n] == "b"):
		return n
	case q == '`' && n == 0 && (x.l == Go || x.l == JavaScript || x.l == Ruby || x.l == PHP):
		return n
	}
	return -1
}

// rustQuote tells a character from a lifetime.
func (x *lexer) rustQuote(rest string) bool {
	if len(rest) > 2 && rest[1] == '\\' {
		if end := strings.IndexByte(rest[2:min(len(rest), 14)], '\''); end >= 0 {
			if rest[2] == '\'' && len(rest) > 3 && rest[3] == '\'' {
				end = 1
			}
			x.emit(Text, x.i+2+end+1)
			return true
		}
	}
	for j := 1; j < min(len(rest), 6); j++ {
		if rest[j] == '\'' && j > 1 && !(j > 2 && isWord(rune(rest[1])) && rest[1] < 0x80) {
			x.emit(Text, x.i+j+1)
			return true
		}
	}
	x.emit(Punct, x.i+1)
	return true
}

// form is how a string is written.
type form struct {
	quote  string // what ends it
	multi  bool   // may span lines
	raw    bool   // a backslash is itself
	double bool   // two quotes are one
	inside string // opens an expression inside, "" for none
}

// form reads how the string whose quote is at i is written.
func (x *lexer) form(i int, prefix string) form {
	q := x.s[i : i+1]
	f := form{quote: q}
	triple := strings.HasPrefix(x.s[i:], q+q+q)
	switch x.l {
	case Go:
		f.multi, f.raw = q == "`", q == "`"
	case Python:
		if triple {
			f.quote, f.multi = q+q+q, true
		}
	case JavaScript:
		if q == "`" {
			f.multi, f.inside = true, "${"
		}
	case Java:
		if triple && q == `"` {
			f.quote, f.multi = q+q+q, true
		}
	case CSharp:
		switch {
		case triple && q == `"`:
			f.quote, f.multi, f.raw = q+q+q, true, true
		case strings.Contains(prefix, "@"):
			f.multi, f.raw, f.double = true, true, true
		}
	case Rust:
		f.multi = q == `"`
		if strings.Contains(prefix, "r") {
			f.raw, f.quote = true, q+strings.Repeat("#", strings.Count(prefix, "#"))
		}
	case C:
		if strings.HasSuffix(prefix, "R") {
			if n := strings.IndexByte(x.s[i:min(len(x.s), i+20)], '('); n > 0 {
				f = form{quote: ")" + x.s[i+1:i+n] + q, multi: true, raw: true}
			}
		}
	case PHP:
		f.multi = true
	case Ruby:
		f.multi = true
		if q != "'" {
			f.inside = "#{"
		}
	}
	return f
}

// stringEnd finds the end of the string whose quote is at i. One that may not span lines ends
// at the line.
func (x *lexer) stringEnd(i int, prefix string) int {
	f := x.form(i, prefix)
	j := i + 1
	if len(f.quote) > 1 && f.quote[0] == x.s[i] && !strings.Contains(f.quote, "#") {
		j = i + len(f.quote)
	}
	inner := 0
	for j < len(x.s) {
		c := x.s[j]
		switch {
		case c == '\\' && !f.raw:
			j += 2
		case c == '\n' && !f.multi:
			return j
		case inner > 0 && (c == '{' || c == '}'):
			if c == '{' {
				inner++
			} else {
				inner--
			}
			j++
		case inner > 0:
			j++
		case f.inside != "" && strings.HasPrefix(x.s[j:], f.inside):
			inner = 1
			j += len(f.inside)
		case f.double && strings.HasPrefix(x.s[j:], f.quote+f.quote):
			j += 2
		case strings.HasPrefix(x.s[j:], f.quote):
			return j + len(f.quote)
		default:
			j++
		}
	}
	return len(x.s)
}

// percent takes Ruby's %w[…], %q(…) and their like.
func (x *lexer) percent(rest string) bool {
	if t, ok := x.last(); ok && (t.Kind != Punct || t.Text == ")" || t.Text == "]" || t.Text == "}") && !(t.Kind == Word && rubyBefore(t.Text)) {
		return false // a remainder
	}
	n := 1
	if len(rest) > 1 && strings.IndexByte("wWiIqQrsx", rest[1]) >= 0 {
		n = 2
	}
	if len(rest) <= n || strings.IndexByte("([{<|!/", rest[n]) < 0 {
		return false
	}
	open := rest[n]
	end, ok := map[byte]byte{'(': ')', '[': ']', '{': '}', '<': '>'}[open]
	if !ok {
		end = open
	}
	depth := 0
	for j := n; j < len(rest); j++ {
		switch c := rest[j]; {
		case c == '\\':
			j++
		case c == end && (j > n || end != open):
			if depth--; depth <= 0 {
				x.emit(Text, x.i+j+1)
				x.out[len(x.out)-1].Regex = rest[1] == 'r'
				return true
			}
		case c == open:
			depth++
		}
	}
	x.emit(Text, len(x.s))
	return true
}

// heredocStart takes the word that opens a heredoc; its text is added when the line ends.
func (x *lexer) heredocStart(rest string) bool {
	s := rest[2:]
	if x.l == PHP {
		s = strings.TrimLeft(rest[3:], " \t")
	} else {
		squiggly := s != "" && (s[0] == '~' || s[0] == '-')
		if squiggly {
			s = s[1:]
		}
		if s == "" || !(squiggly && s[0] >= 'a' && s[0] <= 'z') && !(s[0] >= 'A' && s[0] <= 'Z' || s[0] == '_' || s[0] == '"' || s[0] == '\'') {
			return false
		}
	}
	from := len(rest) - len(s)
	quoted := s != "" && (s[0] == '"' || s[0] == '\'')
	if quoted {
		s = s[1:]
	}
	n := 0
	for n < len(s) && n < 64 && isWord(rune(s[n])) {
		n++
	}
	if n == 0 || quoted && (n >= len(s) || s[n] != rest[from]) {
		return false
	}
	end := from + n
	if quoted {
		end += 2
	}
	x.emit(Text, x.i+end)
	x.docs = append(x.docs, heredoc{id: s[:n], token: len(x.out) - 1})
	return true
}

// heredocs takes the texts that were opened on the line before.
func (x *lexer) heredocs() {
	for _, d := range x.docs {
		from := x.i
		for x.i < len(x.s) {
			line, _, _ := strings.Cut(x.s[x.i:], "\n")
			trimmed := strings.TrimLeft(line, " \t")
			if after, ok := strings.CutPrefix(trimmed, d.id); ok && (after == "" || !isWord(rune(after[0])) && (x.l == PHP || strings.TrimSpace(after) == "")) {
				x.out[d.token].Text += "\n" + x.s[from:x.i]
				x.i += len(line) - len(after)
				break
			}
			x.advance(x.i + len(line) + 1)
		}
	}
	x.docs, x.fresh = nil, false
}

// rubyBefore are words after which a value comes, so that a slash begins an expression.
func rubyBefore(s string) bool {
	switch s {
	case "if", "unless", "elsif", "and", "or", "not", "when", "while", "until", "return", "in", "then", "match", "to", "puts", "p", "raise", "yield":
		return true
	}
	return false
}

// regexHere reports whether a slash begins a regular expression rather than a division.
func (x *lexer) regexHere() bool {
	t, ok := x.last()
	if !ok {
		return true
	}
	switch t.Kind {
	case Number, Text:
		return false
	case Word:
		if x.l == Ruby {
			spaced := x.i > 0 && x.s[x.i-1] == ' ' && x.i+1 < len(x.s) && x.s[x.i+1] != ' ' && x.s[x.i+1] != '='
			return rubyBefore(t.Text) || spaced
		}
		return t.Text == "return" || t.Text == "typeof" || t.Text == "case" || t.Text == "of" || t.Text == "in" || t.Text == "await" || t.Text == "yield"
	}
	return t.Text != ")" && t.Text != "]" && t.Text != "}"
}

// maxRegex bounds how far the end of a regular expression is looked for, maxMisses how often in
// vain on one line.
const (
	maxRegex  = 4 << 10
	maxMisses = 20
)

func (x *lexer) regexEnd() int {
	if x.missLine != x.line {
		x.missLine, x.misses = x.line, 0
	}
	if x.misses++; x.misses > maxMisses {
		return x.i + 1
	}
	class := false
	for j := x.i + 1; j < min(len(x.s), x.i+maxRegex); j++ {
		switch c := x.s[j]; {
		case c == '\\':
			j++
		case c == '\n':
			return x.i + 1
		case c == '[':
			class = true
		case c == ']':
			class = false
		case c == '/' && !class:
			for j++; j < len(x.s) && x.s[j] >= 'a' && x.s[j] <= 'z'; j++ {
			}
			x.misses--
			return j
		}
	}
	return x.i + 1
}

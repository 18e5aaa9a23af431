package codesearch

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrAsk says that only ripgrep can answer a query: it is not RE2, means another thing to
// ripgrep, or has so little fixed text that an index is of no use.
var ErrAsk = errors.New("not a query for the index")

// Pattern is a regular expression as both engines read it.
type Pattern struct {
	Text string // braces that do not repeat anything are escaped: RE2 takes them as they are
	// Upper and Letters say whether it has upper-case and any literal characters; together they
	// decide smart case as ripgrep does.
	Upper, Letters bool
	unicode        bool // has what means another thing beyond ASCII
	foreign        bool // has what RE2 reads otherwise
}

// SmartCase reports whether smart case ignores case.
func (p Pattern) SmartCase() bool { return p.Letters && !p.Upper }

// ReadPattern looks through a regular expression.
func ReadPattern(s string) Pattern {
	sc := patternScanner{in: s}
	sc.run()
	sc.p.Text = sc.out.String()
	return sc.p
}

// ReadLiteral is the pattern for plain text.
func ReadLiteral(s string) Pattern {
	p := Pattern{Text: regexp.QuoteMeta(s)}
	for _, r := range s {
		p.letter(r)
	}
	return p
}

func (p *Pattern) letter(r rune) {
	p.Letters = true
	p.Upper = p.Upper || unicode.IsUpper(r)
}

type patternScanner struct {
	in  string
	at  int
	out strings.Builder
	p   Pattern
}

func (s *patternScanner) run() {
	for s.at < len(s.in) {
		switch c := s.in[s.at]; c {
		case '\\':
			s.escape()
		case '[':
			s.class()
		case '{':
			if n := repetition(s.in[s.at:]); n > 0 {
				s.copy(n)
			} else {
				s.out.WriteByte('\\')
				s.copy(1)
				s.p.letter('{')
			}
		case '}':
			s.out.WriteByte('\\')
			s.copy(1)
			s.p.letter('}')
		case '(':
			s.group()
		case '.', '*', '+', '?', '|', ')', '^', '$':
			s.copy(1)
		default:
			s.literal()
		}
	}
}

func (s *patternScanner) copy(n int) {
	n = min(n, len(s.in)-s.at)
	s.out.WriteString(s.in[s.at : s.at+n])
	s.at += n
}

func (s *patternScanner) literal() {
	r, n := utf8.DecodeRuneInString(s.in[s.at:])
	s.p.letter(r)
	s.copy(n)
}

// repetition is the length of {n}, {n,} or {n,m} at the start of s, or 0.
func repetition(s string) int {
	end := strings.IndexByte(s, '}')
	if end < 2 {
		return 0
	}
	low, high, comma := strings.Cut(s[1:end], ",")
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	if !digits(low) || (comma && high != "" && !digits(high)) {
		return 0
	}
	return end + 1
}

// escape copies a backslash and what belongs to it.
func (s *patternScanner) escape() {
	if s.at+1 >= len(s.in) {
		s.copy(1)
		return
	}
	switch c := s.in[s.at+1]; c {
	case 'w', 'W', 'd', 'D', 's', 'S', 'b', 'B':
		s.p.unicode = true
		s.copy(2)
	case 'p', 'P':
		s.p.unicode = true
		s.copy(2)
		if s.at < len(s.in) && s.in[s.at] == '{' {
			s.copy(max(strings.IndexByte(s.in[s.at:], '}')+1, 1))
		} else {
			_, n := utf8.DecodeRuneInString(s.in[s.at:])
			s.copy(n)
		}
	case 'x':
		s.p.foreign = true // a letter, whose case is not looked at here
		s.copy(2)
		if s.at < len(s.in) && s.in[s.at] == '{' {
			s.copy(max(strings.IndexByte(s.in[s.at:], '}')+1, 1))
		}
	case 'n':
		s.p.foreign = true // ripgrep explains why not
		s.copy(2)
	case 't', 'r', 'f', 'v', 'a':
		s.p.Letters = true
		s.copy(2)
	case 'A', 'z':
		s.copy(2)
	default:
		if c < utf8.RuneSelf && !isWordByte(c) {
			s.p.letter(rune(c))
			s.copy(2)
			return
		}
		s.p.foreign = true
		s.copy(2)
	}
}

func isWordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// group copies the beginning of a group with its name or flags.
func (s *patternScanner) group() {
	rest := s.in[s.at:]
	if !strings.HasPrefix(rest, "(?") {
		s.copy(1)
		return
	}
	end := strings.IndexAny(rest, ":)>")
	if end < 0 {
		s.copy(2)
		return
	}
	if strings.HasPrefix(rest, "(?P<") || strings.HasPrefix(rest, "(?<") {
		end = strings.IndexByte(rest, '>')
	} else if strings.ContainsAny(rest[:end], "xuURm") {
		s.p.foreign = true
	}
	s.copy(end + 1)
}

// class copies a bracketed class. ripgrep knows sets of sets, which RE2 reads as plain letters.
func (s *patternScanner) class() {
	s.copy(1)
	if s.at < len(s.in) && s.in[s.at] == '^' {
		s.copy(1)
	}
	for first := true; s.at < len(s.in); first = false {
		rest := s.in[s.at:]
		switch {
		case rest[0] == ']' && !first:
			s.copy(1)
			return
		case strings.HasPrefix(rest, "[:"):
			s.copy(max(strings.Index(rest, ":]")+2, 2))
		case rest[0] == '[', strings.HasPrefix(rest, "&&"), strings.HasPrefix(rest, "--"), strings.HasPrefix(rest, "~~"):
			s.p.foreign = true
			s.copy(1)
		case rest[0] == '\\':
			s.escape()
		default:
			s.literal()
		}
	}
}

// plan is a compiled query.
type plan struct {
	need    need
	re      *regexp.Regexp // nil: the lines that have the literal are the lines that match
	lits    [][]byte       // a matching line has one of these; folded when fold is set
	fold    bool
	unicode bool
}

const maxLits = 8

// compile makes a plan, or ErrAsk.
func compile(q Query) (*plan, error) {
	p := ReadPattern(q.Pattern)
	if q.Literal {
		p = ReadLiteral(q.Pattern)
	}
	if p.foreign || strings.Contains(q.Pattern, "\n") || !utf8.ValidString(q.Pattern) {
		return nil, ErrAsk
	}
	flags := syntax.Perl
	if q.IgnoreCase {
		flags |= syntax.FoldCase
	}
	tree, err := syntax.Parse(p.Text, flags)
	if err != nil {
		return nil, ErrAsk
	}
	tree = joinLiterals(tree.Simplify())
	out := &plan{need: needOf(tree, p.unicode), unicode: p.unicode}
	lits, fold := required(tree)
	if len(lits) == 0 || len(lits) > maxLits {
		return nil, ErrAsk
	}
	out.fold = fold
	for _, l := range lits {
		out.lits = append(out.lits, []byte(l))
	}
	if isLiteral(tree) {
		return out, nil
	}
	for _, l := range lits {
		if len(l) < 3 { // nearly every line has it
			return nil, ErrAsk
		}
	}
	prefix := ""
	if q.IgnoreCase {
		prefix = "(?i)"
	}
	if out.re, err = regexp.Compile(prefix + "(?:" + p.Text + ")"); err != nil {
		return nil, ErrAsk
	}
	return out, nil
}

// joinLiterals makes one literal of those that stand beside each other, such as what a repetition
// or a group leaves. What groups capture is of no interest here.
func joinLiterals(re *syntax.Regexp) *syntax.Regexp {
	if re.Op == syntax.OpCapture {
		return joinLiterals(re.Sub[0])
	}
	out := *re
	out.Sub = nil
	for _, s := range re.Sub {
		s = joinLiterals(s)
		parts := []*syntax.Regexp{s}
		if re.Op == syntax.OpConcat && s.Op == syntax.OpConcat {
			parts = s.Sub
		}
		for _, p := range parts {
			n := len(out.Sub)
			if re.Op == syntax.OpConcat && n > 0 && p.Op == syntax.OpLiteral && out.Sub[n-1].Op == syntax.OpLiteral &&
				(p.Flags^out.Sub[n-1].Flags)&syntax.FoldCase == 0 {
				both := *p
				both.Rune = slices.Concat(out.Sub[n-1].Rune, p.Rune)
				out.Sub[n-1] = &both
				continue
			}
			out.Sub = append(out.Sub, p)
		}
	}
	if out.Op == syntax.OpConcat && len(out.Sub) == 1 {
		return out.Sub[0]
	}
	return &out
}

func isLiteral(re *syntax.Regexp) bool {
	if re.Op != syntax.OpLiteral {
		return false
	}
	if re.Flags&syntax.FoldCase != 0 {
		for _, r := range re.Rune {
			if r >= utf8.RuneSelf {
				return false
			}
		}
	}
	return true
}

// required finds texts of which a matching line must have one. fold says that they are in lower
// case, to be looked for without regard to case.
func required(re *syntax.Regexp) (lits []string, fold bool) {
	switch re.Op {
	case syntax.OpLiteral:
		return requiredLiteral(re)
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		for _, s := range re.Sub {
			l, f := required(s)
			if len(l) > 0 && (len(lits) == 0 || shortest(l) > shortest(lits) || shortest(l) == shortest(lits) && len(l) < len(lits)) {
				lits, fold = l, f
			}
		}
		return lits, fold
	case syntax.OpAlternate:
		for i, s := range re.Sub {
			l, f := required(s)
			if len(l) == 0 || (i > 0 && f != fold) {
				return nil, false
			}
			lits, fold = append(lits, l...), f
		}
		return tidy(lits), fold
	}
	return nil, false
}

func requiredLiteral(re *syntax.Regexp) (lits []string, fold bool) {
	if re.Flags&syntax.FoldCase == 0 {
		return []string{string(re.Rune)}, false
	}
	best, run := "", ""
	for _, r := range re.Rune {
		r = foldRune(r)
		if r >= utf8.RuneSelf {
			run = ""
			continue
		}
		if run += string(r); len(run) > len(best) {
			best = run
		}
	}
	if best == "" {
		return nil, false
	}
	return []string{best}, true
}

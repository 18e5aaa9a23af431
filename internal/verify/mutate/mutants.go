package mutate

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Mutant is a file with one small change.
type Mutant struct {
	Line     int    // of the change
	Operator string // "negated condition", "swapped operator", …
	Old, New string // the changed part
	Text     []byte // the whole file
}

// edit replaces bytes of a file.
type edit struct {
	from, to int
	by       string
	operator string
	rank     int // the stronger the change, the lower
}

// The operators, strongest first: what a test that looks at the line must notice comes before
// what may well be the same behaviour.
const (
	rankNegate = iota
	rankDelete
	rankSwap
	rankReturn
	rankConstant
	rankBoundary
)

// Mutants makes up to max mutants of the lines, spread over them, strongest first. A file that
// is not understood has none.
func Mutants(p string, text []byte, changed map[int]bool, max int) []Mutant {
	l, ok := languageOf(p)
	if !ok || len(changed) == 0 || len(text) > 2<<20 {
		return nil
	}
	var edits []edit
	if l.name == "go" {
		edits = goEdits(text, changed)
	} else {
		edits = tokenEdits(text, l, changed)
	}
	return choose(text, edits, max)
}

// choose takes turns between lines, each time the strongest edit left.
func choose(text []byte, edits []edit, limit int) []Mutant {
	byLine := map[int][]edit{}
	for _, e := range edits {
		n := 1 + bytes.Count(text[:e.from], []byte("\n"))
		byLine[n] = append(byLine[n], e)
	}
	var order []int
	for n, list := range byLine {
		order = append(order, n)
		slices.SortStableFunc(list, func(a, b edit) int {
			return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.from, b.from), cmp.Compare(a.by, b.by))
		})
	}
	slices.Sort(order)
	var out []Mutant
	for turn := 0; len(out) < limit; turn++ {
		any := false
		for _, n := range order {
			if turn >= len(byLine[n]) || len(out) == limit {
				continue
			}
			any = true
			e := byLine[n][turn]
			out = append(out, Mutant{
				Line: n, Operator: e.operator, Old: string(text[e.from:e.to]), New: e.by,
				Text: slices.Concat(text[:e.from], []byte(e.by), text[e.to:]),
			})
		}
		if !any {
			break
		}
	}
	return out
}

// pattern is an operator of languages that are read as tokens. Its first group is replaced.
type pattern struct {
	re       *regexp.Regexp
	by       map[string]string
	operator string
	rank     int
	words    bool // only where and, or, not are words
}

func patterns() []pattern {
	return []pattern{
		{regexp.MustCompile(`[^=!<>+\-*/%&|^](===|!==|==|!=)[^=]`), map[string]string{"===": "!==", "!==": "===", "==": "!=", "!=": "=="}, "swapped comparison", rankSwap, false},
		{regexp.MustCompile(`(&&|\|\|)`), map[string]string{"&&": "||", "||": "&&"}, "swapped connective", rankSwap, false},
		{regexp.MustCompile(`\s(and|or)\s`), map[string]string{"and": "or", "or": "and"}, "swapped connective", rankSwap, true},
		{regexp.MustCompile(`[\w)\]"'] (\+|-|\*|/) [\w(\["'-]`), map[string]string{"+": "-", "-": "+", "*": "/", "/": "*"}, "swapped operator", rankSwap, false},
		{regexp.MustCompile(`[\w)\]] ?(\+=|-=)`), map[string]string{"+=": "-=", "-=": "+="}, "swapped operator", rankSwap, false},
		{regexp.MustCompile(`[\w)\]] (<=|>=|<|>) [\w(\[-]`), map[string]string{"<": ">=", ">": "<=", "<=": ">", ">=": "<"}, "negated comparison", rankNegate, false},
		{regexp.MustCompile(`[\w)\]] (<=|>=|<|>) [\w(\[-]`), map[string]string{"<": "<=", ">": ">=", "<=": "<", ">=": ">"}, "moved boundary", rankBoundary, false},
		{regexp.MustCompile(`\b(true|false|True|False)\b`), map[string]string{"true": "false", "false": "true", "True": "False", "False": "True"}, "swapped truth value", rankSwap, false},
		{regexp.MustCompile(`(?:^|[^\w.])(\d{1,9})(?:$|[^\w.])`), nil, "other number", rankConstant, false},
		{regexp.MustCompile(`\b(min|max|any|all|min_by|max_by)\(`), map[string]string{"min": "max", "max": "min", "any": "all", "all": "any"}, "swapped function", rankSwap, false},
	}
}

// tokenEdits finds edits line by line, outside strings and comments.
func tokenEdits(text []byte, l language, changed map[int]bool) []edit {
	m := mask(text, l)
	var out []edit
	at, known := 0, patterns()
	for i, line := range lines(m) {
		start := at
		at += len(line)
		if !changed[i+1] || imports(l, strings.TrimSpace(string(line))) {
			continue
		}
		for _, p := range known {
			if p.words && !l.words && l.name != "ruby" {
				continue
			}
			for from := 0; from < len(line); {
				g := p.re.FindSubmatchIndex(line[from:])
				if g == nil {
					break
				}
				a, b := from+g[2], from+g[3]
				from = max(b-1, from+1)
				by := other(p, string(line[a:b]))
				if by != "" && !(p.rank != rankConstant && generic(line, a)) {
					out = append(out, edit{start + a, start + b, by, p.operator, p.rank})
				}
			}
		}
		out = append(out, lineEdits(text, start, line, l)...)
	}
	return out
}

// other is what stands in a mutant instead of a token.
func other(p pattern, token string) string {
	if p.by != nil {
		return p.by[token]
	}
	n, err := strconv.Atoi(token)
	if err != nil || len(token) > 1 && token[0] == '0' {
		return ""
	}
	return strconv.Itoa(n + 1)
}

// generic reports whether an operator at i is rather a part of an arrow or of type parameters.
func generic(line []byte, i int) bool {
	return i > 0 && (line[i-1] == '-' || line[i-1] == '=') || i+1 < len(line) && line[i] == '-' && line[i+1] == '>'
}

// The statements that are recognised as whole lines.
var (
	pyCondition    = regexp.MustCompile(`^\s*(?:if|elif) (.+):\s*$`)
	rubyCondition  = regexp.MustCompile(`^\s*(?:if|elsif|unless) (.+?)\s*$`)
	rustCondition  = regexp.MustCompile(`\bif ([^{]+?) \{\s*$`)
	parenCondition = regexp.MustCompile(`\bif \(`)
	returned       = regexp.MustCompile(`^\s*return (.+?);?\s*$`)

	// statement is an assignment to something that is there already, or a call, on a line of its own.
	statement = regexp.MustCompile(`^\s*((?:[\w$]+(?:\.|->|::))*[\w$]+(?:\[[^\]]*\])?(?:\([^()]*(?:\([^()]*\)[^()]*)*\)| (?:[-+*/|&%]?=) [^=].*?)(;?))\s*$`)
)

// lineEdits negates conditions, drops returned values and deletes statements.
func lineEdits(text []byte, start int, line []byte, l language) []edit {
	var out []edit
	group := func(re *regexp.Regexp) (from, to int, ok bool) {
		g := re.FindSubmatchIndex(line)
		if g == nil || !balanced(line[g[2]:g[3]]) {
			return 0, 0, false
		}
		return start + g[2], start + g[3], true
	}
	negate := func(from, to int, before, after string) {
		out = append(out, edit{from, to, before + string(text[from:to]) + after, "negated condition", rankNegate})
	}
	switch l.name {
	case "python":
		if from, to, ok := group(pyCondition); ok {
			negate(from, to, "not (", ")")
		}
	case "ruby":
		if from, to, ok := group(rubyCondition); ok {
			negate(from, to, "!(", ")")
		}
	case "rust":
		if from, to, ok := group(rustCondition); ok && !bytes.HasPrefix(text[from:], []byte("let ")) {
			negate(from, to, "!(", ")")
		}
	default:
		if from, to, ok := parenthesised(line); ok {
			negate(start+from, start+to, "!(", ")")
		}
	}
	nothing := map[string]string{"python": "None", "javascript": "undefined", "php": "null", "ruby": "nil"}[l.name]
	if from, to, ok := group(returned); ok && nothing != "" && strings.TrimSpace(string(text[from:to])) != nothing {
		out = append(out, edit{from, to, nothing, "dropped result", rankReturn})
	}
	if from, to, ok := group(statement); ok && !keyword(string(text[from:to])) {
		ends := bytes.HasSuffix(text[from:to], []byte(";"))
		switch {
		case l.name == "python":
			out = append(out, edit{from, to, "pass", "deleted statement", rankDelete})
		case l.name == "ruby", l.name == "javascript", ends:
			out = append(out, edit{from, to, map[bool]string{true: ";", false: ""}[ends], "deleted statement", rankDelete})
		}
	}
	return out
}

// keyword reports whether a line begins as something that cannot be left out alone.
func keyword(s string) bool {
	word := s
	if i := strings.IndexFunc(s, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') }); i >= 0 {
		word = s[:i]
	}
	return slices.Contains([]string{"return", "if", "elif", "else", "while", "for", "with", "def", "class", "raise", "assert", "import", "from", "yield", "await", "throw", "case", "switch", "catch", "function", "super", "print"}, word)
}

func balanced(b []byte) bool {
	depth := 0
	for _, c := range b {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if depth--; depth < 0 {
				return false
			}
		}
	}
	return depth == 0
}

// parenthesised finds the condition of an "if (…)" that ends on the line.
func parenthesised(line []byte) (from, to int, ok bool) {
	g := parenCondition.FindIndex(line)
	if g == nil {
		return 0, 0, false
	}
	depth := 1
	for i := g[1]; i < len(line); i++ {
		switch line[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return g[1], i, i > g[1]
			}
		}
	}
	return 0, 0, false
}

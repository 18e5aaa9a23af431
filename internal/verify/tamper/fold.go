package tamper

import (
	"slices"
	"strconv"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// truth is what is known of a condition without running anything.
type truth uint8

const (
	unknown truth = iota
	never
	always
)

func (t truth) not() truth {
	switch t {
	case never:
		return always
	case always:
		return never
	}
	return unknown
}

func known(b bool) truth {
	if b {
		return always
	}
	return never
}

// folder decides conditions that are written out. names are variables that hold one such value
// wherever they are asked.
type folder struct {
	l     syntax.Lang
	names map[string][]token
}

// split cuts tokens at a level's separators.
func split(toks []token, base int, at ...string) [][]token {
	var out [][]token
	from := 0
	for i, t := range toks {
		if t.Depth == base && t.Kind != syntax.Text && slices.Contains(at, t.Text) {
			out = append(out, toks[from:i])
			from = i + 1
		}
	}
	return append(out, toks[from:])
}

func baseDepth(toks []token) int {
	base := toks[0].Depth
	for _, t := range toks {
		base = min(base, t.Depth)
	}
	return base
}

// unwrap takes off brackets around the whole.
func unwrap(toks []token) []token {
	for len(toks) > 2 && toks[0].Text == "(" && toks[len(toks)-1].Text == ")" && toks[0].Kind == syntax.Punct {
		d := toks[0].Depth
		if slices.ContainsFunc(toks[1:len(toks)-1], func(t token) bool { return t.Depth <= d }) {
			break
		}
		toks = toks[1 : len(toks)-1]
	}
	return toks
}

// truth folds a condition.
func (f folder) truth(toks []token) truth {
	return f.deep(toks, 0)
}

func (f folder) deep(toks []token, depth int) truth {
	if depth > maxNesting || len(toks) > maxAhead {
		return unknown
	}
	if toks = unwrap(toks); len(toks) == 0 {
		return unknown
	}
	base := baseDepth(toks)
	if slices.ContainsFunc(toks, func(t token) bool {
		return t.Depth == base && (t.Kind == syntax.Punct && slices.Contains([]string{"?", ":", "=", ":=", ",", ";", "=>", "->", "|"}, t.Text) || t.Kind == syntax.Word && (t.Text == "lambda" || t.Text == "if" || t.Text == "let"))
	}) {
		return unknown
	}
	if parts := split(toks, base, "||", "or"); len(parts) > 1 {
		return f.junction(parts, always, depth)
	}
	if parts := split(toks, base, "&&", "and"); len(parts) > 1 {
		return f.junction(parts, never, depth)
	}
	if toks[0].Text == "!" || toks[0].Text == "not" && toks[0].Kind == syntax.Word {
		return f.deep(toks[1:], depth+1).not()
	}
	for i, t := range toks {
		if t.Depth == base && t.Kind == syntax.Punct && slices.Contains([]string{"==", "===", "!=", "!==", "<", ">", "<=", ">="}, t.Text) {
			return f.compare(toks[:i], t.Text, toks[i+1:])
		}
	}
	return f.atom(toks)
}

// junction is a chain of "or" (decided by always) or of "and" (decided by never).
func (f folder) junction(parts [][]token, decides truth, depth int) truth {
	all := decides.not()
	for _, p := range parts {
		switch f.deep(p, depth+1) {
		case decides:
			return decides
		case unknown:
			all = unknown
		}
	}
	return all
}

func (f folder) value(toks []token) []token {
	toks = unwrap(toks)
	if len(toks) == 1 && toks[0].Kind == syntax.Word {
		if v, ok := f.names[toks[0].Text]; ok {
			return v
		}
	}
	return toks
}

func (f folder) atom(toks []token) truth {
	toks = f.value(toks)
	if len(toks) == 2 && toks[0].Kind == syntax.Punct && (toks[0].Text == "[" || toks[0].Text == "{") && (f.l == syntax.Python || f.l == syntax.PHP) {
		return never
	}
	if len(toks) == 2 && toks[0].Text == "-" && toks[1].Kind == syntax.Number {
		toks = toks[1:]
	}
	if s := join(toks); s == "typing . TYPE_CHECKING" || s == "Boolean . FALSE" || s == "void 0" && f.l == syntax.JavaScript {
		return never
	}
	if len(toks) != 1 {
		return unknown
	}
	t := toks[0]
	switch {
	case t.Kind == syntax.Number:
		n, ok := number(t.Text)
		if !ok || f.l == syntax.Ruby && n == 0 {
			return unknown
		}
		return known(n != 0)
	case t.Kind == syntax.Text && !t.Regex && f.l != syntax.Ruby:
		return known(unquote(t.Text) != "")
	case t.Kind == syntax.Word:
		switch t.Text {
		case "true", "True", "TRUE":
			return always
		case "false", "False", "FALSE", "nil", "null", "None", "undefined", "NULL", "nullptr", "NaN":
			return never
		case "TYPE_CHECKING":
			if f.l == syntax.Python {
				return never
			}
		}
	}
	return unknown
}

func number(s string) (float64, bool) {
	s = strings.ReplaceAll(s, "_", "")
	if n, err := strconv.ParseInt(s, 0, 64); err == nil {
		return float64(n), true
	}
	n, err := strconv.ParseFloat(strings.TrimRight(s, "fFdDlLuUmn"), 64)
	return n, err == nil
}

// numeric is a number that is written out, with its sign.
func (f folder) numeric(toks []token) (float64, bool) {
	toks = f.value(toks)
	sign := 1.0
	if len(toks) == 2 && toks[0].Text == "-" {
		sign, toks = -1, toks[1:]
	}
	if len(toks) != 1 || toks[0].Kind != syntax.Number {
		return 0, false
	}
	n, ok := number(toks[0].Text)
	return sign * n, ok
}

func (f folder) compare(a []token, op string, b []token) truth {
	if len(a) == 0 || len(b) == 0 {
		return unknown
	}
	if x, ok := f.numeric(a); ok {
		if y, ok := f.numeric(b); ok {
			switch op {
			case "<":
				return known(x < y)
			case ">":
				return known(x > y)
			case "<=":
				return known(x <= y)
			case ">=":
				return known(x >= y)
			case "==", "===":
				return known(x == y)
			}
			return known(x != y)
		}
	}
	a, b = f.value(a), f.value(b)
	if len(a) != 1 || len(b) != 1 || !a[0].Literal() || !b[0].Literal() || a[0].Kind != b[0].Kind || a[0].Kind == syntax.Number {
		return unknown
	}
	switch op {
	case "==", "===":
		return known(a[0].Text == b[0].Text)
	case "!=", "!==":
		return known(a[0].Text != b[0].Text)
	}
	return unknown
}

// makesNothing reports a call without arguments that gives something empty.
func (f folder) makesNothing(toks []token) bool {
	k := len(toks) - 3
	if k > 0 && toks[k].Text == ">" { // type arguments
		for k > 0 && toks[k].Text != "<" {
			k--
		}
		k--
		if k > 0 && toks[k].Text == "::" {
			k--
		}
	}
	if k < 0 || toks[k].Kind != syntax.Word {
		return false
	}
	of := ""
	if k > 1 {
		of = toks[k-2].Text
	}
	switch toks[k].Text {
	case "list", "tuple", "set", "dict":
		return k == 0 && f.l == syntax.Python
	case "array":
		return k == 0 && f.l == syntax.PHP
	case "emptyList", "emptySet", "emptyMap":
		return true
	case "empty", "Empty":
		return k > 0
	case "of", "asList":
		return slices.Contains([]string{"List", "Set", "Map", "Stream", "IntStream", "Arrays"}, of)
	case "new":
		return slices.Contains([]string{"Vec", "VecDeque", "HashMap", "HashSet", "BTreeMap", "BTreeSet"}, of) || k > 5 && toks[k-2].Text == ">" && syntax.Has(toks[:2], "Vec", "HashMap", "HashSet")
	}
	return false
}

// nothing reports an expression with no elements to go through.
func (f folder) nothing(toks []token) bool {
	if len(toks) > maxAhead {
		return false
	}
	toks = f.value(toks)
	if len(toks) > 1 && toks[0].Text == "&" {
		toks = toks[1:]
	}
	for { // [].iter(), {}.items()
		n := len(toks)
		if n < 6 || toks[n-1].Text != ")" || toks[n-2].Text != "(" || toks[n-4].Text != "." || !slices.Contains([]string{"iter", "into_iter", "items", "keys", "values", "entries", "stream", "cloned", "to_a", "toList", "ToList", "ToArray"}, toks[n-3].Text) {
			break
		}
		toks = unwrap(toks[:n-4])
	}
	n := len(toks)
	if n == 0 {
		return false
	}
	last := toks[n-1]
	if n == 1 {
		if v, ok := f.numeric(toks); ok {
			return v <= 0 && f.l == syntax.Go
		}
		return last.Kind == syntax.Text && unquote(last.Text) == "" || last.Text == "nil" && f.l == syntax.Go
	}
	open := toks[n-2].Text
	switch {
	case last.Text == "]" && open == "[":
		return n == 2 || toks[n-3].Text == "!" || toks[n-3].Text == "vec"
	case last.Text == "}" && open == "{": // a literal, after its type
		return n == 2 || f.l == syntax.Go && toks[0].Text != "func" || f.l == syntax.C || toks[0].Text == "new"
	case last.Text == ")" && open == "(":
		if n == 2 { // an empty tuple
			return f.l == syntax.Python
		}
		if toks[0].Text == "new" && !syntax.Has(toks[:n-2], ".") {
			return slices.ContainsFunc(toks[1:n-2], func(t token) bool {
				return strings.HasSuffix(t.Text, "List") || strings.HasSuffix(t.Text, "Set") || strings.HasSuffix(t.Text, "Map") || t.Text == "Array"
			})
		}
		return f.makesNothing(toks)
	case last.Text == ")" && open == "nil":
		return toks[0].Text == "[" || toks[0].Text == "map"
	case last.Text == "]" && toks[0].Text == "new" && toks[n-3].Text == "[":
		v, ok := f.numeric(toks[n-2 : n-1])
		return ok && v == 0
	}
	if last.Text == "]" && toks[0].Text == "[" && toks[n-3].Text == ";" && toks[n-2].Text == "0" || n > 4 && toks[0].Text == "make" && toks[n-3].Text == "," && toks[n-2].Text == "0" && f.l == syntax.Go {
		return true // [x; 0], make([]T, 0)
	}
	if s := join(toks); f.l == syntax.JavaScript && (s == "new Array ( 0 )" || s == "Array ( 0 )" || s == "Object . keys ( { } )" || s == "Object . values ( { } )" || s == "Object . entries ( { } )") {
		return true
	}
	base := baseDepth(toks)
	if parts := split(toks, base, ".."); len(parts) == 2 {
		a, ok := f.numeric(parts[0])
		b, okay := f.numeric(parts[1])
		return ok && okay && (a >= b && f.l == syntax.Rust || a > b && f.l == syntax.Ruby)
	}
	return last.Text == ")" && f.emptyRange(toks) // range(0), IntStream.range(0, 0)
}

// emptyRange reads range(0) and range(3, 3).
func (f folder) emptyRange(toks []token) bool {
	at := slices.IndexFunc(toks, func(t token) bool { return t.Text == "(" })
	if at < 1 || toks[at-1].Text != "range" || len(toks) < at+3 {
		return false
	}
	args := toks[at+1 : len(toks)-1]
	parts := split(args, baseDepth(args), ",")
	last, ok := f.numeric(parts[min(1, len(parts)-1)])
	if len(parts) == 1 {
		return ok && last <= 0
	}
	first, okay := f.numeric(parts[0])
	return len(parts) == 2 && ok && okay && first >= last
}

package proposal

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Claim is a sentence of the agent's that the record does not bear out.
type Claim struct {
	Where string // "title", "cause" or "fix"
	Text  string
	Why   string // one line
}

// Name is something that a sentence says the repository has.
type Name struct {
	Text string // as it would stand in a file, or a path
	Path bool
}

// Filter keeps the sentences that name only what exists and leaves test results to the record.
// has says whether a name is in the change or in the base. It is asked once for each name.
func Filter(where, words string, has func(Name) (bool, error)) (kept string, dropped []Claim, err error) {
	known := map[Name]bool{}
	var out []string
	for l := range strings.SplitSeq(strings.ReplaceAll(words, "\r\n", "\n"), "\n") {
		var line strings.Builder
		for _, s := range sentences(l) {
			why, err := doubt(s, known, has)
			if err != nil {
				return "", nil, err
			}
			if why == "" {
				line.WriteString(s)
				continue
			}
			dropped = append(dropped, Claim{where, strings.TrimSpace(s), why})
		}
		if s := strings.TrimRight(line.String(), " \t"); s != "" || strings.TrimSpace(l) == "" {
			out = append(out, s)
		}
	}
	return strings.TrimSpace(strings.Join(out, "\n")), dropped, nil
}

var sentenceEnd = regexp.MustCompile(`[.!?]["')\x60]*\s+`)

// sentences splits a line and loses no byte. A line that looks like code is one.
func sentences(l string) []string {
	if strings.HasPrefix(l, "  ") || strings.HasPrefix(l, "\t") || strings.HasPrefix(l, "```") {
		return []string{l}
	}
	var out []string
	for {
		at := sentenceEnd.FindStringIndex(l)
		if at == nil {
			return append(out, l)
		}
		out, l = append(out, l[:at[1]]), l[at[1]:]
	}
}

// outcomes are sentences about how tests or measurements came out: the record says that.
var outcomes = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\b(?:tests?|suites?|checks|CI|builds?)\b[^.]{0,60}\b(?:pass(?:e[sd]|ing)?|succeed(?:s|ed)?|are green|is green|stays? green)(?:\s+(?:now|again|with|without|on|in|after|before|locally|successfully|too)\b|\s*[.,;!)]|\s*$|\s+(?:and|but)\b)`),
	regexp.MustCompile(`(?i)\b(?:no|without(?: any)?) regressions?\b`),
	regexp.MustCompile(`(?i)\b(?:I|we)(?:'ve| have)?\s+(?:also\s+)?(?:ran|run|verified|tested|confirmed|benchmarked|validated)\b`),
	regexp.MustCompile(`(?i)\b(?:test|line|code|branch) coverage\b`),
	regexp.MustCompile(`(?i)\b\d+(?:\.\d+)?\s?(?:%|x|×|times)\s+(?:faster|slower|less|fewer|more)\b`),
}

func doubt(s string, known map[Name]bool, has func(Name) (bool, error)) (string, error) {
	if slices.ContainsFunc(outcomes, func(re *regexp.Regexp) bool { return re.MatchString(s) }) {
		return "how tests and measurements came out is said by the record", nil
	}
	for _, n := range NamesIn(s) {
		ok, asked := known[n]
		if !asked {
			var err error
			if ok, err = has(n); err != nil {
				return "", err
			}
			known[n] = ok
		}
		if !ok {
			return "neither the change nor the base has " + n.Text, nil
		}
	}
	return "", nil
}

var (
	masked    = regexp.MustCompile(`\[redacted:[^\]]*\]`)
	span      = regexp.MustCompile("`([^`\n]+)`")
	fileName  = regexp.MustCompile(`^(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*\.(?:go|py|pyi|js|mjs|cjs|jsx|ts|tsx|java|kt|rb|rs|c|h|cc|cpp|hpp|cs|php|swift|scala|sh|sql|md|toml|yaml|yml|json|xml|html|css|txt|cfg|ini|proto|gradle|mod|sum|lock)$`)
	nameChars = regexp.MustCompile(`[\p{L}_$][\p{L}\p{N}_$]*`)
	called    = regexp.MustCompile(`([\p{L}_$][\p{L}\p{N}_$.]*[\p{L}\p{N}_$]|[\p{L}_$])\(`)
)

// maxNames bounds how many names one sentence is asked for.
const maxNames = 20

// NamesIn finds what a sentence names: files, and identifiers that are told from prose by their
// form or by standing in a code span. What might as well be a word is none.
func NamesIn(s string) []Name {
	var out []Name
	add := func(text string, isPath bool) {
		n := Name{text, isPath}
		if text != "" && len(out) < maxNames && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	rest := span.ReplaceAllStringFunc(masked.ReplaceAllString(s, " "), func(m string) string {
		inner := unquoted(strings.Trim(m, "`"))
		for _, w := range strings.Fields(inner) {
			w = strings.Trim(w, `"'(),;:[]{}`)
			switch {
			case fileName.MatchString(w):
				add(strings.TrimPrefix(w, "./"), true)
			case !strings.ContainsAny(w, "/"):
				for _, id := range nameChars.FindAllString(w, -1) {
					if distinct(id, true) {
						add(id, false)
					}
				}
			}
		}
		if m := called.FindStringSubmatch(inner); m != nil {
			add(last(m[1]), false)
		}
		return " "
	})
	for _, w := range strings.Fields(rest) {
		w = strings.Trim(w, `"'(),;:[]{}!?*`)
		w = strings.TrimSuffix(w, ".")
		switch {
		case strings.Contains(w, "://"):
		case fileName.MatchString(w):
			add(strings.TrimPrefix(w, "./"), true)
		case called.MatchString(w):
			add(last(called.FindStringSubmatch(w)[1]), false)
		case !strings.Contains(w, "/"):
			for _, id := range nameChars.FindAllString(w, -1) {
				if distinct(id, false) {
					add(id, false)
				}
			}
		}
	}
	return out
}

// unquoted drops string literals: their text need not stand anywhere.
func unquoted(s string) string {
	if strings.ContainsAny(s, `"'`) {
		return regexp.MustCompile(`"[^"]*"?|'[^']*'?`).ReplaceAllString(s, " ")
	}
	return s
}

func last(dotted string) string { return dotted[strings.LastIndexByte(dotted, '.')+1:] }

// distinct reports whether a word has the form of an identifier and of nothing else.
func distinct(id string, inSpan bool) bool {
	inner := strings.Trim(id, "_")
	if len(inner) < 3 {
		return false
	}
	if strings.Contains(inner, "_") || strings.HasPrefix(id, "$") {
		return true
	}
	humps, lower := 0, false
	for i, r := range inner {
		if i > 0 && unicode.IsUpper(r) && lower {
			humps++
		}
		lower = unicode.IsLower(r) || unicode.IsDigit(r)
	}
	if inSpan {
		return humps > 0
	}
	if rest, ok := strings.CutPrefix(inner, "Test"); ok && rest != "" && unicode.IsUpper(rune(rest[0])) {
		return true
	}
	first := rune(inner[0])
	return humps > 0 && unicode.IsLower(first) && len(inner) > 1 && unicode.IsLower(rune(inner[1])) && !slices.Contains([]string{"macOS", "eBay"}, inner)
}

// HasPath reports whether a path of the list is meant by one in prose, which may leave out folders.
func HasPath(paths []string, name string) bool {
	return slices.ContainsFunc(paths, func(p string) bool {
		return p == name || strings.HasSuffix(p, "/"+name) || path.Base(p) == name
	})
}

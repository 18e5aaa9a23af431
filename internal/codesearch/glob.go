package codesearch

import (
	"regexp"
	"strings"
)

// globs are ripgrep's --glob: the last one that matches decides; where there is one that
// selects, files that none matches are left out.
type globs struct {
	list    []glob
	selects bool
}

type glob struct {
	re   *regexp.Regexp
	not  bool
	dirs bool // matches directories alone
}

func parseGlobs(in []string) (globs, error) {
	var g globs
	for _, text := range in {
		one, err := parseGlob(text)
		if err != nil {
			return globs{}, err
		}
		g.list = append(g.list, one)
		g.selects = g.selects || !one.not
	}
	return g, nil
}

// parseGlob reads a pattern in the syntax of gitignore with braces. What is unusual is left to
// ripgrep.
func parseGlob(text string) (glob, error) {
	g := glob{}
	if text, g.not = strings.CutPrefix(text, "!"); strings.HasPrefix(text, "\\") || text == "" || strings.ContainsAny(text, "\\[") || strings.HasPrefix(text, "#") || strings.TrimSpace(text) != text {
		return g, ErrAsk
	}
	text, g.dirs = strings.CutSuffix(text, "/")
	anchored := strings.Contains(text, "/")
	text = strings.TrimPrefix(text, "/")
	var b strings.Builder
	b.WriteString("^")
	if !anchored {
		b.WriteString("(?:.*/)?")
	}
	depth := 0
	for i := 0; i < len(text); {
		rest := text[i:]
		switch c := text[i]; {
		case strings.HasPrefix(rest, "**/") && (i == 0 || text[i-1] == '/'):
			b.WriteString("(?:.*/)?")
			i += 3
		case rest == "**" && i > 0 && text[i-1] == '/':
			b.WriteString(".+")
			i += 2
		case strings.HasPrefix(rest, "**"):
			return g, ErrAsk
		case c == '*':
			b.WriteString("[^/]*")
			i++
		case c == '?':
			b.WriteString("[^/]")
			i++
		case c == '{':
			b.WriteString("(?:")
			depth++
			i++
		case c == '}' && depth > 0:
			b.WriteString(")")
			depth--
			i++
		case c == ',' && depth > 0:
			b.WriteString("|")
			i++
		case c == '}' || depth > 1:
			return g, ErrAsk
		default:
			b.WriteString(regexp.QuoteMeta(text[i : i+1]))
			i++
		}
	}
	if depth != 0 {
		return g, ErrAsk
	}
	b.WriteString("$")
	var err error
	if g.re, err = regexp.Compile("(?s)" + b.String()); err != nil {
		return g, ErrAsk
	}
	return g, nil
}

// keep decides for a file that is found below start ("" is the root): what is named on the
// command line is searched whatever the globs say. A directory that is left out takes all below
// it along.
func (g globs) keep(path, start string) bool {
	if len(g.list) == 0 || path == start {
		return true
	}
	for i := len(start) + min(len(start), 1); i < len(path); i++ {
		if path[i] == '/' {
			if not, hit := g.decide(path[:i], true); hit && not {
				return false
			}
		}
	}
	not, hit := g.decide(path, false)
	if hit {
		return !not
	}
	return !g.selects
}

func (g globs) decide(path string, dir bool) (not, hit bool) {
	for i := len(g.list) - 1; i >= 0; i-- {
		if one := g.list[i]; (dir || !one.dirs) && one.re.MatchString(path) {
			return one.not, true
		}
	}
	return false, false
}

package verify

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

const maxDoubleStars = 6

// globMatch matches a slash-separated path against a pattern in which "**" spans directories
// and "{a,b}" chooses. A malformed pattern matches nothing.
func globMatch(pattern, name string) bool {
	if strings.Count(pattern, "**") > maxDoubleStars {
		return false // matching is exponential in them, and patterns come from repositories
	}
	for _, p := range expandBraces(pattern, 64) {
		if matchParts(strings.Split(strings.TrimPrefix(p, "./"), "/"), strings.Split(name, "/")) {
			return true
		}
	}
	return false
}

func matchParts(pat, name []string) bool {
	for len(pat) > 0 {
		if pat[0] == "**" {
			for len(pat) > 0 && pat[0] == "**" {
				pat = pat[1:]
			}
			if len(pat) == 0 {
				return true
			}
			for i := range name {
				if matchParts(pat, name[i:]) {
					return true
				}
			}
			return false
		}
		if len(name) == 0 {
			return false
		}
		if ok, err := path.Match(pat[0], name[0]); err != nil || !ok {
			return false
		}
		pat, name = pat[1:], name[1:]
	}
	return len(name) == 0
}

// expandBraces expands "{a,b}" up to max results; beyond that braces stay as they are.
func expandBraces(p string, max int) []string {
	open := strings.IndexByte(p, '{')
	if open < 0 {
		return []string{p}
	}
	end := strings.IndexByte(p[open:], '}')
	if end < 0 {
		return []string{p}
	}
	var out []string
	for _, choice := range strings.Split(p[open+1:open+end], ",") {
		for _, e := range expandBraces(p[:open]+choice+p[open+end+1:], max/2) {
			if len(out) < max {
				out = append(out, e)
			}
		}
		if max <= 1 {
			break
		}
	}
	return out
}

func regexpQuote(s string) string { return regexp.QuoteMeta(s) }

func numbered(prefix string, n int, ext string) string { return fmt.Sprintf("%s-%d%s", prefix, n, ext) }

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

package verify

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/verify/tamper"
)

// globMatch matches a slash-separated path against a pattern in which "**" spans directories
// and "{a,b}" chooses. A malformed pattern matches nothing.
func globMatch(pattern, name string) bool {
	for _, p := range expandBraces(pattern, 64) {
		if tamper.MatchParts(strings.Split(strings.TrimPrefix(p, "./"), "/"), strings.Split(name, "/")) {
			return true
		}
	}
	return false
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

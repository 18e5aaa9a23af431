package guest

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// Rank orders matches: definitions, source, tests, what is no code, and last what nobody edits.
type Rank int

// The ranks, the first one first.
const (
	RankDefinition Rank = iota
	RankSource
	RankTest
	RankOther
	RankAside
	Ranks // how many there are
)

const definers = `(?:func(?:\s*\([^)]*\))?|def|class|struct|interface|type|enum|trait|impl|fn|const|var|let|static|module|namespace|function|package|macro_rules!|#define|protocol|object|record|union|typedef)`

var (
	word          = regexp.MustCompile(`^[\pL_$][\pL\pN_$]*$`)
	anyDefinition = regexp.MustCompile(`^\s*(?:[a-z]+\s+){0,4}` + definers + `\s+[*&\pL_$]`)
	testFile      = regexp.MustCompile(`(?i)(^|/)(tests?|testdata|specs?|__tests__|e2e|fixtures)/|(^|/)(test_[^/]*|conftest)\.[^/]*$|[._-](test|spec|tests)\.[^/]*$|(?-i:[a-z0-9](Test|Tests|Spec))\.[^/.]+$`)
	codeExts      = []string{".go", ".py", ".js", ".ts", ".tsx", ".jsx", ".mjs", ".cjs", ".rs", ".java", ".kt", ".scala", ".c", ".h", ".cc", ".cpp", ".hpp", ".cs", ".rb", ".php", ".swift", ".m", ".ex", ".exs", ".erl", ".hs", ".ml", ".lua", ".pl", ".sh", ".bash", ".sql", ".vue", ".svelte", ".dart", ".zig", ".proto"}
)

// RankFile is the rank of a file's lines, but for those that define something.
func RankFile(p string) Rank {
	switch {
	case IsAside(p):
		return RankAside
	case !slices.Contains(codeExts, strings.ToLower(path.Ext(p))):
		return RankOther
	case testFile.MatchString(p):
		return RankTest
	}
	return RankSource
}

// Ranking ranks the matches of one search. Guest and host go by the same: the one when it leaves
// out what is too much, the other when it shows the rest.
type Ranking struct{ defines *regexp.Regexp }

// RankingOf a search recognises the line that defines what the pattern names, or any definition
// when the pattern is not a name.
func RankingOf(r SearchRequest) Ranking {
	name := strings.TrimSuffix(strings.TrimPrefix(r.Pattern, `\b`), `\b`)
	if !word.MatchString(name) {
		return Ranking{anyDefinition}
	}
	re, err := regexp.Compile(`(?i)^\s*(?:[a-z]+\s+){0,4}` + definers + `\s+[*&]?` + regexp.QuoteMeta(name))
	if err != nil {
		return Ranking{anyDefinition}
	}
	return Ranking{re}
}

// Of is the rank of one line.
func (k Ranking) Of(m Match) Rank {
	r := RankFile(m.Path)
	if r == RankSource && !m.Context && k.defines.MatchString(m.Text) {
		return RankDefinition
	}
	return r
}

// choose keeps limit of the matches, which are in order of their files: definitions before
// anything else, and of each kind as many from every file as can be.
func (k Ranking) choose(all []Match, limit int) []Match {
	var defs, rest []int // lines of each file
	defines := make([]bool, len(all))
	for i, m := range all {
		if i == 0 || m.Path != all[i-1].Path {
			defs, rest = append(defs, 0), append(rest, 0)
		}
		n := len(defs) - 1
		if defines[i] = k.Of(m) == RankDefinition; defines[i] {
			defs[n]++
		} else {
			rest[n]++
		}
	}
	defs, given := share(defs, limit)
	rest, _ = share(rest, limit-given)
	var out []Match
	file := -1
	for i, m := range all {
		if i == 0 || m.Path != all[i-1].Path {
			file++
		}
		left := rest
		if defines[i] {
			left = defs
		}
		if left[file] > 0 {
			left[file]--
			out = append(out, m)
		}
	}
	return out
}

// share deals limit out in turns until it is used up or everyone has what they asked for.
func share(asked []int, limit int) (given []int, sum int) {
	given = make([]int, len(asked))
	for sum < limit {
		open := 0
		for i, n := range asked {
			if given[i] < n {
				open++
			}
		}
		if open == 0 {
			break
		}
		each := max((limit-sum)/open, 1)
		for i, n := range asked {
			more := min(each, n-given[i], limit-sum)
			given[i] += more
			sum += more
		}
	}
	return given, sum
}

package secrets

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// The rules are gitleaks', turned into JSON by tools/secretrules; gitleaks.LICENSE goes with them.
//
//go:generate sh -c "cd ../../../tools/secretrules && go run . > ../../internal/policy/secrets/gitleaks.json"
//go:embed gitleaks.json
var ruleFile []byte

// sighting is a secret in one document. The value stays in this package.
type sighting struct {
	rule, value, form string
	line              int
	weak              bool
}

type allow struct {
	All       bool     `json:"all"`
	Target    string   `json:"target"`
	Regexes   []string `json:"regexes"`
	Paths     []string `json:"paths"`
	StopWords []string `json:"stop_words"`

	regexes, paths func() []*regexp.Regexp
}

type rule struct {
	ID       string   `json:"id"`
	Regex    string   `json:"regex"`
	Path     string   `json:"path"`
	Entropy  float64  `json:"entropy"`
	Group    int      `json:"group"`
	Keywords []string `json:"keywords"`
	Allow    []allow  `json:"allow"`

	regex func() *regexp.Regexp
	path  func() *regexp.Regexp
	// strict: the secret's own form is enough, whatever stands around it.
	strict bool
	weak   bool
}

type ruleset struct {
	Allow []allow `json:"allow"`
	Rules []rule  `json:"rules"`
}

// weakRules match what merely looks like a credential; code without one is full of it.
func weakRules() []string {
	return []string{"generic-api-key", "curl-auth-header", "curl-auth-user", "sourcegraph-access-token", "kubernetes-secret-yaml", "hashicorp-tf-password", "nuget-config-password"}
}

// lazyRules decodes the rules at first use and compiles each when its keyword occurs first:
// all of them take longer than most scans.
func lazyRules() func() (*ruleset, error) {
	return sync.OnceValues(func() (*ruleset, error) {
		rs := &ruleset{}
		if err := json.Unmarshal(ruleFile, rs); err != nil {
			return nil, fmt.Errorf("embedded secret rules: %w", err)
		}
		weak := weakRules()
		for i := range rs.Rules {
			r := &rs.Rules[i]
			r.regex = lazy(r.Regex)
			if r.Path != "" {
				r.path = lazy(r.Path)
			}
			r.weak = slices.Contains(weak, r.ID)
			// gitleaks builds its "name = value" rules on one stem.
			r.strict = !r.weak && !strings.Contains(r.Regex, `[\w.-]{0,50}?`)
			lazyAllow(r.Allow)
		}
		lazyAllow(rs.Allow)
		return rs, nil
	})
}

func lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

func lazyAllow(list []allow) {
	all := func(exprs []string) func() []*regexp.Regexp {
		return sync.OnceValue(func() []*regexp.Regexp {
			var out []*regexp.Regexp
			for _, e := range exprs {
				out = append(out, regexp.MustCompile(e))
			}
			return out
		})
	}
	for i := range list {
		list[i].regexes, list[i].paths = all(list[i].Regexes), all(list[i].Paths)
	}
}

// match applies every rule whose keyword occurs. derived says that the text was made from the
// document (decoded, joined): then only strict rules count, since what stands around a value
// is not what its author wrote.
func (rs *ruleset) match(path, text string, derived bool) []sighting {
	var out []sighting
	low := strings.ToLower(text)
	for i := range rs.Rules {
		r := &rs.Rules[i]
		if derived && !r.strict || r.weak && len(text) > maxWeak {
			continue
		}
		if len(r.Keywords) > 0 && !slices.ContainsFunc(r.Keywords, func(k string) bool { return strings.Contains(low, k) }) {
			continue
		}
		if r.path != nil && !r.path().MatchString(path) {
			continue
		}
		for _, m := range r.regex().FindAllStringSubmatchIndex(text, maxMatches) {
			value := text[m[0]:m[1]]
			if g := groupOf(m, r.Group); g > 0 {
				value = text[m[2*g]:m[2*g+1]]
			}
			whole := strings.Trim(text[m[0]:m[1]], "\n")
			if r.Entropy != 0 && entropy(value) <= r.Entropy {
				continue
			}
			line := lineAround(text, m[0], m[1])
			if allowed(rs.Allow, path, value, whole, line, r.weak) || allowed(r.Allow, path, value, whole, line, r.weak) {
				continue
			}
			out = append(out, sighting{rule: r.ID, value: value, weak: r.weak, line: lineOf(text, m[0]+strings.Index(text[m[0]:m[1]], value))})
		}
	}
	return out
}

// groupOf is the wanted group, or the first one that matched something; 0 for the whole.
func groupOf(m []int, want int) int {
	if want > 0 && 2*want+1 < len(m) && m[2*want] >= 0 {
		return want
	}
	for g := 1; 2*g+1 < len(m); g++ {
		if m[2*g] >= 0 && m[2*g+1] > m[2*g] {
			return g
		}
	}
	return 0
}

// allowed applies gitleaks' lists of what is no secret. Those by path count for weak rules
// only: a path is chosen by whoever writes the change.
func allowed(list []allow, path, value, whole, line string, weak bool) bool {
	for _, a := range list {
		target := value
		switch a.Target {
		case "match":
			target = whole
		case "line":
			target = line
		}
		matches := func(res []*regexp.Regexp, s string) bool {
			return slices.ContainsFunc(res, func(re *regexp.Regexp) bool { return re.MatchString(s) })
		}
		var checks []bool
		if len(a.Regexes) > 0 {
			checks = append(checks, matches(a.regexes(), target))
		}
		if len(a.Paths) > 0 {
			checks = append(checks, weak && matches(a.paths(), path))
		}
		if len(a.StopWords) > 0 {
			low := strings.ToLower(value)
			checks = append(checks, slices.ContainsFunc(a.StopWords, func(w string) bool { return strings.Contains(low, strings.ToLower(w)) }))
		}
		if len(checks) == 0 {
			continue
		}
		if a.All && !slices.Contains(checks, false) || !a.All && slices.Contains(checks, true) {
			return true
		}
	}
	return false
}

// entropy is Shannon's, in bits a character.
func entropy(s string) float64 {
	if s == "" {
		return 0
	}
	counts := map[rune]int{}
	for _, r := range s {
		counts[r]++
	}
	e := 0.0
	for _, n := range counts {
		p := float64(n) / float64(len(s))
		e -= p * math.Log2(p)
	}
	return e
}

func lineOf(text string, at int) int { return 1 + strings.Count(text[:max(at, 0)], "\n") }

func lineAround(text string, from, to int) string {
	start := strings.LastIndexByte(text[:from], '\n') + 1
	end := strings.IndexByte(text[to:], '\n')
	if end < 0 {
		return text[start:]
	}
	return text[start : to+end]
}

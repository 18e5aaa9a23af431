// Package secrets looks for secrets in what is about to leave: key formats by the rules of
// gitleaks, and the host's own secret values in every plain form that text can take.
//
// Invariants: pure but for its lazily compiled rules, and safe for concurrent use; a found
// value never leaves the package, neither in a hit nor in an error; nothing in a scanned text
// (a marker, a path) switches a strict rule off; what cannot be looked into within the limits
// is itself a hit.
package secrets

import (
	"cmp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/policy"
)

// Doc is one text that would leave.
type Doc struct {
	Name string // a path, or what it is, such as "commit message"
	Text []byte
	// Old is what already stands there: a secret that occurs in it is not reported again.
	Old []byte
}

// Hit is a place with a secret. It never holds the value.
type Hit struct {
	Doc  string // the document's name
	Line int    // from 1; 0 when it is not known
	Rule string // gitleaks' rule id; "known-secret:<name>"; or [RuleLimit]
	Form string // how it was hidden: "base64", "gzip", "split", …; "" for plain
	Weak bool   // a heuristic rule: for a person to look at, no proof
}

// RuleLimit is the rule of a document that unpacks to more than is looked into.
const RuleLimit = "unpacks-to-too-much"

// Scanner finds secrets.
type Scanner struct {
	known []known
	rules func() (*ruleset, error)
}

// New returns a scanner that knows the given values beside the rules. Values shorter than six
// bytes are left out.
func New(values []policy.Secret) *Scanner {
	s := &Scanner{rules: lazyRules()}
	for _, v := range values {
		if len(v.Value) >= minValue {
			s.known = append(s.known, newKnown(v))
		}
	}
	return s
}

// Scan looks through every document, and through all of them as one for values split over
// them. Hits come in the documents' order. The error is about the embedded rules.
func (s *Scanner) Scan(docs ...Doc) ([]Hit, error) {
	rules, err := s.rules()
	if err != nil {
		return nil, err
	}
	var hits []Hit
	for _, d := range docs {
		l := &look{known: s.known, rules: rules, path: d.Name, budget: maxUnpacked}
		found := l.all(d.Text)
		if len(found) > 0 && len(d.Old) > 0 {
			before := (&look{known: s.known, rules: rules, path: d.Name, budget: maxUnpacked}).all(d.Old)
			had := map[string]bool{}
			for _, f := range before {
				had[f.rule+"\x00"+f.value] = true
			}
			found = slices.DeleteFunc(found, func(f sighting) bool { return had[f.rule+"\x00"+f.value] })
		}
		hits = append(hits, hitsOf(d.Name, found)...)
	}
	return hits, nil
}

// Mask replaces what strict rules find in plain sight by "[redacted:rule]".
func (s *Scanner) Mask(text string) (string, error) {
	rules, err := s.rules()
	if err != nil {
		return "", err
	}
	for _, f := range rules.match("", text, false) {
		if !f.weak && f.value != "" {
			text = strings.ReplaceAll(text, f.value, "[redacted:"+f.rule+"]")
		}
	}
	return text, nil
}

// hitsOf drops repetitions: the same rule in the same place, and a weak rule where a strict
// one says more.
func hitsOf(name string, found []sighting) []Hit {
	strict := map[int]bool{}
	for _, f := range found {
		if !f.weak {
			strict[f.line] = true
		}
	}
	var out []Hit
	seen := map[Hit]bool{}
	for _, f := range found {
		h := Hit{Doc: name, Line: f.line, Rule: f.rule, Form: f.form, Weak: f.weak}
		key := h
		key.Form = ""
		if f.weak && strict[f.line] || seen[key] {
			continue
		}
		seen[key] = true
		out = append(out, h)
	}
	slices.SortStableFunc(out, func(a, b Hit) int { return cmp.Compare(a.Line, b.Line) })
	return out
}

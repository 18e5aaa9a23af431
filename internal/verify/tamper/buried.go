package tamper

import (
	"fmt"
	"slices"
)

// bury parts the checks of a unit into those that may run and those that do not.
func bury(u *unit, spans []span) {
	if len(spans) == 0 {
		return
	}
	alive := u.asserts[:0:0]
	for _, x := range u.asserts {
		for _, s := range spans {
			if s.from > x.pos || x.pos >= s.to {
				continue
			}
			if !s.maybe {
				x.why = s.why
				break
			}
			x.guard.conds++
		}
		if x.why == "" {
			alive = append(alive, x)
		} else {
			u.dead = append(u.dead, x)
		}
	}
	u.asserts = slices.Clip(alive)
}

// alike takes checks that seem dead in both versions as checks like all others: only what becomes
// dead is lost, and what is rewritten there is compared.
func alike(old, now *unit) (o, n *unit) {
	if len(old.dead) == 0 {
		return old, now
	}
	was, is := *old, *now
	was.asserts, was.dead = slices.Concat(old.asserts, old.dead), nil
	is.asserts, is.dead = slices.Clone(now.asserts), nil
	left := map[string]int{}
	for _, x := range old.dead {
		left[x.text()]++
	}
	var others []assertion
	for _, x := range now.dead {
		if left[x.text()] > 0 {
			left[x.text()]--
			is.asserts = append(is.asserts, x)
		} else {
			others = append(others, x)
		}
	}
	rewritten := min(len(others), len(old.dead)-(len(is.asserts)-len(now.asserts)))
	is.asserts, is.dead = append(is.asserts, others[:rewritten]...), others[rewritten:]
	return &was, &is
}

// buried says which of the checks that are gone are now where nothing runs them, and gives back
// the others.
func (a *analysis) buried(path string, now *unit, removed []assertion) []assertion {
	left := now.dead
	take := func(r assertion, like func(assertion) bool) bool {
		at := slices.IndexFunc(left[:min(len(left), maxPairs)], like)
		if at < 0 {
			return false
		}
		x := left[at]
		left = slices.Concat(left[:at], left[at+1:])
		a.add(path, x.line, AssertionRemoved, "warn", fmt.Sprintf("%s: a check is now %s", now.name, x.why), r.text(), lineText(now.toks, x.line))
		return true
	}
	if len(left) == 0 {
		return removed
	}
	var others, rest []assertion
	for _, r := range removed {
		if k := r.text(); !take(r, func(x assertion) bool { return x.text() == k }) {
			others = append(others, r)
		}
	}
	for _, r := range others {
		words, total := wordCount(r.toks)
		if !take(r, func(x assertion) bool { return likeness(words, total, x.toks) >= 0.6 }) {
			rest = append(rest, r)
		}
	}
	return rest
}

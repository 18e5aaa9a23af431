package tamper

import (
	"regexp"
)

// neverDefined are names that say of themselves that nobody defines them.
var neverDefined = regexp.MustCompile(`(?i)(^|_)(never|disabled?|unused|ignored?|skip(ped)?|dead|off|undefined|not_?defined|nope|xxx+|todo|fixme)(_|$)`)

// asks folds the condition of a line for the preprocessor.
func (d *deadFinder) asks(line []token) truth {
	if len(line) < 3 {
		return unknown
	}
	name := func(toks []token) truth {
		toks = unwrap(toks)
		if len(toks) == 1 && neverDefined.MatchString(toks[0].Text) {
			return never
		}
		return unknown
	}
	switch line[1].Text {
	case "ifdef":
		return name(line[2:])
	case "ifndef":
		return name(line[2:]).not()
	case "if", "elif":
		cond := unwrap(line[2:])
		if len(cond) > 1 && cond[0].Text == "defined" {
			return name(cond[1:])
		}
		if is := d.truth(cond); is != unknown {
			return is
		}
		return name(cond)
	}
	return unknown
}

// preprocessor marks what is not compiled, and what is under a condition that the text does not decide.
func (d *deadFinder) preprocessor() {
	type level struct {
		from  int
		is    truth // of the part at hand
		taken bool  // a part before it always holds
	}
	var open []level
	mark := func(n, to int) {
		switch l := open[n]; {
		case l.taken || l.is == never:
			d.bury(l.from, to, whyUnbuilt)
		case l.is == unknown:
			d.spans = append(d.spans, span{from: l.from, to: to, why: whyUnbuilt, maybe: true})
		}
	}
	for i := 0; i < len(d.toks); i++ {
		if d.at(i) != "#" || d.toks[i].Indent < 0 {
			continue
		}
		end := i
		for end < len(d.toks) && d.toks[end].Line == d.toks[i].Line {
			end++
		}
		n := len(open) - 1
		switch d.at(i + 1) {
		case "if", "ifdef", "ifndef":
			open = append(open, level{from: end, is: d.asks(d.toks[i:end])})
		case "elif", "else":
			if n < 0 {
				break
			}
			mark(n, i)
			next := level{from: end, is: unknown, taken: open[n].taken || open[n].is == always}
			if d.at(i+1) == "elif" {
				next.is = d.asks(d.toks[i:end])
			} else if open[n].is == never {
				next.is = always
			}
			open[n] = next
		case "endif":
			if n >= 0 {
				mark(n, i)
				open = open[:n]
			}
		}
		i = end - 1
	}
}

// guarded says what the build's conditions around a declaration of a file do to it.
func guarded(spans []span, at int) skipKind {
	k := runs
	for _, s := range spans {
		if s.from <= at && at < s.to {
			if !s.maybe {
				return skips
			}
			k = skipsSometimes
		}
	}
	return k
}

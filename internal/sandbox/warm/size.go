package warm

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// window is how far back arrivals are counted.
const window = 10 * time.Minute

// kind is one specification.
type kind struct {
	spec   sandbox.Spec
	family string
	ready  []*box
	making int         // that are being started
	asked  []time.Time // lately, oldest first
	// expected is when somebody last said that one will be asked for; zero once one was.
	expected time.Time
	stats    KindStats
	// broken says that starting one failed: nobody tries again before the next is asked for.
	broken bool
}

// family are specifications that differ only in the commit that they stand on.
type family struct {
	asked  []time.Time // lately, oldest first
	newest string      // key of the kind that came last
}

func (k *kind) pop() *box {
	if len(k.ready) == 0 {
		return nil
	}
	b := k.ready[0]
	k.ready = k.ready[1:]
	return b
}

// last is when somebody last wanted one.
func (k *kind) last() time.Time {
	last := k.expected
	if n := len(k.asked); n > 0 && k.asked[n-1].After(last) {
		last = k.asked[n-1]
	}
	return last
}

// know is the kind of a specification, made when it is new.
func (p *Pool) know(key, fam string, spec sandbox.Spec) *kind {
	f := p.families[fam]
	if f == nil {
		f = &family{}
		p.families[fam] = f
	}
	k := p.kinds[key]
	if k == nil {
		k = &kind{spec: plain(spec), family: fam}
		p.kinds[key] = k
		f.newest = key
	}
	if p.kinds[f.newest] == nil {
		f.newest = key
	}
	k.broken = false
	return k
}

// target is how many of a kind should wait: so many that in 99 of 100 cases one is left when the
// next is asked for, if they are asked for at random. How often that is, the family says of its
// newest member: a repository's next task stands on its newest commit. What was asked for once
// and has a newer member beside it is over.
func (p *Pool) target(key string, k *kind, now time.Time) int {
	if p.closed || now.Sub(k.last()) > p.cfg.Idle {
		return 0
	}
	n := lately(k.asked, now)
	switch f := p.families[k.family]; {
	case f.newest == key:
		n = lately(f.asked, now)
	case n < 2 && k.expected.IsZero():
		return 0
	}
	perSecond, start := float64(n)/window.Seconds(), cmp.Or(k.stats.Refill, p.stats.Refill)
	return quantile(perSecond*start.Seconds(), 0.99) + 1
}

func lately(asked []time.Time, now time.Time) (n int) {
	for _, t := range asked {
		if now.Sub(t) <= window {
			n++
		}
	}
	return n
}

// quantile is the least n for which a Poisson variable of the mean is at most n with probability
// q. Beyond a mean of 500 it is not asked for.
func quantile(mean, q float64) int {
	mean = min(mean, 500)
	term := math.Exp(-mean)
	for n, sum := 0, term; ; n++ {
		if sum >= q || n > 1000 {
			return n
		}
		term *= mean / float64(n+1)
		sum += term
	}
}

// forget drops what is too long ago to count.
func (p *Pool) forget(now time.Time) {
	old := func(t time.Time) bool { return now.Sub(t) > max(window, p.cfg.Idle) }
	used := map[string]bool{}
	for key, k := range p.kinds {
		k.asked = slices.DeleteFunc(k.asked, old)
		if len(k.ready) == 0 && k.making == 0 && p.target(key, k, now) == 0 {
			delete(p.kinds, key)
			continue
		}
		used[k.family] = true
	}
	for name, f := range p.families {
		if f.asked = slices.DeleteFunc(f.asked, old); len(f.asked) == 0 && !used[name] {
			delete(p.families, name)
		}
	}
}

// surplus takes a ready sandbox out of which there are too many.
func (p *Pool) surplus(all bool) *box {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	for key, k := range p.kinds {
		if len(k.ready) > 0 && (all || len(k.ready) > p.target(key, k, now)) {
			return k.pop()
		}
	}
	p.forget(now)
	return nil
}

// lacking reserves a place for one more of the kind that was wanted last of those of which there
// are too few. Where there is no room, old is one to end first: of the kind that was wanted the
// longest ago.
func (p *Pool) lacking() (key string, spec sandbox.Spec, ok bool, old *box) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, total, making, memory := p.cfg.Now(), 0, 0, int64(0)
	var best, oldest *kind
	for name, k := range p.kinds {
		for _, b := range k.ready {
			memory += b.memory
		}
		total, making = total+len(k.ready), making+k.making
		if len(k.ready) > 0 && (oldest == nil || k.last().Before(oldest.last())) {
			oldest = k
		}
		if k.broken || len(k.ready)+k.making >= p.target(name, k, now) {
			continue
		}
		if best == nil || k.last().After(best.last()) {
			best, key = k, name
		}
	}
	if best == nil || making >= together {
		return "", spec, false, nil
	}
	if p.each == 0 && making > 0 { // what one takes is learnt from the first
		return "", spec, false, nil
	}
	switch {
	case total+making < p.cfg.Count && memory+p.each*int64(making+1) <= p.cfg.Memory:
		best.making++
		return key, best.spec, true, nil
	case oldest != nil && oldest.last().Before(best.last()):
		return "", spec, false, oldest.pop()
	}
	return "", spec, false, nil
}

package mirror

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
)

// CanaryWatch looks for planted tokens in names: plain, reversed, hex, base32, base64, inside
// one name or dripped over several. It is safe for concurrent use.
//
// A token must be random: names are compared without case and punctuation, since ecosystems
// fold both.
type CanaryWatch struct {
	windows map[string]bool // every window of every form of every token
	forms   []string

	mu   sync.Mutex
	full string // names seen so far, joined
	last string // their last segments, joined
}

const (
	window    = 12 // characters of a form that, in one name, are no accident
	streamCap = 64 << 10
)

// NewCanaryWatch prepares the search for the tokens. Tokens shorter than the window are left
// out: they would be found by accident.
func NewCanaryWatch(tokens []string) *CanaryWatch {
	c := &CanaryWatch{windows: map[string]bool{}}
	for _, t := range tokens {
		if len(t) < window {
			continue
		}
		for _, f := range canaryForms(t) {
			f = fold(f)
			if len(f) < window {
				continue
			}
			c.forms = append(c.forms, f)
			for i := 0; i+window <= len(f); i++ {
				c.windows[f[i:i+window]] = true
			}
		}
	}
	return c
}

func canaryForms(t string) []string {
	rev := []byte(t)
	slices.Reverse(rev)
	out := []string{t, string(rev), hex.EncodeToString([]byte(t))}
	// at each alignment; the characters at the edges mix with the neighbours and are cut off
	for shift := range 5 {
		b := append(make([]byte, shift), t...)
		e := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b)
		out = append(out, trimEdges(e, (shift*8+4)/5, len(b)*8%5 != 0))
	}
	for shift := range 3 {
		b := append(make([]byte, shift), t...)
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			e := enc.EncodeToString(b)
			out = append(out, trimEdges(e, (shift*8+5)/6, len(b)*8%6 != 0))
		}
	}
	return out
}

func trimEdges(e string, front int, back bool) string {
	e = e[min(front, len(e)):]
	if back && e != "" {
		e = e[:len(e)-1]
	}
	return e
}

// fold keeps letters and digits, in lower case.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return -1
	}, s)
}

// Seen adds a name and reports whether it, or the names so far together, carry a token.
func (c *CanaryWatch) Seen(_ Ecosystem, name string) bool {
	f := fold(name)
	for i := 0; i+window <= len(f); i++ {
		if c.windows[f[i:i+window]] {
			return true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.full = tail(c.full + f)
	c.last = tail(c.last + fold(name[strings.LastIndexAny(name, "/:")+1:]))
	return slices.ContainsFunc(c.forms, func(form string) bool {
		return strings.Contains(c.full, form) || strings.Contains(c.last, form)
	})
}

func tail(s string) string { return s[max(0, len(s)-streamCap):] }

package tamper

import (
	"path"
	"strings"
	"testing"
)

// slow is the definition.
func slow(pat, parts []string) bool {
	if len(pat) == 0 {
		return len(parts) == 0
	}
	if pat[0] == "**" {
		for i := range len(parts) + 1 {
			if slow(pat[1:], parts[i:]) {
				return true
			}
		}
		return false
	}
	if len(parts) == 0 {
		return false
	}
	ok, err := path.Match(pat[0], parts[0])
	return ok && err == nil && slow(pat[1:], parts[1:])
}

// lists gives every list of at most n of the words.
func lists(n int, words ...string) [][]string {
	out := [][]string{{}}
	for i := 0; i < len(out); i++ {
		if len(out[i]) < n {
			for _, w := range words {
				out = append(out, append(out[i][:len(out[i]):len(out[i])], w))
			}
		}
	}
	return out
}

func TestMatchPartsIsWhatItSays(t *testing.T) {
	for _, pat := range lists(4, "**", "a", "*b", "[") {
		for _, parts := range lists(4, "a", "b") {
			if got, want := MatchParts(pat, parts), slow(pat, parts); got != want {
				t.Fatalf("%q on %q: %v, want %v", pat, parts, got, want)
			}
		}
	}
}

// TestHostilePattern ends at once, or the test's own time limit ends it.
func TestHostilePattern(t *testing.T) {
	parts := strings.Split(strings.Repeat("a/", 2000)+"c", "/")
	if MatchParts(strings.Split(strings.Repeat("**/a/", 1000)+"b", "/"), parts) {
		t.Error("matched")
	}
}

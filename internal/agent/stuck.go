package agent

import (
	"crypto/sha256"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/model"
)

// How often the same call with the same result may come back within the newest [stuckWindow]
// calls before the model is nudged, and before the run stops.
const (
	stuckWindow = 24
	stuckNudge  = 3
	stuckStop   = 6
)

// stuckWatch sees loops. The result is part of the key, and a successful edit forgets what
// was only looked at before it: a test run again after an edit is no loop, the same edit made
// again and again is one.
type stuckWatch struct {
	recent []stuckCall
	nudged [sha256.Size]byte // the call that the newest nudge was about
}

// nudge remembers that the model was told of the newest call.
func (w *stuckWatch) nudge() {
	if len(w.recent) > 0 {
		w.nudged = w.recent[len(w.recent)-1].key
	}
}

// nudgedNow reports whether the model was told of the newest call already.
func (w *stuckWatch) nudgedNow() bool {
	return len(w.recent) > 0 && w.nudged == w.recent[len(w.recent)-1].key
}

type stuckCall struct {
	key  [sha256.Size]byte
	edit bool
}

func (w *stuckWatch) add(call model.Block, result string, isError bool) {
	h := sha256.New()
	for _, s := range []string{call.Name, string(call.Input), call.BadInput, stable(result)} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	edit := (call.Name == "edit" || call.Name == "write") && !isError
	if edit {
		kept := w.recent[:0]
		for _, c := range w.recent {
			if c.edit {
				kept = append(kept, c)
			}
		}
		w.recent = kept
	}
	w.recent = append(w.recent, stuckCall{[sha256.Size]byte(h.Sum(nil)), edit})
	if len(w.recent) > stuckWindow {
		w.recent = w.recent[1:]
	}
}

// count is how often the newest call occurs in the window.
func (w *stuckWatch) count() int {
	n := 0
	for _, c := range w.recent {
		if c.key == w.recent[len(w.recent)-1].key {
			n++
		}
	}
	return n
}

// stable removes what differs between two runs of the same command, so that wall times and
// process numbers do not hide a loop. It is written by hand because a regular expression takes
// longer over a long result than everything else the harness does with it.
func stable(s string) string {
	var b strings.Builder
	kept := 0
	for i := 0; i < len(s); {
		end, next := 0, i+1
		switch {
		case digit(s[i]):
			for next < len(s) && (digit(s[next]) || s[next] == '.' || s[next] == ':') {
				next++
			}
			end = unitEnd(s, next)
		case s[i] == 'p' && (i == 0 || !wordByte(s[i-1])):
			end = processEnd(s, i)
		}
		if end > 0 {
			b.WriteString(s[kept:i])
			kept, next = end, end
		}
		i = next
	}
	if kept == 0 {
		return s
	}
	b.WriteString(s[kept:])
	return b.String()
}

// unitEnd is where a unit of time that begins at i, or after one space, ends; 0 without one.
func unitEnd(s string, i int) int {
	if i < len(s) && s[i] == ' ' {
		i++
	}
	for _, unit := range [...]string{"ns", "µs", "ms", "s", "m", "h"} {
		if end := i + len(unit); strings.HasPrefix(s[i:], unit) && (end == len(s) || !wordByte(s[end])) {
			return end
		}
	}
	return 0
}

// processEnd is where "process 123" that begins at i ends; 0 when it is not there.
func processEnd(s string, i int) int {
	const word = "process "
	if !strings.HasPrefix(s[i:], word) {
		return 0
	}
	end := i + len(word)
	for end < len(s) && digit(s[end]) {
		end++
	}
	if end == i+len(word) {
		return 0
	}
	return end
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

func wordByte(c byte) bool {
	return digit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
}

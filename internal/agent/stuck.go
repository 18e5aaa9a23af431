package agent

import (
	"crypto/sha256"
	"regexp"

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

var wallTime = regexp.MustCompile(`[0-9][0-9.:]* ?(?:ns|µs|ms|s|m|h)\b|\bprocess [0-9]+`)

// stable removes what differs between two runs of the same command, so that wall times and
// process numbers do not hide a loop.
func stable(s string) string { return wallTime.ReplaceAllString(s, "") }

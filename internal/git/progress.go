package git

import (
	"bytes"
	"strconv"
	"strings"
)

// Progress is told how far long work is: done of total, in units of the stage; a total of 0 is
// not known yet. It is called from one goroutine at a time and returns at once. It may be nil.
type Progress func(stage string, done, total int)

// The stages that [Progress] names.
const (
	StageFetch    = "fetching"     // objects
	StageCheckout = "checking out" // files
)

func (p Progress) tell(stage string, done, total int) {
	if p != nil {
		p(stage, done, total)
	}
}

// Telling returns a Git whose fetches and checkouts say how far they are.
func (g *Git) Telling(p Progress) *Git {
	cfg := g.cfg
	cfg.progress = p
	return &Git{bin: g.bin, cfg: cfg}
}

// meter reads what git writes about its progress, in lines that a carriage return ends:
// "Receiving objects:  45% (123/456), 1.2 MiB". Everything else passes.
type meter struct {
	limited
	tell Progress
	part []byte
}

// Write implements io.Writer.
func (m *meter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexAny(p, "\r\n")
		if i < 0 {
			m.part = append(m.part, p[:min(len(p), 4096-min(len(m.part), 4096))]...)
			break
		}
		line := string(append(m.part, p[:i]...))
		m.part, p = m.part[:0], p[i+1:]
		if done, total, ok := received(line); ok {
			m.tell.tell(StageFetch, done, total)
		} else if _, err := m.limited.Write([]byte(line + "\n")); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func received(line string) (done, total int, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(line, "remote: "), "Receiving objects:")
	if !ok {
		return 0, 0, false
	}
	_, rest, ok = strings.Cut(rest, "(")
	count, _, ok2 := strings.Cut(rest, ")")
	a, b, ok3 := strings.Cut(count, "/")
	done, err1 := strconv.Atoi(a)
	total, err2 := strconv.Atoi(b)
	return done, total, ok && ok2 && ok3 && err1 == nil && err2 == nil
}

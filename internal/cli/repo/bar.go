package repo

import (
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/taskview"
	"github.com/daybreak-agent/daybreak/internal/story"
)

// bar shows how far long work is: on a terminal in a line that lives, elsewhere a line for each
// part of it.
type bar struct {
	env   *kit.Env
	width int // 0: no terminal

	mu    sync.Mutex
	doing string // of which it is not known how far it is
	since time.Time
	drawn time.Time
	shown bool

	stop, stopped chan struct{} // of what lets the seconds pass
}

// newBar makes one that must be ended.
func newBar(env *kit.Env) *bar { return begun(env, env.Width()) }

func begun(env *kit.Env, width int) *bar {
	b := &bar{env: env, width: width, stop: make(chan struct{}), stopped: make(chan struct{})}
	if b.width == 0 {
		close(b.stopped)
		return b
	}
	go func() {
		defer close(b.stopped)
		second := time.NewTicker(time.Second)
		defer second.Stop()
		for {
			select {
			case <-b.stop:
				return
			case <-second.C:
				b.mu.Lock()
				b.tick()
				b.mu.Unlock()
			}
		}
	}()
	return b
}

// note says what is done now.
func (b *bar) note(text string) {
	if b.width == 0 {
		fmt.Fprintln(b.env.Err, taskview.Escape(text))
	}
	b.status(text)
}

// status is note on a terminal alone.
func (b *bar) status(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.width == 0 {
		return
	}
	b.doing, b.since = taskview.Escape(text), b.env.Now()
	b.tick()
}

// tick draws what is done now, and for how long.
func (b *bar) tick() {
	if b.doing == "" {
		return
	}
	took := "  " + story.Took(b.env.Now().Sub(b.since).Truncate(time.Second).Milliseconds())
	text := []rune(b.doing)
	if room := b.width - 1 - utf8.RuneCountInString(took); len(text) > room {
		text = append(text[:max(room-1, 0)], '…')
	}
	b.draw(string(text) + took)
}

func (b *bar) draw(text string) {
	b.shown = true
	fmt.Fprint(b.env.Out, "\r\x1b[K"+text)
}

// at implements git.Progress.
func (b *bar) at(stage string, done, total int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.Now()
	if b.width == 0 || total <= 0 || b.shown && done < total && now.Sub(b.drawn) < 50*time.Millisecond {
		return
	}
	b.drawn, b.doing = now, ""
	b.draw(line(stage, done, total, b.width))
}

// line is the bar as text, at most width columns.
func line(stage string, done, total, width int) string {
	done = min(max(done, 0), total)
	counts := fmt.Sprintf(" %3d%% %d/%d", done*100/total, done, total)
	room := min(max(width-len(stage)-len(counts)-4, 0), 40)
	full := done * room / total
	return fmt.Sprintf("%s [%s%s]%s", stage, strings.Repeat("█", full), strings.Repeat("░", room-full), counts)
}

// clear takes the line off the terminal, for others to write.
func (b *bar) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.doing = ""; b.shown {
		fmt.Fprint(b.env.Out, "\r\x1b[K")
		b.shown = false
	}
}

func (b *bar) end() {
	close(b.stop)
	<-b.stopped
	b.clear()
}

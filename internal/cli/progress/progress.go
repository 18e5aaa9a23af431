// Package progress shows a running task: on a terminal a line per action under a status line
// that lives, elsewhere plain lines, or one JSON object per event.
//
// Invariants: what it prints comes from recorded events, except the status line; text that a
// model, a repository or an issue wrote is printed without control characters; it never fails
// the run.
package progress

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/daybreak-agent/daybreak/internal/cli/taskview"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Mode says how to print.
type Mode int

// The modes.
const (
	Plain Mode = iota
	Terminal
	JSON
)

// View prints one task's progress. Its methods are safe for concurrent use.
type View struct {
	out   io.Writer
	mode  Mode
	width int
	now   func() time.Time
	load  func(event.Text) (string, error)

	mu      sync.Mutex
	started time.Time
	limits  task.Limits
	spent   task.Spent
	doing   string
	reach   string            // how far the next sandbox may reach, "" for nowhere
	judged  bool              // the call that runs has brought a verdict, which was shown
	args    map[string]string // by call
	streams int               // characters of the reply that is coming in
	frame   int
	live    bool // the status line is on the screen
	stop    chan struct{}
	stopped chan struct{}
}

// New returns a view. load resolves texts kept as blobs; width is the terminal's, 0 for 100.
func New(out io.Writer, mode Mode, width int, now func() time.Time, load func(event.Text) (string, error)) *View {
	if width <= 0 {
		width = 100
	}
	v := &View{out: out, mode: mode, width: width, now: now, load: load, started: now(), args: map[string]string{}}
	if mode == Terminal {
		v.stop, v.stopped = make(chan struct{}), make(chan struct{})
		go v.spin()
	}
	return v
}

// Close removes the status line.
func (v *View) Close() {
	if v.mode == Terminal {
		close(v.stop)
		<-v.stopped
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.erase()
}

func (v *View) spin() {
	defer close(v.stopped)
	t := time.NewTicker(120 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-v.stop:
			return
		case <-t.C:
			v.mu.Lock()
			v.frame++
			v.status()
			v.mu.Unlock()
		}
	}
}

// Delta takes the model's stream, for the status line.
func (v *View) Delta(d model.Delta) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case d.Retry != nil:
		v.streams = 0
		v.line(warn, "!", "model", fmt.Sprintf("attempt %d failed (%s); next in %s", d.Retry.Attempt, taskview.Escape(d.Retry.Err.Error()), time.Duration(d.Retry.After)*time.Millisecond))
	case d.Thinking != "":
		v.doing = "thinking"
		v.streams += len(d.Thinking)
	case d.Tool != "":
		v.doing = "preparing " + taskview.Escape(d.Tool)
	default:
		v.doing = "answering"
		v.streams += len(d.Text)
	}
}

// Stage takes notes of long stages.
func (v *View) Stage(stage, note string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.doing = stage
	if note != "" {
		v.doing += ": " + taskview.Escape(note)
	}
	if v.mode == Plain {
		fmt.Fprintln(v.out, "… "+v.doing)
	}
}

// Far takes how far a fetch or a checkout is, for the status line.
func (v *View) Far(stage string, done, total int) {
	if total <= 0 || v.mode != Terminal {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	done = min(max(done, 0), total)
	v.doing = fmt.Sprintf("prepare: %s %d%% (%d of %d)", stage, done*100/total, done, total)
}

// Event takes a recorded event.
func (v *View) Event(e event.Event, p event.Payload) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mode == JSON {
		b, err := json.Marshal(struct {
			Type string `json:"type"`
			event.Event
		}{"event", e})
		if err == nil {
			fmt.Fprintf(v.out, "%s\n", b)
		}
		return
	}
	v.show(p)
}

var (
	good  = lipgloss.NewStyle().Foreground(lipgloss.Green)
	bad   = lipgloss.NewStyle().Foreground(lipgloss.Red)
	warn  = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	faint = lipgloss.NewStyle().Faint(true)
	bold  = lipgloss.NewStyle().Bold(true)
)

// line prints one action: a mark, a short name, and what there is to say.
func (v *View) line(style lipgloss.Style, mark, name, text string) {
	v.erase()
	text = strings.TrimSpace(text)
	if v.mode == Terminal {
		if room := v.width - 17; lipgloss.Width(text) > room && room > 10 {
			if mark == "·" {
				text = cut(text, room)
			} else { // what was found must be read whole
				text = fold(text, room, 15)
			}
		}
		_, _ = lipgloss.Fprintf(v.out, " %s %s %s\n", style.Render(mark), bold.Render(fmt.Sprintf("%-11s", name)), text)
		v.status()
		return
	}
	fmt.Fprintf(v.out, "%s %-11s %s\n", mark, name, text)
}

// say prints a few lines of what the model said.
func (v *View) say(text string) {
	v.erase()
	lines := strings.Split(strings.TrimSpace(taskview.EscapeLines(text)), "\n")
	for i, l := range lines {
		if i == 6 && len(lines) > 7 {
			l = fmt.Sprintf("… %d more lines", len(lines)-i)
		}
		if v.mode == Terminal {
			_, _ = lipgloss.Fprintln(v.out, faint.PaddingLeft(3).Width(v.width-1).Render(l))
		} else {
			fmt.Fprintln(v.out, "    "+l)
		}
		if i == 6 && len(lines) > 7 {
			break
		}
	}
	v.status()
}

// fold breaks a text into at most four lines of n cells, those after the first indented.
func fold(s string, n, indent int) string {
	lines := strings.Split(lipgloss.Wrap(s, n, " /"), "\n")
	if len(lines) > 4 {
		lines = append(lines[:3], cut(lines[3], n-1)+"…")
	}
	return strings.Join(lines, "\n"+strings.Repeat(" ", indent))
}

func cut(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:max(n-1, 0)]) + "…"
}

func (v *View) erase() {
	if v.live {
		fmt.Fprint(v.out, "\r\x1b[K")
		v.live = false
	}
}

// status draws the living line: what is being done, and the budget.
func (v *View) status() {
	if v.mode != Terminal {
		return
	}
	frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	doing := v.doing
	if v.streams > 0 {
		doing += fmt.Sprintf(" (%s)", taskview.Size(int64(v.streams)))
	}
	left := fmt.Sprintf(" %c %s", frames[v.frame%len(frames)], doing)
	right := v.budget()
	room := v.width - lipgloss.Width(right) - 2
	left = cut(left, max(room, 10))
	pad := max(v.width-lipgloss.Width(left)-lipgloss.Width(right)-1, 1)
	_, _ = lipgloss.Fprint(v.out, "\r\x1b[K"+left+strings.Repeat(" ", pad)+faint.Render(right))
	v.live = true
}

func (v *View) budget() string {
	parts := []string{fmt.Sprintf("step %d", v.spent.Steps)}
	if v.limits.Steps > 0 {
		parts[0] += fmt.Sprintf("/%d", v.limits.Steps)
	}
	if v.limits.Cost > 0 {
		parts = append(parts, fmt.Sprintf("$%.2f/$%.2f", v.spent.Cost.USD(), v.limits.Cost.USD()))
	}
	if v.width >= 100 { // what is being done comes first
		parts = append(parts, tokens(v.spent.Tokens.Total())+" tokens")
	}
	parts = append(parts, (v.spent.Wall + v.now().Sub(v.started)).Round(time.Second).String())
	return strings.Join(parts, " · ")
}

func tokens(n int64) string {
	switch {
	case n >= 1_000_000:
		return fmt.Sprintf("%.1fM", float64(n)/1e6)
	case n >= 1000:
		return fmt.Sprintf("%.1fk", float64(n)/1e3)
	}
	return fmt.Sprint(n)
}

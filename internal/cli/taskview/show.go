// Package taskview renders a recorded task as text for a person, and packs a task's log with
// its blobs into one file that can be verified without the store.
//
// Invariants: rendering is pure, from events to a writer; every text that comes from an
// issue, a model, a repository or a command is escaped, so that a log cannot act on the
// terminal that shows it; an event of a kind that this build does not know is shown, not
// skipped.
package taskview

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/story"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Loader returns the whole string of a text, from the event or from its blob.
type Loader func(event.Text) (string, error)

// Options choose how much is shown and how.
type Options struct {
	Full  bool // the texts of the issue, the model and the tools too, whole
	Color bool // ANSI colours, for a terminal
}

// Show writes the task that the events record: a head, then every step in order, then how it
// ended. A log that does not fold is shown as far as it goes, and the error is returned; so
// are errors of w. A text that load cannot give is named in its place.
func Show(w io.Writer, events []event.Event, load Loader, opts Options) error {
	if len(events) == 0 {
		return &task.Error{Class: task.NotFound, Msg: "the task has no events"}
	}
	sum, foldErr := event.Fold(events)
	p := &printer{w: bufio.NewWriter(w), load: load, opts: opts, start: events[0].Time, open: map[callKey]event.ToolStarted{}}
	p.head(sum)
	for _, e := range events {
		payload, err := event.Decode(e)
		if err != nil {
			p.line(e.Time, p.red("%s", Escape(err.Error())))
			continue
		}
		p.event(e, payload)
	}
	p.foot(sum)
	if err := p.w.Flush(); err != nil {
		return err
	}
	return foldErr
}

type callKey struct {
	step int
	call string
}

// printer writes one task. Errors of the writer are kept by bufio until Flush.
type printer struct {
	w     *bufio.Writer
	load  Loader
	opts  Options
	start time.Time
	open  map[callKey]event.ToolStarted // calls whose result has not come yet
}

func (p *printer) head(s event.Summary) {
	c := s.Created
	title := Escape(c.IssueTitle)
	if title == "" {
		title = "(no title)"
	}
	fmt.Fprintln(p.w, p.bold("%s", title))
	fmt.Fprintf(p.w, "%s · %s · %s\n", Escape(string(s.Task)), p.state(s.State), s.CreatedAt.Format("2006-01-02 15:04:05 MST"))
	field := func(name, format string, args ...any) {
		fmt.Fprintf(p.w, "%s %s\n", p.dim("%-7s", name), fmt.Sprintf(format, args...))
	}
	at := short(c.Base)
	if c.BaseRef != "" && c.BaseRef != c.Base {
		at += " (" + Escape(c.BaseRef) + ")"
	}
	if c.Target != "" {
		at += ", for " + Escape(c.Target)
	}
	field("repo", "%s @ %s", Escape(c.Repo), at)
	model := Escape(c.Model)
	if c.RequestedBy != "" {
		model += " · asked for by " + Escape(c.RequestedBy)
	}
	field("model", "%s", model)
	field("budget", "%s", budget(c.Limits, s.Spent))
	if c.Hidden > 0 {
		field("issue", "%s of hidden text removed", story.Plural(c.Hidden, "byte"))
	}
	if p.opts.Full {
		p.text(c.Issue)
	}
	fmt.Fprintln(p.w)
}

// budget shows every limited dimension, and what was spent of the unlimited ones.
func budget(l task.Limits, s task.Spent) string {
	var out []string
	limited := map[string]bool{}
	for _, m := range l.Meters(s) {
		limited[m.Name] = true
		out = append(out, m.String())
	}
	if !limited["steps"] {
		out = append([]string{story.Plural(s.Steps, "step")}, out...)
	}
	if !limited["tokens"] {
		out = append(out, story.Count(s.Tokens.Total())+" tokens")
	}
	if !limited["usd"] {
		out = append(out, fmt.Sprintf("$%.2f", s.Cost.USD()))
	}
	if !limited["wall"] {
		out = append(out, s.Wall.Round(time.Second).String())
	}
	return strings.Join(out, " · ")
}

func (p *printer) foot(s event.Summary) {
	for _, c := range s.OpenCalls {
		p.item(s.UpdatedAt, "  %s %s", p.call(c), p.red("no result yet"))
	}
	fmt.Fprintln(p.w)
	end := p.state(s.State)
	if s.Reason != "" {
		end += " · " + Escape(s.Reason)
	}
	fmt.Fprintln(p.w, end)
	if d := s.Declined; d != nil {
		fmt.Fprintf(p.w, "%s %s: %s\n", p.dim("declined"), Escape(d.Kind), Escape(d.Reason))
	}
	if len(s.Findings) > 0 {
		fmt.Fprintln(p.w, p.dim("findings"))
		for _, f := range s.Findings {
			fmt.Fprintf(p.w, "  %s\n", p.finding(f))
		}
	}
	if pr := s.PullRequest; pr != nil {
		fmt.Fprintf(p.w, "%s %s\n", p.dim("branch"), Escape(pr.Branch))
		fmt.Fprintf(p.w, "%s %s\n", p.dim("pull request"), p.bold("%s", Escape(pr.URL)))
	}
}

func (p *printer) finding(f task.Finding) string {
	where := Escape(f.Path)
	if f.Line > 0 {
		where += fmt.Sprint(":", f.Line)
	}
	s := strings.Join(nonEmpty(Escape(f.Kind), where, Escape(f.Detail)), " · ")
	if f.Severity == "block" {
		return p.red("%s", s)
	}
	return s
}

// item writes one line under the time since the task began.
func (p *printer) item(at time.Time, format string, args ...any) {
	p.line(at, fmt.Sprintf(format, args...))
}

func (p *printer) line(at time.Time, s string) {
	d := max(0, at.Sub(p.start)).Truncate(time.Second)
	clock := fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
	fmt.Fprintf(p.w, "%s  %s\n", p.dim("%7s", clock), strings.TrimRight(s, " "))
}

// text writes a text whole, below the line it belongs to.
func (p *printer) text(t event.Text) {
	if t.Bytes == 0 && t.Inline == "" && t.Blob == "" {
		return
	}
	s, err := p.load(t)
	if err != nil {
		s = fmt.Sprintf("(%d bytes, not readable: %v)", t.Bytes, err)
	}
	p.block(s)
}

func (p *printer) block(s string) {
	for line := range strings.Lines(EscapeLines(s)) {
		fmt.Fprintf(p.w, "%s%s\n", p.dim("         │ "), strings.TrimRight(line, "\n"))
	}
}

// document decodes a JSON text; it reports false when it is not there or not that document.
func (p *printer) document(t event.Text, into any) bool {
	s, err := p.load(t)
	return err == nil && json.Unmarshal([]byte(s), into) == nil
}

func (p *printer) sgr(code, format string, args []any) string {
	s := fmt.Sprintf(format, args...)
	if !p.opts.Color || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p *printer) bold(format string, args ...any) string  { return p.sgr("1", format, args) }
func (p *printer) dim(format string, args ...any) string   { return p.sgr("2", format, args) }
func (p *printer) red(format string, args ...any) string   { return p.sgr("31", format, args) }
func (p *printer) green(format string, args ...any) string { return p.sgr("32", format, args) }

func (p *printer) state(s task.State) string {
	switch s {
	case task.InReview, task.Merged:
		return p.green("%s", s)
	case task.Failed, task.Exhausted:
		return p.red("%s", s)
	}
	return p.bold("%s", Escape(string(s)))
}

func short(commit string) string { return cutPlain(Escape(commit), 12) }

func cutPlain(s string, n int) string { return s[:min(n, len(s))] }

func nonEmpty(parts ...string) []string {
	out := parts[:0:0]
	for _, s := range parts {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}

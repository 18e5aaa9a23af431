package progress

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/cli/taskview"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// show prints what a person wants to see of an event; most events are for the record only.
func (v *View) show(p event.Payload) {
	switch p := p.(type) {
	case *event.RunStarted:
		if p.Resumed {
			v.line(warn, "↻", "resumed", fmt.Sprintf("from event %d of the log", p.From))
		}
	case *event.SnapshotReady:
		text := fmt.Sprintf("%s  %s, %s%s", p.Base[:min(12, len(p.Base))], files(p.Files), taskview.Size(p.Bytes), cached(p.Cached))
		v.line(good, "✓", "checkout", text+"  "+ms(p.Millis))
		if p.Rebuilt != "" {
			v.line(warn, "!", "note", taskview.Escape("made anew: "+p.Rebuilt))
		}
		for _, w := range p.Warnings {
			v.line(warn, "!", "note", taskview.Escape(w))
		}
	case *event.SetupStarted, *event.SetupFinished, *event.SetupReady:
		v.setup(p)
	case *event.BaselineFinished:
		v.baseline(p)
	case *event.SandboxStarted:
		if p.Purpose == "agent" {
			reach := "no network"
			if v.reach != "" {
				reach = "package registries only"
			}
			v.line(good, "✓", "sandbox", fmt.Sprintf("%s, %s, %s  ready in %s", p.Runtime, p.Isolation, reach, ms(p.Millis)))
		}
		v.reach = ""
	case *event.NetworkOpened:
		v.reach = p.Mode
	case *event.NetworkAsked:
		if p.New {
			for _, n := range p.Names {
				v.line(warn, "→", "registry", taskview.Package(n.Ecosystem, n.Name, n.Version)+", which no lockfile has")
			}
		}
	case *event.NetworkRefused:
		v.line(warn, "×", "registry", taskview.Package(p.Ecosystem, p.Name, p.Version)+" refused ("+taskview.Escape(p.Reason)+")")
	case *event.StopRequested:
		v.line(warn, "■", "stop", "asked for by "+taskview.Escape(p.Who))
	case *event.Steered:
		v.line(warn, "→", "steered", "by "+taskview.Escape(p.Who))
		v.sayText(p.Text)
	case *event.Noticed:
		v.line(warn, "!", p.What, firstLine(p.Text))
	case *event.Compacted:
		v.line(warn, "!", "compacted", fmt.Sprintf("%d old messages left the conversation", p.Dropped))
	case *event.PolicyFound:
		v.finding(p.Finding)
	case *event.ClaimDropped:
		v.line(warn, "!", "left out", taskview.Escape(p.Text+" ("+p.Why+")"))
	case *event.Redacted:
		v.line(warn, "!", "redacted", fmt.Sprintf("%d × %s in %s", p.Count, p.Rule, p.Where))
	case *event.PullRequestOpened:
		v.line(good, "✓", "published", p.Branch)
	default:
		v.showStep(p)
	}
}

// showStep prints what the agent does and what the verifier says to it.
func (v *View) showStep(p event.Payload) {
	switch p := p.(type) {
	case *event.ModelRequested:
		v.doing, v.streams = "waiting for the model", 0
	case *event.ModelResponded:
		v.streams = 0
		v.spent = v.spent.Add(task.Spent{Steps: 1, Tokens: p.Tokens.Add(p.Wasted), Cost: p.Cost})
		v.reply(p)
	case *event.ModelFailed:
		v.spent = v.spent.Add(task.Spent{Steps: 1, Tokens: p.Wasted, Cost: p.Cost})
		v.line(bad, "✗", "model", taskview.Escape(p.Error))
	case *event.ToolStarted:
		v.judged = false
		v.args[p.Call] = v.summarise(p)
		v.doing = taskview.Escape(p.Name) + " " + v.args[p.Call]
	case *event.ToolFinished:
		v.tool(p)
	case *event.ReproductionChecked:
		v.judged = true
		if p.Kind == task.Verified {
			v.line(good, "✓", "reproduced", "fails on the base for the right reason: "+taskview.Escape(strings.Join(p.Tests, ", ")))
		} else {
			v.line(bad, "✗", "reproduce", words(p.Kind)+": "+taskview.Escape(p.Reason))
		}
	case *event.VerificationFinished:
		v.judged = true
		if p.Kind.Accepted() {
			v.line(good, "✓", words(p.Kind), taskview.Escape(p.Reason)+"  "+ms(p.Millis))
		} else {
			v.line(bad, "✗", "refused", words(p.Kind)+": "+taskview.Escape(p.Reason)+"  "+ms(p.Millis))
		}
	case *event.Declined:
		v.judged = true
		v.line(warn, "○", "declined", taskview.Escape(words(task.VerdictKind(p.Kind)))+": "+taskview.Escape(p.Reason))
	}
}

// maxSetupLog is how many lines of a failing command's output are on the screen; all of it is in
// the record.
const maxSetupLog = 15

// setup prints what preparing dependencies did.
func (v *View) setup(p event.Payload) {
	switch p := p.(type) {
	case *event.SetupStarted:
		v.doing = "setup: " + taskview.Escape(firstLine(p.Command))
	case *event.SetupFinished:
		text := taskview.Escape(firstLine(p.Command)) + "  " + ms(p.Millis)
		if p.ExitCode == 0 && !p.TimedOut {
			v.line(good, "✓", "setup", text)
			return
		}
		if p.Optional {
			v.line(warn, "!", "setup", fmt.Sprintf("%s  exit %d", text, p.ExitCode))
			return
		}
		v.line(bad, "✗", "setup", fmt.Sprintf("%s  exit %d", text, p.ExitCode))
		if s, err := v.load(p.Log); err == nil {
			lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
			for _, l := range lines[max(0, len(lines)-maxSetupLog):] {
				v.say(l)
			}
		}
	case *event.SetupReady:
		if p.Cached && len(p.Commands) > 0 {
			v.line(good, "✓", "setup", taskview.Escape(firstLine(strings.Join(p.Commands, "; ")))+", ready already")
		}
		for _, w := range p.Warnings {
			v.line(warn, "!", "note", taskview.Escape(w))
		}
		for _, name := range p.Undone {
			v.line(warn, "!", "note", "setup changed "+taskview.Escape(name)+", which is as the base has it")
		}
	}
}

func (v *View) baseline(p *event.BaselineFinished) {
	if p.Problem != "" {
		v.line(bad, "✗", "baseline", taskview.Escape(p.Problem))
		return
	}
	if p.Runs == 0 {
		v.line(warn, "!", "baseline", taskview.Escape(p.Runner)+": there is no suite to compare with; a repository names its own in .daybreak.yaml")
		return
	}
	text := fmt.Sprintf("%d passed, %d failed, %d skipped on the base", p.Passed, p.Failed, p.Skipped)
	if len(p.Flaky) > 0 {
		text += fmt.Sprintf(", %d flickering", len(p.Flaky))
	}
	v.line(good, "✓", "baseline", fmt.Sprintf("%s  (%s, %d runs)", text, taskview.Escape(p.Runner), p.Runs))
}

func (v *View) finding(f task.Finding) {
	mark, style := "!", warn
	if f.Severity == "block" {
		mark, style = "✗", bad
	}
	name := strings.ReplaceAll(f.Kind, "_", " ")
	if f.Kind == "held_path" {
		name = "held back"
	}
	v.line(style, mark, name, taskview.Escape(f.Path+": "+f.Detail))
}

func (v *View) reply(p *event.ModelResponded) {
	s, err := v.load(p.Message)
	if err != nil {
		return
	}
	var m model.Message
	if json.Unmarshal([]byte(s), &m) == nil && m.Text() != "" {
		v.say(m.Text())
	}
}

func (v *View) sayText(t event.Text) {
	if s, err := v.load(t); err == nil {
		v.say(s)
	}
}

// summarise is the one argument of a call that a person wants to see.
func (v *View) summarise(p *event.ToolStarted) string {
	s, err := v.load(p.Args)
	if err != nil {
		return ""
	}
	var in struct {
		Path, Command, Pattern, Title, Kind string
		Tests                               []string
		Wait, Kill                          int
	}
	if json.Unmarshal([]byte(s), &in) != nil {
		return ""
	}
	for _, c := range []string{in.Command, in.Pattern, in.Path, strings.Join(in.Tests, ", "), in.Title, in.Kind} {
		if c != "" {
			return taskview.Escape(firstLine(c))
		}
	}
	return ""
}

func (v *View) tool(p *event.ToolFinished) {
	style, mark := good, "·"
	end := ""
	switch {
	case p.Interrupted:
		style, mark, end = warn, "!", "interrupted"
	case p.ExitCode != nil && *p.ExitCode != 0:
		style, end = warn, fmt.Sprintf("exit %d", *p.ExitCode)
	case p.IsError:
		style, mark, end = warn, "·", "refused"
	}
	if v.judged && (p.Name == "submit" || p.Name == "reproduce" || p.Name == "decline") {
		return // their verdict has a line of its own
	}
	if end != "" {
		end += " · "
	}
	arg := v.args[p.Call]
	delete(v.args, p.Call)
	if v.mode == Terminal {
		arg = cut(arg, max(v.width-17-len(end)-10, 20))
	}
	v.line(style, mark, taskview.Escape(p.Name), arg+"  "+faintIf(v.mode, end+ms(p.Millis)))
	if p.IsError && p.ExitCode == nil && !p.Interrupted {
		if s, err := v.load(p.Result); err == nil {
			first, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
			v.line(warn, " ", "", cut(taskview.Escape(first), 200)) // why
		}
	}
}

func faintIf(m Mode, s string) string {
	if m == Terminal {
		return faint.Render(s)
	}
	return "(" + s + ")"
}

func words(k task.VerdictKind) string { return strings.ReplaceAll(string(k), "_", " ") }

func files(n int) string {
	if n == 1 {
		return "1 file"
	}
	return taskview.Count(int64(n)) + " files"
}

func cached(b bool) string {
	if b {
		return ", ready already"
	}
	return ""
}

func ms(n int64) string {
	d := time.Duration(n) * time.Millisecond
	if d >= 10*time.Second {
		return d.Round(time.Second).String()
	}
	if d >= time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.String()
}

func firstLine(s string) string {
	l, rest, more := strings.Cut(strings.TrimSpace(s), "\n")
	if more && rest != "" {
		return l + " …"
	}
	return l
}

// Begin prints what task this is; the limits and what earlier runs spent are in the status line.
func (v *View) Begin(t store.Task, created bool, limits task.Limits, spent task.Spent) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.started, v.limits, v.spent = v.now(), limits, spent
	if v.mode == JSON {
		return
	}
	verb := "task"
	if !created {
		verb = "going on"
	}
	v.line(good, "●", verb, fmt.Sprintf("%s  %s", t.ID, taskview.Escape(t.Title)))
}

// Note prints a remark of the command itself.
func (v *View) Note(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mode != JSON {
		v.line(warn, "!", "note", text)
	}
}

package taskview

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/story"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// event writes what one event means to a reader. Events that only serve the machine (a
// frozen prompt, a request that got its answer, the clock) are not shown.
func (p *printer) event(e event.Event, payload event.Payload) {
	switch v := payload.(type) {
	case *event.TaskCreated, *event.PromptFrozen, *event.ModelRequested, *event.WallClocked:
	case *event.ModelResponded:
		p.response(e, v)
	case *event.ModelFailed:
		p.item(e.Time, "%s %s", p.bold("step %d", v.Step), p.red("the model call failed (%s, %s): %s",
			Escape(string(v.Class)), story.Plural(v.Attempts, "attempt"), Escape(v.Error)))
	case *event.ToolStarted:
		p.open[callKey{v.Step, v.Call}] = *v
	case *event.ToolFinished:
		p.result(e, v)
	case *event.Steered:
		p.item(e.Time, "%s says: %s", Escape(v.Who), cut(Escape(firstLine(v.Text.Inline)), 90))
		p.full(v.Text)
	case *event.StopRequested:
		text := "stop asked for by " + Escape(v.Who)
		if v.Reason != "" {
			text += ": " + Escape(v.Reason)
		}
		p.item(e.Time, "%s", text)
	case *event.Noticed:
		p.item(e.Time, "  %s %s", p.dim("told (%s):", Escape(v.What)), cut(Escape(firstLine(v.Text)), 90))
	case *event.Compacted:
		p.item(e.Time, "  %s", p.dim("%s dropped from the conversation, %s → %s tokens",
			story.Plural(v.Dropped, "message"), story.Count(v.Before), story.Count(v.After)))
	case *event.WorkspaceSaved:
		p.item(e.Time, "  %s", p.dim("change kept: %s (%s)", story.Plural(v.Files, "file"), Escape(v.Why)))
		p.full(v.Diff)
	case *event.ReproductionChecked:
		p.item(e.Time, "  reproduction %s  %s  %s", p.kind(v.Kind, v.Kind == task.Verified), Escape(v.Reason), story.Took(v.Millis))
		p.full(v.Detail)
	case *event.Submitted:
		p.item(e.Time, "submitted: %s", p.bold("%s", Escape(v.Title)))
		if p.opts.Full {
			p.block("cause: " + v.Cause + "\nfix: " + v.Fix)
		}
	case *event.VerificationFinished:
		p.verdict(e, v)
	case *event.Declined:
		p.item(e.Time, "declined (%s): %s", Escape(v.Kind), Escape(v.Reason))
		if p.opts.Full {
			p.block("tried: " + v.Tried)
		}
	default:
		p.stage(e, payload)
	}
}

// stage writes what the worker did around the agent.
func (p *printer) stage(e event.Event, payload event.Payload) {
	switch v := payload.(type) {
	case *event.RunStarted:
		what := "run started by"
		if v.Resumed {
			what = "resumed by"
		}
		p.item(e.Time, "%s %s %s", what, Escape(v.Worker), p.dim("%s", Escape(v.Note)))
	case *event.LeaseTaken:
		p.item(e.Time, "ordered again: %s", Escape(v.Why))
	case *event.StateChanged:
		p.item(e.Time, "%s %s", p.dim("→"), p.state(v.To)+reason(v.Reason))
	case *event.StageFinished:
		s := fmt.Sprintf("%s done  %s%s", Escape(v.Stage), story.Took(v.Millis), reason(v.Note))
		if v.Error != "" {
			s = p.red("%s failed  %s%s", Escape(v.Stage), story.Took(v.Millis), reason(v.Error))
		}
		p.line(e.Time, s)
	case *event.SnapshotReady:
		how := "made"
		if v.Cached {
			how = "from the cache"
		}
		p.item(e.Time, "snapshot %s: %s, %s  %s", short(v.Digest), story.Plural(v.Files, "file"), how, story.Took(v.Millis))
		if v.Rebuilt != "" {
			p.item(e.Time, "  made anew: %s", Escape(v.Rebuilt))
		}
		for _, warning := range v.Warnings {
			p.item(e.Time, "  %s", Escape(warning))
		}
	case *event.SandboxStarted:
		if v.Purpose != "agent" && !p.opts.Full {
			return // the verifier starts one for every run: they hide the story
		}
		stood := ""
		if v.Stood {
			stood = ", stood ready"
		}
		p.item(e.Time, "sandbox for %s: %s, %s%s  %s", Escape(v.Purpose), Escape(v.Runtime), Escape(v.Isolation), stood, story.Took(v.Millis))
	case *event.SandboxRefused:
		p.item(e.Time, "%s", Escape(v.Error))
	case *event.SandboxEnded:
		if p.opts.Full {
			p.item(e.Time, "%s", p.dim("sandbox ended: %s", Escape(v.Reason)))
		}
	case *event.SetupStarted, *event.SetupFinished, *event.SetupReady:
		p.setup(e, v)
	case *event.IndexReady:
		p.index(e, v)
	case *event.BaselineFinished:
		s := fmt.Sprintf("baseline: %d passed, %d failed, %d skipped, %d flaky", v.Passed, v.Failed, v.Skipped, len(v.Flaky))
		p.item(e.Time, "%s  %s%s", s, p.dim("%s", Escape(v.Command)), reason(v.Problem))
	case *event.Exported:
		p.item(e.Time, "change exported: %s, tree %s", story.Plural(len(v.Paths), "file"), short(v.Tree))
		for _, path := range v.LeftOut {
			p.item(e.Time, "  left out: %s", Escape(path))
		}
		p.full(v.Diff)
	case *event.NetworkOpened, *event.NetworkAsked, *event.NetworkRefused:
		p.network(e, v)
	case *event.PolicyFound:
		p.item(e.Time, "policy: %s", p.finding(v.Finding))
	case *event.ClaimDropped:
		p.item(e.Time, "left out of the pull request: %s (%s)", Escape(v.Text), Escape(v.Why))
	case *event.EvidenceSigned:
		p.item(e.Time, "evidence: %s, signed by key %s", Escape(v.Digest), Escape(v.Key))
	case *event.EffectIntended:
		p.item(e.Time, "%s", p.dim("about to %s", Escape(v.Kind)))
	case *event.EffectDone:
		p.effect(e, v)
	case *event.PullRequestOpened:
		p.item(e.Time, "pull request: %s", p.bold("%s", Escape(v.Title)))
		p.full(v.Body)
	case *event.Redacted:
		p.item(e.Time, "%s masked in %s (%s)", story.Plural(v.Count, "secret"), Escape(v.Where), Escape(v.Rule))
	case *event.Checkpoint:
		p.item(e.Time, "%s", p.dim("log signed up to event %d by key %s", v.Seq, Escape(v.KeyID)))
	default:
		p.word(e, payload)
	}
}

// word writes what people said and did, what is asked of them, and what happened to their
// branches.
func (p *printer) word(e event.Event, payload event.Payload) {
	switch v := payload.(type) {
	case *event.BudgetRaised:
		if v.Refused != "" {
			p.item(e.Time, "%s asked for more budget: %s", Escape(v.Who), Escape(v.Refused))
		} else {
			p.item(e.Time, "%s raised the budget", Escape(v.Who))
		}
	case *event.TargetMoved:
		switch {
		case v.Problem != "":
			p.item(e.Time, "the target %s could not be compared: %s", Escape(v.Target), Escape(v.Problem))
		case len(v.Conflicts) == 0:
			p.item(e.Time, "the target %s moved to %s; the change merges into it", Escape(v.Target), Escape(v.Head))
		default:
			p.item(e.Time, "the target %s moved to %s; the change conflicts with it in %s", Escape(v.Target), Escape(v.Head), Escape(strings.Join(v.Conflicts, ", ")))
		}
	case *event.QuestionAsked:
		p.item(e.Time, "%s %s", p.bold("question to people:"), Escape(v.Question))
		p.item(e.Time, "  tried: %s", Escape(v.Tried))
	case *event.QuestionAnswered:
		p.item(e.Time, "%s answered:", Escape(v.Who))
		p.text(v.Text)
	case *event.AttemptStarted, *event.AttemptFinished, *event.AttemptJudged, *event.AttemptChosen:
		p.item(e.Time, "%s", Escape(story.Say(v).Text))
	case *event.Rebased:
		p.item(e.Time, "the target %s moved: the change is put on %s and verified again", Escape(v.Target), short(v.To))
	case *event.RebaseUndone:
		p.item(e.Time, "it stays on %s, where it was proven: %s", short(v.To), Escape(v.Reason))
	case *event.PublicationHeld:
		p.item(e.Time, "the change of %s waits for a person's approval", story.Plural(v.Files, "file"))
	case *event.PublicationApproved:
		p.item(e.Time, "%s approved the publication of %s", Escape(v.Who), Escape(v.Tree))
	case *event.PullRequestEnded:
		what := "closed"
		if v.Merged {
			what = "merged by " + v.By
		}
		p.item(e.Time, "pull request %s", Escape(what))
	case *event.PullRequestReverted:
		p.item(e.Time, "what was merged was taken back by %s in commit %s", Escape(v.By), Escape(v.Commit))
	case *event.BranchAdopted:
		p.item(e.Time, "goes on from %s, which people pushed to the branch (%s)", short(v.Head), story.Plural(len(v.Paths), "file"))
	case *event.BranchPushed:
		p.item(e.Time, "%s pushed commit %s to the branch", Escape(cmp.Or(v.By, "somebody")), Escape(v.Head))
	default:
		p.item(e.Time, "%s", p.dim("%s (not known to this version)", Escape(string(e.Kind))))
	}
}

// setup writes what prepared the dependencies. The output of a command that failed is shown
// whole: it is why the task ended.
func (p *printer) setup(e event.Event, payload event.Payload) {
	switch v := payload.(type) {
	case *event.SetupStarted:
		where := ""
		if v.Dir != "." {
			where = " in " + Escape(v.Dir)
		}
		if v.Root {
			where += " as root"
		}
		p.item(e.Time, "setup %d of %d: %s%s  %s", v.N, v.Of, Escape(v.Command), where, p.dim("%s", Escape(v.Why)))
	case *event.SetupFinished:
		switch {
		case v.ExitCode == 0 && !v.TimedOut:
			p.item(e.Time, "  done  %s", story.Took(v.Millis))
			p.full(v.Log)
			return
		case v.TimedOut:
			p.item(e.Time, "  %s", p.red("did not end in time  %s", story.Took(v.Millis)))
		default:
			p.item(e.Time, "  %s", p.red("exit code %d  %s", v.ExitCode, story.Took(v.Millis)))
		}
		p.text(v.Log)
	case *event.SetupReady:
		if len(v.Commands) > 0 {
			how := "made"
			if v.Cached {
				how = "from an earlier task with the same lockfiles: " + Escape(strings.Join(v.Commands, "; "))
			}
			p.item(e.Time, "dependencies %s: %s  %s", short(v.Digest), how, story.Took(v.Millis))
		}
		for _, w := range v.Warnings {
			p.item(e.Time, "  %s", Escape(w))
		}
		for _, name := range v.Undone {
			p.item(e.Time, "  setup changed %s, which is as the base has it", Escape(name))
		}
	}
}

func (p *printer) effect(e event.Event, v *event.EffectDone) {
	switch {
	case v.Error != "":
		p.item(e.Time, "%s", p.red("%s failed: %s", Escape(v.Kind), Escape(v.Error)))
	case v.Found:
		p.item(e.Time, "%s was done before the interruption", Escape(v.Kind))
	default:
		p.item(e.Time, "%s done", Escape(v.Kind))
	}
}

// response opens a step: what the model said, in one line, and what the reply cost.
func (p *printer) response(e event.Event, v *event.ModelResponded) {
	all := v.Tokens
	cost := ""
	if v.Priced {
		cost = fmt.Sprintf(" · $%.4f", v.Cost.USD())
	}
	attempts := ""
	if v.Attempts > 1 {
		attempts = fmt.Sprintf(" · %d attempts", v.Attempts)
	}
	p.item(e.Time, "%s %s", p.bold("step %d", v.Step), p.dim("%s in, %s cached, %s out%s · %s%s",
		story.Count(all.Input+all.CacheWrite), story.Count(all.CacheRead), story.Count(all.Output), cost, story.Took(v.Millis), attempts))
	said := p.said(v.Message)
	switch {
	case said == "":
	case p.opts.Full:
		p.block(said)
	default:
		p.item(e.Time, "  %s", p.dim("“%s”", cut(Escape(firstLine(said)), 100)))
	}
}

// said returns the text blocks of a recorded message: of its JSON only what a reader sees.
func (p *printer) said(message event.Text) string {
	text, err := p.load(message)
	if err != nil {
		return ""
	}
	said, _ := story.Said(text)
	return said
}

// result writes a tool call and its outcome on one line.
func (p *printer) result(e event.Event, v *event.ToolFinished) {
	key := callKey{v.Step, v.Call}
	started, ok := p.open[key]
	if !ok {
		started = event.ToolStarted{Step: v.Step, Call: v.Call, Name: v.Name}
	}
	delete(p.open, key)
	word, good := (&story.Call{Finished: v}).Outcome()
	outcome := p.red("%s", word)
	if good {
		outcome = p.green("%s", word)
	}
	p.item(e.Time, "  %s %s  %s", p.call(started), outcome, p.dim("%s", story.Took(v.Millis)))
	if p.opts.Full {
		if started.Args.Bytes > 0 || started.Args.Inline != "" {
			p.text(started.Args)
		}
		p.text(v.Result)
	}
}

// call names the tool and the argument that says most, in a column of its own.
func (p *printer) call(c event.ToolStarted) string {
	return fmt.Sprintf("%-9s %-62s", cut(Escape(c.Name), 12), cut(Escape(story.Argument(c.Args)), 62))
}

// verdict writes what verification concluded and the evidence for it.
func (p *printer) verdict(e event.Event, v *event.VerificationFinished) {
	p.item(e.Time, "%s %s  %s  %s", p.bold("verdict %d:", v.Attempt), p.kind(v.Kind, v.Kind.Accepted()), Escape(v.Reason), story.Took(v.Millis))
	var doc task.Verdict
	if !p.document(v.Document, &doc) {
		return
	}
	for _, r := range doc.Reproduction {
		p.item(e.Time, "  %s: %s on the base, %s with the fix", Escape(r.Test), outcome(r.Base), outcome(r.Head))
		if r.BaseSignature != "" {
			p.item(e.Time, "    %s", p.dim("%s", cut(Escape(firstLine(r.BaseSignature)), 100)))
		}
	}
	if s := doc.Suite; s.Command != "" {
		p.item(e.Time, "  suite: %d passed, %s, %d failed already", s.Passed, story.Plural(s.NewFailures, "new failure"), s.BaselineFailed)
		for _, name := range append(s.NewlyFailing, s.Lost...) {
			p.item(e.Time, "    %s", p.red("%s", Escape(name)))
		}
	}
	for _, f := range doc.Findings {
		p.item(e.Time, "  %s", p.finding(f))
	}
}

// outcome is a test's status in words.
func outcome(s task.TestStatus) string {
	if s == "" {
		return "not run"
	}
	return strings.ReplaceAll(Escape(string(s)), "_", " ")
}

func (p *printer) kind(k task.VerdictKind, good bool) string {
	name := strings.ReplaceAll(Escape(string(k)), "_", " ")
	if good {
		return p.green("%s", name)
	}
	return p.red("%s", name)
}

// full writes a text when everything was asked for.
func (p *printer) full(t event.Text) {
	if p.opts.Full {
		p.text(t)
	}
}

func reason(s string) string {
	if s == "" {
		return ""
	}
	return " · " + Escape(s)
}

// index says from what searches are answered.
func (p *printer) index(e event.Event, v *event.IndexReady) {
	if v.Trouble != "" {
		p.item(e.Time, "%s", p.red("search index: %s", Escape(v.Trouble)))
	}
	if v.Files == 0 {
		return
	}
	how := "made"
	switch {
	case v.Cached:
		how = "from an earlier task"
	case v.Advanced:
		how = "made from an earlier one"
	}
	if v.Later {
		how += ", for later tasks"
	}
	p.item(e.Time, "search index: %s, %s, %s, %s  %s", story.Plural(v.Files, "file"), story.Plural(v.Symbols, "symbol"), Size(v.Bytes), how, story.Took(v.Millis))
	if len(v.Slow) > 0 {
		p.item(e.Time, "  without the symbols of %s", Escape(strings.Join(v.Slow, ", ")))
	}
}

package story

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Tone says how a line is meant.
type Tone string

// The tones.
const (
	Plain Tone = "plain"
	Good  Tone = "good"
	Bad   Tone = "bad"
	Warn  Tone = "warn"
	Human Tone = "human" // a person's word
	Minor Tone = "minor" // of interest to few
)

// Line tells a moment in one line, with notes below it and whole texts on demand. All of it is as
// recorded: untrusted.
type Line struct {
	Tone  Tone
	What  string // one word or two, for a label
	Text  string
	Notes []string
	Body  event.Text // the whole text, if there is one
}

// Say tells what an event beside the steps was.
func Say(payload event.Payload) Line {
	switch v := payload.(type) {
	case *event.StateChanged, *event.RunStarted, *event.LeaseTaken, *event.StageFinished, *event.Checkpoint, *event.Redacted:
		return sayRun(v)
	case *event.SnapshotReady, *event.SandboxStarted, *event.SandboxRefused, *event.SandboxEnded, *event.SetupStarted,
		*event.SetupFinished, *event.SetupReady, *event.IndexReady, *event.BaselineFinished:
		return sayPlace(v)
	case *event.NetworkOpened, *event.NetworkAsked, *event.NetworkRefused:
		return sayNetwork(v)
	case *event.EffectIntended, *event.EffectDone, *event.PullRequestOpened, *event.PullRequestEnded, *event.PullRequestReverted,
		*event.BranchPushed, *event.BranchAdopted, *event.TargetMoved, *event.Rebased, *event.RebaseUndone, *event.PublicationHeld, *event.PublicationApproved, *event.BudgetRaised:
		return sayPublished(v)
	case *event.AttemptStarted, *event.AttemptFinished, *event.AttemptJudged, *event.AttemptChosen:
		return sayAttempt(v)
	case event.Unknown:
		return Line{Minor, "event", string(v.Kind) + " (not known to this version)", nil, event.Text{Inline: string(v.Raw), Bytes: len(v.Raw)}}
	}
	return sayWork(payload)
}

func reason(s string) string {
	if s == "" {
		return ""
	}
	return " · " + s
}

func sayRun(payload event.Payload) Line {
	switch v := payload.(type) {
	case *event.StateChanged:
		tone := Plain
		switch v.To {
		case task.Failed, task.Exhausted:
			tone = Bad
		case task.InReview, task.Merged:
			tone = Good
		}
		return Line{Tone: tone, What: "state", Text: Words(v.To) + reason(v.Reason)}
	case *event.RunStarted:
		what := "started by "
		if v.Resumed {
			what = "resumed by "
		}
		return Line{Tone: Minor, What: "run", Text: what + v.Worker + reason(v.Note)}
	case *event.LeaseTaken:
		return Line{Tone: Warn, What: "run", Text: "ordered again: " + v.Why}
	case *event.StageFinished:
		if v.Error != "" {
			return Line{Tone: Bad, What: v.Stage, Text: v.Stage + " failed after " + Took(v.Millis) + reason(v.Error)}
		}
		return Line{Tone: Minor, What: v.Stage, Text: v.Stage + " done in " + Took(v.Millis) + reason(v.Note)}
	case *event.Redacted:
		return Line{Tone: Warn, What: "secret", Text: fmt.Sprintf("%s masked in %s (%s)", Plural(v.Count, "secret"), v.Where, v.Rule)}
	case *event.Checkpoint:
		return Line{Tone: Minor, What: "record", Text: fmt.Sprintf("log signed up to event %d by key %s", v.Seq, v.KeyID)}
	}
	return unsaid(payload)
}

func sayPlace(payload event.Payload) Line {
	switch v := payload.(type) {
	case *event.SnapshotReady:
		how := "made"
		if v.Cached {
			how = "from the cache"
		}
		return Line{Tone: Plain, What: "snapshot", Text: fmt.Sprintf("%s, %s in %s", Plural(v.Files, "file"), how, Took(v.Millis)), Notes: v.Warnings}
	case *event.SandboxStarted:
		tone, how := Minor, "started"
		if v.Purpose == "agent" {
			tone = Plain
		}
		if v.Stood {
			how = "stood ready, handed over"
		}
		return Line{Tone: tone, What: "sandbox", Text: fmt.Sprintf("for %s: %s, %s, %s in %s", v.Purpose, v.Runtime, v.Isolation, how, Took(v.Millis))}
	case *event.SandboxRefused:
		return Line{Tone: Bad, What: "sandbox", Text: v.Error}
	case *event.SandboxEnded:
		return Line{Tone: Minor, What: "sandbox", Text: "ended: " + v.Reason}
	case *event.SetupStarted:
		where := ""
		if v.Dir != "." {
			where = " in " + v.Dir
		}
		if v.Root {
			where += " as root"
		}
		return Line{Tone: Plain, What: "setup", Text: fmt.Sprintf("%d of %d: %s%s", v.N, v.Of, v.Command, where), Notes: some(v.Why)}
	case *event.SetupFinished:
		switch {
		case v.ExitCode == 0 && !v.TimedOut:
			return Line{Tone: Minor, What: "setup", Text: v.Name + " done in " + Took(v.Millis), Body: v.Log}
		case v.TimedOut:
			return Line{Tone: Bad, What: "setup", Text: v.Name + " did not end in time, " + Took(v.Millis), Body: v.Log}
		}
		return Line{Tone: Bad, What: "setup", Text: fmt.Sprintf("%s: exit code %d after %s", v.Name, v.ExitCode, Took(v.Millis)), Body: v.Log}
	case *event.SetupReady:
		text := "nothing to prepare"
		if len(v.Commands) > 0 {
			text = "dependencies made in " + Took(v.Millis)
			if v.Cached {
				text = "dependencies from an earlier task with the same lockfiles"
			}
		}
		notes := append([]string(nil), v.Warnings...)
		for _, name := range v.Undone {
			notes = append(notes, "setup changed "+name+", which is as the base has it")
		}
		return Line{Tone: Plain, What: "setup", Text: text, Notes: notes}
	case *event.IndexReady:
		if v.Trouble != "" {
			return Line{Tone: Warn, What: "search index", Text: v.Trouble}
		}
		how := "made in " + Took(v.Millis)
		if v.Cached {
			how = "there already"
		}
		return Line{Tone: Minor, What: "search index", Text: fmt.Sprintf("%s, %s, %s", Plural(v.Files, "file"), Plural(v.Symbols, "symbol"), how), Notes: v.Slow}
	case *event.BaselineFinished:
		tone := Plain
		if v.Problem != "" {
			tone = Bad
		}
		return Line{Tone: tone, What: "baseline", Text: fmt.Sprintf("%d passed, %d failed, %d skipped, %d flaky%s", v.Passed, v.Failed, v.Skipped, len(v.Flaky), reason(v.Problem)), Notes: some(v.Command)}
	}
	return unsaid(payload)
}

func sayNetwork(payload event.Payload) Line {
	switch v := payload.(type) {
	case *event.NetworkOpened:
		return Line{Tone: Minor, What: "network", Text: fmt.Sprintf("the sandbox for %s may reach: %s (%s), %s known", v.Purpose, v.Mode, strings.Join(v.Upstreams, ", "), Plural(v.Known, "name"))}
	case *event.NetworkAsked:
		l := Line{Tone: Minor, What: "network"}
		var names []string
		for _, n := range v.Names {
			name := Package(n.Ecosystem, n.Name, n.Version)
			names = append(names, name)
			if len(n.Notes) > 0 {
				l.Tone = Warn
				l.Notes = append(l.Notes, name+": "+strings.Join(n.Notes, "; "))
			}
		}
		l.Text = "asked the registry for " + strings.Join(names, ", ")
		if v.New {
			l.Tone = Warn
			l.Text += ", which no lockfile of the base has"
		}
		return l
	case *event.NetworkRefused:
		return Line{Tone: Bad, What: "network", Text: fmt.Sprintf("%s refused (%s)", Package(v.Ecosystem, v.Name, v.Version), v.Reason), Notes: some(v.Detail)}
	}
	return unsaid(payload)
}

func sayPublished(payload event.Payload) Line {
	switch v := payload.(type) {
	case *event.EffectIntended:
		return Line{Tone: Minor, What: "effect", Text: "about to: " + Words(v.Kind)}
	case *event.EffectDone:
		switch {
		case v.Error != "":
			return Line{Tone: Bad, What: "effect", Text: Words(v.Kind) + " failed: " + v.Error}
		case v.Found:
			return Line{Tone: Minor, What: "effect", Text: Words(v.Kind) + " was done before the interruption"}
		}
		return Line{Tone: Minor, What: "effect", Text: Words(v.Kind) + " done"}
	case *event.PullRequestOpened:
		return Line{Tone: Good, What: "pull request", Text: v.Title, Notes: some(v.URL), Body: v.Body}
	case *event.PullRequestEnded:
		if v.Merged {
			return Line{Tone: Good, What: "pull request", Text: "merged by " + v.By}
		}
		return Line{Tone: Plain, What: "pull request", Text: "closed"}
	case *event.PullRequestReverted:
		return Line{Tone: Bad, What: "pull request", Text: "what was merged was taken back by " + v.By + " in commit " + v.Commit}
	case *event.BranchPushed:
		return Line{Tone: Human, What: "push", Text: cmp.Or(v.By, "somebody") + " pushed commit " + v.Head + " to the branch"}
	case *event.BranchAdopted:
		return Line{Tone: Human, What: "push", Text: "goes on from " + Short(v.Head) + ", which people pushed to the branch", Notes: v.Paths}
	case *event.TargetMoved:
		switch {
		case v.Problem != "":
			return Line{Tone: Warn, What: "target", Text: v.Target + " could not be compared: " + v.Problem}
		case len(v.Conflicts) == 0:
			return Line{Tone: Plain, What: "target", Text: v.Target + " moved to " + Short(v.Head) + "; the change merges into it"}
		}
		return Line{Tone: Warn, What: "target", Text: v.Target + " moved to " + Short(v.Head) + "; the change conflicts with it", Notes: v.Conflicts}
	case *event.Rebased:
		return Line{Tone: Plain, What: "rebase", Text: v.Target + " moved: the change is put on " + Short(v.To) + " and verified again"}
	case *event.RebaseUndone:
		return Line{Tone: Warn, What: "rebase", Text: "it stays on " + Short(v.To) + ", where it was proven", Notes: some(v.Reason)}
	case *event.PublicationHeld:
		return Line{Tone: Warn, What: "held", Text: "the change of " + Plural(v.Files, "file") + " waits for a person's approval"}
	case *event.PublicationApproved:
		return Line{Tone: Human, What: "approved", Text: v.Who + " approved the publication of tree " + Short(v.Tree)}
	case *event.BudgetRaised:
		if v.Refused != "" {
			return Line{Tone: Human, What: "budget", Text: v.Who + " asked for more budget: " + v.Refused}
		}
		return Line{Tone: Human, What: "budget", Text: v.Who + " raised the budget"}
	}
	return unsaid(payload)
}

func sayWork(payload event.Payload) Line {
	switch v := payload.(type) {
	case *event.Steered:
		return Line{Tone: Human, What: "steered", Text: v.Who, Body: v.Text}
	case *event.StopRequested:
		return Line{Tone: Human, What: "stop", Text: "asked for by " + v.Who + reason(v.Reason)}
	case *event.Noticed:
		return Line{Tone: Plain, What: "told", Text: Words(v.What), Body: event.Text{Inline: v.Text, Bytes: len(v.Text)}}
	case *event.Compacted:
		return Line{Tone: Minor, What: "context", Text: fmt.Sprintf("%s dropped from the conversation, %s → %s tokens", Plural(v.Dropped, "message"), Count(v.Before), Count(v.After))}
	case *event.WorkspaceSaved:
		return Line{Tone: Minor, What: "change kept", Text: Plural(v.Files, "file") + " (" + v.Why + ")", Body: v.Diff}
	case *event.ReproductionChecked:
		tone := Bad
		if v.Kind == task.Verified {
			tone = Good
		}
		return Line{Tone: tone, What: "reproduction", Text: v.Reason + " · " + Took(v.Millis), Body: v.Detail}
	case *event.QuestionAsked:
		return Line{Tone: Human, What: "question", Text: v.Question, Notes: some(v.Tried)}
	case *event.QuestionAnswered:
		return Line{Tone: Human, What: "answered", Text: v.Who, Body: v.Text}
	case *event.Submitted:
		return Line{Tone: Plain, What: "submitted", Text: v.Title, Notes: append(some(v.Cause), v.Fix)}
	case *event.Exported:
		var notes []string
		for _, path := range v.LeftOut {
			notes = append(notes, "left out: "+path)
		}
		return Line{Tone: Minor, What: "export", Text: Plural(len(v.Paths), "file") + ", tree " + Short(v.Tree), Notes: notes, Body: v.Diff}
	case *event.PolicyFound:
		tone := Warn
		switch v.Finding.Severity {
		case "block":
			tone = Bad
		case "info":
			tone = Plain
		}
		return Line{Tone: tone, What: "policy", Text: Finding(v.Finding)}
	case *event.ClaimDropped:
		return Line{Tone: Warn, What: "claim left out", Text: v.Text, Notes: some(v.Why)}
	case *event.EvidenceSigned:
		return Line{Tone: Minor, What: "evidence", Text: "signed by key " + v.Key, Notes: some(v.Digest)}
	case *event.VerificationFinished:
		tone := Bad
		if v.Kind.Accepted() {
			tone = Good
		}
		return Line{Tone: tone, What: fmt.Sprintf("verdict %d", v.Attempt), Text: Words(v.Kind) + reason(v.Reason), Notes: some("took " + Took(v.Millis))}
	case *event.Declined:
		return Line{Tone: Plain, What: "declined", Text: Words(v.Kind) + reason(v.Reason), Notes: some(v.Tried)}
	}
	return unsaid(payload)
}

// unsaid shows an event that has no words here by its kind.
func unsaid(p event.Payload) Line {
	return Line{Tone: Minor, What: "event", Text: string(p.EventKind())}
}

// Finding tells a finding in one line.
func Finding(f task.Finding) string {
	where := f.Path
	if f.Line > 0 {
		where += fmt.Sprint(":", f.Line)
	}
	var parts []string
	for _, s := range []string{Words(f.Kind), where, f.Detail} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, " · ")
}

func some(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func sayAttempt(payload event.Payload) Line {
	switch v := payload.(type) {
	case *event.AttemptStarted:
		return Line{Tone: Plain, What: "attempt", Text: fmt.Sprintf("attempt %d of at most %d begins, on the untouched base", v.N, v.Of), Notes: some(v.Note)}
	case *event.AttemptFinished:
		return Line{Tone: Plain, What: "attempt", Text: fmt.Sprintf("attempt %d: %s%s", v.N, v.Ending, reason(v.Reason))}
	case *event.AttemptJudged:
		did := "passes"
		if !v.Passed {
			did = "does not pass"
		}
		return Line{Tone: Plain, What: "judged", Text: fmt.Sprintf("the fix of attempt %d %s the tests of attempt %d%s", v.Source, did, v.Tests, reason(v.Reason))}
	case *event.AttemptChosen:
		return Line{Tone: Plain, What: "chosen", Text: fmt.Sprintf("attempt %d of %d: %s", v.N, v.Of, v.Reason)}
	}
	return unsaid(payload)
}

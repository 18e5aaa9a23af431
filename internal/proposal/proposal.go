// Package proposal writes the pull request: its title, body, branch name and commit message.
//
// Invariants: pure, the same input gives the same bytes; what is said about tests comes from
// the verdict's recorded results and never from prose; everything that a model, an issue or a
// sandbox had a hand in is made inert (no images, HTML, links, mentions, commands or closing
// keywords), and a model's words are marked as such.
package proposal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Input is all that a pull request is written from.
type Input struct {
	Task      task.ID
	Created   event.TaskCreated
	Submitted event.Submitted
	Verdict   task.Verdict
	Findings  []task.Finding // beside the verdict's own
	Reach     event.Reach    // what was asked of the package registries
	HeldDiff  string         // unified diff of what was held back, "" for none
	Stat      []FileStat     // of the proposed change
	Spent     task.Spent     // compared with Created.Limits
	Unpriced  bool           // the model has no known price: Spent.Cost is too low
	Sandbox   string         // one line: runtime, isolation
	LogSeq    int64          // record of the verdict
	LogRoot   string         // its hash
	NoTitle   bool           // the agent's title is not borne out: the issue's stands instead
	Dropped   []Claim        // sentences of the agent's cause and fix that were left out for that
	Moved     *event.TargetMoved
	Rebased   *event.Rebased       // nil: the change stands on the base that the task began with
	Chosen    *event.AttemptChosen // of several independent attempts; nil: there was one
	Undone    *event.RebaseUndone  // it could not be proven where the target branch is
	Evidence  Evidence             // the signed bundle that goes with it; zero for none
	Rerun     string               // one shell line that repeats the proof; "" composes one from git and the test's own command
}

// FileStat counts the changed lines of a path.
type FileStat struct {
	Path    string
	Added   int
	Removed int
	Binary  bool
}

// Sizes in bytes. The whole stays below the 65,536 characters that GitHub takes.
const (
	maxTitle  = 100
	maxProse  = 6000
	maxOutput = 4000
	maxHeld   = 16000
	maxRows   = 30
)

// Compose writes the title, one line, and the body, Markdown.
func Compose(in Input) (title, body string) {
	var b strings.Builder
	branch := BranchName(in)
	fmt.Fprintf(&b, "> Daybreak, an automated agent, proposes this change. **A person decides whether it is merged.** "+
		"Text in boxes marked as the agent's words was written by a model; everything else comes from the record.\n\n")
	fmt.Fprintf(&b, "Issue: **%s**\n\n", text(in.Created.IssueTitle, 200))
	writeResult(&b, in)
	writeMoved(&b, in)
	writeWords(&b, "What was wrong", in.Submitted.Cause, in.left("cause"))
	writeWords(&b, "What changed", in.Submitted.Fix, in.left("fix"))
	if n := len(in.Dropped); n > 0 {
		fmt.Fprintf(&b, "Left out: %s of the agent's that the record does not bear out; the task's log has them.\n\n", count(n, "sentence"))
	}
	writeStat(&b, in.Stat)
	writeProof(&b, in, branch)
	writeFindings(&b, in)
	writeReach(&b, in.Reach)
	writeOrigin(&b, in)
	return titleOf(in), b.String()
}

// writeMoved says that the branch to merge into is not where it was, and what that means.
func writeMoved(b *strings.Builder, in Input) {
	if r := in.Rebased; r != nil {
		fmt.Fprintf(b, "While Daybreak worked the branch %s moved from %s to %s. The change was put on %s and verified there again, by the whole protocol: this result is of that base.\n\n",
			code(r.Target), code(r.From), code(r.To), code(r.To))
	}
	if u := in.Undone; u != nil {
		fmt.Fprintf(b, "**It was also tried on the new tip of the target branch, %s, and is not proven there** (%s): %s\n\n",
			code(u.Head), strings.ReplaceAll(string(u.Kind), "_", " "), text(u.Reason, 300))
	}
	m := in.Moved
	if m == nil {
		return
	}
	switch at := fmt.Sprintf("Meanwhile the branch %s moved from the base to %s.", code(m.Target), code(m.Head)); {
	case m.Problem != "":
		fmt.Fprintf(b, "**The target branch %s could not be compared with the base:** %s\n\n", code(m.Target), text(m.Problem, 300))
	case len(m.Conflicts) == 0:
		fmt.Fprintf(b, "%s This change merges into it without a conflict; it was verified on the base alone.\n\n", at)
	default:
		var paths []string
		for _, p := range m.Conflicts[:min(len(m.Conflicts), maxRows)] {
			paths = append(paths, code(p))
		}
		if n := len(m.Conflicts) - len(paths); n > 0 {
			paths = append(paths, fmt.Sprintf("%d more", n))
		}
		fmt.Fprintf(b, "**%s This change conflicts with it in %s.** It was verified on the base alone: settle the conflict by a rebase or a merge, and run the tests again.\n\n", at, strings.Join(paths, ", "))
	}
}

// writeResult says in one line what a reviewer wants to know first; the sections below say why.
func writeResult(b *strings.Builder, in Input) {
	v := in.Verdict
	fmt.Fprintf(b, "Result: **%s**", kindOf(v))
	if n := len(v.Reproduction); n > 0 {
		fmt.Fprintf(b, ", %s", count(n, "reproduction test"))
	}
	if v.Suite.Command != "" {
		fmt.Fprintf(b, ", suite: %d passed, %s", v.Suite.Passed, count(v.Suite.NewFailures, "new failure"))
	}
	b.WriteString(".")
	if n := len(findings(in)); n > 0 {
		fmt.Fprintf(b, " **%s for you to look at below.**", count(n, "point"))
	}
	b.WriteString("\n\n")
}

func kindOf(v task.Verdict) string { return line(strings.ReplaceAll(string(v.Kind), "_", " "), 40) }

func titleOf(in Input) string {
	for i, s := range []string{in.Submitted.Title, in.Created.IssueTitle} {
		if i == 0 && in.NoTitle {
			continue
		}
		if t := line(s, maxTitle); t != "" {
			return t
		}
	}
	return "Proposed fix"
}

// BranchName is daybreak/<task>-<slug of the title that is shown>.
func BranchName(in Input) string {
	title := in.Submitted.Title
	if in.NoTitle {
		title = in.Created.IssueTitle
	}
	slug := slugOf(title, 40)
	if slug == "" {
		slug = "fix"
	}
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return -1
	}, strings.ToLower(string(in.Task)))
	return "daybreak/" + name + "-" + slug
}

func slugOf(s string, max int) string {
	var b strings.Builder
	for _, r := range strings.ToLower(s) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else if n := b.Len(); n > 0 && b.String()[n-1] != '-' {
			b.WriteByte('-')
		}
	}
	out := b.String()
	if len(out) > max {
		out = out[:max]
		if i := strings.LastIndexByte(out, '-'); i > max/2 {
			out = out[:i]
		}
	}
	return strings.Trim(out, "-")
}

// CommitMessage writes the message of the one commit.
func CommitMessage(in Input) string {
	var b strings.Builder
	title := line(titleOf(in), 72)
	b.WriteString(title + "\n")
	who := "\nIn the agent's words; names were looked up, the rest is not checked:\n"
	for _, s := range []string{in.Submitted.Cause, in.Submitted.Fix} {
		if t := wrap(prose(s, 2000), 72); t != "" {
			b.WriteString(who + "\n" + t + "\n")
			who = ""
		}
	}
	fmt.Fprintf(&b, "\nDaybreak-Task: %s\nDaybreak-Verdict: %s\n", in.Task, in.Verdict.Kind)
	if in.LogRoot != "" {
		fmt.Fprintf(&b, "Daybreak-Log: %d %s\n", in.LogSeq, in.LogRoot)
	}
	return b.String()
}

// left counts what was left out of one part of the agent's words.
func (in Input) left(where string) int {
	n := 0
	for _, c := range in.Dropped {
		if c.Where == where {
			n++
		}
	}
	return n
}

func writeWords(b *strings.Builder, heading, words string, left int) {
	fmt.Fprintf(b, "## %s\n\n", heading)
	words = wrap(prose(words, maxProse), 96)
	switch {
	case words == "" && left > 0:
		b.WriteString("Nothing that the agent said of it is borne out by the record.\n\n")
	case words == "":
		b.WriteString("The agent gave no explanation.\n\n")
	default:
		fmt.Fprintf(b, "In the agent's words. What they name was looked up in the change; the rest is not checked:\n\n%s\n", fence("text", words))
	}
}

func writeStat(b *strings.Builder, stat []FileStat) {
	if len(stat) == 0 {
		return
	}
	added, removed := 0, 0
	for _, s := range stat {
		added, removed = added+s.Added, removed+s.Removed
	}
	fmt.Fprintf(b, "%s, +%d −%d lines:\n\n| file | + | − |\n|---|--:|--:|\n", count(len(stat), "file"), added, removed)
	for i, s := range stat {
		if i == maxRows {
			fmt.Fprintf(b, "| and %d more | | |\n", len(stat)-i)
			break
		}
		if s.Binary {
			fmt.Fprintf(b, "| %s | binary | |\n", cell(s.Path))
			continue
		}
		fmt.Fprintf(b, "| %s | %d | %d |\n", cell(s.Path), s.Added, s.Removed)
	}
	b.WriteString("\n")
}

// findings are the verdict's and the others, each once.
func findings(in Input) []task.Finding {
	var out []task.Finding
	for _, f := range slices.Concat(in.Verdict.Findings, in.Findings) {
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

func writeFindings(b *strings.Builder, in Input) {
	shown := findings(in)
	if len(shown) == 0 && in.HeldDiff == "" {
		return
	}
	runs := slices.DeleteFunc(slices.Clone(shown), func(f task.Finding) bool { return f.Kind != "runs_elsewhere" })
	shown = slices.DeleteFunc(shown, func(f task.Finding) bool { return f.Kind == "runs_elsewhere" })
	if len(shown) > 0 || in.HeldDiff != "" {
		b.WriteString("## Please look at\n\n")
		listFindings(b, shown)
	}
	if in.HeldDiff != "" {
		details(b, "What was held back: not part of this change, needs a person's word", fence("diff", head(visible(in.HeldDiff), maxHeld)))
	}
	if len(runs) > 0 {
		b.WriteString("## Code that will run in CI or on developers' machines\n\n")
		listFindings(b, runs)
	}
}

// listFindings writes one point a finding, the gravest first.
func listFindings(b *strings.Builder, shown []task.Finding) {
	rank := map[string]int{"block": 0, "warn": 1, "info": 2}
	slices.SortStableFunc(shown, func(x, y task.Finding) int { return cmp.Compare(rank[x.Severity], rank[y.Severity]) })
	for i, f := range shown {
		if i == maxRows {
			fmt.Fprintf(b, "- and %d more in the record\n", len(shown)-i)
			break
		}
		where := ""
		if f.Path != "" {
			where = " " + code(f.Path)
			if f.Line > 0 {
				where += fmt.Sprintf(" line %d", f.Line)
			}
		}
		kind := line(strings.ReplaceAll(f.Kind, "_", " "), 40)
		if f.Kind == "held_path" {
			kind = "held back, not in this branch:"
		}
		fmt.Fprintf(b, "- **%s**%s: %s\n", kind, where, text(f.Detail, 300))
		if f.Old != "" || f.New != "" {
			b.WriteString("\n" + indent(fence("diff", mark("-", f.Old)+mark("+", f.New))) + "\n")
		}
	}
	b.WriteString("\n")
}

func mark(sign, s string) string {
	if s == "" {
		return ""
	}
	var b strings.Builder
	for l := range strings.SplitSeq(strings.TrimRight(head(visible(s), 1000), "\n"), "\n") {
		b.WriteString(sign + " " + l + "\n")
	}
	return b.String()
}

func writeOrigin(b *strings.Builder, in Input) {
	b.WriteString("## How it was made\n\n| | |\n|---|---|\n")
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(b, "| %s | %s |\n", name, value)
		}
	}
	row("task", cell(string(in.Task)))
	row("base", cell(in.Verdict.Base))
	row("model", cell(in.Created.Model))
	if c := in.Chosen; c != nil {
		row("attempts", text(fmt.Sprintf("%d of at most %d made, on their own; attempt %d was chosen: %s", c.Of, c.Wanted, c.N, c.Reason), 400))
	}
	if in.Sandbox != "" {
		row("isolation", text(in.Sandbox, 300))
	}
	var meters []string
	for _, m := range in.Created.Limits.Meters(in.Spent) {
		if m.Name != "usd" || !in.Unpriced { // what has no price is not $0.00 of anything
			meters = append(meters, m.String())
		}
	}
	cost := in.Spent.Cost.String()
	if in.Unpriced {
		cost = "cost unknown (no price for this model)"
	}
	row("spent", fmt.Sprintf("%s, %s in %s", cost, count(in.Spent.Steps, "step"), in.Spent.Wall.Round(time.Second)))
	row("budget", strings.Join(meters, " · "))
	t := in.Spent.Tokens
	row("tokens", fmt.Sprintf("%d input, %d output, %d cache read, %d cache write", t.Input, t.Output, t.CacheRead, t.CacheWrite))
	if in.LogRoot != "" {
		row("log", fmt.Sprintf("record %d, root %s", in.LogSeq, cell(in.LogRoot)))
	}
	row("verifier", cell(in.Verdict.Verifier))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

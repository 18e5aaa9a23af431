package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/tool"
	"github.com/daybreak-agent/daybreak/internal/verify"
)

// harness answers the agent's `reproduce`, `submit` and `decline`.
type harness struct{ r *run }

const (
	maxNotReproducing = 3 // refused reproductions that pass on the base before the task declines
	maxSubmissions    = 10
)

// Reproduce implements tool.Harness.
func (h *harness) Reproduce(ctx context.Context, q tool.ReproduceRequest) (tool.Result, error) {
	r := h.r
	begin := r.cfg.Now()
	c, err := r.export(ctx)
	if task.ClassOf(err) == task.Invalid {
		return refuse("The change cannot be taken out of the sandbox: " + err.Error() + "."), nil
	}
	if err != nil {
		return tool.Result{}, err
	}
	if err := r.recordWorkspace(ctx, "reproduce", c.all); err != nil {
		return tool.Result{}, err
	}
	if err := r.recordFindings(ctx, c); err != nil {
		return tool.Result{}, err
	}
	if c.withheld {
		return refuse("The change cannot be taken: " + or(c.blocked, "a file of it holds a secret") + "."), nil
	}
	if len(c.allowed) == 0 {
		return refuse("Nothing has changed yet: write the test first, then call `reproduce`." + heldNote(c)), nil
	}
	r.progress("verify", "running the reproduction on the base")
	res, err := r.verifier().Reproduce(ctx, r.job(c.allowed, "", append(q.Tests[:len(q.Tests):len(q.Tests)], filesOf(q)...)))
	if err != nil {
		return tool.Result{}, err
	}
	detail, err := r.j.Text(ctx, res.Text)
	if err != nil {
		return tool.Result{}, err
	}
	if _, err := r.j.Append(ctx, event.ReproductionChecked{
		Step: r.step(), Tests: q.Tests, Kind: res.Kind, Reason: withoutKind(firstLine(res.Text)), Detail: detail, Millis: r.since(begin),
	}); err != nil {
		return tool.Result{}, err
	}
	out := tool.Result{Text: res.Text + heldNote(c), IsError: res.Kind != task.Verified, Wall: r.cfg.Now().Sub(begin)}
	if res.Kind == task.NotReproducing && r.countReproductions(ctx) >= maxNotReproducing {
		reason := fmt.Sprintf("cannot reproduce: %d tests in a row pass on the base commit", maxNotReproducing)
		if _, err := r.j.Append(ctx, event.Declined{Step: r.step(), Kind: "cannot_reproduce", Reason: reason, Tried: res.Text}); err != nil {
			return tool.Result{}, err
		}
		out.Text += "\n\nThe task ends here: " + reason + "."
		out.End, out.Reason = tool.Gave, reason
	}
	return out, nil
}

// withoutKind drops the verdict's name in front of a reason: the event has a field for it.
func withoutKind(s string) string {
	if _, rest, ok := strings.Cut(s, "): "); ok && strings.HasPrefix(s, "refused (") {
		return rest
	}
	return s
}

// filesOf is used when the agent names only files: every test in them counts.
func filesOf(q tool.ReproduceRequest) []string {
	if len(q.Tests) > 0 {
		return nil
	}
	return q.Files
}

// countReproductions counts how many tests in a row, up to now, passed on the base. A check that
// was done again after a crash has the same step and counts once.
func (r *run) countReproductions(ctx context.Context) int {
	events, err := r.cfg.Store.Events(ctx, r.j.Summary().Task, 0, 0)
	if err != nil {
		return 0
	}
	steps := map[int]bool{}
	for _, e := range events {
		if p, err := event.Decode(e); err == nil {
			if _, ok := p.(*event.AttemptStarted); ok {
				clear(steps)
			}
			if rc, ok := p.(*event.ReproductionChecked); ok {
				if rc.Kind != task.NotReproducing {
					clear(steps)
					continue
				}
				steps[rc.Step] = true
			}
		}
	}
	return len(steps)
}

func (r *run) job(changes []git.Change, tree string, declared []string) verify.Job {
	return verify.Job{
		Snapshot: r.snap, HeadTree: tree, Changes: changes, Declared: declared,
		Baseline: r.set.baseline, Hang: r.about(hangWords), Race: r.about(raceWords),
		Progress: func(_, note string) { r.progress("verify", note) },
	}
}

// Words of a title that say what the issue is about, between bars.
const (
	hangWords = "hang|hung|deadlock|infinite loop|never returns|never ends|never finishes|freez|stuck"
	raceWords = "data race|race condition|racy|race detector|concurrent map"
)

// about reports whether the issue's title has one of the words: only where the issue itself is
// about something that never ends may a timeout be the bug.
func (r *run) about(words string) bool {
	title := strings.ToLower(r.j.Summary().Created.IssueTitle)
	return slices.ContainsFunc(strings.Split(words, "|"), func(w string) bool { return strings.Contains(title, w) })
}

// Submit implements tool.Harness.
func (h *harness) Submit(ctx context.Context, q tool.SubmitRequest) (tool.Result, error) {
	r := h.r
	if ok, res, err := h.already(ctx); ok || err != nil {
		return res, err
	}
	if res, refused, err := r.inspectWords(ctx, q); refused || err != nil {
		return res, err
	}
	begin := r.cfg.Now()
	if err := r.j.move(ctx, task.Verifying, "", event.Submitted{Step: r.step(), Title: q.Title, Cause: q.Cause, Fix: q.Fix, Tests: q.Tests}); err != nil {
		return tool.Result{}, err
	}
	v, c, err := h.verdict(ctx, q)
	if err != nil {
		return tool.Result{}, err
	}
	doc, err := json.Marshal(v)
	if err != nil {
		return tool.Result{}, err
	}
	text, err := r.j.Text(ctx, string(doc))
	if err != nil {
		return tool.Result{}, err
	}
	attempt := r.submissions(ctx) + 1
	if _, err := r.j.Append(ctx, event.VerificationFinished{Attempt: attempt, Kind: v.Kind, Reason: v.Reason, Document: text, Millis: r.since(begin)}); err != nil {
		return tool.Result{}, err
	}
	if v.Kind.Accepted() {
		return accepted(v, c), nil
	}
	if attempt >= maxSubmissions {
		return tool.Result{}, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%d submissions were refused, the last one as %s: %s", attempt, v.Kind, v.Reason)}
	}
	if err := r.j.move(ctx, task.Working, string(v.Kind)+": "+v.Reason); err != nil {
		return tool.Result{}, err
	}
	return tool.Result{Text: refusal(v) + heldNote(c), IsError: true, Wall: r.cfg.Now().Sub(begin)}, nil
}

// already finds a verdict that was recorded before a crash, after the call that asked for it
// had started.
func (h *harness) already(ctx context.Context) (bool, tool.Result, error) {
	r := h.r
	sum := r.j.Summary()
	if sum.State != task.Verifying || sum.Verification == nil || !sum.Verification.Kind.Accepted() {
		return false, tool.Result{}, nil
	}
	v, err := r.recordedVerdict(ctx)
	if err != nil {
		return false, tool.Result{}, err
	}
	return true, accepted(v, change{}), nil
}

func (r *run) recordedVerdict(ctx context.Context) (task.Verdict, error) {
	var v task.Verdict
	doc, err := r.j.Load(ctx, r.j.Summary().Verification.Document)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal([]byte(doc), &v); err != nil {
		return v, fmt.Errorf("recorded verdict: %w", err)
	}
	return v, nil
}

func (r *run) submissions(ctx context.Context) int {
	if v := r.j.Summary().Verification; v != nil {
		return v.Attempt
	}
	return 0
}

// verdict exports the change and has it verified.
func (h *harness) verdict(ctx context.Context, q tool.SubmitRequest) (task.Verdict, change, error) {
	r := h.r
	c, err := r.export(ctx)
	if task.ClassOf(err) == task.Invalid {
		return task.Verdict{Kind: task.PolicyRefused, Base: r.snap.Base, Reason: err.Error()}, c, nil
	}
	if err != nil {
		return task.Verdict{}, c, err
	}
	if err := r.recordWorkspace(ctx, "submit", c.all); err != nil {
		return task.Verdict{}, c, err
	}
	if err := r.recordFindings(ctx, c); err != nil {
		return task.Verdict{}, c, err
	}
	if v, refused := r.refusedUnseen(c); refused {
		return v, c, nil
	}
	tree, _, err := r.build(ctx, c)
	if err != nil {
		return task.Verdict{}, c, err
	}
	v, err := r.prover().Verify(ctx, r.set.repo, r.job(c.allowed, tree, q.Tests))
	if err != nil {
		return task.Verdict{}, c, err
	}
	v.Findings = append(c.findings[:len(c.findings):len(c.findings)], v.Findings...)
	return v, c, nil
}

// refusedUnseen is the verdict on a change that is not worth a run.
func (r *run) refusedUnseen(c change) (v task.Verdict, refused bool) {
	v = task.Verdict{Kind: task.PolicyRefused, Base: r.snap.Base, Findings: c.findings}
	switch {
	case len(c.refused) > 0:
		v.Reason = "the change contains paths that are never exported: " + strings.Join(quoted(c.refused), ", ") + "; remove them"
	case c.blocked != "":
		v.Reason = c.blocked
	case len(c.allowed) == 0:
		v.Kind, v.Reason = task.NoChange, "nothing was changed that could be proposed"
	default:
		return v, false
	}
	return v, true
}

func accepted(v task.Verdict, c change) tool.Result {
	return tool.Result{Text: "Verdict: " + string(v.Kind) + ". " + v.Reason + heldNote(c) + "\nThe pull request is being written. You are done.", End: tool.Accepted, Reason: v.Reason}
}

// refusal tells the model what was seen and what to do about it.
func refusal(v task.Verdict) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Refused: %s. %s\n", v.Kind, v.Reason)
	if v.Detail != "" {
		b.WriteString("\n" + clip(v.Detail, 12_000) + "\n")
	}
	for i, t := range v.Suite.NewlyFailing {
		if i == 20 {
			fmt.Fprintf(&b, "… and %d more\n", len(v.Suite.NewlyFailing)-i)
			break
		}
		if i == 0 {
			b.WriteString("\nTests that passed on the base and fail now:\n")
		}
		b.WriteString("- " + t + "\n")
	}
	for i, t := range v.Suite.Lost {
		if i == 0 {
			b.WriteString("\nTests that passed on the base and are gone or skipped now:\n")
		}
		if i < 20 {
			b.WriteString("- " + t + "\n")
		}
	}
	for i, f := range v.Findings {
		if i == 0 {
			b.WriteString("\nFindings:\n")
		}
		if i == 20 {
			break
		}
		at := f.Path
		if f.Line > 0 {
			at = fmt.Sprintf("%s:%d", f.Path, f.Line)
		}
		fmt.Fprintf(&b, "- %s %s: %s\n", f.Severity, at, f.Detail)
	}
	b.WriteString("\nThe task is still open. Put this right and submit again, or decline.")
	return b.String()
}

func heldNote(c change) string {
	if len(c.held) == 0 {
		return ""
	}
	var paths []string
	for _, h := range c.held {
		paths = append(paths, h.Path)
	}
	return "\nHeld back for a person's word, not part of the proposal: " + strings.Join(quoted(paths), ", ") + "."
}

func quoted(list []string) []string {
	out := make([]string, 0, min(len(list), 20))
	for _, s := range list[:min(len(list), 20)] {
		out = append(out, fmt.Sprintf("%q", s))
	}
	return out
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n/2], "") + fmt.Sprintf("\n… %d bytes left out …\n", len(s)-n) + strings.ToValidUTF8(s[len(s)-n/2:], "")
}

func refuse(text string) tool.Result { return tool.Result{Text: text, IsError: true} }

const recordedText = "Recorded. The task ends here."

// Decline implements tool.Harness.
func (h *harness) Decline(ctx context.Context, q tool.DeclineRequest) (tool.Result, error) {
	r := h.r
	if _, err := r.j.Append(ctx, event.Declined{Step: r.step(), Kind: q.Kind, Reason: q.Reason, Tried: q.Tried}); err != nil {
		return tool.Result{}, err
	}
	return tool.Result{Text: recordedText, End: tool.Gave, Reason: strings.ReplaceAll(q.Kind, "_", " ") + ": " + q.Reason}, nil
}

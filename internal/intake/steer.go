package intake

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/policy"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// said acts on a new comment on an issue or a pull request.
func (in *Intake) said(ctx context.Context, p place, d forge.Delivery) (string, error) {
	c := d.Comment
	if c == nil || c.Internal || c.Author.Name != d.Sender.Name {
		return "ignored: not a comment by its sender", nil
	}
	w := read(c.Body, strings.TrimSuffix(p.Bot, "[bot]")) // an app is called by its name alone
	t, ok, number, err := in.concerned(ctx, p, d)
	if err != nil {
		return "", err
	}
	at := forge.Ref{Number: number, Pull: d.Pull != nil}
	live := ok && !t.State.Done()
	inReview := ok && t.State == task.InReview
	if !live && !w.mentioned && w.command == "" {
		return "ignored: nobody works on this", nil
	}
	if may, err := in.may(ctx, p, c.Author); err != nil || !may {
		return fmt.Sprintf("ignored: %q may not write to the repository", c.Author.Name), err
	}
	ack := func(outcome string) (string, error) {
		in.mark(ctx, p, "comment:"+c.ID)
		return outcome, p.host.Acknowledge(ctx, p.URL, at, c.ID)
	}
	signal := store.Signal{ID: "c:" + p.Forge + ":" + p.ID + ":" + c.ID, Task: t.ID, Who: c.Author.Name, At: c.Created}
	switch {
	case w.command == "budget" && ok && w.args != "": // more of it
		out, err := in.raise(ctx, p, at, t, signal, w.args)
		if err != nil {
			return "", err
		}
		return ack(out)
	case w.command == "budget" && ok:
		if err := in.tellBudget(ctx, p, at, t, c.ID); err != nil {
			return "", err
		}
		return ack("told what is spent")
	case w.command == "stop" && live:
		signal.Kind, signal.Text = "stop", clean(c.Body)
		if err := in.cfg.Store.Signal(ctx, signal); err != nil {
			return "", err
		}
		in.hurry(ctx, t)
		return ack(fmt.Sprintf("task %s is told to stop", t.ID))
	case w.command == "approve" && live:
		sum, err := in.summary(ctx, t.ID)
		if err != nil {
			return "", err
		}
		if !sum.Waits() {
			return "ignored: nothing waits for an approval", nil
		}
		if c.Created.Before(sum.HeldAt.Truncate(time.Second)) { // forges tell whole seconds
			return "ignored: it was written before the change that waits", nil
		}
		signal.Kind, signal.Text = store.Approve, sum.Held.Tree
		if err := in.cfg.Store.Signal(ctx, signal); err != nil {
			return "", err
		}
		in.hurry(ctx, t)
		return ack(fmt.Sprintf("the change of task %s is approved", t.ID))
	case live && w.command == "":
		signal.Text = clean(c.Body)
		answers, err := store.Say(ctx, in.cfg.Store, signal)
		if err != nil {
			return "", err
		}
		if answers {
			in.hurry(ctx, t)
			return ack(fmt.Sprintf("the question of task %s is answered", t.ID))
		}
		return ack(fmt.Sprintf("task %s is steered", t.ID))
	case inReview && d.Pull != nil && w.command == "":
		signal.Kind, signal.Text = "steer", clean(c.Body)
		out, err := in.follow(ctx, t, c.Author.Name, signal)
		if err != nil {
			return "", err
		}
		return ack(out)
	case d.Pull != nil || live || inReview || d.Issue == nil:
		return "ignored: it asks for nothing that can be done now", nil
	case w.command == "retry" && !ok, w.command == "stop", w.command == "budget", w.command == "approve":
		return "ignored: there is no such task", nil
	}
	trigger := "mention"
	if w.command == "retry" {
		trigger = "retry"
	}
	in.mark(ctx, p, "comment:"+c.ID)
	return in.start(ctx, p, ask{trigger: trigger, who: c.Author, at: c.Created, number: number, seen: seenAt(d)})
}

// hurry orders the next run of a task that waits for a person. What it cannot do, the reconciler
// does.
func (in *Intake) hurry(ctx context.Context, t store.Task) {
	if t.Owner != "" {
		return
	}
	if t.State != task.Publishing {
		if sum, err := in.summary(ctx, t.ID); err != nil || !sum.Parked() {
			return
		}
	}
	if err := in.cfg.Again(ctx, t.ID, "a person's word waits for it"); err != nil {
		in.cfg.Logger.WarnContext(ctx, "the next run is left to the reconciler", "task", t.ID, "error", err)
	}
}

// seenAt is the issue as the delivery showed it, nil when it did not.
func seenAt(d forge.Delivery) *forge.Issue {
	if d.Issue == nil || d.Issue.Title == "" {
		return nil
	}
	return d.Issue
}

// concerned finds the task that a comment is about, and the number it stands under.
func (in *Intake) concerned(ctx context.Context, p place, d forge.Delivery) (t store.Task, ok bool, number int, err error) {
	if d.Pull == nil {
		if d.Issue == nil {
			return t, false, 0, nil
		}
		t, ok, err = in.newest(ctx, p, d.Issue.Number)
		return t, ok, d.Issue.Number, err
	}
	branch := d.Pull.Branch
	if branch == "" {
		pr, err := p.host.PullRequest(ctx, p.URL, d.Pull.Number)
		if task.ClassOf(err) == task.NotFound {
			return t, false, d.Pull.Number, nil
		}
		if err != nil {
			return t, false, 0, err
		}
		branch = pr.Branch
	}
	if t, ok, err = in.ofBranch(ctx, p, branch); err != nil || !ok {
		return t, false, d.Pull.Number, err
	}
	// Anybody may open a pull request from a fork of theirs whose branch has this name.
	sum, err := in.summary(ctx, t.ID)
	return t, err == nil && sum.PullRequest != nil && sum.PullRequest.Number == d.Pull.Number, d.Pull.Number, err
}

// clean is a person's text as the model may see it.
func clean(s string) string {
	text, _ := policy.CleanText(s)
	const max = 16 << 10
	if len(text) > max {
		text = strings.ToValidUTF8(text[:max], "") + "\n[cut]"
	}
	return text
}

// mark makes sure that the poller does not tell us of something again.
func (in *Intake) mark(ctx context.Context, p place, what string) {
	id := "poll:" + p.ID + ":" + what
	if _, err := in.cfg.Store.Deliver(ctx, store.Delivery{Forge: p.Forge, ID: id, Repository: p.ID}); err == nil {
		err = in.cfg.Store.Conclude(ctx, p.Forge, id, "seen")
		if err == nil {
			return
		}
	}
	in.cfg.Logger.DebugContext(ctx, "not marked as seen; the poller will look at it once more", "what", what)
}

// reviewed acts on a review: its text and its comments at lines.
func (in *Intake) reviewed(ctx context.Context, p place, d forge.Delivery) (string, error) {
	t, ok, number, err := in.concerned(ctx, p, d)
	if err != nil || !ok {
		return "ignored: not our pull request", err
	}
	if t.State.Done() && t.State != task.InReview {
		return fmt.Sprintf("ignored: task %s is over (%s)", t.ID, t.State), nil
	}
	if may, err := in.may(ctx, p, d.Sender); err != nil || !may {
		return fmt.Sprintf("ignored: %q may not write to the repository", d.Sender.Name), err
	}
	var signals []store.Signal
	if d.Comment != nil && d.Kind == forge.Reviewed && strings.TrimSpace(d.Comment.Body) != "" && d.Verdict != "approved" {
		id := d.Comment.ID
		if id == "" {
			id = d.ID
		}
		signals = append(signals, store.Signal{ID: "r:" + p.Forge + ":" + p.ID + ":" + id, Text: "In a review: " + clean(d.Comment.Body)})
	}
	sum, err := in.summary(ctx, t.ID)
	if err != nil {
		return "", err
	}
	cs, err := p.host.ReviewComments(ctx, p.URL, number)
	if err != nil {
		return "", err
	}
	for _, c := range cs {
		if c.Author.Name != d.Sender.Name || c.Created.Before(sum.CreatedAt) {
			continue
		}
		signals = append(signals, store.Signal{ID: "l:" + p.Forge + ":" + p.ID + ":" + c.ID, Text: atLine(c)})
	}
	if len(signals) == 0 {
		return "ignored: a review without words", nil
	}
	for i := range signals {
		signals[i].Task, signals[i].Kind, signals[i].Who = t.ID, "steer", d.Sender.Name
	}
	return in.follow(ctx, t, d.Sender.Name, signals...)
}

// atLine is a review comment with where it stands.
func atLine(c forge.Comment) string {
	where := fmt.Sprintf("%s line %d", c.Path, c.Line)
	if c.Line == 0 {
		where = fmt.Sprintf("%s, at what was line %d when it was written", c.Path, c.Original)
	}
	text := fmt.Sprintf("A review comment at %s:\n\n%s", clean(where), clean(c.Body))
	if hunk := strings.Split(clean(c.Hunk), "\n"); hunk[0] != "" {
		text += "\n\nIt is about these lines of the diff:\n\n" + strings.Join(hunk[max(0, len(hunk)-8):], "\n")
	}
	return text
}

// follow gives words to a task: one that runs reads them at its next step, one that waits for
// review goes back to work with them.
func (in *Intake) follow(ctx context.Context, t store.Task, who string, signals ...store.Signal) (string, error) {
	for _, s := range signals {
		if s.At.IsZero() {
			s.At = in.cfg.Now()
		}
		answers, err := store.Say(ctx, in.cfg.Store, s)
		if err != nil {
			return "", err
		}
		if answers {
			in.hurry(ctx, t)
		}
	}
	if t.State != task.InReview {
		return fmt.Sprintf("task %s is steered", t.ID), nil
	}
	waiting, err := in.cfg.Store.Signals(ctx, t.ID)
	if err != nil {
		return "", err
	}
	if len(waiting) == 0 {
		return fmt.Sprintf("task %s has taken that up before", t.ID), nil
	}
	if err := in.move(ctx, t.ID, event.StateChanged{From: task.InReview, To: task.Working, Reason: who + " asked for a change"}); err != nil {
		return "", err
	}
	if err := in.cfg.Again(ctx, t.ID, "a reviewer asked for a change"); err != nil {
		in.cfg.Logger.WarnContext(ctx, "the next run is left to the reconciler", "task", t.ID, "error", err)
	}
	return fmt.Sprintf("task %s goes back to work", t.ID), nil
}

// edited says once that a running task keeps the text it began with.
func (in *Intake) edited(ctx context.Context, p place, d forge.Delivery) (string, error) {
	if d.Issue == nil {
		return "ignored", nil
	}
	t, ok, err := in.newest(ctx, p, d.Issue.Number)
	if err != nil || !ok || t.State.Done() {
		return "ignored: nobody works on this", err
	}
	sum, err := in.summary(ctx, t.ID)
	if err != nil || sum.Created.Origin == nil {
		return "ignored", err
	}
	text := fmt.Sprintf("This issue was edited. Daybreak goes on with the text as it was at %s, when %s asked for it. "+
		"To tell it more, comment here; to begin again with the new text, comment `/stop` and then `/retry`.",
		sum.Created.Origin.At.UTC().Format(time.RFC3339), code(sum.Created.Origin.By))
	return "told that the text is frozen", in.once(ctx, p, forge.Ref{Number: d.Issue.Number}, "frozen:"+string(t.ID), text)
}

// ended records what a person made of the pull request, as the forge says now.
func (in *Intake) ended(ctx context.Context, p place, d forge.Delivery) (string, error) {
	t, ok, number, err := in.concerned(ctx, p, d)
	if err != nil || !ok {
		return "ignored: not our pull request", err
	}
	pr, err := p.host.PullRequest(ctx, p.URL, number)
	if err != nil {
		return "", err
	}
	if pr.State == forge.PullOpen {
		return "ignored: it is open again", nil
	}
	in.mark(ctx, p, fmt.Sprintf("ended:%d", number))
	if !t.State.Done() { // a follow-up that nobody wants any more
		err := in.cfg.Store.Signal(ctx, store.Signal{
			ID: "e:" + p.Forge + ":" + p.ID + ":" + string(t.ID), Task: t.ID, Kind: "stop", Who: d.Sender.Name, Text: "the pull request was " + string(pr.State), At: in.cfg.Now(),
		})
		if err == nil {
			in.hurry(ctx, t)
			err = &task.Error{Class: task.Conflict, Msg: fmt.Sprintf("task %s is told to stop; what became of its pull request is recorded after that", t.ID)}
		}
		return "", err
	}
	sum, err := in.summary(ctx, t.ID)
	if err != nil {
		return "", err
	}
	if sum.Ended != nil || sum.PullRequest == nil {
		return fmt.Sprintf("ignored: task %s is over (%s)", t.ID, t.State), nil
	}
	record := []event.Payload{event.PullRequestEnded{Number: number, Merged: pr.State == forge.PullMerged, By: pr.MergedBy.Name, Commit: pr.MergeCommit, At: pr.Ended.UTC()}}
	if t.State != task.InReview { // a follow-up came to another end; what people made of the rest is an outcome all the same
		return fmt.Sprintf("task %s is over (%s); its pull request was %s", t.ID, t.State, pr.State), in.move(ctx, t.ID, record...)
	}
	to, reason := task.Closed, "a person closed the pull request"
	if pr.State == forge.PullMerged {
		to, reason = task.Merged, pr.MergedBy.Name+" merged the pull request"
	}
	err = in.move(ctx, t.ID, append(record, event.StateChanged{From: task.InReview, To: to, Reason: reason})...)
	return fmt.Sprintf("task %s: %s", t.ID, reason), err
}

// pushed records a person's commit on a branch of ours.
func (in *Intake) pushed(ctx context.Context, p place, d forge.Delivery) (string, error) {
	t, ok, err := in.ofBranch(ctx, p, d.Branch)
	if err != nil || !ok {
		return "ignored: not our branch", err
	}
	if strings.EqualFold(d.Sender.Name, p.Bot) {
		return "ignored: our own", nil
	}
	if strings.Trim(d.After, "0") == "" {
		return "ignored: the branch was removed", nil
	}
	sum, err := in.summary(ctx, t.ID)
	if err != nil {
		return "", err
	}
	adopted := sum.Adopted != nil && sum.Adopted.Head == d.After // a follow-up saw it first
	if pr := sum.PullRequest; pr == nil || pr.Head == d.After && !adopted || sum.Pushed != nil && sum.Pushed.Head == d.After {
		return "ignored: known, or before there was a pull request", nil
	}
	if err := in.move(ctx, t.ID, event.BranchPushed{By: d.Sender.Name, Head: d.After, At: d.At.UTC()}); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s pushed to the branch of task %s, which the next push respects", cmp.Or(d.Sender.Name, "somebody"), t.ID), nil
}

// pressed is the stop button of a status.
func (in *Intake) pressed(ctx context.Context, p place, d forge.Delivery) (string, error) {
	id := task.ID(d.Task)
	if !id.Valid() {
		return "ignored: no such task", nil
	}
	t, err := in.cfg.Store.Task(ctx, id)
	if err != nil || t.Repo != p.URL {
		return "ignored: no such task", nil //nolint:nilerr // whatever a button says is not trusted
	}
	if may, err := in.may(ctx, p, d.Sender); err != nil || !may {
		return fmt.Sprintf("ignored: %q may not write to the repository", d.Sender.Name), err
	}
	if t.State.Done() {
		return fmt.Sprintf("ignored: task %s is over (%s)", t.ID, t.State), nil
	}
	if err := in.cfg.Store.Signal(ctx, store.Signal{
		ID: "b:" + p.Forge + ":" + d.ID, Task: t.ID, Kind: "stop", Who: d.Sender.Name, Text: "the stop button", At: in.cfg.Now(),
	}); err != nil {
		return "", err
	}
	in.hurry(ctx, t)
	return fmt.Sprintf("task %s is told to stop", t.ID), nil
}

// retried is the button of a status that asks for one more try.
func (in *Intake) retried(ctx context.Context, p place, d forge.Delivery) (string, error) {
	id := task.ID(d.Task)
	if !id.Valid() {
		return "ignored: no such task", nil
	}
	t, err := in.cfg.Store.Task(ctx, id)
	if err != nil || t.Repo != p.URL {
		return "ignored: no such task", nil //nolint:nilerr // whatever a button says is not trusted
	}
	sum, err := in.summary(ctx, id)
	if err != nil || sum.Created.Origin == nil {
		return "ignored: no such task", err
	}
	return in.start(ctx, p, ask{trigger: "retry", who: d.Sender, at: d.At, number: sum.Created.Origin.Number})
}

// raise gives a task more budget, or says why not.
func (in *Intake) raise(ctx context.Context, p place, at forge.Ref, t store.Task, s store.Signal, args string) (string, error) {
	asked, err := readBudget(args)
	again := false
	if err == nil {
		_, again, err = store.Raise(ctx, in.cfg.Store, store.Raised{
			Task: t.ID, Word: s.ID, Who: s.Who, Owner: in.cfg.Owner + ":intake", Asked: asked, Most: in.cfg.Most, At: s.At,
		})
	}
	if task.ClassOf(err) == task.Invalid {
		text := "The budget was not raised: " + code(err.Error())
		return "not raised: " + err.Error(), in.once(ctx, p, at, "raise:"+s.ID, text)
	}
	if err != nil {
		return "", err
	}
	if again {
		if err := in.cfg.Again(ctx, t.ID, s.Who+" raised the budget"); err != nil {
			in.cfg.Logger.WarnContext(ctx, "the next run is left to the reconciler", "task", t.ID, "error", err)
		}
	}
	return fmt.Sprintf("the budget of task %s is raised", t.ID), nil
}

func (in *Intake) tellBudget(ctx context.Context, p place, at forge.Ref, t store.Task, comment string) error {
	sum, err := in.summary(ctx, t.ID)
	if err != nil {
		return err
	}
	return in.once(ctx, p, at, "budget:"+comment, spent(sum))
}

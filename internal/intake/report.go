package intake

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// editGap is the least time between two edits of one progress comment: forges count them.
const editGap = 15 * time.Second

// How many tasks are looked at: of those that are not over, and of the newest ones.
const (
	maxShown = 5000
	maxOver  = 500
)

// shown is what was last shown of a task on its forge.
type shown struct {
	Comment string     `json:"comment"` // id of the progress comment
	Text    string     `json:"text"`    // hash
	State   task.State `json:"state"`
	At      time.Time  `json:"at"`
	Status  string     `json:"status"` // "commit state" of the last status
	Seq     int64      `json:"seq"`    // of the log at that time
}

// Report brings the progress comment and the commit status of every task of the forges up to
// date. It is meant to be called every few seconds: a task that did not change costs nothing, and
// a comment is edited at a polite rate. A comment that is not remembered is found by its mark.
func (in *Intake) Report(ctx context.Context) error {
	open, err := in.cfg.Store.Tasks(ctx, store.Filter{Limit: maxShown, States: []task.State{
		task.Queued, task.Preparing, task.Working, task.Verifying, task.Publishing, task.InReview,
	}})
	if err != nil {
		return err
	}
	newest, err := in.cfg.Store.Tasks(ctx, store.Filter{Limit: maxOver}) // with those that ended of late
	if err != nil {
		return err
	}
	var errs []error
	seen := map[task.ID]bool{}
	for _, t := range append(open, newest...) {
		if !t.Dispatch || seen[t.ID] {
			continue
		}
		seen[t.ID] = true
		if err := in.report(ctx, t); err != nil {
			errs = append(errs, fmt.Errorf("task %s: %w", t.ID, err))
		}
	}
	return errors.Join(errs...)
}

func (in *Intake) report(ctx context.Context, t store.Task) error {
	in.mu.Lock()
	known := in.reported[t.ID] == t.LastSeq
	in.mu.Unlock()
	if known {
		return nil
	}
	key := "report/" + string(t.ID)
	var was shown
	if err := in.cfg.Store.Update(ctx, key, func(old []byte) ([]byte, error) {
		was = shown{}
		if len(old) == 0 {
			return old, nil
		}
		return old, json.Unmarshal(old, &was)
	}); err != nil {
		return err
	}
	now := in.cfg.Now().UTC()
	if was.Seq == t.LastSeq {
		in.shown(t.ID, was.Seq)
		return nil
	}
	if was.State == t.State && now.Sub(was.At) < editGap {
		return nil
	}
	sum, err := in.summary(ctx, t.ID)
	if err != nil {
		return err
	}
	o := sum.Created.Origin
	if o == nil {
		in.shown(t.ID, t.LastSeq)
		return nil
	}
	r, ok, err := in.cfg.Registry.Find(ctx, o.Forge, o.Repository)
	host, has := in.cfg.Hosts[o.Forge]
	if err != nil || !ok || !has {
		return err
	}
	p := place{host, r}
	is := shown{Comment: was.Comment, State: t.State, At: now, Status: was.Status, Seq: sum.LastSeq}
	text := progressText(sum, p.host.Capabilities().PullMark)
	h := sha256.Sum256([]byte(text))
	is.Text = hex.EncodeToString(h[:8])
	if is.Text != was.Text {
		if is.Comment, err = in.show(ctx, p, o.Number, t.ID, was.Comment, text); err != nil {
			return err
		}
	}
	if sum.Parked() { // a comment of its own: nobody is told of one that is edited
		if err := in.once(ctx, p, forge.Ref{Number: o.Number}, fmt.Sprintf("question:%s:%d", t.ID, sum.Asked.N), asks(sum)); err != nil {
			return err
		}
	}
	if st, commit := statusOf(sum); commit != "" && is.Status != commit+" "+string(st.State) {
		err := p.host.SetStatus(ctx, p.URL, commit, st)
		switch task.ClassOf(err) {
		case "":
		case task.Auth, task.NotFound, task.Invalid: // a token that may not, or a commit of a fork: the comment says it all
			in.cfg.Logger.WarnContext(ctx, "no status is shown at the commit", "task", t.ID, "error", err)
		default:
			return err
		}
		is.Status = commit + " " + string(st.State)
	}
	if err := in.cfg.Store.Update(ctx, key, func([]byte) ([]byte, error) { return json.Marshal(is) }); err != nil {
		return err
	}
	in.shown(t.ID, is.Seq)
	return nil
}

func (in *Intake) shown(id task.ID, seq int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.reported) > 5000 { // it only saves looks
		clear(in.reported)
	}
	in.reported[id] = seq
}

// show edits the progress comment, or makes it, once.
func (in *Intake) show(ctx context.Context, p place, number int, id task.ID, comment, text string) (string, error) {
	mark := "<!-- daybreak:progress:" + string(id) + " -->"
	text += "\n\n" + mark
	if comment == "" {
		cs, err := p.host.Comments(ctx, p.URL, forge.Ref{Number: number})
		if err != nil {
			return "", err
		}
		for _, c := range cs {
			if strings.EqualFold(c.Author.Name, p.Bot) && strings.Contains(c.Body, mark) {
				comment = c.ID
			}
		}
	}
	if comment == "" {
		return p.host.Comment(ctx, p.URL, forge.Ref{Number: number}, text)
	}
	err := p.host.EditComment(ctx, p.URL, forge.Ref{Number: number}, comment, text)
	if task.ClassOf(err) == task.NotFound { // a person deleted it: that is an answer too
		return comment, nil
	}
	return comment, err
}

// statusOf is what stands at the head of the pull request.
func statusOf(sum event.Summary) (forge.Status, string) {
	pr := sum.PullRequest
	if pr == nil {
		return forge.Status{}, ""
	}
	s := forge.Status{Task: string(sum.Task), State: forge.StatusPending, Title: "at work on what the review asked for", Stop: true}
	switch sum.State {
	case task.InReview, task.Merged:
		s.Stop = false
		s.State, s.Title = forge.StatusSuccess, "the change was verified"
		if v := sum.Verification; v != nil && v.Kind != task.Verified {
			s.Title = "the change was accepted: " + strings.ReplaceAll(string(v.Kind), "_", " ")
		}
	case task.Stopped, task.Closed:
		s.State, s.Title, s.Stop = forge.StatusStopped, "stopped", false
	case task.Failed, task.Exhausted, task.Declined:
		s.State, s.Title, s.Stop = forge.StatusFailure, "ended without a further change", false
	}
	return s, pr.Head
}

// progressText is the comment: facts of the record alone, and words of the model only as quoted
// code, so that nothing in them is a mention, a link or a command.
func progressText(sum event.Summary, mark string) string {
	var b strings.Builder
	o := sum.Created.Origin
	switch sum.State {
	case task.Queued:
		b.WriteString("Daybreak has taken this up; it begins as soon as a worker is free.")
	case task.Preparing:
		b.WriteString("Daybreak is preparing: the code as it is now, and what its tests say.")
	case task.Working:
		if sum.Parked() {
			b.WriteString("Daybreak waits for an answer to its question below.")
		} else {
			b.WriteString("Daybreak is at work.")
		}
	case task.Verifying:
		b.WriteString("Daybreak is checking the change in clean checkouts.")
	case task.Publishing:
		if sum.Waits() {
			fmt.Fprintf(&b, "The change was verified and waits for a person's approval. `daybreak task diff %s` shows it; `/approve` publishes it, `/stop` declines it.", sum.Task)
		} else {
			b.WriteString("The change was verified; the pull request is on its way.")
		}
	case task.InReview:
		b.WriteString("A draft pull request waits for review")
		if sum.PullRequest.Number > 0 {
			fmt.Fprintf(&b, ": %s%d", cmp.Or(mark, "#"), sum.PullRequest.Number)
		}
		b.WriteString(".")
	case task.Merged:
		b.WriteString("The pull request was merged.")
	case task.Closed:
		b.WriteString("The pull request was closed.")
	case task.Declined:
		b.WriteString("Daybreak made no change, for this reason:")
	case task.Exhausted:
		b.WriteString("Daybreak stopped because a budget ran out; what it had is kept in the record.")
	case task.Stopped:
		b.WriteString("Daybreak was stopped; what it had is kept in the record.")
	default:
		b.WriteString("Daybreak did not get to a verified change.")
	}
	if sum.Reason != "" && (sum.State == task.InReview || sum.State == task.Declined || sum.State == task.Failed || sum.State == task.Stopped || sum.State == task.Exhausted) {
		fmt.Fprintf(&b, "\n\n%s", code(sum.Reason))
	}
	fmt.Fprintf(&b, "\n\nAsked for by %s (%s) · %s · task `%s`\n", code(o.By), o.Trigger, spent(sum), sum.Task)
	if n := len(o.LeftOut); n > 0 {
		fmt.Fprintf(&b, "\n%d of the comments above are not part of the task: they are by people who may not write here, or from after it was asked for.\n", n)
	}
	if !sum.State.Done() {
		b.WriteString("\nComment here to tell it more, `/stop` to stop it, `/budget` to see what it has spent, `/budget usd=20` to let it spend more. Only people who may write to this repository are heard.")
	} else if sum.State != task.InReview && sum.State != task.Merged {
		b.WriteString("\n`/retry` starts it once more.")
		if sum.State == task.Exhausted {
			b.WriteString(" `/budget usd=20` lets it go on with more.")
		}
	}
	return b.String()
}

// asks is the comment with the agent's question. Whoever asked for the task is called by name: the
// forge vouches for it.
func asks(sum event.Summary) string {
	q := sum.Asked
	who := ""
	if by := sum.Created.Origin.By; regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`).MatchString(by) {
		who = "@" + by + ", "
	}
	return fmt.Sprintf("%sDaybreak has a question and rests until somebody who may write to this repository answers it, by a comment here, or until %s:\n\n%s\n\nWhat it tried:\n\n%s\n\nTask `%s`. `/stop` ends it.",
		who, q.Until.UTC().Format("2 January 2006 15:04 UTC"), block(q.Question), block(q.Tried), sum.Task)
}

// block shows foreign text as a block of code, in which nothing has a meaning to a forge.
func block(s string) string {
	s = clean(s)
	if len(s) > 4000 {
		s = strings.ToValidUTF8(s[:4000], "") + "…"
	}
	return "    " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n    ")
}

// spent is the budget in one line.
func spent(sum event.Summary) string {
	l, s := sum.Created.Limits, sum.Spent
	parts := []string{fmt.Sprintf("%d steps", s.Steps)}
	if l.Steps > 0 {
		parts[0] = fmt.Sprintf("%d of %d steps", s.Steps, l.Steps)
	}
	if !sum.Unpriced {
		cost := fmt.Sprintf("$%.2f", float64(s.Cost)/1e6)
		if l.Cost > 0 {
			cost += fmt.Sprintf(" of $%.2f", float64(l.Cost)/1e6)
		}
		parts = append(parts, cost)
	}
	return strings.Join(parts, ", ")
}

// code shows foreign text as one span of code, in which nothing has a meaning to a forge.
func code(s string) string {
	s = regexp.MustCompile("[`\\s]+").ReplaceAllString(clean(s), " ")
	if len(s) > 600 {
		s = strings.ToValidUTF8(s[:600], "") + "…"
	}
	return "`" + strings.TrimSpace(s) + "`"
}

package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/daybreak-agent/daybreak/internal/action"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/notify"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Notify is whom a run tells when people should look, and of what.
type Notify struct {
	Senders []notify.Sender
	On      []notify.About
	Page    func(id task.ID) string                                // address of a task's page; may be nil
	Pause   func(ctx context.Context, d time.Duration) (over bool) // between attempts; nil: it takes that long
}

// told is what a note's sending left in the log.
type told struct {
	Maybe bool `json:"maybe,omitempty"` // the worker died while it was sent: it may or may not have arrived
}

const (
	tellTime   = 30 * time.Second // for all notes of a run
	tellTries  = 3
	firstPause = time.Second // doubled each time, or what the other side asks for
)

// tell lets people know what a run ended with. Each note is an outside effect of its own: its
// intent is in the log first, and it is sent once. One that cannot be sent is recorded as failed
// and stops nothing.
func (r *run) tell(ctx context.Context) {
	sum := r.j.Summary()
	n, due := r.note(sum)
	if !due || !slices.Contains(r.cfg.Notify.On, n.About) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTime)
	defer cancel()
	for _, s := range r.cfg.Notify.Senders {
		key := "notify:" + s.Name() + ":" + n.Key
		look := func(context.Context) (told, bool, error) {
			// Nobody can be asked whether a note has arrived. One whose sending failed has not.
			e := r.j.Summary().Effects[key]
			return told{Maybe: true}, e.Done == nil, nil
		}
		about := map[string]string{"about": string(n.About), "to": s.Name()}
		if _, err := action.Do(ctx, r.j, key, "notify", about, look, func(ctx context.Context) (told, error) {
			return told{}, r.send(ctx, s, n)
		}); err != nil {
			r.cfg.Logger.WarnContext(ctx, "a note could not be sent", "task", sum.Task, "about", n.About, "to", s.Name(), "error", err)
		}
	}
}

// send tries again what makes sense to try again.
func (r *run) send(ctx context.Context, s notify.Sender, n notify.Note) error {
	pause := r.cfg.Notify.Pause
	if pause == nil {
		pause = wait
	}
	next := firstPause
	for try := 1; ; try++ {
		err := s.Send(ctx, n)
		if err == nil || try == tellTries || !task.ClassOf(err).Retryable() {
			return err
		}
		d := next
		var e *task.Error
		if errors.As(err, &e) && e.RetryAfter > d {
			d = e.RetryAfter
		}
		if end, ok := ctx.Deadline(); ok && r.cfg.Now().Add(d).After(end) || !pause(ctx, d) {
			return err
		}
		next *= 2
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// note is what people should know of where the task stands. It repeats no word of the agent's.
func (r *run) note(sum event.Summary) (n notify.Note, due bool) {
	n = notify.Note{Task: sum.Task, Repo: sum.Created.Repo, Title: sum.Created.IssueTitle}
	if r.cfg.Redactor != nil {
		n.Title, _ = r.cfg.Redactor.Redact(n.Title)
	}
	if r.cfg.Notify.Page != nil {
		n.Page = r.cfg.Notify.Page(sum.Task)
	}
	if o := sum.Created.Origin; o != nil {
		n.Link = o.URL
	}
	switch {
	case sum.State == task.InReview && sum.PullRequest != nil:
		n.About, n.Key, n.Link = notify.PullRequest, "pull_request:"+sum.PullRequest.Head, sum.PullRequest.URL
		if v := sum.Verification; v != nil {
			n.Fact = fmt.Sprintf("%s, %d steps, $%.2f", v.Kind, sum.Spent.Steps, sum.Spent.Cost.USD())
		}
	case sum.Waits():
		n.About, n.Key = notify.Waiting, "held:"+sum.Held.Tree
		n.Fact = fmt.Sprintf("a verified change of %d files waits for an approval", sum.Held.Files)
	case sum.Parked():
		n.About, n.Key = notify.Waiting, fmt.Sprintf("question:%d", sum.Asked.N)
		n.Fact = "the agent has a question, open until " + sum.Asked.Until.UTC().Format("2006-01-02 15:04 MST")
	case sum.State == task.Exhausted:
		n.About, n.Key = notify.Exhausted, fmt.Sprintf("exhausted:%d", sum.Spent.Steps)
		n.Fact = "the budget is used up"
		for _, m := range sum.Created.Limits.Meters(sum.Spent) {
			if m.Share() >= 0.8 {
				n.Fact += ", " + m.String()
			}
		}
	default:
		return n, false
	}
	return n, true
}

package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/tool"
)

// Questions are what the agent may ask people.
type Questions struct {
	Most int           // a task; 0: nobody can be asked
	Wait time.Duration // for an answer; then the task is declined
}

// ErrParked is the pause of a task that rests until a person answers; see [Questions].
var ErrParked = fmt.Errorf("%w: the agent asked a question: see it with `daybreak task show`, then say `daybreak task answer`", ErrPaused)

// Ask implements tool.Harness. The question is on record together with the agent's files; the run
// ends then, and the next one makes the call once more, for the answer.
func (h *harness) Ask(ctx context.Context, q tool.AskRequest) (tool.Result, error) {
	r := h.r
	sum, call := r.j.Summary(), ""
	for _, c := range sum.OpenCalls {
		if c.Name == "ask" {
			call = c.Call
		}
	}
	asked := 0
	if a := sum.Asked; a != nil {
		asked = a.N
		if a.Call == call && a.Step == r.step() {
			return r.answered(ctx, sum)
		}
	}
	switch most := r.cfg.Questions.Most; {
	case most == 0:
		return refuse("Nobody can be asked here. Decide it yourself, or decline with needs_information."), nil
	case asked >= most:
		return refuse(fmt.Sprintf("All %d questions of this task are asked. Decide it yourself, or decline with needs_information.", most)), nil
	}
	if err := r.clean([]outgoing{{"question", &q.Question}, {"account of what was tried", &q.Tried}}); err != nil {
		return refuse("The question was not asked: it holds what looks like a secret. Ask without it."), nil //nolint:nilerr // the agent can put that right
	}
	c, err := r.export(ctx)
	if task.ClassOf(err) == task.Invalid {
		return refuse("The question was not asked, since your change cannot be kept meanwhile: " + err.Error() + "."), nil
	}
	if err != nil {
		return tool.Result{}, err
	}
	saved, err := r.workspace(ctx, r.snap.Base, "question", c.all)
	if err != nil {
		return tool.Result{}, err
	}
	if _, err := r.j.Append(ctx, saved, r.question(asked+1, call, q.Question, q.Tried)); err != nil {
		return tool.Result{}, err
	}
	return tool.Result{End: tool.Waits}, nil
}

func (r *run) question(n int, call, question, tried string) event.QuestionAsked {
	return event.QuestionAsked{N: n, Step: r.step(), Call: call, Question: question, Tried: tried, Until: r.cfg.Now().Add(r.cfg.Questions.Wait).UTC()}
}

// answered is the result of a call whose question was asked before.
func (r *run) answered(ctx context.Context, sum event.Summary) (tool.Result, error) {
	if sum.Parked() {
		return tool.Result{End: tool.Waits}, nil
	}
	text, err := r.j.Load(ctx, sum.Answered.Text)
	if err != nil {
		return tool.Result{}, err
	}
	return tool.Result{Text: fmt.Sprintf("%s, who may steer this task, answered:\n\n%s\n\nThe sandbox is a new one: the files of the checkout are as you left them, nothing else is.", sum.Answered.Who, text)}, nil
}

// parked takes up the answer that a task rests for, or ends it when the time for one is over. Else
// it is [ErrParked], and the run ends: nothing waits under a lease or in a sandbox. ended says that
// the task did.
func (r *run) parked(ctx context.Context) (ended bool, err error) {
	sum := r.j.Summary()
	if !sum.Parked() || sum.State != task.Working {
		return false, nil
	}
	for id := range sum.Sandboxes { // of a run that died after it had asked: its files are kept with the question
		if err := r.discard(ctx, id); err != nil {
			return false, err
		}
	}
	if sum.Stop != nil {
		return true, r.stopped(ctx)
	}
	in, err := r.j.Inbox(ctx)
	if err != nil {
		return false, err
	}
	var (
		ids     []string
		said    []event.Payload
		answers bool
	)
	for _, s := range in {
		switch s.Kind {
		case store.Stop:
			return true, r.stopped(context.WithoutCancel(ctx))
		case store.Answer: // the first one; those after it, or to an earlier question, are words like any others
			text, err := r.redacted(ctx, s.Text)
			if err != nil {
				return false, err
			}
			ids = append(ids, s.ID)
			if !answers && !s.At.Before(sum.AskedAt) {
				answers, said = true, append(said, event.QuestionAnswered{N: sum.Asked.N, Signal: s.ID, Who: s.Who, Text: text})
				continue
			}
			said = append(said, event.Steered{Signal: s.ID, Who: s.Who, Text: text})
		}
	}
	if ids != nil {
		if _, err := r.j.Take(ctx, ids, said...); err != nil || answers {
			return false, err
		}
	}
	if r.cfg.Now().Before(sum.Asked.Until) {
		return false, ErrParked
	}
	reason := "nobody answered the question: " + strings.Join(strings.Fields(sum.Asked.Question), " ")
	if sum.Declined == nil {
		if _, err := r.j.Append(ctx, event.Declined{Step: r.step(), Kind: "needs_information", Reason: reason, Tried: sum.Asked.Tried}); err != nil {
			return false, err
		}
	}
	return true, r.j.move(ctx, task.Declined, "needs information: "+reason)
}

// rests reports whether a run ended because the task waits for a person's word.
func rests(err error) bool { return errors.Is(err, ErrHeld) || errors.Is(err, ErrParked) }

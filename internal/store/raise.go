package store

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Raised is a person's word that a task may spend more.
type Raised struct {
	Task        task.ID
	Word        string // its id: said again, it is the same word
	Who         string
	Owner       string      // names this process in the lease under which an exhausted task goes on
	Asked, Most task.Limits // new totals, 0 for those that stay; what the operator allows
	At          time.Time
}

// Raise gives a task more budget. One that is under way takes it up within a second or with its
// next run; one that was exhausted goes back to work, and again says that its next run is to be
// ordered. The agent is told. Class Invalid when it may not be raised so far or the task is over in
// another way, Conflict while somebody holds an exhausted task.
func Raise(ctx context.Context, st Store, r Raised) (l task.Limits, again bool, err error) {
	events, err := st.Events(ctx, r.Task, 0, 0)
	if err != nil {
		return l, false, err
	}
	sum, err := event.Fold(events)
	if err != nil {
		return l, false, err
	}
	told := Signal{
		ID: r.Word + ":told", Task: r.Task, Kind: Note, Who: r.Who, Text: "The budget was raised; go on where you stopped. What you were told about the old one no longer holds.", At: r.At,
	}
	before, err := taken(events, r.Word)
	if err != nil {
		return l, false, err
	}
	if before != nil { // and then something failed
		if before.Refused != "" {
			return l, false, &task.Error{Class: task.Invalid, Msg: before.Refused}
		}
		return before.Limits, sum.State == task.Working, st.Signal(ctx, told)
	}
	if l, err = sum.Created.Limits.Raise(r.Asked, r.Most); err != nil {
		return l, false, err
	}
	switch {
	case sum.State == task.Exhausted:
		if err := goOn(ctx, st, r, told, event.BudgetRaised{Signal: r.Word, Who: r.Who, Limits: l}, event.StateChanged{From: task.Exhausted, To: task.Working, Reason: r.Who + " raised the budget"}); err != nil {
			return l, false, err
		}
		return l, true, nil
	case sum.State.Done():
		return l, false, &task.Error{Class: task.Invalid, Msg: "the task is not under way: it is " + strings.ReplaceAll(string(sum.State), "_", " ")}
	default:
		b, err := json.Marshal(r.Asked)
		if err != nil {
			return l, false, err
		}
		if err := st.Signal(ctx, Signal{ID: r.Word, Task: r.Task, Kind: Budget, Who: r.Who, Text: string(b), At: r.At}); err != nil {
			return l, false, err
		}
	}
	return l, false, st.Signal(ctx, told)
}

// taken is what became of a word about the budget, nil when it waits or was never said.
func taken(events []event.Event, word string) (*event.BudgetRaised, error) {
	for _, e := range events {
		if e.Kind != (event.BudgetRaised{}).EventKind() {
			continue
		}
		p, err := event.Decode(e)
		if err != nil {
			return nil, err
		}
		if b, ok := p.(*event.BudgetRaised); ok && b.Signal == word {
			return b, nil
		}
	}
	return nil, nil
}

// goOn tells the agent and records that a task that nobody works on goes on.
func goOn(ctx context.Context, st Store, r Raised, told Signal, ps ...event.Payload) error {
	drafts := make([]event.Draft, len(ps))
	for i, p := range ps {
		d, err := event.New(p)
		if err != nil {
			return err
		}
		drafts[i] = d
	}
	l, err := st.Acquire(ctx, r.Task, r.Owner, 30*time.Second, nil)
	if err != nil {
		return err
	}
	if err = st.Signal(ctx, told); err == nil {
		_, err = st.Append(ctx, l, drafts...)
	}
	if rerr := st.Release(context.WithoutCancel(ctx), l); err == nil {
		err = rerr
	}
	return err
}

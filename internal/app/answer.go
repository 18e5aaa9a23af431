package app

import (
	"context"
	"fmt"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/policy"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Answer keeps a person's answer to the question that a task waits with; its next run takes it up.
// Class Conflict when there is no question.
func (a *App) Answer(ctx context.Context, id task.ID, who, text string) error {
	row, err := a.Store.Task(ctx, id)
	if err != nil {
		return err
	}
	events, err := a.Store.Events(ctx, id, 0, 0)
	if err != nil {
		return err
	}
	sum, err := event.Fold(events)
	if err != nil {
		return err
	}
	if !sum.Parked() {
		return &task.Error{Class: task.Conflict, Msg: fmt.Sprintf("task %s has no question that waits for an answer: it is %s", id, row.State)}
	}
	if text, _ = policy.CleanText(text); strings.TrimSpace(text) == "" {
		return &task.Error{Class: task.Invalid, Msg: "an answer says something"}
	}
	at := a.Now()
	if at.Before(sum.AskedAt) { // by another machine's clock
		at = sum.AskedAt
	}
	return a.Store.Signal(ctx, store.Signal{ID: ulid.Make().String(), Task: id, Kind: store.Answer, Who: who, Text: text, At: at})
}

package store

import (
	"context"

	"github.com/daybreak-agent/daybreak/internal/event"
)

// Say puts a person's words for the agent into the inbox: as the answer, if the task rests until
// there is one and they are of after its question, and then answers says that its next run is to be
// ordered; else as a word that it reads before its next step. Words without a time are of now.
func Say(ctx context.Context, st Store, s Signal) (answers bool, err error) {
	events, err := st.Events(ctx, s.Task, 0, 0)
	if err != nil {
		return false, err
	}
	sum, err := event.Fold(events)
	if err != nil {
		return false, err
	}
	s.Kind = Steer
	if s.At.IsZero() && sum.Parked() || sum.Answers(s.At) {
		s.Kind = Answer
		if !s.At.After(sum.AskedAt) { // the next question must tell them from its own answers
			s.At = sum.AskedAt
		}
	}
	return s.Kind == Answer, st.Signal(ctx, s)
}

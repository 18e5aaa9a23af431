package replay

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// client answers requests with the record's replies. It implements model.Client.
type client struct {
	c    *comparison
	info model.Info
}

// Info implements model.Client.
func (m *client) Info() model.Info { return m.info }

// Stream implements model.Client.
func (m *client) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		resp, err := m.c.reply(ctx, req)
		if err != nil {
			yield(model.Delta{}, err)
			return
		}
		yield(model.Delta{Done: &resp}, nil)
	}
}

// reply compares the request with the recorded one and returns what was answered to that.
func (c *comparison) reply(ctx context.Context, req model.Request) (model.Response, error) {
	c.mu.Lock()
	at := c.request
	c.mu.Unlock()
	if at < 0 { // the course differed, and the observer has said so
		return model.Response{}, errDiverged
	}
	if !c.compareRequest(ctx, at, req) {
		return model.Response{}, errDiverged
	}
	for i := at + 1; i < c.a.to; i++ {
		switch p := c.log.all[i].p.(type) {
		case *event.ModelRequested:
			i = c.a.to // no answer is recorded to this one
		case *event.ModelFailed:
			if c.stopsBefore(c.log.all[i].seq) {
				return model.Response{}, c.reached(ctx)
			}
			return model.Response{}, &model.FailedError{
				Attempts: p.Attempts, Wasted: p.Wasted, Err: &task.Error{Class: p.Class, Msg: p.Error},
			}
		case *event.ModelResponded:
			if c.stopsBefore(c.log.all[i].seq) && !c.callsAfter(i) {
				return model.Response{}, c.reached(ctx)
			}
			return c.recorded(ctx, i, p)
		}
	}
	return model.Response{}, c.cut()
}

// recorded is the reply of event i. The people's words that came after it are put into the
// inbox, from where the loop takes them as it did.
func (c *comparison) recorded(ctx context.Context, i int, p *event.ModelResponded) (model.Response, error) {
	s, err := c.log.load(ctx, p.Message)
	if err != nil {
		return model.Response{}, c.fail(err)
	}
	var msg model.Message
	if err := json.Unmarshal([]byte(s), &msg); err != nil {
		return model.Response{}, c.fail(&task.Error{Class: task.Invalid, Msg: "a recorded reply is no message", Err: err})
	}
	if err := c.deliver(ctx, i+1); err != nil {
		return model.Response{}, c.fail(err)
	}
	return model.Response{
		Message: msg, Stop: model.StopReason(p.Stop), Tokens: p.Tokens, Wasted: p.Wasted, Cost: p.Cost, Priced: p.Priced,
		Attempts: p.Attempts, ID: p.RequestID,
	}, nil
}

// deliver puts what people said between event i and the next reply into the inbox.
func (c *comparison) deliver(ctx context.Context, i int) error {
	for ; i < c.a.to; i++ {
		word := store.Signal{Task: c.log.id, At: c.log.all[i].e.Time}
		var text event.Text
		switch p := c.log.all[i].p.(type) {
		case *event.ModelResponded:
			return nil
		case *event.Steered:
			word.ID, word.Kind, word.Who, text = p.Signal, store.Steer, p.Who, p.Text
		case *event.QuestionAnswered:
			word.ID, word.Kind, word.Who, text = p.Signal, store.Answer, p.Who, p.Text
			word.At = word.At.AddDate(1000, 0, 0) // it is there before the question is asked once more
		default:
			continue
		}
		var err error
		if word.Text, err = c.log.load(ctx, text); err != nil {
			return err
		}
		if err := c.st.Signal(ctx, word); err != nil {
			return err
		}
	}
	return nil
}

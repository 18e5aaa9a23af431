package agent

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const (
	noticeAt  = 0.8 // share of a meter at which the agent is told
	minOutput = 512 // tokens: a shorter reply is no use, the budget counts as spent
)

// draft is the next request with its JSON, by which it is measured and named in the record.
// A long conversation takes milliseconds to encode: it is done once a step.
type draft struct {
	req  model.Request
	body []byte
}

func (a *Agent) draft() (draft, error) {
	return encode(a.conv.Request(a.cfg.MaxOutput, a.cfg.Thinking, a.cfg.CacheKey))
}

func encode(req model.Request) (draft, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return draft{}, fmt.Errorf("encode the request: %w", err)
	}
	return draft{req, body}, nil
}

// admit checks the next request against the budget with the most that it can cost. The
// reply's length is lowered to what the budget still allows.
func (a *Agent) admit(ctx context.Context, d draft) (draft, Outcome, error) {
	spent := a.cfg.Log.Spent()
	told := false
	for _, m := range a.limits().Meters(spent) {
		if m.Share() >= noticeAt && m.Share() < 1 && !a.conv.noticed[m.Name] {
			if err := a.notice(ctx, noticeBudget, m.Name, budgetText(m)); err != nil {
				return d, Outcome{}, err
			}
			told = true
		}
	}
	if told {
		var err error
		if d, err = a.draft(); err != nil {
			return d, Outcome{}, err
		}
	}
	input := a.estimate(len(d.body))
	for out := a.cfg.MaxOutput; ; out = out * 3 / 4 {
		m, over := a.exceeded(spent, input, int64(out))
		if !over {
			if out == d.req.MaxOutput && d.req.Thinking < out {
				return d, Outcome{}, nil
			}
			d.req.MaxOutput = out
			if d.req.Thinking >= out {
				d.req.Thinking = 0 // providers want the thinking budget below the reply's
			}
			d, err := encode(d.req)
			return d, Outcome{}, err
		}
		if out*3/4 < minOutput {
			reason := fmt.Sprintf("the next model call could exceed the budget: %s", m)
			if m.Name == "steps" {
				reason = fmt.Sprintf("all %.0f steps are used", m.Limit)
			}
			return d, Outcome{Exhausted, reason}, nil
		}
	}
}

// limits are the budget as it is now.
func (a *Agent) limits() task.Limits {
	if a.cfg.Raised != nil {
		return a.cfg.Raised()
	}
	return a.cfg.Limits
}

// exceeded checks the most that a call with this input and output can add: all of the input
// may be counted in any one of its three classes, at that class's price.
func (a *Agent) exceeded(spent task.Spent, input, output int64) (task.Meter, bool) {
	price := a.cfg.Model.Info().Price
	for _, t := range []task.Tokens{
		{Input: input, Output: output}, {CacheRead: input, Output: output}, {CacheWrite: input, Output: output},
	} {
		worst := task.Spent{Steps: 1, Tokens: t, Cost: price.Cost(t)}
		if m, over := a.limits().Exceeded(spent, worst); over {
			return m, true
		}
	}
	return task.Meter{}, false
}

// estimate is an upper estimate of the input tokens of a request whose JSON form has size
// bytes: what the provider counted for the request before, plus one token per 3 bytes added.
func (a *Agent) estimate(size int) int64 {
	if a.conv.asked > 0 && a.conv.sent > 0 && size >= a.conv.sent {
		return a.conv.asked + int64(size-a.conv.sent+2)/3 + 16
	}
	if size == 0 {
		return a.conv.asked
	}
	return int64(size+2) / 3
}

// compactIfLarge drops the oldest whole exchanges when the conversation nears the model's
// context, or at once when force is set. It returns the request that is next.
func (a *Agent) compactIfLarge(ctx context.Context, force bool) (draft, error) {
	limit := int64(a.cfg.Context)
	if limit == 0 {
		limit = int64(a.cfg.Model.Info().Context)
	}
	if limit == 0 {
		limit = defaultContext
	}
	d, err := a.draft()
	if err != nil {
		return d, err
	}
	size := int64(len(d.body))
	before := a.estimate(len(d.body))
	room := limit - int64(a.cfg.MaxOutput) - limit/20
	if before < room && !force {
		return d, nil
	}
	keep := room / 2
	drop := a.conv.droppable(before, keep, size)
	if drop == 0 {
		return d, &task.Error{Class: task.Invalid, Msg: "the conversation no longer fits the model's context and nothing more can be dropped", Fix: "use a model with a larger context"}
	}
	e := a.conv.compaction(drop)
	e.Before = before
	e.After = max(before-a.conv.sizeOf(drop)*before/size, 0)
	if err := a.append(ctx, e); err != nil {
		return d, err
	}
	return a.draft()
}

// defaultContext is assumed when neither the operator nor the catalogue knows the model's.
const defaultContext = 128_000

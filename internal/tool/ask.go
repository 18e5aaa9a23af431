package tool

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/model"
)

//go:embed ask.md
var askText string

// ask puts one question to people.
type ask struct {
	schema
	most int
}

// NewAsk returns the tool for a task in which at most so many questions may be asked. It is no part
// of [Standard]: only where somebody can answer is the model told of it. With 0 it answers a model
// that was told of it elsewhere.
func NewAsk(most int) Tool {
	return ask{schema{
		{name: "question", kind: "string", required: true, max: maxProse, about: "one question, for somebody who has not read along"},
		{name: "tried", kind: "string", required: true, max: maxProse, about: "what you looked at and ran to find out, with results"},
	}, most}
}

func (t ask) Spec() model.ToolSpec {
	return model.ToolSpec{Name: "ask", Schema: t.JSON(), Description: describe(askText, map[string]any{"most": t.most})}
}

func (t ask) Call(ctx context.Context, env *Env, input json.RawMessage) (Result, error) {
	var in AskRequest
	if problem := t.decode("ask", input, &in); problem != "" {
		return failed(problem), nil
	}
	in.Question, in.Tried = strings.TrimSpace(in.Question), strings.TrimSpace(in.Tried)
	if in.Question == "" || in.Tried == "" {
		return failed("ask: question and tried must each say something."), nil
	}
	return env.Harness.Ask(ctx, in)
}

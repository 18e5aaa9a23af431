package tool

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/model"
)

//go:embed decline.md
var declineText string

// decline ends the task with an honest no.
type decline struct{ schema }

func newDecline() Tool {
	return decline{schema{
		{name: "kind", kind: "string", required: true, enum: []string{"cannot_reproduce", "needs_information", "out_of_scope", "already_fixed", "too_risky"}},
		{name: "reason", kind: "string", required: true, max: maxProse, about: "why, for the person who filed the issue"},
		{name: "tried", kind: "string", required: true, max: maxProse, about: "what you looked at and ran, with results"},
	}}
}

func (t decline) Spec() model.ToolSpec {
	return model.ToolSpec{Name: "decline", Schema: t.JSON(), Description: describe(declineText, nil)}
}

func (t decline) Call(ctx context.Context, env *Env, input json.RawMessage) (Result, error) {
	var in DeclineRequest
	if problem := t.decode("decline", input, &in); problem != "" {
		return failed(problem), nil
	}
	in.Reason, in.Tried = strings.TrimSpace(in.Reason), strings.TrimSpace(in.Tried)
	if in.Reason == "" || in.Tried == "" {
		return failed("decline: reason and tried must each say something."), nil
	}
	return env.Harness.Decline(ctx, in)
}

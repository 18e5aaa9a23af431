package tool

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/model"
)

//go:embed submit.md
var submitText string

// submit asks the harness for the verdict.
type submit struct{ schema }

func newSubmit() Tool {
	return submit{schema{
		{name: "title", kind: "string", required: true, max: maxTitle, about: "one line, for the pull request"},
		{name: "cause", kind: "string", required: true, max: maxProse, about: "why the bug happened"},
		{name: "fix", kind: "string", required: true, max: maxProse, about: "what the change does, and why this way"},
		{name: "tests", kind: "strings", required: true, items: maxTests, max: maxTestID, about: "ids of the tests that reproduce the bug"},
	}}
}

func (t submit) Spec() model.ToolSpec {
	return model.ToolSpec{Name: "submit", Schema: t.JSON(), Description: describe(submitText, nil)}
}

func (t submit) Call(ctx context.Context, env *Env, input json.RawMessage) (Result, error) {
	var in SubmitRequest
	if problem := t.decode("submit", input, &in); problem != "" {
		return failed(problem), nil
	}
	in.Title, in.Cause, in.Fix = strings.TrimSpace(in.Title), strings.TrimSpace(in.Cause), strings.TrimSpace(in.Fix)
	switch {
	case in.Title == "" || in.Cause == "" || in.Fix == "":
		return failed("submit: title, cause and fix must each say something."), nil
	case strings.ContainsAny(in.Title, "\r\n"):
		return failed("submit: the title must be one line."), nil
	}
	return env.Harness.Submit(ctx, in)
}

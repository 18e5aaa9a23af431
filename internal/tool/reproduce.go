package tool

import (
	"context"
	_ "embed"
	"encoding/json"

	"github.com/daybreak-agent/daybreak/internal/model"
)

//go:embed reproduce.md
var reproduceText string

const (
	maxTests  = 20
	maxTestID = 500
	maxProse  = 8_000
	maxTitle  = 120
)

// reproduce asks the harness to run the tests that show the bug on the base.
type reproduce struct{ schema }

func newReproduce() Tool {
	return reproduce{schema{
		{name: "tests", kind: "strings", required: true, items: maxTests, max: maxTestID, about: "ids, as the test runner prints them"},
		{name: "files", kind: "strings", required: true, items: maxTests, max: maxPath, about: "paths of the test files"},
	}}
}

func (t reproduce) Spec() model.ToolSpec {
	return model.ToolSpec{Name: "reproduce", Schema: t.JSON(), Description: describe(reproduceText, nil)}
}

func (t reproduce) Call(ctx context.Context, env *Env, input json.RawMessage) (Result, error) {
	var in ReproduceRequest
	if problem := t.decode("reproduce", input, &in); problem != "" {
		return failed(problem), nil
	}
	for i, f := range in.Files {
		in.Files[i] = key(f)
	}
	return env.Harness.Reproduce(ctx, in)
}

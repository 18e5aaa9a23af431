package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/model"
)

// Registry is a fixed set of tools, in the order of their names.
type Registry struct {
	tools []Tool
	specs []model.ToolSpec
}

// NewRegistry returns a registry of the given tools, or of [Standard] when none is given.
func NewRegistry(tools ...Tool) *Registry {
	if len(tools) == 0 {
		tools = Standard()
	}
	r := &Registry{tools: slices.Clone(tools)}
	slices.SortFunc(r.tools, func(a, b Tool) int { return strings.Compare(a.Spec().Name, b.Spec().Name) })
	for _, t := range r.tools {
		r.specs = append(r.specs, t.Spec())
	}
	return r
}

// Standard returns the tools of an agent at work on an issue.
func Standard() []Tool {
	return []Tool{newDecline(), newEdit(), newRead(), newReproduce(), newRun(), newSearch(), newSubmit(), newSymbols(), newWrite()}
}

// Specs returns what the model is told, sorted by name and equal from call to call.
func (r *Registry) Specs() []model.ToolSpec { return slices.Clone(r.specs) }

// Names returns the tools' names, sorted.
func (r *Registry) Names() []string {
	var out []string
	for _, s := range r.specs {
		out = append(out, s.Name)
	}
	return out
}

// Call runs a tool. A name that is none is an error result, as bad input is. Calls that share
// an env must not overlap.
func (r *Registry) Call(ctx context.Context, env *Env, name string, input json.RawMessage) (Result, error) {
	for i, s := range r.specs {
		if s.Name == name {
			return r.tools[i].Call(ctx, env, input)
		}
	}
	return failed(fmt.Sprintf("There is no tool %q. The tools are: %s.", clip(name, 40), strings.Join(r.Names(), ", "))), nil
}

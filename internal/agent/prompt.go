package agent

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/model"
)

//go:embed prompt/system.md
var systemText string

//go:embed prompt/task.md
var taskText string

// PromptInput is what the first message tells the model. Everything in it is known before the
// first call and recorded; nothing in it depends on the time of day.
type PromptInput struct {
	WorkDir  string
	Issue    string // framed as data by the policy package
	Repo     string // name for people
	Base     string // commit id
	Guidance string // AGENTS.md of the base commit, framed as data; may be empty
	Suite    string // how the suite is run and how it stands on the base, one or more lines
	Notes    []string
}

// BuildPrefix renders the prompt. Tools must be sorted already.
func BuildPrefix(in PromptInput, tools []model.ToolSpec) (Prefix, error) {
	suite := in.Suite
	for _, n := range in.Notes {
		suite += "\nNote: " + n
	}
	guidance := ""
	if in.Guidance != "" {
		guidance = "\n# Guidance for contributors, from the repository\n\n" + in.Guidance + "\n"
	}
	values := map[string]string{
		"workdir": in.WorkDir, "repo": in.Repo, "base": in.Base, "suite": suite, "guidance": guidance, "issue": in.Issue,
	}
	system, err := render("system", systemText, values)
	if err != nil {
		return Prefix{}, err
	}
	first, err := render("task", taskText, values)
	if err != nil {
		return Prefix{}, err
	}
	return Prefix{System: system, Tools: tools, First: userText(first)}, nil
}

// render puts values in the places of a text that are written {{name}}. What a value holds is
// never looked at again, so an issue cannot speak in placeholders. text/template is not used:
// linking it keeps every method of every type in the program, a third of its size.
func render(name, text string, values map[string]string) (string, error) {
	var b strings.Builder
	for {
		before, rest, open := strings.Cut(text, "{{")
		b.WriteString(before)
		if !open {
			return strings.TrimSpace(b.String()) + "\n", nil
		}
		key, after, closed := strings.Cut(rest, "}}")
		v, known := values[key]
		if !closed || !known {
			return "", fmt.Errorf("prompt %s: {{%.20s}} is not a known place", name, key)
		}
		b.WriteString(v)
		text = after
	}
}

// Frozen makes the event that stores the prefix. text is the spilled JSON of it.
func (p Prefix) Frozen(text event.Text) (event.PromptFrozen, error) {
	b, err := p.Encode()
	return event.PromptFrozen{Prefix: text, Hash: hash([]byte(b))}, err
}

// Encode returns the prefix as JSON.
func (p Prefix) Encode() (string, error) {
	b, err := json.Marshal(p)
	return string(b), err
}

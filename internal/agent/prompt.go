package agent

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"text/template"

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
	system, err := render("system", systemText, in)
	if err != nil {
		return Prefix{}, err
	}
	first, err := render("task", taskText, in)
	if err != nil {
		return Prefix{}, err
	}
	return Prefix{System: system, Tools: tools, First: userText(first)}, nil
}

func render(name, text string, data any) (string, error) {
	t, err := template.New(name).Option("missingkey=error").Parse(text)
	if err != nil {
		return "", fmt.Errorf("prompt %s: %w", name, err)
	}
	var b strings.Builder
	if err := t.Execute(&b, data); err != nil {
		return "", fmt.Errorf("prompt %s: %w", name, err)
	}
	return strings.TrimSpace(b.String()) + "\n", nil
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

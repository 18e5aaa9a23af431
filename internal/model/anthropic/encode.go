package anthropic

import (
	"encoding/json"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/model/wire"
)

// The types of this file are the request of the Messages API
// (https://docs.anthropic.com/en/api/messages). The SDK's own parameter types marshal each
// level of nesting again, which costs a multiple on long conversations, and put the messages
// before the tools; these put what is stable first.
type request struct {
	Model     string    `json:"model"`
	MaxTokens int       `json:"max_tokens"`
	Stream    bool      `json:"stream"`
	Thinking  *thinking `json:"thinking,omitempty"`
	Output    *output   `json:"output_config,omitempty"`
	Tools     []tool    `json:"tools,omitempty"`
	System    []part    `json:"system,omitempty"`
	Messages  []message `json:"messages"`
}

type thinking struct {
	Type   string `json:"type"`
	Budget int    `json:"budget_tokens,omitempty"`
}

type output struct {
	Effort string `json:"effort"`
}

type cache struct {
	Type string `json:"type"`
}

type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"input_schema"`
	Cache       *cache          `json:"cache_control,omitempty"`
}

type message struct {
	Role    string `json:"role"`
	Content []part `json:"content"`
}

type part struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Thinking  *string         `json:"thinking,omitempty"`
	Signature string          `json:"signature,omitempty"`
	Data      string          `json:"data,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   string          `json:"content,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
	Cache     *cache          `json:"cache_control,omitempty"`
}

// minThinking is the smallest thinking budget the API takes.
const minThinking = 1024

// encode builds the body. Breakpoints, at most four: the last tool, the system text, and the
// last block of the last two user messages; the older of those is where the request before
// this one wrote its cache entry.
func (c *client) encode(req model.Request) ([]byte, error) {
	r := request{Model: c.cfg.Model, MaxTokens: req.MaxOutput, Stream: true}
	if req.Thinking > 0 {
		if c.cfg.Adaptive {
			r.Thinking, r.Output = &thinking{Type: "adaptive"}, &output{Effort: effort(req.Thinking)}
		} else if req.MaxOutput > minThinking {
			// The API counts thinking as output and wants room for more than that.
			r.Thinking = &thinking{Type: "enabled", Budget: min(max(req.Thinking, minThinking), req.MaxOutput-1)}
		}
	}
	for _, t := range req.Tools {
		r.Tools = append(r.Tools, tool{Name: t.Name, Description: t.Description, Schema: t.Schema})
	}
	ephemeral := &cache{Type: "ephemeral"}
	if n := len(r.Tools); n > 0 {
		r.Tools[n-1].Cache = ephemeral
	}
	if req.System != "" {
		r.System = []part{{Type: "text", Text: req.System, Cache: ephemeral}}
	}
	r.Messages = make([]message, 0, len(req.Messages))
	for _, m := range req.Messages {
		if parts := encodeBlocks(m); len(parts) > 0 {
			r.Messages = append(r.Messages, message{Role: string(m.Role), Content: parts})
		}
	}
	marks := 2
	for i := len(r.Messages) - 1; i >= 0 && marks > 0; i-- {
		if r.Messages[i].Role == string(model.User) {
			content := r.Messages[i].Content
			content[len(content)-1].Cache = ephemeral
			marks--
		}
	}
	return wire.Encode(r)
}

// encodeBlocks leaves out what the API refuses: empty texts, and thinking that some other
// provider wrote.
func encodeBlocks(m model.Message) []part {
	parts := make([]part, 0, len(m.Blocks))
	for _, b := range m.Blocks {
		switch b.Type {
		case model.TextBlock:
			if b.Text != "" {
				parts = append(parts, part{Type: "text", Text: b.Text})
			}
		case model.ThinkingBlock:
			if b.Signature != "" {
				parts = append(parts, part{Type: "thinking", Thinking: &b.Text, Signature: b.Signature})
			}
		case model.RedactedBlock:
			if b.Data != "" {
				parts = append(parts, part{Type: "redacted_thinking", Data: b.Data})
			}
		case model.ToolUseBlock:
			input := b.Input
			if b.BadInput != "" || len(input) == 0 {
				input = json.RawMessage("{}")
			}
			parts = append(parts, part{Type: "tool_use", ID: b.ID, Name: b.Name, Input: input})
		case model.ToolResultBlock:
			parts = append(parts, part{Type: "tool_result", ToolUseID: b.ID, Content: b.Text, IsError: b.IsError})
		}
	}
	return parts
}

// effort maps a token budget to the levels that models with adaptive thinking take.
func effort(budget int) string {
	switch {
	case budget <= 4096:
		return "low"
	case budget <= 16384:
		return "medium"
	}
	return "high"
}

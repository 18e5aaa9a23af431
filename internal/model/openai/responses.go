package openai

import (
	"encoding/json"
	"strings"

	"github.com/openai/openai-go/v3/responses"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/model/wire"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// responsesRequest is the body of POST /responses
// (https://platform.openai.com/docs/api-reference/responses/create), what is stable first.
type responsesRequest struct {
	Model        string     `json:"model"`
	MaxOutput    int        `json:"max_output_tokens"`
	Stream       bool       `json:"stream"`
	Store        bool       `json:"store"`
	CacheKey     string     `json:"prompt_cache_key,omitempty"`
	Include      []string   `json:"include,omitempty"`
	Reasoning    *reasoning `json:"reasoning,omitempty"`
	Instructions string     `json:"instructions,omitempty"`
	Tools        []tool     `json:"tools,omitempty"`
	Input        []item     `json:"input"`
}

type reasoning struct {
	Effort  string `json:"effort"`
	Summary string `json:"summary"`
}

type tool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      bool            `json:"strict"`
}

type item struct {
	Type      string  `json:"type"`
	ID        string  `json:"id,omitempty"`
	Role      string  `json:"role,omitempty"`
	Status    string  `json:"status,omitempty"`
	Content   []text  `json:"content,omitempty"`
	CallID    string  `json:"call_id,omitempty"`
	Name      string  `json:"name,omitempty"`
	Arguments *string `json:"arguments,omitempty"`
	Output    *string `json:"output,omitempty"`
	Encrypted string  `json:"encrypted_content,omitempty"`
	Summary   *[]text `json:"summary,omitempty"`
}

type text struct {
	Type        string    `json:"type"`
	Text        string    `json:"text"`
	Annotations *[]string `json:"annotations,omitempty"`
}

const encryptedReasoning = "reasoning.encrypted_content"

func (c *client) encodeResponses(req model.Request) ([]byte, error) {
	r := responsesRequest{Model: c.cfg.Model, MaxOutput: req.MaxOutput, Stream: true, CacheKey: req.CacheKey, Instructions: req.System}
	if req.Thinking > 0 {
		r.Reasoning = &reasoning{Effort: effort(req.Thinking), Summary: "auto"}
	}
	if req.Thinking > 0 || c.cfg.Reasoning {
		r.Include = []string{encryptedReasoning}
	}
	for _, t := range req.Tools {
		r.Tools = append(r.Tools, tool{Type: "function", Name: t.Name, Description: t.Description, Parameters: t.Schema})
	}
	r.Input = make([]item, 0, 2*len(req.Messages))
	for _, m := range req.Messages {
		for _, b := range m.Blocks {
			r.Input = appendItem(r.Input, m.Role, b)
		}
	}
	return wire.Encode(r)
}

func appendItem(items []item, role model.Role, b model.Block) []item {
	switch b.Type {
	case model.TextBlock:
		if b.Text == "" {
			return items
		}
		if role == model.User {
			return append(items, item{Type: "message", Role: "user", Content: []text{{Type: "input_text", Text: b.Text}}})
		}
		part := text{Type: "output_text", Text: b.Text, Annotations: &[]string{}}
		if n := len(items); b.ID != "" && n > 0 && items[n-1].ID == b.ID { // one item of several parts
			items[n-1].Content = append(items[n-1].Content, part)
			return items
		}
		return append(items, item{Type: "message", ID: b.ID, Role: "assistant", Status: "completed", Content: []text{part}})
	case model.ThinkingBlock:
		if b.Data == "" {
			return items // another provider's, or not encrypted: the API could not read it
		}
		summary := []text{}
		if b.Text != "" {
			summary = append(summary, text{Type: "summary_text", Text: b.Text})
		}
		return append(items, item{Type: "reasoning", ID: b.ID, Encrypted: b.Data, Summary: &summary})
	case model.ToolUseBlock:
		return append(items, item{Type: "function_call", CallID: b.ID, Name: b.Name, Arguments: arguments(b)})
	case model.ToolResultBlock:
		out := resultText(b)
		return append(items, item{Type: "function_call_output", CallID: b.ID, Output: &out})
	}
	return items
}

func arguments(b model.Block) *string {
	s := string(b.Input)
	if b.BadInput != "" || s == "" {
		s = "{}"
	}
	return &s
}

// responsesReader takes the record from the finished items, and deltas for display only.
type responsesReader struct {
	client   *client
	response model.Response
	refused  bool
	status   string
	reason   string
}

func (r *responsesReader) complete() bool { return r.status != "" }

func (r *responsesReader) event(e responses.ResponseStreamEventUnion) ([]model.Delta, error) {
	switch e.Type {
	case "response.output_text.delta", "response.refusal.delta":
		if e.Delta != "" {
			return []model.Delta{{Text: e.Delta}}, nil
		}
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		if e.Delta != "" {
			return []model.Delta{{Thinking: e.Delta}}, nil
		}
	case "response.output_item.added":
		if e.Item.Type == "function_call" {
			return []model.Delta{{Tool: e.Item.Name}}, nil
		}
	case "response.output_item.done":
		r.item(e.Item)
	case "response.completed", "response.incomplete":
		r.status = string(e.Response.Status)
		if r.status == "" {
			r.status = strings.TrimPrefix(e.Type, "response.")
		}
		r.reason = e.Response.IncompleteDetails.Reason
		r.response.ID, r.response.Model = e.Response.ID, string(e.Response.Model)
		u := e.Response.Usage
		in := u.InputTokensDetails
		r.response.Tokens = task.Tokens{Input: max(0, u.InputTokens-in.CachedTokens-in.CacheWriteTokens), Output: u.OutputTokens, CacheRead: in.CachedTokens, CacheWrite: in.CacheWriteTokens}
		t := r.response.Tokens
		return []model.Delta{{Usage: &t}}, nil
	case "response.failed":
		f := wire.Failure{
			Provider: r.client.cfg.Provider, Model: r.client.cfg.Model, Status: 200, Code: string(e.Response.Error.Code),
			Message: e.Response.Error.Message, Secret: r.client.cfg.APIKey,
		}
		return nil, wire.Classify(f)
	case "error":
		return nil, r.client.streamed([]byte(e.RawJSON()))
	}
	return nil, nil
}

func (r *responsesReader) item(it responses.ResponseOutputItemUnion) {
	blocks := &r.response.Message.Blocks
	switch it.Type {
	case "message":
		for _, p := range it.Content {
			s := p.Text
			if p.Type == "refusal" {
				s, r.refused = p.Refusal, true
			}
			if s != "" {
				*blocks = append(*blocks, model.Block{Type: model.TextBlock, Text: s, ID: it.ID})
			}
		}
	case "reasoning":
		var parts []string
		for _, s := range it.Summary {
			parts = append(parts, s.Text)
		}
		*blocks = append(*blocks, model.Block{Type: model.ThinkingBlock, ID: it.ID, Text: strings.Join(parts, "\n\n"), Data: it.EncryptedContent})
	case "function_call":
		b := model.Block{Type: model.ToolUseBlock, ID: it.CallID, Name: it.Name}
		b.Input, b.BadInput = wire.Object(it.Arguments.OfString)
		*blocks = append(*blocks, b)
	}
}

func (r *responsesReader) finish() *model.Response {
	out := r.response
	out.Message.Role = model.Assistant
	switch {
	case r.status == "incomplete" && r.reason == "max_output_tokens":
		out.Stop = model.StopMaxTokens
	case r.status == "incomplete" && r.reason == "content_filter", r.refused:
		out.Stop = model.StopRefusal
	case r.status == "incomplete":
		out.Stop = model.StopOther
	case r.status != "completed":
		return nil
	case len(out.Message.Calls()) > 0:
		out.Stop = model.StopToolUse
	default:
		out.Stop = model.StopEndTurn
	}
	return &out
}

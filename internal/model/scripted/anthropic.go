package scripted

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
)

// anthropicDialect is the Messages API, https://docs.anthropic.com/en/api/messages.
type anthropicDialect struct{}

type anthropicRequest struct {
	Model     string          `json:"model"`
	MaxTokens *int            `json:"max_tokens"`
	Stream    bool            `json:"stream"`
	System    json.RawMessage `json:"system"`
	Thinking  *struct {
		Type   string `json:"type"`
		Budget int    `json:"budget_tokens"`
	} `json:"thinking"`
	Tools []struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"input_schema"`
		Cache       *struct{}       `json:"cache_control"`
	} `json:"tools"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
}

type anthropicBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
	Cache     *struct{}       `json:"cache_control"`
}

// blocks reads a content that is a string or a list of blocks.
func blocks(raw json.RawMessage) ([]anthropicBlock, bool) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return []anthropicBlock{{Type: "text", Text: s}}, true
	}
	var list []anthropicBlock
	return list, json.Unmarshal(raw, &list) == nil
}

func (anthropicDialect) parse(s *Server, r *http.Request, body []byte) (*conversation, *apiError) {
	if r.Header.Get("Anthropic-Version") == "" {
		return nil, bad("anthropic-version: header is required")
	}
	var req anthropicRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, bad("the request body is not valid JSON: %v", err)
	}
	counting := strings.HasSuffix(strings.TrimRight(r.URL.Path, "/"), "count_tokens")
	switch {
	case req.Model == "":
		return nil, bad("model: Field required")
	case !counting && req.MaxTokens == nil:
		return nil, bad("max_tokens: Field required")
	case !counting && *req.MaxTokens < 1:
		return nil, bad("max_tokens: Input should be greater than or equal to 1")
	case len(req.Messages) == 0:
		return nil, bad("messages: at least one message is required")
	}
	c := &conversation{model: req.Model, stream: req.Stream}
	if t := req.Thinking; t != nil && t.Type != "disabled" {
		c.thinking = true
		if t.Type == "enabled" && t.Budget < 1024 {
			return nil, bad("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
		}
		if t.Type == "enabled" && !counting && t.Budget >= *req.MaxTokens {
			return nil, bad("`max_tokens` must be greater than `thinking.budget_tokens`")
		}
	}
	if e := c.anthropicPrefix(req); e != nil {
		return nil, e
	}
	for i, m := range req.Messages {
		if e := s.anthropicMessage(c, i, m.Role, m.Content); e != nil {
			return nil, e
		}
	}
	marks := 0
	for _, seg := range c.segments {
		if seg.mark {
			marks++
		}
	}
	if marks > 4 {
		return nil, bad("A maximum of 4 blocks with cache_control may be provided. Found %d.", marks)
	}
	return c, s.anthropicOrder(c)
}

func (c *conversation) anthropicPrefix(req anthropicRequest) *apiError {
	seen := map[string]bool{}
	for i, t := range req.Tools {
		if t.Name == "" || len(t.Schema) == 0 || bytes.TrimSpace(t.Schema)[0] != '{' {
			return bad("tools.%d: name and input_schema are required", i)
		}
		if seen[t.Name] {
			return bad("tools: Tool names must be unique.")
		}
		seen[t.Name] = true
		c.segment(t.Cache != nil, t.Name, t.Description, string(t.Schema))
	}
	if len(req.System) > 0 && string(req.System) != "null" {
		list, ok := blocks(req.System)
		if !ok {
			return bad("system: Input should be a string or a list of text blocks")
		}
		for _, b := range list {
			if b.Type != "text" || b.Text == "" {
				return bad("system: text content blocks must be non-empty")
			}
			c.system += b.Text
			c.segment(b.Cache != nil, b.Text)
		}
	}
	return nil
}

func (c *conversation) segment(mark bool, fields ...string) {
	c.segments = append(c.segments, segment{data: []byte(strings.Join(fields, "\x00") + "\x00"), mark: mark})
}

func (s *Server) anthropicMessage(c *conversation, i int, role string, content json.RawMessage) *apiError {
	switch {
	case role != "user" && role != "assistant":
		return bad("messages.%d.role: Input should be 'user' or 'assistant'", i)
	case i == 0 && role != "user":
		return bad("messages: first message must use the \"user\" role")
	case i > 0 && c.messages[i-1].role == role:
		return bad("messages: roles must alternate between \"user\" and \"assistant\", but found multiple %q roles in a row", role)
	}
	list, ok := blocks(content)
	if !ok {
		return bad("messages.%d.content: Input should be a string or a list of blocks", i)
	}
	if len(list) == 0 {
		return bad("messages.%d: all messages must have non-empty content", i)
	}
	m := message{role: role}
	for j, b := range list {
		p := part{kind: b.Type, text: b.Text, isError: b.IsError}
		switch b.Type {
		case "text":
			if b.Text == "" {
				return bad("messages.%d.content.%d: text content blocks must be non-empty", i, j)
			}
		case "thinking":
			p.text, p.sig = b.Thinking, b.Signature
			if n := stamped(b.Signature); role != "assistant" || n < 1 || b.Signature != signature(n-1, b.Thinking) {
				return bad("messages.%d.content.%d: Invalid `signature` in `thinking` block", i, j)
			}
		case "redacted_thinking":
			p.text = b.Data
		case "tool_use":
			p.id, p.name = b.ID, b.Name
			if role != "assistant" || b.ID == "" || b.Name == "" || len(b.Input) == 0 || b.Input[0] != '{' {
				return bad("messages.%d.content.%d.tool_use.input: Input should be a valid dictionary", i, j)
			}
		case "tool_result":
			p.id, p.text = b.ToolUseID, resultText(b.Content)
			if role != "user" {
				return bad("messages.%d: `tool_result` blocks can only be in `user` messages", i)
			}
		default:
			return bad("messages.%d.content.%d.type: Input tag %q is not supported", i, j, b.Type)
		}
		m.parts = append(m.parts, p)
		c.segment(b.Cache != nil, role, b.Type, p.text, p.sig, p.id, p.name, string(b.Input), boolText(p.isError))
	}
	c.messages = append(c.messages, m)
	return nil
}

func boolText(b bool) string {
	if b {
		return "1"
	}
	return ""
}

// resultText reads a tool result's content: a string or text blocks.
func resultText(raw json.RawMessage) string {
	list, _ := blocks(raw)
	var texts []string
	for _, b := range list {
		texts = append(texts, b.Text)
	}
	return strings.Join(texts, "\n")
}

// anthropicOrder checks what spans messages: calls and results pair up, results come first,
// and a turn that began with thinking goes back with it.
func (s *Server) anthropicOrder(c *conversation) *apiError {
	asked := map[string]bool{}
	for i, m := range c.messages {
		if m.role == "assistant" {
			clear(asked)
			for _, p := range m.parts {
				if p.kind == "tool_use" {
					asked[p.id] = true
				}
			}
			if len(asked) > 0 && i == len(c.messages)-1 {
				return unanswered(i, asked)
			}
			continue
		}
		text := false
		for j, p := range m.parts {
			if p.kind != "tool_result" {
				text = true
				continue
			}
			if !asked[p.id] {
				return bad("messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", i, j, p.id)
			}
			if text {
				return bad("messages.%d: `tool_result` blocks must come before any other content", i)
			}
			delete(asked, p.id)
		}
		if len(asked) > 0 {
			return unanswered(i-1, asked)
		}
	}
	i := c.last()
	if i < 0 || !c.thinking {
		return nil
	}
	m := c.messages[i]
	n := m.turn()
	if n < 1 || n > len(s.script.Turns) || s.script.Turns[n-1].Thinking == "" || m.parts[0].kind == "thinking" || m.parts[0].kind == "redacted_thinking" {
		return nil
	}
	for _, p := range m.parts {
		if p.kind == "tool_use" {
			return bad("messages.%d.content.0.type: Expected `thinking` or `redacted_thinking`, but found `%s`. When `thinking` is enabled, a final `assistant` message must start with a thinking block.", i, m.parts[0].kind)
		}
	}
	return nil
}

func unanswered(i int, asked map[string]bool) *apiError {
	first := ""
	for id := range asked {
		if first == "" || id < first {
			first = id
		}
	}
	return bad("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.", i, first)
}

func (anthropicDialect) usage(s *Server, c *conversation) Usage { return s.cache.marked(c.segments) }

type object = map[string]any

func anthropicUsage(u Usage) object {
	return object{"input_tokens": u.Input, "cache_creation_input_tokens": u.CacheWrite, "cache_read_input_tokens": u.CacheRead, "output_tokens": u.Output}
}

func (anthropicDialect) content(r reply) []object {
	out := []object{}
	if r.thinking != "" {
		out = append(out, object{"type": "thinking", "thinking": r.thinking, "signature": signature(r.turn, r.thinking)})
	}
	if r.text != "" {
		out = append(out, object{"type": "text", "text": r.text})
	}
	for _, c := range r.calls {
		out = append(out, object{"type": "tool_use", "id": "toolu_" + c.id, "name": c.name, "input": json.RawMessage(c.args)})
	}
	return out
}

func (d anthropicDialect) whole(c *conversation, r reply) any {
	content := d.content(r)
	for _, b := range content {
		if raw, ok := b["input"].(json.RawMessage); ok && !json.Valid(raw) {
			b["input"] = object{} // the real API cannot answer with broken JSON here either
		}
	}
	return object{
		"id": "msg_" + stamp(r.turn), "type": "message", "role": "assistant", "model": c.model, "content": content,
		"stop_reason": r.stop, "stop_sequence": nil, "usage": anthropicUsage(r.usage),
	}
}

func (d anthropicDialect) events(c *conversation, r reply) []event {
	var out []event
	add := func(name string, o object) {
		o["type"] = name
		out = append(out, event{name, o})
	}
	first := r.usage
	first.Output = 1
	add("message_start", object{"message": object{
		"id": "msg_" + stamp(r.turn), "type": "message", "role": "assistant", "model": c.model,
		"content": []any{}, "stop_reason": nil, "stop_sequence": nil, "usage": anthropicUsage(first),
	}})
	for i, b := range d.content(r) {
		delta := func(kind, key, value string) {
			add("content_block_delta", object{"index": i, "delta": object{"type": kind, key: value}})
		}
		start := func(o object) { add("content_block_start", object{"index": i, "content_block": o}) }
		switch b["type"] {
		case "thinking":
			start(object{"type": "thinking", "thinking": "", "signature": ""})
			for _, p := range pieces(r.thinking) {
				delta("thinking_delta", "thinking", p)
			}
			delta("signature_delta", "signature", b["signature"].(string))
		case "text":
			start(object{"type": "text", "text": ""})
			for _, p := range pieces(r.text) {
				delta("text_delta", "text", p)
			}
		case "tool_use":
			start(object{"type": "tool_use", "id": b["id"], "name": b["name"], "input": object{}})
			delta("input_json_delta", "partial_json", "")
			for _, p := range pieces(string(b["input"].(json.RawMessage))) {
				delta("input_json_delta", "partial_json", p)
			}
		}
		if i == 0 {
			add("ping", object{})
		}
		add("content_block_stop", object{"index": i})
	}
	add("message_delta", object{"delta": object{"stop_reason": r.stop, "stop_sequence": nil}, "usage": anthropicUsage(r.usage)})
	add("message_stop", object{})
	return out
}

func (anthropicDialect) fail(w http.ResponseWriter, e *apiError) {
	retryHeader(w, e)
	writeJSON(w, e.status, object{"type": "error", "error": object{"type": e.kind, "message": e.message}, "request_id": "req_scripted"})
}

func (anthropicDialect) failEvent(kind, message string) event {
	if message == "" {
		message = "scripted fault"
	}
	return event{"error", object{"type": "error", "error": object{"type": kind, "message": message}}}
}

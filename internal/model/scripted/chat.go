package scripted

import (
	"encoding/json"
	"net/http"
	"strings"
)

// chatDialect is OpenAI's Chat Completions,
// https://platform.openai.com/docs/api-reference/chat.
type chatDialect struct{ noUsage bool }

type chatRequest struct {
	Model         string `json:"model"`
	Stream        bool   `json:"stream"`
	MaxTokens     *int   `json:"max_tokens"`
	MaxCompletion *int   `json:"max_completion_tokens"`
	Effort        string `json:"reasoning_effort"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Tools    []json.RawMessage `json:"tools"`
	Messages []struct {
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		ToolCallID string          `json:"tool_call_id"`
		ToolCalls  []struct {
			ID       string `json:"id"`
			Function struct {
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"messages"`
}

func (d chatDialect) parse(_ *Server, _ *http.Request, body []byte) (*conversation, *apiError) {
	var req chatRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, bad("We could not parse the JSON body of your request: %v", err)
	}
	switch {
	case req.Model == "":
		return nil, bad("you must provide a model parameter")
	case len(req.Messages) == 0:
		return nil, bad("[] is too short - 'messages'")
	case req.MaxTokens != nil && *req.MaxTokens < 1, req.MaxCompletion != nil && *req.MaxCompletion < 1:
		return nil, bad("max_tokens is too small")
	}
	c := &conversation{model: req.Model, stream: req.Stream, thinking: req.Effort != ""}
	for _, t := range req.Tools {
		c.segment(false, string(t))
	}
	open := map[string]bool{}
	for i, m := range req.Messages {
		text := resultText(m.Content)
		if m.Role != "tool" && len(open) > 0 {
			return nil, bad("An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: %s", firstKey(open))
		}
		switch m.Role {
		case "system", "developer":
			c.system += text
			c.segment(false, "system", text)
			continue
		case "user":
			c.push("user", part{kind: "text", text: text})
		case "assistant":
			if text != "" {
				c.push("assistant", part{kind: "text", text: text})
			}
			if text == "" && len(m.ToolCalls) == 0 {
				return nil, bad("Invalid value for 'content': expected a string, got null. 'messages[%d].content'", i)
			}
			for _, tc := range m.ToolCalls {
				if tc.ID == "" || tc.Function.Name == "" {
					return nil, bad("Missing required parameter: 'messages[%d].tool_calls[].id'", i)
				}
				open[tc.ID] = true
				c.push("assistant", part{kind: "tool_use", id: tc.ID, name: tc.Function.Name, text: tc.Function.Arguments})
				c.segment(false, "call", tc.ID, tc.Function.Name, tc.Function.Arguments)
			}
		case "tool":
			if !open[m.ToolCallID] {
				return nil, bad("messages with role 'tool' must be a response to a preceding message with 'tool_calls' (messages[%d])", i)
			}
			delete(open, m.ToolCallID)
			c.push("user", part{kind: "tool_result", id: m.ToolCallID, text: text, isError: strings.HasPrefix(text, errorMark)})
		default:
			return nil, bad("Invalid value: '%s' for 'messages[%d].role'", m.Role, i)
		}
		c.segment(false, m.Role, text, m.ToolCallID)
	}
	if len(open) > 0 {
		return nil, bad("An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: %s", firstKey(open))
	}
	return c, nil
}

func firstKey(m map[string]bool) string {
	first := ""
	for k := range m {
		if first == "" || k < first {
			first = k
		}
	}
	return first
}

func (chatDialect) usage(s *Server, c *conversation) Usage { return s.cache.prefix(c.segments) }

func chatUsage(u Usage) object {
	in := u.Input + u.CacheRead + u.CacheWrite
	return object{
		"prompt_tokens": in, "completion_tokens": u.Output, "total_tokens": in + u.Output,
		"prompt_tokens_details": object{"cached_tokens": u.CacheRead},
	}
}

func chatFinish(stop string) string {
	switch stop {
	case "tool_use":
		return "tool_calls"
	case "max_tokens":
		return "length"
	case "refusal":
		return "content_filter"
	}
	return "stop"
}

func (d chatDialect) whole(c *conversation, r reply) any {
	msg := object{"role": "assistant", "content": nil}
	if r.text != "" {
		msg["content"] = r.text
	}
	if r.thinking != "" {
		msg["reasoning_content"] = r.thinking
	}
	var calls []object
	for _, tc := range r.calls {
		calls = append(calls, object{"id": "call_" + tc.id, "type": "function", "function": object{"name": tc.name, "arguments": tc.args}})
	}
	if calls != nil {
		msg["tool_calls"] = calls
	}
	o := object{
		"id": "chatcmpl_" + stamp(r.turn), "object": "chat.completion", "created": 0, "model": c.model,
		"choices": []object{{"index": 0, "message": msg, "finish_reason": chatFinish(r.stop)}},
	}
	if !d.noUsage {
		o["usage"] = chatUsage(r.usage)
	}
	return o
}

func (d chatDialect) events(c *conversation, r reply) []event {
	var out []event
	chunk := func(choices []object) object {
		return object{"id": "chatcmpl_" + stamp(r.turn), "object": "chat.completion.chunk", "created": 0, "model": c.model, "choices": choices}
	}
	delta := func(o object) {
		out = append(out, event{"", chunk([]object{{"index": 0, "delta": o, "finish_reason": nil}})})
	}
	delta(object{"role": "assistant", "content": ""})
	for _, p := range pieces(r.thinking) {
		delta(object{"reasoning_content": p})
	}
	for _, p := range pieces(r.text) {
		delta(object{"content": p})
	}
	for i, tc := range r.calls {
		delta(object{"tool_calls": []object{{"index": i, "id": "call_" + tc.id, "type": "function", "function": object{"name": tc.name, "arguments": ""}}}})
		for _, p := range pieces(tc.args) {
			delta(object{"tool_calls": []object{{"index": i, "function": object{"arguments": p}}}})
		}
	}
	out = append(out, event{"", chunk([]object{{"index": 0, "delta": object{}, "finish_reason": chatFinish(r.stop)}})})
	if !d.noUsage {
		last := chunk([]object{})
		last["usage"] = chatUsage(r.usage)
		out = append(out, event{"", last})
	}
	return append(out, event{"", "[DONE]"})
}

func (chatDialect) fail(w http.ResponseWriter, e *apiError) { openaiFail(w, e) }

func (chatDialect) failEvent(kind, message string) event {
	if message == "" {
		message = "scripted fault"
	}
	return event{"", object{"error": object{"type": kind, "code": kind, "message": message}}}
}

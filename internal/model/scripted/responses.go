package scripted

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
)

// responsesDialect is OpenAI's Responses API,
// https://platform.openai.com/docs/api-reference/responses.
type responsesDialect struct{}

type responsesRequest struct {
	Model        string          `json:"model"`
	Stream       bool            `json:"stream"`
	Instructions string          `json:"instructions"`
	Include      []string        `json:"include"`
	MaxOutput    *int            `json:"max_output_tokens"`
	Input        json.RawMessage `json:"input"`
	Reasoning    *struct {
		Effort string `json:"effort"`
	} `json:"reasoning"`
	Tools []json.RawMessage `json:"tools"`
}

type responsesItem struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
	Encrypted string          `json:"encrypted_content"`
}

// errorMark is how clients tell of a failed call: the format has no flag for it.
const errorMark = "Error: "

func seal(index int, thinking string) string {
	return base64.StdEncoding.EncodeToString([]byte(signature(index, thinking)))
}

func (responsesDialect) parse(s *Server, _ *http.Request, body []byte) (*conversation, *apiError) {
	var req responsesRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, bad("We could not parse the JSON body of your request: %v", err)
	}
	if req.Model == "" {
		return nil, bad("Missing required parameter: 'model'.")
	}
	if req.MaxOutput != nil && *req.MaxOutput < 1 {
		return nil, bad("Invalid 'max_output_tokens': integer below minimum value.")
	}
	c := &conversation{model: req.Model, stream: req.Stream, system: req.Instructions, thinking: req.Reasoning != nil}
	for _, t := range req.Tools {
		c.segment(false, string(t))
	}
	if req.Instructions != "" {
		c.segment(false, req.Instructions)
	}
	var items []responsesItem
	var text string
	if json.Unmarshal(req.Input, &text) == nil {
		items = []responsesItem{{Role: "user", Content: req.Input}}
	} else if json.Unmarshal(req.Input, &items) != nil || len(items) == 0 {
		return nil, bad("Missing required parameter: 'input'.")
	}
	open := map[string]bool{}
	var order []string
	for i, it := range items {
		if e := s.responsesItem(c, i, it, open, &order); e != nil {
			return nil, e
		}
		if it.Type == "reasoning" && (i+1 == len(items) || items[i+1].Role == "user" || items[i+1].Type == "function_call_output") {
			return nil, bad("Item '%s' of type 'reasoning' was provided without its required following item.", it.ID)
		}
	}
	for _, id := range order {
		if open[id] {
			return nil, bad("No tool output found for function call %s.", id)
		}
	}
	return c, nil
}

func (s *Server) responsesItem(c *conversation, i int, it responsesItem, open map[string]bool, order *[]string) *apiError {
	p := part{id: it.ID}
	role := "assistant"
	switch it.Type {
	case "", "message":
		if it.Role == "" || len(it.Content) == 0 {
			return bad("Missing required parameter: 'input[%d].content'.", i)
		}
		p.kind, p.text = "text", resultText(it.Content)
		if it.Role != "assistant" {
			role = "user"
		}
	case "reasoning":
		plain, err := base64.StdEncoding.DecodeString(it.Encrypted)
		n := stamped(string(plain))
		if err != nil || n < 1 || n > len(s.script.Turns) || string(plain) != signature(n-1, s.expand(s.script.Turns[n-1].Thinking)) {
			return bad("The encrypted content for item %s could not be verified.", it.ID)
		}
		p.kind, p.sig = "thinking", it.Encrypted
	case "function_call":
		p.kind, p.id, p.name, p.text = "tool_use", it.CallID, it.Name, it.Arguments
		if it.CallID == "" || it.Name == "" {
			return bad("Missing required parameter: 'input[%d].call_id'.", i)
		}
		open[it.CallID] = true
		*order = append(*order, it.CallID)
	case "function_call_output":
		role = "user"
		p.kind, p.id, p.text = "tool_result", it.CallID, resultText(it.Output)
		p.isError = strings.HasPrefix(p.text, errorMark)
		if _, known := open[it.CallID]; !known {
			return bad("No tool call found for function call output with call_id %s.", it.CallID)
		}
		open[it.CallID] = false
	default:
		return bad("Invalid value: '%s' for 'input[%d].type'.", it.Type, i)
	}
	c.push(role, p)
	c.segment(false, role, p.kind, p.text, p.id, p.name, p.sig)
	return nil
}

// push appends a part to the newest message of the role, or begins one.
func (c *conversation) push(role string, p part) {
	if n := len(c.messages); n > 0 && c.messages[n-1].role == role {
		c.messages[n-1].parts = append(c.messages[n-1].parts, p)
		return
	}
	c.messages = append(c.messages, message{role: role, parts: []part{p}})
}

func (responsesDialect) usage(s *Server, c *conversation) Usage { return s.cache.prefix(c.segments) }

func (responsesDialect) items(r reply) []object {
	out := []object{}
	if r.thinking != "" {
		out = append(out, object{
			"type": "reasoning", "id": "rs_" + stamp(r.turn), "encrypted_content": seal(r.turn, r.thinking),
			"summary": []object{{"type": "summary_text", "text": r.thinking}},
		})
	}
	if r.text != "" {
		content := object{"type": "output_text", "text": r.text, "annotations": []any{}}
		if r.stop == "refusal" {
			content = object{"type": "refusal", "refusal": r.text}
		}
		out = append(out, object{"type": "message", "id": "msg_" + stamp(r.turn), "role": "assistant", "status": "completed", "content": []object{content}})
	}
	for _, c := range r.calls {
		out = append(out, object{"type": "function_call", "id": "fc_" + c.id, "call_id": "call_" + c.id, "name": c.name, "arguments": c.args, "status": "completed"})
	}
	return out
}

func (d responsesDialect) whole(c *conversation, r reply) any {
	o := object{
		"id": "resp_" + stamp(r.turn), "object": "response", "created_at": 0, "model": c.model, "status": "completed", "error": nil,
		"incomplete_details": nil, "output": d.items(r), "store": false, "usage": object{
			"input_tokens": r.usage.Input + r.usage.CacheRead + r.usage.CacheWrite, "output_tokens": r.usage.Output,
			"input_tokens_details":  object{"cached_tokens": r.usage.CacheRead, "cache_write_tokens": r.usage.CacheWrite},
			"output_tokens_details": object{"reasoning_tokens": tokens(len(r.thinking))},
			"total_tokens":          r.usage.Input + r.usage.CacheRead + r.usage.CacheWrite + r.usage.Output,
		},
	}
	switch {
	case r.stop == "max_tokens":
		o["status"], o["incomplete_details"] = "incomplete", object{"reason": "max_output_tokens"}
	case r.stop == "refusal" && r.text == "":
		o["status"], o["incomplete_details"] = "incomplete", object{"reason": "content_filter"}
	}
	return o
}

func (d responsesDialect) events(c *conversation, r reply) []event {
	var out []event
	add := func(name string, o object) {
		o["type"], o["sequence_number"] = name, len(out)
		out = append(out, event{name, o})
	}
	add("response.created", object{"response": object{"id": "resp_" + stamp(r.turn), "object": "response", "model": c.model, "status": "in_progress", "output": []any{}}})
	for i, it := range d.items(r) {
		id := it["id"]
		begun := object{"type": it["type"], "id": id, "status": "in_progress"}
		switch it["type"] {
		case "reasoning":
			begun["summary"] = []any{}
			add("response.output_item.added", object{"output_index": i, "item": begun})
			for _, p := range pieces(r.thinking) {
				add("response.reasoning_summary_text.delta", object{"item_id": id, "output_index": i, "summary_index": 0, "delta": p})
			}
		case "message":
			begun["role"], begun["content"] = "assistant", []any{}
			add("response.output_item.added", object{"output_index": i, "item": begun})
			name := "response.output_text.delta"
			if r.stop == "refusal" {
				name = "response.refusal.delta"
			}
			for _, p := range pieces(r.text) {
				add(name, object{"item_id": id, "output_index": i, "content_index": 0, "delta": p})
			}
		case "function_call":
			begun["call_id"], begun["name"], begun["arguments"] = it["call_id"], it["name"], ""
			add("response.output_item.added", object{"output_index": i, "item": begun})
			for _, p := range pieces(it["arguments"].(string)) {
				add("response.function_call_arguments.delta", object{"item_id": id, "output_index": i, "delta": p})
			}
		}
		add("response.output_item.done", object{"output_index": i, "item": it})
	}
	whole := d.whole(c, r).(object)
	add("response."+whole["status"].(string), object{"response": whole})
	return out
}

func (responsesDialect) fail(w http.ResponseWriter, e *apiError) { openaiFail(w, e) }

func openaiFail(w http.ResponseWriter, e *apiError) {
	retryHeader(w, e)
	var code any
	if e.code != "" {
		code = e.code
	}
	writeJSON(w, e.status, object{"error": object{"message": e.message, "type": e.kind, "param": nil, "code": code}})
}

func (responsesDialect) failEvent(kind, message string) event {
	if message == "" {
		message = "scripted fault"
	}
	return event{"error", object{"type": "error", "code": kind, "message": message, "param": nil, "sequence_number": 1}}
}

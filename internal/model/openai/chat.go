package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/openai/openai-go/v3"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/model/wire"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// chatRequest is the body of POST /chat/completions
// (https://platform.openai.com/docs/api-reference/chat/create), what is stable first.
type chatRequest struct {
	Model         string        `json:"model"`
	MaxCompletion int           `json:"max_completion_tokens,omitempty"`
	MaxTokens     int           `json:"max_tokens,omitempty"`
	Stream        bool          `json:"stream"`
	StreamOptions streamOptions `json:"stream_options"`
	Effort        string        `json:"reasoning_effort,omitempty"`
	CacheKey      string        `json:"prompt_cache_key,omitempty"`
	Tools         []chatTool    `json:"tools,omitempty"`
	Messages      []chatMessage `json:"messages"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type chatTool struct {
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
}

type chatMessage struct {
	Role       string     `json:"role"`
	Content    *string    `json:"content"`
	ToolCalls  []chatCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type chatCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string  `json:"name"`
		Arguments *string `json:"arguments"`
	} `json:"function"`
}

func (c *client) encodeChat(req model.Request) ([]byte, error) {
	r := chatRequest{Model: c.cfg.Model, Stream: true, StreamOptions: streamOptions{IncludeUsage: true}}
	if c.compatible { // older servers know only the older name, and refuse what they do not know
		r.MaxTokens = req.MaxOutput
	} else {
		r.MaxCompletion, r.CacheKey = req.MaxOutput, req.CacheKey
	}
	if req.Thinking > 0 {
		r.Effort = effort(req.Thinking)
	}
	for _, t := range req.Tools {
		r.Tools = append(r.Tools, chatTool{Type: "function", Function: chatFunction{Name: t.Name, Description: t.Description, Parameters: t.Schema}})
	}
	r.Messages = make([]chatMessage, 0, 2*len(req.Messages)+1)
	if req.System != "" {
		r.Messages = append(r.Messages, chatMessage{Role: "system", Content: &req.System})
	}
	for _, m := range req.Messages {
		r.Messages = appendChat(r.Messages, m)
	}
	return wire.Encode(r)
}

func appendChat(out []chatMessage, m model.Message) []chatMessage {
	var said []string
	var calls []chatCall
	for _, b := range m.Blocks {
		switch b.Type {
		case model.TextBlock:
			if b.Text != "" {
				said = append(said, b.Text)
			}
		case model.ToolUseBlock:
			call := chatCall{ID: b.ID, Type: "function"}
			call.Function.Name, call.Function.Arguments = b.Name, arguments(b)
			calls = append(calls, call)
		case model.ToolResultBlock: // before any text: results follow their calls
			s := resultText(b)
			out = append(out, chatMessage{Role: "tool", Content: &s, ToolCallID: b.ID})
		}
	}
	if len(said) == 0 && len(calls) == 0 {
		return out
	}
	msg := chatMessage{Role: string(m.Role), ToolCalls: calls}
	if len(said) > 0 {
		s := strings.Join(said, "\n\n")
		msg.Content = &s
	}
	return append(out, msg)
}

// maxCalls bounds what a stream may make us hold: the index of a call is the server's word.
const maxCalls = 256

// chatReader puts a message together from its chunks.
type chatReader struct {
	request  model.Request
	response model.Response
	text     strings.Builder
	thinking strings.Builder
	refusal  bool
	finished string
	usage    bool
	calls    []*chatCallPart
}

type chatCallPart struct {
	index    int64
	id, name string
	args     strings.Builder
}

// complete is never true before the stream's end: usage comes after the finish reason.
func (r *chatReader) complete() bool { return false }

func (r *chatReader) event(e sdk.ChatCompletionChunk) ([]model.Delta, error) {
	var out []model.Delta
	if e.ID != "" {
		r.response.ID = e.ID
	}
	if e.Model != "" {
		r.response.Model = e.Model
	}
	if len(e.Choices) > 0 && e.Choices[0].Index == 0 {
		out = r.choice(e.Choices[0])
	}
	if u := e.Usage; u.PromptTokens > 0 || u.CompletionTokens > 0 {
		r.usage = true
		cached := u.PromptTokensDetails.CachedTokens
		t := task.Tokens{Input: max(0, u.PromptTokens-cached), Output: u.CompletionTokens, CacheRead: cached}
		r.response.Tokens = t
		out = append(out, model.Delta{Usage: &t})
	}
	return out, nil
}

func (r *chatReader) choice(c sdk.ChatCompletionChunkChoice) (out []model.Delta) {
	if s := extra(c.Delta); s != "" {
		r.thinking.WriteString(s)
		out = append(out, model.Delta{Thinking: s})
	}
	if s := c.Delta.Content; s != "" {
		r.text.WriteString(s)
		out = append(out, model.Delta{Text: s})
	}
	if s := c.Delta.Refusal; s != "" {
		r.refusal = true
		r.text.WriteString(s)
		out = append(out, model.Delta{Text: s})
	}
	for _, tc := range c.Delta.ToolCalls {
		p := r.call(tc.Index, tc.ID)
		if p == nil {
			continue
		}
		if tc.ID != "" {
			p.id = tc.ID
		}
		if tc.Function.Name != "" && p.name == "" {
			p.name = tc.Function.Name
			out = append(out, model.Delta{Tool: p.name})
		}
		p.args.WriteString(tc.Function.Arguments)
	}
	if c.FinishReason != "" {
		r.finished = c.FinishReason
	}
	return out
}

// call finds the call a piece belongs to. Some servers send every call whole with index 0:
// a new id begins a new call.
func (r *chatReader) call(index int64, id string) *chatCallPart {
	for i := len(r.calls) - 1; i >= 0; i-- {
		if p := r.calls[i]; p.index == index && (id == "" || p.id == "" || p.id == id) {
			return p
		}
	}
	if len(r.calls) == maxCalls {
		return nil
	}
	p := &chatCallPart{index: index}
	r.calls = append(r.calls, p)
	return p
}

// extra reads the field in which compatible servers stream reasoning. It is shown, and not
// sent back.
func extra(d sdk.ChatCompletionChunkChoiceDelta) string {
	for _, name := range []string{"reasoning_content", "reasoning"} {
		var s string
		if f, ok := d.JSON.ExtraFields[name]; ok && json.Unmarshal([]byte(f.Raw()), &s) == nil && s != "" {
			return s
		}
	}
	return ""
}

func (r *chatReader) finish() *model.Response {
	if r.finished == "" {
		return nil
	}
	out := r.response
	out.Message.Role = model.Assistant
	add := func(b model.Block) { out.Message.Blocks = append(out.Message.Blocks, b) }
	size := r.text.Len() + r.thinking.Len()
	if r.thinking.Len() > 0 {
		add(model.Block{Type: model.ThinkingBlock, Text: r.thinking.String()})
	}
	if r.text.Len() > 0 {
		add(model.Block{Type: model.TextBlock, Text: r.text.String()})
	}
	for i, p := range r.calls {
		if p.id == "" { // not every server names its calls; ours must be unique in the conversation
			p.id = fmt.Sprintf("call_%d_%d", len(r.request.Messages), i)
		}
		b := model.Block{Type: model.ToolUseBlock, ID: p.id, Name: p.name}
		b.Input, b.BadInput = wire.Object(p.args.String())
		size += p.args.Len() + len(p.name)
		add(b)
	}
	switch {
	case r.finished == "length":
		out.Stop = model.StopMaxTokens
	case r.finished == "content_filter" || r.refusal:
		out.Stop = model.StopRefusal
	case len(r.calls) > 0: // some servers end calls with "stop"
		out.Stop = model.StopToolUse
	case r.finished == "stop":
		out.Stop = model.StopEndTurn
	default:
		out.Stop = model.StopOther
	}
	if !r.usage {
		out.Estimated = true
		out.Tokens = task.Tokens{Input: model.EstimateTokens(r.request), Output: int64(size+2)/3 + 1}
	}
	return &out
}

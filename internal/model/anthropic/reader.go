package anthropic

import (
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/model/wire"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// reader folds the events of one stream into a response. Deltas for a block that was never
// opened are ignored: the record holds only what the provider framed properly.
type reader struct {
	response model.Response
	open     *block
	done     bool
}

type block struct {
	index int64
	model.Block
	text strings.Builder
	json strings.Builder
	sig  strings.Builder
}

// event takes one event and returns what is to be shown of it; r.done says it was the last.
func (r *reader) event(e sdk.MessageStreamEventUnion) []model.Delta {
	switch e.Type {
	case "message_start":
		r.response.Message.Role = model.Assistant
		r.response.Model = string(e.Message.Model)
		if r.response.ID == "" {
			r.response.ID = e.Message.ID
		}
		u := e.Message.Usage
		r.response.Tokens = task.Tokens{Input: u.InputTokens, Output: u.OutputTokens, CacheRead: u.CacheReadInputTokens, CacheWrite: u.CacheCreationInputTokens}
		return r.usage()
	case "content_block_start":
		r.close()
		return r.start(e)
	case "content_block_delta":
		return r.delta(e)
	case "content_block_stop":
		r.close()
	case "message_delta":
		r.response.Stop = stopReason(e.Delta.StopReason)
		// Cumulative; the prompt's classes are repeated only by newer models.
		t := &r.response.Tokens
		t.Output = max(t.Output, e.Usage.OutputTokens)
		t.Input = max(t.Input, e.Usage.InputTokens)
		t.CacheRead = max(t.CacheRead, e.Usage.CacheReadInputTokens)
		t.CacheWrite = max(t.CacheWrite, e.Usage.CacheCreationInputTokens)
		return r.usage()
	case "message_stop":
		r.close()
		if r.response.Message.Role == "" || r.response.Stop == "" {
			return nil // no start or no stop reason: the stream will count as cut
		}
		r.done = true
		out := r.response
		return []model.Delta{{Done: &out}}
	}
	return nil
}

func (r *reader) usage() []model.Delta {
	t := r.response.Tokens
	return []model.Delta{{Usage: &t}}
}

func (r *reader) start(e sdk.MessageStreamEventUnion) []model.Delta {
	b := &block{index: e.Index}
	cb := e.ContentBlock
	switch cb.Type {
	case "text":
		b.Type = model.TextBlock
		b.text.WriteString(cb.Text)
	case "thinking":
		b.Type = model.ThinkingBlock
		b.text.WriteString(cb.Thinking)
		b.sig.WriteString(cb.Signature)
	case "redacted_thinking":
		b.Type, b.Data = model.RedactedBlock, cb.Data
	case "tool_use":
		b.Type, b.ID, b.Name = model.ToolUseBlock, cb.ID, cb.Name
		r.open = b
		return []model.Delta{{Tool: cb.Name}}
	default:
		return nil // a server-side tool, which we never ask for
	}
	r.open = b
	return nil
}

func (r *reader) delta(e sdk.MessageStreamEventUnion) []model.Delta {
	b := r.open
	if b == nil || b.index != e.Index {
		return nil
	}
	switch {
	case e.Delta.Type == "text_delta" && b.Type == model.TextBlock && e.Delta.Text != "":
		b.text.WriteString(e.Delta.Text)
		return []model.Delta{{Text: e.Delta.Text}}
	case e.Delta.Type == "thinking_delta" && b.Type == model.ThinkingBlock && e.Delta.Thinking != "":
		b.text.WriteString(e.Delta.Thinking)
		return []model.Delta{{Thinking: e.Delta.Thinking}}
	case e.Delta.Type == "signature_delta" && b.Type == model.ThinkingBlock:
		b.sig.WriteString(e.Delta.Signature)
	case e.Delta.Type == "input_json_delta" && b.Type == model.ToolUseBlock:
		b.json.WriteString(e.Delta.PartialJSON)
	}
	return nil
}

// close files the open block, cut ones too: the stop reason tells that they are.
func (r *reader) close() {
	b := r.open
	if b == nil {
		return
	}
	r.open = nil
	out := b.Block
	switch out.Type {
	case model.TextBlock:
		if out.Text = b.text.String(); out.Text == "" {
			return
		}
	case model.ThinkingBlock:
		out.Text, out.Signature = b.text.String(), b.sig.String()
	case model.ToolUseBlock:
		out.Input, out.BadInput = wire.Object(b.json.String())
	}
	r.response.Message.Blocks = append(r.response.Message.Blocks, out)
}

func stopReason(s sdk.StopReason) model.StopReason {
	switch s {
	case "":
		return ""
	case sdk.StopReasonEndTurn, sdk.StopReasonStopSequence:
		return model.StopEndTurn
	case sdk.StopReasonToolUse:
		return model.StopToolUse
	case sdk.StopReasonMaxTokens, sdk.StopReasonModelContextWindowExceeded:
		return model.StopMaxTokens
	case sdk.StopReasonRefusal:
		return model.StopRefusal
	}
	return model.StopOther
}

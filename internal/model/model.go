// Package model is the seam to language models: messages, tools, usage and one streaming
// call. Adapters live in model/<vendor>, decorators in model/<verb>, the suite that every
// adapter passes in model/modeltest.
//
// Invariants: the package does no I/O; no vendor's type leaks through it; a request is a
// value whose encoding by an adapter depends on nothing else (no clock, no map order), so
// that equal prefixes are equal bytes on the wire; an error of a client is a *task.Error
// whose class decides retries.
package model

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Role says who speaks.
type Role string

// The two roles of a conversation. Tool results are blocks of a user message.
const (
	User      Role = "user"
	Assistant Role = "assistant"
)

// BlockType is the kind of one part of a message.
type BlockType string

// The block types.
const (
	TextBlock       BlockType = "text"
	ThinkingBlock   BlockType = "thinking"          // with Signature where the provider signs it
	RedactedBlock   BlockType = "redacted_thinking" // Data holds the provider's opaque bytes
	ToolUseBlock    BlockType = "tool_use"
	ToolResultBlock BlockType = "tool_result"
)

// Block is one part of a message. Which fields are set depends on Type.
type Block struct {
	Type      BlockType       `json:"type"`
	Text      string          `json:"text,omitempty"`      // text, thinking, tool_result
	Signature string          `json:"signature,omitempty"` // thinking
	Data      string          `json:"data,omitempty"`      // redacted thinking, encrypted reasoning
	ID        string          `json:"id,omitempty"`        // tool_use: the call's id; tool_result: the call it answers; thinking: provider's item id
	Name      string          `json:"name,omitempty"`      // tool_use
	Input     json.RawMessage `json:"input,omitempty"`     // tool_use: a JSON object; see BadInput
	BadInput  string          `json:"bad_input,omitempty"` // tool_use: the raw text when it was no JSON object
	IsError   bool            `json:"is_error,omitempty"`  // tool_result
}

// Message is one turn.
type Message struct {
	Role   Role    `json:"role"`
	Blocks []Block `json:"blocks"`
}

// Calls returns the tool calls of the message in order.
func (m Message) Calls() []Block {
	var out []Block
	for _, b := range m.Blocks {
		if b.Type == ToolUseBlock {
			out = append(out, b)
		}
	}
	return out
}

// Text returns the message's text blocks, joined by blank lines.
func (m Message) Text() string {
	s := ""
	for _, b := range m.Blocks {
		if b.Type == TextBlock && b.Text != "" {
			if s != "" {
				s += "\n\n"
			}
			s += b.Text
		}
	}
	return s
}

// ToolSpec describes a tool to the model. Schema is a JSON Schema object with fixed key
// order.
type ToolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
}

// Request is one call. Adapters put the provider's cache breakpoints after the tools, after
// the system text and on the last message, so the caller must keep the earlier part stable.
type Request struct {
	System    string     `json:"system"`
	Tools     []ToolSpec `json:"tools"` // sorted by name
	Messages  []Message  `json:"messages"`
	MaxOutput int        `json:"max_output"`          // tokens, > 0
	Thinking  int        `json:"thinking,omitempty"`  // token budget for thinking, 0: off; an adapter maps it to the provider's effort levels
	CacheKey  string     `json:"cache_key,omitempty"` // stable per task; routes to the same cache where the provider has such a key
}

// StopReason says why the model stopped.
type StopReason string

// The reasons. A reply that ended with [StopMaxTokens] may hold a cut tool call: it is never
// executed.
const (
	StopEndTurn   StopReason = "end_turn"
	StopToolUse   StopReason = "tool_use"
	StopMaxTokens StopReason = "max_tokens"
	StopRefusal   StopReason = "refusal"
	StopOther     StopReason = "other"
)

// Response is a whole reply: the record.
type Response struct {
	Message   Message
	Stop      StopReason
	Tokens    task.Tokens // of the successful attempt
	Estimated bool        // the provider sent no usage; Tokens is an upper estimate
	ID        string      // provider's request or response id
	Model     string      // the model that answered, as the provider names it

	// Filled by decorators.
	Attempts int           // retry: 1 when the first try worked
	Wasted   task.Tokens   // retry: usage of failed attempts
	Cost     task.MicroUSD // meter: Tokens and Wasted together
	Priced   bool          // meter: false when the catalogue has no price for the model
}

// Delta is one item of a stream. Exactly one field is set. Text and Thinking are for display;
// Usage is cumulative and may come before a failure; Done is the last item of a good stream.
type Delta struct {
	Text     string
	Thinking string
	Tool     string       // name of a tool call that begins
	Usage    *task.Tokens // so far
	Retry    *Retry       // the attempt failed; what was streamed so far is void
	Done     *Response
}

// Retry announces that an attempt failed and another follows.
type Retry struct {
	Attempt int
	After   int64       // milliseconds until the next attempt
	Wasted  task.Tokens // by all attempts so far
	Err     error
}

// Info is what the rest of Daybreak needs to know about a model.
type Info struct {
	Provider  string // "anthropic", "openai", …
	Model     string // as the provider names it
	Context   int    // tokens; 0: unknown
	MaxOutput int    // tokens; 0: unknown
	Price     Price
	Priced    bool
}

// Price is in millionths of a dollar per million tokens, the unit in which catalogue prices
// are whole numbers.
type Price struct {
	Input, Output, CacheRead, CacheWrite int64
}

// Cost prices a count, rounded up to the next millionth of a dollar.
func (p Price) Cost(t task.Tokens) task.MicroUSD {
	sum := t.Input*p.Input + t.Output*p.Output + t.CacheRead*p.CacheRead + t.CacheWrite*p.CacheWrite
	return task.MicroUSD((sum + 999_999) / 1_000_000)
}

// Client calls one model.
type Client interface {
	// Stream sends the request and yields deltas. The sequence ends after Done, or after one
	// error. Breaking out of the loop cancels the call.
	Stream(ctx context.Context, req Request) iter.Seq2[Delta, error]
	Info() Info
}

// FailedError is what a call ends with after its last attempt. Wasted counts all attempts.
type FailedError struct {
	Attempts int
	Wasted   task.Tokens
	Err      error // has a *task.Error in its chain
}

func (e *FailedError) Error() string { return e.Err.Error() }

func (e *FailedError) Unwrap() error { return e.Err }

// Collect drains a stream and returns its record. show, if not nil, is called with every
// delta before Done.
func Collect(seq iter.Seq2[Delta, error], show func(Delta)) (Response, error) {
	for d, err := range seq {
		if err != nil {
			return Response{}, err
		}
		if d.Done != nil {
			return *d.Done, nil
		}
		if show != nil {
			show(d)
		}
	}
	return Response{}, &task.Error{Class: task.Transient, Msg: "the model's stream ended without a final message"}
}

// EstimateTokens is an upper estimate of the input tokens of a request, used to check a
// budget before the call: 1 token per 3 bytes of its JSON form, which no current tokenizer
// exceeds on source code or English.
func EstimateTokens(req Request) int64 {
	b, err := json.Marshal(req)
	if err != nil {
		return 0
	}
	return int64(len(b)+2) / 3
}

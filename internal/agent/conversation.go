package agent

import (
	"encoding/json"
	"fmt"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/model"
)

// Prefix is the part of every request that never changes during a task. It is stored in the
// log once, so that a resumed run sends the same bytes even under a newer build.
type Prefix struct {
	System string           `json:"system"`
	Tools  []model.ToolSpec `json:"tools"`
	First  model.Message    `json:"first"`
}

// Conversation is the fold of a task's log into the messages of the next request. The live
// loop and a resumed one go through the same [Conversation.Apply], so they cannot differ.
type Conversation struct {
	Prefix Prefix
	Step   int // of the newest reply

	messages     []model.Message // after Prefix.First
	tail         []model.Block   // of the user message that the next request will end with
	open         []model.Block   // calls of the newest reply without a result yet
	stuck        stuckWatch
	noticed      map[string]bool // budget meters already announced
	prefixHash   string
	startedCalls map[string]bool
	last         event.ModelResponded
	question     *event.QuestionAsked  // the newest
	unanswered   *event.ModelRequested // a request whose end is not on record
	asked        int64                 // input tokens of the newest request, as the provider counted them
	sent         int                   // len of the JSON of that request, to estimate what was added since
}

// NewConversation returns one with nothing said yet.
func NewConversation() *Conversation {
	return &Conversation{noticed: map[string]bool{}, startedCalls: map[string]bool{}}
}

// Open returns the calls that still need a result, in order.
func (c *Conversation) Open() []model.Block { return c.open }

// Started reports whether the prefix is fixed.
func (c *Conversation) Started() bool { return c.Prefix.System != "" }

// Apply folds one event. load resolves texts that were stored as blobs. Kinds that say
// nothing to the model are ignored.
func (c *Conversation) Apply(e event.Event, load func(event.Text) (string, error)) error {
	p, err := event.Decode(e)
	if err != nil {
		return err
	}
	switch p := p.(type) {
	case *event.PromptFrozen:
		s, err := load(p.Prefix)
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(s), &c.Prefix); err != nil {
			return fmt.Errorf("event %d: prompt prefix: %w", e.Seq, err)
		}
		c.prefixHash = p.Hash
	case *event.ModelRequested:
		c.unanswered = p
	case *event.ModelFailed:
		c.unanswered = nil
	case *event.ModelResponded:
		c.unanswered = nil
		return c.applyReply(e.Seq, p, load)
	case *event.ToolStarted:
		c.startedCalls[p.Call] = true
	case *event.ToolFinished:
		s, err := load(p.Result)
		if err != nil {
			return err
		}
		c.answer(p, s)
	case *event.Noticed:
		switch p.What {
		case noticeBudget:
			c.noticed[p.Meter] = true
		case noticeStuck:
			c.stuck.nudge()
		}
		c.say(p.Text)
	case *event.Steered:
		s, err := load(p.Text)
		if err != nil {
			return err
		}
		c.say(steerText(p.Who, s))
	case *event.QuestionAsked:
		c.question = p
	case *event.QuestionAnswered:
		if q := c.question; q != nil && q.Call == "" { // the harness asked; what was said concerns the agent as well
			s, err := load(p.Text)
			if err != nil {
				return err
			}
			c.say(steerText(p.Who, s+"\n\n(an answer to: "+q.Question+")"))
		}
	case *event.AttemptStarted:
		c.again(p.Note)
	case *event.AttemptChosen:
		if p.Note != "" { // another attempt than the last one
			c.again(p.Note)
		}
	case *event.Compacted:
		if p.Dropped > len(c.messages) {
			return fmt.Errorf("event %d drops %d messages of %d", e.Seq, p.Dropped, len(c.messages))
		}
		c.messages = append([]model.Message{userText(p.Note)}, c.messages[p.Dropped:]...)
		c.asked, c.sent = 0, 0
	}
	return nil
}

// again begins a new conversation behind the same prefix. What is said first, if anything, is note.
func (c *Conversation) again(note string) {
	*c = Conversation{Prefix: c.Prefix, prefixHash: c.prefixHash, Step: c.Step, noticed: map[string]bool{}, startedCalls: map[string]bool{}}
	if note != "" {
		c.say(note)
	}
}

func (c *Conversation) applyReply(seq int64, p *event.ModelResponded, load func(event.Text) (string, error)) error {
	s, err := load(p.Message)
	if err != nil {
		return err
	}
	var m model.Message
	if err := json.Unmarshal([]byte(s), &m); err != nil {
		return fmt.Errorf("event %d: reply: %w", seq, err)
	}
	c.flush()
	c.messages = append(c.messages, m)
	c.open = m.Calls()
	clear(c.startedCalls) // of earlier replies; some servers use the same ids in each
	c.Step = p.Step
	c.last = *p
	c.asked = p.Tokens.Input + p.Tokens.CacheRead + p.Tokens.CacheWrite
	c.sent = 0
	return nil
}

// answer adds a call's result. Results come before any text in the user message, as the
// providers require.
func (c *Conversation) answer(p *event.ToolFinished, text string) {
	b := model.Block{Type: model.ToolResultBlock, ID: p.Call, Name: p.Name, Text: text, IsError: p.IsError}
	at := 0
	for at < len(c.tail) && c.tail[at].Type == model.ToolResultBlock {
		at++
	}
	c.tail = append(c.tail[:at], append([]model.Block{b}, c.tail[at:]...)...)
	for i, o := range c.open {
		if o.ID == p.Call {
			c.stuck.add(o, text, p.IsError)
			c.open = append(c.open[:i:i], c.open[i+1:]...)
			break
		}
	}
}

func (c *Conversation) say(text string) {
	c.tail = append(c.tail, model.Block{Type: model.TextBlock, Text: text})
}

// flush moves the tail into the history.
func (c *Conversation) flush() {
	if len(c.tail) > 0 {
		c.messages = append(c.messages, model.Message{Role: model.User, Blocks: c.tail})
		c.tail = nil
	}
}

// Request builds the next request. It has no side effect: the same fold gives the same bytes.
func (c *Conversation) Request(maxOutput, thinking int, cacheKey string) model.Request {
	msgs := make([]model.Message, 0, len(c.messages)+2)
	msgs = append(msgs, c.Prefix.First)
	msgs = append(msgs, c.messages...)
	if len(c.tail) > 0 {
		msgs = append(msgs, model.Message{Role: model.User, Blocks: c.tail})
	}
	return model.Request{
		System: c.Prefix.System, Tools: c.Prefix.Tools, Messages: mergeRoles(msgs),
		MaxOutput: maxOutput, Thinking: thinking, CacheKey: cacheKey,
	}
}

// mergeRoles joins neighbours of the same role (a compaction note after the first message),
// because providers want roles to alternate.
func mergeRoles(in []model.Message) []model.Message {
	out := in[:0:0]
	for _, m := range in {
		if n := len(out); n > 0 && out[n-1].Role == m.Role {
			blocks := append(out[n-1].Blocks[:len(out[n-1].Blocks):len(out[n-1].Blocks)], m.Blocks...)
			out[n-1] = model.Message{Role: m.Role, Blocks: blocks}
			continue
		}
		out = append(out, m)
	}
	return out
}

func userText(s string) model.Message {
	return model.Message{Role: model.User, Blocks: []model.Block{{Type: model.TextBlock, Text: s}}}
}

func steerText(who, text string) string {
	return fmt.Sprintf("Message from %s, who may steer this task:\n\n%s", who, text)
}

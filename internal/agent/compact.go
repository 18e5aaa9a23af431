package agent

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/model"
)

// droppable returns how many of the oldest messages to drop so that about keep tokens stay.
// Only whole exchanges go: what is left begins with an assistant message whose results follow
// it. The newest two exchanges always stay.
func (c *Conversation) droppable(tokens, keep, size int64) int {
	best, gone := 0, int64(0)
	for i := 0; i < len(c.messages); i++ {
		if i > 0 && c.messages[i].Role == model.Assistant {
			if c.assistants(i) < 2 {
				break
			}
			best = i
			if tokens-gone*tokens/max(size, 1) <= keep {
				break
			}
		}
		gone += messageSize(c.messages[i])
	}
	return best
}

func (c *Conversation) assistants(from int) int {
	n := 0
	for _, m := range c.messages[from:] {
		if m.Role == model.Assistant {
			n++
		}
	}
	return n
}

func (c *Conversation) sizeOf(n int) int64 {
	s := int64(0)
	for _, m := range c.messages[:n] {
		s += messageSize(m)
	}
	return s
}

func messageSize(m model.Message) int64 {
	b, err := json.Marshal(m)
	if err != nil {
		return 0
	}
	return int64(len(b))
}

// compaction describes the drop. What the model must not lose is restated from the record:
// the files it changed, what it had recorded of earlier compactions, and the newest answers of
// the verifier. The issue and the guidance stay in the first message.
func (c *Conversation) compaction(drop int) event.Compacted {
	var edited, verdicts []string
	seen := map[string]bool{}
	names := map[string]string{}
	for _, m := range c.messages[:drop] {
		for _, b := range m.Blocks {
			switch {
			case b.Type == model.ToolUseBlock && (b.Name == "edit" || b.Name == "write"):
				var in struct {
					Path string `json:"path"`
				}
				if json.Unmarshal(b.Input, &in) == nil && in.Path != "" && !seen[in.Path] {
					seen[in.Path] = true
					edited = append(edited, in.Path)
				}
			case b.Type == model.ToolUseBlock:
				names[b.ID] = b.Name
			case b.Type == model.ToolResultBlock && (names[b.ID] == "reproduce" || names[b.ID] == "submit"):
				verdicts = append(verdicts, "- "+names[b.ID]+": "+firstLines(b.Text, 3))
			case b.Type == model.TextBlock && m.Role == model.User && strings.HasPrefix(b.Text, compactionHead):
				verdicts = append(verdicts, earlierNotes(b.Text)...)
			}
		}
	}
	var n strings.Builder
	fmt.Fprintf(&n, "%s: the %d oldest messages of this conversation were removed to make room. What the record says of them:\n", compactionHead, drop)
	if len(edited) > 0 {
		fmt.Fprintf(&n, "Files you edited or wrote: %s. Read them again before you edit them.\n", strings.Join(edited, ", "))
	}
	if len(verdicts) > 0 {
		if len(verdicts) > 8 {
			verdicts = verdicts[len(verdicts)-8:]
		}
		n.WriteString("Answers of the verifier:\n" + strings.Join(verdicts, "\n") + "\n")
	}
	n.WriteString("Run `git status` and `git diff` to see your change so far.")
	return event.Compacted{Step: c.Step, Dropped: drop, Note: n.String()}
}

const compactionHead = "Note from the harness"

// earlierNotes keeps what an earlier compaction had kept.
func earlierNotes(s string) []string {
	var out []string
	for l := range strings.SplitSeq(s, "\n") {
		if strings.HasPrefix(l, "- ") || strings.HasPrefix(l, "Files you edited") {
			out = append(out, l)
		}
	}
	return out
}

func firstLines(s string, n int) string {
	lines := strings.SplitN(strings.TrimSpace(s), "\n", n+1)
	if len(lines) > n {
		lines = lines[:n]
	}
	out := strings.Join(lines, " / ")
	if len(out) > 400 {
		out = out[:400] + "…"
	}
	return out
}

package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/policy"
)

// imitation matches what stands in a result only to look like something else: marks of chat
// formats, of tool calls and results, and the usual opening of an injected order.
var imitation = regexp.MustCompile(`(?m)<\|[a-z_]{2,30}\|>|\[/?INST\]|<</?SYS>>` +
	`|</?(?:antml:)?(?:tool_result|tool_use|tool_call|tool_response|function_calls?|function_results?|invoke|system|assistant|user|human|issue|result|AGENTS\.md)(?:-[0-9a-f]+)?(?:\s[^<>\n]*)?>` +
	`|^[\s#>*"'/|-]*(?:SYSTEM|System|ASSISTANT|Assistant|HUMAN|Human|DEVELOPER)(?: (?:message|prompt|note|override|notice))?\s*:` +
	`|"type"\s*:\s*"(?:tool_use|tool_result|function_call|function_call_output)"` +
	`|(?i:(?:ignore|disregard|forget)\s+(?:all\s+|any\s+)?(?:of\s+)?(?:the\s+|your\s+)?(?:previous|prior|earlier|above|preceding)\s+(?:instructions|orders|prompts|messages|rules))`)

// framed puts a result that imitates a message inside marks that it cannot close. Other
// results stay as they are: what tells a result from an order is the channel it comes in, and
// marks around everything would be paid for in every step. The marks come from the task's
// prefix, which holds random bytes, so that no file can know them, and the same result stays
// the same text.
func (c *Conversation) framed(text string) string {
	if !imitation.MatchString(text) {
		return text
	}
	sum := sha256.Sum256([]byte("daybreak result frame\x00" + c.prefixHash))
	return policy.Frame("result", text, hex.EncodeToString(sum[:8]))
}

// maskJSON masks secrets in every string of a JSON value, however they are escaped there. ok
// is false when the value cannot be masked without ceasing to be what it is.
func maskJSON(raw json.RawMessage, mask func(string) string) (out json.RawMessage, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return raw, mask(string(raw)) == string(raw)
	}
	changed := false
	v = walk(v, func(s string) string {
		m := mask(s)
		changed = changed || m != s
		return m
	})
	if changed {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			return raw, false
		}
		raw = json.RawMessage(strings.TrimSuffix(b.String(), "\n"))
	}
	return raw, mask(string(raw)) == string(raw)
}

// walk replaces every string of a decoded value, keys of objects included.
func walk(v any, f func(string) string) any {
	switch v := v.(type) {
	case string:
		return f(v)
	case []any:
		for i := range v {
			v[i] = walk(v[i], f)
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[f(k)] = walk(e, f)
		}
		return out
	}
	return v
}

package scripted

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/model/scripted/transcript"
)

// conversation is a request in any of the formats, in one form.
type conversation struct {
	model    string
	system   string
	stream   bool
	thinking bool // the client wants to see it
	messages []message
	segments []segment // all of the input in the order in which a provider caches it
}

type message struct {
	role  string // "user" or "assistant"
	parts []part
}

type part struct {
	kind    string // "text", "thinking", "redacted_thinking", "tool_use", "tool_result"
	text    string
	id      string
	name    string
	sig     string
	isError bool
}

func (c *conversation) tokens() int64 {
	n := 0
	for _, s := range c.segments {
		n += len(s.data)
	}
	return int64(n+3) / 4
}

// last is the newest assistant message, or -1.
func (c *conversation) last() int {
	for i := len(c.messages) - 1; i >= 0; i-- {
		if c.messages[i].role == "assistant" {
			return i
		}
	}
	return -1
}

// reply is a turn with its placeholders filled in.
type reply struct {
	turn     int // index
	thinking string
	text     string
	calls    []call
	stop     string // "end_turn", "tool_use", "max_tokens", "refusal"
	usage    Usage
}

type call struct{ id, name, args string }

func (r reply) outputTokens() int64 {
	n := len(r.thinking) + len(r.text)
	for _, c := range r.calls {
		n += len(c.name) + len(c.args) + 16
	}
	return int64(n)/4 + 1
}

// Ids carry the turn's number, from 1: toolu_s0007_1, call_s0007_1, rs_s0007, sig_s0007_….
func stamp(index int) string { return fmt.Sprintf("s%04d", index+1) }

func signature(index int, thinking string) string {
	sum := sha256.Sum256([]byte(thinking))
	return "sig_" + stamp(index) + "_" + hex.EncodeToString(sum[:12])
}

// stamped reads the turn's number out of an id; 0 when it is not one of ours.
func stamped(id string) int {
	_, rest, ok := strings.Cut(id, "_s")
	if !ok {
		return 0
	}
	digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	if len(digits) < 4 || (len(rest) > len(digits) && rest[len(digits)] != '_') {
		return 0
	}
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}

func (m message) turn() int {
	n := 0
	for _, p := range m.parts {
		n = max(n, stamped(p.id), stamped(p.sig))
	}
	return n
}

// turns gives, for each message, the number of the turn that an assistant's message was, or
// 0. A message without one of our ids comes right after the one before it.
func (c *conversation) turns() []int {
	out := make([]int, len(c.messages))
	n := 0
	for i, m := range c.messages {
		if m.role != "assistant" {
			continue
		}
		if t := m.turn(); t > 0 {
			n = t
		} else {
			n++
		}
		out[i] = n
	}
	return out
}

// told is what the model was told since its last turn; for the first turn that includes the
// system text.
type told struct {
	all     string
	results []part // with the tool's name filled in
}

func (c *conversation) toldBefore(end int) told {
	names := map[string]string{}
	start := 0
	for i, m := range c.messages[:end] {
		if m.role != "assistant" {
			continue
		}
		start = i + 1
		for _, p := range m.parts {
			if p.kind == "tool_use" {
				names[p.id] = p.name
			}
		}
	}
	var t told
	var texts []string
	if start == 0 && c.system != "" {
		texts = append(texts, c.system)
	}
	for _, m := range c.messages[start:end] {
		for _, p := range m.parts {
			texts = append(texts, p.text)
			if p.kind == "tool_result" {
				p.name = names[p.id]
				t.results = append(t.results, p)
			}
		}
	}
	t.all = strings.Join(texts, "\n")
	return t
}

// find returns the index of the next turn, after checking its expectations.
func (s *Server) find(c *conversation) (int, *apiError) {
	turns := c.turns()
	next := 0
	if i := c.last(); i >= 0 {
		next = turns[i]
	} else {
		next = s.start(c.toldBefore(len(c.messages)).all)
	}
	if next >= len(s.script.Turns) {
		return 0, bad("scripted: the transcript %q ends after turn %d and was asked for turn %d", s.script.Name, len(s.script.Turns), next+1)
	}
	s.recapture(c, turns)
	t := s.script.Turns[next]
	now := c.toldBefore(len(c.messages))
	if e := s.capture(t, now); e != nil {
		e.message = fmt.Sprintf("scripted: turn %d (line %d): %s", next+1, t.Line, e.message)
		return 0, e
	}
	for i, x := range t.Expect {
		if why := s.unmet(x, now); why != "" {
			return 0, bad("scripted: turn %d (line %d), expectation %d: %s; the model was told: %q", next+1, t.Line, i+1, why, head(now.all))
		}
	}
	return next, nil
}

// start is the turn at which a conversation that was told this begins: the last one that names it.
func (s *Server) start(told string) int {
	for i, t := range slices.Backward(s.script.Turns) {
		if t.Start != "" && strings.Contains(told, t.Start) {
			return i
		}
	}
	return 0
}

// recapture fills in the captures of earlier turns from the history, so that a server that
// was started anew knows them too. What compaction dropped is as it was last seen.
func (s *Server) recapture(c *conversation, turns []int) {
	for i, n := range turns {
		if n < 1 || n > len(s.script.Turns) || len(s.script.Turns[n-1].Capture) == 0 {
			continue
		}
		_ = s.capture(s.script.Turns[n-1], c.toldBefore(i)) // it was checked when the turn was played
	}
}

func (s *Server) capture(t transcript.Turn, now told) *apiError {
	for _, cp := range t.Capture {
		m := cp.Pattern.FindStringSubmatch(now.all)
		if m == nil {
			return bad("capture %s: %q matches nothing; the model was told: %q", cp.Name, cp.Matches, head(now.all))
		}
		s.mu.Lock()
		s.captured[cp.Name] = m[1]
		s.mu.Unlock()
	}
	return nil
}

// expand replaces ${name}; an unknown name stays as it is, since code has such texts too.
func (s *Server) expand(text string) string {
	if !strings.Contains(text, "${") {
		return text
	}
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(text, "${")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		name, rest, closed := strings.Cut(after, "}")
		s.mu.Lock()
		v, known := s.captured[name]
		s.mu.Unlock()
		if !known {
			v, known = s.opts.Vars[name]
		}
		if closed && known {
			b.WriteString(v)
			text = rest
		} else {
			b.WriteString("${")
			text = after
		}
	}
}

// unmet says why an expectation does not hold, or "".
func (s *Server) unmet(x transcript.Expect, now told) string {
	text, results := now.all, now.results
	if x.Tool != "" {
		var of []part
		var texts []string
		for _, p := range results {
			if p.name == x.Tool {
				of = append(of, p)
				texts = append(texts, p.text)
			}
		}
		if len(of) == 0 {
			return fmt.Sprintf("expected a result of tool %q", x.Tool)
		}
		results, text = of, strings.Join(texts, "\n")
	}
	if x.Error != nil {
		failed := 0
		for _, p := range results {
			if p.isError {
				failed++
			}
		}
		if *x.Error && failed == 0 {
			return "expected a tool result that is an error"
		}
		if !*x.Error && (failed > 0 || len(results) == 0) {
			return "expected tool results without an error"
		}
	}
	if want := s.expand(x.Contains); want != "" && !strings.Contains(text, want) {
		return fmt.Sprintf("expected to be told %q", want)
	}
	if not := s.expand(x.NotContains); not != "" && strings.Contains(text, not) {
		return fmt.Sprintf("expected not to be told %q", not)
	}
	if x.Matches != "" {
		re := x.Pattern
		if re == nil {
			var err error
			if re, err = regexp.Compile(s.expand(x.Matches)); err != nil {
				return fmt.Sprintf("matches: %v", err)
			}
		}
		if !re.MatchString(text) {
			return fmt.Sprintf("expected to be told something that matches %q", x.Matches)
		}
	}
	return ""
}

func head(s string) string {
	if len(s) > 300 {
		return strings.ToValidUTF8(s[:300], "") + "…"
	}
	return s
}

// compose fills in a turn. A reply cut by length ends in the middle of its last call.
func (s *Server) compose(c *conversation, index int) reply {
	t := s.script.Turns[index]
	r := reply{turn: index, text: s.expand(t.Text), stop: t.Stop}
	if c.thinking {
		r.thinking = s.expand(t.Thinking)
	}
	for i, tc := range t.Calls {
		args, _ := tc.Arguments(s.expand) // parsing has tried it
		r.calls = append(r.calls, call{id: fmt.Sprintf("%s_%d", stamp(index), i+1), name: tc.Name, args: args})
	}
	if r.stop == "" {
		r.stop = "end_turn"
		if len(r.calls) > 0 {
			r.stop = "tool_use"
		}
	}
	if n := len(r.calls); r.stop == "max_tokens" && n > 0 {
		a := r.calls[n-1].args
		r.calls[n-1].args = strings.ToValidUTF8(a[:len(a)/2], "")
	}
	return r
}

// pieces cuts text as a model streams it, never inside a character.
func pieces(s string) []string {
	const size = 256
	var out []string
	for len(s) > size {
		cut := size
		for cut > size-4 && s[cut]&0xc0 == 0x80 {
			cut--
		}
		out = append(out, s[:cut])
		s = s[cut:]
	}
	if s != "" {
		out = append(out, s)
	}
	return out
}

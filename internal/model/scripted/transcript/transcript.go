// Package transcript owns the text format of scripted model turns: a stream of YAML
// documents, the first a header, each further one a turn.
//
// Invariants: unknown keys are errors; every error names a line; parsing does no I/O beyond
// its reader and is bounded by [MaxBytes]; the order of keys in a call's input is kept, so
// that the same transcript plays the same bytes.
package transcript

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// MaxBytes is the longest transcript that is read.
const MaxBytes = 16 << 20

// maxRepeat bounds one turn's repetitions.
const maxRepeat = 10_000

// Transcript is a parsed file. Turns has one entry for each reply, repetitions included.
type Transcript struct {
	Name        string
	Description string
	Turns       []Turn
}

// Turn is one reply of the model and what it presumes.
type Turn struct {
	Line     int // of the document's first line
	Expect   []Expect
	Capture  []Capture
	Thinking string
	Text     string
	Calls    []Call
	Stop     string // "", "end_turn", "max_tokens" or "refusal"; "" follows from Calls
	Usage    *Usage
	Fail     []Fault // served one after the other before the turn
	Delay    time.Duration
	Start    string // a conversation that is told this begins here
}

// Expect is one condition on what the model was told since its last turn. All set fields
// must hold.
type Expect struct {
	Contains    string `yaml:"contains"`
	NotContains string `yaml:"not_contains"`
	Matches     string `yaml:"matches"` // regular expression (RE2)
	Tool        string `yaml:"tool"`    // look only at results of this tool; there must be one
	Error       *bool  `yaml:"error"`   // whether such a result is an error

	Pattern *regexp.Regexp `yaml:"-"` // Matches, compiled; nil when it holds placeholders
}

// Capture takes the one group of a pattern out of what was told, for ${name} in this turn
// and later ones.
type Capture struct {
	Name    string `yaml:"name"`
	Matches string `yaml:"matches"`

	Pattern *regexp.Regexp `yaml:"-"`
}

// Call is one tool call. RawInput, if set, is sent in place of Input as it is, JSON or not.
type Call struct {
	Name     string
	Input    yaml.MapSlice
	RawInput string
}

// Usage overrides the simulated counts, in tokens.
type Usage struct {
	Input      int64 `yaml:"input"`
	Output     int64 `yaml:"output"`
	CacheRead  int64 `yaml:"cache_read"`
	CacheWrite int64 `yaml:"cache_write"`
}

// Fault is one failed answer. Exactly one of Status, Cut, Hang and ErrorEvent is set.
type Fault struct {
	Status     int     `yaml:"status"`
	RetryAfter float64 `yaml:"retry_after"` // seconds, with Status
	Type       string  `yaml:"type"`        // error type in the body, with Status; default by status
	Message    string  `yaml:"message"`
	Cut        int     `yaml:"cut"` // end the connection after so many events
	Hang       bool    `yaml:"hang"`
	ErrorEvent string  `yaml:"error_event"`
}

type header struct {
	Transcript  int    `yaml:"transcript"`
	Name        string `yaml:"name"`
	Description string `yaml:"description"`
}

type turnDoc struct {
	Expect   []Expect  `yaml:"expect"`
	Capture  []Capture `yaml:"capture"`
	Thinking string    `yaml:"thinking"`
	Text     string    `yaml:"text"`
	Calls    []callDoc `yaml:"calls"`
	Stop     string    `yaml:"stop"`
	Usage    *Usage    `yaml:"usage"`
	Fail     []Fault   `yaml:"fail"`
	DelayMS  int       `yaml:"delay_ms"`
	Start    string    `yaml:"start"`
	Repeat   int       `yaml:"repeat"`
}

type callDoc struct {
	Name     string        `yaml:"name"`
	Input    yaml.MapSlice `yaml:"input"`
	RawInput string        `yaml:"raw_input"`
}

// Parse reads a transcript. Errors are Invalid and begin with the line.
func Parse(r io.Reader) (Transcript, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return Transcript{}, &task.Error{Class: task.Invalid, Msg: "the transcript cannot be read", Err: err}
	}
	if len(data) > MaxBytes {
		return Transcript{}, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("the transcript is longer than %d bytes", MaxBytes)}
	}
	docs := split(data)
	if len(docs) == 0 {
		return Transcript{}, invalid(1, "the transcript is empty; it starts with a document like \"transcript: 1\"")
	}
	var h header
	if err := decode(docs[0], &h); err != nil {
		return Transcript{}, err
	}
	if h.Transcript != 1 {
		return Transcript{}, invalid(docs[0].line, "the first document must say \"transcript: 1\", the version of the format")
	}
	t := Transcript{Name: h.Name, Description: h.Description}
	for _, d := range docs[1:] {
		turns, err := parseTurn(d)
		if err != nil {
			return Transcript{}, err
		}
		t.Turns = append(t.Turns, turns...)
	}
	if len(t.Turns) == 0 {
		return Transcript{}, invalid(docs[0].line, "the transcript has no turns; each is a document after a line \"---\"")
	}
	return t, nil
}

func invalid(line int, format string, args ...any) error {
	return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("line %d: ", line) + fmt.Sprintf(format, args...)}
}

type doc struct {
	line int // of its first line that is not empty
	skip int // lines of the file before text
	text []byte
}

// split cuts at lines of three dashes. Inside a block scalar such a line would be indented.
func split(data []byte) []doc {
	var docs []doc
	cur := doc{}
	flush := func() {
		if s := cur.text; len(bytes.TrimSpace(stripComments(s))) > 0 {
			lead := len(s) - len(bytes.TrimLeft(s, " \t\r\n"))
			cur.line = cur.skip + bytes.Count(s[:lead], []byte("\n")) + 1
			docs = append(docs, cur)
		}
	}
	line, start, pos := 0, 0, 0
	for pos < len(data) {
		end := bytes.IndexByte(data[pos:], '\n')
		if end < 0 {
			end = len(data)
		} else {
			end += pos + 1
		}
		line++
		if bytes.HasPrefix(data[pos:end], []byte("---")) && len(bytes.TrimSpace(data[pos+3:end])) == 0 {
			cur.text = data[start:pos]
			flush()
			cur, start = doc{skip: line}, end
		}
		pos = end
	}
	cur.text = data[start:]
	flush()
	return docs
}

func stripComments(s []byte) []byte {
	var out []byte
	for l := range bytes.Lines(s) {
		if t := bytes.TrimSpace(l); len(t) > 0 && t[0] != '#' {
			out = append(out, l...)
		}
	}
	return out
}

func decode(d doc, into any) error {
	err := yaml.NewDecoder(bytes.NewReader(d.text), yaml.Strict(), yaml.UseOrderedMap()).Decode(into)
	if err == nil {
		return nil
	}
	line := d.line
	var y yaml.Error
	msg := err.Error()
	if errors.As(err, &y) {
		msg = y.GetMessage()
		if tok := y.GetToken(); tok != nil && tok.Position != nil {
			line = d.skip + tok.Position.Line
		}
	}
	msg, _, _ = strings.Cut(strings.TrimSpace(msg), "\n")
	return invalid(line, "%s", msg)
}

func parseTurn(d doc) ([]Turn, error) {
	var td turnDoc
	if err := decode(d, &td); err != nil {
		return nil, err
	}
	t := Turn{
		Line: d.line, Expect: td.Expect, Capture: td.Capture, Thinking: strings.TrimRight(td.Thinking, "\n"), Text: strings.TrimRight(td.Text, "\n"), Stop: td.Stop,
		Usage: td.Usage, Fail: td.Fail, Start: td.Start, Delay: time.Duration(td.DelayMS) * time.Millisecond,
	}
	for _, c := range td.Calls {
		t.Calls = append(t.Calls, Call(c))
	}
	if err := check(&t, td); err != nil {
		return nil, err
	}
	turns := []Turn{t}
	again := t
	again.Fail = nil // a fault is an event, not part of the turn
	for range td.Repeat - 1 {
		turns = append(turns, again)
	}
	return turns, nil
}

func check(t *Turn, td turnDoc) error {
	switch {
	case td.DelayMS < 0 || td.DelayMS > 600_000:
		return invalid(t.Line, "delay_ms must be between 0 and 600000")
	case td.Repeat < 0 || td.Repeat > maxRepeat:
		return invalid(t.Line, "repeat must be between 1 and %d", maxRepeat)
	case t.Text == "" && len(t.Calls) == 0 && t.Thinking == "" && t.Stop == "":
		return invalid(t.Line, "the turn says nothing: give it text or calls")
	}
	switch t.Stop {
	case "", "end_turn", "max_tokens", "refusal":
	default:
		return invalid(t.Line, "stop must be end_turn, max_tokens or refusal, not %q", t.Stop)
	}
	if err := checkConditions(t); err != nil {
		return err
	}
	for _, c := range t.Calls {
		if c.Name == "" {
			return invalid(t.Line, "a call needs a name")
		}
		if c.RawInput != "" && c.Input != nil {
			return invalid(t.Line, "call %s: give input or raw_input, not both", c.Name)
		}
		if _, err := c.Arguments(func(s string) string { return s }); err != nil {
			return invalid(t.Line, "call %s: %v", c.Name, err)
		}
	}
	for _, f := range t.Fail {
		kinds := 0
		for _, set := range []bool{f.Status != 0, f.Cut != 0, f.Hang, f.ErrorEvent != ""} {
			if set {
				kinds++
			}
		}
		if kinds != 1 {
			return invalid(t.Line, "a fault has exactly one of status, cut, hang and error_event")
		}
		if f.Status != 0 && (f.Status < 300 || f.Status > 599) {
			return invalid(t.Line, "fault status must be between 300 and 599")
		}
		if f.Cut < 0 || f.RetryAfter < 0 {
			return invalid(t.Line, "cut and retry_after cannot be negative")
		}
	}
	return nil
}

func checkConditions(t *Turn) error {
	// The slices are this turn's own: parsing made them.
	for i := range t.Expect {
		e := &t.Expect[i]
		if e.Contains == "" && e.NotContains == "" && e.Matches == "" && e.Tool == "" && e.Error == nil {
			return invalid(t.Line, "an expectation needs contains, not_contains, matches, tool or error")
		}
		if e.Matches == "" || strings.Contains(e.Matches, "${") {
			continue
		}
		re, err := regexp.Compile(e.Matches)
		if err != nil {
			return invalid(t.Line, "matches: %v", err)
		}
		e.Pattern = re
	}
	for i := range t.Capture {
		c := &t.Capture[i]
		re, err := regexp.Compile(c.Matches)
		if err != nil {
			return invalid(t.Line, "capture %s: %v", c.Name, err)
		}
		if c.Name == "" || re.NumSubexp() != 1 {
			return invalid(t.Line, "a capture has a name and a pattern with exactly one group")
		}
		c.Pattern = re
	}
	return nil
}

// Arguments renders the call's input: a JSON object with the keys in the file's order, every
// string passed through expand; or RawInput, expanded.
func (c Call) Arguments(expand func(string) string) (string, error) {
	if c.RawInput != "" {
		return expand(c.RawInput), nil
	}
	var b bytes.Buffer
	if err := render(&b, c.Input, expand); err != nil {
		return "", err
	}
	return b.String(), nil
}

func render(b *bytes.Buffer, v any, expand func(string) string) error {
	switch v := v.(type) {
	case yaml.MapSlice:
		b.WriteByte('{')
		for i, it := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			scalar(b, fmt.Sprint(it.Key))
			b.WriteByte(':')
			if err := render(b, it.Value, expand); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := render(b, e, expand); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case string:
		scalar(b, expand(v))
	case time.Time:
		scalar(b, v.Format(time.RFC3339))
	default:
		j, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("input: %w", err)
		}
		b.Write(j)
	}
	return nil
}

func scalar(b *bytes.Buffer, s string) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	b.Truncate(b.Len() - 1)
}

package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Caps on what a model may send.
const (
	maxInput = 2 << 20 // bytes of a call
	maxDepth = 8       // of nested JSON
)

// param is one parameter of a tool, in the order the model sees.
type param struct {
	name     string
	kind     string // "string", "integer", "boolean", "strings"
	required bool
	max      int      // bytes of a string, of each of several, or the largest integer; 0: no cap of its own
	items    int      // the most strings
	enum     []string // allowed values
	about    string
}

// schema is a tool's input, for the model and for the decoder.
type schema []param

// JSON encodes the schema with its keys in a fixed order.
func (s schema) JSON() json.RawMessage {
	var b bytes.Buffer
	b.WriteString(`{"type":"object","properties":{`)
	var required []string
	for i, p := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Quote(p.name) + ":{")
		if p.kind == "strings" {
			b.WriteString(`"type":"array","items":{"type":"string"}`)
		} else {
			b.WriteString(`"type":` + strconv.Quote(p.kind))
		}
		if len(p.enum) > 0 {
			b.WriteString(`,"enum":` + quoteAll(p.enum))
		}
		if p.about != "" {
			about, _ := json.Marshal(p.about) // a string always encodes
			b.WriteString(`,"description":` + string(about))
		}
		b.WriteByte('}')
		if p.required {
			required = append(required, p.name)
		}
	}
	b.WriteByte('}')
	if len(required) > 0 {
		b.WriteString(`,"required":` + quoteAll(required))
	}
	b.WriteString(`,"additionalProperties":false}`)
	return b.Bytes()
}

func quoteAll(list []string) string {
	var q []string
	for _, s := range list {
		q = append(q, strconv.Quote(s))
	}
	return "[" + strings.Join(q, ",") + "]"
}

// decode checks input against the schema and decodes it into dst, whose JSON names are the
// parameters'. What it returns is for the model: empty, or what is wrong and what to do.
func (s schema) decode(tool string, input json.RawMessage, dst any) string {
	if len(input) > maxInput {
		return fmt.Sprintf("The input of %s is %d bytes long; the limit is %d. Split it.", tool, len(input), maxInput)
	}
	if depth(input) > maxDepth {
		return fmt.Sprintf("The input of %s is nested deeper than %d levels.", tool, maxDepth)
	}
	if len(bytes.TrimSpace(input)) == 0 {
		input = json.RawMessage("{}")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(input, &fields); err != nil {
		return fmt.Sprintf("The input of %s must be a JSON object with the parameters %s.", tool, s.names())
	}
	if name := twice(input); name != "" {
		return fmt.Sprintf("%s: parameter %q is given twice. Give it once.", tool, clip(name, 40))
	}
	for name := range fields {
		if s.find(name) == nil {
			return fmt.Sprintf("%s has no parameter %s. Its parameters are: %s.", tool, unknown(fields, s), s.names())
		}
	}
	for _, p := range s {
		raw, ok := fields[p.name]
		if !ok || string(raw) == "null" {
			if p.required {
				return fmt.Sprintf("%s needs the parameter %q.", tool, p.name)
			}
			delete(fields, p.name)
			continue
		}
		if problem := p.check(raw); problem != "" {
			return fmt.Sprintf("%s: parameter %q %s.", tool, p.name, problem)
		}
	}
	clean, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(clean, dst)
	}
	if err != nil {
		return fmt.Sprintf("The input of %s cannot be read.", tool)
	}
	return ""
}

func (s schema) find(name string) *param {
	for i := range s {
		if s[i].name == name {
			return &s[i]
		}
	}
	return nil
}

func (s schema) names() string {
	var out []string
	for _, p := range s {
		n := p.name
		if p.required {
			n += " (required)"
		}
		out = append(out, n)
	}
	return strings.Join(out, ", ")
}

// unknown names the first parameter, by name, that the schema has not.
func unknown(fields map[string]json.RawMessage, s schema) string {
	first := ""
	for name := range fields {
		if s.find(name) == nil && (first == "" || name < first) {
			first = name
		}
	}
	return strconv.Quote(clip(first, 40))
}

// check validates one value.
func (p param) check(raw json.RawMessage) string {
	switch p.kind {
	case "string":
		var v string
		if json.Unmarshal(raw, &v) != nil {
			return "must be a string, not " + typeOf(raw)
		}
		return p.checkString(v)
	case "integer":
		var v int
		if json.Unmarshal(raw, &v) != nil {
			return "must be an integer, not " + typeOf(raw)
		}
		if v < 0 {
			return "must not be negative"
		}
		if p.max > 0 && v > p.max {
			return fmt.Sprintf("is %d; the most is %d", v, p.max)
		}
	case "boolean":
		var v bool
		if json.Unmarshal(raw, &v) != nil {
			return "must be true or false, not " + typeOf(raw)
		}
	case "strings":
		var v []string
		if json.Unmarshal(raw, &v) != nil {
			return "must be an array of strings, not " + typeOf(raw)
		}
		if p.required && len(v) == 0 {
			return "must not be empty"
		}
		if len(v) > p.items {
			return fmt.Sprintf("has %d elements; the most is %d", len(v), p.items)
		}
		for _, e := range v {
			if e == "" {
				return "holds an empty string"
			}
			if problem := p.checkString(e); problem != "" {
				return "holds an element that " + problem
			}
		}
	}
	return ""
}

func (p param) checkString(v string) string {
	if p.max > 0 && len(v) > p.max {
		return fmt.Sprintf("is %d bytes long; the most is %d", len(v), p.max)
	}
	if len(p.enum) == 0 {
		return ""
	}
	for _, e := range p.enum {
		if e == v {
			return ""
		}
	}
	return fmt.Sprintf("is %q; it must be one of %s", clip(v, 40), strings.Join(p.enum, ", "))
}

func typeOf(raw json.RawMessage) string {
	switch raw = bytes.TrimSpace(raw); {
	case len(raw) == 0:
		return "nothing"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "such an array"
	case raw[0] == '"':
		return "a string"
	case raw[0] == 't', raw[0] == 'f':
		return "a boolean"
	case raw[0] == 'n':
		return "null"
	}
	return "the number " + clip(string(raw), 20)
}

// twice returns a parameter that an input gives more than once: the record shows all of them,
// of which only one would run.
func twice(input json.RawMessage) string {
	d := json.NewDecoder(bytes.NewReader(input))
	if _, err := d.Token(); err != nil {
		return ""
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return ""
		}
		if seen[name] {
			return name
		}
		seen[name] = true
		var skip json.RawMessage
		if d.Decode(&skip) != nil {
			return ""
		}
	}
	return ""
}

// depth is how deep objects and arrays nest, strings set aside.
func depth(b []byte) int {
	deepest, now, inString := 0, 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}

// describe fills the {{names}} of a description from the constants the code uses.
func describe(text string, values map[string]any) string {
	var pairs []string
	for name, v := range values {
		pairs = append(pairs, "{{"+name+"}}", fmt.Sprint(v))
	}
	return strings.TrimSpace(strings.NewReplacer(pairs...).Replace(text))
}

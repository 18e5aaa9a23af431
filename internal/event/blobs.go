package event

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
)

// Blobs lists the digests of the blobs that belong to the events, in order, each once: those
// that a payload names under the key "blob", whatever its kind, and those that the documents of
// verification and baseline, which load reads, name under "log".
func Blobs(events []Event, load func(Text) (string, error)) ([]string, error) {
	var c collector
	for _, e := range events {
		c.walk(e.Payload)
		p, err := Decode(e)
		if err != nil {
			return nil, err
		}
		var doc Text
		switch p := p.(type) {
		case *VerificationFinished:
			doc = p.Document
		case *BaselineFinished:
			doc = p.Document
		default:
			continue
		}
		s, err := load(doc)
		if err != nil {
			return nil, err
		}
		c.walk([]byte(s))
	}
	return c.found, nil
}

// collector gathers digests out of JSON.
type collector struct {
	found []string
	seen  map[string]bool
}

func (c *collector) walk(doc []byte) {
	var v any
	if json.Unmarshal(doc, &v) == nil {
		c.value(v)
	}
}

func (c *collector) value(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			c.value(e)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if s, ok := v[k].(string); ok && (k == "blob" || k == "log") && isDigest(s) && !c.seen[s] {
				if c.seen == nil {
					c.seen = map[string]bool{}
				}
				c.seen[s] = true
				c.found = append(c.found, s)
			}
			c.value(v[k])
		}
	}
}

func isDigest(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size
}

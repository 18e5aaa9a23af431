package evidence

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// Canonical is the JSON Canonicalization Scheme of RFC 8785: of everything that is the same
// JSON, the same bytes. It refuses numbers that a double does not hold.
func Canonical(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return canonicalJSON(raw)
}

// canonicalJSON is [Canonical] for text. A key that stands twice in an object is refused.
func canonicalJSON(raw []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var out bytes.Buffer
	if err := writeValue(&out, dec, 0); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return out.Bytes(), nil
}

// maxDepth bounds how deep values may nest.
const maxDepth = 200

type member struct {
	key  []uint16 // RFC 8785 sorts by UTF-16 code units
	name string
	text []byte
}

func writeValue(out *bytes.Buffer, dec *json.Decoder, depth int) error {
	if depth > maxDepth {
		return errors.New("JSON nests too deep")
	}
	t, err := dec.Token()
	if err != nil {
		return err
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '[' {
			return writeArray(out, dec, depth)
		}
		return writeObject(out, dec, depth)
	case string:
		writeString(out, t)
	case json.Number:
		return writeNumber(out, t.String())
	case bool:
		out.WriteString(strconv.FormatBool(t))
	default:
		out.WriteString("null")
	}
	return nil
}

func writeArray(out *bytes.Buffer, dec *json.Decoder, depth int) error {
	out.WriteByte('[')
	for n := 0; dec.More(); n++ {
		if n > 0 {
			out.WriteByte(',')
		}
		if err := writeValue(out, dec, depth+1); err != nil {
			return err
		}
	}
	out.WriteByte(']')
	_, err := dec.Token()
	return err
}

func writeObject(out *bytes.Buffer, dec *json.Decoder, depth int) error {
	var members []member
	for dec.More() {
		k, err := dec.Token()
		if err != nil {
			return err
		}
		name, _ := k.(string) // a key of an object is a string
		var text bytes.Buffer
		if err := writeValue(&text, dec, depth+1); err != nil {
			return err
		}
		members = append(members, member{utf16.Encode([]rune(name)), name, text.Bytes()})
	}
	if _, err := dec.Token(); err != nil {
		return err
	}
	slices.SortStableFunc(members, func(a, b member) int { return slices.CompareFunc(a.key, b.key, cmp.Compare[uint16]) })
	out.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			if members[i-1].name == m.name {
				return fmt.Errorf("key %q stands twice", m.name)
			}
			out.WriteByte(',')
		}
		writeString(out, m.name)
		out.WriteByte(':')
		out.Write(m.text)
	}
	out.WriteByte('}')
	return nil
}

func writeString(out *bytes.Buffer, s string) {
	out.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r < ' ':
			if i := strings.IndexRune("\b\t\n\f\r", r); i >= 0 {
				out.WriteString(`\` + string("btnfr"[i]))
			} else {
				fmt.Fprintf(out, `\u%04x`, r)
			}
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
}

// writeNumber writes a number as ECMAScript does, which encoding/json follows but for -0.
func writeNumber(out *bytes.Buffer, n string) error {
	f, err := strconv.ParseFloat(n, 64)
	if err != nil || math.IsInf(f, 0) {
		return fmt.Errorf("number %s is too large", n)
	}
	if i, err := strconv.ParseInt(n, 10, 64); err == nil && (i > 1<<53 || i < -1<<53) {
		return fmt.Errorf("number %s is not exact as a double", n)
	}
	if f == 0 {
		out.WriteByte('0')
		return nil
	}
	b, err := json.Marshal(f)
	out.Write(b)
	return err
}

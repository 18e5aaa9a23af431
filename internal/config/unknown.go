package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// unknown says of a key that nobody knows where it stands and which known one it resembles; nil for
// another error.
func unknown(err error, into any) error {
	var u *yaml.UnknownFieldError
	if !errors.As(err, &u) || u.Token == nil || u.Token.Position == nil {
		return nil
	}
	said := fmt.Sprintf("line %d: unknown field %q", u.Token.Position.Line, u.Token.Value)
	if near := nearest(u.Token.Value, keys(reflect.TypeOf(into), nil)); near != "" {
		said += fmt.Sprintf("; did you mean %q?", near)
	}
	if _, ok := into.(*Config); ok {
		said += "; daybreak.example.yaml has every key with what it is for"
	}
	return errors.New(said)
}

// notSizeError is a text that is no size.
type notSizeError struct{ text string }

func (e *notSizeError) Error() string {
	return fmt.Sprintf("%q is not a size; write for example 4GiB or 512MB", e.text)
}

// misread says where a size or a duration that is none stands, since who reads one is not told; nil for
// another error.
func misread(err error, b []byte) error {
	var size *notSizeError
	text, said := "", ""
	if errors.As(err, &size) {
		text, said = size.text, size.Error()
	} else if _, after, ok := strings.Cut(err.Error(), ` duration "`); ok && strings.HasPrefix(err.Error(), "time: ") {
		text, _, _ = strings.Cut(after, `"`)
		said = fmt.Sprintf("%q is not a duration; write for example 90s, 30m or 1h", text)
	} else {
		return nil
	}
	before, _, _ := bytes.Cut(b, []byte(text))
	return fmt.Errorf("line %d: %s", 1+bytes.Count(before, []byte("\n")), said)
}

// keys are the names of all fields of a type and of what it holds.
func keys(t reflect.Type, seen []reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || slices.Contains(seen, t) {
		return nil
	}
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = strings.ToLower(f.Name)
		}
		out = append(out, name)
		out = append(out, keys(f.Type, append(seen[:len(seen):len(seen)], t))...)
	}
	return out
}

// nearest is the known key that takes the fewest changes of a letter, at most a third of them; "" for
// none.
func nearest(key string, known []string) string {
	best, least := "", len(key)/3+1
	for _, k := range known {
		if d := distance(strings.ToLower(key), k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

package evidence

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// marks stand in every bundle, far from one another: damage at one place leaves the others.
var marks = []string{`"attestation":{"payload":`, `"payloadType":"` + payloadType + `"`, `"format":"` + Format + `"`, `"record":{"base":`}

// damaged says of a file that cannot be read as a bundle and was one where it is broken. ok is
// false for what never was one.
func damaged(file []byte, err error) (Fault, bool) {
	n := 0
	for _, m := range marks {
		if bytes.Contains(file, []byte(m)) {
			n++
		}
	}
	if n < len(marks)-1 {
		return Fault{}, false
	}
	at, path := whereBroken(file, err)
	what := plain(strings.TrimPrefix(err.Error(), "json: "))
	if path != "" {
		what = fmt.Sprintf("%s, at byte %d, in %s", what, at, plain(path))
	} else {
		what = fmt.Sprintf("%s, at byte %d", what, at)
	}
	return Fault{partOf(path), what}, true
}

// whereBroken is the byte at which reading stops, and the keys around it.
func whereBroken(file []byte, err error) (at int64, path string) {
	var when *time.ParseError
	if errors.As(err, &when) {
		return int64(bytes.LastIndex(file, []byte(`"made":`))), "record.made"
	}
	if errors.Is(err, errFormat) {
		return int64(bytes.Index(file, []byte(`"format":`))), "format"
	}
	var syntax *json.SyntaxError
	var unfit *json.UnmarshalTypeError
	if errors.As(err, &syntax) {
		path, _ = pathAt(file, syntax.Offset, "")
		return max(syntax.Offset-1, 0), path
	}
	if errors.As(err, &unfit) {
		path, at = pathAt(file, unfit.Offset, "")
		return at, path
	}
	name := ""
	if quoted, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		if s, err := strconv.Unquote(quoted); err == nil {
			name = s
		}
	}
	path, at = pathAt(file, int64(len(file))+1, name)
	return at, path
}

// pathAt reads the file up to a byte, or to a key of that name, and says which keys it is below
// and where the last thing read begins.
func pathAt(file []byte, stop int64, name string) (path string, at int64) {
	type level struct {
		key    string
		array  bool
		n      int
		isName bool // the next token is a key
	}
	var levels []level
	keys := func() string {
		var out []string
		for _, l := range levels {
			if l.array {
				out = append(out, fmt.Sprint(max(l.n-1, 0)))
			} else if l.key != "" {
				out = append(out, l.key)
			}
		}
		return strings.Join(out, ".")
	}
	dec := json.NewDecoder(bytes.NewReader(file))
	dec.UseNumber()
	for {
		at = dec.InputOffset()
		tok, err := dec.Token()
		if err != nil {
			return keys(), at
		}
		top := len(levels) - 1
		d, isDelim := tok.(json.Delim)
		switch {
		case isDelim && (d == '}' || d == ']'):
			if dec.InputOffset() >= stop {
				return keys(), at
			}
			if levels = levels[:top]; len(levels) == 0 {
				return "", at
			}
			continue
		case top >= 0 && levels[top].isName:
			levels[top].key, levels[top].isName = fmt.Sprint(tok), false
			if name != "" && levels[top].key == name || dec.InputOffset() >= stop {
				return keys(), at
			}
			continue
		case top >= 0 && levels[top].array:
			levels[top].n++
		case top >= 0:
			levels[top].isName = true
		}
		if dec.InputOffset() >= stop {
			return keys(), at
		}
		if isDelim {
			levels = append(levels, level{array: d == '[', isName: d == '{'})
		}
	}
}

// unlike says where the file is not in the one form that it could have.
func unlike(file []byte, b Bundle) string {
	want, err := Canonical(b)
	if err != nil {
		return ""
	}
	want = append(want, '\n')
	i := 0
	for i < len(file) && i < len(want) && file[i] == want[i] {
		i++
	}
	if i == len(file) || i >= len(want)-1 {
		return fmt.Sprintf(", from byte %d on", i)
	}
	path, _ := pathAt(file, int64(i)+1, "")
	if path == "" {
		return fmt.Sprintf(", from byte %d on", i)
	}
	return fmt.Sprintf(", from byte %d on, in %s", i, plain(path))
}

// plain is what stands in a file as one short line.
func plain(s string) string {
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	if q := strconv.Quote(s); len(q) != len(s)+2 {
		return q
	}
	return s
}

// partOf names the part of a bundle that a path of keys is in.
func partOf(path string) string {
	for _, p := range []struct{ under, part string }{
		{"attestation.signatures", "signature"},
		{"attestation", "statement"},
		{"record.base", "base"},
		{"record.head_tree", "head tree"},
		{"record.repository", "repository"},
		{"record.change.tests", "diff of the tests"},
		{"record.change.source", "diff of the source"},
		{"record.change.configuration", "diff of the configuration"},
		{"record.change", "diff"},
		{"record.environment", "environment"},
		{"record.sandbox", "sandbox"},
		{"record.commands", "commands"},
		{"record.results.verdict", "verdict"},
		{"record.results", "results"},
		{"record.log.root", "log root"},
		{"record.log", "log"},
		{"record.verifier", "verifier"},
		{"record.made", "time"},
		{"record", "record"},
	} {
		if path == p.under || strings.HasPrefix(path, p.under+".") {
			return p.part
		}
	}
	return "form"
}

package secrets

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"regexp"
	"strings"
)

// The limits of one document's scan.
const (
	maxDepth    = 4         // encodings inside one another
	maxUnpacked = 48 << 20  // bytes of all that was decoded
	maxMatches  = 1000      // of one rule
	maxWeak     = 512 << 10 // bytes of a text that the heuristic rules, which are slow, are tried on
	minRun      = 16        // characters of an encoded run worth decoding
)

var errTooMuch = errors.New("unpacks to too much")

// look is the scan of one document.
type look struct {
	known  []known
	rules  *ruleset
	path   string
	budget int
}

// all returns every secret in a document, at most one a rule and value.
func (l *look) all(b []byte) []sighting {
	text := string(b)
	out := l.rules.match(l.path, text, false)
	out = append(out, l.layer(text, "", 0)...)
	type id struct {
		rule, value string
		line        int
	}
	seen, shown := map[id]bool{}, map[id]bool{}
	kept := out[:0]
	for _, f := range out {
		at, what := id{f.rule, f.value, f.line}, id{f.rule, glued(f.value), 0}
		// A value that is found again in a derived text adds nothing.
		if seen[at] || f.form != "" && shown[what] {
			continue
		}
		seen[at], shown[what] = true, true
		kept = append(kept, f)
	}
	return kept
}

// layer looks for known values in a text, then at everything that can be made from it.
func (l *look) layer(text, form string, line int) []sighting {
	var out []sighting
	low := l.reduced(text)
	for _, k := range l.known {
		if at, how := k.find(text, low); how != "" {
			f := sighting{rule: "known-secret:" + k.name, value: k.name, form: join(form, how), line: line}
			if line == 0 {
				f.line = lineOf(text, at)
			}
			out = append(out, f)
		}
	}
	if form != "" {
		for _, f := range l.rules.match(l.path, text, true) {
			f.form, f.line = form, pick(line, f.line)
			out = append(out, f)
		}
	}
	if strings.Count(form, "+") >= maxDepth {
		return out
	}
	joined := glued(text)
	if joined != text {
		for _, f := range l.rules.match(l.path, joined, true) {
			f.form, f.line = join(form, "split"), line
			out = append(out, f)
		}
		low := l.reduced(joined)
		for _, k := range l.known {
			if _, how := k.find(joined, low); how != "" {
				out = append(out, sighting{rule: "known-secret:" + k.name, value: k.name, form: join(form, "split"), line: line})
			}
		}
	}
	err := l.decoded(text, joined, func(child, how string, at int) {
		n := line
		if n == 0 && at >= 0 {
			n = lineOf(text, at)
		}
		out = append(out, l.layer(child, join(form, how), n)...)
	})
	if err != nil {
		out = append(out, sighting{rule: RuleLimit, value: RuleLimit, form: form, line: line})
	}
	return out
}

func (l *look) reduced(s string) string {
	if len(l.known) == 0 {
		return ""
	}
	return reduce(s)
}

func pick(line, inside int) int {
	if line != 0 {
		return line
	}
	return inside
}

func join(a, b string) string {
	switch {
	case a == "":
		if b == plain {
			return ""
		}
		return b
	case b == plain:
		return a
	}
	return a + "+" + b
}

// glue is what stands between the parts of a value that was split: a closing quote, an
// operator or a comma, line ends, an opening quote.
var glue = regexp.MustCompile("[\"'`]\\s*(?:[+.,&|\\\\]\\s*)*(?:\r?\n\\s*)?[\"'`]|\\\\?\r?\n[ \t]*(?:[#*+>|;-]+[ \t]+|//+[ \t]*)?")

func glued(s string) string {
	if !strings.ContainsAny(s, "\n\"'`") {
		return s
	}
	return glue.ReplaceAllString(s, "")
}

// decoded hands every decoded run of the text, and of the joined text, to child.
func (l *look) decoded(text, joined string, child func(s, how string, at int)) error {
	emit := func(b []byte, how string, at int) error {
		if l.budget -= len(b); l.budget < 0 {
			return errTooMuch
		}
		child(string(b), how, at)
		return nil
	}
	for i := 0; i < len(text); {
		j := strings.Index(text[i:], "\x1f\x8b\x08")
		if j < 0 {
			break
		}
		i += j
		b, err := l.inflate(text[i:])
		if err != nil {
			return err
		}
		if len(b) > 0 {
			if err := emit(b, "gzip", i); err != nil {
				return err
			}
		}
		i += 3
	}
	if len(text) > 2 && text[0] == 0x78 && (uint(text[0])<<8|uint(text[1]))%31 == 0 {
		b, err := l.inflateZlib(text)
		if err != nil {
			return err
		}
		if len(b) > 0 {
			if err := emit(b, "zlib", 0); err != nil {
				return err
			}
		}
	}
	done := map[string]bool{}
	for n, s := range []string{text, joined} {
		if n == 1 && joined == text {
			break
		}
		for from, to := range runs(s) {
			run := s[from:to]
			if done[run] {
				continue
			}
			done[run] = true
			at := from
			if n == 1 {
				at = -1
			}
			for _, d := range decodings(run) {
				if err := emit(d.b, d.how, at); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// runs yields the maximal runs of characters that encodings are written with.
func runs(s string) func(func(int, int) bool) {
	return func(yield func(int, int) bool) {
		start := -1
		for i := 0; i <= len(s); i++ {
			if i < len(s) && encodingByte(s[i]) {
				if start < 0 {
					start = i
				}
				continue
			}
			if start >= 0 && i-start >= minRun && !yield(start, i) {
				return
			}
			start = -1
		}
	}
}

func encodingByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '-' || c == '_' || c == '='
}

type decoding struct {
	b   []byte
	how string
}

// decodings are the readings of a run that look like text or a compressed stream: other bytes
// cannot hold a key's format, and known values are looked for in their encoded forms.
func decodings(run string) []decoding {
	var out []decoding
	add := func(b []byte, how string) {
		if len(b) >= 8 && (readable(b) || bytes.HasPrefix(b, []byte("\x1f\x8b")) || b[0] == 0x78 && (uint(b[0])<<8|uint(b[1]))%31 == 0) {
			out = append(out, decoding{b, how})
		}
	}
	trimmed := strings.TrimRight(run, "=")
	if b, err := hex.DecodeString(trimmed[:len(trimmed)&^1]); err == nil {
		add(b, "hex")
		return out
	}
	std := strings.NewReplacer("-", "+", "_", "/").Replace(trimmed)
	if b := partial(std, func(s string) ([]byte, error) { return base64.RawStdEncoding.DecodeString(s) }, 4); b != nil {
		add(b, "base64")
	}
	if up := strings.ToUpper(trimmed); strings.Trim(up, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == "" && len(up) >= 24 {
		if b := partial(up, func(s string) ([]byte, error) {
			return base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(s)
		}, 8); b != nil {
			add(b, "base32")
		}
	}
	return out
}

// partial decodes a run, without its last incomplete group when it has one too many characters.
func partial(s string, dec func(string) ([]byte, error), group int) []byte {
	if i := strings.IndexByte(s, '='); i >= 0 {
		s = s[:i]
	}
	if b, err := dec(s); err == nil {
		return b
	}
	b, err := dec(s[:len(s)-len(s)%group])
	if err != nil {
		return nil
	}
	return b
}

// readable reports whether most bytes are printable ASCII or white space.
func readable(b []byte) bool {
	good := 0
	for _, c := range b {
		if c >= 0x20 && c < 0x7f || c == '\n' || c == '\t' || c == '\r' {
			good++
		}
	}
	return good*10 >= len(b)*9
}

func (l *look) inflate(s string) ([]byte, error) {
	z, err := gzip.NewReader(strings.NewReader(s))
	if err != nil {
		return nil, nil
	}
	z.Multistream(false)
	return l.drain(z)
}

func (l *look) inflateZlib(s string) ([]byte, error) {
	z, err := zlib.NewReader(strings.NewReader(s))
	if err != nil {
		return nil, nil
	}
	return l.drain(z)
}

// drain reads what there is, also of a stream that is cut.
func (l *look) drain(r io.Reader) ([]byte, error) {
	b, _ := io.ReadAll(io.LimitReader(r, int64(l.budget)+1))
	if len(b) > l.budget {
		return nil, errTooMuch
	}
	return b, nil
}

package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"io"
	"regexp"
	"strings"
	"testing"
)

var packed = regexp.MustCompile(`[A-Za-z0-9+/_-]{24,}={0,2}`)

// leaks names the forms in which data holds a token: as it is, in hex, base32, base64 at any
// offset, packed with gzip and base64, backwards, and split by anything that is no letter or digit.
func leaks(data []byte, token string) []string {
	var out []string
	note := func(form string, found bool) {
		if found {
			out = append(out, form)
		}
	}
	low := bytes.ToLower(data)
	note("plain", bytes.Contains(low, bytes.ToLower([]byte(token))))
	note("hex", bytes.Contains(low, []byte(hex.EncodeToString([]byte(token)))))
	note("reversed", bytes.Contains(data, []byte(backwards(token))))
	note("split", strings.Contains(lettersOf(low), lettersOf([]byte(strings.ToLower(token)))))
	for shift := range 3 {
		// What surrounds the token changes the digits at its ends only.
		s := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + token))
		core := s[(shift*8+5)/6 : len(s)-3]
		note("base64", bytes.Contains(data, []byte(core)) || bytes.Contains(data, []byte(strings.NewReplacer("+", "-", "/", "_").Replace(core))))
	}
	for shift := range 5 {
		s := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte(strings.Repeat("x", shift) + token))
		note("base32", bytes.Contains(bytes.ToUpper(data), []byte(s[(shift*8+4)/5:len(s)-2])))
	}
	joined := bytes.ReplaceAll(data, []byte("\n"), nil)
	for _, run := range packed.FindAll(joined, 10_000) {
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			b, err := enc.DecodeString(strings.TrimRight(string(run), "="))
			if err != nil || !bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
				continue
			}
			if z, err := gzip.NewReader(bytes.NewReader(b)); err == nil {
				text, _ := io.ReadAll(io.LimitReader(z, 1<<20))
				note("gzip and base64", bytes.Contains(text, []byte(token)))
			}
		}
	}
	return out
}

func backwards(s string) string {
	b := []byte(s)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return string(b)
}

func lettersOf(b []byte) string {
	out := make([]byte, 0, len(b))
	for _, c := range b {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			out = append(out, c)
		}
	}
	return string(out)
}

// The scan itself is no use unless it finds every form.
func TestCanariesAreFoundInEveryForm(t *testing.T) {
	const token = "canary8f3e21c07a5d4b96"
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte("the key is " + token))
	_ = z.Close()
	for form, text := range map[string]string{
		"plain":           "x" + token + "y",
		"hex":             hex.EncodeToString([]byte("a" + token + "b")),
		"base32":          base32.StdEncoding.EncodeToString([]byte("abc" + token + "d")),
		"base64":          base64.StdEncoding.EncodeToString([]byte("ab" + token + "c")),
		"gzip and base64": "data: " + base64.StdEncoding.EncodeToString(zipped.Bytes()),
		"reversed":        "<" + backwards(token) + ">",
		"split":           strings.Join(strings.Split(token, ""), "\n- "),
	} {
		found := false
		for _, f := range leaks([]byte(text), token) {
			found = found || f == form
		}
		if !found {
			t.Errorf("%s is not found: %q", form, text)
		}
	}
	if got := leaks([]byte(strings.Repeat("nothing of it here, canary8f3e21c0 7a5d4b9 ", 50)), token); got != nil {
		t.Errorf("found %v in a text without it", got)
	}
}

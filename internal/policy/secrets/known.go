package secrets

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/policy"
)

const (
	minValue   = 6  // bytes of a value that is looked for at all
	minReduced = 12 // letters and digits below which a reduced form would match by chance
	plain      = "plain"
)

// known is a secret value in the forms that a text can hold it in.
type known struct {
	name  string
	value string
	forms []form // reduced: lower-case letters and digits only
}

type form struct{ how, text string }

// newKnown prepares the forms. In base64 and base32 the same bytes look different at each
// alignment; the characters at the edges depend on the neighbours and are left out.
func newKnown(s policy.Secret) known {
	k := known{name: s.Name, value: s.Value}
	v := []byte(s.Value)
	add := func(how, text string) {
		text = reduce(text)
		if len(text) < minReduced {
			return
		}
		k.forms = append(k.forms, form{how, text})
		rev := []byte(text)
		slices.Reverse(rev)
		k.forms = append(k.forms, form{join("reversed", how), string(rev)})
	}
	add(plain, s.Value)
	add("hex", hex.EncodeToString(v))
	add("escaped", url.QueryEscape(s.Value))
	var dec, bytes0x, bytesx strings.Builder
	for _, c := range v {
		fmt.Fprintf(&dec, "%d", c)
		fmt.Fprintf(&bytes0x, "0x%02x", c)
		fmt.Fprintf(&bytesx, "x%02x", c)
	}
	add("decimal bytes", dec.String())
	add("hex bytes", bytes0x.String())
	add("hex bytes", bytesx.String())
	for shift := range 3 {
		b := append(make([]byte, shift), v...)
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			add("base64", enc.EncodeToString(b)[(shift*8+5)/6:len(b)*8/6])
		}
	}
	for shift := range 5 {
		b := append(make([]byte, shift), v...)
		for _, enc := range []*base32.Encoding{base32.StdEncoding, base32.HexEncoding} {
			add("base32", enc.WithPadding(base32.NoPadding).EncodeToString(b)[(shift*8+4)/5:len(b)*8/5])
		}
	}
	return k
}

// find returns where the value stands and in what form; how is "" when it does not. Signs,
// spaces, line ends and case are passed over, so that a value that was split is found. low is
// the text as [reduce] leaves it.
func (k known) find(text, low string) (at int, how string) {
	if i := strings.Index(text, k.value); i >= 0 {
		return i, plain
	}
	if len(k.forms) == 0 {
		return 0, ""
	}
	for _, f := range k.forms {
		if i := strings.Index(low, f.text); i >= 0 {
			how := f.how
			if how == plain {
				how = "split"
			}
			return origin(text, i), how
		}
	}
	return 0, ""
}

// reduce keeps letters and digits, in lower case.
func reduce(s string) string {
	b := make([]byte, 0, len(s))
	for i := range len(s) {
		if c, ok := reduced(s[i]); ok {
			b = append(b, c)
		}
	}
	return string(b)
}

func reduced(c byte) (byte, bool) {
	switch {
	case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
		return c, true
	case c >= 'A' && c <= 'Z':
		return c + 'a' - 'A', true
	}
	return 0, false
}

// origin is the offset in s of the n-th byte that reduce keeps.
func origin(s string, n int) int {
	for i := range len(s) {
		if _, ok := reduced(s[i]); ok {
			if n == 0 {
				return i
			}
			n--
		}
	}
	return len(s)
}

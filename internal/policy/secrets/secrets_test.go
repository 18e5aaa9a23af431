package secrets

import (
	"bytes"
	"compress/gzip"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/policy"
)

const canary = "canary-7f3Q/+x9-Zk2Lw8vR"

func scanner() *Scanner {
	return New([]policy.Secret{{Name: "model key", Value: canary}, {Name: "short", Value: "abc"}})
}

func scan(t testing.TB, docs ...Doc) []Hit {
	t.Helper()
	hits, err := scanner().Scan(docs...)
	if err != nil {
		t.Fatal(err)
	}
	return hits
}

func gz(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return b.String()
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func wrapAt(s string, n int) string {
	var out []string
	for len(s) > n {
		out, s = append(out, s[:n]), s[n:]
	}
	return strings.Join(append(out, s), "\n")
}

func reverse(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

func TestKnownSecretInEveryForm_EXP13(t *testing.T) {
	var dec, esc []string
	for _, c := range []byte(canary) {
		dec, esc = append(dec, fmt.Sprint(c)), append(esc, fmt.Sprintf(`\x%02X`, c))
	}
	for name, text := range map[string]string{
		"plain":                   "key = " + canary,
		"hex":                     hex.EncodeToString([]byte(canary)),
		"HEX":                     strings.ToUpper(hex.EncodeToString([]byte("x" + canary))),
		"base64 at 0":             b64(canary + "tail"),
		"base64 at 1":             b64("x" + canary + "tail"),
		"base64 at 2":             b64("xy" + canary + "tail"),
		"base64url":               base64.RawURLEncoding.EncodeToString([]byte("?" + canary)),
		"base64 over lines":       wrapAt(b64("a header\n"+canary+" and more of it"), 12),
		"base32":                  base32.StdEncoding.EncodeToString([]byte("abc" + canary)),
		"base32 lower":            strings.ToLower(base32.HexEncoding.EncodeToString([]byte(canary))),
		"gzip":                    "head" + gz("x = "+canary),
		"gzip, base64":            `const data = "` + b64(gz("the key is "+canary)) + `"`,
		"gzip, base64 over lines": "data: |\n  " + strings.ReplaceAll(wrapAt(b64(gz("the key is "+canary)), 20), "\n", "\n  "),
		"gzip, hex":               hex.EncodeToString([]byte(gz(canary))),
		"base64 twice":            b64(b64("k=" + canary)),
		"base64 of reversed":      b64(reverse(canary)),
		"reversed":                reverse(canary),
		"reversed hex":            reverse(hex.EncodeToString([]byte(canary))),
		"split over lines":        wrapAt(canary, 5),
		"a string in pieces":      `k := "` + canary[:7] + `" +` + "\n\t\t" + `"` + canary[7:15] + `" + "` + canary[15:] + `"`,
		"commented lines":         "# " + strings.ReplaceAll(wrapAt(canary, 6), "\n", "\n# "),
		"a list of characters":    "['" + strings.Join(strings.Split(canary, ""), "', '") + "']",
		"decimal bytes":           "[]byte{" + strings.Join(dec, ", ") + "}",
		"escaped bytes":           `"` + strings.Join(esc, "") + `"`,
		"percent encoded":         "?k=canary-7f3Q%2F%2Bx9-Zk2Lw8vR",
		"another case":            strings.ToUpper(canary),
		"in binary":               "\x00\x01\xff" + canary + "\x00",
	} {
		t.Run(name, func(t *testing.T) {
			hits := scan(t, Doc{Name: "a.go", Text: []byte("package a\n" + text + "\n")})
			if !slices.ContainsFunc(hits, func(h Hit) bool { return h.Rule == "known-secret:model key" && !h.Weak }) {
				t.Fatalf("not found: %+v", hits)
			}
			if s := fmt.Sprintf("%+v", hits); strings.Contains(s, canary) || strings.Contains(s, canary[:8]) {
				t.Errorf("a hit holds the value: %s", s)
			}
		})
	}
	for _, ok := range []string{"abc", "canary", "the canary 7f3Q sings", strings.Repeat("lorem ipsum dolor ", 50)} {
		if hits := scan(t, Doc{Name: "a", Text: []byte(ok)}); len(hits) != 0 {
			t.Errorf("%q: %+v", ok, hits)
		}
	}
}

// The values are made up; they are put together here so that this file holds none.
func formats() map[string]string {
	return map[string]string{
		"github-pat":             "ghp_" + "k3J9sQ2xV7bN1mZ8cL4dW6fR0tY5uH2pA9e1",
		"gitlab-pat":             "glpat-" + "k3J9sQ2xV7bN1mZ8cL4d",
		"aws-access-token":       "AKIA" + "QYLPMN5HKXZ3WVTE",
		"slack-bot-token":        "xoxb-" + "730191371696-1413868247813-IG7Z2nYpb5J9QtAQC7uVDFZb",
		"stripe-access-token":    "sk_live_" + "51HqvXyKkLdQ2JzB7mNf8Rt",
		"npm-access-token":       "npm_" + "k3j9sq2xv7bn1mz8cl4dw6fr0ty5uh2pa9e1",
		"private-key":            "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfn/ygWyF8PbnGy0AHB7MhgwMbRvI0MBZhpI\nk3J9sQ2xV7bN1mZ8cL4dW6fR0tY5uH2pA9e1\n-----END RSA PRIVATE KEY-----",
		"sendgrid-api-token":     "SG." + "k3J9sQ2xV7bN1mZ8cL4dW6.fR0tY5uH2pA9e1k3J9sQ2xV7bN1mZ8cL4dW6fR0tY5u",
		"digitalocean-pat":       "dop_v1_" + "3f9a1c7e5b2d8046f1e3a9c7b5d2e8f04a6c1e3b5d7f9082a4c6e8f01b3d5f70",
		"hashicorp-tf-api-token": "Ab3dEf6hIj9lMn" + ".atlasv1." + "k3J9sQ2xV7bN1mZ8cL4dW6fR0tY5uH2pA9e1k3J9sQ2xV7bN1mZ8cL4dW6fR0tY5u",
	}
}

func TestKeyFormats_EXP13(t *testing.T) {
	for rule, value := range formats() {
		for how, text := range map[string]string{
			"":       "x = '" + value + "'\n",
			"base64": `d = "` + b64("cfg: '"+value+"'\n") + `"`,
			"gzip":   gz("cfg: '" + value + "'\n"),
			"split":  `x = "` + value[:11] + `" + "` + value[11:] + `"` + "\n",
		} {
			hits := scan(t, Doc{Name: "conf/settings.py", Text: []byte("\n" + text)})
			i := slices.IndexFunc(hits, func(h Hit) bool { return h.Rule == rule })
			if i < 0 {
				t.Errorf("%s, %q: not found: %+v", rule, how, hits)
				continue
			}
			if h := hits[i]; h.Weak || h.Form != how || how == "" && h.Line != 2 || strings.Contains(fmt.Sprintf("%+v", hits), value) {
				t.Errorf("%s, %q: %+v", rule, how, h)
			}
		}
	}
}

// A change cannot talk its way past a strict rule.
func TestNothingInTheTextSwitchesARuleOff_EXP13(t *testing.T) {
	value := formats()["github-pat"]
	for _, d := range []Doc{
		{Name: "vendor/github.com/x/y.go", Text: []byte(`k = "` + value + `" // gitleaks:allow`)},
		{Name: "package-lock.json", Text: []byte(value)},
		{Name: ".gitleaks.toml", Text: []byte(value)},
		{Name: "logo.png", Text: []byte("\x89PNG\r\n" + value)},
		{Name: "node_modules/a.js", Text: []byte(value)},
		{Name: "(?:^|/)@octokit/auth-token/README.md", Text: []byte(value)},
		{Name: "file name", Text: []byte("docs/" + value + ".md")},
		{Name: "commit message", Text: []byte("Fix it\n\n" + value)},
	} {
		if hits := scan(t, d); len(hits) != 1 || hits[0].Rule != "github-pat" {
			t.Errorf("%s: %+v", d.Name, hits)
		}
	}
}

func TestOnlyWhatIsNewCounts(t *testing.T) {
	value := formats()["github-pat"]
	old := []byte("a\nkey = '" + value + "'\n")
	if hits := scan(t, Doc{Name: "a", Old: old, Text: []byte("b\nc\nkey = '" + value + "'\n")}); len(hits) != 0 {
		t.Errorf("what the base has: %+v", hits)
	}
	other := "ghp_" + "Z3J9sQ2xV7bN1mZ8cL4dW6fR0tY5uH2pA9e1"
	if hits := scan(t, Doc{Name: "a", Old: old, Text: []byte("key = '" + other + "'\n")}); len(hits) != 1 || hits[0].Line != 1 {
		t.Errorf("another value: %+v", hits)
	}
	if hits := scan(t, Doc{Name: "a", Old: old, Text: append(slices.Clone(old), "k2 = '"+canary+"'"...)}); len(hits) != 1 || hits[0].Rule != "known-secret:model key" {
		t.Errorf("a known value beside an old one: %+v", hits)
	}
}

func TestOrdinaryCodeHasNone(t *testing.T) {
	for name, text := range map[string]string{
		"go":       "package a\n\nfunc Token(key string) (string, error) { return base64.StdEncoding.EncodeToString([]byte(key)), nil }\nvar ErrUnauthorizedToken = errors.New(\"token is not valid\")\n",
		"sums":     "github.com/x/y v1.2.3 h1:Ysl3Ke4y4n8tVq3mB1zQq0m3o1yqYk0T8C8o3fF2x0A=\ngithub.com/x/y v1.2.3/go.mod h1:3sPq2mN8eVf0c7r9xZ1lq5kq8U3bX0wT2dYy6g4hJ1k=\n",
		"lock":     `"integrity": "sha512-v2kDEe57lecTulaDIuNTPy3Ry4gLGJ6Z1O3vE1krgXZNrsQ+LFTGHVxVjcXPs17LhbZVGedAJv8XZ1tvj5FvSg=="`,
		"fake key": `apiKey: "your-api-key-here", token: "xxxxxxxxxxxxxxxxxxxx", AWS = "AKIAIOSFODNN7EXAMPLE"`,
		"uuid":     "id = '014df517-39d1-4453-b7b3-9930c563627c'",
		"blob":     b64(strings.Repeat("an ordinary fixture of text, nothing to see\n", 40)),
	} {
		for _, h := range scan(t, Doc{Name: "x/" + name, Text: []byte(text)}) {
			if !h.Weak {
				t.Errorf("%s: %+v", name, h)
			}
		}
	}
}

func TestWeakRulesAreMarked(t *testing.T) {
	hits := scan(t, Doc{Name: "a.go", Text: []byte(`var apiSecret = "` + "k3J9sQ2xV7bN1mZ8cL4dW6fR0tY5" + `"`)})
	if len(hits) != 1 || hits[0].Rule != "generic-api-key" || !hits[0].Weak {
		t.Errorf("%+v", hits)
	}
}

func TestABombIsAHit_EXP13(t *testing.T) {
	bomb := gz(strings.Repeat("\x00", maxUnpacked+1))
	for name, text := range map[string]string{"gzip": bomb, "base64": b64(bomb)} {
		if hits := scan(t, Doc{Name: "a", Text: []byte(text)}); !slices.ContainsFunc(hits, func(h Hit) bool { return h.Rule == RuleLimit && !h.Weak }) {
			t.Errorf("%s: %+v", name, hits)
		}
	}
}

func TestEveryRuleCompiles(t *testing.T) {
	rs, err := lazyRules()()
	if err != nil || len(rs.Rules) < 200 {
		t.Fatalf("%d rules, %v", len(rs.Rules), err)
	}
	strict := 0
	for _, r := range rs.Rules {
		if re := r.regex(); r.Group > re.NumSubexp() {
			t.Errorf("%s has no group %d", r.ID, r.Group)
		}
		if r.path != nil {
			r.path()
		}
		for _, a := range append(r.Allow, rs.Allow...) {
			a.regexes()
			a.paths()
		}
		if r.strict {
			strict++
		}
	}
	for _, w := range weakRules() {
		if !slices.ContainsFunc(rs.Rules, func(r rule) bool { return r.ID == w }) {
			t.Errorf("weak rule %q is not among the rules", w)
		}
	}
	if strict < 100 {
		t.Errorf("%d strict rules", strict)
	}
}

func FuzzScan(f *testing.F) {
	for _, s := range []string{canary, gz("x"), b64(gz(canary)), "\x1f\x8b\x08", "x\x9c", "====", "-----BEGIN RSA PRIVATE KEY-----", wrapAt(canary, 3)} {
		f.Add([]byte(s), 3)
	}
	s := scanner()
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		if _, err := s.Scan(Doc{Name: "a", Text: b}); err != nil {
			t.Fatal(err)
		}
		at = min(max(at, 0), len(b))
		with := slices.Concat(b[:at], []byte("\n"+canary+"\n"), b[at:])
		hits, err := s.Scan(Doc{Name: "a", Text: with})
		if err != nil || !slices.ContainsFunc(hits, func(h Hit) bool { return h.Rule == "known-secret:model key" }) {
			t.Fatalf("lost in %q: %+v", with, hits)
		}
	})
}

func BenchmarkScan100kB(b *testing.B) {
	s := scanner()
	text := []byte(strings.Repeat("func (c *Client) token(key string) error { return c.auth.Check(key, \"a string\") }\n", 1250))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := s.Scan(Doc{Name: "a.go", Text: text}); err != nil {
			b.Fatal(err)
		}
	}
}

package policy

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Secret is a value that must never be stored or shown.
type Secret struct {
	Name  string // for the mask and the record, such as "model_key"
	Value string
}

// Redactor masks secrets in texts. It is immutable and safe for concurrent use.
type Redactor struct {
	forms []form
	rules []rule
}

type form struct{ name, text string }

type rule struct {
	name string
	hint []string // one of these must occur, else the expression is not tried
	re   *regexp.Regexp
}

// minSecret is the length in bytes below which a value is not searched for: masking every
// "abc" would destroy texts and hide nothing.
const minSecret = 6

// NewRedactor prepares the search for the given values, plain and in their base64, hex,
// percent-encoded and reversed forms, and for the formats of well-known keys.
func NewRedactor(secrets []Secret) *Redactor {
	r := &Redactor{rules: keyFormats()}
	for _, s := range secrets {
		if len(s.Value) < minSecret {
			continue
		}
		for _, text := range encodings(s.Value) {
			r.forms = append(r.forms, form{s.Name, text})
		}
	}
	slices.SortStableFunc(r.forms, func(a, b form) int { return cmp.Compare(len(b.text), len(a.text)) })
	return r
}

// encodings lists the forms of a value. In base64 the same bytes look different at each of
// three alignments; the characters at the edges depend on the neighbours and are left out.
func encodings(v string) []string {
	out := []string{v, hex.EncodeToString([]byte(v)), strings.ToUpper(hex.EncodeToString([]byte(v)))}
	for shift := range 3 {
		b := append(make([]byte, shift), v...)
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			e := enc.EncodeToString(b)
			from := (shift*8 + 5) / 6
			to := len(b) * 8 / 6
			if to-from >= minSecret {
				out = append(out, e[from:to])
			}
		}
	}
	if q := url.QueryEscape(v); q != v {
		out = append(out, q, url.PathEscape(v))
	}
	rev := []byte(v)
	slices.Reverse(rev)
	out = append(out, string(rev))
	slices.Sort(out)
	return slices.Compact(out)
}

func keyFormats() []rule {
	mk := func(name, expr string, hint ...string) rule { return rule{name, hint, regexp.MustCompile(expr)} }
	return []rule{
		mk("private_key", `-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`, "PRIVATE KEY"),
		mk("anthropic_key", `\bsk-ant-[A-Za-z0-9_-]{16,}`, "sk-ant-"),
		mk("openai_key", `\bsk-(?:proj-|svcacct-|admin-|or-v1-)?[A-Za-z0-9_-]{20,}`, "sk-"),
		mk("github_token", `\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})`, "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
		mk("gitlab_token", `\bgl(?:pat|dt|rt|cbt|ptt|oas|soat)-[A-Za-z0-9_.-]{20,}`, "gl"),
		mk("aws_key", `\b(?:AKIA|ASIA)[0-9A-Z]{16}\b`, "AKIA", "ASIA"),
		mk("google_key", `\bAIza[0-9A-Za-z_-]{35}`, "AIza"),
		mk("slack_token", `\bxox[abeoprs]-[A-Za-z0-9-]{10,}`, "xox"),
		mk("npm_token", `\bnpm_[A-Za-z0-9]{36}\b`, "npm_"),
		mk("pypi_token", `\bpypi-AgEI[A-Za-z0-9_-]{40,}`, "pypi-"),
		mk("huggingface_token", `\bhf_[A-Za-z0-9]{30,}`, "hf_"),
		mk("stripe_key", `\b[rs]k_live_[A-Za-z0-9]{16,}`, "k_live_"),
		mk("jwt", `\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}`, "eyJ"),
	}
}

// Redact returns the text with every secret replaced by "[redacted:name]", and how many were
// replaced per name. A nil Redactor knows no values and no formats.
func (r *Redactor) Redact(text string) (string, map[string]int) {
	if r == nil {
		return text, nil
	}
	var counts map[string]int
	count := func(name string, n int) {
		if counts == nil {
			counts = map[string]int{}
		}
		counts[name] += n
	}
	for _, f := range r.forms {
		if n := strings.Count(text, f.text); n > 0 {
			text = strings.ReplaceAll(text, f.text, "[redacted:"+f.name+"]")
			count(f.name, n)
		}
	}
	for _, k := range r.rules {
		if !slices.ContainsFunc(k.hint, func(h string) bool { return strings.Contains(text, h) }) {
			continue
		}
		text = k.re.ReplaceAllStringFunc(text, func(string) string {
			count(k.name, 1)
			return "[redacted:" + k.name + "]"
		})
	}
	return text, counts
}

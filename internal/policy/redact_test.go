package policy

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

func TestRedactEveryForm_EXP13(t *testing.T) {
	secret := "canary-7f3Q/+x9 value"
	r := NewRedactor([]Secret{{"model_key", secret}, {"short", "abc"}})
	b64 := func(prefix string) string { return base64.StdEncoding.EncodeToString([]byte(prefix + secret + "tail")) }
	for name, text := range map[string]string{
		"plain": "key=" + secret + "!", "hex": hex.EncodeToString([]byte(secret)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(secret))),
		"base64 at 0": b64(""), "base64 at 1": b64("x"), "base64 at 2": b64("xy"), "base64 at 3": b64("xyz"),
		"base64url": base64.URLEncoding.EncodeToString([]byte("?" + secret)), "url": "?k=canary-7f3Q%2F%2Bx9+value", "reversed": "eulav 9x+/Q3f7-yranac",
	} {
		got, counts := r.Redact("before " + text + " after")
		if counts["model_key"] == 0 || !strings.Contains(got, "[redacted:model_key]") {
			t.Errorf("%s: %q %v", name, got, counts)
		}
		if !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") || strings.Contains(got, secret) {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got, counts := r.Redact("abc and nothing else"); got != "abc and nothing else" || counts != nil {
		t.Errorf("%q %v", got, counts)
	}
	if _, counts := r.Redact(secret + " " + secret); counts["model_key"] != 2 {
		t.Errorf("%v", counts)
	}
}

func TestRedactKeyFormats_EXP13(t *testing.T) {
	r := NewRedactor(nil)
	x := func(n int) string { return strings.Repeat("aB3", n)[:n] }
	for rule, text := range map[string]string{
		"anthropic_key": "sk-ant-api03-" + x(40), "openai_key": "sk-proj-" + x(40), "github_token": "ghp_" + x(36), "gitlab_token": "glpat-" + x(20),
		"aws_key": "AKIAIOSFODNN7EXAMPLE", "google_key": "AIza" + x(35), "slack_token": "xoxb-123456789012-abc", "npm_token": "npm_" + x(36),
		"huggingface_token": "hf_" + x(34), "stripe_key": "sk_live_" + x(24), "jwt": "eyJ" + x(20) + ".eyJ" + x(20) + "." + x(30),
		"private_key": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\ndef\n-----END OPENSSH PRIVATE KEY-----",
	} {
		got, counts := r.Redact("x " + text + " y")
		if got != fmt.Sprintf("x [redacted:%s] y", rule) || counts[rule] != 1 {
			t.Errorf("%s: %q %v", rule, got, counts)
		}
	}
	// A key whose end was cut off is still a key.
	if got, _ := r.Redact("-----BEGIN RSA PRIVATE KEY-----\nMIIE"); strings.Contains(got, "MIIE") {
		t.Errorf("%q", got)
	}
	for _, ok := range []string{"sk-learn", "the task-scheduler", "ghp_short", "AKIA", "glob", "-----BEGIN PUBLIC KEY-----"} {
		if got, counts := r.Redact(ok); got != ok || counts != nil {
			t.Errorf("%q became %q", ok, got)
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("a secret-value here", "secret-value")
	f.Add("", "x\xff\x00yyyyy")
	f.Fuzz(func(t *testing.T, text, secret string) {
		if len(secret) < minSecret || strings.Contains("[redacted:s]", secret) {
			return
		}
		for _, name := range []string{"s"} {
			got, _ := NewRedactor([]Secret{{name, secret}}).Redact(text + secret)
			// What the masks themselves join up is not the secret leaking.
			if strings.Contains(got, secret) && !strings.Contains(secret, "redacted") && !strings.ContainsAny(secret, "[]") {
				t.Fatalf("%q is still in %q", secret, got)
			}
		}
	})
}

func BenchmarkRedact30kB(b *testing.B) {
	r := NewRedactor([]Secret{{"a", "some-model-key-value-1"}, {"b", "some-forge-token-value"}})
	text := strings.Repeat("an ordinary line of output with nothing in it\n", 650)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		r.Redact(text)
	}
}

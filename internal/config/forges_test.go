package config

import (
	"strings"
	"testing"
	"time"
)

func TestForges(t *testing.T) {
	good := Forge{Kind: Gitea, URL: "https://git.example.com", TokenEnv: "T"}
	for name, c := range map[string]struct {
		change func(*Forge)
		want   string
	}{
		"good":               {func(*Forge) {}, ""},
		"kind":               {func(f *Forge) { f.Kind = "svn" }, "use github, gitlab or gitea"},
		"plain":              {func(f *Forge) { f.URL = "http://git.example.com" }, "only with internal"},
		"plain inside":       {func(f *Forge) { f.URL, f.Internal = "http://10.0.0.1", true }, ""},
		"credentials":        {func(f *Forge) { f.URL = "https://u:p@git.example.com" }, "without credentials"},
		"another scheme":     {func(f *Forge) { f.URL, f.Internal = "gopher://x", true }, "https address"},
		"no token":           {func(f *Forge) { f.TokenEnv = "" }, "set token_env"},
		"app elsewhere":      {func(f *Forge) { f.AppID = 1 }, "is for GitHub"},
		"api elsewhere":      {func(f *Forge) { f.APIURL = "https://x" }, "for GitHub only"},
		"endless old secret": {func(f *Forge) { f.OldSecretEnv = "O" }, "webhook_old_secret_until"},
	} {
		f := good
		c.change(&f)
		err := checkForges(map[string]Forge{"x": f})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkForges(map[string]Forge{"a": good, "b": good}); err == nil || !strings.Contains(err.Error(), "same host") {
		t.Errorf("two of one host: %v", err)
	}
	if err := checkForges(map[string]Forge{"A/b": good}); err == nil {
		t.Error("a name that is no path")
	}
	if err := (Intake{Label: "x", Poll: time.Millisecond}).check(); err == nil {
		t.Error("a poll without a pause")
	}
}

func TestForgeSecrets(t *testing.T) {
	env := func(k string) string {
		return map[string]string{"T": "token", "S": "now", "O": "before"}[k]
	}
	f := Forge{URL: "https://x", TokenEnv: "T", SecretEnv: "S", OldSecretEnv: "O"}
	if tok, err := f.Token(env); tok != "token" || err != nil {
		t.Error(tok, err)
	}
	if now, old, err := f.Secrets(env); now != "now" || old != "before" || err != nil {
		t.Error(now, old, err)
	}
	f.SecretEnv = "MISSING"
	if _, _, err := f.Secrets(env); err == nil {
		t.Error("a secret that is not set is no secret")
	}
}

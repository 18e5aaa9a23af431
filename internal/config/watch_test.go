package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWatchAndNotify(t *testing.T) {
	c, err := loadText(t, "telemetry: {otlp_endpoint: 'http://127.0.0.1:4318', listen: '127.0.0.1:9484'}\nnotify:\n  on: [waiting]\n  webhook: {url_env: HOOK}\n  mail: {server: 'smtp.example.com:587', from: a@example.com, to: [b@example.com], user: u, password_env: P}\n")
	if err != nil || c.Notify.Webhook.URLEnv != "HOOK" || c.Notify.Mail.To[0] != "b@example.com" || len(c.Notify.On) != 1 {
		t.Fatalf("%+v, %v", c.Notify, err)
	}
	for text, want := range map[string]string{
		"telemetry: {otlp_endpoint: 'http://user:secret@h:1'}":                               "otlp_endpoint",
		"telemetry: {otlp_endpoint: 'localhost:4318'}":                                       "otlp_endpoint",
		"telemetry: {listen: here}":                                                          "telemetry.listen",
		"notify: {on: [merged]}":                                                             "notify.on",
		"notify: {webhook: {}}":                                                              "url_env or url_file",
		"notify: {webhook: {url: 'https://hooks.example.com/secret'}}":                       "unknown field",
		"notify: {mail: {server: smtp, from: a@b.c, to: [a@b.c]}}":                           "notify.mail.server",
		"notify: {mail: {server: 'smtp:587', from: a@b.c, to: []}}":                          "notify.mail.to",
		"notify: {mail: {server: 'smtp:587', from: \"a@b.c\\r\\nBcc: x@y.z\", to: [a@b.c]}}": "no plain mail address",
		"notify: {mail: {server: 'smtp:587', from: 'A <a@b.c>', to: [a@b.c]}}":               "no plain mail address",
		"notify: {mail: {server: 'smtp:587', from: a@b.c, to: [a@b.c], user: u}}":            "password_env",
	} {
		if _, err := loadText(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if a, err := (Webhook{URLEnv: "HOOK"}).Address(func(string) string { return "https://h/x" }); err != nil || a != "https://h/x" {
		t.Errorf("%q, %v", a, err)
	}
	if _, err := (Mail{User: "u", PasswordEnv: "P"}).Password(func(string) string { return "" }); err == nil {
		t.Error("a missing password is none")
	}
}

func loadText(t *testing.T, text string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "daybreak.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path)
}

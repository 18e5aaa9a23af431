package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnknownKey: a key that nobody knows is named with its line, the nearest known one and the file
// that has them all, in one line; so are sizes and durations that are none.
func TestUnknownKey(t *testing.T) {
	for text, want := range map[string]string{
		"model: a/b\n\nsandbx: {}\n":               `line 3: unknown field "sandbx"; did you mean "sandbox"?; daybreak.example.yaml`,
		"sandbox:\n  memry: 1GiB\n":                `line 2: unknown field "memry"; did you mean "memory"?; daybreak.example.yaml`,
		"serve: {listn: ':1'}\n":                   `line 1: unknown field "listn"; did you mean "listen"?`,
		"sandbox:\n  memory: lots\n":               `line 2: "lots" is not a size; write for example`,
		"model: a/b\nbudget: {wall: 2d}\n":         `line 2: "2d" is not a duration; write for example`,
		"budget:\n  wall: soon\n":                  `line 2: "soon" is not a duration; write for example`,
		"foo: 1\n":                                 `line 1: unknown field "foo"; daybreak.example.yaml`,
		"frobnicate: 1\n":                          `line 1: unknown field "frobnicate"; daybreak.example.yaml`,
		"notify: {webhook: {urls: 'secret-word'}}": `unknown field "urls"`,
	} {
		path := filepath.Join(t.TempDir(), "daybreak.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) || strings.ContainsAny(err.Error(), "\n>") || strings.Contains(err.Error(), "secret-word") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

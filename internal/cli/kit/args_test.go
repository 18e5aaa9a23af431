package kit

import (
	"testing"

	"github.com/spf13/cobra"
)

// What is missing, or too much, is named.
func TestTakes(t *testing.T) {
	for _, c := range []struct {
		use  string
		args []string
		want string
	}{
		{"rm URL", nil, "URL is missing"},
		{"rm URL", []string{"a"}, ""},
		{"rm URL", []string{"a", "b"}, `"b" is one argument too many`},
		{"prepare URL|PATH", nil, "URL|PATH is missing"},
		{"answer TASK TEXT...", nil, "TASK and TEXT are missing"},
		{"answer TASK TEXT...", []string{"t"}, "TEXT is missing"},
		{"answer TASK TEXT...", []string{"t", "a", "b"}, ""},
		{"show [TASK]", nil, ""},
		{"show [TASK]", []string{"a", "b"}, `"b" is one argument too many`},
		{"verify-evidence FILE --key KEY", nil, "FILE is missing"},
		{"verify-evidence FILE --key KEY", []string{"a", "b"}, `"b" is one argument too many`},
	} {
		got := ""
		if err := Takes(&cobra.Command{Use: c.use}, c.args); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s %q: %q, want %q", c.use, c.args, got, c.want)
		}
	}
}

package agent

import (
	"regexp"
	"strings"
	"testing"
)

// FuzzStable holds the scanner to the expression that says what it means.
func FuzzStable(f *testing.F) {
	for _, s := range []string{
		"", "exit 0 in 0.01 s", "ok \tx\t1.204s", "1m30s", "took 12 ms, 3µs, 4ns, 5 h", "process 12 runs", "process 12.5s", "subprocess 12", "12:30:01s",
		"1.s", "3 seconds", "7 m", "v1.2.3", "processes 4", "process ", "9", "9 ", "1 2s", "a1s_", "1s\x80",
	} {
		f.Add(s)
	}
	means := regexp.MustCompile(`[0-9][0-9.:]* ?(?:ns|µs|ms|s|m|h)\b|\bprocess [0-9]+`)
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := stable(s), means.ReplaceAllString(s, ""); got != want {
			t.Errorf("%q became %q, want %q", s, got, want)
		}
	})
}

func BenchmarkStable30kB(b *testing.B) {
	s := strings.Repeat("--- PASS: TestTotal/12/case_7 (0.00s)\n", 800)
	b.SetBytes(int64(len(s)))
	for b.Loop() {
		stable(s)
	}
}

package taskview

import "testing"

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 82_854: "83 kB", 9_960: "10 kB", 999_600: "1.0 MB", 1_440_000: "1.4 MB", 3 << 40: "3.3 TB"} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) = %q, want %q", n, got, want)
		}
	}
	if got := Count(1234567); got != "1,234,567" {
		t.Errorf("Count = %q", got)
	}
}

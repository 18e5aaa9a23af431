package config

import "testing"

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"4GiB": 4 << 30, "512MB": 512e6, "1.5 kB": 1500, "2g": 2e9, "17": 17, "3 tib": 3 << 40, "0": 0} {
		if got, ok := bytesOf(text); !ok || got != want {
			t.Errorf("bytesOf(%q) = %d, %v, want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "GiB", "-1", "4XB", "4GGB", "lots", "1e30", "4 G i", "NaN", "0x10", "90000000TB"} {
		if got, ok := bytesOf(text); ok {
			t.Errorf("bytesOf(%q) = %d, want none", text, got)
		}
	}
}

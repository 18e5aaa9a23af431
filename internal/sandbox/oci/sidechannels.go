package oci

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sideChannels says what the host does about channels that no sandbox closes: shared cores,
// merged memory, swap, and the kernel's own mitigations.
func sideChannels() []string {
	var out []string
	onOff := func(file, name string) {
		if b, err := os.ReadFile(file); err == nil {
			state := map[string]string{"0": "off", "1": "on"}[strings.TrimSpace(string(b))]
			if state == "" {
				state = strings.TrimSpace(string(b))
			}
			out = append(out, name+" "+state)
		}
	}
	onOff("/sys/devices/system/cpu/smt/active", "SMT")
	onOff("/sys/kernel/mm/ksm/run", "KSM")
	files, _ := filepath.Glob("/sys/devices/system/cpu/vulnerabilities/*")
	var open []string
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(b), "Vulnerable") {
			open = append(open, filepath.Base(f))
		}
	}
	if len(files) > 0 {
		s := fmt.Sprintf("processor mitigations: %d of %d known flaws are without one", len(open), len(files))
		if len(open) > 0 {
			s += " (" + strings.Join(open, ", ") + ")"
		}
		out = append(out, s)
	}
	return out
}

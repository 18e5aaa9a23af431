package sandboxtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// What comes out otherwise where a kernel of the sandbox's own answers system calls.
const (
	uidMap       = "uid map"
	firstProcess = "process 1"
	hostView     = "view of the host"
	memoryLimit  = "memory limit"
	specialFiles = "special files"
)

// differences are the reasons. Nothing is left out for them: each is checked in the way that
// holds there.
var differences = map[string]string{
	uidMap:       "its ids are those of its own kernel; on the host all of it runs in a range of its own",
	firstProcess: "it lets others list, not open, the descriptors of process 1, and needs a rule that spares it from signals",
	hostView:     "the host sees the kernel, not the processes in it",
	memoryLimit:  "the host ends the kernel, and with it the sandbox, not a process",
	specialFiles: "sockets and fifos in the work tree exist in its kernel alone, so that the export has none to skip",
}

// differs reports whether a check comes out otherwise with this runtime.
func (s *suite) differs(t *testing.T, check string) bool {
	t.Helper()
	reason, known := differences[check]
	if !known {
		t.Fatalf("%q is no known difference", check)
	}
	if s.ownKernel {
		t.Logf("%s: %s", check, reason)
	}
	return s.ownKernel
}

// onHost returns a word by which [hostProcesses] finds what runs in b: the word of its own that
// the test gives to a process in it, or what the host sees instead. The process gets the word
// in either case.
func (s *suite) onHost(t *testing.T, b sandbox.Sandbox, word string) string {
	t.Helper()
	if s.differs(t, hostView) {
		return b.Handle().ID
	}
	return word
}

// hostUIDs are the different user ids, on the host, of the processes that have word in their
// arguments.
func hostUIDs(t *testing.T, word string) (ids []string) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(b), word) {
			continue
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(name), "status"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(status)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "Uid:" && !slices.Contains(ids, f[1]) {
				ids = append(ids, f[1])
			}
		}
	}
	return ids
}

package oci_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/sandbox/oci"
	"github.com/daybreak-agent/daybreak/internal/sandbox/sandboxtest"
)

// runscPath finds gVisor's runtime: the one that the project builds, or one in PATH.
func runscPath(t testing.TB) string {
	t.Helper()
	if p := os.Getenv("DAYBREAK_RUNSC"); p != "" {
		return p
	}
	if p, err := filepath.Abs("../../../.tools/bin/runsc"); err == nil {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	lacking(t, "no runsc: run make gvisor or set DAYBREAK_RUNSC")
	return ""
}

// onGVisor is a change of a configuration.
func onGVisor(t testing.TB) func(*oci.Config) {
	return func(c *oci.Config) { c.Engine, c.Runtime = oci.Runsc, runscPath(t) }
}

func TestSuiteGVisor(t *testing.T) {
	sandboxtest.Run(t, func(t *testing.T) sandbox.Runtime { return newRuntime(t, onGVisor(t)) })
}

// An ordinary user has gVisor too: the whole suite passes, of which this is the short form.
func TestUserGVisor(t *testing.T) {
	asUser(t)
	r := newRuntime(t, onGVisor(t))
	b := startUser(t, r, sandbox.Spec{})
	if got := b.Info().Isolation; got != "rootless "+sandbox.GVisor {
		t.Errorf("isolation %q", got)
	}
	if got := shell(t, b, "cat /proc/version; id -u; echo 1 > f"); !strings.Contains(got, "gvisor") || !strings.HasSuffix(got, "\n1000\n") {
		t.Errorf("in the sandbox: %q", got)
	}
	if m, err := b.Export(t.Context(), sandbox.ExportLimits{}); err != nil || len(m.Entries) != 1 {
		t.Errorf("export: %v, %v", m, err)
	}
}

// BenchmarkStart times the same sandbox on both runtimes, from the call to the guest's answer,
// and a command in it.
func BenchmarkStart(b *testing.B) {
	for name, change := range map[string]func(*oci.Config){oci.Runc: nil, oci.Runsc: onGVisor(b)} {
		r := newRuntime(b, change)
		start := func(b *testing.B) sandbox.Sandbox {
			s, err := r.Start(b.Context(), sandbox.Spec{Task: "bench", Purpose: "exec"})
			if err != nil {
				b.Fatal(err)
			}
			return s
		}
		b.Run(name+"/start", func(b *testing.B) {
			for b.Loop() {
				s := start(b)
				b.StopTimer()
				if err := s.Destroy(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
		s := start(b)
		b.Run(name+"/command", func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Guest().Exec(b.Context(), guest.ExecRequest{Argv: []string{"/bin/true"}}); err != nil {
					b.Fatal(err)
				}
			}
		})
		if err := s.Destroy(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

package oci_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// benchTree makes a tree of 50,000 files.
func benchTree(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	for d := range 500 {
		sub := filepath.Join(dir, fmt.Sprintf("d%03d", d))
		if err := os.Mkdir(sub, 0o755); err != nil {
			b.Fatal(err)
		}
		for f := range 100 {
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%02d.go", f)), []byte("package x\n"), 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	return dir
}

// BenchmarkSandbox times the steps of a sandbox's life over a tree of 50,000 files.
func BenchmarkSandbox(b *testing.B) {
	r := newRuntime(b, nil)
	spec := sandbox.Spec{Task: "bench", Purpose: "exec", Tree: benchTree(b)}
	start := func(b *testing.B) sandbox.Sandbox {
		s, err := r.Start(b.Context(), spec)
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	destroy := func(b *testing.B, s sandbox.Sandbox) {
		if err := s.Destroy(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("Start", func(b *testing.B) {
		for b.Loop() {
			s := start(b)
			b.StopTimer()
			destroy(b, s)
			b.StartTimer()
		}
	})
	b.Run("Destroy", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			s := start(b)
			b.StartTimer()
			destroy(b, s)
		}
	})
	s := start(b)
	defer destroy(b, s)
	b.Run("Exec", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Guest().Exec(b.Context(), guest.ExecRequest{Argv: []string{"/bin/true"}}); err != nil {
				b.Fatal(err)
			}
		}
	})
	if _, err := s.Guest().Exec(b.Context(), guest.ExecRequest{Shell: "for i in 1 2 3 4 5; do echo x >> d00$i/f01.go; done; rm d010/f0*"}); err != nil {
		b.Fatal(err)
	}
	b.Run("Export", func(b *testing.B) {
		for b.Loop() {
			m, err := s.Export(b.Context(), sandbox.ExportLimits{})
			if err != nil || len(m.Entries) != 15 {
				b.Fatal(len(m.Entries), err)
			}
		}
	})
}

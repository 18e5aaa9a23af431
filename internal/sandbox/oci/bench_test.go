package oci_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/sandbox/oci"
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

// BenchmarkProfile starts sandboxes of the full profile and plain ones by turns and reports
// their medians and how many times longer the full one takes: 1.3 at the most is wanted. A
// plain one has the namespaces and limits, and neither a filter of system calls nor masks,
// Landlock, a limit of user namespaces or idmapped layers.
func BenchmarkProfile(b *testing.B) {
	tree := benchTree(b)
	full, plain := newRuntime(b, nil), newRuntime(b, nil)
	oci.Alter(plain, func(s *specs.Spec) {
		s.Linux.Seccomp, s.Linux.MaskedPaths, s.Linux.ReadonlyPaths, s.Process.Rlimits = nil, nil, nil, nil
		oci.WithoutLandlock(s)
		oci.WithoutLimit(s)
	})
	start := func(r *oci.Runtime, spec sandbox.Spec) time.Duration {
		s, err := r.Start(b.Context(), spec)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Destroy(b.Context()); err != nil {
			b.Fatal(err)
		}
		return s.Info().Ready
	}
	var with, without []time.Duration
	for b.Loop() {
		with = append(with, start(full, sandbox.Spec{Tree: tree}))
		without = append(without, start(plain, sandbox.Spec{}))
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Microseconds()) / 1000
	}
	b.ReportMetric(median(with), "full-ms")
	b.ReportMetric(median(without), "plain-ms")
	b.ReportMetric(median(with)/median(without), "ratio")
}

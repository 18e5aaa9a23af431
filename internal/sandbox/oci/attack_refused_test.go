package oci_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/sandbox/oci"
)

// A step of the set-up that fails refuses the launch, names its layer in one line, and leaves
// nothing; there is no weaker mode to fall back to.
func TestFailingLayersRefuse_GW09(t *testing.T) {
	if gvisor() {
		t.Skip("not exercised: the breaks are of runc's configuration")
	}
	for _, c := range []struct {
		layer string
		spoil func(*specs.Spec)
	}{
		{"seccomp", func(s *specs.Spec) { s.Linux.Seccomp.DefaultAction = "SCMP_ACT_NONE_OF_THESE" }},
		{"seccomp", func(s *specs.Spec) { s.Linux.Seccomp.Architectures = []specs.Arch{"SCMP_ARCH_NO_SUCH"} }},
		{"mounts", func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/run", Type: "bind", Source: "/no/such/place", Options: []string{"bind"}})
		}},
		{"mounts", func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/run", Type: "nosuchfs", Source: "none"})
		}},
		{"cgroup", func(s *specs.Spec) { s.Linux.Resources.Unified = map[string]string{"no.such": "1"} }},
		{"user namespace", func(s *specs.Spec) { s.Linux.UIDMappings = append(s.Linux.UIDMappings, s.Linux.UIDMappings...) }},
		{"rlimits", func(s *specs.Spec) {
			s.Process.Rlimits = append(s.Process.Rlimits, specs.POSIXRlimit{Type: "RLIMIT_NO_SUCH", Hard: 1, Soft: 1})
		}},
		{"sysctl", func(s *specs.Spec) { s.Linux.Sysctl = map[string]string{"net.ipv4.no_such": "1"} }},
		{"runtime", func(s *specs.Spec) { s.Process.Args = nil }},
		{"landlock", func(s *specs.Spec) {
			s.Process.Args = append(s.Process.Args, "--landlock", "2", "--write", "/no/such/tree")
		}},
		{"user namespace limit", func(s *specs.Spec) { s.Hooks.CreateContainer[0].Args = []string{"guest", "no-such-verb"} }},
	} {
		t.Run(c.layer, func(t *testing.T) {
			r := target(t)
			oci.Alter(r, c.spoil)
			refusedAs(t, r, sandbox.Spec{}, c.layer)
		})
	}
	t.Run("guest", func(t *testing.T) {
		p := filepath.Join(t.TempDir(), "guest")
		if err := os.WriteFile(p, []byte("#!/bin/sh\necho a guest of another kind\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		refusedAs(t, newRuntime(t, func(c *oci.Config) { c.Guest = p }), sandbox.Spec{}, "guest")
	})
	t.Run("etc", func(t *testing.T) {
		refusedAs(t, newRuntime(t, func(c *oci.Config) { c.RootFS = "/no/such/root" }), sandbox.Spec{}, "root file system")
	})
	t.Run("tree", func(t *testing.T) { refusedAs(t, target(t), sandbox.Spec{Tree: "/no/such/tree"}, "idmapped mount") })
}

func refusedAs(t *testing.T, r *oci.Runtime, spec sandbox.Spec, layer string) {
	t.Helper()
	b, err := r.Start(t.Context(), spec)
	if err == nil {
		end(t, b)
		t.Fatal("it started")
	}
	var refused *sandbox.RefusedError
	if !errors.As(err, &refused) || refused.Layer != layer || strings.Contains(err.Error(), "\n") {
		t.Errorf("want %s refused in one line: %v", layer, err)
	}
	if left, err := r.List(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// An OCI runtime that is too old or built without a layer is refused, and says why; the Go
// release that builds this program is one with the fixed os.Root.
func TestToolchainFloor_OPS07(t *testing.T) {
	for says, features := range map[string]string{
		"without seccomp":      `{"ociVersionMax":"1.0.2","linux":{"namespaces":["user","mount","pid","network","ipc","uts","cgroup"],"cgroup":{"v1":true,"v2":true},"seccomp":{"enabled":false}}}`,
		"user namespace":       `{"ociVersionMax":"1.0.2","linux":{"namespaces":["mount","pid","network","ipc","uts","cgroup"],"cgroup":{"v1":true,"v2":true},"seccomp":{"enabled":true}}}`,
		"no Linux containers":  `{"ociVersionMax":"1.0.2"}`,
		"unexpected end of JS": ``,
	} {
		p := filepath.Join(t.TempDir(), "runc")
		if err := os.WriteFile(p, []byte("#!/bin/sh\ncat <<'E'\n"+features+"\nE\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		r := newRuntime(t, func(c *oci.Config) { c.Runtime = p })
		_, err := r.Start(t.Context(), sandbox.Spec{})
		var refused *sandbox.RefusedError
		if !errors.As(err, &refused) || refused.Layer != "runtime" || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q: %v", says, err)
		}
		if c := r.Capabilities(t.Context()); len(c.Missing) == 0 {
			t.Errorf("doctor finds nothing missing where the start says %v", err)
		}
	}
	var major, minor int
	if v := strings.TrimPrefix(runtime.Version(), "go1."); v != runtime.Version() {
		major = 1
		for _, d := range v {
			if d < '0' || d > '9' {
				break
			}
			minor = minor*10 + int(d-'0')
		}
	}
	if major != 1 || minor < 25 {
		t.Errorf("built with %s: os.Root is sound from Go 1.25 on", runtime.Version())
	}
}

// The program that people run has no way to take a layer off; a build for tests has.
func TestNoLayerComesOffInTheProduct_OPS06(t *testing.T) {
	dir := t.TempDir()
	has := func(tags string) bool {
		out := filepath.Join(dir, "daybreak"+tags)
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-tags", tags, "-o", out, "github.com/daybreak-agent/daybreak/cmd/daybreak")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, b)
		}
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(b, []byte("DAYBREAK_LAYER_OFF"))
	}
	if os.Getenv("DAYBREAK_ATTACK") != "" && !has("layeroff") { // a second build of it all
		t.Fatal("a build that may take layers off does not show it, so the test shows nothing")
	}
	if has("") {
		t.Error("the program can be told to take a layer off")
	}
}

package oci_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/sandbox/oci"
	"github.com/daybreak-agent/daybreak/internal/sandbox/sandboxtest"
)

// Each layer is needed: with it an attack fails, and without it, all else unchanged, the
// same attack succeeds.
func TestLayersAreNeeded_OPS06(t *testing.T) {
	tree := t.TempDir()
	probe, err := os.ReadFile(sandboxtest.Probe(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "probe"), probe, 0o755); err != nil {
		t.Fatal(err)
	}
	says := func(line string) func(string) bool {
		return func(out string) bool { return slices.Contains(strings.Split(out, "\n"), line) }
	}
	without := func(kind specs.LinuxNamespaceType) func(*specs.Spec) {
		return func(s *specs.Spec) {
			s.Linux.Namespaces = slices.DeleteFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == kind })
		}
	}
	noSeccomp := func(s *specs.Spec) { s.Linux.Seccomp = nil }
	for _, c := range []struct {
		name, attack string
		broke        func(out string) bool
		off          func(*specs.Spec)
	}{
		{"seccomp: keys", "./probe syscalls keyctl", func(out string) bool { return !strings.Contains(out, "EPERM") }, noSeccomp},
		{"seccomp: user namespace", "./probe syscalls clone_user", says("clone_user ok"), noSeccomp},
		{"seccomp: process memory", "./probe syscalls process_vm_readv", says("process_vm_readv ok"), noSeccomp},
		{"no new privileges", "grep NoNewPrivs /proc/self/status | tr -s '\\t' ' '", says("NoNewPrivs: 0"), func(s *specs.Spec) {
			s.Process.NoNewPrivileges = false
		}},
		{"capabilities", "grep CapBnd /proc/self/status | tr -s '\\t' ' '", says("CapBnd: 0000000000000400"), func(s *specs.Spec) {
			s.Process.Capabilities.Bounding = []string{"CAP_NET_BIND_SERVICE"}
		}},
		{"pids limit", "./probe forks", func(out string) bool { return strings.Contains(out, "children 99") }, func(s *specs.Spec) {
			s.Linux.Resources.Pids = nil
		}},
		{"memory limit", "./probe memory 400", says("allocated 400"), func(s *specs.Spec) { s.Linux.Resources.Memory = nil }},
		{"masked paths", "wc -c < /proc/cmdline | sed 's/^[1-9].*/read/'", says("read"), func(s *specs.Spec) { s.Linux.MaskedPaths = nil }},
		{"hostname namespace", "hostname", func(out string) bool { h, _ := os.Hostname(); return h != "sandbox" && strings.TrimSpace(out) == h }, func(s *specs.Spec) {
			without(specs.UTSNamespace)(s)
			s.Hostname = ""
		}},
		{"ipc namespace", "stat -L -c %i /proc/self/ns/ipc", func(out string) bool {
			mine, err := exec.Command("stat", "-L", "-c", "%i", "/proc/self/ns/ipc").Output()
			return err == nil && out == string(mine)
		}, without(specs.IPCNamespace)},
		{"core limit", "ulimit -Hc", func(out string) bool { return strings.TrimSpace(out) != "0" }, func(s *specs.Spec) {
			s.Process.Rlimits = slices.DeleteFunc(s.Process.Rlimits, func(l specs.POSIXRlimit) bool { return l.Type == "RLIMIT_CORE" })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			try := func(off func(*specs.Spec)) (string, bool) {
				r := newRuntime(t, nil)
				oci.Alter(r, off)
				b, err := r.Start(t.Context(), sandbox.Spec{Tree: tree, Limits: sandbox.Limits{Memory: 256 << 20, Pids: 90}})
				if err != nil {
					t.Fatal(err)
				}
				defer b.Destroy(t.Context())
				command := strings.Replace(c.attack, "./probe forks", "./probe forks 100", 1)
				res, err := b.Guest().Exec(t.Context(), guest.ExecRequest{Shell: command, Head: 1 << 20})
				if err != nil {
					t.Fatal(err)
				}
				return string(res.Head), c.broke(string(res.Head))
			}
			if out, broke := try(nil); broke {
				t.Errorf("the attack succeeds in the real profile: %s", out)
			}
			if out, broke := try(c.off); !broke {
				t.Errorf("the attack fails without the layer too, so the test shows nothing: %s", out)
			}
		})
	}
}

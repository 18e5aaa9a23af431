package oci_test

import (
	"fmt"
	"net"
	"net/http"
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
	if gvisor() {
		t.Skip("not exercised: the layers are those of runc")
	}
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
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "host") })}
	go func() { _ = host.Serve(listener) }()
	defer host.Close()
	for _, c := range []wall{
		{name: "seccomp: keys_SBX09", attack: "./probe syscalls keyctl", broke: func(out string) bool { return !strings.Contains(out, "EPERM") }, off: noSeccomp},
		{name: "seccomp: user namespace_SBX05", attack: "./probe syscalls clone_user", broke: says("clone_user ok"), off: noSeccomp, both: oci.WithoutLimit},
		{name: "seccomp: process memory_SBX07", attack: "./probe syscalls process_vm_readv", broke: says("process_vm_readv ok"), off: noSeccomp},
		{name: "no new privileges_SBX03", attack: "grep NoNewPrivs /proc/self/status | tr -s '\\t' ' '", broke: says("NoNewPrivs: 0"), off: oci.GainPrivileges},
		{name: "capabilities_SBX03", attack: "grep CapBnd /proc/self/status | tr -s '\\t' ' '", broke: says("CapBnd: 0000000000000400"), off: func(s *specs.Spec) {
			s.Process.Capabilities.Bounding = []string{"CAP_NET_BIND_SERVICE"}
		}},
		{name: "pids limit_SBX17", attack: "./probe forks 100", broke: func(out string) bool {
			return strings.Contains(out, "children 100") || strings.Contains(out, "children 99")
		}, off: func(s *specs.Spec) {
			s.Linux.Resources.Pids = nil
		}},
		{name: "memory limit_SBX18", attack: "./probe memory 400", broke: says("allocated 400"), off: func(s *specs.Spec) { s.Linux.Resources.Memory = nil }},
		{name: "inode cap_SBX19", attack: "cd /tmp && seq 17000 | xargs touch 2>/dev/null; ls | wc -l", broke: says("17000"), off: func(s *specs.Spec) {
			for i, m := range s.Mounts {
				s.Mounts[i].Options = slices.DeleteFunc(slices.Clone(m.Options), func(o string) bool { return strings.HasPrefix(o, "nr_inodes=") })
			}
		}},
		{name: "masked paths_SBX14", attack: "wc -c < /proc/cmdline | sed 's/^[1-9].*/read/'", broke: says("read"), off: func(s *specs.Spec) { s.Linux.MaskedPaths = nil }},
		{name: "network namespace_NET01", attack: "./probe get " + listener.Addr().String(), broke: says("host"), off: without(specs.NetworkNamespace)},
		{name: "process namespace_SBX15", attack: fmt.Sprintf("test -d /proc/%d/task && grep -c '' /proc/%d/comm", os.Getpid(), os.Getpid()), broke: says("1"), off: func(s *specs.Spec) {
			without(specs.PIDNamespace)(s)
			for i, m := range s.Mounts {
				if m.Type == "proc" {
					s.Mounts[i] = specs.Mount{Destination: m.Destination, Type: "bind", Source: "/proc", Options: []string{"rbind"}}
				}
			}
			s.Linux.MaskedPaths, s.Linux.ReadonlyPaths = nil, nil // what is masked there would be masked here
		}},
		{name: "hostname namespace_SBX24", attack: "hostname", broke: func(out string) bool { h, _ := os.Hostname(); return h != "sandbox" && strings.TrimSpace(out) == h }, off: func(s *specs.Spec) {
			without(specs.UTSNamespace)(s)
			s.Hostname = ""
		}},
		{name: "ipc namespace_SBX24", attack: "stat -L -c %i /proc/self/ns/ipc", broke: func(out string) bool {
			mine, err := exec.Command("stat", "-L", "-c", "%i", "/proc/self/ns/ipc").Output()
			return err == nil && out == string(mine)
		}, off: without(specs.IPCNamespace)},
		{name: "core limit_SBX23", attack: "ulimit -Hc", broke: func(out string) bool { return strings.TrimSpace(out) != "0" }, off: func(s *specs.Spec) {
			s.Process.Rlimits = slices.DeleteFunc(s.Process.Rlimits, func(l specs.POSIXRlimit) bool { return l.Type == "RLIMIT_CORE" })
		}},
	} {
		t.Run(c.name, func(t *testing.T) { c.stands(t, tree) })
	}
}

// wall is one layer and an attack that it alone keeps from succeeding.
type wall struct {
	name, attack string
	broke        func(out string) bool
	off          func(*specs.Spec)
	both         func(*specs.Spec) // what both runs go without, so that this layer stands alone
}

func (c wall) stands(t *testing.T, tree string) {
	t.Helper()
	try := func(off func(*specs.Spec)) (string, bool) {
		r := newRuntime(t, nil)
		oci.Alter(r, func(s *specs.Spec) {
			for _, f := range []func(*specs.Spec){c.both, off} {
				if f != nil {
					f(s)
				}
			}
		})
		b, err := r.Start(t.Context(), sandbox.Spec{Tree: tree, Limits: sandbox.Limits{Memory: 256 << 20, Pids: 90, TempBytes: 16 << 20}})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Destroy(t.Context())
		res, err := b.Guest().Exec(t.Context(), guest.ExecRequest{Shell: c.attack, Head: 1 << 20})
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
}

// Where the mounts would let a command write, Landlock does not.
func TestLandlock_SBX02(t *testing.T) {
	if gvisor() {
		t.Skip("not exercised: Landlock is the host kernel's, and with gVisor the sandbox has another")
	}
	if guest.Landlock() == 0 {
		t.Skip("not exercised: this kernel has no Landlock")
	}
	wall{attack: "echo x > /run/x; cat /run/x", broke: func(out string) bool { return strings.HasPrefix(out, "x") }, off: oci.WithoutLandlock, both: func(s *specs.Spec) {
		s.Mounts = append(s.Mounts, specs.Mount{Destination: "/run", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=1777", "size=64k"}})
	}}.stands(t, t.TempDir())
}

// Where no filter forbids a user namespace, the sandbox's own has room for none.
func TestNoRoomForUserNamespaces_SBX05(t *testing.T) {
	if gvisor() {
		t.Skip("not exercised: with gVisor the sandbox's kernel makes them, and the host's sees none")
	}
	wall{attack: "./probe syscalls clone_user", broke: func(out string) bool { return strings.Contains(out, "clone_user ok") }, off: oci.WithoutLimit, both: noSeccomp}.stands(t, armed(t, nil))
}

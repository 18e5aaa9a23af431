package oci_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/guest/probe"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/sandbox/oci"
)

// selfTest runs the self-test in a fresh sandbox and judges it.
func selfTest(t *testing.T, change func(*oci.Config), off func(*specs.Spec)) []probe.Finding {
	t.Helper()
	r := newRuntime(t, change)
	oci.Alter(r, off)
	c := r.Capabilities(t.Context())
	spec := sandbox.Spec{Limits: sandbox.Limits{WorkBytes: 64 << 20, HomeBytes: 64 << 20, TempBytes: 64 << 20}}
	b, err := r.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Destroy(t.Context())
	res, err := b.Guest().Exec(t.Context(), guest.ExecRequest{Argv: []string{sandbox.GuestPath, "probe"}, Head: 1 << 20})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%v, exit code %d: %s%s", err, res.ExitCode, res.Head, res.Error)
	}
	got, err := probe.Decode(bytes.NewReader(res.Head))
	if err != nil {
		t.Fatal(err)
	}
	return probe.Judge(got, probe.Facts{
		OwnKernel: c.OwnKernel, Rootless: c.Rootless, Namespaces: probe.HostNamespaces(),
		Writable: map[string]int64{sandbox.WorkDir: 64 << 20, sandbox.HomeDir: 64 << 20, sandbox.TempDir: 64 << 20, "/dev/shm": 64 << 20},
	})
}

// unexpected are the names of the findings that were not expected.
func unexpected(all []probe.Finding) (out []string) {
	for _, f := range all {
		if !f.Expected {
			out = append(out, f.Area+": "+f.Name+" = "+f.Got)
		}
	}
	return out
}

// In the real profile the self-test finds all as expected, and it makes enough attempts to mean it.
func TestSelfTest(t *testing.T) {
	for name, change := range map[string]func(*testing.T) func(*oci.Config){
		oci.Runc:  func(*testing.T) func(*oci.Config) { return nil },
		oci.Runsc: func(t *testing.T) func(*oci.Config) { return onGVisor(t) },
	} {
		t.Run(name, func(t *testing.T) {
			all := selfTest(t, change(t), nil)
			if bad := unexpected(all); len(bad) > 0 {
				t.Errorf("unexpected:\n%s", strings.Join(bad, "\n"))
			}
			if len(all) < 150 {
				t.Errorf("%d attempts", len(all))
			}
		})
	}
}

// With a layer taken off the line that speaks of it turns unexpected.
func TestSelfTestSeesAMissingLayer(t *testing.T) {
	without := func(kind specs.LinuxNamespaceType) func(*specs.Spec) {
		return func(s *specs.Spec) {
			s.Linux.Namespaces = slices.DeleteFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == kind })
		}
	}
	for _, c := range []struct {
		name string
		off  func(*specs.Spec)
		want []string // beginnings of lines
	}{
		{"seccomp and the limit of user namespaces", func(s *specs.Spec) { s.Linux.Seccomp = nil; oci.WithoutLimit(s) }, []string{
			"identity: seccomp = 0", "namespaces: new user namespace = ok", "system calls: keyctl = ", "system calls: clone3 = ", "sockets: vsock = ", "sockets: other families = ",
		}},
		{"no new privileges", oci.GainPrivileges, []string{"identity: no new privileges = 0"}},
		{"capabilities", func(s *specs.Spec) { s.Process.Capabilities.Bounding = []string{"CAP_NET_RAW"} }, []string{"identity: capabilities, bounding = 0000000000002000"}},
		{"masked paths", func(s *specs.Spec) { s.Linux.MaskedPaths = nil }, []string{"proc: read cmdline = 64 bytes"}},
		{"ipc namespace", without(specs.IPCNamespace), []string{"namespaces: ipc = ipc:["}},
		{"core limit", func(s *specs.Spec) {
			s.Process.Rlimits = slices.DeleteFunc(s.Process.Rlimits, func(l specs.POSIXRlimit) bool { return l.Type == "RLIMIT_CORE" })
		}, []string{"limits: core dumps = "}},
		{"cap on memory files", func(s *specs.Spec) {
			for i, m := range s.Mounts {
				if m.Destination == sandbox.TempDir {
					s.Mounts[i].Options = []string{"nosuid", "nodev", "mode=1777"}
				}
			}
		}, []string{"mounts: /tmp = writable, "}},
		{"environment", func(s *specs.Spec) { s.Process.Env = append(s.Process.Env, "CLOUD_TOKEN=x") }, []string{"environment: names from "}},
		{"network namespace", without(specs.NetworkNamespace), []string{"namespaces: net = net:["}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := unexpected(selfTest(t, nil, c.off))
			for _, w := range c.want {
				if !slices.ContainsFunc(bad, func(line string) bool { return strings.HasPrefix(line, w) }) {
					t.Errorf("no line %q…, but:\n%s", w, strings.Join(bad, "\n"))
				}
			}
			for _, line := range bad { // where there is a way out nothing is sent
				if strings.Contains(line, "tcp ") && !strings.Contains(line, "not tried") {
					t.Errorf("tried: %s", line)
				}
			}
		})
	}
}

package oci

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// gvisorEngine drives gVisor's runsc. A sandbox's system calls are answered by a kernel of its
// own in user space; what the host sees is that kernel and a file server, in namespaces, a
// range of ids, a cgroup and a seccomp filter of gVisor's own.
func gvisorEngine() engine {
	return engine{
		name: Runsc, isolation: sandbox.GVisor, ownKernel: true, pauses: true, needs: "run make gvisor, or install runsc",
		version: func(ctx context.Context, path string, _ runtimeFeatures) (string, error) {
			cmd := exec.CommandContext(ctx, path, "--version")
			cmd.Env = []string{}
			out, err := cmd.Output()
			if err != nil {
				return "", fmt.Errorf("%s --version: %w", path, err)
			}
			first, _, _ := strings.Cut(string(out), "\n")
			v, ok := strings.CutPrefix(first, "runsc version ")
			if !ok || v == "" {
				return "", fmt.Errorf("%s is no runsc: it calls itself %.80q", path, first)
			}
			return v, nil
		},
		missing: func(f runtimeFeatures, mode string) []string {
			c := f.Linux.Cgroup // it names what this host has
			if c != nil && (mode == "v2" && c.V2 != nil && *c.V2 || mode != "v2" && c.V1 != nil && *c.V1) {
				return nil
			}
			return []string{"runsc cannot manage cgroup " + mode + ": use a newer one"}
		},
		args:   func(standing) []string { return gvisorFlags() },
		shape:  gvisorShape,
		litter: gvisorLitter,
		notes: []string{
			"gvisor: a sandbox that passes its memory limit ends as a whole; with runc only a process of it does",
		},
	}
}

// gvisorFlags are spelled out where a default would be weaker or may change.
func gvisorFlags() []string {
	return []string{
		"--platform=systrap",          // needs no device of the host
		"--network=none",              // loopback of its own network stack
		"--overlay2=none",             // what is written goes to the capped upper layers, where the export finds it
		"--oci-seccomp",               // our list of system calls, held by the sandbox's kernel
		"--directfs=true",             // the kernel runs in the sandbox's own ids; without it as the host's nobody
		"--file-access=exclusive",     // the root is read-only; what comes to it with an owner was not looked at before
		"--file-access-mounts=shared", // nothing written stays in a cache, so that a frozen sandbox can be exported
		"--host-uds=none",             //
		"--host-fifo=none",            //
		"--character-device-policy=emulated-only",
		"--gofer-network-namespace=new", // and no mount that outlives the sandbox
		"--allow-suid=false", "--net-raw=false",
		"--host-settings=ignore", "--sidecar-usage-policy=LEGACY_DEPRECATED_SLOW_EMBEDDED_FALLBACK",
	}
}

// hostThreads bounds the host's threads for one task of a gVisor sandbox: the kernel runs a
// process of the host with a few threads for each address space.
const (
	hostThreads     = 4
	hostThreadsBase = 256
)

// gvisorShape rewrites a configuration. gVisor ignores masked and read-only paths, since its
// /proc and /sys are its own and hold nothing of the host's; of a seccomp filter it ignores the
// error numbers.
func gvisorShape(s *specs.Spec, c container) {
	s.Linux.MaskedPaths, s.Linux.ReadonlyPaths = nil, nil
	if f := s.Linux.Seccomp; f != nil {
		// Its kernel lets a signal end process 1, and the sandbox with it. The first rule that
		// matches decides.
		f.Syscalls = slices.Insert(f.Syscalls, 0, specs.LinuxSyscall{
			Names: []string{"kill", "rt_sigqueueinfo"}, Action: specs.ActErrno, Args: []specs.LinuxSeccompArg{word(0, 1)},
		})
		for i, call := range f.Syscalls {
			if call.ErrnoRet != nil && slices.Equal(call.Names, []string{"clone3"}) {
				// It answers ENOSYS where a tracer is asked for and none is there.
				f.Syscalls[i].Action, f.Syscalls[i].ErrnoRet = specs.ActTrace, nil
			}
			if call.ErrnoRet != nil && slices.Equal(call.Names, []string{"socket"}) {
				f.Syscalls[i].Action, f.Syscalls[i].ErrnoRet = specs.ActAllow, nil // it has no audit and says so itself
			}
		}
	}
	// Tasks are counted by its own kernel, which refuses one more; the host's limit is the
	// wall behind that, and would end the sandbox.
	if p := s.Linux.Resources.Pids; p != nil && p.Limit != nil {
		n := uint64(*p.Limit)
		s.Process.Rlimits = append(s.Process.Rlimits, specs.POSIXRlimit{Type: "RLIMIT_NPROC", Hard: n, Soft: n})
		host := *p.Limit*hostThreads + hostThreadsBase
		s.Linux.Resources.Pids = &specs.LinuxPids{Limit: &host}
	}
	// Part of the profile, and of its digest.
	s.Annotations = map[string]string{"daybreak.flags": strings.Join(gvisorFlags(), " ")}
	if slices.Contains(c.args, "--forward") { // else no socket of the host can be reached, wherever one lies
		s.Annotations["dev.gvisor.flag.host-uds"] = "open"
	}
	// To it the root with all that is mounted below is one read-only mount.
	for _, dir := range c.writable {
		s.Mounts = append(s.Mounts, specs.Mount{
			Destination: dir, Type: "bind", Source: filepath.Join(c.root, dir), Options: []string{"bind", "rw", "nosuid", "nodev"},
		})
	}
	// It would mount a /sys of its own making.
	s.Mounts = append(s.Mounts, specs.Mount{
		Destination: "/sys", Type: "tmpfs", Source: "tmpfs", Options: []string{"ro", "nosuid", "nodev", "noexec", "mode=555", "size=4096"},
	})
}

// gvisorLitter are its state files and its control socket, which lies elsewhere when the name
// of the state directory is too long for one.
func gvisorLitter(dir, id string) []string {
	state := id + "_sandbox:" + id
	out := []string{filepath.Join(dir, state+".state"), filepath.Join(dir, state+".lock")}
	for _, d := range []string{dir, "/var/run", "/run", "/tmp"} {
		out = append(out, filepath.Join(d, "runsc-"+id+".sock"))
	}
	return out
}

// writablePlaces are the mounts of ours that a sandbox writes to.
func writablePlaces() []string { return []string{sandbox.WorkDir, sandbox.HomeDir} }

package oci_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/sandbox/oci"
)

// The root file system is a list of what may be seen. With the host's root in it, a file of
// the host is read at once.
func TestHostFiles_SBX01(t *testing.T) {
	dir := t.TempDir()
	for p := dir; len(p) > len(os.TempDir()); p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	token := canary(t)
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte(token), 0o644); err != nil {
		t.Fatal(err)
	}
	threeRuns(t, attempt{
		command: fmt.Sprintf("cat %[1]s /run%[1]s /proc/1/root%[1]s /proc/self/root/../..%[1]s; ls -d /root/* /home/* /etc/shadow /var/run/docker.sock", secret),
		broke:   func(out string) bool { return strings.Contains(out, token) },
		refused: func(out string) bool {
			return strings.Contains(out, "No such file") && !strings.Contains(out, "\n/root/") && strings.Count(out, "\n/home/") <= 1
		},
		off: func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/run", Type: "bind", Source: "/", Options: []string{"rbind", "ro"}})
		},
	})
}

// Four places take writes, and every other mount point refuses as a read-only one does.
func TestEveryMountRefusesWrites_SBX02(t *testing.T) {
	tree := armed(t, nil)
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	may := map[string]bool{sandbox.WorkDir: true, sandbox.HomeDir: true, sandbox.TempDir: true, "/dev/shm": true}
	before := fingerprint(t, tree, open, "/etc", "/usr/local/bin")
	writable := func(out string) (places []string) {
		for line := range strings.Lines(out) {
			p, outcome, _ := strings.Cut(strings.TrimSpace(line), " ")
			if outcome == "ok" && !may[p] && !strings.HasPrefix(p, "/dev/") && !strings.HasPrefix(p, "/proc/") {
				places = append(places, p)
			}
		}
		return places
	}
	threeRuns(t, attempt{
		command: "./attacker sweep", spec: sandbox.Spec{Tree: tree},
		broke: func(out string) bool { return len(writable(out)) > 0 },
		refused: func(out string) bool {
			return said(out, "/usr") == "EROFS" && said(out, "/etc") == "EROFS" && said(out, "/") == "EROFS" && said(out, sandbox.WorkDir) == "ok" && said(out, sandbox.HomeDir) == "ok"
		},
		off: both(oci.WithoutLandlock, func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/run", Type: "bind", Source: open, Options: []string{"bind", "rw"}})
		}),
	})
	if fingerprint(t, tree, open, "/etc", "/usr/local/bin") != before {
		t.Error("the host's files changed")
	}
}

func TestIdentity_SBX03(t *testing.T) {
	status := func(out string) map[string]string {
		m := map[string]string{}
		for line := range strings.Lines(out) {
			if k, v, ok := strings.Cut(line, ":"); ok {
				m[k] = strings.TrimSpace(v)
			}
		}
		return m
	}
	walls := map[string]string{"CapBnd": "0000000000000000", "CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapInh": "0000000000000000", "CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2"}
	for name, off := range map[string]func(*specs.Spec){
		"CapBnd":     func(s *specs.Spec) { s.Process.Capabilities.Bounding = []string{"CAP_CHOWN"} },
		"NoNewPrivs": oci.GainPrivileges,
		"Seccomp":    noSeccomp,
		"CapEff":     privileged,
	} {
		t.Run(name, func(t *testing.T) {
			threeRuns(t, attempt{
				command: "cat /proc/self/status; echo Map: $(cat /proc/self/uid_map)",
				broke:   func(out string) bool { v, ok := status(out)[name]; return ok && v != walls[name] },
				refused: func(out string) bool {
					m := status(out)
					for k, v := range walls {
						if m[k] != v {
							return false
						}
					}
					return len(strings.Fields(m["Map"])) >= 3 && strings.Fields(m["Map"])[1] != "0"
				},
				off: off,
			})
		})
	}
}

// A set-user-id program of somebody else in a directory of the operator gives nothing.
func TestSetUserID_SBX04(t *testing.T) {
	tree, tools := armed(t, nil), armed(t, nil)
	mount := []sandbox.Mount{{Source: tools, Target: "/opt/tools"}}
	threeRuns(t, attempt{
		command: "/opt/tools/attacker ids; /run/attacker ids; ./attacker devices",
		spec:    sandbox.Spec{Tree: tree, Mounts: mount},
		ready: func(t *testing.T, b sandbox.Sandbox) {
			base, err := strconv.Atoi(strings.Fields(does(t, b, "cat /proc/self/uid_map"))[1])
			if err != nil {
				t.Fatal(err)
			}
			p := filepath.Join(tools, "attacker")
			if err := os.Chown(p, base, base); err != nil { // root of the sandbox's own ids
				t.Fatal(err)
			}
			if err := os.Chmod(p, 0o4755); err != nil {
				t.Fatal(err)
			}
		},
		broke: func(out string) bool {
			return strings.Contains(out, "euid 0") || strings.Contains(out, "mknod_mem ok") || strings.Contains(out, "without_") && !gvisor()
		},
		refused: func(out string) bool {
			return strings.Contains(out, "euid 1000 uid 1000") && said(out, "mknod_mem") == "EPERM" && said(out, "mknod_disk") == "EPERM" && strings.Contains(out, "looked")
		},
		off: func(s *specs.Spec) {
			oci.GainPrivileges(s)
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/run", Type: "bind", Source: tools, Options: []string{"bind", "ro"}})
		},
	})
}

// systemCalls makes three runs of the probe's system calls of these names: each must be EPERM
// in the real profile, and without the list it must reach the kernel.
func systemCalls(t *testing.T, off func(*specs.Spec), calls ...string) {
	t.Helper()
	tree := armed(t, nil)
	command := ""
	for _, call := range calls {
		command += "./probe syscalls " + call + "; "
	}
	try := func(off func(*specs.Spec)) string {
		r := target(t)
		if off != nil {
			oci.Alter(r, off)
		}
		b := begin(t, r, sandbox.Spec{Tree: tree})
		defer end(t, b)
		return does(t, b, command)
	}
	control, real, again := try(off), try(nil), try(off)
	for _, call := range calls {
		t.Run(call, func(t *testing.T) {
			want := "EPERM"
			if call == "clone3" {
				want = "ENOSYS"
			}
			switch {
			case said(real, call) == "ok":
				t.Error("it succeeds in the real profile")
			case said(real, call) != want && !gvisor():
				t.Errorf("%q, want %s", said(real, call), want)
			case said(control, call) == want || said(control, call) == "":
				t.Skipf("not exercised: without the layer %s is %q too", call, said(control, call))
			case said(again, call) != said(control, call):
				t.Errorf("with the layer off again: %q, was %q", said(again, call), said(control, call))
			}
		})
	}
}

func both(fs ...func(*specs.Spec)) func(*specs.Spec) {
	return func(s *specs.Spec) {
		for _, f := range fs {
			f(s)
		}
	}
}

func TestNewNamespaces_SBX05(t *testing.T) {
	systemCalls(t, noSeccomp, "unshare_user", "clone_user", "clone3", "setns")
	systemCalls(t, both(noSeccomp, privileged), "unshare_mount", "unshare_net", "clone_pid")
}

func TestMounting_SBX06(t *testing.T) {
	tree := armed(t, nil)
	calls := []string{"mount", "umount_proc", "chroot", "open_tree", "fsopen"}
	threeRuns(t, attempt{
		command: "./attacker mount", spec: sandbox.Spec{Tree: tree},
		broke: func(out string) bool {
			return slices.ContainsFunc(calls, func(c string) bool { return said(out, c) == "ok" })
		},
		refused: func(out string) bool {
			return !slices.ContainsFunc(calls, func(c string) bool { return said(out, c) != "EPERM" })
		},
		off: both(noSeccomp, privileged),
	})
	systemCalls(t, both(noSeccomp, privileged), "move_mount", "mount_setattr", "pivot_root")
}

func TestTracing_SBX07(t *testing.T) {
	systemCalls(t, noSeccomp, "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd")
	b := begin(t, target(t), sandbox.Spec{Tree: armed(t, nil)})
	out := does(t, b, "./probe syscalls; head -c1 /proc/1/mem; cat /proc/1/maps | head -1; readlink /proc/1/cwd /proc/1/exe")
	for _, what := range []string{"guest_memory", "guest_descriptors", "guest_environment"} {
		if said(out, what) != "EACCES" {
			t.Errorf("%s: %s", what, said(out, what))
		}
	}
	if does(t, b, "echo alive") != "alive\n" {
		t.Error("the guest is gone")
	}
}

func TestRings_SBX08(t *testing.T) {
	systemCalls(t, noSeccomp, "io_uring_setup", "io_uring_enter", "io_uring_register")
}

func TestRareCalls_SBX09(t *testing.T) {
	systemCalls(t, noSeccomp, "keyctl", "add_key", "request_key", "bpf", "userfaultfd", "memfd_secret", "personality_other")
	b := begin(t, target(t), sandbox.Spec{Tree: armed(t, nil)})
	rare := strings.Fields("perf_event_open open_by_handle_at fanotify_init kexec_load init_module finit_module delete_module syslog acct quotactl swapon reboot settimeofday kcmp")
	out := does(t, b, "for c in "+strings.Join(rare, " ")+"; do ./probe syscalls $c; done") // one by one: a call that succeeds may stop the next
	for _, name := range rare {
		if s := said(out, name); s != "EPERM" && (!gvisor() || s != "ENOSYS") {
			t.Errorf("%s: %q", name, s)
		}
	}
}

func TestSocketFamilies_SBX10(t *testing.T) {
	may := map[string]bool{"1": true, "2": true, "10": true, "16": true}
	tree := armed(t, nil)
	opened := func(out string) (n int) {
		for f := range 46 {
			if k := strconv.Itoa(f); !may[k] && said(out, k) == "ok" {
				n++
			}
		}
		return n
	}
	threeRuns(t, attempt{
		command: "./probe families", spec: sandbox.Spec{Tree: tree},
		broke: func(out string) bool { return opened(out) > 0 },
		refused: func(out string) bool {
			for f := range 46 {
				if k := strconv.Itoa(f); !may[k] && said(out, k) != "EPERM" {
					return false
				}
			}
			return said(out, "1") == "ok" && said(out, "10") == "ok"
		},
		off: both(noSeccomp, privileged),
	})
}

func TestTerminals_SBX12(t *testing.T) {
	systemCalls(t, noSeccomp, "tiocsti", "tiocsti_high_bits", "tioclinux")
	b := begin(t, target(t), sandbox.Spec{})
	if out := does(t, b, "(: < /dev/tty) 2>&1; ls /dev/pts; ls -d /dev/console /dev/vcs* /dev/tty[0-9]* 2>/dev/null"); !strings.Contains(out, "No such") || strings.Contains(out, "/dev/console") {
		t.Errorf("terminals: %s", out)
	}
}

// The probe sees what it is given: one more descriptor is reported, and the sandbox has none.
func TestDescriptors_SBX13(t *testing.T) {
	b := begin(t, target(t), sandbox.Spec{Tree: armed(t, nil)})
	if out := does(t, b, "exec 7< /etc; exec ./probe fds"); !strings.Contains(out, "7\n") {
		t.Fatalf("not exercised: the probe does not see a descriptor that is there: %q", out)
	}
	if out := does(t, b, "exec ./probe fds"); out != "0\n1\n2\n" {
		t.Errorf("descriptors %q", out)
	}
	if out := does(t, b, "ls /proc/self/fd/0/.. 2>&1; pwd -P"); !strings.Contains(out, "Not a directory") && !strings.Contains(out, "No such") || !strings.HasSuffix(out, sandbox.WorkDir+"\n") {
		t.Errorf("through a descriptor: %s", out)
	}
}

func TestKernelFiles_SBX14(t *testing.T) {
	threeRuns(t, attempt{
		command: "./attacker masks", spec: sandbox.Spec{Tree: armed(t, nil)},
		broke: func(out string) bool {
			return strings.HasPrefix(said(out, "/proc/cmdline"), "read") && !gvisor() || strings.Contains(out, "write_/proc/sys/kernel/core_pattern ok")
		},
		refused: func(out string) bool {
			for _, p := range []string{"kcore", "keys", "sysrq-trigger", "timer_list", "cmdline", "kallsyms", "kmsg", "modules"} {
				if s := said(out, "/proc/"+p); s != "null" && s != "ENOENT" {
					return false
				}
			}
			return !strings.Contains(strings.ReplaceAll(out, "write_/dev", ""), "ok") && said(out, "write_/sys/fs/cgroup/release_agent") == "ENOENT"
		},
		off: func(s *specs.Spec) { s.Linux.MaskedPaths, s.Linux.ReadonlyPaths = nil, nil },
	})
}

// Without a pid namespace the sandbox sees the processes of the host, this test among them.
func TestProcesses_SBX15(t *testing.T) {
	me := filepath.Base(os.Args[0])
	threeRuns(t, attempt{
		command: "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'; echo; for p in /proc/[0-9]*; do echo seen $p; done",
		broke:   func(out string) bool { return strings.Contains(out, me) },
		refused: func(out string) bool {
			for line := range strings.Lines(out) {
				if n, ok := strings.CutPrefix(strings.TrimSpace(line), "seen /proc/"); ok {
					if pid, err := strconv.Atoi(n); err != nil || pid >= 100 {
						return false
					}
				}
			}
			return strings.Contains(out, "seen /proc/1\n")
		},
		off: both(noNamespace(specs.PIDNamespace), func(s *specs.Spec) {
			for i, m := range s.Mounts {
				if m.Type == "proc" {
					s.Mounts[i] = specs.Mount{Destination: "/proc", Type: "bind", Source: "/proc", Options: []string{"rbind"}}
				}
			}
		}),
	})
	// kill(-1) is asked for with signal 0: who is reached beside the sandbox's own?
	b := begin(t, target(t), sandbox.Spec{Tree: armed(t, nil)})
	if out := does(t, b, "./attacker killall; kill -0 "+strconv.Itoa(os.Getpid())); !strings.Contains(out, "No such process") {
		t.Errorf("it reaches this process: %s", out)
	}
}

func TestClocksAndNeighbours_SBX24(t *testing.T) {
	systemCalls(t, both(noSeccomp, privileged), "sethostname")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	threeRuns(t, attempt{
		command: "hostname",
		broke:   func(out string) bool { return strings.TrimSpace(out) == host },
		refused: func(out string) bool { return out == "sandbox\n" },
		off:     both(noNamespace(specs.UTSNamespace), func(s *specs.Spec) { s.Hostname = "" }),
	})
	// A segment that one task makes is found by another only where both use the host's.
	ipc := func(off func(*specs.Spec)) string {
		r := target(t)
		if off != nil {
			oci.Alter(r, off)
		}
		tree := armed(t, nil)
		a, b := begin(t, r, sandbox.Spec{Task: "a", Tree: tree}), begin(t, r, sandbox.Spec{Task: "b", Tree: tree})
		defer end(t, a)
		defer end(t, b)
		made := does(t, a, "./attacker makeshm 7321")
		found := does(t, b, "./attacker findshm 7321")
		if said(made, "shm") != "ok" {
			t.Fatalf("make: %s", made)
		}
		does(t, a, "ipcrm -M 7321")
		ids := does(t, a, "cut -c1-40 /proc/self/uid_map") == does(t, b, "cut -c1-40 /proc/self/uid_map")
		if ids && os.Geteuid() == 0 {
			t.Error("two tasks share their host ids")
		}
		return said(found, "shm")
	}
	control := ipc(noNamespace(specs.IPCNamespace))
	if got := ipc(nil); got != "ENOENT" {
		t.Errorf("another task's shared memory: %s", got)
	}
	if control != "ok" {
		t.Skipf("not exercised: the attack does not succeed here without the layer either: %s", control)
	}
	if again := ipc(noNamespace(specs.IPCNamespace)); again != "ok" {
		t.Errorf("with the layer off again: %s", again)
	}
}

func TestCores_SBX23(t *testing.T) {
	threeRuns(t, attempt{
		command: "./attacker crash; ls core* 2>/dev/null; ulimit -Hc", spec: sandbox.Spec{Tree: armed(t, nil)},
		broke: func(out string) bool { return strings.Contains(out, "unlimited") || strings.Contains(out, "\ncore") },
		refused: func(out string) bool {
			return said(out, "raise_core") == "EPERM" && strings.HasSuffix(strings.TrimSpace(out), "\n0")
		},
		off: func(s *specs.Spec) {
			s.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_CORE", Hard: ^uint64(0), Soft: ^uint64(0)}}
		},
	})
}

func TestLaunchersBinary_SBX29(t *testing.T) {
	before := fingerprint(t, testGuest)
	runtime := fingerprint(t, runcPath(t))
	b := begin(t, target(t), sandbox.Spec{Tree: armed(t, nil)})
	out := does(t, b, "./attacker overwrite; printf '#!/proc/self/exe\\n' > x && chmod +x x && ./x; printf '#!/proc/self/fd/3\\n' > y && chmod +x y && ./y")
	for _, p := range []string{"/.daybreak/guest", "/proc/1/exe"} {
		if s := said(out, p); s != "EROFS" && s != "EACCES" && s != "ETXTBSY" && s != "EPERM" {
			t.Errorf("%s: %q", p, s)
		}
	}
	if s := said(out, "/proc/self/exe"); s != "ETXTBSY" { // its own file, busy as any running program's: the try does arrive
		t.Errorf("its own program: %q", s)
	}
	if strings.Contains(out, "descriptor ") {
		t.Errorf("a file of the launcher is open: %s", out)
	}
	if fingerprint(t, testGuest) != before || fingerprint(t, runcPath(t)) != runtime {
		t.Error("a program of the host changed")
	}
}

func TestEnvironmentAndArguments_SBX31(t *testing.T) {
	token := canary(t)
	t.Setenv("DAYBREAK_ATTACK_CANARY", token)
	threeRuns(t, attempt{
		command: "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'",
		broke:   func(out string) bool { return strings.Contains(out, token) },
		refused: func(out string) bool {
			return strings.Contains(out, "HOME=/home/agent") && !strings.Contains(out, os.TempDir()+"/") && !strings.Contains(out, "/run/daybreak")
		},
		off: func(s *specs.Spec) { s.Process.Env = append(s.Process.Env, os.Environ()...) },
	})
}

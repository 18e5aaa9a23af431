package sandboxtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

func (s *suite) identity(t *testing.T) {
	b := s.start(t, sandbox.Spec{})
	if got := strings.TrimSpace(ok(t, b, "id -u; id -g; id -un; hostname")); got != "1000\n1000\nagent\nsandbox" {
		t.Errorf("identity: %q", got)
	}
	status := pairs(strings.ReplaceAll(ok(t, b, "cat /proc/self/status"), ":\t", " "))
	for _, k := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if status[k] != "0000000000000000" {
			t.Errorf("%s = %s, want none", k, status[k])
		}
	}
	if status["NoNewPrivs"] != "1" || status["Seccomp"] != "2" || status["Groups"] != "" {
		t.Errorf("NoNewPrivs %q, Seccomp %q, Groups %q", status["NoNewPrivs"], status["Seccomp"], status["Groups"])
	}
	// An ordinary user's sandbox runs as the user, who is 0 where the sandbox was made.
	rootless := s.rt.Capabilities(t.Context()).Rootless
	m := strings.Fields(ok(t, b, "cat /proc/self/uid_map"))
	if s.differs(t, uidMap) {
		ids := hostUIDs(t, b.Handle().ID)
		if len(m) != 3 || m[0] != "0" || m[1] != "0" || len(ids) != 1 || !rootless && slices.Contains(ids, "0") {
			t.Errorf("uid_map %v, ids on the host %v, want one that is not the host's", m, ids)
		}
	} else if !rootless && (len(m) != 3 || m[0] != "0" || m[1] == "0" || m[2] != "65536") {
		t.Errorf("uid_map: %v, want 64k ids that are not the host's", m)
	}
	if rootless && !s.ownKernel && (len(m) != 9 || m[0] != "0" || m[1] == "0" || m[3] != "1000" || m[4] != "0" || m[5] != "1") {
		t.Errorf("uid_map: %v, want 1000 and nothing else to be the user", m)
	}
	if got := strings.TrimSpace(ok(t, b, "ulimit -Hc; cat /proc/1/cmdline | tr '\\0' ' '; ls -d /proc/[0-9]* | wc -l")); !strings.HasPrefix(got, "0\n") {
		t.Errorf("core limit and processes: %q", got)
	}
	// No user namespace below its own, whatever the filter of system calls says; gVisor has no such file.
	if got := ok(t, b, "cat /proc/sys/user/max_user_namespaces 2>/dev/null || echo none"); got != "0\n" && (got != "none\n" || b.Info().Isolation == sandbox.Namespaces) {
		t.Errorf("user namespaces allowed below the sandbox's: %q", got)
	}
	if info := b.Info(); info.Runtime == "" || info.Isolation == "" || len(info.Profile) != 64 || info.Limits == "" || info.Ready <= 0 || info.Rootless != rootless {
		t.Errorf("info: %+v", info)
	}
}

func (s *suite) systemCalls(t *testing.T) {
	b := s.start(t, sandbox.Spec{Tree: s.tree(t, nil)})
	got := pairs(ok(t, b, "./probe syscalls"))
	want := map[string]string{
		"clone3": "ENOSYS", "unshare_files": "ok", "personality_query": "ok", "tcgets": "ENOTTY",
		"guest_memory": "EACCES", "guest_descriptors": "EACCES", "guest_environment": "EACCES", "kill_guest": "ok",
	}
	if s.differs(t, firstProcess) {
		want["guest_descriptors"], want["kill_guest"] = "ok", "EPERM"
		if _, code := sh(t, b, "for n in 0 1 2; do : < /proc/1/fd/$n && exit 0; done 2>/dev/null; exit 1"); code == 0 {
			t.Error("a descriptor of the guest can be opened")
		}
	}
	for _, name := range strings.Fields(`unshare_user unshare_mount unshare_pid unshare_net unshare_ipc unshare_uts
		unshare_cgroup unshare_time clone_user clone_mount clone_pid clone_net clone_ipc clone_uts clone_cgroup
		setns mount umount2 pivot_root chroot fsopen open_tree move_mount mount_setattr ptrace process_vm_readv
		process_vm_writev pidfd_getfd kcmp io_uring_setup io_uring_enter io_uring_register keyctl add_key
		request_key bpf perf_event_open userfaultfd memfd_secret open_by_handle_at fanotify_init kexec_load
		init_module finit_module delete_module syslog acct quotactl swapon reboot settimeofday sethostname
		personality_other tiocsti tiocsti_high_bits tioclinux setuid_root mknod_device netlink_audit raw_socket`) {
		want[name] = "EPERM"
	}
	for name, errno := range want {
		if got[name] != errno {
			t.Errorf("%s: %q, want %s", name, got[name], errno)
		}
	}
	if out := ok(t, b, "echo alive"); out != "alive\n" {
		t.Errorf("guest after kill(1): %q", out)
	}
}

func (s *suite) socketFamilies(t *testing.T) {
	b := s.start(t, sandbox.Spec{Tree: s.tree(t, nil)})
	got := pairs(ok(t, b, "./probe families"))
	for f := range 46 {
		want := "EPERM"
		if slices.Contains([]int{1, 2, 10, 16}, f) { // unix, inet, inet6, netlink route
			want = "ok"
		}
		if name := fmt.Sprint(f); got[name] != want {
			t.Errorf("family %d: %q, want %s", f, got[name], want)
		}
	}
}

func (s *suite) network(t *testing.T) {
	b := s.start(t, sandbox.Spec{Tree: s.tree(t, nil)})
	out := ok(t, b, "./probe net")
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		switch f[0] {
		case "interface":
			if f[1] != "lo" {
				t.Errorf("network interface %s", f[1])
			}
		case "tcp", "udp":
			if f[2] != "false" {
				t.Errorf("a packet left: %s", line)
			}
		case "loopback":
			if f[1] != "true" {
				t.Error("loopback does not work")
			}
		default:
			t.Errorf("probe: %s", line)
		}
	}
	if n := strings.Count(out, "\n"); n != 12 {
		t.Errorf("probe reported %d lines, want 12:\n%s", n, out)
	}
	if routes := ok(t, b, "tail -n +2 /proc/net/route"); routes != "" {
		t.Errorf("routes: %s", routes)
	}
}

func (s *suite) fileSystem(t *testing.T) {
	b := s.start(t, sandbox.Spec{Tree: s.tree(t, map[string]string{"a/b": "base"})})
	for _, dir := range []string{sandbox.WorkDir, sandbox.HomeDir, sandbox.TempDir, sandbox.WorkDir + "/a", "/dev/shm"} {
		ok(t, b, "echo x > "+dir+"/new && cat "+dir+"/new && rm "+dir+"/new")
	}
	ok(t, b, "cp /bin/true /tmp/t && /tmp/t && cp /bin/true ~/t && ~/t && cp /bin/true ./t && ./t")
	ok(t, b, "echo changed > a/b && chmod +x a/b && mv a/b a/c && ln -s c a/d && rm -r a")
	// Every mount point but those takes no write.
	points := ok(t, b, "cut -d' ' -f5 /proc/self/mountinfo")
	if strings.Count(points, "\n") < 5 {
		t.Fatalf("mount points: %q", points)
	}
	for p := range strings.Lines(points) {
		p = strings.TrimSpace(p)
		if slices.Contains([]string{sandbox.WorkDir, sandbox.HomeDir, sandbox.TempDir, "/dev/shm"}, p) {
			continue
		}
		if out, code := sh(t, b, "[ -d "+p+" ] && touch "+p+"/x"); code == 0 {
			t.Errorf("%s is writable: %s", p, out)
		}
	}
	for _, p := range []string{"/x", "/usr/x", "/etc/x", "/etc/passwd", "/.daybreak/guest", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/home/x", "/usr/bin/env", "/var/x"} {
		if _, code := sh(t, b, "echo x >> "+p); code == 0 && p != "/proc/sysrq-trigger" {
			t.Errorf("%s is writable", p)
		}
	}
	if out := ok(t, b, "cat /proc/kcore /proc/keys /proc/kallsyms /proc/timer_list 2>/dev/null | wc -c; ls /sys | wc -l; ls /sys/fs/cgroup 2>/dev/null | wc -l"); out != "0\n0\n0\n" {
		t.Errorf("kernel files: %q", out)
	}
	if _, code := sh(t, b, "test -r /dev/tty && : < /dev/tty"); code == 0 {
		t.Error("there is a controlling terminal")
	}
}

func (s *suite) hostIsInvisible(t *testing.T) {
	other := s.tree(t, map[string]string{"canary-" + token(t): "secret"})
	s.start(t, sandbox.Spec{Task: "other", Tree: other})
	mine := s.tree(t, nil)
	b := s.start(t, sandbox.Spec{Tree: mine})
	for _, p := range []string{
		"/root", "/etc/shadow", "/etc/gshadow", "/etc/machine-id", "/etc/hostname", "/etc/ssh", "/home/*/.ssh", "/boot", "/srv",
		"/var/lib", "/var/run", "/var/log", "/run/docker.sock", "/run/daybreak", "/sys/kernel", "/host", other, mine, filepath.Dir(mine),
	} {
		if out, code := sh(t, b, "ls -d "+p); code == 0 {
			t.Errorf("%s is there: %s", p, out)
		}
	}
	if got := ok(t, b, "ls -A /home /run /tmp | tr '\\n' ' '"); strings.TrimSpace(strings.ReplaceAll(got, ".daybreak", "")) != "/home: agent  /run:  /tmp:" {
		t.Errorf("home, run and tmp: %q", got)
	}
	// Paths of the host do not show in mount options either.
	mounts := ok(t, b, "cat /proc/self/mountinfo")
	for _, p := range []string{other, mine, "/run/daybreak"} {
		if strings.Contains(mounts, p) {
			t.Errorf("mountinfo shows the host path %s", p)
		}
	}
	if strings.Contains(ok(t, b, "cat /etc/passwd /etc/group /etc/resolv.conf"), "nameserver") {
		t.Error("there is a resolver")
	}
	me := fmt.Sprint(os.Getpid())
	if out := ok(t, b, "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'"); strings.Contains(out, os.Args[0]) {
		t.Errorf("the host's process %s is visible", me)
	}
}

func (s *suite) descriptors(t *testing.T) {
	secret, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	b := s.start(t, sandbox.Spec{Tree: s.tree(t, nil)})
	if got := ok(t, b, "exec ./probe fds"); got != "0\n1\n2\n" {
		t.Errorf("open descriptors: %q, want 0, 1, 2", got)
	}
	if got := strings.TrimSpace(ok(t, b, "pwd -P")); got != sandbox.WorkDir {
		t.Errorf("working directory %q", got)
	}
}

func (s *suite) environment(t *testing.T) {
	canary := token(t)
	t.Setenv("DAYBREAK_TEST_SECRET", canary)
	b := s.start(t, sandbox.Spec{Env: []string{"LANG=C", "EXTRA=1", "EXTRA=2"}})
	out := ok(t, b, "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")
	if strings.Contains(out, canary) || strings.Contains(out, "DAYBREAK_TEST_SECRET") {
		t.Error("the host's environment is visible")
	}
	if got := ok(t, b, "echo $LANG $EXTRA $HOME $USER $TMPDIR"); got != "C 2 /home/agent agent /tmp\n" {
		t.Errorf("environment: %q", got)
	}
	if _, err := s.rt.Start(t.Context(), sandbox.Spec{Env: []string{"novalue"}}); err == nil {
		t.Error("an entry without = was accepted")
	}
}

func (s *suite) operatorMounts(t *testing.T) {
	src := t.TempDir()
	write(t, filepath.Join(src, "tool"), "#!/bin/sh\necho tool\n", 0o755)
	if err := os.Symlink("/etc/shadow", filepath.Join(src, "link")); err != nil {
		t.Fatal(err)
	}
	b := s.start(t, sandbox.Spec{Mounts: []sandbox.Mount{{Source: src, Target: "/opt/sdk"}, {Source: filepath.Join(src, "tool"), Target: "/mnt/deep/er/tool"}}})
	if got := ok(t, b, "/opt/sdk/tool; /mnt/deep/er/tool"); got != "tool\ntool\n" {
		t.Errorf("mounted tools: %q", got)
	}
	for _, c := range []string{"touch /opt/sdk/x", "echo >> /mnt/deep/er/tool", "touch /opt/x", "cat /opt/sdk/link"} {
		if out, code := sh(t, b, c); code == 0 {
			t.Errorf("%s succeeded: %s", c, out)
		}
	}
	for _, target := range []string{"/", "/workspace", "/workspace/x", "/home/agent/x", "/home", "/tmp/x", "/usr/local", "/etc/x", "/proc", "relative", "/opt/../etc", "/opt/"} {
		if _, err := s.rt.Start(t.Context(), sandbox.Spec{Mounts: []sandbox.Mount{{Source: src, Target: target}}}); err == nil {
			t.Errorf("target %q was accepted", target)
		}
	}
}

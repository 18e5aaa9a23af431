package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// outcome is the name of an error's number, or "ok".
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		if name := unix.ErrnoName(errno); name != "" {
			return name
		}
		return "errno " + strconv.Itoa(int(errno))
	}
	return err.Error()
}

func (p *prober) descriptors() {
	var open []string
	for fd := range 1024 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			open = append(open, strconv.Itoa(fd))
		}
	}
	p.say(areaDescriptors, "open", "list open descriptors", strings.Join(open, " "))
}

func (p *prober) identity() {
	say := func(name, tried, got string) { p.say(areaIdentity, name, tried, got) }
	groups, _ := os.Getgroups()
	say("user", "ask for user, group, other groups", fmt.Sprintf("%d %d %v", os.Getuid(), os.Getgid(), groups))
	m, err := readSmall("/proc/self/uid_map", 4096)
	if err != nil {
		m = outcome(err)
	}
	say("uid map", "read which ids of the host are here", strings.Join(strings.Fields(m), " "))
	status, err := readSmall("/proc/self/status", 16<<10)
	fields := map[string]string{}
	for line := range strings.Lines(status) {
		k, v, _ := strings.Cut(line, ":")
		fields[k] = strings.TrimSpace(v)
	}
	for _, c := range []struct{ field, what string }{
		{"CapInh", "inheritable"}, {"CapPrm", "permitted"}, {"CapEff", "effective"}, {"CapBnd", "bounding"}, {"CapAmb", "ambient"},
	} {
		say("capabilities, "+c.what, "read the "+c.what+" set of capabilities", orErr(fields[c.field], err))
	}
	say("no new privileges", "read NoNewPrivs", orErr(fields["NoNewPrivs"], err))
	say("seccomp", "read the mode of the filter", orErr(fields["Seccomp"], err))
	say("setuid", "become user 0", outcome(unix.Setuid(0)))
	say("setgid", "become group 0", outcome(unix.Setgid(0)))
	abi, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	got := "ABI " + strconv.Itoa(int(abi))
	if errno != 0 {
		got = outcome(errno)
	}
	say("landlock", "ask whether a process here may fence itself further", got)
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	say("terminal", "open the controlling terminal", outcome(err))
}

func orErr(got string, err error) string {
	if err != nil {
		return outcome(err)
	}
	return got
}

// secretPlaces are files, directories and sockets that a host has and a sandbox must not see.
var secretPlaces = []string{
	"/root", "/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/sudoers", "/etc/machine-id", "/etc/hostname", "/boot", "/lost+found",
	"/var/lib", "/var/log", "/var/run", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock",
	"/run/dbus/system_bus_socket", "/run/systemd", "/run/user", "/run/secrets", "/run/daybreak", "/sys/fs/cgroup", "/sys/kernel", "/sys/class",
	"/proc/1/root/root", "/proc/1/cwd/..",
}

func (p *prober) host() {
	say := func(name, tried, got string) { p.say(areaHost, name, tried, got) }
	say("/", "list the root directory", names("/"))
	say("/home", "list homes", names("/home"))
	say("/sys", "list /sys", names("/sys"))
	for _, path := range secretPlaces {
		_, err := os.Stat(path)
		say("see "+path, "look at "+path, outcome(err))
	}
	for _, dir := range []string{"/", "/usr", "/usr/bin", "/etc", "/.daybreak", "/home", "/run", "/var", "/dev"} {
		say("write "+dir, "make a file in "+dir, tryWrite(dir))
	}
	for _, path := range []string{"/etc/passwd", "/usr/bin/env", "/.daybreak/guest"} {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		say("change "+path, "open "+path+" to change it", outcome(err))
	}
}

func names(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return outcome(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

// tryWrite makes a file and takes it away again.
func tryWrite(dir string) string {
	f, err := os.CreateTemp(dir, ".probe-")
	if err != nil {
		return outcome(err)
	}
	_, err = f.WriteString("x")
	return outcome(errors.Join(err, f.Close(), os.Remove(f.Name())))
}

func (p *prober) tasks() {
	say := func(name, tried, got string) { p.say(areaTasks, name, tried, got) }
	entries, _ := os.ReadDir("/proc")
	var others []string
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		line, _ := readSmall("/proc/"+e.Name()+"/cmdline", 200)
		program, _, _ := strings.Cut(line, "\x00")
		others = append(others, filepath.Base(program))
	}
	say("processes", "list every process", strings.Join(others, " "))
	for _, f := range []string{"environ", "mem", "fd/0", "fd/1"} {
		fd, err := unix.Open("/proc/1/"+f, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err == nil {
			unix.Close(fd)
		}
		say("process 1, "+f, "open /proc/1/"+f+" of the helper", outcome(err))
	}
	host, _ := os.Hostname()
	say("host name", "ask for the host's name", host)
	sockets, err := readSmall("/proc/net/unix", 64<<10)
	got := "none"
	var abstract []string
	for line := range strings.Lines(sockets) {
		if i := strings.LastIndex(line, " @"); i >= 0 {
			abstract = append(abstract, strings.TrimSpace(line[i:]))
		}
	}
	if len(abstract) > 0 {
		got = strings.Join(abstract, " ")
	}
	say("abstract sockets", "list Unix sockets without a file", orNone(got, err))
	shm, err := readSmall("/proc/sysvipc/shm", 64<<10)
	say("shared memory", "count System V segments of others", orNone(count(max(strings.Count(shm, "\n")-1, 0)), err))
}

func count(n int) string {
	if n == 0 {
		return "none"
	}
	return strconv.Itoa(n)
}

// orNone takes a file that is not there for an empty one.
func orNone(got string, err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "none"
	}
	return orErr(got, err)
}

// mountPoint is a line of mountinfo.
type mountPoint struct{ at, kind string }

func mountPoints() ([]mountPoint, error) {
	info, err := readSmall("/proc/self/mountinfo", 256<<10)
	if err != nil {
		return nil, err
	}
	var out []mountPoint
	for line := range strings.Lines(info) {
		left, right, _ := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 6 || len(r) < 1 {
			continue
		}
		at := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(l[4])
		out = append(out, mountPoint{at, r[0]})
	}
	return out, nil
}

func (p *prober) mounts() {
	points, err := mountPoints()
	if err != nil {
		p.say(areaMounts, "list", "list mounts", outcome(err))
		return
	}
	seen := map[string]bool{}
	for _, m := range points[:min(len(points), 300)] {
		if seen[m.at] {
			continue
		}
		seen[m.at] = true
		if state := mountState(m.at); state != "device" { // such as what covers a file of /proc
			p.say(areaMounts, m.at, "write to "+m.at+" ("+m.kind+")", state)
		}
	}
}

// mountState says whether a mount takes writes, and how many.
func mountState(at string) string {
	st, err := os.Stat(at)
	if err != nil {
		return outcome(err)
	}
	if !st.IsDir() {
		fd, err := unix.Open(at, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err == nil {
			unix.Close(fd)
		}
		if st.Mode()&fs.ModeDevice != 0 {
			return "device"
		}
		if st.Mode()&fs.ModeSocket != 0 {
			return "socket"
		}
		return outcome(err)
	}
	if got := tryWrite(at); got != "ok" {
		return got
	}
	var s unix.Statfs_t
	if err := unix.Statfs(at, &s); err != nil {
		return "writable, size unknown"
	}
	return fmt.Sprintf("writable, %d MiB, %d files", int64(s.Blocks)*s.Bsize>>20, s.Files)
}

// kernelFiles tell of the host's kernel or change it.
var kernelFiles = []string{
	"kcore", "keys", "key-users", "kmsg", "kallsyms", "kpageflags", "kpagecount", "kpagecgroup", "timer_list", "sched_debug", "latency_stats",
	"interrupts", "config.gz", "cmdline", "vmallocinfo", "modules", "slabinfo", "iomem", "ioports", "swaps", "partitions", "diskstats",
}

func (p *prober) proc() {
	for _, f := range kernelFiles {
		got := "empty"
		if text, err := readSmall("/proc/"+f, 64); err != nil {
			got = outcome(err)
		} else if text != "" {
			got = fmt.Sprintf("%d bytes", len(text))
		}
		p.say(areaProc, "read "+f, "read /proc/"+f, got)
	}
	for _, f := range []string{"sysrq-trigger", "sys/kernel/core_pattern", "sys/kernel/modprobe", "sys/vm/overcommit_memory", "sys/kernel/hostname", "irq/default_smp_affinity"} {
		fd, err := unix.Open("/proc/"+f, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		got := outcome(err)
		if err == nil {
			var st unix.Stat_t
			if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3) {
				got = "covered by /dev/null"
			}
			unix.Close(fd)
		}
		p.say(areaProc, "change "+f, "open /proc/"+f+" to change it", got)
	}
}

func (p *prober) devices() {
	var found []string
	_ = filepath.WalkDir("/dev", func(path string, _ fs.DirEntry, _ error) error {
		// Not the entry's type: where a device is mounted over it that is another.
		if st, err := os.Lstat(path); err == nil && st.Mode()&fs.ModeDevice != 0 && !strings.HasPrefix(path, "/dev/char/") {
			found = append(found, strings.TrimPrefix(path, "/dev/"))
		}
		return nil
	})
	slices.Sort(found)
	p.say(areaDevices, "list", "list devices", strings.Join(found, " "))
	p.say(areaDevices, "make", "make a device of the host's memory", outcome(unix.Mknod("/tmp/.probe-mem", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 1)))))
	p.say(areaDevices, "make a disk", "make a device of the host's disk", outcome(unix.Mknod("/tmp/.probe-disk", unix.S_IFBLK|0o600, int(unix.Mkdev(8, 0)))))
	_, _ = os.Remove("/tmp/.probe-mem"), os.Remove("/tmp/.probe-disk")
}

func (p *prober) environment() {
	var out []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		out = append(out, name)
	}
	slices.Sort(out)
	for chunk := range slices.Chunk(out, 8) { // of names alone, never of values
		p.say(areaEnvironment, "names from "+chunk[0], "list the environment's names", strings.Join(chunk, " "))
	}
}

func (p *prober) limits() {
	for _, l := range []struct {
		name string
		id   int
	}{
		{"core dumps", unix.RLIMIT_CORE}, {"locked memory", unix.RLIMIT_MEMLOCK}, {"open files", unix.RLIMIT_NOFILE},
	} {
		var r unix.Rlimit
		got := outcome(unix.Getrlimit(l.id, &r))
		if got == "ok" {
			got = "unlimited"
			if r.Max != unix.RLIM_INFINITY {
				got = strconv.FormatUint(r.Max, 10)
			}
		}
		p.say(areaLimits, l.name, "read the limit on "+l.name, got)
	}
	p.say(areaLimits, "raise", "raise the limit on open files", outcome(raiseFiles()))
}

func raiseFiles() error {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return err
	}
	r.Max++
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &r)
}

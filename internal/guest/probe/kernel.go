package probe

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

var namespaceKinds = []string{"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"}

func (p *prober) namespaces() {
	say := func(name, tried, got string) { p.say(areaNamespaces, name, tried, got) }
	for _, n := range namespaceKinds {
		link, err := os.Readlink("/proc/self/ns/" + n)
		say(n, "read the "+n+" namespace", orErr(link, err))
	}
	for _, n := range []struct {
		name string
		flag uintptr
	}{
		{"user", unix.CLONE_NEWUSER},
		{"mount", unix.CLONE_NEWNS},
		{"pid", unix.CLONE_NEWPID},
		{"network", unix.CLONE_NEWNET},
		{"ipc", unix.CLONE_NEWIPC},
		{"uts", unix.CLONE_NEWUTS},
		{"cgroup", unix.CLONE_NEWCGROUP},
	} {
		say("new "+n.name+" namespace", "start a process in a new "+n.name+" namespace", cloned(n.flag))
	}
	say("new time namespace", "make a time namespace", call(unix.SYS_UNSHARE, unix.CLONE_NEWTIME))
	say("enter namespaces", "join a namespace", call(unix.SYS_SETNS, ^uintptr(0), 0))
}

// cloned starts a process that ends at once.
func cloned(flag uintptr) string {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, flag|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return outcome(errno)
	}
	if pid == 0 {
		unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	}
	_, _ = unix.Wait4(int(pid), nil, 0, nil)
	return "ok"
}

// call makes a system call and names what it answered.
func call(nr uintptr, args ...uintptr) string {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return outcome(errno)
	}
	return "ok"
}

// calls tries what ordinary programs have no use for. The arguments are such that a kernel
// which takes the call refuses it, or does nothing.
func (p *prober) calls() {
	none := ^uintptr(0)
	self := uintptr(os.Getpid())
	buf := make([]byte, 256)
	defer runtime.KeepAlive(buf)
	at := uintptr(unsafe.Pointer(&buf[0]))
	for _, c := range []struct {
		name string
		nr   uintptr
		args []uintptr
	}{
		{"mount", unix.SYS_MOUNT, []uintptr{at, at, at, 0, 0}},
		{"umount2", unix.SYS_UMOUNT2, []uintptr{at, 0}},
		{"pivot_root", unix.SYS_PIVOT_ROOT, []uintptr{at, at}},
		{"chroot", unix.SYS_CHROOT, []uintptr{at}},
		{"fsopen", unix.SYS_FSOPEN, []uintptr{at, 0}},
		{"open_tree", unix.SYS_OPEN_TREE, []uintptr{none, at, 0}},
		{"move_mount", unix.SYS_MOVE_MOUNT, []uintptr{none, at, none, at, 0}},
		{"mount_setattr", unix.SYS_MOUNT_SETATTR, []uintptr{none, at, 0, 0, 0}},
		{"ptrace", unix.SYS_PTRACE, []uintptr{unix.PTRACE_PEEKDATA, self, 0, 0}},
		{"process_vm_readv", unix.SYS_PROCESS_VM_READV, []uintptr{self}},
		{"process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, []uintptr{self}},
		{"pidfd_getfd", unix.SYS_PIDFD_GETFD, []uintptr{none}},
		{"kcmp", unix.SYS_KCMP, []uintptr{self, self}},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, []uintptr{0, at}},
		{"io_uring_enter", unix.SYS_IO_URING_ENTER, []uintptr{none}},
		{"io_uring_register", unix.SYS_IO_URING_REGISTER, []uintptr{none}},
		{"keyctl", unix.SYS_KEYCTL, []uintptr{0, none - 2, 0}},
		{"add_key", unix.SYS_ADD_KEY, []uintptr{at, at, 0, 0, 0}},
		{"request_key", unix.SYS_REQUEST_KEY, []uintptr{at, at, 0, 0}},
		{"bpf", unix.SYS_BPF, []uintptr{none, at, 0}},
		{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, []uintptr{at, 0, none, none, 0}},
		{"userfaultfd", unix.SYS_USERFAULTFD, []uintptr{none}},
		{"memfd_secret", unix.SYS_MEMFD_SECRET, []uintptr{none}},
		{"name_to_handle_at", unix.SYS_NAME_TO_HANDLE_AT, []uintptr{none, at, at, at, 0}},
		{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, []uintptr{none, at, 0}},
		{"fanotify_init", unix.SYS_FANOTIFY_INIT, []uintptr{none, 0}},
		{"kexec_load", unix.SYS_KEXEC_LOAD, []uintptr{0, none, 0, 0}},
		{"init_module", unix.SYS_INIT_MODULE, nil},
		{"finit_module", unix.SYS_FINIT_MODULE, []uintptr{none}},
		{"delete_module", unix.SYS_DELETE_MODULE, []uintptr{0, 0}},
		{"syslog", unix.SYS_SYSLOG, []uintptr{10}},
		{"acct", unix.SYS_ACCT, []uintptr{at}},
		{"quotactl", unix.SYS_QUOTACTL, nil},
		{"swapon", unix.SYS_SWAPON, []uintptr{at, 0}},
		{"reboot", unix.SYS_REBOOT, nil},
		{"settimeofday", unix.SYS_SETTIMEOFDAY, []uintptr{none, 0}},
		{"sethostname", unix.SYS_SETHOSTNAME, []uintptr{at, none}},
		{"clone3", unix.SYS_CLONE3, []uintptr{at, 0}},
		{"TIOCSTI", unix.SYS_IOCTL, []uintptr{0, unix.TIOCSTI, at}},
		{"TIOCSTI with high bits", unix.SYS_IOCTL, []uintptr{0, 1<<40 | unix.TIOCSTI, at}},
		{"TIOCLINUX", unix.SYS_IOCTL, []uintptr{0, 0x541c, at}},
		{"personality", unix.SYS_PERSONALITY, []uintptr{0x0400000}},
	} {
		p.say(areaCalls, c.name, "call "+c.name, call(c.nr, c.args...))
	}
}

// families are the kinds of sockets that have names; there are 46 numbers.
var families = map[int]string{
	1: "unix", 2: "inet", 10: "inet6", 15: "key", 16: "netlink", 17: "packet", 21: "rds", 29: "can", 30: "tipc", 31: "bluetooth",
	38: "alg", 39: "nfc", 40: "vsock", 44: "xdp",
}

func (p *prober) sockets() {
	var others []string
	for f := range 46 {
		fd, err := unix.Socket(f, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		if name, known := families[f]; known {
			p.say(areaSockets, name, "make a socket of family "+name, outcome(err))
		} else if got := outcome(err); got != "EPERM" {
			others = append(others, fmt.Sprintf("%d %s", f, got))
		}
	}
	got := "EPERM"
	if len(others) > 0 {
		got = strings.Join(others, ", ")
	}
	p.say(areaSockets, "other families", "make sockets of all other families", got)
	for _, c := range []struct {
		name                   string
		family, kind, protocol int
	}{
		{"raw IPv4", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{"raw IPv6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		{"netlink audit", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT},
		{"netlink netfilter", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
	} {
		fd, err := unix.Socket(c.family, c.kind|unix.SOCK_CLOEXEC, c.protocol)
		if err == nil {
			unix.Close(fd)
		}
		p.say(areaSockets, c.name, "make a "+c.name+" socket", outcome(err))
	}
}

// reserved are addresses of documentation, of private networks and of clouds' metadata. They
// are tried only where no packet can leave.
var reserved = []string{"192.0.2.1:80", "[2001:db8::1]:80", "10.0.0.1:53", "169.254.169.254:80", "[fd00:ec2::254]:80"}

const netTime = 2 * time.Second

func (p *prober) network() {
	say := func(name, tried, got string) { p.say(areaNetwork, name, tried, got) }
	var outward []string
	all, err := net.Interfaces()
	var found []string
	for _, i := range all {
		found = append(found, i.Name)
		if i.Flags&net.FlagLoopback == 0 {
			outward = append(outward, i.Name)
		}
	}
	say("interfaces", "list network interfaces", orErr(strings.Join(found, " "), err))
	routes, err := readSmall("/proc/net/route", 64<<10)
	say("routes", "count routes out", orNone(count(max(strings.Count(routes, "\n")-1, 0)), err))
	for _, addr := range reserved {
		tcp, udp := "not tried: there is a way out", "not tried: there is a way out"
		if err == nil && len(outward) == 0 && len(all) > 0 {
			tcp, udp = dial("tcp", addr), dial("udp", addr)
		}
		say("tcp "+addr, "connect to "+addr, tcp)
		say("udp "+addr, "send a datagram to "+addr, udp)
	}
	say("dns", "ask a resolver at 127.0.0.1:53", dial("udp", "127.0.0.1:53"))
	servers := "none"
	if text, _ := readSmall("/etc/resolv.conf", 4096); strings.Contains(text, "nameserver") {
		servers = "named"
	}
	say("resolvers", "read which resolvers are named", servers)
	say("listeners", "list ports that listen", listening())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	got := outcome(err)
	if err == nil {
		got = dial("tcp", l.Addr().String())
		_ = l.Close()
	}
	say("loopback", "talk to itself over loopback", got)
}

// dial connects, for a datagram asks and waits for the kernel's word that nobody is there.
func dial(network, addr string) string {
	c, err := net.DialTimeout(network, addr, netTime)
	if err != nil {
		return netOutcome(err)
	}
	defer c.Close()
	if network == "tcp" {
		return "ok"
	}
	_ = c.SetDeadline(time.Now().Add(netTime)) //nolint // a socket's deadline is real time
	if _, err = c.Write([]byte("probe")); err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	return netOutcome(err)
}

func netOutcome(err error) string {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "sent, no answer"
	}
	return outcome(err)
}

// listening lists the ports of TCP that take connections, as /proc/net tells them.
func listening() string {
	var ports []int
	for _, f := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := readSmall(f, 256<<10)
		for line := range strings.Lines(text) {
			f := strings.Fields(line)
			if len(f) < 4 || f[3] != "0A" {
				continue
			}
			_, hex, _ := strings.Cut(f[1], ":")
			if n, err := strconv.ParseInt(hex, 16, 32); err == nil && !slices.Contains(ports, int(n)) {
				ports = append(ports, int(n))
			}
		}
	}
	slices.Sort(ports)
	if len(ports) == 0 {
		return "none"
	}
	return strings.Trim(fmt.Sprint(ports), "[]")
}

// mirror asks what answers at the forwarded ports, and whether it takes what it must not.
func (p *prober) mirror() {
	for _, port := range p.opts.Ports {
		for _, line := range []string{"GET /", "PUT /probe", "CONNECT 192.0.2.1:443", "GET http://192.0.2.1/"} {
			p.say(areaMirror, fmt.Sprintf("%d: %s", port, line), fmt.Sprintf("ask port %d: %s", port, line), request(port, line))
		}
	}
}

// request sends one line of HTTP and returns the status.
func request(port int, line string) string {
	c, err := net.DialTimeout("tcp", "127.0.0.1:"+strconv.Itoa(port), netTime)
	if err != nil {
		return netOutcome(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second)) //nolint // a socket's deadline is real time
	if _, err := fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: mirror\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", line); err != nil {
		return netOutcome(err)
	}
	head := make([]byte, 64)
	n, err := c.Read(head)
	if err != nil {
		return netOutcome(err)
	}
	status, _, _ := strings.Cut(string(head[:n]), "\r\n")
	return status
}

// Command probe runs inside a sandbox under test and reports what it was able to do.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) < 2 {
		os.Exit(2)
	}
	arg := func(i int) string {
		if len(os.Args) > i {
			return os.Args[i]
		}
		return ""
	}
	switch os.Args[1] {
	case "syscalls":
		syscalls(arg(2))
	case "families":
		families()
	case "fds":
		fds()
	case "net":
		network()
	case "get":
		get(arg(2))
	case "memory":
		memory(arg(2))
	case "forks":
		forks(arg(2))
	case "bomb":
		bomb(arg(2), arg(3))
	case "stay":
		stay()
	case "daemon":
		daemon(arg(2), arg(3))
	case "swap":
		swap(arg(2), arg(3))
	case "hostile":
		hostile()
	default:
		os.Exit(2)
	}
}

func report(name string, errno syscall.Errno) {
	if errno == 0 {
		fmt.Println(name, "ok")
		return
	}
	fmt.Println(name, unix.ErrnoName(errno))
}

// raw reports a system call's errno.
func raw(name string, nr uintptr, args ...uintptr) {
	var a [6]uintptr
	copy(a[:], args)
	_, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	report(name, errno)
}

// syscalls tries what a sandbox must refuse, all of it or only the call of that name.
func syscalls(only string) {
	raw := func(name string, nr uintptr, args ...uintptr) {
		if only == "" || only == name {
			raw(name, nr, args...)
		}
	}
	clone := func(name string, flags uintptr) {
		if only == "" || only == name {
			clone(name, flags)
		}
	}
	self := uintptr(os.Getpid())
	var buf [256]byte
	p := uintptr(unsafe.Pointer(&buf))
	str := func(s string) uintptr { b, _ := unix.BytePtrFromString(s); return uintptr(unsafe.Pointer(b)) }
	for name, flag := range map[string]uintptr{
		"user": unix.CLONE_NEWUSER, "mount": unix.CLONE_NEWNS, "pid": unix.CLONE_NEWPID, "net": unix.CLONE_NEWNET,
		"ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS, "cgroup": unix.CLONE_NEWCGROUP, "time": unix.CLONE_NEWTIME,
	} {
		raw("unshare_"+name, unix.SYS_UNSHARE, flag)
		if name != "time" { // those bits are the exit signal in clone
			clone("clone_"+name, flag)
		}
	}
	raw("unshare_files", unix.SYS_UNSHARE, unix.CLONE_FS)
	raw("clone3", unix.SYS_CLONE3, p, 88)
	raw("setns", unix.SYS_SETNS, ^uintptr(0), 0)
	raw("mount", unix.SYS_MOUNT, str("none"), str("/tmp"), str("tmpfs"), 0, 0)
	raw("umount2", unix.SYS_UMOUNT2, str("/proc"), unix.MNT_DETACH)
	raw("pivot_root", unix.SYS_PIVOT_ROOT, str("/tmp"), str("/tmp"))
	raw("chroot", unix.SYS_CHROOT, str("/tmp"))
	raw("fsopen", unix.SYS_FSOPEN, str("tmpfs"), 0)
	raw("open_tree", unix.SYS_OPEN_TREE, ^uintptr(99), str("/tmp"), 0)
	raw("move_mount", unix.SYS_MOVE_MOUNT, ^uintptr(0), str(""), ^uintptr(0), str(""), 0)
	raw("mount_setattr", unix.SYS_MOUNT_SETATTR, ^uintptr(0), str(""), 0, 0, 0)
	raw("ptrace", unix.SYS_PTRACE, unix.PTRACE_TRACEME)
	raw("process_vm_readv", unix.SYS_PROCESS_VM_READV, self, 0, 0, 0, 0, 0)
	raw("process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, self, 0, 0, 0, 0, 0)
	raw("pidfd_getfd", unix.SYS_PIDFD_GETFD, ^uintptr(0), 0, 0)
	raw("kcmp", unix.SYS_KCMP, self, self, 0, 0, 0)
	raw("io_uring_setup", unix.SYS_IO_URING_SETUP, 1, p)
	raw("io_uring_enter", unix.SYS_IO_URING_ENTER, ^uintptr(0), 0, 0, 0, 0)
	raw("io_uring_register", unix.SYS_IO_URING_REGISTER, ^uintptr(0), 0, 0, 0)
	raw("keyctl", unix.SYS_KEYCTL, 0, ^uintptr(2), 0)
	raw("add_key", unix.SYS_ADD_KEY, str("user"), str("x"), p, 1, ^uintptr(3))
	raw("request_key", unix.SYS_REQUEST_KEY, str("user"), str("x"), 0, 0)
	raw("bpf", unix.SYS_BPF, 0, p, 0)
	raw("perf_event_open", unix.SYS_PERF_EVENT_OPEN, p, 0, ^uintptr(0), ^uintptr(0), 0)
	raw("userfaultfd", unix.SYS_USERFAULTFD, 1)
	raw("memfd_secret", unix.SYS_MEMFD_SECRET, 0)
	raw("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, ^uintptr(0), p, 0)
	raw("fanotify_init", unix.SYS_FANOTIFY_INIT, 0, 0)
	raw("kexec_load", unix.SYS_KEXEC_LOAD, 0, 0, 0, 0)
	raw("init_module", unix.SYS_INIT_MODULE, 0, 0, 0)
	raw("finit_module", unix.SYS_FINIT_MODULE, ^uintptr(0), 0, 0)
	raw("delete_module", unix.SYS_DELETE_MODULE, str("x"), 0)
	raw("syslog", unix.SYS_SYSLOG, 10, 0, 0)
	raw("acct", unix.SYS_ACCT, 0)
	raw("quotactl", unix.SYS_QUOTACTL, 0, 0, 0, 0)
	raw("swapon", unix.SYS_SWAPON, str("/tmp/x"), 0)
	raw("reboot", unix.SYS_REBOOT, 0, 0, 0)
	raw("settimeofday", unix.SYS_SETTIMEOFDAY, p, 0)
	raw("sethostname", unix.SYS_SETHOSTNAME, str("x"), 1)
	raw("personality_query", unix.SYS_PERSONALITY, 0xffffffff)
	raw("personality_other", unix.SYS_PERSONALITY, 0x0400000)
	raw("tiocsti", unix.SYS_IOCTL, 0, unix.TIOCSTI, p)
	raw("tiocsti_high_bits", unix.SYS_IOCTL, 0, 1<<40|unix.TIOCSTI, p)
	raw("tioclinux", unix.SYS_IOCTL, 0, 0x541c, p)
	raw("tcgets", unix.SYS_IOCTL, 0, unix.TCGETS, p)
	raw("setuid_root", unix.SYS_SETUID, 0)
	raw("mknod_device", unix.SYS_MKNODAT, ^uintptr(99), str("/tmp/dev"), unix.S_IFCHR|0o600, 1<<8|3)
	if only != "" {
		return
	}
	_, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 9)
	report("netlink_audit", errnoOf(err))
	_, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW, 1)
	report("raw_socket", errnoOf(err))
	_, err = os.OpenFile("/proc/1/mem", os.O_RDWR, 0)
	report("guest_memory", errnoOf(err))
	_, err = os.ReadDir("/proc/1/fd")
	report("guest_descriptors", errnoOf(err))
	_, err = os.ReadFile("/proc/1/environ")
	report("guest_environment", errnoOf(err))
	report("kill_guest", errnoOf(killGuest()))
}

// killGuest signals process 1; it must survive, so success of the call is no failure.
func killGuest() error { return unix.Kill(1, unix.SIGKILL) }

func errnoOf(err error) syscall.Errno {
	switch e := err.(type) {
	case nil:
		return 0
	case syscall.Errno:
		return e
	case *os.PathError:
		return errnoOf(e.Err)
	}
	return 255
}

func clone(name string, flags uintptr) {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	}
	report(name, errno)
}

func families() {
	for f := range 46 {
		fd, err := unix.Socket(f, unix.SOCK_DGRAM, 0)
		if err == nil {
			unix.Close(fd)
		}
		report(strconv.Itoa(f), errnoOf(err))
	}
}

func fds() {
	for fd := range 4096 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			fmt.Println(fd)
		}
	}
}

func network() {
	ifs, err := net.Interfaces()
	if err != nil {
		fmt.Println("interfaces", err)
	}
	for _, i := range ifs {
		fmt.Println("interface", i.Name)
	}
	for _, addr := range []string{"192.0.2.1:80", "169.254.169.254:80", "10.0.0.1:53", "[2001:db8::1]:80", "[fd00:ec2::254]:80"} {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			c.Close()
		}
		fmt.Println("tcp", addr, err == nil)
		u, err := net.Dial("udp", addr)
		if err == nil {
			_, err = u.Write([]byte("x"))
		}
		fmt.Println("udp", addr, err == nil)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		_, err = net.Dial("tcp", l.Addr().String())
	}
	fmt.Println("loopback", err == nil)
}

// get prints what a port of the loopback answers.
func get(addr string) {
	r, err := http.Get("http://" + addr + "/")
	if err != nil {
		fmt.Println("error", errnoIn(err))
		return
	}
	defer r.Body.Close()
	_, _ = io.Copy(os.Stdout, r.Body)
}

func errnoIn(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return "other"
}

func memory(mib string) {
	n, _ := strconv.Atoi(mib)
	var keep [][]byte
	for range n {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		keep = append(keep, b)
	}
	fmt.Println("allocated", len(keep))
}

// forks starts children until it cannot, or limit of them; 5,000 without one.
func forks(limit string) {
	most, err := strconv.Atoi(limit)
	if err != nil {
		most = 5000
	}
	var n int
	for n = range most {
		if err := exec.Command("/proc/self/exe", "stay").Start(); err != nil {
			break
		}
	}
	fmt.Println("children", n)
}

// bomb forks for ever within the sandbox's limit; nobody in it listens to signals. It tells a
// fifo when the first 20 children are there.
func bomb(word, ready string) {
	signal.Ignore()
	for n := 0; ; n++ {
		if n == 20 {
			_ = os.WriteFile(ready, []byte(strconv.Itoa(n)), 0)
		}
		_ = exec.Command("/proc/self/exe", "stay", word).Start()
	}
}

func stay() {
	signal.Ignore()
	for {
		time.Sleep(time.Hour)
	}
}

// daemon leaves a process of its own session that ignores every signal, and tells a fifo.
func daemon(token, ready string) {
	if os.Getenv("PROBE_DAEMON") == "" {
		c := exec.Command("/proc/self/exe", "daemon", token, ready)
		c.Env = append(os.Environ(), "PROBE_DAEMON=1")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		time.Sleep(time.Hour)
	}
	signal.Ignore()
	_ = os.WriteFile(ready, []byte("up"), 0)
	stay()
}

// swap replaces path by a link to target and back, for ever.
func swap(path, target string) {
	first := true
	for {
		_ = os.WriteFile(path+".file", []byte("plain"), 0o644)
		_ = os.Rename(path+".file", path)
		_ = os.Symlink(target, path+".link")
		_ = os.Rename(path+".link", path)
		if first {
			first = false
			_ = os.WriteFile("/tmp/swapping", []byte("x"), 0)
		}
	}
}

// hostile fills the work tree with names and types that break naive readers.
func hostile() {
	must := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	must(os.WriteFile("new\nline", []byte("1"), 0o644))
	must(os.WriteFile("bad\xff\xfe", []byte("2"), 0o644))
	must(os.WriteFile(`back\slash`, []byte("3"), 0o644))
	must(os.Mkdir("sub", 0o755))
	must(os.Mkdir("sub/.git", 0o755))
	must(os.WriteFile("sub/.git/config", []byte("4"), 0o644))
	must(os.WriteFile("secret", []byte("5"), 0o000))
	must(os.Mkdir("closed", 0o755))
	must(os.WriteFile("closed/in", []byte("6"), 0o644))
	must(os.Chmod("closed", 0))
	must(unix.Mkfifo("fifo", 0o644))
	l, err := net.Listen("unix", "socket")
	must(err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	must(os.Symlink("/etc/passwd", "link"))
	must(os.Symlink("../../../../proc/self/environ", "sub/up"))
	must(os.Symlink("loop", "loop"))
	fmt.Println("done")
}

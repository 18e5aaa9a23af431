package oci

import (
	"runtime"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// allowed are the system calls of ordinary programs. What is not here fails with EPERM:
// the mount and module families, namespaces, tracing, keys, io_uring, bpf, userfaultfd,
// perf, handles, clocks, swap, and whatever future kernels add.
const allowed = `
accept accept4 access alarm bind brk cachestat capget capset chdir chmod chown close close_range
connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait
epoll_pwait2 epoll_wait eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2
fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr
flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futex_requeue
futex_wait futex_waitv futex_wake futimesat getcpu getcwd getdents getdents64 getegid geteuid
getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom
getresgid getresuid getrlimit get_robust_list getrusage getsid getsockname getsockopt gettid
gettimeofday getuid getxattr getxattrat inotify_add_watch inotify_init inotify_init1
inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents ioprio_get ioprio_set io_setup
io_submit kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr
link linkat listen listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lstat madvise
map_shadow_stack membarrier memfd_create mincore mkdir mkdirat mknod mknodat mlock mlock2
mlockall mmap mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink
mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall munmap nanosleep newfstatat
clock_getres clock_gettime clock_nanosleep open openat openat2 pause pidfd_open
pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 preadv
preadv2 prlimit64 process_mrelease pselect6 pwrite64 pwritev pwritev2 read readahead readlink
readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages removexattr removexattrat rename
renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask
rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_getaffinity
sched_getattr sched_getparam sched_get_priority_max sched_get_priority_min sched_getscheduler
sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler
sched_yield seccomp select semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto
setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid setresuid
setreuid setrlimit set_robust_list setsid setsockopt set_tid_address setuid setxattr setxattrat
shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 splice stat statfs statx
symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete
timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime
times tkill truncate umask uname unlink unlinkat uretprobe utime utimensat utimes vfork vmsplice
wait4 waitid write writev`

// newNamespaces are the CLONE_NEW* bits that clone(2) takes; unshare(2) adds CLONE_NEWTIME.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// seccompProfile is the allow-list in the OCI form. The native architecture is the only one:
// 32-bit and x32 entry points kill the caller. For setup the kernel seems to have no audit:
// groupadd(8) goes on without it, and not where it is forbidden.
func seccompProfile(setup bool) *specs.LinuxSeccomp {
	eperm, enosys, none := uint(unix.EPERM), uint(unix.ENOSYS), uint(unix.EPROTONOSUPPORT)
	arch, extra := specs.ArchX86_64, []string{"arch_prctl"}
	if runtime.GOARCH == "arm64" {
		arch, extra = specs.ArchAARCH64, nil
	}
	allow := func(name string, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
		return specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: args}
	}
	calls := []specs.LinuxSyscall{
		{Names: append(strings.Fields(allowed), extra...), Action: specs.ActAllow},
		// ENOSYS, so that the C library falls back to clone, whose flags can be inspected.
		{Names: []string{"clone3"}, Action: specs.ActErrno, ErrnoRet: &enosys},
		allow("clone", masked(0, newNamespaces, 0)),
		allow("unshare", masked(0, newNamespaces|unix.CLONE_NEWTIME, 0)),
		allow("socketpair", word(0, unix.AF_UNIX)),
		allow("socket", word(0, unix.AF_UNIX)),
		allow("socket", word(0, unix.AF_INET)),
		allow("socket", word(0, unix.AF_INET6)),
		allow("socket", word(0, unix.AF_NETLINK), word(2, unix.NETLINK_ROUTE)),
	}
	// Linux, Linux with 32-bit personality, no address randomisation, both; and the query.
	for _, p := range []uint64{0, 0x8, 0x20000, 0x20008, 0xffffffff} {
		calls = append(calls, allow("personality", word(0, p)))
	}
	for _, a := range exceptIoctls() {
		calls = append(calls, allow("ioctl", a))
	}
	if setup {
		calls = append(calls, specs.LinuxSyscall{
			Names: []string{"socket"}, Action: specs.ActErrno, ErrnoRet: &none,
			Args: []specs.LinuxSeccompArg{word(0, unix.AF_NETLINK), word(2, unix.NETLINK_AUDIT)},
		})
	}
	return &specs.LinuxSeccomp{
		DefaultAction:   specs.ActErrno,
		DefaultErrnoRet: &eperm,
		Architectures:   []specs.Arch{arch},
		Syscalls:        calls,
	}
}

// exceptIoctls allows every request but TIOCSTI and TIOCLINUX, which type into a terminal. A
// filter that allows "not equal" on 64 bits is passed by setting high bits that the kernel
// ignores, so the complement is spelled out on the low 32 bits: one condition per bit in which
// a request can differ from both, then the values in between one by one.
func exceptIoctls() []specs.LinuxSeccompArg {
	const a, b = uint64(unix.TIOCSTI), uint64(0x541c) // TIOCLINUX
	var out []specs.LinuxSeccompArg
	var between []uint64
	for bit := uint64(1); bit < 1<<32; bit <<= 1 {
		if (a^b)&bit == 0 {
			out = append(out, masked(1, bit, ^a&bit))
		} else {
			between = append(between, bit)
		}
	}
	for n := range 1 << len(between) {
		v := a & b
		for i, bit := range between {
			if n>>i&1 == 1 {
				v |= bit
			}
		}
		if v != a && v != b {
			out = append(out, word(1, v))
		}
	}
	return out
}

// word compares the low 32 bits of an argument, which is all the kernel looks at in an int.
func word(index uint, value uint64) specs.LinuxSeccompArg { return masked(index, 0xffffffff, value) }

func masked(index uint, mask, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Value: mask, ValueTwo: value, Op: specs.OpMaskedEqual}
}

package service

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// confinement is what the process shuts itself into before it does anything else.
type confinement struct {
	Root  string   `json:"root"`  // empty directory that its file system is mounted on
	Store string   `json:"store"` // becomes /store
	UID   int      `json:"uid"`   // to become; 0 keeps the one user of its user namespace
	Files []string `json:"files"` // certificates and the resolver's configuration, each at its own path
}

const (
	insideStore   = "/store"
	insideProgram = "/daybreak"
	maxOpenFiles  = 8192
	maxData       = 4 << 30
	maxWritten    = 4 << 30
)

// layer names what could not be set up.
func layer(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the mirror's process: %s: %w", name, err)
}

// enter shuts the process in and starts the program again inside, on the same channel: all
// threads of the new one have what this thread gave up. It returns only on an error.
func enter(c confinement, args []string) error {
	runtime.LockOSThread() // and never unlocked: a thread that failed here must not be used again
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		return layer("program", err)
	}
	defer exe.Close()
	if err := layer("mount namespace", wall(c, exe)); err != nil {
		return err
	}
	if err := layer("resource limits", limits()); err != nil {
		return err
	}
	if err := layer("capabilities", renounce(c.UID)); err != nil {
		return err
	}
	if err := layer("no new privileges", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)); err != nil {
		return err
	}
	if err := layer("end with the parent", unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)); err != nil {
		return err
	}
	return layer("start inside", syscall.Exec(insideProgram, args, []string{}))
}

// wall makes a file system of the store, the program and a few files, and leaves the rest.
func wall(c confinement, exe *os.File) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	st, err := exe.Stat()
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", c.Root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=755,size=%d,nr_inodes=1k", st.Size()+1<<20)); err != nil {
		return fmt.Errorf("mount the root: %w", err)
	}
	if err := bind(c.Store, filepath.Join(c.Root, insideStore), unix.MS_NOEXEC); err != nil {
		return err
	}
	if err := libraries(exe, c.Root); err != nil {
		return err
	}
	for _, f := range c.Files {
		if err := bind(f, filepath.Join(c.Root, f), unix.MS_NOEXEC|unix.MS_RDONLY); err != nil {
			return err
		}
	}
	if err := program(exe, st, filepath.Join(c.Root, insideProgram)); err != nil {
		return err
	}
	if err := os.Chdir(c.Root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
}

// program puts this program inside. One that its new user may not run is copied: its mode says
// whose it is on disk, and inside there is nobody else.
func program(exe *os.File, st os.FileInfo, at string) error {
	if st.Mode()&0o5 == 0o5 {
		if bind("/proc/self/exe", at, unix.MS_RDONLY) == nil {
			return nil
		}
	}
	to, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, exe)
	return errors.Join(err, to.Chmod(0o755), to.Close())
}

// libraries gives a program that was linked with the system's libraries those, to read. One that
// was built as this project builds it needs none.
func libraries(exe *os.File, root string) error {
	f, err := elf.NewFile(exe)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return nil
	}
	for _, dir := range []string{"/lib", "/lib64", "/usr/lib", "/usr/lib64"} {
		if err := bind(dir, filepath.Join(root, dir), unix.MS_RDONLY); err != nil {
			return err
		}
	}
	return nil
}

// bind mounts a file or directory with flags beside those it has already. What is not there is
// left out, unless it is written to.
func bind(src, dst string, flags uintptr) error {
	st, err := os.Stat(src)
	if errors.Is(err, os.ErrNotExist) && flags&unix.MS_RDONLY != 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return err
	}
	if st.IsDir() {
		err = os.MkdirAll(dst, 0o755)
	} else {
		err = os.WriteFile(dst, nil, 0o644)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(src, dst, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", src, err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dst, &fs); err != nil {
		return err
	}
	// A user's mount keeps what root set on the one it came from.
	for from, to := range map[int64]uintptr{unix.ST_NOATIME: unix.MS_NOATIME, unix.ST_NODIRATIME: unix.MS_NODIRATIME, unix.ST_RELATIME: unix.MS_RELATIME, unix.ST_NOEXEC: unix.MS_NOEXEC, unix.ST_RDONLY: unix.MS_RDONLY} {
		if fs.Flags&from != 0 {
			flags |= to
		}
	}
	if err := unix.Mount("", dst, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV|flags, ""); err != nil {
		return fmt.Errorf("fence %s: %w", src, err)
	}
	return nil
}

func limits() error {
	for _, l := range []struct {
		what int
		max  uint64
	}{{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_NOFILE, maxOpenFiles}, {unix.RLIMIT_DATA, maxData}, {unix.RLIMIT_FSIZE, maxWritten}, {unix.RLIMIT_MEMLOCK, 64 << 10}} {
		var had unix.Rlimit
		if err := unix.Getrlimit(l.what, &had); err != nil {
			return err
		}
		n := min(l.max, had.Max)
		if err := unix.Setrlimit(l.what, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return err
		}
	}
	return nil
}

const secureBits = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<5 | 1<<6 | 1<<7 // root and setuid mean nothing, nothing is kept or raised, all locked

// renounce becomes the user and gives up every capability for good.
func renounce(uid int) error {
	for c := 0; c <= 63; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); errors.Is(err, unix.EINVAL) {
			break // beyond the last that the kernel knows
		} else if err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0); err != nil {
		return err
	}
	if uid != 0 {
		// Of this thread alone: the others end when the program starts again.
		for _, call := range [][4]uintptr{{unix.SYS_SETGROUPS, 0, 0, 0}, {unix.SYS_SETRESGID, uintptr(uid), uintptr(uid), uintptr(uid)}, {unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)}} {
			if _, _, e := unix.RawSyscall(call[0], call[1], call[2], call[3]); e != 0 {
				return e
			}
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, e := unix.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&none[0])), 0)
	if e != 0 {
		return e
	}
	return nil
}

// self is what the process sees of its own confinement. One that could still gain something does
// not start.
func self() (ready, error) {
	r := ready{UID: unix.Getuid()}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return r, layer("memory of its own", err)
	}
	nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return r, layer("no new privileges", err)
	}
	r.NNP = nnp == 1
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&head, &have[0]); err != nil {
		return r, layer("capabilities", err)
	}
	r.Caps = uint64(have[0].Permitted) | uint64(have[1].Permitted)<<32
	if !r.NNP || r.Caps != 0 {
		return r, errors.New("the mirror's process still has privileges")
	}
	if entries, err := os.ReadDir("/"); err != nil || len(entries) > 8 { // store, program, etc, usr, and with libraries lib and lib64
		return r, errors.Join(errors.New("the mirror's process sees more than its own files"), err)
	}
	return r, nil
}

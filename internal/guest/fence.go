package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MinLandlock is the oldest version of Landlock that is of use: older ones forbid every rename
// from one directory to another.
const MinLandlock = 2

// Landlock returns the version of Landlock that the kernel offers, 0 without a usable one.
func Landlock() int {
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || n < MinLandlock {
		return 0
	}
	return int(n)
}

// Rights of Landlock over files: what changes something. Reading is decided by the mounts,
// devices by a capability that no user namespace can give.
const (
	rightsWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE
	rightsTree  = rightsWrite | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
)

// Fence keeps the calling thread, and what it executes, from changing files anywhere but below
// the trees; of /dev and /proc it may write the files that are there. From version 6 on it
// sends no signal and connects to no abstract socket outside either. Networks are not its
// matter: there is only a loopback, on which tests listen and connect as they like. The kernel
// has to offer the version. See landlock(7).
func Fence(version int, trees []string) error {
	tree, write := uint64(rightsTree), uint64(rightsWrite)
	size := unsafe.Sizeof(uint64(0)) // the form of the oldest kernels
	if version >= 3 {
		tree |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
		write |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: tree}
	if version >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
		size = unsafe.Offsetof(attr.Scoped) + unsafe.Sizeof(attr.Scoped)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("landlock: make the rules: %w", errno)
	}
	set := int(fd)
	defer unix.Close(set)
	for _, dir := range trees {
		if err := allowBelow(set, dir, tree); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/dev", "/proc"} {
		if err := allowBelow(set, dir, write); err != nil {
			return err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(set), 0, 0); errno != 0 {
		return fmt.Errorf("landlock: take the rules on: %w", errno)
	}
	return nil
}

func allowBelow(set int, dir string, rights uint64) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("landlock: open %s: %w", dir, err)
	}
	defer unix.Close(fd)
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("landlock: allow %s: %w", dir, errno)
	}
	return nil
}

// CheckMasks reports a path that is there and not covered: a masked file is the null device
// itself, a masked directory an empty read-only one.
func CheckMasks(paths []string) error {
	for _, p := range paths {
		var st unix.Stat_t
		err := unix.Lstat(p, &st)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return fmt.Errorf("masked paths: %s: %w", p, err)
		case st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3):
			continue
		case st.Mode&unix.S_IFMT != unix.S_IFDIR:
			return fmt.Errorf("masked paths: %s is not the null device", p)
		}
		names, err := os.ReadDir(p)
		if err != nil || len(names) > 0 {
			return fmt.Errorf("masked paths: %s is not empty (%d entries, %w)", p, len(names), err)
		}
		if err := CheckReadOnly([]string{p}); err != nil {
			return err
		}
	}
	return nil
}

// CheckReadOnly reports a path that is there and not on a read-only mount.
func CheckReadOnly(paths []string) error {
	for _, p := range paths {
		var st unix.Statfs_t
		err := unix.Statfs(p, &st)
		if errors.Is(err, syscall.ENOENT) {
			continue
		}
		if err != nil || st.Flags&unix.ST_RDONLY == 0 {
			return fmt.Errorf("read-only paths: %s can be written (%w)", p, err)
		}
	}
	return nil
}

// LimitUserNamespaces lets the user namespace of the caller, who is root in it, have no other
// one below it. It is for a hook of the OCI runtime: inside, /proc/sys is read-only.
func LimitUserNamespaces() error {
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		return fmt.Errorf("user namespace limit: %w", err)
	}
	return nil
}

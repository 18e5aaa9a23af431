package oci

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// attrData are the flags of every mount that carries files: no set-user-id, no devices.
	attrData = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	attrRead = attrData | unix.MOUNT_ATTR_RDONLY
)

// attach clones the mount at src and places the clone at dst with attrs. With userns >= 0
// the clone is idmapped by that user namespace. The clone gets its flags before anybody can
// see it, so there is no moment in which it is writable.
func attach(src, dst string, attrs uint64, userns int, recursive bool) error {
	fd, err := cloned(src, attrs, userns, recursive)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, dst, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("place %s: %w", src, err)
	}
	return nil
}

// cloned is a clone of the mount at src, which is nowhere yet.
func cloned(src string, attrs uint64, userns int, recursive bool) (int, error) {
	flags, at := uint(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW), uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
		at |= unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, src, flags)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", src, err)
	}
	attr := unix.MountAttr{Attr_set: mountFlags(attrs), Propagation: unix.MS_PRIVATE}
	if userns >= 0 {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(userns)
	}
	if err := unix.MountSetattr(fd, "", at, &attr); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("set flags of %s: %w", src, err)
	}
	return fd, nil
}

// mountTmpfs mounts memory capped at size bytes and inodes files.
func mountTmpfs(dst string, size, inodes int64, mode string) error {
	opts := fmt.Sprintf("size=%d,nr_inodes=%d,mode=%s", size, inodes, mode)
	return unix.Mount("tmpfs", dst, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, opts)
}

// mountOverlay joins lower (lowest first) and upper at dst. The layers are named by descriptor: any
// path will do, and the sandbox, which can read its mount options, sees no host path. Without
// upper the mount is read-only.
func (st standing) mountOverlay(dst string, lower []string, upper, work string) error {
	var open []int
	defer func() {
		for _, fd := range open {
			unix.Close(fd)
		}
	}()
	var names []string
	dirs := slices.Clone(lower)
	slices.Reverse(dirs)
	if upper != "" {
		dirs = append(dirs, upper, work)
	}
	for _, dir := range dirs {
		fd, err := layerFD(dir)
		if err != nil {
			return err
		}
		open = append(open, fd)
		names = append(names, "/proc/self/fd/"+strconv.Itoa(fd))
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	opts := "lowerdir=" + strings.Join(names[:len(lower)], ":")
	if upper != "" {
		opts += ",upperdir=" + names[len(lower)] + ",workdir=" + names[len(lower)+1]
	} else {
		flags |= unix.MS_RDONLY
	}
	opts += st.overlayOptions()
	if len(opts) >= os.Getpagesize() {
		return errors.New("too many layers for one overlay mount")
	}
	return unix.Mount("overlay", dst, "overlay", flags, opts)
}

// unmountBelow detaches every mount at or below dir, deepest and latest first. It is
// idempotent.
func unmountBelow(dir string) error {
	for range 4 { // mounts stacked on one point need another look
		points, err := mountsBelow(dir)
		if err != nil {
			return err
		}
		if len(points) == 0 {
			return nil
		}
		for i := len(points) - 1; i >= 0; i-- {
			err := unix.Unmount(points[i], unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("unmount %s: %w", points[i], err)
			}
		}
	}
	points, err := mountsBelow(dir)
	if err == nil && len(points) > 0 {
		err = fmt.Errorf("unmount %s: still mounted", points[0])
	}
	return err
}

func mountsBelow(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseMountsBelow(bufio.NewScanner(f), filepath.Clean(dir))
}

func parseMountsBelow(sc *bufio.Scanner, dir string) ([]string, error) {
	var out []string
	for sc.Scan() {
		fields := strings.Fields(sc.Text())
		if len(fields) < 5 {
			continue
		}
		p := unescapeMount(fields[4])
		if p == dir || strings.HasPrefix(p, dir+"/") {
			out = append(out, p)
		}
	}
	return out, sc.Err()
}

// unescapeMount undoes the octal escapes of mountinfo.
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// ensureOwn mounts memory at dir with private propagation, unless that was done before, so
// that what is mounted below it appears in no other mount namespace.
func ensureOwn(dir string) error {
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	if slices.Contains(points, dir) {
		return nil
	}
	if err := unix.Mount("daybreak", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=711,size=256m"); err != nil {
		return err
	}
	return unix.Mount("", dir, "", unix.MS_PRIVATE, "")
}

package oci

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

const dirOwn = "o" // below a sandbox's mount directory: memory with the files that it alone has

// ownFiles are the files whose texts may come with the sandbox's owner. Each is mounted at its
// place, read-only, so that the host alone can fill it. Those of setup are files like any other:
// its packages may put others in their place.
func ownFiles(spec sandbox.Spec) (out []sandbox.File) {
	if spec.System.Keep != "" {
		return nil
	}
	for _, f := range spec.Files {
		if f.Own {
			out = append(out, f)
		}
	}
	return out
}

// withoutOwn are all files of the spec, the own ones empty: they are what is mounted upon.
func withoutOwn(spec sandbox.Spec) []sandbox.File {
	if spec.System.Keep != "" {
		return spec.Files
	}
	out := make([]sandbox.File, len(spec.Files))
	for i, f := range spec.Files {
		if out[i] = f; f.Own {
			out[i].Text = nil
		}
	}
	return out
}

// lateFiles are the own files of a sandbox that is started without their texts; none when it has
// one of them.
func lateFiles(spec sandbox.Spec) []sandbox.File {
	all := ownFiles(spec)
	for _, f := range all {
		if len(f.Text) > 0 {
			return nil
		}
	}
	return all
}

// mountOwn places the own files in the root. What has its texts cannot be changed any more, by the
// host neither.
func (s *box) mountOwn(root string, spec sandbox.Spec) error {
	files := ownFiles(spec)
	if len(files) == 0 {
		return nil
	}
	size := min(int64(len(files))*maxFileBytes, maxAllFiles) + 1<<20 // for what does not fill its last page
	if err := os.Mkdir(s.path(dirOwn), 0o755); err != nil {
		return err
	}
	if err := mountTmpfs(s.path(dirOwn), size, maxFiles+8, "755"); err != nil {
		return err
	}
	made := make([]sandbox.File, len(files))
	for i := range files {
		made[i].Path = strconv.Itoa(i) // the sandbox sees this name in its list of mounts
	}
	if err := writeFiles(s.path(dirOwn), made, int(s.rec.IDBase)); err != nil {
		return err
	}
	for i, f := range files {
		if err := attachOver(s.path(dirOwn, strconv.Itoa(i)), root, f.Path[1:]); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	if len(lateFiles(spec)) > 0 {
		return nil
	}
	return s.fillOwn(files)
}

// attachOver places a read-only clone of a file over the file of that name below root, over no
// link.
func attachOver(src, root, name string) error {
	top, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	dst, err := unix.Openat2(top, name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return err
	}
	defer unix.Close(dst)
	clone, err := cloned(src, attrRead|unix.MOUNT_ATTR_NOEXEC, -1, false)
	if err != nil {
		return err
	}
	defer unix.Close(clone)
	return unix.MoveMount(clone, "", dst, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// fillOwn writes the texts of the own files, in their order, once.
func (s *box) fillOwn(files []sandbox.File) error {
	dir := s.path(dirOwn)
	for i, f := range files {
		file, err := os.OpenFile(s.path(dirOwn, strconv.Itoa(i)), os.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		_, err = file.Write(f.Text)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
}

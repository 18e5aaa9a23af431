package oci

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// Caps on [sandbox.Spec.Files].
const (
	maxFileBytes = 1 << 20
	maxAllFiles  = 8 << 20
	maxFiles     = 256
)

const dirFiles = "f" // below a sandbox's mount directory: memory with the files of its /etc and /var

// beneath reports whether path is dir or lies below it.
func beneath(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// checkFiles refuses files that no place is meant for.
func checkFiles(spec sandbox.Spec) error {
	taken := []string{
		sandbox.WorkDir, sandbox.TempDir, "/proc", "/sys", "/dev", "/usr", "/.daybreak", "/var/tmp",
		"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	}
	for _, m := range spec.Mounts {
		taken = append(taken, m.Target)
	}
	if spec.System.Keep != "" {
		taken = append(taken, "/run")
	}
	total := 0
	for i, f := range spec.Files {
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || strings.ContainsRune(f.Path, 0) {
			return fmt.Errorf("file %q is not a clean absolute path", f.Path)
		}
		if slices.Contains([]string{"/", "/etc", "/var", "/run"}, f.Path) {
			return fmt.Errorf("file %q is a directory", f.Path)
		}
		for _, t := range taken {
			if beneath(f.Path, t) || beneath(t, f.Path) {
				return fmt.Errorf("file %q touches %s", f.Path, t)
			}
		}
		if f.Own && !beneath(f.Path, "/etc") {
			return fmt.Errorf("file %q of its own is not below /etc", f.Path)
		}
		if beneath(sandbox.HomeDir, f.Path) || beneath(f.Path, "/home") && !beneath(f.Path, sandbox.HomeDir) {
			return fmt.Errorf("file %q touches /home", f.Path)
		}
		for _, g := range spec.Files[:i] {
			if beneath(f.Path, g.Path) || beneath(g.Path, f.Path) {
				return fmt.Errorf("files %q and %q touch", g.Path, f.Path)
			}
		}
		if total += len(f.Text); len(f.Text) > maxFileBytes || total > maxAllFiles || i >= maxFiles {
			return fmt.Errorf("file %q: at most %d files of 1 MiB each, 8 MiB together", f.Path, maxFiles)
		}
	}
	return nil
}

// filesBelow are the files below a directory of the sandbox, named from there.
func filesBelow(all []sandbox.File, dir string) []sandbox.File {
	var out []sandbox.File
	for _, f := range all {
		if rel, ok := strings.CutPrefix(f.Path, dir+"/"); ok {
			out = append(out, sandbox.File{Path: rel, Text: f.Text})
		}
	}
	return out
}

func sizeOfFiles(all []sandbox.File) (n int64) {
	for _, f := range all {
		n += int64(len(f.Text))
	}
	return n
}

// filesLayer makes a layer of the sandbox's files below /etc or /var. It is "" without any.
func (s *box) filesLayer(all []sandbox.File, name string) (string, error) {
	files := filesBelow(all, "/"+name)
	if len(files) == 0 {
		return "", nil
	}
	dir := s.path(dirFiles, name)
	owner := int(s.rec.IDBase)
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Lchown(dir, owner, owner)); err != nil {
		return "", err
	}
	return dir, writeFiles(dir, files, owner)
}

// rootFiles writes the files that are neither in a layer of /etc nor of HOME onto the root.
func (s *box) rootFiles(root string, spec sandbox.Spec) error {
	var files []sandbox.File
	for _, f := range filesBelow(spec.Files, "") {
		at := "/" + f.Path
		if beneath(at, "/etc") || beneath(at, sandbox.HomeDir) || beneath(at, "/var") && layered(spec.System) {
			continue
		}
		files = append(files, f)
	}
	return writeFiles(root, files, int(s.rec.IDBase))
}

// writeFiles writes files below dir for an owner, over no link, no mount and nothing that is
// there already.
func writeFiles(dir string, files []sandbox.File, owner int) error {
	if len(files) == 0 {
		return nil
	}
	top, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	for _, f := range files {
		if err := writeBeneath(top, f, owner); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return nil
}

func writeBeneath(top int, f sandbox.File, owner int) error {
	open := func(name string, flags, mode uint64) (int, error) {
		return unix.Openat2(top, name, &unix.OpenHow{
			Flags: flags | unix.O_CLOEXEC | unix.O_NOFOLLOW, Mode: mode,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
		})
	}
	parts := strings.Split(f.Path, "/")
	parent, err := open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	for i, name := range parts[:len(parts)-1] {
		made := unix.Mkdirat(parent, name, 0o755)
		if made == nil {
			made = unix.Fchownat(parent, name, owner, owner, unix.AT_SYMLINK_NOFOLLOW)
		}
		unix.Close(parent)
		if made != nil && !errors.Is(made, unix.EEXIST) {
			return made
		}
		if parent, err = open(strings.Join(parts[:i+1], "/"), unix.O_RDONLY|unix.O_DIRECTORY, 0); err != nil {
			return err
		}
	}
	unix.Close(parent)
	fd, err := open(f.Path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), f.Path)
	_, err = file.Write(f.Text)
	return errors.Join(err, file.Chmod(0o644), file.Chown(owner, owner), file.Close())
}

// noLinkOn refuses a file whose directory in the template of /etc is reached over a link: the
// layer would hide what is there.
func noLinkOn(template string, files []sandbox.File) error {
	for _, f := range files {
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			st, err := os.Lstat(filepath.Join(template, dir))
			if err == nil && !st.IsDir() {
				return fmt.Errorf("/etc/%s: /etc/%s is a link or a file", f.Path, dir)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// checkForwards refuses ports and sockets that cannot be meant.
func checkForwards(all []sandbox.Forward) error {
	ports := map[int]bool{}
	for _, f := range all {
		switch {
		case !filepath.IsAbs(f.Socket) || filepath.Clean(f.Socket) != f.Socket:
			return fmt.Errorf("forwarded socket %q is not a clean absolute path", f.Socket)
		case f.Port < 1024 || f.Port > 65535 || ports[f.Port]:
			return fmt.Errorf("forwarded port %d is taken or not between 1024 and 65535", f.Port)
		}
		ports[f.Port] = true
	}
	return nil
}

// forwardPath is where the sandbox sees a forward's socket.
func forwardPath(i int) string { return "/.daybreak/forward-" + strconv.Itoa(i) }

// forwardArgs tell the guest where to listen.
func forwardArgs(all []sandbox.Forward) (args []string) {
	for i, f := range all {
		args = append(args, "--forward", fmt.Sprintf("%d=%s", f.Port, forwardPath(i)))
	}
	return args
}

const forwardFix = "start what answers there, and give the socket mode 0666: who may reach it is decided by its directory"

// attachForward places a socket of the host. Its mount is read-only, which is no matter to
// who connects: only the socket itself cannot be changed.
func (s *box) attachForward(root string, i int, f sandbox.Forward) error {
	var st unix.Stat_t
	if err := unix.Lstat(f.Socket, &st); err != nil {
		return fmt.Errorf("%s: %w", f.Socket, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return fmt.Errorf("%s is not a socket", f.Socket)
	}
	if st.Mode&0o002 == 0 {
		return fmt.Errorf("%s has mode %o, and the sandbox's user is nobody to it", f.Socket, st.Mode&0o777)
	}
	at := filepath.Join(root, forwardPath(i))
	if err := errors.Join(os.WriteFile(at, nil, 0o644), s.r.stand.fence(at, s.rec.IDBase)); err != nil {
		return err
	}
	return attach(f.Socket, at, attrRead|unix.MOUNT_ATTR_NOEXEC, -1, false)
}

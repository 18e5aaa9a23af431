package oci

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

const marksFix = "use a kernel from 6.6 on with CONFIG_TMPFS_XATTR"

// userFiles is what decides whether an ordinary user can have sandboxes.
type userFiles struct {
	uid, gid       int
	name           string
	subUID, subGID string // files of subordinate ids
	self           string // /proc/self/cgroup
	sys            string // /proc/sys
	look           func(program string) (string, error)
	writable       func(path string) bool
}

func hostFiles(uid int) userFiles {
	u := userFiles{
		uid: uid, gid: os.Getegid(), name: strconv.Itoa(uid), subUID: "/etc/subuid", subGID: "/etc/subgid",
		self: "/proc/self/cgroup", sys: "/proc/sys", look: exec.LookPath,
		writable: func(p string) bool { return unix.Access(p, unix.W_OK) == nil },
	}
	if uid == 0 {
		return u
	}
	if known, err := user.LookupId(u.name); err == nil {
		u.name = known.Username
	}
	return u
}

// defaultRunDir is where the mounts of an installation are.
func defaultRunDir(dir string, uid int) string {
	if uid == 0 {
		return "/run/daybreak"
	}
	run := "/run/user/" + strconv.Itoa(uid) // cleared when the user's last session ends
	if st, err := os.Stat(run); err == nil && st.IsDir() && unix.Access(run, unix.W_OK) == nil {
		return filepath.Join(run, "daybreak")
	}
	return filepath.Join(dir, "run")
}

// subIDs are subordinate ids of a user on the host.
type subIDs struct{ first, count uint32 }

// readSubIDs returns the largest range that a file in the form of /etc/subuid gives to a user.
func readSubIDs(file, name string, uid int) (subIDs, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return subIDs{}, err
	}
	var best subIDs
	for line := range strings.Lines(string(b)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 3 || f[0] != name && f[0] != strconv.Itoa(uid) {
			continue
		}
		first, err1 := strconv.ParseUint(f[1], 10, 32)
		count, err2 := strconv.ParseUint(f[2], 10, 32)
		if err1 == nil && err2 == nil && first > 0 && first+count <= 1<<32-1 && uint32(count) > best.count {
			best = subIDs{uint32(first), uint32(count)}
		}
	}
	return best, nil
}

// ids returns the user's subordinate user and group ids.
func (u userFiles) ids() (uids, gids subIDs, err error) {
	uids, err1 := readSubIDs(u.subUID, u.name, u.uid)
	gids, err2 := readSubIDs(u.subGID, u.name, u.uid)
	switch {
	case err1 != nil || uids.count < userRange:
		err = errors.Join(err1, fmt.Errorf("%s has no %d ids in %s", u.name, userRange, u.subUID))
	case err2 != nil || gids.count < userRange:
		err = errors.Join(err2, fmt.Errorf("%s has no %d ids in %s", u.name, userRange, u.subGID))
	}
	return uids, gids, oneLine(err)
}

func oneLine(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.ReplaceAll(err.Error(), "\n", ": "))
}

// unfit lists what keeps an ordinary user from having sandboxes, worst first. It changes
// nothing.
func (r *Runtime) unfit() []*sandbox.RefusedError {
	u := r.user
	var out []*sandbox.RefusedError
	no := func(layer, fix string, err error) {
		out = append(out, &sandbox.RefusedError{Layer: layer, Fix: fix, Err: err})
	}
	if n, err := u.sysctl("user/max_user_namespaces"); err != nil {
		no("user namespace", "use a kernel with CONFIG_USER_NS", err)
	} else if n == 0 {
		no("user namespace", "as root: sysctl user.max_user_namespaces=10000", errors.New("user namespaces are off"))
	}
	if n, err := u.sysctl("kernel/unprivileged_userns_clone"); err == nil && n == 0 {
		no("user namespace", "as root: sysctl kernel.unprivileged_userns_clone=1", errors.New("user namespaces are for root alone"))
	}
	for _, tool := range []string{"newuidmap", "newgidmap"} {
		if _, err := u.look(tool); err != nil {
			no("user ids", "install the package uidmap (Debian, Ubuntu) or shadow-utils (Fedora)", fmt.Errorf("no %s", tool))
		}
	}
	if _, _, err := u.ids(); err != nil {
		no("user ids", fmt.Sprintf("as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s", u.name), err)
	}
	if major, minor, release := kernel(); major < 6 || major == 6 && minor < 6 {
		no("overlay", marksFix, fmt.Errorf("kernel %s keeps no marks of users on files in memory", release))
	}
	if _, err := r.userGroup(); err != nil {
		no("cgroup", delegateFix(r.groups.mode, u.uid), err)
	}
	return out
}

func (u userFiles) sysctl(name string) (int, error) {
	b, err := os.ReadFile(filepath.Join(u.sys, name))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

func (r *Runtime) userGroup() (string, error) {
	self, err := os.ReadFile(r.user.self)
	if err != nil {
		return "", err
	}
	return r.groups.delegated(string(self), r.user.uid, r.user.writable)
}

// fit finds what an ordinary user's sandboxes stand on, or refuses and names what is missing.
func (r *Runtime) fit() (standing, error) {
	if bad := r.unfit(); len(bad) > 0 {
		return standing{}, bad[0]
	}
	uids, gids, err := r.user.ids()
	if err != nil {
		return standing{}, refused("user ids", "", err)
	}
	parent, err := r.userGroup()
	if err == nil {
		err = r.groups.claim(parent)
	}
	if err != nil {
		return standing{}, refused("cgroup", delegateFix(r.groups.mode, r.user.uid), err)
	}
	r.holder.maps(r.user, uids, gids)
	return userStanding(min(uids.count, gids.count), parent), nil
}

// probeMarks tries to mark a file in memory as overlay must: without that a directory that
// was removed and made again would show what was in it before.
func (st standing) probeMarks(dir string) error {
	if !st.Rootless {
		return nil
	}
	f, err := os.CreateTemp(dir, "mark-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	return errors.Join(unix.Fsetxattr(int(f.Fd()), "user.overlay.opaque", []byte("y"), 0), f.Close())
}

// rootlessNotes say in what a user's sandboxes differ from root's.
func (r *Runtime) rootlessNotes() []string {
	notes := []string{
		"rootless: commands run under your own user id; namespaces, seccomp and missing capabilities fence them, not a user id of their own",
	}
	if uids, gids, err := r.user.ids(); err == nil {
		n := userStanding(min(uids.count, gids.count), "").IDs.Count
		notes = append(notes, fmt.Sprintf("rootless: subordinate ids for %d sandboxes at a time, %d for each, none shared", n, userRange))
	}
	if n, err := r.user.sysctl("kernel/apparmor_restrict_unprivileged_userns"); err == nil && n == 1 {
		notes = append(notes, "rootless: AppArmor restricts user namespaces; if the start fails: sysctl kernel.apparmor_restrict_unprivileged_userns=0, or a profile for daybreak")
	}
	if slices.Contains([]string{"v1", "hybrid"}, r.groups.mode) {
		notes = append(notes, "rootless: cgroup v1 directories made by hand are gone after a boot")
	}
	return notes
}

package oci

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go/features"
	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// runtimeFeatures is what the OCI runtime says it can do.
type runtimeFeatures struct{ features.Features }

// features asks the runtime.
func (r *Runtime) features(ctx context.Context) (runtimeFeatures, error) {
	var f runtimeFeatures
	if st, err := os.Stat(r.cfg.Runtime); err != nil {
		return f, fmt.Errorf("OCI runtime: %w", err)
	} else if !st.Mode().IsRegular() {
		return f, fmt.Errorf("OCI runtime %s is not a file", r.cfg.Runtime)
	}
	cmd := exec.CommandContext(ctx, r.cfg.Runtime, "features")
	cmd.Env = []string{}
	out, err := cmd.Output()
	if err != nil {
		return f, fmt.Errorf("%s features: %w", r.cfg.Runtime, err)
	}
	return f, json.Unmarshal(out, &f)
}

// lacking lists what the adapter needs and the runtime was built without.
func (r *Runtime) lacking(f runtimeFeatures) []string {
	var out []string
	l := f.Linux
	if l == nil {
		return []string{"the OCI runtime knows no Linux containers"}
	}
	if l.Seccomp == nil || l.Seccomp.Enabled == nil || !*l.Seccomp.Enabled {
		out = append(out, "the OCI runtime is built without seccomp: build it with -tags seccomp and libseccomp")
	}
	out = append(out, r.engine.missing(f, r.groups.mode)...)
	for _, ns := range []string{"user", "mount", "pid", "network", "ipc", "uts", "cgroup"} {
		if !slices.Contains(l.Namespaces, ns) {
			out = append(out, "the OCI runtime has no "+ns+" namespace: "+r.engine.needs)
		}
	}
	return out
}

// Capabilities implements [sandbox.Runtime].
func (r *Runtime) Capabilities(ctx context.Context) sandbox.Capabilities {
	c := sandbox.Capabilities{Runtime: r.engine.name, Isolation: r.engine.isolates(r.standing()), Cgroup: r.groups.mode, Rootless: r.holder != nil}
	miss := func(format string, args ...any) { c.Missing = append(c.Missing, fmt.Sprintf(format, args...)) }
	if f, err := r.features(ctx); err != nil {
		miss("no usable OCI runtime (%v): %s", err, r.engine.needs)
	} else if v, err := r.engine.version(ctx, r.cfg.Runtime, f); err != nil {
		miss("no usable OCI runtime (%v): %s", err, r.engine.needs)
	} else {
		c.Runtime += " " + v
		c.Missing = append(c.Missing, r.lacking(f)...)
	}
	c.OwnKernel = r.engine.ownKernel
	c.Notes = append(c.Notes, r.engine.notes...)
	if _, err := os.Stat(r.cfg.Guest); err != nil {
		miss("no guest binary (%v): build cmd/daybreak-guest with CGO_ENABLED=0", err)
	}
	if c.Rootless {
		for _, bad := range r.unfit() {
			miss("%s: %v; %s", bad.Layer, bad.Err, bad.Fix)
		}
		c.Notes = append(c.Notes, r.rootlessNotes()...)
	} else {
		r.inspectRoot(miss)
	}
	if m := r.groups.missing(); len(m) > 0 {
		miss("cgroup %s lacks %s: mount the controllers, or boot with systemd.unified_cgroup_hierarchy=1", r.groups.mode, strings.Join(m, ", "))
	}
	if b, err := os.ReadFile("/proc/filesystems"); err != nil || !strings.Contains(string(b), "\toverlay\n") {
		miss("no overlayfs: modprobe overlay")
	}
	_, _, release := kernel()
	c.Facts = append(c.Facts, "kernel "+release)
	switch {
	case !r.engine.host: // its kernel is not this one
	case r.landlock() > 0:
		c.Facts = append(c.Facts, fmt.Sprintf("Landlock %d", r.landlock()))
	default:
		c.Facts = append(c.Facts, "no Landlock")
		c.Notes = append(c.Notes, "no Landlock: mounts alone decide what commands may write; a kernel from 5.19 on with landlock among its lsm= adds a second wall")
	}
	if !r.groups.swapAccounting() {
		c.Notes = append(c.Notes, "no swap accounting: the memory limit does not count swap; boot with swapaccount=1")
	}
	if b, err := os.ReadFile("/proc/sys/vm/swappiness"); err == nil {
		c.Facts = append(c.Facts, "vm.swappiness "+strings.TrimSpace(string(b)))
	}
	c.Facts = append(c.Facts, sideChannels()...)
	if b, err := os.ReadFile("/sys/devices/system/cpu/smt/active"); err == nil && strings.TrimSpace(string(b)) == "1" {
		c.Notes = append(c.Notes, "SMT is on: sandboxes share cores with others")
	}
	return c
}

// landlock is the version of Landlock that fences commands, 0 for none.
func (r *Runtime) landlock() int {
	if !r.engine.host {
		return 0
	}
	return guest.Landlock()
}

// inspectRoot looks for what root's sandboxes need beside what all need.
func (r *Runtime) inspectRoot(miss func(format string, args ...any)) {
	if !hasCap(unix.CAP_SYS_ADMIN) {
		miss("no CAP_SYS_ADMIN: start the worker with it, it mounts the sandboxes' file systems")
	}
	if b, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err != nil {
		miss("no user namespaces: use a kernel with CONFIG_USER_NS")
	} else if n, _ := strconv.Atoi(strings.TrimSpace(string(b))); n == 0 {
		miss("user namespaces are off: sysctl user.max_user_namespaces=10000")
	}
	if major, minor, release := kernel(); major < 5 || major == 5 && minor < 19 {
		miss("kernel %s: idmapped overlay layers need 5.19 or newer", release)
	}
	if err := r.probeIdmap(); err != nil {
		miss("no idmapped mounts below %s (%v): %s", r.cfg.Dir, err, overlayFix)
	}
}

// probeIdmap tries an idmapped clone of the state directory without placing it anywhere.
func (r *Runtime) probeIdmap() error {
	ns, err := idmap(0, 0, int(r.cfg.IDBase), int(r.cfg.IDBase))
	if err != nil {
		return err
	}
	defer ns.Close()
	fd, err := unix.OpenTree(unix.AT_FDCWD, r.cfg.Dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY, Userns_fd: uint64(ns.Fd()),
	})
}

func hasCap(c int) bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return false
	}
	return data[c/32].Effective&(1<<(c%32)) != 0
}

// kernel returns the running kernel's version.
func kernel() (major, minor int, release string) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return 0, 0, "unknown"
	}
	release = unix.ByteSliceToString(u.Release[:])
	if n, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil || n != 2 {
		return 0, 0, release
	}
	return major, minor, release
}

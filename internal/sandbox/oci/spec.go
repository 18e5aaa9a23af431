package oci

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// Defaults of [sandbox.Limits].
const (
	defaultMemory = 4 << 30
	defaultPids   = 2048
	defaultWork   = 2 << 30
	defaultHome   = 2 << 30
	defaultTemp   = 1 << 30
	inodeBytes    = 4096 // a tmpfs may hold one file per this many bytes, and
	minInodes     = 16 << 10
	maxInodes     = 1 << 20 // at most this many
)

func inodes(size int64) int64 { return min(max(size/inodeBytes, minInodes), maxInodes) }

// withDefaults fills zero fields.
func withDefaults(l sandbox.Limits) sandbox.Limits {
	set := func(p *int64, v int64) {
		if *p <= 0 {
			*p = v
		}
	}
	set(&l.Memory, defaultMemory)
	set(&l.Pids, defaultPids)
	set(&l.WorkBytes, defaultWork)
	set(&l.HomeBytes, defaultHome)
	set(&l.TempBytes, defaultTemp)
	if l.CPU <= 0 {
		l.CPU = float64(runtime.NumCPU())
	}
	return l
}

func describe(l sandbox.Limits) string {
	mib := func(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
	s := fmt.Sprintf("memory %s, %d processes, %g CPUs, work %s, home %s, tmp %s",
		mib(l.Memory), l.Pids, l.CPU, mib(l.WorkBytes), mib(l.HomeBytes), mib(l.TempBytes))
	if l.Wall > 0 {
		s += ", wall " + l.Wall.String()
	}
	return s
}

// container is what the OCI configuration of one container depends on.
type container struct {
	engine   engine
	writable []string // mounts below root that it may write to
	root     string   // host path of the root file system
	cgroup   string
	stand    standing
	idBase   uint32
	uid      uint32
	args     []string
	env      []string
	cwd      string
	caps     []string // effective, permitted and bounding; normally none
	limits   sandbox.Limits
	swap     bool
	tmpfs    bool // mount /tmp, /dev/shm and /dev/pts
	system   bool // for setup: /run is writable too
	landlock int  // version of the kernel's Landlock that fences the guest; 0: none
	limit    bool // no user namespace below the container's own
	noFiles  uint64
}

// ociSpec writes the container's configuration. All that the container may see is either in
// its root already or listed here.
func ociSpec(c container) *specs.Spec {
	caps := &specs.LinuxCapabilities{Bounding: c.caps, Effective: c.caps, Permitted: c.caps, Inheritable: []string{}, Ambient: []string{}}
	oom := 500 // the host's own processes are spared
	ids := c.stand.mappings(c.idBase)
	s := &specs.Spec{
		Version:  "1.0.2",
		Hostname: "sandbox",
		Root:     &specs.Root{Path: c.root, Readonly: true},
		Process: &specs.Process{
			User: specs.User{UID: c.uid, GID: c.uid}, Args: c.args, Env: c.env, Cwd: c.cwd,
			Capabilities: caps, NoNewPrivileges: true, OOMScoreAdj: &oom,
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_CORE"},
				{Type: "RLIMIT_NOFILE", Hard: c.noFiles, Soft: c.noFiles},
				{Type: "RLIMIT_MEMLOCK", Hard: 64 << 10, Soft: 64 << 10},
				{Type: "RLIMIT_RTPRIO"},
				{Type: "RLIMIT_MSGQUEUE", Hard: 800 << 10, Soft: 800 << 10},
			},
		},
		Mounts: ociMounts(c),
		Linux: &specs.Linux{
			UIDMappings: ids, GIDMappings: ids,
			CgroupsPath: c.cgroup,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.UserNamespace},
				{Type: specs.MountNamespace},
				{Type: specs.PIDNamespace},
				{Type: specs.NetworkNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.CgroupNamespace},
			},
			Resources:         ociResources(c),
			Seccomp:           seccompProfile(c.system),
			RootfsPropagation: "private",
			MaskedPaths: []string{
				"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/kmsg",
				"/proc/kallsyms", "/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", "/proc/latency_stats",
				"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/proc/interrupts",
				"/proc/config.gz", "/proc/cmdline", "/proc/sysrq-trigger", "/proc/vmallocinfo", "/proc/modules",
				"/proc/slabinfo", "/proc/pagetypeinfo", "/proc/iomem", "/proc/ioports", "/proc/swaps", "/proc/partitions",
				"/proc/diskstats", "/proc/bootconfig", "/proc/dynamic_debug",
			},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/driver", "/proc/tty"},
		},
	}
	if c.limit {
		s.Hooks = &specs.Hooks{CreateContainer: []specs.Hook{{Args: []string{"guest", "limit"}}}}
	}
	if c.landlock > 0 {
		s.Process.Args = append(s.Process.Args, landlockFlag, strconv.Itoa(c.landlock), "--write", strings.Join(fenced(c), ":"))
	}
	if c.engine.shape != nil {
		c.engine.shape(s, c)
	}
	return s
}

const landlockFlag = "--landlock"

// fenced are the trees that Landlock leaves writable.
func fenced(c container) []string {
	out := append([]string{sandbox.TempDir, "/dev/shm"}, c.writable...)
	if c.system {
		out = append(out, "/run")
	}
	return out
}

// expects tells the guest which paths the configuration covers: it looks before anything runs.
func expects(s *specs.Spec) []string {
	return []string{"--masked", strings.Join(s.Linux.MaskedPaths, ":"), "--readonly", strings.Join(s.Linux.ReadonlyPaths, ":")}
}

func ociMounts(c container) []specs.Mount {
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "mode=755", "size=64k", "nr_inodes=64"}},
	}
	if !c.tmpfs {
		return mounts
	}
	size := func(n int64, mode string) []string {
		return []string{"nosuid", "nodev", "mode=" + mode, fmt.Sprintf("size=%d", n), fmt.Sprintf("nr_inodes=%d", inodes(n))}
	}
	if c.system {
		mounts = append(mounts, specs.Mount{Destination: "/run", Type: "tmpfs", Source: "tmpfs", Options: append(size(16<<20, "755"), "noexec")})
	}
	return append(mounts,
		specs.Mount{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		specs.Mount{Destination: "/dev/shm", Type: "tmpfs", Source: "tmpfs", Options: append(size(64<<20, "1777"), "noexec")},
		specs.Mount{Destination: sandbox.TempDir, Type: "tmpfs", Source: "tmpfs", Options: size(c.limits.TempBytes, "1777")},
	)
}

func ociResources(c container) *specs.LinuxResources {
	period := uint64(100_000)
	quota := max(int64(c.limits.CPU*float64(period)), 1000)
	memory, pids := c.limits.Memory, c.limits.Pids
	res := &specs.LinuxResources{
		Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
		Memory:  &specs.LinuxMemory{Limit: &memory},
		CPU:     &specs.LinuxCPU{Quota: &quota, Period: &period},
		Pids:    &specs.LinuxPids{Limit: &pids},
	}
	if c.swap {
		res.Memory.Swap = &memory
	}
	return res
}

// profileDigest identifies the isolation that a configuration asks for, whoever it is for.
func profileDigest(s *specs.Spec) (string, error) {
	mounts := slices.Clone(s.Mounts)
	for i, m := range mounts {
		if m.Type == "bind" { // it lies below this sandbox's own root
			mounts[i].Source = ""
		}
	}
	b, err := json.Marshal(map[string]any{
		"namespaces": s.Linux.Namespaces, "seccomp": s.Linux.Seccomp, "masked": s.Linux.MaskedPaths,
		"readonly": s.Linux.ReadonlyPaths, "mounts": mounts, "capabilities": s.Process.Capabilities,
		"rlimits": s.Process.Rlimits, "no_new_privileges": s.Process.NoNewPrivileges, "resources": s.Linux.Resources,
		"readonly_root": s.Root.Readonly, "annotations": s.Annotations, "landlock": landlockOf(s), "hooks": s.Hooks != nil,
	})
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), err
}

// landlockOf is the version and the trees of the fence.
func landlockOf(s *specs.Spec) []string {
	if i := slices.Index(s.Process.Args, landlockFlag); i >= 0 {
		return s.Process.Args[i+1 : i+4]
	}
	return nil
}

// environment is the fixed minimal environment plus extra, each key once, the last value
// winning. It holds nothing of the worker's own environment.
func environment(extra []string) ([]string, error) {
	env := []string{
		"PATH=" + sandbox.Path,
		"HOME=" + sandbox.HomeDir, "USER=agent", "LOGNAME=agent", "SHELL=/bin/bash", "LANG=C.UTF-8",
		"TMPDIR=" + sandbox.TempDir, "TERM=dumb", "PWD=" + sandbox.WorkDir,
	}
	for _, kv := range extra {
		k, _, ok := strings.Cut(kv, "=")
		if !ok || k == "" || strings.ContainsRune(kv, 0) {
			return nil, fmt.Errorf("environment entry %q is not KEY=VALUE", k)
		}
		env = slices.DeleteFunc(env, func(old string) bool { return strings.HasPrefix(old, k+"=") })
		env = append(env, kv)
	}
	return env, nil
}

// noFiles is the highest descriptor limit that needs no privilege to set.
func noFiles() uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 1024
	}
	return min(l.Max, 65536)
}

func writeBundle(dir string, s *specs.Spec) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600))
}

//go:build layeroff

package oci

import (
	"os"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// layerOffEnv names the layer that a build with the tag layeroff goes without. Such a build is
// for tests alone: it shows that each layer is needed, and by which case its loss is noticed.
const layerOffEnv = "DAYBREAK_LAYER_OFF"

// layersOff takes the named layer out of a container's configuration.
func layersOff() func(*specs.Spec) {
	without := func(kind specs.LinuxNamespaceType) func(*specs.Spec) {
		return func(s *specs.Spec) {
			s.Linux.Namespaces = slices.DeleteFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == kind })
		}
	}
	return map[string]func(*specs.Spec){
		"seccomp": func(s *specs.Spec) { s.Linux.Seccomp = nil },
		"network": without(specs.NetworkNamespace),
		"ipc":     without(specs.IPCNamespace),
		"uts": func(s *specs.Spec) {
			without(specs.UTSNamespace)(s)
			s.Hostname = ""
		},
		"pids": func(s *specs.Spec) {
			without(specs.PIDNamespace)(s)
			for i, m := range s.Mounts {
				if m.Type == "proc" {
					s.Mounts[i] = specs.Mount{Destination: m.Destination, Type: "bind", Source: "/proc", Options: []string{"rbind"}}
				}
			}
		},
		"cgroup": func(s *specs.Spec) {
			s.Linux.Resources.Pids, s.Linux.Resources.Memory, s.Linux.Resources.CPU = nil, nil, nil
		},
		"capabilities": func(s *specs.Spec) { s.Process.Capabilities.Bounding = []string{"CAP_CHOWN", "CAP_SETUID"} },
		"new-privileges": func(s *specs.Spec) {
			s.Process.NoNewPrivileges = false
			noLandlock(s)
		},
		"landlock":  noLandlock,
		"read-only": noLandlock, // which would hold alone
		"userns":    func(s *specs.Spec) { s.Hooks = nil },
		"masked":    func(s *specs.Spec) { s.Linux.MaskedPaths, s.Linux.ReadonlyPaths = nil, nil },
		"core": func(s *specs.Spec) {
			s.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_CORE", Hard: ^uint64(0), Soft: ^uint64(0)}}
		},
	}[os.Getenv(layerOffEnv)]
}

// noLandlock takes the fence away, which the kernel gives to nobody who can gain privileges.
func noLandlock(s *specs.Spec) {
	if i := slices.Index(s.Process.Args, landlockFlag); i >= 0 {
		s.Process.Args = slices.Delete(s.Process.Args, i, i+4)
	}
}

// mountFlags are the flags of a mount without those of the layer that is off.
func mountFlags(attrs uint64) uint64 {
	switch os.Getenv(layerOffEnv) {
	case "read-only":
		attrs &^= unix.MOUNT_ATTR_RDONLY
	case "nosuid":
		attrs &^= unix.MOUNT_ATTR_NOSUID
	}
	return attrs
}

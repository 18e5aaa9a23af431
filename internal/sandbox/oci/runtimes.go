package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Names of the OCI runtimes that this adapter drives.
const (
	Runc  = "runc"  // the default: namespaces of the host's kernel
	Runsc = "runsc" // gVisor: a kernel of the sandbox's own
)

// engine is all in which the OCI runtimes differ.
type engine struct {
	name      string
	isolation string // as [sandbox.Info] names it
	ownKernel bool   // answers the system calls itself
	pauses    bool   // it must be asked to pause before its processes are frozen
	needs     string // what to install
	version   func(ctx context.Context, path string, f runtimeFeatures) (string, error)
	missing   func(f runtimeFeatures, cgroups string) []string // what the adapter needs and it was built without
	args      func(st standing) []string                       // before the command
	shape     func(s *specs.Spec, c container)                 // makes the configuration of runc its own; nil: it is
	litter    func(stateDir, id string) []string               // files of a container beside its state directory
	host      bool                                             // the sandbox's system calls are the host kernel's
	notes     []string                                         // what people should know about it
}

// engines are the known runtimes, the default first.
func engines() []engine { return []engine{runcEngine(), gvisorEngine()} }

// engineOf finds a runtime by its name.
func engineOf(name string) (engine, error) {
	all := engines()
	if name == "" {
		return all[0], nil
	}
	for _, e := range all {
		if e.name == name {
			return e, nil
		}
	}
	return engine{}, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("no sandbox runtime is called %q", name), Fix: "set sandbox.runtime to runc or runsc"}
}

func runcEngine() engine {
	return engine{
		name: Runc, host: true, isolation: sandbox.Namespaces, needs: "install runc 1.2 or newer with seccomp",
		version: func(_ context.Context, _ string, f runtimeFeatures) (string, error) {
			if v := f.Annotations["org.opencontainers.runc.version"]; v != "" {
				return v, nil
			}
			return "of unknown version", nil
		},
		missing: func(f runtimeFeatures, _ string) []string {
			if l := f.Linux; l.Cgroup == nil || l.Cgroup.V1 == nil || !*l.Cgroup.V1 || l.Cgroup.V2 == nil || !*l.Cgroup.V2 {
				return []string{"the OCI runtime cannot manage cgroup v1 and v2: use runc 1.2 or newer"}
			}
			return nil
		},
		args: func(st standing) []string {
			if st.Rootless { // else it overlooks a limit that it cannot set
				return []string{"--rootless", "false"}
			}
			return nil
		},
	}
}

// isolation names what separates the sandboxes from the host.
func (e engine) isolates(st standing) string {
	if st.Rootless {
		return "rootless " + e.isolation
	}
	return e.isolation
}

// isolationOf is for a sandbox of an earlier process, whose runtime may not be ours.
func isolationOf(runtime string, st standing) string {
	e, err := engineOf(runtime)
	if err != nil {
		return "unknown"
	}
	return e.isolates(st)
}

func (r *Runtime) stateDir() string { return filepath.Join(r.base, r.engine.name) }

// forget removes the OCI runtime's record of a container whose processes and cgroups we end
// ourselves: one more start of the runtime would do the same in fifty times the time. The
// container may be of another runtime than ours.
func (r *Runtime) forget(id string) error {
	var errs []error
	for _, e := range engines() {
		dir := filepath.Join(r.base, e.name)
		paths := []string{filepath.Join(dir, id)}
		if e.litter != nil {
			paths = append(paths, e.litter(dir, id)...)
		}
		for _, p := range paths {
			errs = append(errs, os.RemoveAll(p))
		}
	}
	return errors.Join(errs...)
}

package oci_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/sandbox/oci"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// attempt is one attack. It is made three times: as a control without the layers that stop
// it, where it must succeed; in the real profile, where it must be refused in our way; and
// without the layers again.
type attempt struct {
	command string
	spec    sandbox.Spec
	control *sandbox.Spec                         // replaces spec where the layer is off
	ready   func(t *testing.T, b sandbox.Sandbox) // before the command
	broke   func(out string) bool                 // the attack succeeded
	refused func(out string) bool                 // it met our refusal; nil: not to have succeeded is enough
	off     func(*specs.Spec)                     // takes the layers away; nil with control
}

// gvisor reports whether the attacks are made on gVisor.
func gvisor() bool { return os.Getenv("DAYBREAK_TEST_RUNTIME") == "runsc" }

// target makes the runtime under attack.
func target(t testing.TB) *oci.Runtime {
	t.Helper()
	if gvisor() {
		return newRuntime(t, underRunsc(t))
	}
	return newRuntime(t, nil)
}

func threeRuns(t *testing.T, a attempt) {
	t.Helper()
	try := func(off bool) string {
		t.Helper()
		r := target(t)
		spec := a.spec
		if off {
			if a.off != nil {
				oci.Alter(r, a.off)
			}
			if a.control != nil {
				spec = *a.control
			}
		}
		b := begin(t, r, spec)
		defer end(t, b)
		if a.ready != nil {
			a.ready(t, b)
		}
		return does(t, b, a.command)
	}
	control := try(true)
	real := try(false)
	if a.broke(real) {
		t.Fatalf("the attack succeeds in the real profile: %s", real)
	}
	if !a.broke(control) {
		t.Skipf("not exercised: the attack does not succeed here without the layer either: %s", oneLine(control))
	}
	if a.refused != nil && !gvisor() && !a.refused(real) {
		t.Errorf("it was stopped by something else than our layer: %s", real)
	}
	if again := try(true); !a.broke(again) {
		t.Errorf("with the layer off again the attack fails, so the test shows nothing: %s", again)
	}
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return s[:min(len(s), 160)]
}

// begin starts a sandbox of a task of its own.
func begin(t *testing.T, r *oci.Runtime, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	if spec.Task == "" {
		spec.Task, spec.Purpose = "t_attack", "agent"
	}
	b, err := r.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { _ = b.Destroy(context.Background()) })
	return b
}

func end(t *testing.T, b sandbox.Sandbox) {
	t.Helper()
	if err := b.Destroy(context.Background()); err != nil {
		t.Errorf("destroy: %v", err)
	}
}

// does runs a command to whatever end and returns what it printed.
func does(t *testing.T, b sandbox.Sandbox, command string) string {
	t.Helper()
	guard := 3 * time.Minute // without a layer a program may stop for ever
	if gvisor() {
		guard = time.Minute // where one that traces itself does
	}
	res, err := b.Guest().Exec(t.Context(), guest.ExecRequest{Shell: command, Head: 1 << 20, Tail: 1 << 20, Timeout: guard})
	if err != nil && gvisor() && task.ClassOf(err) != task.Internal { // what passes the memory limit ends as a whole
		return "the sandbox ended: " + err.Error()
	}
	if err != nil {
		t.Fatalf("exec %q: %v", command, err)
	}
	return string(res.Head) + string(res.Tail) + res.Error
}

// arms builds the hostile programs once for the package, beside the guest that TestMain built.
func arms(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(filepath.Dir(testGuest), "hostile")
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	fresh, err := os.MkdirTemp(filepath.Dir(testGuest), "building-")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"attacker", "probe"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(fresh, name), "github.com/daybreak-agent/daybreak/internal/sandbox/sandboxtest/testdata/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, out)
		}
	}
	if err := os.Rename(fresh, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// armed makes a tree with the hostile programs in it, "./attacker" and "./probe".
func armed(t testing.TB, files map[string]string) string {
	t.Helper()
	from := arms(t)
	dir := t.TempDir()
	for _, name := range []string{"attacker", "probe"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// said finds the outcome of a try in an attacker's report.
func said(out, what string) string {
	for line := range strings.Lines(out) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == what {
			return v
		}
	}
	return ""
}

// says is true when a try ended so.
func says(what string, outcomes ...string) func(string) bool {
	return func(out string) bool { return slices.Contains(outcomes, said(out, what)) }
}

// Takings away.
func noSeccomp(s *specs.Spec) { s.Linux.Seccomp = nil }

func noNamespace(kind specs.LinuxNamespaceType) func(*specs.Spec) {
	return func(s *specs.Spec) {
		s.Linux.Namespaces = slices.DeleteFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == kind })
	}
}

// privileged gives a container's first process everything its user namespace has.
func privileged(s *specs.Spec) {
	oci.WithoutLandlock(s) // which forbids mounting
	all := []string{"CAP_SYS_ADMIN", "CAP_SYS_CHROOT", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SYS_NICE", "CAP_SYS_PTRACE", "CAP_KILL", "CAP_DAC_OVERRIDE", "CAP_SETUID", "CAP_SETGID"}
	s.Process.Capabilities = &specs.LinuxCapabilities{Bounding: all, Effective: all, Permitted: all, Inheritable: all, Ambient: all}
	s.Process.User.UID, s.Process.User.GID = 0, 0
}

func canary(t testing.TB) string {
	t.Helper()
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		t.Fatal(err)
	}
	return "canary" + hex.EncodeToString(b[:])
}

// fingerprint is the state of a host directory: names, modes, owners, sizes and contents.
func fingerprint(t testing.TB, dirs ...string) string {
	t.Helper()
	h := sha256.New()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				fmt.Fprintln(h, p, err)
				return nil
			}
			info, err := d.Info()
			if err != nil {
				return nil //nolint // gone again
			}
			fmt.Fprintln(h, p, info.Mode(), info.Sys() != nil, info.Size())
			if info.Mode().IsRegular() && info.Size() < 1<<20 {
				b, _ := os.ReadFile(p)
				h.Write(b)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// underRunsc makes the runtime gVisor.
func underRunsc(t testing.TB) func(*oci.Config) {
	t.Helper()
	p := os.Getenv("DAYBREAK_RUNSC")
	if p == "" {
		p, _ = filepath.Abs("../../../.tools/bin/runsc")
	}
	if _, err := os.Stat(p); err != nil {
		t.Skip("not exercised: no runsc on this machine: run make gvisor")
	}
	return func(c *oci.Config) { c.Engine, c.Runtime = oci.Runsc, p }
}

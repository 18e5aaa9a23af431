// Package sandboxtest owns the suite that every adapter of the sandbox seam must pass. It
// plays hostile code inside sandboxes and looks at the outcome from inside and from the host.
//
// Invariants: every bomb is bounded by itself as well as by the sandbox; a refusal counts
// only with the errno that our own layer gives; nothing leaves the machine.
package sandboxtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// Run runs the suite. newRuntime makes a runtime with a state directory of its own; the
// runtime is on this host, and may be that of an ordinary user.
func Run(t *testing.T, newRuntime func(t *testing.T) sandbox.Runtime) {
	s := &suite{probe: Probe(t), fresh: newRuntime}
	s.rt = newRuntime(t)
	s.ownKernel = s.rt.Capabilities(t.Context()).OwnKernel
	for _, c := range []struct {
		name string
		run  func(*suite, *testing.T)
	}{
		{"Identity_SBX03", (*suite).identity},
		{"SystemCalls_SBX05_SBX06_SBX07_SBX08_SBX09_SBX12", (*suite).systemCalls},
		{"SocketFamilies_SBX10", (*suite).socketFamilies},
		{"Network_NET01", (*suite).network},
		{"Forwards_NET01_NET03", (*suite).forwards},
		{"ForwardRefusals_GW09", (*suite).forwardRefusals},
		{"FileSystem_SBX02_SBX14", (*suite).fileSystem},
		{"HostIsInvisible_SBX01_SBX15", (*suite).hostIsInvisible},
		{"Descriptors_SBX13", (*suite).descriptors},
		{"Environment_SBX31", (*suite).environment},
		{"OperatorMounts", (*suite).operatorMounts},
		{"SearchIndex", (*suite).searchIndex},
		{"SpaceCaps_SBX19", (*suite).spaceCaps},
		{"KeptHomeCap_SBX19", (*suite).keptHomeCap},
		{"PidsCap_SBX17", (*suite).pidsCap},
		{"MemoryCap_SBX18", (*suite).memoryCap},
		{"WallLimit_OPS02", (*suite).wallLimit},
		{"DaemonDies_SBX20", (*suite).daemonDies},
		{"ForkBombDies_SBX17_SBX20", (*suite).forkBombDies},
		{"ExportChanges", (*suite).exportChanges},
		{"ExportHostileTree_EXP04_EXP06", (*suite).exportHostileTree},
		{"ExportLimits_EXP14", (*suite).exportLimits},
		{"ExportIgnored", (*suite).exportIgnored},
		{"ExportWhileSwapping_EXP03", (*suite).exportWhileSwapping},
		{"ExportEmptyTree", (*suite).exportEmptyTree},
		{"HomeLayers", (*suite).homeLayers},
		{"WorkLayers", (*suite).workLayers},
		{"WorkKeepCap_SBX19", (*suite).workKeepCap},
		{"SystemLayers", (*suite).systemLayers},
		{"Files", (*suite).files},
		{"FileRefusals", (*suite).fileRefusals},
		{"OwnFiles", (*suite).ownFiles},
		{"Recover", (*suite).recover},
		{"Lifecycle", (*suite).lifecycle},
		{"Refusals_GW09", (*suite).refusals},
		{"Concurrent", (*suite).concurrent},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(s, t) })
	}
}

type suite struct {
	rt    sandbox.Runtime
	fresh func(t *testing.T) sandbox.Runtime
	probe string

	ownKernel bool // see differences
}

// ProbePath in the environment names a built hostile program, for users without a compiler.
const ProbePath = "DAYBREAK_TEST_PROBE"

// Probe compiles the hostile program, statically so that it runs anywhere.
func Probe(t *testing.T) string {
	if p := os.Getenv(ProbePath); p != "" {
		return p
	}
	out := filepath.Join(t.TempDir(), "probe")
	cmd := exec.Command("go", "build", "-o", out, "github.com/daybreak-agent/daybreak/internal/sandbox/sandboxtest/testdata/probe")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build probe: %v\n%s", err, b)
	}
	return out
}

// tree makes a base tree with the given files and the probe.
func (s *suite) tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	b, err := os.ReadFile(s.probe)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "probe"), string(b), 0o755)
	for name, text := range files {
		write(t, filepath.Join(dir, name), text, 0o644)
	}
	return dir
}

func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// start starts a sandbox that is destroyed when the test ends.
func (s *suite) start(t *testing.T, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	return start(t, s.rt, spec)
}

func start(t *testing.T, rt sandbox.Runtime, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	if spec.Task == "" {
		spec.Task, spec.Purpose = "t_"+t.Name(), "exec"
	}
	b, err := rt.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Destroy(context.Background()); err != nil {
			t.Errorf("destroy: %v", err)
		}
	})
	return b
}

// sh runs a shell command to its end and returns what it printed and its exit code.
func sh(t *testing.T, b sandbox.Sandbox, command string) (string, int) {
	t.Helper()
	res, err := b.Guest().Exec(t.Context(), guest.ExecRequest{Shell: command, Head: 1 << 20, Tail: 1 << 20})
	if err != nil {
		t.Fatalf("exec %q: %v", command, err)
	}
	if res.Error != "" {
		t.Fatalf("exec %q: %s", command, res.Error)
	}
	return string(res.Head) + string(res.Tail), res.ExitCode
}

// ok runs a command that must succeed.
func ok(t *testing.T, b sandbox.Sandbox, command string) string {
	t.Helper()
	out, code := sh(t, b, command)
	if code != 0 {
		t.Fatalf("%q: exit code %d\n%s", command, code, out)
	}
	return out
}

// background starts a command and returns at once.
func background(t *testing.T, b sandbox.Sandbox, command string) {
	t.Helper()
	if _, err := b.Guest().Exec(t.Context(), guest.ExecRequest{Shell: command, Background: true}); err != nil {
		t.Fatalf("exec %q: %v", command, err)
	}
}

// pairs parses "name value" lines.
func pairs(out string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(out) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			m[k] = v
		}
	}
	return m
}

func token(t *testing.T) string {
	t.Helper()
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b[:])
}

// hostProcesses counts processes of the whole host that have word in their arguments.
func hostProcesses(t *testing.T, word string) int {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && strings.Contains(string(b), word) {
			n++
		}
	}
	return n
}

func export(t *testing.T, b sandbox.Sandbox) sandbox.Manifest {
	t.Helper()
	m, err := b.Export(t.Context(), sandbox.ExportLimits{})
	if err != nil {
		t.Fatalf("export: %v", err)
	}
	return m
}

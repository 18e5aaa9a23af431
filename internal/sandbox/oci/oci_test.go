package oci_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/sandbox/oci"
	"github.com/daybreak-agent/daybreak/internal/sandbox/sandboxtest"
)

// testGuest is built once for the package by TestMain.
var testGuest string

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == holderArg {
		if err := oci.Hold(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		return
	}
	if dir := os.Getenv(enterDir); dir != "" {
		os.Exit(enterAsUser(dir))
	}
	if dir := os.Getenv(workerDir); dir != "" {
		actWorker(dir)
		return
	}
	if testGuest = os.Getenv(guestPath); testGuest != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "daybreak-oci-test-")
	if err == nil {
		testGuest = filepath.Join(dir, "guest")
		cmd := exec.Command("go", "build", "-o", testGuest, "github.com/daybreak-agent/daybreak/cmd/daybreak-guest")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		err = cmd.Run()
	}
	if err != nil {
		os.Stderr.WriteString("build the guest: " + err.Error() + "\n")
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// runcPath finds the OCI runtime: the one that the project builds, or one in PATH.
func runcPath(t testing.TB) string {
	t.Helper()
	if p := os.Getenv("DAYBREAK_RUNC"); p != "" {
		return p
	}
	if p, err := filepath.Abs("../../../.tools/bin/runc"); err == nil {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	if p, err := exec.LookPath("runc"); err == nil {
		return p
	}
	lacking(t, "no runc: run make setup or set DAYBREAK_RUNC")
	return ""
}

func lacking(t testing.TB, msg string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(msg)
	}
	t.Skip(msg)
}

func config(t testing.TB, dir string) oci.Config {
	t.Helper()
	if os.Geteuid() != 0 && os.Getenv(guestPath) == "" {
		lacking(t, "these tests start sandboxes and need root")
	}
	return oci.Config{Dir: dir, Runtime: runcPath(t), Guest: testGuest, Owner: "test", Holder: testHolder()}
}

// newRuntime makes a runtime that must leave nothing behind.
func newRuntime(t testing.TB, change func(*oci.Config)) *oci.Runtime {
	t.Helper()
	cfg := config(t, t.TempDir())
	if change != nil {
		change(&cfg)
	}
	r, err := oci.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h, err := r.List(t.Context())
		if len(h) != 0 {
			t.Errorf("sandboxes are left: %v %v", h, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if os.Geteuid() != 0 {
			noHolder(t, cfg.Dir)
		}
		for _, h := range h {
			leftovers(t, h.ID)
		}
	})
	return r
}

func TestSuite(t *testing.T) {
	sandboxtest.Run(t, func(t *testing.T) sandbox.Runtime { return newRuntime(t, nil) })
}

// leftovers fails when a mount, a cgroup or a process of a sandbox is still there.
func leftovers(t testing.TB, id string) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), id) {
		t.Errorf("sandbox %s is still mounted", id)
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/daybreak*/" + id + "*")
	v2, _ := filepath.Glob("/sys/fs/cgroup/daybreak*/" + id + "*")
	if left := append(groups, v2...); len(left) != 0 {
		t.Errorf("cgroups are left: %v", left)
	}
	if dirs, _ := filepath.Glob("/run/daybreak/*/" + id); len(dirs) != 0 {
		t.Errorf("directories are left: %v", dirs)
	}
	if held, _ := exec.Command("grep", "-rl", id, "/run/daybreak/ids").Output(); len(held) != 0 {
		t.Errorf("user ids are still reserved: %s", held)
	}
}

// Package e2e holds whole flows of the product: the command line with a real sandbox, real git
// and the real model clients, which speak over HTTP to a scripted server. A flow is a text
// script below testdata/script; what needs a process killed at an exact place is Go.
//
// Invariants: every script has a data directory, a home and repositories of its own, and
// nothing outside them may change.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/daybreak-agent/daybreak/internal/cli"
)

// The programs of a sandbox, told by TestMain to the tests and to the commands they start.
const (
	guestEnv = "DAYBREAK_E2E_GUEST"
	runcEnv  = "DAYBREAK_E2E_RUNC"
	runscEnv = "DAYBREAK_E2E_RUNSC"
)

func TestMain(m *testing.M) {
	testscript.Main(prepared{m}, map[string]func(){"daybreak": daybreak})
}

// daybreak is the product's main.
func daybreak() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv)
	stop()
	os.Exit(code)
}

// prepared builds the guest once before the tests.
type prepared struct{ m *testing.M }

func (p prepared) Run() int {
	dir, err := os.MkdirTemp("", "daybreak-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	guest := filepath.Join(dir, "daybreak-guest")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", guest, "../cmd/daybreak-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the guest: %v\n%s", err, out)
		return 1
	}
	for k, v := range map[string]string{guestEnv: guest, runcEnv: findRuntime("runc"), runscEnv: findRuntime("runsc")} {
		if err := os.Setenv(k, v); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return p.m.Run()
}

func findRuntime(name string) string {
	if p, err := filepath.Abs("../.tools/bin/" + name); err == nil {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	p, _ := exec.LookPath(name)
	return p
}

// need ends or skips the test where a sandbox cannot be had.
func need(t *testing.T, programs ...string) {
	t.Helper()
	missing := func(what string) {
		if os.Getenv("CI") == "true" {
			t.Fatal(what)
		}
		t.Skip(what)
	}
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		missing("the sandbox needs root on Linux")
	}
	if os.Getenv(runcEnv) == "" {
		missing("runc was not found; run `make setup`")
	}
	for _, p := range append(programs, "git") {
		if _, err := exec.LookPath(p); err != nil {
			missing(p + " is not installed")
		}
	}
}

func TestScripts(t *testing.T) {
	need(t, "python3", "node")
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		Setup:               setup,
		Cmds:                commands(),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Condition: func(name string) (bool, error) {
			if have, known := languages(name); known {
				return have, nil
			}
			if name != "gvisor" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			if os.Getenv(runscEnv) == "" && os.Getenv("CI") == "true" {
				return false, errors.New("runsc was not found; run `make gvisor`")
			}
			return os.Getenv(runscEnv) != "", nil
		},
	})
}

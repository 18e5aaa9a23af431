package guest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/guest"
)

// firstEnv makes the test binary serve as process 1 of a namespace of its own, in the tree
// that the variable names.
const firstEnv = "DAYBREAK_TEST_FIRST"

// serveAsFirst is what that process does.
func serveAsFirst(root string) error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	return guest.Serve(context.Background(), os.Stdin, os.Stdout, guest.ServerOptions{Root: root, LogDir: root + "/logs"})
}

// startFirst starts a guest as process 1 and talks to it over its standard streams.
func startFirst(t testing.TB) *guest.Client {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), firstEnv+"="+t.TempDir())
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	// A pipe of our own: cmd.Wait would close one of its own before the last frame is read.
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = write
	if err := cmd.Start(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no process namespace: %v", err)
		}
		t.Skipf("no process namespace: %v", err)
	}
	write.Close()
	c, err := guest.NewClient(t.Context(), pipes{read, in})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the guest ended badly: %v", err)
		}
	})
	return c
}

func TestFirstProcessLeavesNobodyAlive(t *testing.T) {
	need(t, "setsid")
	c := startFirst(t)
	run := func(shell string) guest.ExecResult {
		t.Helper()
		r, err := c.Exec(t.Context(), guest.ExecRequest{Shell: shell})
		if err != nil || r.Error != "" {
			t.Fatalf("%+v, %v", r, err)
		}
		return r
	}
	const listing = `for p in /proc/[0-9]*; do read -r line < $p/stat 2>/dev/null && echo "$line"; done`
	quiet := strings.Count(string(run(listing).Head), "\n")

	// No session, no group, no ancestor and no variable ties this one to its command.
	r := run(`(env -i setsid sh -c 'sleep 60 & sleep 60' >/dev/null 2>&1 &); sleep 0.3`)
	if r.Children < 2 {
		t.Errorf("%d processes were killed", r.Children)
	}
	// A storm of forks, capped, that goes on while its processes are being killed.
	run(`(env -i setsid bash -c 'for ((i = 0; i < 3000; i++)); do sleep 60 & done' >/dev/null 2>&1 &); sleep 0.2`)

	after := run(listing)
	list := strings.TrimSpace(string(after.Head))
	if strings.Contains(list, "(sleep)") || strings.Contains(list, ") Z ") || strings.Count(list, "\n")+1 > quiet {
		t.Errorf("processes are left:\n%.2000s", list)
	}
}

func TestFirstProcessKeepsABackgroundCommand(t *testing.T) {
	c := startFirst(t)
	b, err := c.Exec(t.Context(), guest.ExecRequest{Shell: "exec sleep 60", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Exec(t.Context(), guest.ExecRequest{Shell: "sleep 60 & true"}); err != nil {
		t.Fatal(err)
	}
	if w, err := c.Wait(t.Context(), b.Proc, 0); err != nil || !w.Running {
		t.Errorf("a foreground command ended a background one: %+v, %v", w, err)
	}
}

// BenchmarkRunTrue is a whole call: over the wire, a shell, the search for what it left.
func BenchmarkRunTrue(b *testing.B) {
	c := startFirst(b)
	for b.Loop() {
		if r, err := c.Exec(b.Context(), guest.ExecRequest{Shell: "true"}); err != nil || r.ExitCode != 0 {
			b.Fatal(r, err)
		}
	}
}

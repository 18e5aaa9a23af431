package guest_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/guest"
)

// TestMain makes the test process adopt orphans as a guest does, so that daemons of a command
// end up where they do in a sandbox.
func TestMain(m *testing.M) {
	if root := os.Getenv(firstEnv); root != "" {
		if err := serveAsFirst(root); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// site is a guest at work in a temporary tree.
type site struct {
	*guest.Client
	dir  string
	logs string
	done chan error // receives what Serve returned
}

// start serves over in-process pipes.
func start(t testing.TB, tweak ...func(*guest.ServerOptions)) *site {
	t.Helper()
	opts := guest.ServerOptions{Root: t.TempDir(), LogDir: t.TempDir()}
	for _, f := range tweak {
		f(&opts)
	}
	here, there := net.Pipe()
	s := &site{dir: opts.Root, logs: opts.LogDir, done: make(chan error, 1)}
	go func() {
		err := guest.Serve(context.Background(), there, there, opts)
		there.Close()
		s.done <- err
	}()
	c, err := guest.NewClient(t.Context(), here)
	if err != nil {
		t.Fatal(err)
	}
	s.Client = c
	t.Cleanup(func() {
		c.Close()
		if err := <-s.done; err != nil {
			t.Errorf("the guest ended badly: %v", err)
		}
	})
	return s
}

// need ends the test when a program is missing: loudly where all of them must be there.
func need(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed", program)
		}
		t.Skipf("%s is not installed", program)
	}
}

func (s *site) put(t testing.TB, name, content string) {
	t.Helper()
	if err := os.WriteFile(s.dir+"/"+name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (s *site) get(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(s.dir + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// run executes a shell line to its end.
func (s *site) run(t testing.TB, r guest.ExecRequest) guest.ExecResult {
	t.Helper()
	res, err := s.Exec(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// pipes joins two one-way pipes, for a test that plays the guest by hand.
type pipes struct {
	io.ReadCloser
	io.WriteCloser
}

func (p pipes) Close() error {
	p.ReadCloser.Close()
	return p.WriteCloser.Close()
}

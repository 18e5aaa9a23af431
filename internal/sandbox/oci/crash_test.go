package oci_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/sandbox/oci"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// The test binary plays the worker that is killed. It starts one sandbox from the
// configuration it is given, prints the handle and waits.
const workerDir = "DAYBREAK_TEST_WORKER"

type workerOrder struct {
	Config  struct{ Dir, Runtime, Guest string }
	Holder  []string
	Tree    string
	Command string
}

func actWorker(order string) {
	var o workerOrder
	err := json.Unmarshal([]byte(order), &o)
	fail := func(err error) {
		fmt.Println("worker:", err)
		os.Exit(1)
	}
	if err != nil {
		fail(err)
	}
	r, err := oci.New(oci.Config{Dir: o.Config.Dir, Runtime: o.Config.Runtime, Guest: o.Config.Guest, Holder: o.Holder, Owner: "worker"})
	if err != nil {
		fail(err)
	}
	ctx := context.Background()
	b, err := r.Start(ctx, sandbox.Spec{Task: "t", Purpose: "agent", Tree: o.Tree})
	if err != nil {
		fail(err)
	}
	if _, err := b.Guest().Exec(ctx, guest.ExecRequest{Shell: o.Command}); err != nil {
		fail(err)
	}
	if _, err := b.Guest().Exec(ctx, guest.ExecRequest{Shell: "exec sleep 1000000", Background: true}); err != nil {
		fail(err)
	}
	fmt.Println(b.Handle().ID)
	_, _ = io.Copy(io.Discard, os.Stdin) // until killed
}

// killedWorker runs a worker and kills it once it has said a line, which is returned.
func killedWorker(t *testing.T, o workerOrder, said io.Reader) string {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), workerDir+"="+string(b))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if said == nil {
		said = out
	}
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil || strings.HasPrefix(line, "worker:") {
		t.Errorf("worker: %q %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	return strings.TrimSpace(line)
}

func order(cfg oci.Config, tree, command string) workerOrder {
	o := workerOrder{Tree: tree, Command: command, Holder: cfg.Holder}
	o.Config.Dir, o.Config.Runtime, o.Config.Guest = cfg.Dir, cfg.Runtime, cfg.Guest
	return o
}

func TestWorkerKilled(t *testing.T) {
	cfg := config(t, t.TempDir())
	r := newRuntime(t, func(c *oci.Config) { *c = cfg })
	tree := t.TempDir()
	if err := os.WriteFile(filepath.Join(tree, "a"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	id := killedWorker(t, order(cfg, tree, "echo -n new > a; echo -n 1 > b"), nil)
	h, err := r.List(t.Context())
	if err != nil || len(h) != 1 || h[0].ID != id || h[0].Owner != "worker" {
		t.Fatalf("list: %+v %v, want %s", h, err, id)
	}
	b, err := r.Recover(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.Export(t.Context(), sandbox.ExportLimits{})
	if err != nil {
		t.Fatal(err)
	}
	want := []sandbox.Entry{{Path: "a", Mode: 0o100644, Content: []byte("new")}, {Path: "b", Mode: 0o100644, Content: []byte("1")}}
	if diff := cmp.Diff(want, m.Entries); diff != "" {
		t.Errorf("change (-want +got):\n%s", diff)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	leftovers(t, id)
}

// A sandbox ends with its worker, without anybody's help.
func TestSandboxDiesWithWorker(t *testing.T) {
	cfg := config(t, t.TempDir())
	r := newRuntime(t, func(c *oci.Config) { *c = cfg })
	id := killedWorker(t, order(cfg, "", "true"), nil)
	oci.AwaitEmpty(t, r, id)
	dead, err := r.Collect(t.Context(), func(sandbox.Handle) bool { return false })
	if err != nil || len(dead) != 1 || dead[0].ID != id {
		t.Errorf("collected %v, %v", dead, err)
	}
	leftovers(t, id)
}

// A worker that dies between the mounts and the guest's greeting leaves a sandbox half made.
func TestHalfMadeIsCollected(t *testing.T) {
	cfg := config(t, t.TempDir())
	r := newRuntime(t, func(c *oci.Config) { *c = cfg })
	script := filepath.Join(t.TempDir(), "runc")
	fifo := filepath.Join(t.TempDir(), "fifo")
	text := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = features ]; then exec %s features; fi\necho here > %s\nread x < %s.go\n", cfg.Runtime, fifo, fifo)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfifo", fifo, fifo+".go").CombinedOutput(); err != nil {
		t.Fatalf("mkfifo: %v %s", err, out)
	}
	said, err := os.OpenFile(fifo, os.O_RDWR, 0) // read and write: opening does not wait
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	resume, err := os.OpenFile(fifo+".go", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer resume.Close()
	halfway := cfg
	halfway.Runtime = script
	killedWorker(t, order(halfway, t.TempDir(), "true"), said)
	_, _ = resume.WriteString("go\n") // the script ends too
	h, err := r.List(t.Context())
	if err != nil || len(h) != 1 {
		t.Fatalf("list: %v %v", h, err)
	}
	mounts, err := os.ReadFile("/proc/" + mounter(t, cfg.Dir) + "/mountinfo")
	if err != nil || !bytes.Contains(mounts, []byte(h[0].ID)) {
		t.Fatalf("the sandbox has no mounts, it was killed too early: %v", err)
	}
	if _, err := r.Collect(t.Context(), func(sandbox.Handle) bool { return true }); err != nil {
		t.Error(err)
	}
	dead, err := r.Collect(t.Context(), func(sandbox.Handle) bool { return false })
	if err != nil || len(dead) != 1 {
		t.Errorf("collected %v, %v", dead, err)
	}
	leftovers(t, h[0].ID)
}

// Whatever step fails, the refusal names its layer and nothing stays behind.
func TestFailedStartLeavesNothing(t *testing.T) {
	real := config(t, t.TempDir())
	broken := func(text string) string {
		p := filepath.Join(t.TempDir(), "runc")
		if err := os.WriteFile(p, []byte("#!/bin/sh\nif [ \"$1\" = features ]; then exec "+real.Runtime+" features; fi\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		name, layer, text string
		change            func(*oci.Config)
	}{
		{"runtime fails", "seccomp", "unable to init seccomp", func(c *oci.Config) {
			c.Runtime = broken("echo 'unable to init seccomp: bad filter' >&2; exit 1")
		}},
		{"runtime starts nothing", "guest", "", func(c *oci.Config) { c.Runtime = broken("exit 0") }},
		{"guest speaks nonsense", "guest", "", func(c *oci.Config) { c.Runtime = broken("head -c 1000 /dev/urandom") }},
		{"no runtime", "runtime", "", func(c *oci.Config) { c.Runtime = "/nonexistent/runc" }},
		{"runtime without features", "runtime", "", func(c *oci.Config) { c.Runtime = "/bin/false" }},
		{"no guest", "guest", "", func(c *oci.Config) { c.Guest = "/nonexistent/guest" }},
		{"no root file system", "root file system", "", func(c *oci.Config) { c.RootFS = "/nonexistent/usr" }},
		{"run directory is a file", "mount directory", "", func(c *oci.Config) { c.RunDir = c.Guest }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRuntime(t, c.change)
			_, err := r.Start(t.Context(), sandbox.Spec{Task: "t"})
			refused, ok := err.(*sandbox.RefusedError)
			if !ok || refused.Layer != c.layer || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want a refusal of layer %q", err, c.layer)
			}
		})
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || bytes.Contains(b, []byte(t.TempDir())) {
		t.Errorf("mounts are left: %v", err)
	}
}

// A record that was not on disk when the power went is of nothing: the task that had the sandbox
// goes on, and the next look removes it without asking whose it was.
func TestPowerCutLeavesAnEmptyRecord(t *testing.T) {
	dir := ""
	r := newRuntime(t, func(c *oci.Config) { dir = c.Dir })
	id := strings.Repeat("0a", 16)
	at := filepath.Join(dir, "sandboxes", id)
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "handle.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Recover(t.Context(), id); task.ClassOf(err) != task.NotFound {
		t.Errorf("recovered: %v", err)
	}
	gone, err := r.Collect(t.Context(), func(sandbox.Handle) bool { return true })
	if err != nil || len(gone) != 1 || gone[0].ID != id {
		t.Errorf("collected %v: %v", gone, err)
	}
	if _, err := os.Lstat(at); !os.IsNotExist(err) {
		t.Errorf("the record is left: %v", err)
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
)

// bigRepo is a bare repository whose only commit has many files.
func (w *world) bigRepo(ctx context.Context) (string, error) {
	dir := filepath.Join(w.dir, "big.git")
	if _, err := w.git(ctx, w.dir, nil, "init", "-q", "--bare", "-b", "main", dir); err != nil {
		return "", err
	}
	var in bytes.Buffer
	fmt.Fprintf(&in, "commit refs/heads/main\ncommitter Bench <bench@localhost> 1700000000 +0000\ndata 5\nfirst\n")
	for i := range w.files {
		text := fmt.Sprintf("package p%d\n\n// V%d is number %d of many.\nconst V%d = %d\n", i/100, i, i, i, i)
		fmt.Fprintf(&in, "M 100644 inline p%03d/f%05d.go\ndata %d\n%s\n", i/100, i, len(text), text)
	}
	_, err := w.git(ctx, dir, in.Bytes(), "fast-import", "--quiet")
	return dir, err
}

func measureSandbox(ctx context.Context, w *world, t *table) error {
	repo, err := w.bigRepo(ctx)
	if err != nil {
		return err
	}
	a, err := w.open(ctx, "")
	if err != nil {
		return err
	}
	defer func() { _ = a.Close() }()
	rt, err := a.Runtime()
	if err != nil {
		return err
	}
	snap, err := a.Snapshots.Prepare(ctx, snapshot.Source{Repo: repo})
	if err != nil {
		return err
	}
	spec := a.SandboxSpec("exec")
	spec.Task, spec.Tree = "bench", snap.Tree
	var ready, destroy, exec, worktree []time.Duration
	for i := range w.runs {
		box, err := rt.Start(ctx, spec)
		if err != nil {
			return err
		}
		ready = append(ready, box.Info().Ready)
		if i == 0 {
			if exec, err = timeExec(ctx, box, 60); err != nil {
				return err
			}
		}
		begin := time.Now()
		if err := box.Destroy(ctx); err != nil {
			return err
		}
		destroy = append(destroy, time.Since(begin))
	}
	for i := range 2 {
		begin := time.Now()
		if _, err := w.git(ctx, repo, nil, "worktree", "add", "--detach", filepath.Join(w.dir, "worktree"+strconv.Itoa(i)), "main"); err != nil {
			return err
		}
		worktree = append(worktree, time.Since(begin))
	}
	runc, err := w.plainRunc(ctx, w.runs)
	if err != nil {
		return err
	}
	t.durations(fmt.Sprintf("sandbox start on %d files, until its guest answers", snap.Files), ready, 120*time.Millisecond, 0,
		fmt.Sprintf("runc run true %s: %s; git worktree add %s: %s", millis(percentile(runc, 50)), times(percentile(ready, 50), percentile(runc, 50)),
			millis(percentile(worktree, 50)), times(percentile(ready, 50), percentile(worktree, 50))))
	t.durations("  its end", destroy, 0, 0, "")
	plain, err := w.plainTrue(ctx)
	if err != nil {
		return err
	}
	t.durations("  `true` through its guest", exec, 0, 0, fmt.Sprintf("bash -c true on the host %s: %s", millis(plain), times(percentile(exec, 50), plain)))
	return nil
}

func timeExec(ctx context.Context, box sandbox.Sandbox, n int) ([]time.Duration, error) {
	var d []time.Duration
	for range n {
		begin := time.Now()
		res, err := box.Guest().Exec(ctx, guest.ExecRequest{Shell: "true"})
		if err != nil || res.ExitCode != 0 {
			return nil, fmt.Errorf("true ended with %d: %w", res.ExitCode, err)
		}
		d = append(d, time.Since(begin))
	}
	return d, nil
}

// plainRunc times `runc run` of true in a bundle with the same namespaces and a read-only
// /usr, without any of our own layers.
func (w *world) plainRunc(ctx context.Context, n int) ([]time.Duration, error) {
	// Where the container's root user, who is nobody here, can reach it.
	dir, err := os.MkdirTemp("/run", "daybreak-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	root := filepath.Join(dir, "rootfs")
	for _, d := range []string{"usr", "proc", "dev"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return nil, err
		}
	}
	for _, l := range []string{"bin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+l, filepath.Join(root, l)); err != nil {
			return nil, err
		}
	}
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100_000, Size: 65_536}}
	spec := specs.Spec{
		Version: "1.0.2",
		Root:    &specs.Root{Path: root, Readonly: true},
		Process: &specs.Process{Args: []string{"/usr/bin/true"}, Cwd: "/", Env: []string{"PATH=/usr/bin"}, NoNewPrivileges: true},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755", "size=65536k"}},
			{Destination: "/usr", Type: "bind", Source: "/usr", Options: []string{"bind", "ro"}},
		},
		Linux: &specs.Linux{
			UIDMappings: ids, GIDMappings: ids, CgroupsPath: "/daybreak-bench/plain",
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.UserNamespace},
				{Type: specs.MountNamespace},
				{Type: specs.PIDNamespace},
				{Type: specs.NetworkNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.CgroupNamespace},
			},
		},
	}
	b, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o644); err != nil {
		return nil, err
	}
	var d []time.Duration
	for i := range n {
		begin := time.Now()
		cmd := exec.CommandContext(ctx, w.runc(), "--root", filepath.Join(dir, "state"), "run", "--bundle", dir, "plain"+strconv.Itoa(i))
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("plain runc: %w: %s", err, out)
		}
		d = append(d, time.Since(begin))
	}
	return d, nil
}

package oci_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/sandbox/oci"
)

// The tests of this file run within TestRootless.
func asUser(t *testing.T) {
	t.Helper()
	if os.Getenv(guestPath) == "" {
		t.Skip("run by TestRootless as an ordinary user")
	}
	if os.Geteuid() == 0 {
		t.Fatal("TestRootless runs as root")
	}
}

func startUser(t *testing.T, r *oci.Runtime, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	spec.Task = "t"
	b, err := r.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return b
}

func shell(t *testing.T, b sandbox.Sandbox, command string) string {
	t.Helper()
	res, err := b.Guest().Exec(t.Context(), guest.ExecRequest{Shell: command, Head: 1 << 16})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%s: %v, exit code %d\n%s", command, err, res.ExitCode, res.Head)
	}
	return string(res.Head)
}

// Whatever a sandbox does to the files it leaves behind, they are the user's to read and remove.
func TestUserOwnsAKeptHome(t *testing.T) {
	asUser(t)
	r := newRuntime(t, nil)
	keep := filepath.Join(t.TempDir(), "keep")
	b := startUser(t, r, sandbox.Spec{Home: sandbox.Layers{Keep: keep}})
	shell(t, b, "mkdir -p ~/a/b ~/c && echo 1 > ~/a/b/f && ln -s /etc/shadow ~/c/l && chmod 0 ~/a/b && chmod 0 ~/a ~/c ~")
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := 0
	err := filepath.WalkDir(keep, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		seen++
		if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != os.Geteuid() {
			t.Errorf("%s belongs to %d", p, st.Uid)
		}
		return nil
	})
	if err != nil || seen != 6 {
		t.Errorf("walked over %d files, %v", seen, err)
	}
	if err := os.RemoveAll(keep); err != nil {
		t.Error(err)
	}
}

// Nothing in a sandbox owns the mount points, though the user does outside.
func TestUserSandboxOwnsItsFilesAlone(t *testing.T) {
	asUser(t)
	r := newRuntime(t, nil)
	tools := t.TempDir()
	b := startUser(t, r, sandbox.Spec{Mounts: []sandbox.Mount{{Source: tools, Target: "/opt/a/b"}}})
	got := shell(t, b, "stat -c '%u %n' / /.daybreak /usr /home /run /opt /opt/a /tmp /proc/sys /dev /home/agent /workspace; echo; awk '{print $1, $2, $3}' /proc/self/gid_map")
	for line := range strings.Lines(got) {
		id, path, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || !strings.HasPrefix(path, "/") {
			continue
		}
		own := path == sandbox.HomeDir || path == sandbox.WorkDir
		if (id == "1000") != own {
			t.Errorf("%s belongs to %s", path, id)
		}
	}
	if !strings.Contains(got, "\n1000 0 1\n") {
		t.Errorf("group map: %s", got)
	}
}

// When the holder of the mounts dies the files are lost, and everything else goes on.
func TestUserHolderKilled(t *testing.T) {
	asUser(t)
	cfg := config(t, t.TempDir())
	r := newRuntime(t, func(c *oci.Config) { *c = cfg })
	b := startUser(t, r, sandbox.Spec{Purpose: "agent"})
	shell(t, b, "echo 1 > f")
	old := mounter(t, cfg.Dir)
	pid, err := strconv.Atoi(old)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	oci.AwaitNoHolder(t, r)
	if _, err := b.Export(t.Context(), sandbox.ExportLimits{}); err == nil || !strings.Contains(err.Error(), "are lost") {
		t.Errorf("export without a holder: %v", err)
	}
	next := startUser(t, r, sandbox.Spec{Purpose: "red"})
	if got := shell(t, next, "echo up"); got != "up\n" {
		t.Errorf("the next sandbox: %q", got)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	leftovers(t, b.Handle().ID)
	if now := mounter(t, cfg.Dir); now == old {
		t.Errorf("holder %s is alive", now)
	}
}

// Two workers of one installation share a holder; who leaves first takes nothing away.
func TestUserWorkersShareAHolder(t *testing.T) {
	asUser(t)
	cfg := config(t, t.TempDir())
	a := newRuntime(t, func(c *oci.Config) { *c = cfg })
	b, err := oci.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	one := startUser(t, a, sandbox.Spec{})
	two := startUser(t, b, sandbox.Spec{})
	if m := mounter(t, cfg.Dir); m == "" {
		t.Error("no holder")
	}
	if err := two.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if got := shell(t, one, "echo x > f && cat f"); got != "x\n" {
		t.Errorf("after the other left: %q", got)
	}
	if m, err := one.Export(t.Context(), sandbox.ExportLimits{}); err != nil || len(m.Entries) != 1 {
		t.Errorf("export: %v, %v", m, err)
	}
}

// A tree of somebody else cannot be shown as the sandbox's own.
func TestUserNeedsItsOwnTree(t *testing.T) {
	asUser(t)
	r := newRuntime(t, nil)
	_, err := r.Start(t.Context(), sandbox.Spec{Tree: "/usr/share"})
	if err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Errorf("a tree of root: %v", err)
	}
}

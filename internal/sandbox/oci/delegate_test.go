package oci

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// tree is a cgroup hierarchy in plain files, with as much of the kernel as the tests need.
type tree struct {
	t     *testing.T
	c     cgroups
	wrote []string // "path=text", in order
}

func newTree(t *testing.T, mode string) *tree {
	root := t.TempDir()
	k := &tree{t: t, c: cgroups{mode: mode, v1: map[string]string{}}}
	if mode == "v2" {
		k.c.unified, k.c.all = root, []string{root}
	} else {
		for _, controller := range []string{"memory", "pids", "cpu", "freezer", "devices", "cpuset"} {
			point := filepath.Join(root, controller)
			k.c.v1[controller] = point
			k.c.all = append(k.c.all, point)
			k.c.joined = append(k.c.joined, point)
		}
	}
	k.c.write = k.write
	return k
}

func (k *tree) file(path, text string) {
	k.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		k.t.Fatal(err)
	}
}

func (k *tree) read(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// write does what the kernel does on a write.
func (k *tree) write(name, text string) error {
	dir := filepath.Dir(name)
	k.wrote = append(k.wrote, strings.TrimPrefix(name, k.c.unified+"/")+"="+text)
	switch filepath.Base(name) {
	case "cgroup.procs": // a process is in one cgroup
		parent := filepath.Join(filepath.Dir(dir), "cgroup.procs")
		left := slices.DeleteFunc(strings.Fields(k.read(parent)), func(p string) bool { return p == text })
		k.file(parent, strings.Join(left, "\n"))
		k.file(name, k.read(name)+text+"\n")
	case "cgroup.subtree_control":
		if k.read(filepath.Join(dir, "cgroup.procs")) != "" {
			return unix.EBUSY
		}
		k.file(name, strings.ReplaceAll(text, "+", ""))
	case "cgroup.freeze":
		k.file(filepath.Join(dir, "cgroup.events"), "populated 1\nfrozen "+text+"\n")
	case "cgroup.kill":
		if !strings.Contains(k.read(filepath.Join(dir, "cgroup.events")), "frozen 0") {
			return nil // a stricter kernel than there is
		}
		k.file(filepath.Join(dir, "cgroup.procs"), "")
	case "freezer.state":
		k.file(name, text+"\n")
	}
	return nil
}

const noProcess = "2147483647" // above any pid_max

func TestFreezeAndKillOnV2(t *testing.T) {
	k := newTree(t, "v2")
	g := group{k.c, "/daybreak/a"}
	d := filepath.Join(k.c.unified, "daybreak/a")
	if err := g.kill(t.Context()); err != nil {
		t.Errorf("kill of nothing: %v", err)
	}
	k.file(filepath.Join(d, "cgroup.procs"), noProcess+"\n")
	k.file(filepath.Join(d, "cgroup.events"), "populated 1\nfrozen 0\n")
	if got := g.pids(); len(got) != 1 {
		t.Errorf("processes: %v", got)
	}
	if err := g.freeze(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if got := k.read(filepath.Join(d, "cgroup.events")); !strings.Contains(got, "frozen 1") {
		t.Errorf("not frozen: %q", got)
	}
	if err := g.kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"daybreak/a/cgroup.freeze=1", "daybreak/a/cgroup.freeze=0", "daybreak/a/cgroup.kill=1"}
	if !slices.Equal(k.wrote, want) || len(g.pids()) != 0 {
		t.Errorf("wrote %v, want %v; left %v", k.wrote, want, g.pids())
	}
	// What does not die is an error, not a wait without end.
	k.c.write = func(name, text string) error {
		if filepath.Base(name) == "cgroup.kill" {
			return nil
		}
		return k.write(name, text)
	}
	k.file(filepath.Join(d, "cgroup.procs"), noProcess+"\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (group{k.c, "/daybreak/a"}).kill(ctx); err == nil {
		t.Error("a process that stays counts as killed")
	}
}

func TestRemoveWaitsForTheKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a mount makes the directory busy")
	}
	k := newTree(t, "v2")
	d := filepath.Join(k.c.unified, "daybreak/a")
	if err := os.MkdirAll(d, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("busy", d, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	g := group{k.c, "/daybreak/a"}
	done := make(chan error, 1)
	go func() { done <- g.remove(t.Context()) }()
	select {
	case err := <-done:
		t.Errorf("remove did not wait: %v", err)
	default:
	}
	if err := unix.Unmount(d, 0); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || len(g.dirs()) != 0 {
		t.Errorf("remove: %v, left %v", err, g.dirs())
	}
	if err := g.remove(t.Context()); err != nil {
		t.Errorf("second time: %v", err)
	}
}

func TestDelegatedOnV2(t *testing.T) {
	const scope = "/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope"
	k := newTree(t, "v2")
	k.file(filepath.Join(k.c.unified, scope, "cgroup.controllers"), "cpu memory pids\n")
	k.file(filepath.Join(k.c.unified, scope, "without", "cgroup.controllers"), "memory pids\n")
	mine := func(p string) bool { return strings.HasPrefix(p, k.c.unified+scope) }
	for _, c := range []struct{ name, self, want, fails string }{
		{"a scope", "0::" + scope + "\n", scope, ""},
		{"the leaf of an earlier worker", "0::" + scope + "/" + workerLeaf + "\n", scope, ""},
		{"a login session", "0::/user.slice/user-1000.slice/session-3.scope\n", "", "session-3.scope is not delegated to you"},
		{"a controller is kept back", "0::" + scope + "/without\n", "", "without cpu"},
		{"the root", "0::/\n", "", "not delegated"},
		{"no v2", "4:memory:/x\n", "", "in no cgroup"},
	} {
		got, err := k.c.delegated(c.self, 1000, mine)
		if got != c.want || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
	if len(k.wrote) != 0 {
		t.Errorf("a look wrote %v", k.wrote)
	}
}

func TestDelegatedOnV1(t *testing.T) {
	k := newTree(t, "hybrid")
	mine := map[string]bool{}
	writable := func(p string) bool { return mine[p] }
	give := func(path string, controllers ...string) {
		for _, c := range controllers {
			d := filepath.Join(k.c.v1[c], path)
			mine[d], mine[filepath.Join(d, "cgroup.procs")] = true, true
		}
	}
	all := []string{"memory", "pids", "cpu", "freezer", "devices", "cpuset"}
	give("/daybreak-1000", all[:5]...)
	if got, err := k.c.delegated("4:memory:/\n", 1000, writable); err == nil || !strings.HasSuffix(err.Error(), "in cpuset") {
		t.Errorf("one is missing: %q, %v", got, err)
	}
	give("/daybreak-1000", "cpuset")
	if got, err := k.c.delegated("4:memory:/\n", 1000, writable); err != nil || got != "/daybreak-1000" {
		t.Errorf("made by root: %q, %v", got, err)
	}
	if got, err := k.c.delegated("4:memory:/\n", 1001, writable); err == nil {
		t.Errorf("another user's: %q", got)
	}
	give("/job/7", all...)
	self := "4:memory:/job/7\n3:pids:/job/7\n2:cpu,cpuacct:/job/7\n"
	if got, err := k.c.delegated(self, 1001, writable); err != nil || got != "/job/7" {
		t.Errorf("the worker's own: %q, %v", got, err)
	}
	if got, err := k.c.delegated("4:memory:/job/7\n3:pids:/\n2:cpu:/job/7\n", 1001, writable); err == nil {
		t.Errorf("different ones: %q", got)
	}
}

func TestClaimOnV2(t *testing.T) {
	k := newTree(t, "v2")
	d := filepath.Join(k.c.unified, "scope")
	k.file(filepath.Join(d, "cgroup.procs"), "11\n12\n")
	k.file(filepath.Join(d, "cgroup.subtree_control"), "")
	if err := k.c.claim("/scope"); err != nil {
		t.Fatal(err)
	}
	want := []string{"scope/daybreak-worker/cgroup.procs=11", "scope/daybreak-worker/cgroup.procs=12", "scope/cgroup.subtree_control=+memory +pids +cpu"}
	if !slices.Equal(k.wrote, want) {
		t.Errorf("wrote %v, want %v", k.wrote, want)
	}
	if err := k.c.claim("/scope"); err != nil || len(k.wrote) != len(want) {
		t.Errorf("second time: %v, wrote %v", err, k.wrote[len(want):])
	}
	// A process that cannot be moved is named, one that has ended meanwhile is not missed.
	for _, c := range []struct {
		errno error
		fails bool
	}{{unix.EACCES, true}, {unix.ESRCH, false}} {
		k.file(filepath.Join(d, "cgroup.procs"), "13\n")
		k.file(filepath.Join(d, "cgroup.subtree_control"), "")
		k.c.write = func(name, text string) error {
			if text == "13" {
				k.file(filepath.Join(d, "cgroup.procs"), "")
				return c.errno
			}
			return k.write(name, text)
		}
		if err := k.c.claim("/scope"); (err != nil) != c.fails {
			t.Errorf("%v: %v", c.errno, err)
		}
	}
	v1 := newTree(t, "hybrid")
	if err := v1.c.claim("/daybreak-1"); err != nil || len(v1.wrote) != 0 {
		t.Errorf("v1: %v, %v", err, v1.wrote)
	}
}

func TestLimitsHold(t *testing.T) {
	want := ociResources(container{limits: sandbox.Limits{Memory: 1 << 20, Pids: 64, CPU: 1.5}, swap: true})
	good := map[string]map[string]string{
		"v2":     {"cgroup.procs": "7\n", "memory.max": "1048576\n", "memory.swap.max": "0\n", "pids.max": "64\n", "cpu.max": "150000 100000\n"},
		"hybrid": {"cgroup.procs": "7\n", "memory.limit_in_bytes": "1048576\n", "pids.max": "64\n", "cpu.cfs_quota_us": "150000\n"},
	}
	for mode, files := range good {
		k := newTree(t, mode)
		put := func(name, text string) {
			for _, point := range k.c.all {
				k.file(filepath.Join(point, "x", name), text)
			}
		}
		for name, text := range files {
			put(name, text)
		}
		g := group{k.c, "/x"}
		if err := g.holds(want); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		for name, text := range files {
			for _, bad := range []string{"max\n", "-1\n", "9223372036854771712\n", ""} {
				if name == "cgroup.procs" && bad != "" || name == "memory.swap.max" && bad == "" {
					continue
				}
				put(name, bad)
				if err := g.holds(want); err == nil {
					t.Errorf("%s: %s may be %q", mode, name, bad)
				}
			}
			put(name, text)
		}
	}
	// A kernel without swap has no such file.
	k := newTree(t, "v2")
	for name, text := range good["v2"] {
		if name != "memory.swap.max" {
			k.file(filepath.Join(k.c.unified, "x", name), text)
		}
	}
	if err := (group{k.c, "/x"}).holds(want); err != nil {
		t.Errorf("without swap: %v", err)
	}
}

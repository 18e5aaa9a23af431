package oci

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// workerLeaf is the cgroup below a delegated one that the worker moves to on v2, where a
// cgroup with processes in it cannot limit others below it.
const workerLeaf = "daybreak-worker"

var limiting = []string{"memory", "pids", "cpu"}

// ownGroup is where root puts a user's cgroup on v1.
func ownGroup(uid int) string { return "/daybreak-" + strconv.Itoa(uid) }

// delegateFix says how a user gets a cgroup.
func delegateFix(mode string, uid int) string {
	if mode == "v2" {
		return "start it as `systemd-run --user --scope -p Delegate=yes -- daybreak …`, once after `loginctl enable-linger`"
	}
	return fmt.Sprintf("as root: for c in /sys/fs/cgroup/*/; do mkdir -p ${c}%[1]s; chown -R %[2]d ${c}%[1]s; done", strings.TrimPrefix(ownGroup(uid), "/"), uid)
}

// delegated finds the cgroup below which this user may make cgroups with limits. self is
// /proc/self/cgroup. It changes nothing.
func (c cgroups) delegated(self string, uid int, writable func(string) bool) (string, error) {
	if c.mode == "v2" {
		return c.delegatedV2(ownPath(self, ""), writable)
	}
	candidates := []string{ownGroup(uid)}
	if own := ownPath(self, "memory"); own != "/" && own == ownPath(self, "pids") && own == ownPath(self, "cpu") {
		candidates = append(candidates, own)
	}
	var lacking []string
	for _, path := range candidates {
		var not []string
		for _, point := range c.joined {
			if d := filepath.Join(point, path); !writable(d) || !writable(filepath.Join(d, "cgroup.procs")) {
				not = append(not, filepath.Base(point))
			}
		}
		if len(not) == 0 && len(c.joined) > 0 {
			return path, nil
		}
		if lacking == nil {
			lacking = not
		}
	}
	return "", fmt.Errorf("no cgroup %s that you own in %s", ownGroup(uid), strings.Join(lacking, ", "))
}

func (c cgroups) delegatedV2(own string, writable func(string) bool) (string, error) {
	if filepath.Base(own) == workerLeaf {
		own = filepath.Dir(own)
	}
	if own == "" {
		return "", errors.New("this process is in no cgroup")
	}
	d := filepath.Join(c.unified, own)
	for _, name := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
		if !writable(filepath.Join(d, name)) {
			return "", fmt.Errorf("cgroup %s is not delegated to you", own)
		}
	}
	have, err := os.ReadFile(filepath.Join(d, "cgroup.controllers"))
	if err != nil {
		return "", err
	}
	if miss := without(limiting, strings.Fields(string(have))); len(miss) > 0 {
		return "", fmt.Errorf("cgroup %s is delegated to you without %s: give user@.service a drop-in with Delegate=cpu memory pids", own, strings.Join(miss, ", "))
	}
	return own, nil
}

// claim makes a delegated cgroup ready for sandboxes below it: on v2 its processes move to a
// leaf, and the controllers are handed down.
func (c cgroups) claim(path string) error {
	if c.mode != "v2" {
		return nil
	}
	d := filepath.Join(c.unified, path)
	control := filepath.Join(d, "cgroup.subtree_control")
	have, err := os.ReadFile(control)
	if err != nil {
		return err
	}
	if len(without(limiting, strings.Fields(string(have)))) == 0 {
		return nil
	}
	leaf := filepath.Join(d, workerLeaf)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for range 16 { // processes may fork meanwhile
		b, err := os.ReadFile(filepath.Join(d, "cgroup.procs"))
		if err != nil {
			return err
		}
		pids := strings.Fields(string(b))
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			err := c.put(filepath.Join(leaf, "cgroup.procs"), pid)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("move process %s to %s: %w", pid, leaf, err)
			}
		}
	}
	if err := c.put(control, "+"+strings.Join(limiting, " +")); err != nil {
		return fmt.Errorf("hand controllers down from %s: %w", path, err)
	}
	return nil
}

// ownPath reads the path of a v1 controller, or of v2 for "", from /proc/self/cgroup.
func ownPath(self, controller string) string {
	for line := range strings.Lines(self) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) == 3 && (controller == "" && f[0] == "0" || controller != "" && slices.Contains(strings.Split(f[1], ","), controller)) {
			return f[2]
		}
	}
	return ""
}

func without(all, have []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(have, s) })
}

// holds checks that the group has the limits that were asked for, and processes in it.
func (g group) holds(want *specs.LinuxResources) error {
	file := func(controller, v1, v2 string) (string, error) {
		if g.c.mode == "v2" {
			b, err := os.ReadFile(filepath.Join(g.c.unified, g.path, v2))
			return strings.TrimSpace(string(b)), err
		}
		b, err := os.ReadFile(filepath.Join(g.c.v1[controller], g.path, v1))
		return strings.TrimSpace(string(b)), err
	}
	for _, controller := range limiting {
		if procs, err := file(controller, "cgroup.procs", "cgroup.procs"); err != nil || procs == "" {
			return fmt.Errorf("the sandbox is not in %s of %s: %w", g.path, controller, err)
		}
	}
	atMost := func(name, got string, err error, want *int64) error {
		if err != nil || want == nil {
			return err
		}
		if n, err := strconv.ParseInt(got, 10, 64); err != nil || n <= 0 || n > *want {
			return fmt.Errorf("%s is %q instead of %d", name, got, *want)
		}
		return nil
	}
	var wantMemory, wantSwap, wantPids, wantCPU *int64
	if want.Memory != nil {
		wantMemory, wantSwap = want.Memory.Limit, want.Memory.Swap
	}
	if want.Pids != nil {
		wantPids = want.Pids.Limit
	}
	if want.CPU != nil {
		wantCPU = want.CPU.Quota
	}
	memory, err1 := file("memory", "memory.limit_in_bytes", "memory.max")
	pids, err2 := file("pids", "pids.max", "pids.max")
	cpu, err3 := file("cpu", "cpu.cfs_quota_us", "cpu.max")
	cpu, _, _ = strings.Cut(cpu, " ")
	err := errors.Join(
		atMost("the memory limit", memory, err1, wantMemory),
		atMost("the process limit", pids, err2, wantPids),
		atMost("the CPU limit", cpu, err3, wantCPU),
	)
	if g.c.mode == "v2" && wantSwap != nil {
		swap, err4 := file("", "", "memory.swap.max")
		if err4 == nil && swap != "0" {
			err = errors.Join(err, fmt.Errorf("the swap limit is %q instead of 0", swap))
		}
	}
	return err
}

package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroups is where this host's hierarchies are mounted.
type cgroups struct {
	mode    string            // "v1", "hybrid", "v2", "none"
	v1      map[string]string // controller → mount point
	all     []string          // mount points of every hierarchy
	joined  []string          // mount points of the v1 hierarchies that the OCI runtime puts containers in
	unified string            // mount point of v2; in hybrid mode without the controllers we need

	write func(name, text string) error // tests only: the kernel's side of a write; nil: [os.WriteFile]
}

// joinedV1 are the controllers in which runc makes a cgroup for every container, whether it
// has limits there or not.
var joinedV1 = []string{
	"cpuset", "devices", "memory", "cpu", "cpuacct", "pids", "blkio", "hugetlb", "net_cls", "net_prio", "perf_event", "freezer", "rdma",
}

// readCgroups parses a mountinfo file.
func readCgroups(mountinfo []byte) cgroups {
	c := cgroups{mode: "none", v1: map[string]string{}}
	for line := range strings.Lines(string(mountinfo)) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 {
			continue
		}
		point := unescapeMount(l[4])
		if r[0] == "cgroup" || r[0] == "cgroup2" {
			c.all = append(c.all, point)
		}
		switch r[0] {
		case "cgroup2":
			if c.unified == "" {
				c.unified = point
			}
		case "cgroup":
			for opt := range strings.SplitSeq(r[2], ",") {
				if slices.Contains(joinedV1, opt) && !slices.Contains(c.joined, point) {
					c.joined = append(c.joined, point)
				}
				if slices.Contains([]string{"memory", "pids", "cpu", "freezer", "devices"}, opt) && c.v1[opt] == "" {
					c.v1[opt] = point
				}
			}
		}
	}
	switch {
	case len(c.v1) > 0 && c.unified != "":
		c.mode = "hybrid"
	case len(c.v1) > 0:
		c.mode = "v1"
	case c.unified != "":
		c.mode = "v2"
	}
	return c
}

// put writes a control file.
func (c cgroups) put(name, text string) error {
	if c.write != nil {
		return c.write(name, text)
	}
	return os.WriteFile(name, []byte(text), 0)
}

// missing names the controllers that limits need and the host lacks.
func (c cgroups) missing() []string {
	var out []string
	need := slices.Clone(limiting)
	switch c.mode {
	case "v2":
		have, _ := os.ReadFile(filepath.Join(c.unified, "cgroup.controllers"))
		for _, n := range need {
			if !slices.Contains(strings.Fields(string(have)), n) {
				out = append(out, n)
			}
		}
	default:
		for _, n := range append(need, "freezer", "devices") {
			if c.v1[n] == "" {
				out = append(out, n)
			}
		}
	}
	return out
}

// swapAccounting reports whether a swap limit can be set.
func (c cgroups) swapAccounting() bool {
	if c.mode == "v2" {
		return true // set to the memory limit; a kernel without swap ignores it
	}
	_, err := os.Stat(filepath.Join(c.v1["memory"], "memory.memsw.limit_in_bytes"))
	return err == nil
}

// group is one cgroup path in every hierarchy.
type group struct {
	c    cgroups
	path string // "/daybreak/<id>"
}

// dirs lists the existing directories of the group, once each.
func (g group) dirs() []string {
	var out []string
	for _, point := range g.c.all {
		d := filepath.Join(point, g.path)
		if _, err := os.Stat(d); err == nil && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// pids lists live processes of the group.
func (g group) pids() []int {
	var out []int
	for _, d := range g.dirs() {
		b, err := os.ReadFile(filepath.Join(d, "cgroup.procs"))
		if err != nil {
			continue
		}
		for f := range bytes.FieldsSeq(b) {
			if n, err := strconv.Atoi(string(f)); err == nil && n > 0 && !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return out
}

// freeze stops every process of the group, or lets it run again, and waits until it has.
func (g group) freeze(ctx context.Context, frozen bool) error {
	if g.c.mode == "v2" {
		d := filepath.Join(g.c.unified, g.path)
		val, want := "0", "frozen 0"
		if frozen {
			val, want = "1", "frozen 1"
		}
		if err := g.c.put(filepath.Join(d, "cgroup.freeze"), val); err != nil {
			return err
		}
		return poll(ctx, func() (bool, error) {
			b, err := os.ReadFile(filepath.Join(d, "cgroup.events"))
			return strings.Contains(string(b), want), err
		})
	}
	name := filepath.Join(g.c.v1["freezer"], g.path, "freezer.state")
	want := "THAWED"
	if frozen {
		want = "FROZEN"
	}
	return poll(ctx, func() (bool, error) {
		// Written again each time: v1 may stick in FREEZING while a task is forking.
		if err := g.c.put(name, want); err != nil {
			return false, err
		}
		b, err := os.ReadFile(name)
		return strings.TrimSpace(string(b)) == want, err
	})
}

// kill ends every process of the group and waits until none is left. The first process is
// the init of its pid namespace: with it the kernel ends all others, whatever they do.
func (g group) kill(ctx context.Context) error {
	if len(g.dirs()) == 0 {
		return nil
	}
	_ = g.freeze(ctx, false) // a frozen v1 process does not die
	return poll(ctx, func() (bool, error) {
		pids := g.pids()
		if len(pids) == 0 {
			return true, nil
		}
		for _, d := range g.dirs() {
			_ = g.c.put(filepath.Join(d, "cgroup.kill"), "1") // v2 only
		}
		for _, pid := range pids {
			g.killOne(pid)
		}
		return false, nil
	})
}

// killOne kills pid if it still belongs to the group: the number may be somebody else's by now.
func (g group) killOne(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil || !strings.Contains(string(b), ":"+g.path) {
		return
	}
	_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}

// remove deletes the group's empty directories.
func (g group) remove(ctx context.Context) error {
	return poll(ctx, func() (bool, error) {
		var last error
		for _, d := range g.dirs() {
			if err := unix.Rmdir(d); err != nil && !errors.Is(err, unix.ENOENT) {
				if !errors.Is(err, unix.EBUSY) {
					return false, fmt.Errorf("remove %s: %w", d, err)
				}
				last = err
			}
		}
		return last == nil, nil
	})
}

// poll calls done until it says so, fails, or ctx ends. The kernel offers no event for what
// is awaited here on v1.
func poll(ctx context.Context, done func() (bool, error)) error {
	for wait := 200 * time.Microsecond; ; wait = min(wait*2, 20*time.Millisecond) {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
	}
}

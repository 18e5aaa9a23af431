package oci_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/sandbox/oci"
)

// The bombs of this file have a cap of their own, and each sandbox a cgroup of its own.

func TestForkBomb_SBX17(t *testing.T) {
	tree := armed(t, nil)
	threeRuns(t, attempt{
		command: "./probe forks 150", spec: sandbox.Spec{Tree: tree, Limits: sandbox.Limits{Pids: 90, Memory: 2 << 30}},
		broke: func(out string) bool { return strings.Contains(out, "children 149") },
		off:   func(s *specs.Spec) { noLimits(s); noTaskRlimit(s) },
	})
	// Another task goes on beside it, and the bombed sandbox goes at a word.
	r := target(t)
	other := begin(t, r, sandbox.Spec{Task: "honest"})
	b := begin(t, r, sandbox.Spec{Task: "hostile", Tree: tree, Limits: sandbox.Limits{Pids: 300, Memory: 2 << 30}})
	if _, err := b.Guest().Exec(t.Context(), guest.ExecRequest{Shell: "exec ./probe forks 5000", Background: true}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if out := does(t, other, "echo beat"); out != "beat\n" {
			t.Errorf("the other task: %q", out)
		}
	}
	end(t, b)
	if out := does(t, other, "echo beat"); out != "beat\n" {
		t.Errorf("the other task, afterwards: %q", out)
	}
}

func noLimits(s *specs.Spec) {
	s.Linux.Resources.Pids, s.Linux.Resources.Memory, s.Linux.Resources.CPU = nil, nil, nil
}

func noTaskRlimit(s *specs.Spec) {
	var kept []specs.POSIXRlimit
	for _, l := range s.Process.Rlimits {
		if l.Type != "RLIMIT_NPROC" {
			kept = append(kept, l)
		}
	}
	s.Process.Rlimits = kept
}

func TestMemoryBombs_SBX18(t *testing.T) {
	tree := armed(t, nil)
	for name, c := range map[string]struct{ command, whole string }{
		"heap":   {"./probe memory 400", "allocated 400"},
		"memfd":  {"./attacker fill - memfd", "filled 256"},
		"tmpfs":  {"./attacker fill /tmp bytes", "filled 256"},
		"shared": {"for i in 1 2 3 4 5 6; do ./attacker fill - memfd & done; wait", strings.Repeat("filled 256", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			limits := sandbox.Limits{Memory: 128 << 20, TempBytes: 1 << 30}
			if name == "shared" {
				limits.Memory = 200 << 20
			}
			threeRuns(t, attempt{
				command: c.command, spec: sandbox.Spec{Tree: tree, Limits: limits},
				broke: func(out string) bool { return strings.Contains(out, c.whole) }, off: noLimits,
			})
		})
	}
	b := begin(t, target(t), sandbox.Spec{Tree: tree, Limits: sandbox.Limits{Memory: 128 << 20}})
	if out := does(t, b, "./attacker fill - mlock"); said(out, "end") == "ok" {
		t.Errorf("256 MiB were locked: %s", out)
	}
}

func TestFullDisks_SBX19(t *testing.T) {
	tree := armed(t, nil)
	small := sandbox.Limits{WorkBytes: 16 << 20, HomeBytes: 16 << 20, TempBytes: 16 << 20, Memory: 1 << 30}
	large := sandbox.Limits{WorkBytes: 1 << 30, HomeBytes: 1 << 30, TempBytes: 1 << 30, Memory: 2 << 30}
	var places []string
	for _, dir := range []string{sandbox.WorkDir, sandbox.HomeDir, sandbox.TempDir} {
		places = append(places, "/workspace/attacker fill "+dir+" bytes; rm -f "+dir+"/fill")
	}
	t.Run("bytes", func(t *testing.T) {
		threeRuns(t, attempt{
			command: strings.Join(places, "; "), spec: sandbox.Spec{Tree: tree, Limits: small},
			control: &sandbox.Spec{Tree: tree, Limits: large},
			broke:   func(out string) bool { return strings.Contains(out, "filled 256") },
			refused: func(out string) bool { return strings.Count(out, "end ENOSPC") == 3 },
		})
	})
	t.Run("inodes", func(t *testing.T) {
		if gvisor() {
			t.Skip("not exercised: gVisor's /tmp has no cap on files: what they take is its own memory, whose cap SBX-18 attacks")
		}
		threeRuns(t, attempt{
			command: "/workspace/attacker fill /tmp inodes; find /tmp -delete 2>/dev/null", spec: sandbox.Spec{Tree: tree, Limits: small},
			control: &sandbox.Spec{Tree: tree, Limits: large},
			broke: func(out string) bool {
				n, _ := strconv.Atoi(said(out, "filled"))
				return n > 17_000
			},
			refused: says("end", "ENOSPC"),
		})
	})
	next := begin(t, target(t), sandbox.Spec{Limits: small})
	if out := does(t, next, "echo x > f && cat f"); out != "x\n" {
		t.Errorf("the next task: %s", out)
	}
}

// What is left behind ends with the task: before the export begins there is no process.
func TestDaemons_SBX20(t *testing.T) {
	r := target(t)
	b := begin(t, r, sandbox.Spec{Tree: armed(t, nil)})
	word := canary(t)
	does(t, b, "mkfifo /tmp/ready")
	if _, err := b.Guest().Exec(t.Context(), guest.ExecRequest{Shell: "trap '' TERM HUP; (setsid nohup ./probe daemon " + word + " /tmp/ready >/dev/null 2>&1 &); exec ./probe stay", Background: true}); err != nil {
		t.Fatal(err)
	}
	does(t, b, "cat /tmp/ready")
	if gvisor() {
		if out := does(t, b, "cat /proc/*/cmdline"); !strings.Contains(out, word) {
			t.Fatalf("no daemon is there: %q", out)
		}
	} else if n := processesWith(t, word); n == 0 {
		t.Fatal("no daemon is there")
	}
	end(t, b)
	if n := processesWith(t, word); n != 0 {
		t.Errorf("%d processes live on", n)
	}
	leftovers(t, b.Handle().ID)
}

func processesWith(t *testing.T, word string) (n int) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && strings.Contains(string(b), word) {
			n++
		}
	}
	return n
}

// The share of a processor is a share of the work that gets done: with a tenth of one, much
// less than without the layer in the same test.
func TestProcessorHogs_SBX21(t *testing.T) {
	tree := armed(t, nil)
	try := func(off func(*specs.Spec)) (did int, out string) {
		r := target(t)
		if off != nil {
			oci.Alter(r, off)
		}
		b := begin(t, r, sandbox.Spec{Tree: tree, Limits: sandbox.Limits{CPU: 0.05}})
		defer end(t, b)
		out = does(t, b, "./attacker burn 1500 2; ./attacker schedule")
		did, _ = strconv.Atoi(said(out, "did"))
		return did, out
	}
	control, _ := try(noLimits)
	real, out := try(nil)
	// gVisor schedules its tasks itself, and what they ask of it reaches nobody else.
	if !gvisor() && (said(out, "fifo") != "EPERM" || said(out, "nice") != "EACCES" && said(out, "nice") != "EPERM") {
		t.Errorf("it rises above others: %s", out)
	}
	if again, _ := try(noLimits); control <= 2*real || again <= 2*real {
		if real == 0 {
			t.Fatalf("nothing was done: %s", out)
		}
		t.Skipf("not exercised: this machine is too busy to give more without the layer: %d, %d and %d", control, real, again)
	}
}

// Its time is up while it ignores every signal: it is gone, and what it did is not exported by
// itself.
func TestWallTime_OPS02(t *testing.T) {
	r := target(t)
	b := begin(t, r, sandbox.Spec{Tree: armed(t, nil), Limits: sandbox.Limits{Wall: 1500 * time.Millisecond}})
	word := canary(t)
	_, err := b.Guest().Exec(t.Context(), guest.ExecRequest{Shell: "trap '' TERM INT HUP QUIT; ./probe daemon " + word + " /dev/null & ./probe stay"})
	if err == nil {
		t.Error("the command came to an end")
	}
	select {
	case <-b.Guest().Done():
	case <-time.After(10 * time.Second): // a guard against hanging for ever
		t.Error("the guest is alive after the wall time")
	}
	end(t, b)
	if n := processesWith(t, word); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

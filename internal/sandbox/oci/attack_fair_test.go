package oci_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/sandbox/oci"
)

// work is what an honest task does: hashing, files and processes.
const work = "for i in 1 2 3 4 5 6; do head -c 24000000 /dev/zero | sha256sum > sum; cp sum s$i; done; cat sum"

// hostilities are eight tasks that each try to take one thing from all others.
func hostilities() []string {
	return []string{
		"exec ./probe forks 5000", "while :; do ./attacker burn 60000 8; done", "while :; do ./probe memory 4000; done", "while :; do ./attacker fill /workspace bytes; done",
		"while :; do ./attacker fill /tmp inodes; find /tmp -delete; done", "while :; do yes | head -c 100000000 > /dev/null; done", "while :; do ./attacker fill - memfd; done", "./probe bomb x /dev/null",
	}
}

// honest runs n honest tasks at once and returns how long the slowest took.
func honest(t testing.TB, r *oci.Runtime, tree string, n int) time.Duration {
	t.Helper()
	took := make([]time.Duration, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			began := time.Now()
			b, err := r.Start(context.Background(), sandbox.Spec{Task: fmt.Sprint("honest", i), Purpose: "agent", Tree: tree})
			if err != nil {
				t.Errorf("an honest task cannot start: %v", err)
				return
			}
			res, err := b.Guest().Exec(context.Background(), guest.ExecRequest{Shell: work, Head: 1 << 16})
			if err != nil || res.ExitCode != 0 || !strings.Contains(string(res.Head), "  -") {
				t.Errorf("an honest task: %v, exit code %d, %s", err, res.ExitCode, res.Head)
			}
			if err := b.Destroy(context.Background()); err != nil {
				t.Error(err)
			}
			took[i] = time.Since(began)
		})
	}
	wg.Wait()
	slowest := time.Duration(0)
	for _, d := range took {
		slowest = max(slowest, d)
	}
	return slowest
}

// beside measures two honest tasks alone and beside eight hostile ones, each of which has a
// small share of the processors as an operator of many tasks gives it.
func beside(t testing.TB, r *oci.Runtime) (alone, among time.Duration) {
	t.Helper()
	tree := armed(t, nil)
	honest(t, r, tree, 2) // warm
	alone = honest(t, r, tree, 2)
	var boxes []sandbox.Sandbox
	for i, h := range hostilities() {
		b, err := r.Start(context.Background(), sandbox.Spec{Task: fmt.Sprint("hostile", i), Purpose: "agent", Tree: tree, Limits: sandbox.Limits{
			CPU: 0.05, Pids: 300, Memory: 256 << 20, WorkBytes: 64 << 20, HomeBytes: 64 << 20, TempBytes: 64 << 20,
		}})
		if err != nil {
			t.Fatal(err)
		}
		boxes = append(boxes, b)
		if _, err := b.Guest().Exec(context.Background(), guest.ExecRequest{Shell: h, Background: true}); err != nil {
			t.Fatal(err)
		}
	}
	among = honest(t, r, tree, 2)
	for _, b := range boxes {
		if err := b.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	}
	return alone, among
}

// Honest tasks come to their end beside hostile ones. How much longer it takes them is told and
// is no condition: the machine may be busy with something else.
func TestHonestTasksGoOn_OPS03(t *testing.T) {
	if os.Getenv("DAYBREAK_ATTACK") == "" {
		t.Skip("not exercised: run by make attack")
	}
	alone, among := beside(t, target(t))
	t.Logf("alone %v, beside eight hostile tasks %v: %.2f times", alone, among, float64(among)/float64(alone))
}

func BenchmarkHonestBesideHostile(b *testing.B) {
	for b.Loop() {
		alone, among := beside(b, target(b))
		b.ReportMetric(float64(among)/float64(alone), "times")
	}
}

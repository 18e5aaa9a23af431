package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/model/scripted/transcript"
	"github.com/daybreak-agent/daybreak/internal/store"
)

const steps = 60

func turn(text, tool string, input yaml.MapSlice) transcript.Turn {
	return transcript.Turn{Text: text, Calls: []transcript.Call{{Name: tool, Input: input}}}
}

func decline() transcript.Turn {
	return turn("Enough was measured.", "decline", yaml.MapSlice{
		{Key: "kind", Value: "out_of_scope"}, {Key: "reason", Value: "this is a measurement"}, {Key: "tried", Value: "what the script says"},
	})
}

// trueScript runs `true` at every step, each time worded differently.
func trueScript() transcript.Transcript {
	t := transcript.Transcript{Name: "true"}
	for i := range steps {
		t.Turns = append(t.Turns, turn("Next.", "run", yaml.MapSlice{{Key: "command", Value: fmt.Sprintf("true # %d", i)}}))
	}
	t.Turns = append(t.Turns, decline())
	return t
}

// workScript does what agents do most: it reads, searches and runs, with results of a few
// kilobytes.
func workScript() transcript.Transcript {
	t := transcript.Transcript{Name: "work"}
	for i := range steps {
		say := fmt.Sprintf("The total is computed in several places, so I look at the next one (%d): what is summed before it is rounded?", i)
		switch i % 3 {
		case 0:
			t.Turns = append(t.Turns, turn(say, "read", yaml.MapSlice{{Key: "path", Value: fmt.Sprintf("shop/item%02d.go", i/2)}, {Key: "limit", Value: 60}}))
		case 1:
			t.Turns = append(t.Turns, turn(say, "search", yaml.MapSlice{{Key: "pattern", Value: fmt.Sprintf(`Price%d\b`, i%40)}}))
		default:
			t.Turns = append(t.Turns, turn(say, "run", yaml.MapSlice{{Key: "command", Value: fmt.Sprintf("for i in $(seq 40); do echo \"--- PASS: TestTotal/%d/case_$i (0.00s)\"; done", i)}}))
		}
	}
	t.Turns = append(t.Turns, decline())
	return t
}

// session is one task from its first request to its last.
type session struct {
	calls     []call
	gaps      []time.Duration // from the end of a reply to the next request on the wire
	tools     []time.Duration // what the log says the tools took in each gap, cut to whole milliseconds
	workerCPU time.Duration   // per step, of the worker and of children it waited for
	boxCPU    time.Duration   // per step, of everything in the sandbox
	prefix    string
}

// play runs a script through the built program.
func (w *world) play(ctx context.Context, t transcript.Transcript) (session, error) {
	var got session
	s, err := serve(ctx, t)
	if err != nil {
		return got, err
	}
	defer s.close()
	pids := make(chan int, 1)
	done := make(chan error, 1)
	go func() { done <- w.runTask(ctx, s.url, func(pid int) { pids <- pid }) }()
	const first, last = 5, steps - 5
	var cpu [2][2]time.Duration
	for running := true; running; {
		select {
		case n := <-s.arrival: // while the model thinks
			if n == first || n == last {
				pid := <-pids
				pids <- pid
				i := 0
				if n == last {
					i = 1
				}
				cpu[i] = [2]time.Duration{processCPU(pid), w.sandboxCPU()}
			}
		case err = <-done:
			running = false
		}
	}
	if err != nil {
		return got, err
	}
	if got.calls, err = s.taken(); err != nil {
		return got, err
	}
	if len(got.calls) != steps+1 {
		return got, fmt.Errorf("%d requests, want %d", len(got.calls), steps+1)
	}
	for i := 1; i < len(got.calls); i++ {
		got.gaps = append(got.gaps, got.calls[i].arrived.Sub(got.calls[i-1].ended))
	}
	got.workerCPU = (cpu[1][0] - cpu[0][0]) / (last - first)
	got.boxCPU = (cpu[1][1] - cpu[0][1]) / (last - first)
	return got, w.readLog(ctx, &got)
}

// readLog takes the tools' time and the prompt from the newest task's record.
func (w *world) readLog(ctx context.Context, got *session) error {
	a, err := w.open(ctx, "")
	if err != nil {
		return err
	}
	defer func() { _ = a.Close() }()
	ts, err := a.Store.Tasks(ctx, store.Filter{Limit: 1})
	if err != nil || len(ts) == 0 {
		return fmt.Errorf("no task: %w", err)
	}
	events, err := a.Store.Events(ctx, ts[0].ID, 0, 0)
	if err != nil {
		return err
	}
	if err := event.VerifyChain(ts[0].ID, events); err != nil {
		return err
	}
	for _, e := range events {
		p, err := event.Decode(e)
		if err != nil {
			return err
		}
		switch p := p.(type) {
		case *event.PromptFrozen:
			if got.prefix, err = store.Load(ctx, a.Store, p.Prefix); err != nil {
				return err
			}
		case *event.ToolFinished:
			if len(got.tools) < len(got.gaps) {
				got.tools = append(got.tools, time.Duration(p.Millis)*time.Millisecond)
			}
		}
	}
	if len(got.tools) != len(got.gaps) {
		return fmt.Errorf("%d tool results for %d steps", len(got.tools), len(got.gaps))
	}
	return nil
}

// processCPU is what all threads of a process have used, in nanoseconds, and what children it
// waited for used, in clock ticks.
func processCPU(pid int) time.Duration {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // the pattern is well-formed
	var sum time.Duration
	for _, t := range threads {
		b, err := os.ReadFile(t)
		if err != nil {
			continue // it ended meanwhile
		}
		ns, _, _ := strings.Cut(string(b), " ")
		n, _ := strconv.ParseInt(ns, 10, 64)
		sum += time.Duration(n)
	}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	const childUser, childSystem, tick = 13, 14, 10 * time.Millisecond
	for _, i := range []int{childUser, childSystem} {
		if len(fields) > i {
			n, _ := strconv.ParseInt(fields[i], 10, 64)
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

// sandboxCPU is what the sandboxes of this installation have used, from their cgroups.
func (w *world) sandboxCPU() time.Duration {
	boxes, _ := os.ReadDir(filepath.Join(w.data, "sandboxes"))
	var sum time.Duration
	for _, b := range boxes {
		if v, err := os.ReadFile("/sys/fs/cgroup/cpuacct/daybreak/" + b.Name() + "/cpuacct.usage"); err == nil {
			n, _ := strconv.ParseInt(strings.TrimSpace(string(v)), 10, 64)
			sum += time.Duration(n)
		} else if v, err := os.ReadFile("/sys/fs/cgroup/daybreak/" + b.Name() + "/cpu.stat"); err == nil {
			var n int64
			_, _ = fmt.Sscanf(string(v), "usage_usec %d", &n)
			sum += time.Duration(n) * time.Microsecond
		}
	}
	return sum
}

func measureStep(ctx context.Context, w *world, t *table) error {
	if err := w.warm(ctx); err != nil {
		return err
	}
	s, err := w.play(ctx, trueScript())
	if err != nil {
		return err
	}
	plain, err := w.plainTrue(ctx)
	if err != nil {
		return err
	}
	t.durations("reply's end → next request, `true` in the sandbox", s.gaps, 15*time.Millisecond, 0,
		fmt.Sprintf("bash -c true on the host %s: %s", millis(plain), times(percentile(s.gaps, 50), plain)))
	t.value("  processor time of that, worker + sandbox", millis(s.workerCPU+s.boxCPU), "≤ 10 ms", s.workerCPU+s.boxCPU <= 10*time.Millisecond,
		fmt.Sprintf("worker %s, sandbox %s", millis(s.workerCPU), millis(s.boxCPU)))
	share, again := s.cached()
	t.value("cached share of the input tokens of those 60 steps", percent(share), "≥ 97 %", share >= 0.97,
		fmt.Sprintf("%s of what the request before held; the rest is new", percent(again)))
	return nil
}

// plainTrue is the median of starting a shell on the host.
func (w *world) plainTrue(ctx context.Context) (time.Duration, error) {
	var d []time.Duration
	for range 40 {
		begin := time.Now()
		if err := exec.CommandContext(ctx, "bash", "-c", "true").Run(); err != nil {
			return 0, err
		}
		d = append(d, time.Since(begin))
	}
	return percentile(d, 50), nil
}

func measureWork(ctx context.Context, w *world, t *table) error {
	if err := w.warm(ctx); err != nil {
		return err
	}
	s, err := w.play(ctx, workScript())
	if err != nil {
		return err
	}
	overhead := make([]time.Duration, len(s.gaps))
	for i := range s.gaps {
		overhead[i] = max(s.gaps[i]-s.tools[i], 0)
	}
	last := len(s.calls[len(s.calls)-1].body)
	t.durations("harness per step, over 60 (wall − model − tools), fsynced", overhead, 5*time.Millisecond, 20*time.Millisecond,
		fmt.Sprintf("processor time of the worker %s a step; tools took %s; the last request has %d KiB", millis(s.workerCPU), millis(percentile(s.tools, 50)), last>>10))
	system, tools, err := promptBytes(s.prefix)
	if err != nil {
		return err
	}
	first := s.calls[0].usage
	t.value("first request: system prompt + tools, 4 bytes a token", fmt.Sprintf("%d tokens", (system+tools)/4), "≤ 4500", (system+tools)/4 <= 4500,
		fmt.Sprintf("system %d B, tools %d B; whole request %d tokens as the model counts", system, tools, first.Input+first.CacheRead+first.CacheWrite))
	share, again := s.cached()
	t.value(fmt.Sprintf("cached share of the input tokens, 60 steps of %d KiB", last>>10/steps), percent(share), "", false,
		fmt.Sprintf("%s of what the request before held; the rest is new", percent(again)))
	return nil
}

// cached is the share of all input tokens that the provider's cache served, as the scripted
// model counts at the client's cache marks, and the share of what could be served because the
// request before had it already.
func (s *session) cached() (share, again float64) {
	var read, all, before int64
	for i, c := range s.calls {
		if i > 0 {
			u := s.calls[i-1].usage
			before += u.Input + u.CacheRead + u.CacheWrite
		}
		read += c.usage.CacheRead
		all += c.usage.Input + c.usage.CacheRead + c.usage.CacheWrite
	}
	return float64(read) / float64(max(all, 1)), float64(read) / float64(max(before, 1))
}

func percent(f float64) string { return fmt.Sprintf("%.2f %%", 100*f) }

// promptBytes sizes the system text and the tools of a frozen prefix.
func promptBytes(prefix string) (system, tools int, err error) {
	var p struct {
		System string          `json:"system"`
		Tools  json.RawMessage `json:"tools"`
	}
	err = json.Unmarshal([]byte(prefix), &p)
	return len(p.System), len(p.Tools), err
}

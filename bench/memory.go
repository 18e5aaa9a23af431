package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/model/scripted/transcript"
	"github.com/daybreak-agent/daybreak/internal/worker"
)

// measureMemory lets one process hold many tasks, each with its sandbox, whose model has begun
// a reply and says no more.
func measureMemory(ctx context.Context, w *world, t *table) error {
	if err := w.warm(ctx); err != nil {
		return err
	}
	silent := decline()
	silent.Fail = slices.Repeat([]transcript.Fault{{Hang: true}}, w.tasks+1)
	s, err := serve(ctx, transcript.Transcript{Name: "silent", Turns: []transcript.Turn{silent}})
	if err != nil {
		return err
	}
	defer s.close()
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, exe, "-bin", w.bin, "-hold", w.dir, "-url", s.url)
	errOut, err := os.Create(filepath.Join(w.dir, "hold.log"))
	if err != nil {
		return err
	}
	defer func() { _ = errOut.Close() }()
	cmd.Stderr = errOut
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	gone := make(chan struct{})
	h := &holder{in: in, out: bufio.NewReader(out), s: s, gone: gone}
	go func() {
		defer close(gone)
		_, _ = cmd.Process.Wait() // it is killed below, or has said why on its standard error
	}()
	err = h.measure(ctx, w, t)
	// Ended like a power cut: the sandboxes notice, and are collected at the end.
	_ = cmd.Process.Signal(syscall.SIGKILL)
	<-gone
	if err != nil {
		said, _ := os.ReadFile(errOut.Name())
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}

// holder is the process that holds the tasks, seen from outside.
type holder struct {
	in      io.Writer
	out     *bufio.Reader
	s       *server
	gone    <-chan struct{} // closed when the process has ended
	started int
}

type usage struct {
	rss        int64
	goroutines int
}

func (h *holder) measure(ctx context.Context, w *world, t *table) error {
	none, err := h.usage()
	if err != nil {
		return err
	}
	if err := h.start(ctx, 1); err != nil {
		return err
	}
	one, err := h.usage()
	if err != nil {
		return err
	}
	if err := h.start(ctx, w.tasks-1); err != nil {
		return err
	}
	all, err := h.usage()
	if err != nil {
		return err
	}
	boxes, err := os.ReadDir(filepath.Join(w.data, "sandboxes"))
	if err != nil {
		return err
	}
	if len(boxes) < w.tasks {
		return fmt.Errorf("%d sandboxes for %d tasks", len(boxes), w.tasks)
	}
	each := (all.rss - one.rss) / int64(max(w.tasks-1, 1))
	t.value("worker memory of one task that waits for the model", mib(each), "≤ 3 MiB", each <= 3<<20,
		fmt.Sprintf("of %d at once; the first one took %s; %d goroutines a task", w.tasks, mib(one.rss-none.rss), (all.goroutines-one.goroutines)/max(w.tasks-1, 1)))
	t.value(fmt.Sprintf("worker memory of %d at once, each with its sandbox", w.tasks), mib(all.rss), "≤ 1024 MiB", all.rss <= 1<<30,
		fmt.Sprintf("process without a task %s", mib(none.rss)))
	return nil
}

// start lets n more tasks begin, four at a time, until each has asked the model.
func (h *holder) start(ctx context.Context, n int) error {
	target, flying := h.started+n, 0
	for asked := h.started; asked < target; {
		for flying < 4 && h.started < target {
			if _, err := fmt.Fprintln(h.in, "start"); err != nil {
				return err
			}
			h.started++
			flying++
		}
		select {
		case <-h.s.arrival:
			asked++
			flying--
		case <-h.gone:
			return errors.New("the process that holds the tasks ended")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (h *holder) usage() (usage, error) {
	var u usage
	if _, err := fmt.Fprintln(h.in, "usage"); err != nil {
		return u, err
	}
	line, err := h.out.ReadString('\n')
	if err != nil {
		return u, err
	}
	_, err = fmt.Sscanf(line, "%d %d", &u.rss, &u.goroutines)
	return u, err
}

// holdTasks is the other side: it starts tasks and tells its memory as it is asked to.
func holdTasks(ctx context.Context, bin, dir, url string, in io.Reader, out io.Writer) error {
	source, err := moduleRoot()
	if err != nil {
		return err
	}
	w := &world{source: source, bin: bin, dir: dir, data: filepath.Join(dir, "data"), repo: filepath.Join(dir, "repo")}
	a, err := w.open(ctx, url)
	if err != nil {
		return err
	}
	worker, err := a.Worker(app.Hooks{})
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); {
		switch lines.Text() {
		case "start":
			go func() {
				err := hold(ctx, worker, w.repo, n)
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}()
			n++
		case "usage":
			rss, err := residentMemory()
			if err != nil {
				return err
			}
			fmt.Fprintln(out, rss, runtime.NumGoroutine())
		}
	}
	return lines.Err()
}

func hold(ctx context.Context, w *worker.Worker, repo string, n int) error {
	t, _, err := w.Create(ctx, worker.Request{Repo: repo, Issue: []byte(issueText(n)), Model: modelName, RequestedBy: "bench", Fresh: true})
	if err != nil {
		return err
	}
	if _, err = w.Run(ctx, t.ID); err == nil {
		err = errors.New("the task ended")
	}
	return err
}

// residentMemory is the process's VmRSS in bytes, after what is free was given back.
func residentMemory() (int64, error) {
	runtime.GC()
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	kb, err := strconv.ParseInt(strings.Fields(rest + " 0")[0], 10, 64)
	return kb << 10, err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/daybreak-agent/daybreak/internal/model/scripted/transcript"
)

// warm runs one task, so that the snapshot and the baseline of the small repository are there.
func (w *world) warm(ctx context.Context) error {
	_, err := w.firstRequest(ctx)
	return err
}

// firstRequest is the time from the process's start to its first request.
func (w *world) firstRequest(ctx context.Context) (time.Duration, error) {
	s, err := serve(ctx, transcript.Transcript{Name: "start", Turns: []transcript.Turn{decline()}})
	if err != nil {
		return 0, err
	}
	defer s.close()
	begin := time.Now()
	if err := w.runTask(ctx, s.url, nil); err != nil {
		return 0, err
	}
	calls, err := s.taken()
	if err == nil && len(calls) == 0 {
		err = errors.New("no request was made")
	}
	if err != nil {
		return 0, err
	}
	return calls[0].arrived.Sub(begin), nil
}

func measureStart(ctx context.Context, w *world, t *table) error {
	if err := w.warm(ctx); err != nil {
		return err
	}
	var first, help []time.Duration
	for range w.runs {
		d, err := w.firstRequest(ctx)
		if err != nil {
			return err
		}
		first = append(first, d)
		begin := time.Now()
		if err := exec.CommandContext(ctx, w.daybreak(), "--help").Run(); err != nil {
			return err
		}
		help = append(help, time.Since(begin))
	}
	runc, err := w.plainRunc(ctx, w.runs)
	if err != nil {
		return err
	}
	t.durations("process start → first model request, snapshot ready", first, 300*time.Millisecond, 0,
		fmt.Sprintf("runc run true %s: %s; daybreak --help %s", millis(percentile(runc, 50)), times(percentile(first, 50), percentile(runc, 50)), millis(percentile(help, 50))))
	size, err := os.Stat(w.daybreak())
	if err != nil {
		return err
	}
	t.value("size of the program", mib(size.Size()), "≤ 64 MiB", size.Size() <= 64<<20, "linking text/template or reflection over methods makes it 75")
	return nil
}

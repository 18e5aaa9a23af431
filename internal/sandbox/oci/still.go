package oci

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// still stops every process of a running sandbox, so that its files can be read. The cgroup
// does it, whatever the sandbox does; a runtime with a kernel of its own is asked to pause
// before, since its threads do not survive being frozen in the middle of their work. The
// function lets the sandbox go on.
func (s *box) still(ctx context.Context) (goOn func(), err error) {
	paused := s.r.engine.pauses
	if paused {
		if _, err := s.r.do(ctx, order{Do: doPause, Rec: s.rec}); err != nil {
			s.r.cfg.Logger.Warn("pause sandbox; it is frozen as it is", "id", s.rec.ID, "error", err)
		}
	}
	goOn = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
		defer cancel()
		if err := s.group().freeze(ctx, false); err != nil {
			s.r.cfg.Logger.Error("thaw sandbox", "id", s.rec.ID, "error", err)
		}
		if paused {
			if _, err := s.r.do(ctx, order{Do: doResume, Rec: s.rec}); err != nil && len(s.group().pids()) > 0 {
				s.r.cfg.Logger.Error("resume sandbox", "id", s.rec.ID, "error", err)
			}
		}
	}
	if err := s.group().freeze(ctx, true); err != nil {
		goOn()
		return nil, fmt.Errorf("freeze sandbox %s: %w", s.rec.ID, err)
	}
	return goOn, nil
}

// pauseTime bounds a runtime's answer.
const pauseTime = 20 * time.Second

// control has the runtime do something to a running container.
func (r *Runtime) control(ctx context.Context, verb, id string) error {
	ctx, cancel := context.WithTimeout(ctx, pauseTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.cfg.Runtime, append(r.engine.args(r.stand), "--root", r.stateDir(), verb, id)...)
	cmd.WaitDelay = time.Second
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w (%.300q)", r.engine.name, verb, err, strings.TrimSpace(string(out)))
	}
	return nil
}

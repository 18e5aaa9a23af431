package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/sandbox/warm"
)

// keepReady puts the operator's pool of ready sandboxes before the runtime.
func (a *App) keepReady(rt sandbox.Runtime) sandbox.Runtime {
	return a.pool(rt, a.Config.Serve.Warm)
}

// keepNext has the next sandboxes of a verification made ready while the suite runs in one.
func (a *App) keepNext(rt sandbox.Runtime) sandbox.Runtime {
	w := a.Config.Serve.Warm
	w.Count, w.Idle = min(w.Count, 2), min(w.Idle, time.Minute)
	return a.pool(rt, w)
}

func (a *App) pool(rt sandbox.Runtime, w config.Warm) sandbox.Runtime {
	if w.Count == 0 {
		return rt
	}
	if a.ready == nil {
		a.ready = warm.New(warm.Config{
			Runtime: rt, Dir: readyDir(a.Dir), Count: w.Count, Memory: int64(w.Memory), Idle: w.Idle,
			Hold: a.Snapshots.HoldPaths, Now: a.Now, Logger: a.opts.Logger,
		})
	}
	return a.ready
}

// readyDir is a short path of this process's own for sockets. What processes that are gone left
// there is removed.
func readyDir(dir string) string {
	all := mirrorRunDir(dir) + "-ready"
	host, pid, start := splitOwner(Owner())
	entries, _ := os.ReadDir(all) // none, the first time
	for _, e := range entries {
		was, began, ok := strings.Cut(e.Name(), "-")
		if ok && Gone(fmt.Sprintf("%s:%s:%s", host, was, began)) {
			_ = os.RemoveAll(filepath.Join(all, e.Name())) // the next process tries again
		}
	}
	return filepath.Join(all, pid+"-"+start)
}

func splitOwner(owner string) (host, pid, start string) {
	parts := strings.SplitN(owner, ":", 3)
	for len(parts) < 3 {
		parts = append(parts, "")
	}
	return parts[0], parts[1], parts[2]
}

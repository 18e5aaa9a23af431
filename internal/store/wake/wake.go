// Package wake tells the watchers of one process that tasks changed.
//
// Invariants: a change after a watcher's last receive is never lost, changes in between are
// merged into one; telling never waits for a watcher.
package wake

import (
	"context"
	"sync"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Hub holds the watchers. Its zero value is ready; it is safe for concurrent use.
type Hub struct {
	mu       sync.Mutex
	watchers map[chan struct{}]task.ID
}

// Watch returns a channel that [Hub.Tell] fills until ctx ends. id "" watches all tasks.
func (h *Hub) Watch(ctx context.Context, id task.ID) <-chan struct{} {
	ch := make(chan struct{}, 1)
	h.mu.Lock()
	if h.watchers == nil {
		h.watchers = map[chan struct{}]task.ID{}
	}
	h.watchers[ch] = id
	h.mu.Unlock()
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		delete(h.watchers, ch)
		h.mu.Unlock()
	})
	return ch
}

// Tell wakes the watchers of the task; id "" wakes all.
func (h *Hub) Tell(id task.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch, of := range h.watchers {
		if id != "" && of != "" && of != id {
			continue
		}
		select {
		case ch <- struct{}{}:
		default: // it has one already
		}
	}
}

// Package live brings what is recorded about tasks to those who watch, while it happens.
//
// Invariants: one reader of the store per watched task, whoever many watch; a viewer gets every
// event once and in order, from the position it names on; a viewer holds a position and one
// small batch, so that a slow one costs no memory, holds up nobody and reads what it missed from
// the store; nothing is given any more once the viewer's permission has ended.
package live

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Source is the part of a store that is watched.
type Source interface {
	Task(ctx context.Context, id task.ID) (store.Task, error)
	Tasks(ctx context.Context, f store.Filter) ([]store.Task, error)
	Events(ctx context.Context, id task.ID, after int64, limit int) ([]event.Event, error)
	Watch(ctx context.Context, id task.ID) (<-chan struct{}, error)
}

// Config is what a hub needs. All fields are required.
type Config struct {
	Source Source
	Total  int // most streams at once
	Viewer int // most streams at once of one viewer
	Now    func() time.Time
	Logger *slog.Logger
}

// Hub shares what it reads among all who watch. It is safe for concurrent use.
type Hub struct {
	cfg     Config
	catchUp chan struct{} // a place for each read of the store on behalf of one viewer
	closed  chan struct{}
	running sync.WaitGroup

	mu     sync.Mutex
	over   bool
	feeds  map[task.ID]*feed
	list   *board
	open   int
	viewer map[string]int
}

// What bounds a hub.
const (
	// Idle is how long Next waits before it returns nothing, so that the caller can tell the
	// other side that the connection lives.
	Idle = 15 * time.Second
	// Recheck is how often the permission of a stream is looked at again.
	Recheck = 20 * time.Second

	ringEvents = 512 // events kept in memory for each watched task,
	ringBytes  = 4 << 20
	pageEvents = 64 // and handed to one viewer at once
	pageBytes  = 64 << 10
	readers    = 8 // reads of the store at once for viewers that are behind
	tryAgain   = time.Second
)

// ErrClosed ends the streams of a process that stops: the viewer comes back.
var ErrClosed = &task.Error{Class: task.Unavailable, Msg: "the server stops", Fix: "connect again"}

// New returns a hub that reads nothing yet.
func New(cfg Config) *Hub {
	return &Hub{cfg: cfg, catchUp: make(chan struct{}, readers), closed: make(chan struct{}), feeds: map[task.ID]*feed{}, viewer: map[string]int{}}
}

// Close ends all streams with [ErrClosed] and waits for the readers.
func (h *Hub) Close() {
	h.mu.Lock()
	if !h.over {
		h.over = true
		close(h.closed)
		for _, f := range h.feeds {
			f.stop()
		}
		if h.list != nil {
			h.list.stop()
		}
	}
	h.mu.Unlock()
	h.running.Wait()
}

// Watcher is somebody who watches.
type Watcher struct {
	Name string // whom the cap counts it for
	// May looks at the permission again; its error ends the stream. nil is for what everybody may
	// see.
	May func(ctx context.Context) error
}

// place counts one more stream; class Overloaded above a cap.
func (h *Hub) place(w Watcher) error {
	if h.over {
		return ErrClosed
	}
	if h.open >= h.cfg.Total || h.viewer[w.Name] >= h.cfg.Viewer {
		what := "as many live streams are open as this server allows"
		if h.open < h.cfg.Total {
			what = "you have as many live streams open as one viewer may"
		}
		return &task.Error{Class: task.Overloaded, Msg: what, Fix: "close some, or connect again later", RetryAfter: tryAgain}
	}
	h.open++
	h.viewer[w.Name]++
	return nil
}

func (h *Hub) leave(w Watcher) {
	h.open--
	if h.viewer[w.Name]--; h.viewer[w.Name] == 0 {
		delete(h.viewer, w.Name)
	}
}

// Open says how many streams are open.
func (h *Hub) Open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

// guard is a stream's permission, asked again every [Recheck].
type guard struct {
	hub     *Hub
	who     Watcher
	checked time.Time
}

func (g *guard) check(ctx context.Context) error {
	now := g.hub.cfg.Now()
	if g.who.May == nil || now.Sub(g.checked) < Recheck {
		return nil
	}
	g.checked = now
	return g.who.May(ctx)
}

// wait returns true when changed is closed and false when nothing happened for [Idle].
func (g *guard) wait(ctx context.Context, changed <-chan struct{}) (bool, error) {
	idle := time.NewTimer(Idle)
	defer idle.Stop()
	select {
	case <-changed:
		return true, nil
	case <-idle.C:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-g.hub.closed:
		return false, ErrClosed
	}
}

// pause waits before a failed read is tried again; false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

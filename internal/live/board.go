package live

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// What bounds the list of tasks.
const (
	// Listed is how many tasks, the newest ones, are looked at for changes.
	Listed = 500

	listEvery = 500 * time.Millisecond // between two reads
	overlap   = 5 * time.Second        // clocks of writers differ, so a viewer is told a bit twice
)

// board is the list of tasks with what changed when, and the one reader that keeps it.
type board struct {
	hub     *Hub
	stop    context.CancelFunc
	viewers int // under the hub's lock

	mu      sync.Mutex
	rows    map[task.ID]row
	version int64 // of the newest change, 0 before the first read
	changed chan struct{}
}

type row struct {
	store.Task
	version int64
}

// List is one viewer's way through the changes of the list of tasks. It is for one goroutine.
type List struct {
	guard
	board   *board
	version int64
	since   time.Time
	once    sync.Once
}

// SubscribeList follows the newest [Listed] tasks. It begins with those that changed since a
// time: when the viewer read the list. Who may see which task is the caller's to decide. The
// list must be closed. Class Overloaded above a cap.
func (h *Hub) SubscribeList(ctx context.Context, who Watcher, since time.Time) (*List, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.place(who); err != nil {
		return nil, err
	}
	if h.list == nil {
		ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
		b := &board{hub: h, stop: stop, rows: map[task.ID]row{}, changed: make(chan struct{})}
		h.list = b
		h.running.Go(func() { b.run(ctx) })
	}
	h.list.viewers++
	return &List{guard: guard{h, who, h.cfg.Now()}, board: h.list, since: since.Add(-overlap)}, nil
}

// Close gives the place back. The reader ends with the last list.
func (l *List) Close() {
	l.once.Do(func() {
		h := l.hub
		h.mu.Lock()
		defer h.mu.Unlock()
		h.leave(l.who)
		if l.board.viewers--; l.board.viewers == 0 {
			l.board.stop()
			if h.list == l.board {
				h.list = nil
			}
		}
	})
}

// Next waits for tasks that changed and returns them as they are now, oldest change first;
// changes in between are merged. It returns none, without an error, when nothing happened for
// [Idle]. Its errors are those of [Stream.Next] without the store's.
func (l *List) Next(ctx context.Context) ([]store.Task, error) {
	for {
		if err := l.check(ctx); err != nil {
			return nil, err
		}
		rows, version, changed := l.board.after(l.version, l.since)
		if version > 0 {
			l.version, l.since = version, time.Time{}
		}
		if len(rows) > 0 {
			return rows, nil
		}
		if more, err := l.wait(ctx, changed); !more {
			return nil, err
		}
	}
}

func (b *board) after(version int64, since time.Time) ([]store.Task, int64, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if version == b.version {
		return nil, version, b.changed
	}
	var found []row
	for _, r := range b.rows {
		if r.version > version && !r.Updated.Before(since) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(x, y row) int { return cmp.Or(cmp.Compare(x.version, y.version), x.Updated.Compare(y.Updated)) })
	out := make([]store.Task, len(found))
	for i, r := range found {
		out[i] = r.Task
	}
	return out, b.version, b.changed
}

// set takes a list that was read and tells the viewers when it differs.
func (b *board) set(ts []store.Task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next, rows := b.version+1, make(map[task.ID]row, len(ts))
	differs := b.version == 0
	for _, t := range ts {
		r, ok := b.rows[t.ID]
		if !ok || r.LastSeq != t.LastSeq || r.State != t.State || r.Owner != t.Owner || !r.Updated.Equal(t.Updated) {
			r, differs = row{t, next}, true
		}
		rows[t.ID] = r
	}
	if b.rows = rows; !differs {
		return
	}
	b.version = next
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *board) run(ctx context.Context) {
	for {
		if err := b.follow(ctx); ctx.Err() != nil || !pause(ctx, tryAgain) {
			return
		} else {
			b.hub.cfg.Logger.WarnContext(ctx, "live: the tasks cannot be listed now", "error", err)
		}
	}
}

func (b *board) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wake, err := b.hub.cfg.Source.Watch(ctx, "")
	if err != nil {
		return err
	}
	for {
		ts, err := b.hub.cfg.Source.Tasks(ctx, store.Filter{Limit: Listed})
		if err != nil {
			return err
		}
		b.set(ts)
		if !pause(ctx, listEvery) {
			return ctx.Err()
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

package live

import (
	"context"
	"slices"
	"sync"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// feed is one watched task: its newest events and the one reader that keeps them.
type feed struct {
	hub     *Hub
	id      task.ID
	stop    context.CancelFunc
	viewers int // under the hub's lock

	mu      sync.Mutex
	events  []event.Event // without a gap, the last one is the newest that was read
	bytes   int
	head    int64 // number of the newest event, -1 before the first read
	changed chan struct{}
}

// Stream is one viewer's way through the log of a task. It is for one goroutine.
type Stream struct {
	guard
	feed *feed
	seq  int64 // of the last event that was given
	page int   // events to ask the store for, so that a batch keeps its bounds
	once sync.Once
}

// Subscribe follows a task from the event after number after on. The stream must be closed.
// Class Overloaded above a cap, Invalid when the log has no such position.
func (h *Hub) Subscribe(ctx context.Context, who Watcher, id task.ID, after int64) (*Stream, error) {
	t, err := h.cfg.Source.Task(ctx, id)
	if err != nil {
		return nil, err
	}
	if after < 0 || after > t.LastSeq {
		return nil, &task.Error{Class: task.Invalid, Msg: "the log of the task has no such position", Fix: "begin again without one"}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.place(who); err != nil {
		return nil, err
	}
	f := h.feeds[id]
	if f == nil {
		ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
		f = &feed{hub: h, id: id, stop: stop, head: -1, changed: make(chan struct{})}
		h.feeds[id] = f
		h.running.Go(func() { f.run(ctx) })
	}
	f.viewers++
	return &Stream{guard: guard{h, who, h.cfg.Now()}, feed: f, seq: after, page: pageEvents}, nil
}

// Close gives the place back. The reader ends with the last stream.
func (s *Stream) Close() {
	s.once.Do(func() {
		h := s.hub
		h.mu.Lock()
		defer h.mu.Unlock()
		h.leave(s.who)
		if s.feed.viewers--; s.feed.viewers == 0 {
			s.feed.stop()
			delete(h.feeds, s.feed.id)
		}
	})
}

// Next waits for the events that follow. It returns none, without an error, when nothing
// happened for [Idle]. Its error ends the stream: the context's, [ErrClosed], that of the
// permission, or the store's.
func (s *Stream) Next(ctx context.Context) ([]event.Event, error) {
	for {
		if err := s.check(ctx); err != nil {
			return nil, err
		}
		got, behind, changed := s.feed.after(s.seq)
		if behind {
			var err error
			if got, err = s.catchUp(ctx); err != nil {
				return nil, err
			}
		}
		if len(got) > 0 {
			s.seq = got[len(got)-1].Seq
			return got, nil
		}
		if more, err := s.wait(ctx, changed); !more {
			return nil, err
		}
	}
}

// catchUp reads from the store what the ring has no more.
func (s *Stream) catchUp(ctx context.Context) ([]event.Event, error) {
	select {
	case s.hub.catchUp <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-s.hub.closed:
		return nil, ErrClosed
	}
	defer func() { <-s.hub.catchUp }()
	got, err := s.hub.cfg.Source.Events(ctx, s.feed.id, s.seq, s.page)
	if err != nil {
		return nil, err
	}
	if n := fit(got); n < len(got) {
		got, s.page = slices.Clone(got[:n]), n
	} else {
		s.page = min(2*s.page, pageEvents)
	}
	return got, nil
}

// fit is how many of the events make one batch, at least one.
func fit(es []event.Event) int {
	bytes := 0
	for i, e := range es {
		if bytes += len(e.Payload); i > 0 && (bytes > pageBytes || i == pageEvents) {
			return i
		}
	}
	return len(es)
}

// after returns a batch from the ring; behind says that the store has what follows; changed is
// closed when there is more than now.
func (f *feed) after(seq int64) (got []event.Event, behind bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if seq >= f.head {
		return nil, false, f.changed
	}
	first := f.head - int64(len(f.events)) + 1
	if seq+1 < first {
		return nil, true, f.changed
	}
	rest := f.events[seq+1-first:]
	return slices.Clone(rest[:fit(rest)]), false, f.changed // a copy: it must not keep the ring alive
}

// add puts what was read at the end and forgets the oldest.
func (f *feed) add(es []event.Event, head int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(es) == 0 && head == f.head {
		return
	}
	f.events = append(f.events, es...)
	for _, e := range es {
		f.bytes += len(e.Payload)
	}
	drop := 0
	for drop < len(f.events)-1 && (len(f.events)-drop > ringEvents || f.bytes > ringBytes) {
		f.bytes -= len(f.events[drop].Payload)
		drop++
	}
	f.events = slices.Delete(f.events, 0, drop)
	f.head = head
	close(f.changed)
	f.changed = make(chan struct{})
}

// run reads until ctx ends, whatever the store answers in between.
func (f *feed) run(ctx context.Context) {
	for {
		if err := f.follow(ctx); ctx.Err() != nil || !pause(ctx, tryAgain) {
			return
		} else {
			f.hub.cfg.Logger.WarnContext(ctx, "live: the log cannot be read now", "task", f.id, "error", err)
		}
	}
}

func (f *feed) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	src := f.hub.cfg.Source
	wake, err := src.Watch(ctx, f.id) // before the first read, so that nothing falls in between
	if err != nil {
		return err
	}
	if f.head < 0 { // only run writes it
		t, err := src.Task(ctx, f.id)
		if err != nil {
			return err
		}
		from := max(0, t.LastSeq-ringEvents)
		es, err := src.Events(ctx, f.id, from, ringEvents)
		if err != nil {
			return err
		}
		f.add(es, from+int64(len(es)))
	}
	for {
		es, err := src.Events(ctx, f.id, f.head, ringEvents)
		if err != nil {
			return err
		}
		if len(es) > 0 {
			f.add(es, es[len(es)-1].Seq)
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

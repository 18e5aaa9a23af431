package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const theTask = task.ID("t_01kh0000000000000000000001")

// memory is a source whose reads are counted.
type memory struct {
	mu      sync.Mutex
	log     []event.Event
	rows    []store.Task
	reads   int
	lists   int
	broken  error
	watches map[chan struct{}]bool
}

func newMemory() *memory { return &memory{watches: map[chan struct{}]bool{}} }

func (m *memory) Task(context.Context, task.ID) (store.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return store.Task{ID: theTask, LastSeq: int64(len(m.log))}, m.broken
}

func (m *memory) Tasks(context.Context, store.Filter) ([]store.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lists++
	return append([]store.Task{}, m.rows...), m.broken
}

func (m *memory) Events(_ context.Context, _ task.ID, after int64, limit int) ([]event.Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	if m.broken != nil {
		return nil, m.broken
	}
	rest := m.log[after:]
	return append([]event.Event{}, rest[:min(len(rest), limit)]...), nil
}

func (m *memory) Watch(ctx context.Context, _ task.ID) (<-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ch := make(chan struct{}, 1)
	m.watches[ch] = true
	context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watches, ch)
	})
	return ch, nil
}

func (m *memory) append(n, bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for range n {
		p, _ := json.Marshal(fmt.Sprintf("%0*d", bytes, len(m.log)+1))
		m.log = append(m.log, event.Event{Task: theTask, Seq: int64(len(m.log)) + 1, Payload: p})
	}
	for ch := range m.watches {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

func (m *memory) set(rows ...store.Task) {
	m.mu.Lock()
	m.rows = rows
	m.mu.Unlock()
	m.append(0, 0)
}

func (m *memory) counted() (reads, lists, watches int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reads, m.lists, len(m.watches)
}

func newHub(t testing.TB, m Source, total, viewer int) *Hub {
	h := New(Config{Source: m, Total: total, Viewer: viewer, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(h.Close)
	return h
}

// take reads until an event number and fails on a gap, a repeat or a batch beyond its bounds.
func take(t testing.TB, s *Stream, until int64) {
	t.Helper()
	for last := s.seq; last < until; {
		got, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		bytes := 0
		for _, e := range got {
			if e.Seq != last+1 {
				t.Fatalf("event %d follows %d", e.Seq, last)
			}
			last = e.Seq
			bytes += len(e.Payload)
		}
		if len(got) > pageEvents || len(got) > 1 && bytes > pageBytes {
			t.Fatalf("a batch of %d events and %d bytes", len(got), bytes)
		}
	}
}

// TestOneReader: a hundred viewers, at different positions, get everything in order, and the
// store is read once for what is new, whoever many watch.
func TestOneReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.append(2000, 100)
		h := newHub(t, m, 200, 200)
		var done sync.WaitGroup
		for i := range 100 {
			s, err := h.Subscribe(t.Context(), Watcher{Name: "v"}, theTask, int64(i*20))
			if err != nil {
				t.Fatal(err)
			}
			done.Go(func() {
				defer s.Close()
				take(t, s, 2000)
				take(t, s, 2050)
			})
		}
		synctest.Wait() // all have caught up
		before, _, watches := m.counted()
		if watches != 1 {
			t.Errorf("%d watchers of the store for one task", watches)
		}
		for range 50 {
			m.append(1, 100)
			synctest.Wait()
		}
		done.Wait()
		if after, _, _ := m.counted(); after-before > 2*50 {
			t.Errorf("%d reads of the store for 50 events and 100 viewers", after-before)
		}
		synctest.Wait()
		if _, _, watches := m.counted(); watches != 0 || h.Open() != 0 {
			t.Errorf("all viewers left: %d watchers, %d streams", watches, h.Open())
		}
	})
}

// TestSlowViewer_WEB10: one who reads nothing for a long time holds up nobody, takes no memory and loses
// nothing.
func TestSlowViewer_WEB10(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		h := newHub(t, m, 10, 10)
		slow, err := h.Subscribe(t.Context(), Watcher{Name: "slow"}, theTask, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer slow.Close()
		quick, err := h.Subscribe(t.Context(), Watcher{Name: "quick"}, theTask, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer quick.Close()
		for i := range 40 {
			m.append(50, 3000)
			take(t, quick, int64(i+1)*50)
		}
		f := h.feeds[theTask]
		f.mu.Lock()
		if len(f.events) > ringEvents || f.bytes > ringBytes {
			t.Errorf("the ring holds %d events, %d bytes", len(f.events), f.bytes)
		}
		f.mu.Unlock()
		take(t, slow, 2000)
	})
}

// TestHugeEvents: an event that is larger than a batch comes alone.
func TestHugeEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.append(600, 10)
		m.append(30, pageBytes+1)
		m.append(600, 10)
		h := newHub(t, m, 10, 10)
		s, err := h.Subscribe(t.Context(), Watcher{}, theTask, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		take(t, s, 1230)
	})
}

func TestIdleAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.append(1, 1)
		h := newHub(t, m, 10, 10)
		s, err := h.Subscribe(t.Context(), Watcher{}, theTask, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		began := time.Now()
		if got, err := s.Next(t.Context()); len(got) != 0 || err != nil || time.Since(began) != Idle {
			t.Errorf("%v %v after %s", got, err, time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		go h.Close()
		if _, err := s.Next(t.Context()); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if _, err := h.Subscribe(t.Context(), Watcher{}, theTask, 1); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// TestPermissionEnds_WEB06: a stream ends within [Recheck] and a keep-alive of the permission's end, also
// when events keep coming.
func TestPermissionEnds_WEB06(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		h := newHub(t, m, 10, 10)
		gone := &task.Error{Class: task.NotFound, Msg: "no such task"}
		until := time.Now().Add(time.Minute)
		s, err := h.Subscribe(t.Context(), Watcher{May: func(context.Context) error {
			if time.Now().Before(until) {
				return nil
			}
			return gone
		}}, theTask, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for {
			m.append(1, 1)
			if _, err := s.Next(t.Context()); err != nil {
				if !errors.Is(err, gone) {
					t.Error(err)
				}
				break
			}
			time.Sleep(time.Second) // in the bubble
		}
		if late := time.Since(until); late < 0 || late > Recheck+Idle {
			t.Errorf("ended %s after the permission", late)
		}
	})
}

func TestCaps_WEB10(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		h := newHub(t, m, 3, 2)
		open := func(name string) (*Stream, error) {
			return h.Subscribe(t.Context(), Watcher{Name: name}, theTask, 0)
		}
		var all []*Stream
		for range 2 {
			s, err := open("a")
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
		if _, err := open("a"); task.ClassOf(err) != task.Overloaded {
			t.Errorf("above the viewer's cap: %v", err)
		}
		l, err := h.SubscribeList(t.Context(), Watcher{Name: "b"}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := open("c"); task.ClassOf(err) != task.Overloaded {
			t.Errorf("above the cap of all: %v", err)
		}
		l.Close()
		l.Close()
		s, err := open("c")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range append(all, s) {
			s.Close()
		}
		if h.Open() != 0 || len(h.viewer) != 0 {
			t.Errorf("%d %v", h.Open(), h.viewer)
		}
		for _, bad := range []int64{-1, 1} {
			if _, err := h.Subscribe(t.Context(), Watcher{}, theTask, bad); task.ClassOf(err) != task.Invalid {
				t.Errorf("position %d: %v", bad, err)
			}
		}
	})
}

// TestStoreAway: the reader goes on when the store is back; nothing is lost.
func TestStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.append(3, 1)
		h := newHub(t, m, 10, 10)
		s, err := h.Subscribe(t.Context(), Watcher{}, theTask, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		take(t, s, 3)
		m.mu.Lock()
		m.broken = &task.Error{Class: task.Transient, Msg: "away"}
		m.mu.Unlock()
		m.append(2, 1)
		if got, err := s.Next(t.Context()); len(got) != 0 || err != nil {
			t.Errorf("%v %v", got, err)
		}
		m.mu.Lock()
		m.broken = nil
		m.mu.Unlock()
		take(t, s, 5)
	})
}

func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		id := func(n int) task.ID { return task.ID(fmt.Sprintf("t_01kh%022d", n)) }
		row := func(n int, seq int64) store.Task {
			return store.Task{ID: id(n), LastSeq: seq, Updated: time.Now()}
		}
		old := row(1, 1)
		time.Sleep(time.Hour)
		m.set(old, row(2, 1))
		h := newHub(t, m, 100, 100)
		var lists []*List
		for range 20 {
			l, err := h.SubscribeList(t.Context(), Watcher{}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			lists = append(lists, l)
		}
		for _, l := range lists {
			if got, err := l.Next(t.Context()); err != nil || len(got) != 1 || got[0].ID != id(2) {
				t.Fatalf("since the page was read: %v %v", got, err)
			}
		}
		_, before, _ := m.counted()
		for seq := range int64(100) { // a burst is merged
			m.set(old, row(2, seq), row(3, seq))
		}
		for _, l := range lists {
			got, err := l.Next(t.Context())
			for err == nil && len(got) == 2 && got[0].LastSeq < 99 {
				got, err = l.Next(t.Context())
			}
			if err != nil || len(got) != 2 || got[0].LastSeq != 99 || got[1].LastSeq != 99 {
				t.Fatalf("%v %v", got, err)
			}
			if got, err := l.Next(t.Context()); err != nil || len(got) != 0 {
				t.Fatalf("nothing happened: %v %v", got, err)
			}
			l.Close()
		}
		if _, after, _ := m.counted(); after-before > 4 {
			t.Errorf("%d reads of the list for one burst and 20 viewers", after-before)
		}
		m.set(old)
		synctest.Wait()
		if _, _, watches := m.counted(); watches != 0 {
			t.Errorf("%d watchers are left", watches)
		}
	})
}

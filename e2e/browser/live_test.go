package browser

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

// wire carries connections to a service until it is cut.
type wire struct {
	l  net.Listener
	to string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
}

func newWire(t *testing.T, base string) *wire {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{l: l, to: u.Host, conns: map[net.Conn]struct{}{}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.carry(c)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		w.set(true)
	})
	return w
}

func (w *wire) base() string { return "http://" + w.l.Addr().String() }

func (w *wire) carry(near net.Conn) {
	defer func() { _ = near.Close() }()
	far, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	w.mu.Lock()
	dead := w.cut
	w.conns[near], w.conns[far] = struct{}{}, struct{}{}
	w.mu.Unlock()
	if dead {
		return
	}
	go func() {
		_, _ = io.Copy(far, near)
		_ = far.Close()
	}()
	_, _ = io.Copy(near, far)
}

// set cuts the wire, which ends what is on it and lets nothing through, or mends it.
func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	if !cut {
		return
	}
	for c := range w.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a lost connection says no goodbye
		}
		_ = c.Close()
	}
	clear(w.conns)
}

const (
	rowIDs  = `[...document.querySelectorAll('#step-list > li')].map(e => e.id)`
	stepIDs = `[...document.querySelectorAll('#step-list > .step')].map(e => e.id)`
	callIDs = `[...document.querySelectorAll('#step-list .call')].map(e => e.id)`
	onPage  = `document.querySelectorAll('#step-list > .step').length`
)

// TestLive: a page grows with the task and needs no reload; one whose connection is lost and comes
// back misses nothing and doubles nothing; both end as a page that is opened afterwards.
func TestLive(t *testing.T) {
	t.Parallel()
	s := serve(t, "testdata/fix.yaml", "publish: hold")
	browser := start(t)
	var turns []*stop
	for n := 2; n <= 5; n++ {
		turns = append(turns, s.gate.hold(n))
	}
	id := s.ask(t, s.issue(t))
	w := newWire(t, s.base)
	turns[0].wait(t)
	near := signIn(t, browser, s, "/tasks/"+id)
	far := open(t, near.ctx)
	far.visit(w.base() + "/tasks/" + id)
	for _, b := range []*tab{near, far} {
		b.shows("#live.on", "live")
		if !eval[bool](b, `window.untouched = true`) {
			t.Fatal("no mark")
		}
	}
	grows := func(b *tab, to int) {
		t.Helper()
		b.until(fmt.Sprintf(`%s === %d`, onPage, to))
	}
	grows(near, 2)
	grows(far, 2)
	turns[0].letGo()
	turns[1].wait(t)
	grows(near, 3)
	grows(far, 3)

	w.set(true)
	far.shows("#live.off", "reconnecting")
	turns[1].letGo()
	turns[2].wait(t)
	grows(near, 4)
	before, _ := far.stream()
	if n := eval[int](far, onPage); n != 3 {
		t.Errorf("behind the cut wire: %d steps", n)
	}
	w.set(false)
	far.shows("#live.on", "live")
	grows(far, 4)
	turns[2].letGo()
	turns[3].wait(t)
	turns[3].letGo()
	for _, b := range []*tab{near, far} {
		b.shows("#verdict h2", "Verified, waits for approval")
		b.shows("#evidence", "LargeTest")
	}
	near.click("#actions form[action$='/approve'] button")
	near.shows("#flash", "Approved")
	s.until(t, id, "publication.approved", nil)
	for _, b := range []*tab{near, far} {
		b.shows("#status", "in review")
		b.shows("#verdict h2", "Verified")
		if !eval[bool](b, `window.untouched === true`) {
			t.Error("the page was loaded again")
		}
	}
	end := s.until(t, id, "log.checkpoint", nil)
	compare(t, s, id, end.Seq, near, far)

	after, resumed := far.stream()
	if len(before) == 0 || len(after) <= len(before) {
		t.Fatalf("%d messages before the cut, %d in all", len(before), len(after))
	}
	if last := before[len(before)-1].id; !slices.Contains(resumed, last) {
		t.Errorf("the stream was resumed from %v, its last message was %s", resumed, last)
	}
	for i := 1; i < len(after); i++ {
		if number(t, after[i].id) <= number(t, after[i-1].id) {
			t.Errorf("message %s came after %s", after[i].id, after[i-1].id)
		}
	}
	near.quiet(s.base)
}

// compare holds pages that were live to one that is opened now, and all to the log.
func compare(t *testing.T, s *service, id string, end int64, live ...*tab) {
	t.Helper()
	fresh := open(t, live[0].ctx)
	fresh.visit(s.base + "/tasks/" + id)
	rows := fresh.texts(rowIDs)
	var steps, calls []string
	for _, r := range s.log(t, id) {
		switch r.Kind {
		case "model.request":
			steps = append(steps, fmt.Sprintf("e-%d", r.Seq))
		case "tool.started":
			calls = append(calls, fmt.Sprintf("c-%d", r.Seq))
		}
	}
	for _, b := range append(live, fresh) {
		b.until(fmt.Sprintf(`Number(document.querySelector('[data-task]').dataset.seq) >= %d`, end))
		if got := b.texts(rowIDs); !slices.Equal(got, rows) {
			t.Errorf("rows of a live page:\n%s\nof a new one:\n%s", strings.Join(got, " "), strings.Join(rows, " "))
		}
		if got := b.texts(stepIDs); !slices.Equal(got, steps) {
			t.Errorf("steps of the page: %v, of the log: %v", got, steps)
		}
		if got := b.texts(callIDs); !slices.Equal(got, calls) {
			t.Errorf("calls of the page: %v, of the log: %v", got, calls)
		}
		if twice := b.texts(`[...document.querySelectorAll('[id]')].map(e => e.id).filter((id, i, all) => all.indexOf(id) !== i)`); len(twice) > 0 {
			t.Errorf("on the page twice: %v", twice)
		}
	}
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSignedOut: who signs out sees nothing more, on a page that is still open either.
func TestSignedOut(t *testing.T) {
	t.Parallel()
	s := serve(t, "testdata/fix.yaml", "")
	browser := start(t)
	second, third := s.gate.hold(2), s.gate.hold(3)
	id := s.ask(t, s.issue(t))
	second.wait(t)
	b := signIn(t, browser, s, "/tasks/"+id)
	b.shows("#live.on", "live")
	elsewhere := open(t, b.ctx)
	elsewhere.visit(s.base + "/")
	elsewhere.goes(chromedp.Click(chromedp.CSS(`form[action="/sign-out"] button`)))
	if at := elsewhere.at(); !strings.HasPrefix(at, s.base+"/sign-in") {
		t.Errorf("signing out leads to %s", at)
	}
	b.shows("#live.off", "not live")
	was := eval[int](b, onPage)
	second.letGo()
	third.wait(t)
	elsewhere.visit(s.base + "/tasks/" + id)
	if at := elsewhere.at(); !strings.HasPrefix(at, s.base+"/sign-in") {
		t.Errorf("the task's page is there without a session, at %s", at)
	}
	if n := eval[int](b, onPage); n != was || was != 2 {
		t.Errorf("%d steps, then %d without a session", was, n)
	}
	third.letGo()
}

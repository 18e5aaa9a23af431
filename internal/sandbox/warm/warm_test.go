package warm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// host is a runtime whose sandboxes are entries of a table.
type host struct {
	mu    sync.Mutex
	n     int
	alive map[string]*fake
	fail  error
}

func (h *host) Capabilities(context.Context) sandbox.Capabilities {
	return sandbox.Capabilities{Runtime: "fake"}
}

func (h *host) Recover(context.Context, string) (sandbox.Sandbox, error) {
	return nil, errors.New("no")
}

func (h *host) List(context.Context) ([]sandbox.Handle, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []sandbox.Handle
	for _, f := range h.alive {
		out = append(out, f.handle)
	}
	return out, nil
}

func (h *host) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	select {
	case <-time.After(h.takes(spec)):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fail != nil {
		return nil, h.fail
	}
	h.n++
	f := &fake{h: h, spec: spec, handle: sandbox.Handle{ID: fmt.Sprint(h.n), Task: spec.Task, Purpose: spec.Purpose}}
	h.alive[f.handle.ID] = f
	return f, nil
}

// takes is how long starting one takes: a second, or what its environment says.
func (h *host) takes(spec sandbox.Spec) time.Duration {
	for _, e := range spec.Env {
		if d, err := time.ParseDuration(strings.TrimPrefix(e, "TAKES=")); err == nil {
			return d
		}
	}
	return time.Second
}

func (h *host) purposes() []string {
	all, _ := h.List(context.Background())
	var out []string
	for _, s := range all {
		out = append(out, s.Purpose)
	}
	slices.Sort(out)
	return out
}

type fake struct {
	h      *host
	spec   sandbox.Spec
	handle sandbox.Handle
	got    []sandbox.File
	dead   bool
}

func (f *fake) Handle() sandbox.Handle { return f.handle }
func (f *fake) Info() sandbox.Info     { return sandbox.Info{Ready: time.Second} }
func (f *fake) Guest() *guest.Client   { return nil }
func (f *fake) Held() (int64, error)   { return 10, nil }
func (f *fake) Export(context.Context, sandbox.ExportLimits) (sandbox.Manifest, error) {
	return sandbox.Manifest{}, nil
}

func (f *fake) Adopt(_ context.Context, a sandbox.Adoption) error {
	f.h.mu.Lock()
	defer f.h.mu.Unlock()
	if f.dead {
		return errors.New("dead")
	}
	f.handle.Task, f.handle.Purpose, f.got = a.Task, a.Purpose, a.Files
	return nil
}

func (f *fake) Destroy(context.Context) error {
	f.h.mu.Lock()
	defer f.h.mu.Unlock()
	delete(f.h.alive, f.handle.ID)
	return nil
}

type lab struct {
	*Pool
	h     *host
	holds int
	gone  bool // what sandboxes stand on cannot be held
}

// inBubble runs f with a pool in a bubble of time.
func inBubble(t *testing.T, count int, f func(t *testing.T, l *lab, spec sandbox.Spec)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := &lab{h: &host{alive: map[string]*fake{}}}
		l.Pool = New(Config{
			Runtime: l.h, Dir: filepath.Join(dir, "warm"), Count: count, Memory: 35, Idle: 15 * time.Minute, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
			Hold: func(context.Context, []string) (func(), bool) {
				l.h.mu.Lock()
				defer l.h.mu.Unlock()
				l.holds++
				return func() { l.h.mu.Lock(); l.holds--; l.h.mu.Unlock() }, !l.gone
			},
		})
		f(t, l, sandbox.Spec{Task: "t1", Purpose: "green", Tree: dir, Env: []string{"A=1"}})
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for _, p := range l.h.purposes() {
			if p == Purpose {
				t.Error("a ready sandbox outlived its pool")
			}
		}
	})
}

func (l *lab) start(t *testing.T, spec sandbox.Spec) (sandbox.Sandbox, time.Duration) {
	t.Helper()
	began := time.Now()
	b, err := l.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if h := b.Handle(); h.Task != spec.Task || h.Purpose != spec.Purpose {
		t.Errorf("%+v, asked for %s of %s", h, spec.Purpose, spec.Task)
	}
	return b, time.Since(began)
}

func TestTheSecondIsReady(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, l *lab, spec sandbox.Spec) {
		_, cold := l.start(t, spec)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		spec.Task, spec.Purpose = "t2", "agent" // whoever asks, for whatever
		b, warm := l.start(t, spec)
		if cold != time.Second || warm != 0 || b.Info().Ready != 0 {
			t.Errorf("%s, then %s", cold, warm)
		}
		s := l.Stats()
		if s.Claimed != 1 || s.Missed != 1 || s.Refill != time.Second {
			t.Errorf("%+v", s)
		}
		other := spec
		other.Task, other.Env = "t3", []string{"A=2"}
		time.Sleep(time.Second)
		l.start(t, other)
		k := l.Stats().Kinds
		if len(k) != 2 || k[0].Task != "t3" || k[0].Missed != 1 || k[0].Claimed != 0 || k[1].Task != "t2" || k[1].Missed != 1 || k[1].Claimed != 1 || k[1].Refill != time.Second ||
			!k[0].Asked.After(k[1].Asked) {
			t.Errorf("%+v", k)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if s := l.Stats(); s.Ready != 2 || s.Memory != 20 || s.Kinds[0].Ready != 1 || s.Kinds[1].Ready != 1 {
			t.Errorf("the next ones are not ready: %+v", s)
		}
		if err := b.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l.holds != 2 {
			t.Errorf("%d holds: each ready one has one", l.holds)
		}
	})
}

func TestEachIsHandedOutOnce(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, l *lab, spec sandbox.Spec) {
		var mu sync.Mutex
		seen := map[string]int{}
		for range 4 {
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() {
					b, err := l.Start(t.Context(), spec)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					seen[b.Handle().ID]++
					mu.Unlock()
				})
			}
			wg.Wait()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if s := l.Stats(); s.Ready > 3 || s.Memory > 35 {
				t.Errorf("over its bounds: %+v", s)
			}
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("%s was handed out %d times", id, n)
			}
		}
		if len(seen) != 20 || l.Stats().Claimed == 0 {
			t.Errorf("%d sandboxes, %+v", len(seen), l.Stats())
		}
	})
}

// What differs in anything but its task, or stands on another directory of the same name, is
// started afresh.
func TestOnlyTheVerySame(t *testing.T) {
	other := t.TempDir()
	inBubble(t, 4, func(t *testing.T, l *lab, spec sandbox.Spec) {
		tree := filepath.Join(other, "tree")
		if err := os.Mkdir(tree, 0o755); err != nil {
			t.Fatal(err)
		}
		spec.Tree = tree
		l.start(t, spec)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for name, change := range map[string]func(*sandbox.Spec){
			"environment": func(s *sandbox.Spec) { s.Env = []string{"A=2"} },
			"layers":      func(s *sandbox.Spec) { s.Work.Lower = []string{other} },
			"limits":      func(s *sandbox.Spec) { s.Limits.Memory = 7 },
			"mounts":      func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Source: other, Target: "/mnt/x"}} },
			"kept":        func(s *sandbox.Spec) { s.Home.Keep = "/y" },
			"wall":        func(s *sandbox.Spec) { s.Limits.Wall = time.Hour },
			"once":        func(s *sandbox.Spec) { s.Once = true },
			"files":       func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "/etc/x", Text: []byte("1")}} },
			"own files":   func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "/etc/x", Own: true}} },
		} {
			s := spec
			change(&s)
			if _, took := l.start(t, s); took != time.Second {
				t.Errorf("%s: a ready one was taken", name)
			}
		}
		if err := os.Rename(tree, tree+".old"); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(tree, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, took := l.start(t, spec); took != time.Second {
			t.Error("of a tree that was made anew: a ready one was taken")
		}
	})
}

// What is in a sandbox's own files comes with its owner, and nothing of it is in one that waits.
func TestOwnFilesComeLast(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, l *lab, spec sandbox.Spec) {
		for i := range 4 {
			spec.Files = []sandbox.File{
				{Path: "/etc/all", Text: []byte("all")}, {Path: "/etc/cert", Text: fmt.Append(nil, "secret ", i), Own: true}, {Path: "/etc/key", Text: fmt.Append(nil, i), Own: true},
			}
			b, took := l.start(t, spec)
			if i > 0 {
				f := b.(*box).Ready.(*fake)
				if took != 0 || !b.Info().Stood || len(f.got) != 2 || string(f.got[0].Text) != fmt.Sprint("secret ", i) || f.got[1].Path != "/etc/key" {
					t.Errorf("%d: %s, %+v", i, took, f.got)
				}
				if f.spec.Files[1].Text != nil || f.spec.Files[2].Text != nil || string(f.spec.Files[0].Text) != "all" {
					t.Errorf("it was started with %+v", f.spec.Files)
				}
			}
			time.Sleep(5 * time.Second)
			synctest.Wait()
		}
		if s := l.Stats(); s.Missed != 1 || s.Claimed != 3 || s.Waited != (Waited{Missed: time.Second}) {
			t.Errorf("%+v", s)
		}
	})
}

// What is asked for once takes no place.
func TestOnceIsNotKept(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, l *lab, spec sandbox.Spec) {
		spec.Once = true
		l.start(t, spec)
		l.Expect(spec)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if l.h.n != 1 {
			t.Errorf("%d were started", l.h.n)
		}
	})
}

// commits are specs of a repository, each on a commit of its own.
func commits(t *testing.T, spec sandbox.Spec, n int) (out []sandbox.Spec) {
	t.Helper()
	spec.Group = "/repositories/1"
	for i := range n {
		spec.Tree = filepath.Join(spec.Tree, fmt.Sprint(i))
		if err := os.MkdirAll(spec.Tree, 0o755); err != nil {
			t.Fatal(err)
		}
		out = append(out, spec)
	}
	return out
}

// Who says what will be asked for finds it ready, the first time too.
func TestExpected(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, l *lab, spec sandbox.Spec) {
		for i, s := range commits(t, spec, 3) {
			s.Files = []sandbox.File{{Path: "/etc/cert", Own: true}}
			l.Expect(s)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			s.Files = []sandbox.File{{Path: "/etc/cert", Own: true, Text: fmt.Append(nil, i)}}
			if b, took := l.start(t, s); took != 0 || !b.Info().Stood {
				t.Errorf("commit %d: %s", i, took)
			}
		}
		if s := l.Stats(); s.Missed != 0 || s.Claimed != 3 {
			t.Errorf("%+v", s)
		}
	})
}

// A repository's newest commit has as many as the repository needs; what was wanted once on an
// earlier one is over, unless somebody still says that it comes.
func TestSizedByTheRepository(t *testing.T) {
	inBubble(t, 16, func(t *testing.T, l *lab, spec sandbox.Spec) {
		l.cfg.Memory = 1000
		all := commits(t, spec, 62)
		for _, s := range all[:60] { // two a second, each on another commit
			time.Sleep(500 * time.Millisecond)
			l.start(t, s) // takes a second
		}
		l.Expect(all[60])
		time.Sleep(10 * time.Second)
		synctest.Wait()
		// 60 in ten minutes, a second each: 0.1 on the average, at most one in 99 of 100 cases.
		if s := l.Stats(); s.Ready != 2 || s.Kinds[0].Ready != 2 {
			t.Errorf("%+v", s)
		}
		l.Expect(all[61])
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s := l.Stats(); s.Ready != 3 || s.Kinds[0].Ready != 2 || s.Kinds[1].Ready != 1 {
			t.Errorf("%+v", s)
		}
		if _, took := l.start(t, all[60]); took != 0 {
			t.Error("the one that was expected first is gone")
		}
	})
}

func TestADeadOneIsReplaced(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, l *lab, spec sandbox.Spec) {
		l.start(t, spec)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		l.h.mu.Lock()
		for _, f := range l.h.alive {
			f.dead = f.handle.Purpose == Purpose
		}
		l.h.mu.Unlock()
		if _, took := l.start(t, spec); took != time.Second {
			t.Errorf("%s", took)
		}
		if s := l.Stats(); s.Discarded != 1 || s.Claimed != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// What nobody asks for goes; what is asked for now takes the place of what was asked for before.
func TestRoomIsForTheLatest(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, l *lab, spec sandbox.Spec) {
		l.start(t, spec)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		later := spec
		later.Env = []string{"A=2"}
		l.start(t, later)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if _, took := l.start(t, later); took != 0 {
			t.Error("the latest is not ready")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := l.Stats(); s.Ready != 0 || l.holds != 1 { // of the one that was handed out
			t.Errorf("%+v, %d holds", s, l.holds)
		}
	})
}

func TestTroubleIsNotRepeated(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, l *lab, spec sandbox.Spec) {
		l.start(t, spec)
		l.h.mu.Lock()
		l.gone = true
		l.h.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := l.Stats(); s.Ready > 1 {
			t.Errorf("%+v", s)
		}
	})
}

// Where a forward leads is the task's; that there is one, and at which port, is the sandbox's.
func TestKeysOfForwards(t *testing.T) {
	spec := sandbox.Spec{Tree: t.TempDir()}
	var got []string
	for _, f := range [][]sandbox.Forward{nil, {{Socket: "/a", Port: 2000}}, {{Socket: "/b", Port: 2000}}, {{Socket: "/a", Port: 2001}}} {
		spec.Forwards = f
		key, _, err := keys(spec)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, key)
	}
	if got[1] != got[2] || got[0] == got[1] || got[1] == got[3] {
		t.Errorf("%q", got)
	}
}

// Who asks at random waits in at most one of a hundred cases, however often that is.
func TestHardlyAnybodyWaits(t *testing.T) {
	for _, every := range []time.Duration{time.Minute, 30 * time.Second, 10 * time.Second, 5 * time.Second, 2 * time.Second} {
		t.Run(every.String(), func(t *testing.T) {
			inBubble(t, 4, func(t *testing.T, l *lab, spec sandbox.Spec) {
				l.cfg.Memory = 1 << 20
				random := rand.New(rand.NewPCG(1, uint64(every)))
				const arrivals = 4000
				for range arrivals {
					time.Sleep(time.Duration(random.ExpFloat64() * float64(every)))
					go func() {
						b, err := l.Start(t.Context(), spec)
						if err != nil {
							t.Error(err)
							return
						}
						if err := b.Destroy(t.Context()); err != nil {
							t.Error(err)
						}
					}()
				}
				time.Sleep(5 * time.Second)
				synctest.Wait()
				s := l.Stats()
				t.Logf("%.2f %% waited", 100*float64(s.Missed)/arrivals)
				if s.Claimed+s.Missed != arrivals || s.Missed > arrivals/100 || s.Waited.Claimed != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// How many wait follows from how long their own start takes, and they are started beside one another.
func TestOwnStartsCount(t *testing.T) {
	inBubble(t, 16, func(t *testing.T, l *lab, spec sandbox.Spec) {
		l.cfg.Memory = 1000
		slow := spec
		slow.Env = []string{"TAKES=1m"}
		for range 60 {
			l.start(t, spec)
			time.Sleep(9 * time.Second)
		}
		l.start(t, slow)
		began := time.Now()
		for range 3 {
			go func() { _, _ = l.Start(t.Context(), slow) }()
		}
		time.Sleep(61 * time.Second)
		synctest.Wait()
		s := l.Stats()
		if s.Kinds[0].Refill != time.Minute || s.Kinds[0].Ready != 2+1 || s.Kinds[1].Refill != time.Second || s.Kinds[1].Ready != 1+1 {
			t.Errorf("after %s: %+v", time.Since(began), s)
		}
	})
}

func TestQuantile(t *testing.T) {
	// P(N ≤ n) of a Poisson variable, from the usual tables.
	for mean, want := range map[float64]int{0: 0, 0.01: 0, 0.1: 1, 1: 4, 5: 11, 10: 18} {
		if got := quantile(mean, 0.99); got != want {
			t.Errorf("%v: %d, want %d", mean, got, want)
		}
	}
	if n := quantile(1e9, 0.99); n > 1001 {
		t.Error(n)
	}
}

func TestRelay(t *testing.T) {
	dir := t.TempDir()
	b := &box{pool: &Pool{cfg: Config{Logger: slog.New(slog.DiscardHandler)}}, release: func() {}}
	spec := sandbox.Spec{Forwards: []sandbox.Forward{{Port: 2000}}}
	if err := b.listen(filepath.Join(dir, "w"), &spec); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(spec.Forwards[0].Socket); err != nil || fi.Mode().Perm() != 0o666 {
		t.Errorf("%v %v", fi, err)
	}
	dial := func() *net.UnixConn {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: spec.Forwards[0].Socket})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	early := dial()
	if n, err := early.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("before it leads anywhere: %d %v", n, err)
	}
	to := filepath.Join(dir, "to")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: to})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(c).ReadString('\n')
			_, _ = c.Write([]byte("heard " + line))
			_ = c.Close()
		}
	}()
	b.relays[0].connect(to)
	c := dial()
	if _, err := c.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	if got, err := bufio.NewReader(c).ReadString('\n'); err != nil || got != "heard hello\n" {
		t.Errorf("%q %v", got, err)
	}
	open := dial() // is hung up on at the end
	b.close()
	if _, err := open.Read(make([]byte, 1)); err == nil {
		t.Error("still connected")
	}
	if left, err := os.ReadDir(filepath.Join(dir, "w")); err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
	_ = ln.Close()
}

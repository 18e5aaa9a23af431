// Package warm keeps sandboxes ready: started, without a task, for the specifications that were
// asked for lately, and for those that somebody said will be. It is a decorator of a sandbox runtime.
//
// Invariants: who asks gets a sandbox of exactly the specification asked for, started from the
// very same directories, in which no command ever ran; a ready one is handed out once, to one
// caller, and never comes back; until then it has nothing of a task, neither where its forwards
// lead nor the texts of its own files; what cannot be promised that for is started afresh; ready
// ones belong to no task, so that the collector takes them when their process is gone; what they
// stand on is held while they wait.
package warm

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// Purpose is that of ready sandboxes in their handles.
const Purpose = "ready"

// Config of a [Pool]. All fields are required but Hold.
type Config struct {
	Runtime sandbox.Runtime
	Dir     string        // short path to a directory of ours for sockets; made when missing
	Count   int           // most ready sandboxes at once; 0: none
	Memory  int64         // bytes that all of them may take
	Idle    time.Duration // how long one waits for somebody to ask
	// Hold keeps the host directories that a sandbox stands on until release is called; ok is
	// false when one is gone. May be nil.
	Hold   func(ctx context.Context, dirs []string) (release func(), ok bool)
	Now    func() time.Time
	Logger *slog.Logger
}

// Stats is what a pool did since it was made.
type Stats struct {
	Ready     int           // that wait now
	Memory    int64         // bytes that those took when they were started
	Claimed   int           // handed out
	Missed    int           // asked for, of a kind that is kept ready, while none was
	Waited    Waited        // by those who asked
	Discarded int           // ended without having been handed out
	Refill    time.Duration // that starting one takes: a moving average
	Kinds     []KindStats   // that were asked for lately, by who asked last
}

// Waited is how long all who asked waited, summed up.
type Waited struct {
	Claimed, Missed time.Duration
}

// KindStats is what a pool did for one specification since it was first asked for.
type KindStats struct {
	Task                   string    // that asked last
	Asked                  time.Time // or was said to be about to ask
	Ready, Claimed, Missed int
	Refill                 time.Duration
}

// Pool implements [sandbox.Runtime].
type Pool struct {
	cfg Config

	mu       sync.Mutex
	kinds    map[string]*kind   // by key
	families map[string]*family // by their own key
	each     int64              // bytes that one took when it was started; 0 before the first
	stats    Stats
	closed   bool

	wake    chan struct{}
	stop    context.CancelFunc
	done    chan struct{}
	running sync.WaitGroup // starts of ready ones
}

var (
	_ sandbox.Runtime  = (*Pool)(nil)
	_ sandbox.Expecter = (*Pool)(nil)
)

// together is how many ready sandboxes are started at once at most: a start takes a processor.
const together = 4

// New starts to keep sandboxes ready. Close ends it.
func New(cfg Config) *Pool {
	ctx, stop := context.WithCancel(context.Background())
	p := &Pool{
		cfg: cfg, kinds: map[string]*kind{}, families: map[string]*family{}, wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{}),
	}
	go p.fill(ctx)
	return p
}

// Capabilities implements [sandbox.Runtime].
func (p *Pool) Capabilities(ctx context.Context) sandbox.Capabilities {
	return p.cfg.Runtime.Capabilities(ctx)
}

// Recover implements [sandbox.Runtime].
func (p *Pool) Recover(ctx context.Context, id string) (sandbox.Sandbox, error) {
	return p.cfg.Runtime.Recover(ctx, id)
}

// List implements [sandbox.Runtime].
func (p *Pool) List(ctx context.Context) ([]sandbox.Handle, error) { return p.cfg.Runtime.List(ctx) }

// Start implements [sandbox.Runtime]. [sandbox.Info.Ready] of one that was ready is how long
// handing it out took.
func (p *Pool) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	began := p.cfg.Now()
	key, family, ok := p.kept(spec)
	if !ok {
		return p.cfg.Runtime.Start(ctx, spec)
	}
	for b := p.claim(key, family, spec); b != nil; b = p.again(key) {
		err := b.give(ctx, spec)
		if err == nil {
			took := p.cfg.Now().Sub(began)
			p.count(key, func(s *Stats, k *KindStats) {
				s.Claimed, k.Claimed = s.Claimed+1, k.Claimed+1
				s.Waited.Claimed += took
			})
			b.info.Ready, b.info.Stood = took, true
			return b, nil
		}
		p.cfg.Logger.WarnContext(ctx, "a ready sandbox was of no use", "id", b.Handle().ID, "error", err)
		_ = p.discard(context.WithoutCancel(ctx), b) // it is in the log
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	box, err := p.cfg.Runtime.Start(ctx, spec)
	took := p.cfg.Now().Sub(began)
	p.count(key, func(s *Stats, k *KindStats) {
		s.Missed, k.Missed = s.Missed+1, k.Missed+1
		s.Waited.Missed += took
	})
	if err == nil {
		p.took(key, took)
	}
	return box, err
}

// Expect implements [sandbox.Expecter].
func (p *Pool) Expect(spec sandbox.Spec) {
	key, family, ok := p.kept(spec)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	k := p.know(key, family, spec)
	now := p.cfg.Now()
	k.expected, k.stats.Task, k.stats.Asked = now, spec.Task, now
	p.nudge()
}

// kept reports whether sandboxes of the spec are kept ready, and names it.
func (p *Pool) kept(spec sandbox.Spec) (key, family string, ok bool) {
	if p.cfg.Count <= 0 || !poolable(spec) {
		return "", "", false
	}
	key, family, err := keys(spec)
	return key, family, err == nil // of a directory that is not there the runtime says which
}

// claim notes the arrival and takes a ready sandbox, nil when there is none.
func (p *Pool) claim(key, family string, spec sandbox.Spec) *box {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	k, now := p.know(key, family, spec), p.cfg.Now()
	f := p.families[family]
	k.asked, f.asked, k.expected = append(k.asked, now), append(f.asked, now), time.Time{}
	k.stats.Task, k.stats.Asked = spec.Task, now
	p.nudge()
	return k.pop()
}

func (p *Pool) again(key string) *box {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.kinds[key]; k != nil {
		return k.pop()
	}
	return nil
}

func (p *Pool) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// count changes the statistics of the pool and of one kind; of none when it is no longer kept.
func (p *Pool) count(key string, f func(*Stats, *KindStats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := &KindStats{}
	if kind := p.kinds[key]; kind != nil {
		k = &kind.stats
	}
	f(&p.stats, k)
}

// took keeps the averages of how long a start takes.
func (p *Pool) took(key string, d time.Duration) {
	p.count(key, func(s *Stats, k *KindStats) {
		for _, avg := range []*time.Duration{&s.Refill, &k.Refill} {
			if *avg == 0 {
				*avg = d
			}
			*avg += (d - *avg) / 4
		}
	})
}

// Stats says what the pool did and has.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	for _, k := range p.kinds {
		ks := k.stats
		for _, b := range k.ready {
			ks.Ready++
			s.Ready++
			s.Memory += b.memory
		}
		s.Kinds = append(s.Kinds, ks)
	}
	slices.SortFunc(s.Kinds, func(a, b KindStats) int { return b.Asked.Compare(a.Asked) })
	return s
}

// Close ends every ready sandbox; those that were handed out stay.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
	<-p.done
	var errs []error
	for {
		b := p.surplus(true)
		if b == nil {
			return errors.Join(errs...)
		}
		errs = append(errs, p.discard(ctx, b))
	}
}

// fill starts what is missing and ends what is too much, until ctx ends.
func (p *Pool) fill(ctx context.Context) {
	defer close(p.done)
	defer p.running.Wait()
	look := time.NewTicker(max(p.cfg.Idle/4, time.Second))
	defer look.Stop()
	for {
		p.balance(ctx)
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-look.C:
		}
	}
}

// balance begins to make the pool what it should be now.
func (p *Pool) balance(ctx context.Context) {
	for ctx.Err() == nil {
		b := p.surplus(false)
		if b == nil {
			break
		}
		_ = p.discard(context.WithoutCancel(ctx), b) // it is in the log
	}
	for ctx.Err() == nil {
		key, spec, ok, old := p.lacking()
		if old != nil {
			_ = p.discard(context.WithoutCancel(ctx), old)
			continue
		}
		if !ok {
			return
		}
		p.running.Go(func() {
			b, err := p.make(ctx, key, spec)
			if !p.put(ctx, key, b, err) && b != nil {
				_ = p.discard(context.WithoutCancel(ctx), b)
			}
			p.nudge() // another may begin
		})
	}
}

// make starts one.
func (p *Pool) make(ctx context.Context, key string, spec sandbox.Spec) (*box, error) {
	began := p.cfg.Now()
	release := func() {}
	if p.cfg.Hold != nil {
		var ok bool
		if release, ok = p.cfg.Hold(ctx, stands(spec)); !ok {
			return nil, errors.New("what it stands on is gone")
		}
	}
	b := &box{pool: p, release: release}
	err := b.listen(p.cfg.Dir, &spec)
	if err == nil {
		var inner sandbox.Sandbox
		if inner, err = p.cfg.Runtime.Start(ctx, spec); err == nil {
			var ok bool
			if b.Ready, ok = inner.(sandbox.Ready); !ok {
				err = errors.Join(errors.New("the runtime cannot hand sandboxes over"), inner.Destroy(context.WithoutCancel(ctx)))
			}
		}
	}
	if err != nil {
		b.close()
		return nil, err
	}
	b.info = b.Ready.Info()
	if b.memory, err = b.Ready.Held(); err != nil {
		b.memory = 32 << 20 // more than one takes
	}
	p.took(key, p.cfg.Now().Sub(began))
	return b, nil
}

// put keeps what was made, and reports whether it did.
func (p *Pool) put(ctx context.Context, key string, b *box, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kinds[key] // it is there: one was being made
	k.making--
	if err != nil {
		k.broken = true
		if ctx.Err() == nil {
			p.cfg.Logger.Warn("no sandbox can be made ready", "error", err)
		}
		return false
	}
	p.each = b.memory
	if p.closed {
		return false
	}
	k.ready = append(k.ready, b)
	return true
}

func (p *Pool) discard(ctx context.Context, b *box) error {
	p.count("", func(s *Stats, _ *KindStats) { s.Discarded++ })
	err := b.Destroy(ctx)
	if err != nil {
		p.cfg.Logger.ErrorContext(ctx, "a ready sandbox could not be ended", "id", b.Handle().ID, "error", err)
	}
	return err
}

// box is a sandbox that was started before anybody asked.
type box struct {
	sandbox.Ready
	pool    *Pool
	info    sandbox.Info
	memory  int64
	relays  []*relay
	dir     string
	release func()
	once    sync.Once
}

// Info implements [sandbox.Sandbox].
func (b *box) Info() sandbox.Info { return b.info }

// give makes it the caller's.
func (b *box) give(ctx context.Context, spec sandbox.Spec) error {
	for i, f := range spec.Forwards {
		b.relays[i].connect(f.Socket)
	}
	return b.Adopt(ctx, sandbox.Adoption{Task: spec.Task, Purpose: spec.Purpose, Files: ownFiles(spec)})
}

// Destroy implements [sandbox.Sandbox].
func (b *box) Destroy(ctx context.Context) error {
	if err := b.Ready.Destroy(ctx); err != nil {
		return err
	}
	b.close()
	return nil
}

func (b *box) close() {
	b.once.Do(func() {
		b.unlisten()
		b.release()
	})
}

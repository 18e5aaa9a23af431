// Package warm keeps sandboxes ready: started, without a task, for the specifications that were
// asked for lately. It is a decorator of a sandbox runtime.
//
// Invariants: who asks gets a sandbox of exactly the specification asked for, started from the
// very same directories, in which no command ever ran; a ready one is handed out once, to one
// caller, and never comes back; what cannot be promised that for is started afresh; ready ones
// belong to no task, so that the collector takes them when their process is gone; what they stand
// on is held while they wait.
package warm

import (
	"context"
	"errors"
	"log/slog"
	"math"
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
	Discarded int           // ended without having been handed out
	Refill    time.Duration // that starting one takes: a moving average
	Kinds     []KindStats   // that were asked for lately, by who asked last
}

// KindStats is what a pool did for one specification since it was first asked for.
type KindStats struct {
	Task                   string // that asked last
	Asked                  time.Time
	Ready, Claimed, Missed int
	Refill                 time.Duration
}

// Pool implements [sandbox.Runtime].
type Pool struct {
	cfg Config

	mu     sync.Mutex
	kinds  map[string]*kind // by key
	shapes map[string]shape // by key without the text of files
	stats  Stats
	closed bool

	wake chan struct{}
	stop context.CancelFunc
	done chan struct{}
}

var _ sandbox.Runtime = (*Pool)(nil)

// kind is one specification.
type kind struct {
	spec  sandbox.Spec
	ready []*box
	asked []time.Time // lately, oldest first
	stats KindStats
	// broken says that starting one failed: nobody tries again before the next is asked for.
	broken bool
}

// shape remembers whether the files of a specification differ from sandbox to sandbox: then
// nothing can be ready for it.
type shape struct {
	key    string
	varies bool
}

// window is how far back arrivals are counted.
const window = 10 * time.Minute

// New starts to keep sandboxes ready. Close ends it.
func New(cfg Config) *Pool {
	ctx, stop := context.WithCancel(context.Background())
	p := &Pool{cfg: cfg, kinds: map[string]*kind{}, shapes: map[string]shape{}, wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
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
	if !poolable(spec) {
		return p.cfg.Runtime.Start(ctx, spec)
	}
	key, rough, err := keys(spec)
	if err != nil { // a directory that is not there: the runtime says which
		return p.cfg.Runtime.Start(ctx, spec)
	}
	for b := p.claim(key, rough, spec); b != nil; b = p.again(key) {
		err := b.give(ctx, spec)
		if err == nil {
			p.count(key, func(s *Stats, k *KindStats) { s.Claimed, k.Claimed = s.Claimed+1, k.Claimed+1 })
			b.info.Ready = p.cfg.Now().Sub(began)
			return b, nil
		}
		p.cfg.Logger.WarnContext(ctx, "a ready sandbox was of no use", "id", b.Handle().ID, "error", err)
		p.discard(context.WithoutCancel(ctx), b)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	p.count(key, func(s *Stats, k *KindStats) { s.Missed, k.Missed = s.Missed+1, k.Missed+1 })
	box, err := p.cfg.Runtime.Start(ctx, spec)
	if err == nil {
		p.took(key, p.cfg.Now().Sub(began))
	}
	return box, err
}

// claim notes the arrival and takes a ready sandbox, nil when there is none.
func (p *Pool) claim(key, rough string, spec sandbox.Spec) *box {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	if s, known := p.shapes[rough]; known && s.key != key {
		p.shapes[rough] = shape{key, true}
	} else if !known {
		p.shapes[rough] = shape{key: key}
	}
	if p.closed || p.cfg.Count <= 0 || p.shapes[rough].varies {
		return nil
	}
	k := p.kinds[key]
	if k == nil {
		k = &kind{spec: plain(spec)}
		p.kinds[key] = k
	}
	k.asked, k.broken = append(k.asked, now), false
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

func (k *kind) pop() *box {
	if len(k.ready) == 0 {
		return nil
	}
	b := k.ready[0]
	k.ready = k.ready[1:]
	return b
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
		b := p.surplus(func(*kind, int) bool { return true })
		if b == nil {
			return errors.Join(errs...)
		}
		errs = append(errs, p.discard(ctx, b))
	}
}

// fill starts what is missing and ends what is too much, until ctx ends.
func (p *Pool) fill(ctx context.Context) {
	defer close(p.done)
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

// balance makes the pool what it should be now.
func (p *Pool) balance(ctx context.Context) {
	for ctx.Err() == nil {
		now := p.cfg.Now()
		b := p.surplus(func(k *kind, n int) bool { return n > p.target(k, now) })
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
		b, err := p.make(ctx, key, spec)
		if !p.put(key, b, err) && b != nil {
			_ = p.discard(context.WithoutCancel(ctx), b)
		}
	}
}

// target is how many of a kind should wait: so many that in 99 of 100 cases no more are asked for
// while the next is started, if they are asked for at random; at least one as long as somebody
// asked lately.
func (p *Pool) target(k *kind, now time.Time) int {
	k.asked = slices.DeleteFunc(k.asked, func(t time.Time) bool { return now.Sub(t) > max(window, p.cfg.Idle) })
	if p.closed || len(k.asked) == 0 || now.Sub(k.asked[len(k.asked)-1]) > p.cfg.Idle {
		return 0
	}
	lately := 0
	for _, t := range k.asked {
		if now.Sub(t) <= window {
			lately++
		}
	}
	return max(1, quantile(float64(lately)/window.Seconds()*p.stats.Refill.Seconds(), 0.99))
}

// quantile is the least n for which a Poisson variable of the mean is at most n with probability
// q. Beyond a mean of 500 it is not asked for.
func quantile(mean, q float64) int {
	mean = min(mean, 500)
	term := math.Exp(-mean)
	for n, sum := 0, term; ; n++ {
		if sum >= q || n > 1000 {
			return n
		}
		term *= mean / float64(n+1)
		sum += term
	}
}

// surplus takes a ready sandbox out of which there are too many.
func (p *Pool) surplus(many func(k *kind, n int) bool) *box {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, k := range p.kinds {
		if len(k.ready) > 0 && many(k, len(k.ready)) {
			return k.pop()
		}
		if len(k.ready) == 0 && p.target(k, p.cfg.Now()) == 0 {
			delete(p.kinds, key)
		}
	}
	if len(p.shapes) > 1024 { // of snapshots that are long gone
		clear(p.shapes)
	}
	return nil
}

// lacking finds the kind that was asked for last of those of which there are too few. Where there
// is no room for one more, old is one to end first: of the kind that was asked for the longest ago.
func (p *Pool) lacking() (key string, spec sandbox.Spec, ok bool, old *box) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, total, memory := p.cfg.Now(), 0, int64(0)
	var best, oldest *kind
	for name, k := range p.kinds {
		for _, b := range k.ready {
			total++
			memory += b.memory
		}
		if len(k.ready) > 0 && (oldest == nil || k.last().Before(oldest.last())) {
			oldest = k
		}
		if k.broken || len(k.ready) >= p.target(k, now) {
			continue
		}
		if best == nil || k.last().After(best.last()) {
			best, key = k, name
		}
	}
	switch {
	case best == nil:
		return "", spec, false, nil
	case total < p.cfg.Count && memory+guess(memory, total) <= p.cfg.Memory:
		return key, best.spec, true, nil
	case oldest != nil && oldest.last().Before(best.last()):
		return "", spec, false, oldest.pop()
	}
	return "", spec, false, nil
}

func (k *kind) last() time.Time {
	if len(k.asked) == 0 {
		return time.Time{}
	}
	return k.asked[len(k.asked)-1]
}

// guess is what one more will take: as much as the others do.
func guess(memory int64, n int) int64 {
	if n == 0 {
		return 0
	}
	return memory / int64(n)
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
func (p *Pool) put(key string, b *box, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kinds[key]
	if err != nil {
		if k != nil {
			k.broken = true
		}
		p.cfg.Logger.Warn("no sandbox can be made ready", "error", err)
		return false
	}
	if k == nil || p.closed {
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
	return b.Adopt(ctx, spec.Task, spec.Purpose)
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

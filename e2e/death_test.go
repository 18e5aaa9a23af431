package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/forge/local"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/worker"
)

var errDead = errors.New("the process is dead")

// life is a process that dies at its nth write to the log, at once and for good: nothing that
// it does afterwards is recorded, and no sandbox of it is ended.
type life struct {
	mu     sync.Mutex
	n      int  // the fatal write, from 1; 0: none
	before bool // dies before the write is stored, not after
	writes [][]event.Kind
	dead   bool
	die    context.CancelFunc
	boxes  []sandbox.Sandbox
}

func (l *life) alive() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return errDead
	}
	return nil
}

// write is one append.
func (l *life) write(drafts []event.Draft, do func() ([]event.Event, error)) ([]event.Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return nil, errDead
	}
	kinds := make([]event.Kind, len(drafts))
	for i, d := range drafts {
		kinds[i] = d.Kind
	}
	l.writes = append(l.writes, kinds)
	fatal := len(l.writes) == l.n
	if fatal {
		l.dead = true
		defer l.die()
		if l.before {
			return nil, errDead
		}
	}
	evs, err := do()
	if fatal && err == nil {
		err = errDead
	}
	return evs, err
}

// mortal is the store as a process that may die sees it.
type mortal struct {
	store.Store
	l *life
}

func (m mortal) Append(ctx context.Context, lease store.Lease, d ...event.Draft) ([]event.Event, error) {
	return m.l.write(d, func() ([]event.Event, error) { return m.Store.Append(context.WithoutCancel(ctx), lease, d...) })
}

func (m mortal) TakeSignals(ctx context.Context, lease store.Lease, ids []string, d ...event.Draft) ([]event.Event, error) {
	return m.l.write(d, func() ([]event.Event, error) {
		return m.Store.TakeSignals(context.WithoutCancel(ctx), lease, ids, d...)
	})
}

func (m mortal) Renew(ctx context.Context, lease store.Lease, ttl time.Duration) (store.Lease, error) {
	if err := m.l.alive(); err != nil {
		return lease, err
	}
	return m.Store.Renew(ctx, lease, ttl)
}

func (m mortal) Release(ctx context.Context, lease store.Lease) error {
	if err := m.l.alive(); err != nil {
		return err
	}
	return m.Store.Release(ctx, lease)
}

// frail is the runtime as that process sees it.
type frail struct {
	sandbox.Runtime
	l *life
}

func (f frail) Start(ctx context.Context, s sandbox.Spec) (sandbox.Sandbox, error) {
	if err := f.l.alive(); err != nil {
		return nil, err
	}
	b, err := f.Runtime.Start(ctx, s)
	if err != nil {
		return nil, err
	}
	f.l.mu.Lock()
	f.l.boxes = append(f.l.boxes, b)
	f.l.mu.Unlock()
	return frailBox{b, f.l}, nil
}

type frailBox struct {
	sandbox.Sandbox
	l *life
}

func (b frailBox) Destroy(ctx context.Context) error {
	if err := b.l.alive(); err != nil {
		return err
	}
	return b.Sandbox.Destroy(ctx)
}

// site is one installation for all deaths: its snapshot and baseline are made once.
type site struct {
	installation
	config config.Config
}

// run takes the task as far as a worker with this life can. id "" makes a new task.
func (s site) run(t *testing.T, owner string, l *life, url string, id task.ID) (task.ID, event.Summary, error) {
	t.Helper()
	ctx, die := context.WithCancel(t.Context())
	defer die()
	l.die = die
	a, err := app.Open(ctx, app.Options{Dir: s.data(), Config: s.config, Getenv: func(string) string { return "" }, BaseURL: url, Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	rt, err := a.Runtime()
	if err != nil {
		t.Fatal(err)
	}
	pulls, err := local.New(local.Config{Dir: s.data(), Git: a.Git})
	if err != nil {
		t.Fatal(err)
	}
	w := worker.New(worker.Config{
		Store: mortal{a.Store, l}, Runtime: frail{rt, l}, Git: a.Git, Snapshots: a.Snapshots, Forge: pulls, Model: a.Model,
		Sandbox: a.SandboxSpec(""), Environment: a.Environment(), AuthorName: "D", AuthorEmail: "d@example.com", MaxOutput: 4000,
		Owner: owner, Dead: func(o string) bool { return o == "first" }, LeaseTTL: time.Minute,
		Now: time.Now, Rand: rand.Reader, Logger: slog.New(slog.DiscardHandler),
	})
	if id == "" {
		issue, err := os.ReadFile(filepath.Join(s.dir, "issue.md"))
		if err != nil {
			t.Fatal(err)
		}
		made, _, err := w.Create(ctx, worker.Request{
			Repo: filepath.Join(s.dir, "shop"), Issue: issue, Model: "anthropic/claude-sonnet-4-5",
			Limits: task.Limits{Steps: 40}, RequestedBy: "ada", Fresh: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		id = made.ID
	}
	sum, err := w.Run(ctx, id)
	return id, sum, err
}

// core is what of a folded log must not depend on where a process died.
type core struct {
	State     task.State
	End       string
	Verdict   task.VerdictKind
	Reason    string
	Tree      string
	Submitted event.Submitted
	Replies   []int // steps with a reply on record
	Title     string
	Files     int
	Opened    int
	Open      int // calls, requests and sandboxes without an end
}

func (s site) core(t *testing.T, id task.ID) core {
	t.Helper()
	a, err := app.Open(t.Context(), app.Options{Dir: s.data(), Config: s.config, Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	events, err := a.Store.Events(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := event.VerifyChain(id, events); err != nil {
		t.Error(err)
	}
	sum, err := event.Fold(events)
	if err != nil {
		t.Fatal(err)
	}
	c := core{State: sum.State, End: sum.Reason, Open: len(sum.Sandboxes) + len(sum.OpenCalls)}
	if sum.OpenRequest != nil {
		c.Open++
	}
	if v := sum.Verification; v != nil {
		c.Verdict, c.Reason = v.Kind, v.Reason
	}
	if sum.Exported != nil && sum.Workspace != nil && sum.Submitted != nil {
		c.Tree, c.Files, c.Submitted = sum.Exported.Tree, sum.Workspace.Files, *sum.Submitted
	}
	for _, e := range events {
		switch p, _ := event.Decode(e); p := p.(type) {
		case *event.ModelResponded:
			c.Replies = append(c.Replies, p.Step)
		case *event.PullRequestOpened:
			c.Opened++
			c.Title = p.Title
		}
	}
	return c
}

// TestDeath_OPS01 lets the process die right after every write to the log, and right before those
// that record what a call or an effect brought; a second worker must come to the same end.
// With DAYBREAK_E2E_ALL set it dies at all of them, else once for each kind of write.
func TestDeath_OPS01(t *testing.T) {
	onRuncAlone(t)
	need(t, "python3")
	files, err := txtar.ParseFile("testdata/kill.txtar")
	if err != nil {
		t.Fatal(err)
	}
	s := site{installation: install(t, files)}
	if s.config, err = config.Load(filepath.Join(s.dir, "daybreak.yaml")); err != nil {
		t.Fatal(err)
	}
	for _, story := range []struct {
		script string
		end    task.State
	}{{"fix.yaml", task.InReview}, {"decline.yaml", task.Declined}} {
		t.Run(story.script, func(t *testing.T) { s.everyWrite(t, story.script, story.end) })
	}
	if left := leftovers(s.data()); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func (s site) everyWrite(t *testing.T, script string, end task.State) {
	var (
		whole *life
		want  core
	)
	for range 2 { // the first makes the baseline, the second finds it
		whole = &life{}
		m := s.serve(t, script)
		id, _, err := s.run(t, "first", whole, m.http.URL, "")
		if err != nil {
			t.Fatal(err)
		}
		if want = s.core(t, id); want.State != end || want.Open != 0 {
			t.Fatalf("the undisturbed run: %+v", want)
		}
	}
	t.Logf("%d writes, %d replies", len(whole.writes), len(want.Replies))
	brings := func(k event.Kind) bool {
		return slices.Contains([]event.Kind{
			event.ModelResponded{}.EventKind(), event.ToolFinished{}.EventKind(), event.EffectDone{}.EventKind(), event.Declined{}.EventKind(),
			event.VerificationFinished{}.EventKind(), event.ReproductionChecked{}.EventKind(), event.PullRequestOpened{}.EventKind(),
		}, k)
	}
	seen := map[string]int{}
	alike := 1 // deaths at writes of the same kinds; verification alone starts eight sandboxes
	if os.Getenv("DAYBREAK_E2E_ALL") != "" {
		alike = len(whole.writes)
	}
	for i, kinds := range whole.writes {
		for _, l := range []*life{{n: i + 1}, {n: i + 1, before: true}} {
			name := fmt.Sprint(map[bool]string{false: "after", true: "before"}[l.before], kinds)
			if seen[name]++; seen[name] > alike || l.before && !slices.ContainsFunc(kinds, brings) {
				continue
			}
			t.Run(fmt.Sprintf("%d_%s", i+1, strings.ReplaceAll(name, " ", "_")), func(t *testing.T) {
				t.Parallel()
				s.dies(t, script, l, want)
			})
		}
	}
}

func (s site) serve(t *testing.T, script string) *modelServer {
	t.Helper()
	m, err := serveModel(filepath.Join(s.dir, script))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	return m
}

// dies runs a task under a life that ends, then a second worker, and compares the end.
func (s site) dies(t *testing.T, script string, l *life, want core) {
	t.Helper()
	m := s.serve(t, script)
	id, _, err := s.run(t, "first", l, m.http.URL, "")
	if !l.dead {
		t.Skipf("the run ended before its write %d: %v", l.n, err)
	}
	_, _, err = s.run(t, "second", &life{}, m.http.URL, id)
	if err != nil {
		t.Errorf("the second run: %v", err)
	}
	for _, b := range l.boxes { // what its death did not get to
		if err := b.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
	got := s.core(t, id)
	got.Submitted.Step = want.Submitted.Step
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("after %v the end differs (-want +got):\n%s", l.writes[len(l.writes)-1], d)
	}
	if err := m.Err(); err != nil {
		t.Error(err)
	}
	again := 0
	for _, n := range m.Requests() {
		again += n - 1
	}
	if again > 1 || again == 1 && !slices.Contains(l.writes[l.n-1], event.ModelResponded{}.EventKind()) && !slices.Contains(l.writes[l.n-1], event.ModelRequested{}.EventKind()) {
		t.Errorf("requests per turn %v", m.Requests())
	}
}

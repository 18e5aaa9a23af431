package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/live"
	"github.com/daybreak-agent/daybreak/internal/mirror"
	"github.com/daybreak-agent/daybreak/internal/model/limit"
	"github.com/daybreak-agent/daybreak/internal/overview"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// board shows the installation as a whole.
func (a *App) board(gate *access.Gate, hub *live.Hub) *overview.Board {
	f := &fleet{a: a, folds: newFolds(a.Store), repos: map[task.ID]string{}}
	return overview.New(overview.Config{Records: a.Store, Gate: gate, Fleet: f.now, Streams: hub.Open, Now: a.Now})
}

// maxFleet is how many unfinished tasks are looked at.
const maxFleet = 2000

// fleet reads what runs and what waits.
type fleet struct {
	a     *App
	folds *folds

	mu    sync.Mutex
	repos map[task.ID]string
}

// now is all of it.
func (f *fleet) now(ctx context.Context) (out overview.Fleet, err error) {
	a, c := f.a, f.a.Config.Serve
	out.Caps = overview.Caps{Total: c.Caps.Total, Repo: c.Caps.Repository, Author: c.Caps.Author}
	ts, err := a.Store.Tasks(ctx, store.Filter{States: []task.State{task.Queued, task.Preparing, task.Working, task.Verifying, task.Publishing}, Limit: maxFleet})
	if err != nil {
		return out, err
	}
	running, models, workers := map[task.ID]bool{}, map[string]bool{}, map[string]int{}
	for _, x := range ts {
		if x.Owner == "" {
			continue
		}
		running[x.ID] = true
		workers[x.Owner]++
		k, err := f.folds.of(ctx, x)
		if err != nil {
			return out, err
		}
		models[k.model] = true
		out.Running = append(out.Running, overview.Running{
			Task: x.ID, Repo: x.Repo, Title: x.Title, State: x.State, Since: k.since, Author: x.Author, Owner: x.Owner, Epoch: x.Epoch, Until: x.Until.UTC(),
		})
		out.Sandboxes = append(out.Sandboxes, k.boxes...)
	}
	f.folds.keep(running)
	if out.Queue, err = f.queue(ctx); err != nil {
		return out, err
	}
	if a.slots > 0 {
		workers[serviceOwner()] += 0
	}
	for _, owner := range slices.Sorted(maps.Keys(workers)) {
		w := overview.Worker{Owner: owner, Tasks: workers[owner], Here: owner == serviceOwner() || owner == Owner()}
		if w.Here {
			w.Slots = a.slots
		}
		out.Workers = append(out.Workers, w)
	}
	models[a.Config.Model] = true
	if out.Limits, err = f.limits(ctx, slices.Sorted(maps.Keys(models))); err != nil {
		return out, err
	}
	f.ready(ctx, &out)
	f.registries(ctx, &out)
	return out, nil
}

// queue is what waits, where this process has the scheduler's store.
func (f *fleet) queue(ctx context.Context) (out []overview.Queued, err error) {
	if f.a.queue == nil {
		return nil, nil
	}
	all, err := f.a.queue.store.Unfinished(ctx)
	if err != nil {
		return nil, err
	}
	for _, x := range all {
		if x.Owner == "" && x.Job != 0 {
			out = append(out, overview.Queued{
				Task: x.ID, Repo: x.Repo, Title: x.Title, State: x.State, Author: x.Author, Priority: x.Priority, Since: x.Updated.UTC(), Due: x.Due.UTC(),
			})
		}
	}
	return out, nil
}

// limits is what providers said of models.
func (f *fleet) limits(ctx context.Context, models []string) (out []overview.Limit, err error) {
	for _, name := range models {
		if name == "" {
			continue
		}
		var value []byte
		looked := false
		err := f.a.Store.Update(ctx, limitKey(name), func(old []byte) ([]byte, error) {
			value, looked = append([]byte{}, old...), true
			return nil, errors.New("only looked at") // so that nothing is written
		})
		if !looked {
			return out, err
		}
		if !json.Valid(value) {
			continue
		}
		l := overview.Limit{Model: name, Value: value, Meters: []overview.Meter{}}
		known, blocked := limit.Known(value, f.a.Now())
		for _, k := range known {
			l.Meters = append(l.Meters, overview.Meter{Name: k.Name, Most: int64(k.Limit), Left: int64(k.Left), Gains: int64(k.Minute)})
		}
		l.Blocked = blocked.UTC()
		out = append(out, l)
	}
	return out, nil
}

// ready adds the sandboxes that this process keeps ready, by the repository of who asked last.
func (f *fleet) ready(ctx context.Context, out *overview.Fleet) {
	if f.a.ready == nil {
		return
	}
	s := f.a.ready.Stats()
	out.Ready.Sums = &overview.ReadySums{
		Waiting: s.Ready, Most: f.a.Config.Serve.Warm.Count, Memory: s.Memory, Claimed: s.Claimed, Missed: s.Missed, Discarded: s.Discarded, Refill: s.Refill.Milliseconds(),
	}
	at := map[string]int{}
	for _, k := range s.Kinds { // who asked last comes first
		repo := f.repo(ctx, task.ID(k.Task))
		i, ok := at[repo]
		if !ok {
			i = len(out.Ready.Repos)
			at[repo] = i
			out.Ready.Repos = append(out.Ready.Repos, overview.ReadyRepo{Repo: repo, Asked: k.Asked.UTC()})
		}
		r := &out.Ready.Repos[i]
		r.Waiting, r.Claimed, r.Missed, r.Refill = r.Waiting+k.Ready, r.Claimed+k.Claimed, r.Missed+k.Missed, max(r.Refill, k.Refill.Milliseconds())
	}
}

// patience with the mirror's process, which answers from memory.
const mirrorPatience = time.Second

// registries adds what sandboxes asked through this process's mirror.
func (f *fleet) registries(ctx context.Context, out *overview.Fleet) {
	k := f.a.mirror
	if k == nil {
		return
	}
	for _, e := range f.a.asked.all() {
		out.Registries.Recent = append(out.Registries.Recent, overview.Asked{
			At: e.Time.UTC(), Task: e.Task, Repo: f.repo(ctx, e.Task), Ecosystem: string(e.Ecosystem), Name: e.Name, Version: e.Version, New: e.New, Refused: string(e.Refused),
		})
	}
	ctx, cancel := context.WithTimeout(ctx, mirrorPatience)
	defer cancel()
	n, ok := k.Counts(ctx)
	if !ok {
		return
	}
	sums := &overview.RegistrySums{
		Upstreams: []string{}, Served: n.Served, Stored: n.Stored, Refused: n.Refused, Fetches: n.Fetches, BytesOut: n.BytesOut, BytesIn: n.BytesIn,
	}
	if set, err := k.Configured(ctx); err == nil { // it was asked before the process began
		sums.Upstreams = append(sums.Upstreams, upstreams(set)...)
	}
	out.Registries.Sums = sums
}

// maxRepos bounds the tasks whose repositories are remembered.
const maxRepos = 4096

// repo is a task's repository, "" for what is no task of the store.
func (f *fleet) repo(ctx context.Context, id task.ID) string {
	f.mu.Lock()
	repo, ok := f.repos[id]
	f.mu.Unlock()
	if ok || !id.Valid() {
		return repo
	}
	t, err := f.a.Store.Task(ctx, id)
	if err != nil {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.repos) >= maxRepos {
		clear(f.repos)
	}
	f.repos[id] = t.Repo
	return t.Repo
}

// maxRecent is how many lines of the mirror's ledger are kept for looking at.
const maxRecent = 40

// recent are the newest lines of the ledger that this process recorded: each name the first time a
// sandbox asks for it, and each refusal. It is safe for concurrent use.
type recent struct {
	mu      sync.Mutex
	entries []mirror.Entry // oldest first
}

func (r *recent) add(es []mirror.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = append(r.entries, es...)
	r.entries = slices.Clone(r.entries[max(0, len(r.entries)-maxRecent):])
}

// all returns the lines, newest first.
func (r *recent) all() []mirror.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.entries)
	slices.Reverse(out)
	return out
}

// folds are the summaries of running tasks, each folded on from where it was.
type folds struct {
	st store.Store

	mu  sync.Mutex
	all map[task.ID]*folded
}

// folded is a task's log as far as it was read.
type folded struct {
	sum   event.Summary
	since time.Time            // it is in its state
	began map[string]time.Time // sandboxes, by id
}

// fold is what the fleet shows of one.
type fold struct {
	model string
	since time.Time
	boxes []overview.Sandbox
}

func newFolds(st store.Store) *folds { return &folds{st: st, all: map[task.ID]*folded{}} }

func (f *folds) of(ctx context.Context, t store.Task) (fold, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.all[t.ID]
	if k == nil {
		k = &folded{began: map[string]time.Time{}}
	}
	events, err := f.st.Events(ctx, t.ID, k.sum.LastSeq, 0)
	if err != nil {
		return fold{}, err
	}
	for _, e := range events {
		if err := k.take(e); err != nil {
			delete(f.all, t.ID)
			return fold{}, err
		}
	}
	f.all[t.ID] = k
	out := fold{model: k.sum.Created.Model, since: k.since.UTC()}
	for _, b := range k.sum.Sandboxes {
		out.boxes = append(out.boxes, overview.Sandbox{
			Task: t.ID, Repo: t.Repo, ID: b.ID, Purpose: b.Purpose, Runtime: b.Runtime, Isolation: b.Isolation, Since: k.began[b.ID].UTC(),
		})
	}
	slices.SortFunc(out.boxes, func(a, b overview.Sandbox) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID)) })
	return out, nil
}

func (k *folded) take(e event.Event) error {
	state := k.sum.State
	if err := k.sum.Apply(e); err != nil {
		return err
	}
	if k.sum.State != state {
		k.since = e.Time
	}
	for id := range k.sum.Sandboxes {
		if k.began[id].IsZero() {
			k.began[id] = e.Time
		}
	}
	maps.DeleteFunc(k.began, func(id string, _ time.Time) bool { _, runs := k.sum.Sandboxes[id]; return !runs })
	return nil
}

// keep forgets the tasks that run no more.
func (f *folds) keep(running map[task.ID]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.all, func(id task.ID, _ *folded) bool { return !running[id] })
}

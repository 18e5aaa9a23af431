package overview

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/sqlite"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// hub is a forge whose open repositories everybody may read, and that cannot say about some.
type hub struct{ forge.Host }

func (hub) Name() string { return "hub" }

func (hub) Permission(_ context.Context, repo, _ string) (forge.Permission, error) {
	switch {
	case strings.HasPrefix(repo, "https://hub/open/"):
		return forge.Read, nil
	case strings.HasPrefix(repo, "https://hub/away/"):
		return forge.None, &task.Error{Class: task.Unavailable, Msg: "the forge is away"}
	}
	return forge.None, nil
}

const (
	open, secret, away = "https://hub/open/x", "https://hub/secret/x", "https://hub/away/x"
)

type rig struct {
	*Board
	st    *sqlite.Store
	fleet Fleet
	err   error
	reads int // of the fleet
	folds int // of logs
	clock time.Time
}

// Events counts what is folded.
func (r *rig) Events(ctx context.Context, id task.ID, after int64, limit int) ([]event.Event, error) {
	r.folds++
	return r.st.Events(ctx, id, after, limit)
}

func (r *rig) Tasks(ctx context.Context, f store.Filter) ([]store.Task, error) {
	return r.st.Tasks(ctx, f)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{clock: time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC)}
	var err error
	if r.st, err = sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "d.db"), sqlite.Options{Now: func() time.Time { return r.clock }}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.st.Close() })
	now := func() time.Time { return r.clock }
	r.Board = New(Config{
		Records: r, Now: now, Streams: func() int { return 7 },
		Gate: access.NewGate(access.GateConfig{Host: func(string) (forge.Host, bool) { return hub{}, true }, Task: r.st.Task, Now: now}),
		Fleet: func(context.Context) (Fleet, error) {
			r.reads++
			return r.fleet, r.err
		},
	})
	return r
}

func operator() access.Viewer {
	return access.Viewer{Name: "op", Via: access.ViaOperator, All: true, Scopes: []access.Scope{access.Admin}}
}

func reader() access.Viewer {
	return access.Viewer{Name: "ann", Via: access.ViaOIDC, Logins: map[string]string{"": "ann"}, Scopes: []access.Scope{access.Read}}
}

// TestFleetOfAViewer: of what is not theirs a viewer learns nothing, not even that it is there.
func TestFleetOfAViewer(t *testing.T) {
	r := newRig(t)
	r.fleet = Fleet{
		Running:    []Running{{Repo: open, Owner: "host"}, {Repo: secret, Owner: "host"}},
		Queue:      []Queued{{Repo: secret}, {Repo: open}},
		Sandboxes:  []Sandbox{{Repo: secret}},
		Caps:       Caps{Total: 9, Repo: 2, Author: 1},
		Workers:    []Worker{{Owner: "host"}},
		Ready:      Ready{Repos: []ReadyRepo{{Repo: secret}, {Repo: open}, {}}, Sums: &ReadySums{}},
		Limits:     []Limit{{Model: "m"}},
		Registries: Registries{Recent: []Asked{{Repo: secret, Name: "n"}, {Repo: open}, {}}, Sums: &RegistrySums{}},
	}
	all, err := r.Fleet(t.Context(), operator())
	if err != nil {
		t.Fatal(err)
	}
	want := r.fleet
	want.Streams = 7
	if d := cmp.Diff(want, all); d != "" {
		t.Errorf("an operator (-want +got):\n%s", d)
	}
	got, err := r.Fleet(t.Context(), reader())
	if err != nil {
		t.Fatal(err)
	}
	want = Fleet{
		Running: []Running{{Repo: open}}, Queue: []Queued{{Repo: open}}, Sandboxes: []Sandbox{}, Caps: Caps{Repo: 2, Author: 1}, Workers: []Worker{},
		Ready: Ready{Repos: []ReadyRepo{{Repo: open}}}, Limits: []Limit{}, Registries: Registries{Recent: []Asked{{Repo: open}}}, Streams: 7,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("a reader (-want +got):\n%s", d)
	}
	if r.fleet.Running[0].Owner != "host" {
		t.Error("what one viewer may not see is gone for all")
	}
	if r.reads != 1 {
		t.Errorf("read %d times for two who look at once", r.reads)
	}
	r.clock = r.clock.Add(fresh)
	r.fleet.Queue = append(r.fleet.Queue, Queued{Repo: away})
	if got, err = r.Fleet(t.Context(), reader()); err != nil || !got.Partial || len(got.Queue) != 1 || r.reads != 2 {
		t.Errorf("%+v %v", got, err)
	}
	r.clock, r.err = r.clock.Add(fresh), errors.New("away")
	if _, err = r.Fleet(t.Context(), reader()); !errors.Is(err, r.err) {
		t.Error(err)
	}
}

func (r *rig) task(t *testing.T, n int, repo string, ps ...event.Payload) task.ID {
	t.Helper()
	id := storetest.ID(n)
	if _, _, err := r.st.Create(t.Context(), store.Task{ID: id, Key: fmt.Sprint(n), Repo: repo}, []event.Draft{storetest.Draft(t, event.TaskCreated{Repo: repo})}); err != nil {
		t.Fatal(err)
	}
	r.add(t, id, ps...)
	return id
}

func (r *rig) add(t *testing.T, id task.ID, ps ...event.Payload) {
	t.Helper()
	l := storetest.Lease(t, r.st, id)
	for _, p := range ps {
		if _, err := r.st.Append(t.Context(), l, storetest.Draft(t, p)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.st.Release(t.Context(), l); err != nil {
		t.Fatal(err)
	}
}

// TestOutcomesOfAViewer: a sum is over what they may read, or it is none; a log is folded again only
// when it grew.
func TestOutcomesOfAViewer(t *testing.T) {
	r := newRig(t)
	first := r.task(t, 1, open, event.ModelResponded{Cost: 1, Priced: true})
	r.task(t, 2, secret, event.ModelResponded{Cost: 10, Priced: true})
	r.clock = r.clock.Add(24 * time.Hour)
	r.task(t, 3, open, event.ModelResponded{Cost: 100, Priced: true})
	sum := func(v access.Viewer, since time.Time, repo string) (cost task.MicroUSD, repos []string) {
		t.Helper()
		o, err := r.Outcomes(t.Context(), v, since, repo)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range o.All {
			cost += x.Cost
		}
		return cost, o.Repos
	}
	for name, c := range map[string]struct {
		v     access.Viewer
		since time.Time
		repo  string
		cost  task.MicroUSD
		repos []string
	}{
		"an operator":                 {operator(), time.Time{}, "", 111, []string{open, secret}},
		"of one repository":           {operator(), time.Time{}, secret, 10, []string{open, secret}},
		"of the last hours":           {operator(), r.clock.Add(-time.Hour), "", 100, []string{open, secret}},
		"a reader":                    {reader(), time.Time{}, "", 101, []string{open}},
		"a reader, of what is hidden": {reader(), time.Time{}, secret, 0, []string{open}},
	} {
		if cost, repos := sum(c.v, c.since, c.repo); cost != c.cost || !slices.Equal(repos, c.repos) {
			t.Errorf("%s: %d of %v, want %d of %v", name, cost, repos, c.cost, c.repos)
		}
	}
	if r.folds != 3 {
		t.Errorf("three logs were folded %d times", r.folds)
	}
	r.add(t, first, event.ModelResponded{Cost: 1000, Priced: true})
	if cost, _ := sum(operator(), time.Time{}, ""); cost != 1111 || r.folds != 4 {
		t.Errorf("%d after %d folds", cost, r.folds)
	}
	r.task(t, 4, away)
	if _, err := r.Outcomes(t.Context(), reader(), time.Time{}, ""); task.ClassOf(err) != task.Unavailable {
		t.Errorf("a sum over a part: %v", err)
	}
	if cost, _ := sum(reader(), time.Time{}, open); cost != 1101 {
		t.Errorf("%d: another repository's forge is away", cost)
	}
}

func TestShares(t *testing.T) {
	f := Fleet{Running: []Running{{Repo: "a"}, {Repo: "b"}, {Repo: "b"}}, Queue: []Queued{{Repo: "c"}, {Repo: "c"}, {Repo: "a"}}}
	got := f.Shares(func(r Running) string { return r.Repo }, func(q Queued) string { return q.Repo })
	if want := []Share{{"b", 2, 0}, {"a", 1, 1}, {"c", 0, 2}}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

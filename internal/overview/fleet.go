package overview

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Fleet is what runs and what waits, as the store and this process know it.
type Fleet struct {
	Running    []Running  `json:"running"`
	Queue      []Queued   `json:"queue"` // in the order in which they were made
	Sandboxes  []Sandbox  `json:"sandboxes"`
	Caps       Caps       `json:"caps"`
	Workers    []Worker   `json:"workers"` // for operators
	Ready      Ready      `json:"ready"`
	Limits     []Limit    `json:"rate_limits"` // of models; for operators
	Registries Registries `json:"registries"`
	Streams    int        `json:"streams"` // that this process serves
	// Partial says that some repositories could not be asked whether the viewer may read them: what
	// is theirs is left out.
	Partial bool `json:"partial"`
}

// Running is a task that a worker holds.
type Running struct {
	Task   task.ID    `json:"task"`
	Repo   string     `json:"repo"`
	Title  string     `json:"title"`
	State  task.State `json:"state"`
	Since  time.Time  `json:"since,omitzero"` // it is in that state
	Author string     `json:"author"`
	Owner  string     `json:"owner"` // of the lease; for operators
	Epoch  int64      `json:"epoch"`
	Until  time.Time  `json:"until"` // when the lease ends unless it is renewed
}

// Queued is a task whose next run is ordered.
type Queued struct {
	Task     task.ID    `json:"task"`
	Repo     string     `json:"repo"`
	Title    string     `json:"title"`
	State    task.State `json:"state"`
	Author   string     `json:"author"`
	Priority int        `json:"priority"`
	Since    time.Time  `json:"since"` // nothing was recorded about it
	Due      time.Time  `json:"due"`   // not to be worked before
}

// Sandbox is one that runs for a task.
type Sandbox struct {
	Task      task.ID   `json:"task"`
	Repo      string    `json:"repo"`
	ID        string    `json:"id"`
	Purpose   string    `json:"purpose"`
	Runtime   string    `json:"runtime"`
	Isolation string    `json:"isolation"`
	Since     time.Time `json:"since,omitzero"`
}

// Caps are the most tasks that run at once; 0 is no cap.
type Caps struct {
	Total  int `json:"total"`
	Repo   int `json:"repository"`
	Author int `json:"author"`
}

// Worker is a process that holds tasks, or could.
type Worker struct {
	Owner string `json:"owner"`
	Tasks int    `json:"tasks"`
	Slots int    `json:"slots"` // tasks that it takes at once; 0: not known here
	Here  bool   `json:"here"`  // it is the process that answers
}

// Ready are the sandboxes that this process keeps ready.
type Ready struct {
	Repos []ReadyRepo `json:"repositories"`
	Sums  *ReadySums  `json:"sums,omitempty"` // for operators, where sandboxes are kept ready
}

// ReadyRepo is what is kept ready for one repository.
type ReadyRepo struct {
	Repo    string    `json:"repo"`
	Waiting int       `json:"waiting"`
	Claimed int       `json:"handed_out"`
	Missed  int       `json:"missed"`
	Refill  int64     `json:"start_ms"` // that starting one takes: a moving average
	Asked   time.Time `json:"asked"`    // the last time
}

// ReadySums are those of all repositories, since the process began.
type ReadySums struct {
	Waiting   int   `json:"waiting"`
	Most      int   `json:"most"`
	Memory    int64 `json:"memory_bytes"`
	Claimed   int   `json:"handed_out"`
	Missed    int   `json:"missed"`
	Discarded int   `json:"discarded"`
	Refill    int64 `json:"start_ms"`
}

// Limit is what the provider said last about a model's rate limit.
type Limit struct {
	Model   string          `json:"model"`
	Value   json.RawMessage `json:"value"`
	Meters  []Meter         `json:"meters"`
	Blocked time.Time       `json:"blocked_until,omitzero"` // the provider said: not before
}

// Meter is one limit, with what is left of it now.
type Meter struct {
	Name  string `json:"name"` // "requests", "tokens", "input", "output"
	Most  int64  `json:"limit"`
	Left  int64  `json:"left"`
	Gains int64  `json:"refill_per_minute"`
}

// Registries are what sandboxes asked package registries through this process.
type Registries struct {
	Recent []Asked       `json:"recent"`         // newest first
	Sums   *RegistrySums `json:"sums,omitempty"` // for operators, once a sandbox asked
}

// Asked is one line of the mirror's ledger.
type Asked struct {
	At        time.Time `json:"at"`
	Task      task.ID   `json:"task"`
	Repo      string    `json:"repo"`
	Ecosystem string    `json:"ecosystem"`
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	New       bool      `json:"new"`     // outside the base's lockfiles and the operator's list
	Refused   string    `json:"refused"` // the reason; "" when it was let through
}

// RegistrySums are the mirror's counts since its process began.
type RegistrySums struct {
	Upstreams []string `json:"upstreams"` // "ecosystem host"
	Served    int64    `json:"served"`
	Stored    int64    `json:"served_from_store"` // of those, without asking a registry
	Refused   int64    `json:"refused"`
	Fetches   int64    `json:"fetches"` // requests to registries
	BytesOut  int64    `json:"bytes_served"`
	BytesIn   int64    `json:"bytes_fetched"`
}

// Fleet is the part of the fleet that a viewer may see: what belongs to a repository they may read,
// and, for operators alone, what names machines or is counted over all repositories.
func (b *Board) Fleet(ctx context.Context, v access.Viewer) (Fleet, error) {
	f, err := b.now(ctx)
	if err != nil {
		return f, err
	}
	s := sight{ask: func(repo string) error { return b.cfg.Gate.MayRead(ctx, v, repo) }, known: map[string]bool{"": v.Operates()}}
	out := Fleet{
		Running: seen(&s, f.Running, func(x Running) string { return x.Repo }), Queue: seen(&s, f.Queue, func(x Queued) string { return x.Repo }),
		Sandboxes: seen(&s, f.Sandboxes, func(x Sandbox) string { return x.Repo }), Caps: f.Caps, Workers: []Worker{},
		Ready:  Ready{Repos: seen(&s, f.Ready.Repos, func(x ReadyRepo) string { return x.Repo })},
		Limits: []Limit{}, Registries: Registries{Recent: seen(&s, f.Registries.Recent, func(x Asked) string { return x.Repo })}, Streams: b.cfg.Streams(),
	}
	if v.Operates() {
		out.Workers, out.Limits = append(out.Workers, f.Workers...), append(out.Limits, f.Limits...)
		out.Ready.Sums, out.Registries.Sums = f.Ready.Sums, f.Registries.Sums
	} else {
		for i := range out.Running {
			out.Running[i].Owner = "" // names machines
		}
		out.Caps.Total = 0 // how near it is says how much others do
	}
	out.Partial = s.trouble
	return out, nil
}

// fresh is how long what was read of the fleet is good for: all who look are one reader.
const fresh = time.Second

// now is all of the fleet. Nobody may change it.
func (b *Board) now(ctx context.Context) (Fleet, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	now := b.cfg.Now()
	if age := now.Sub(b.read); !b.read.IsZero() && age >= 0 && age < fresh {
		return b.fleet, nil
	}
	f, err := b.cfg.Fleet(ctx)
	if err == nil {
		b.fleet, b.read = f, now
	}
	return f, err
}

// sight is what one viewer may read, asked once for each repository.
type sight struct {
	ask     func(repo string) error
	known   map[string]bool
	trouble bool
}

func (s *sight) may(repo string) bool {
	ok, asked := s.known[repo]
	if !asked {
		err := s.ask(repo)
		ok = err == nil
		s.trouble = s.trouble || err != nil && task.ClassOf(err) != task.NotFound
		s.known[repo] = ok
	}
	return ok
}

func seen[T any](s *sight, all []T, repo func(T) string) []T {
	out := []T{}
	for _, x := range all {
		if s.may(repo(x)) {
			out = append(out, x)
		}
	}
	return out
}

// Share is how many tasks of somebody run and wait.
type Share struct {
	Name             string
	Running, Waiting int
}

// Shares counts what runs and waits by name, the most running first.
func (f Fleet) Shares(running func(Running) string, queued func(Queued) string) []Share {
	n := map[string]*Share{}
	at := func(name string) *Share {
		if n[name] == nil {
			n[name] = &Share{Name: name}
		}
		return n[name]
	}
	for _, x := range f.Running {
		at(running(x)).Running++
	}
	for _, x := range f.Queue {
		at(queued(x)).Waiting++
	}
	out := make([]Share, 0, len(n))
	for _, s := range n {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b Share) int {
		return cmp.Or(cmp.Compare(b.Running, a.Running), cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(a.Name, b.Name))
	})
	return out
}

package api

import (
	"context"
	_ "embed"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/outcome"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

//go:embed openapi.yaml
var description []byte

// describe gives out the description of this API (OpenAPI 3.1).
func describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(description) // a caller that left cannot be told
}

// Me is who the caller is.
type Me struct {
	Name     string         `json:"name"`
	Via      access.Via     `json:"via"`
	Operates bool           `json:"operates"` // sees every task, the fleet and the queue
	Scopes   []access.Scope `json:"scopes"`
	Repos    []string       `json:"repos"` // globs of the repositories that a token is for; empty: any
	Expires  time.Time      `json:"expires,omitzero"`
	Key      string         `json:"checkpoint_key"` // verifies the checkpoints of this installation
}

func (a *API) whoami(w http.ResponseWriter, r *http.Request) error {
	v := viewer(r)
	me := Me{v.Name, v.Via, v.Operates(), []access.Scope{}, append([]string{}, v.Repos...), v.Expires, a.cfg.Key}
	for _, s := range access.Scopes() {
		if v.Has(s) {
			me.Scopes = append(me.Scopes, s)
		}
	}
	return answer(w, http.StatusOK, me)
}

// Fleet is what runs and what waits, as the store knows it.
type Fleet struct {
	Running   []Running `json:"running"`
	Queue     []Queued  `json:"queue"` // in the order in which they were made
	Sandboxes []Sandbox `json:"sandboxes"`
	Limits    []Limit   `json:"rate_limits"` // of models; for operators
	Streams   int       `json:"streams"`     // that this process serves
}

// Running is a task that a worker holds.
type Running struct {
	Task  task.ID    `json:"task"`
	Repo  string     `json:"repo"`
	Title string     `json:"title"`
	State task.State `json:"state"`
	Owner string     `json:"owner"` // of the lease; for operators
	Epoch int64      `json:"epoch"`
	Until time.Time  `json:"until"` // when the lease ends unless it is renewed
}

// Queued is a task whose next run is ordered.
type Queued struct {
	Task     task.ID    `json:"task"`
	Repo     string     `json:"repo"`
	Title    string     `json:"title"`
	State    task.State `json:"state"`
	Author   string     `json:"author"`
	Priority int        `json:"priority"`
	Due      time.Time  `json:"due"` // not to be worked before
}

// Sandbox is one that runs for a task.
type Sandbox struct {
	Task      task.ID `json:"task"`
	Repo      string  `json:"repo"`
	ID        string  `json:"id"`
	Purpose   string  `json:"purpose"`
	Runtime   string  `json:"runtime"`
	Isolation string  `json:"isolation"`
}

// Limit is what the provider said last about a model's rate limit.
type Limit struct {
	Model string          `json:"model"`
	Value json.RawMessage `json:"value"`
}

func (a *API) fleet(w http.ResponseWriter, r *http.Request) error {
	f, err := a.cfg.Desk.Fleet(r.Context())
	if err != nil {
		return err
	}
	v := viewer(r)
	known := map[string]bool{}
	may := func(repo string) bool {
		ok, asked := known[repo]
		if !asked {
			ok = a.cfg.Gate.MayRead(r.Context(), v, repo) == nil
			known[repo] = ok
		}
		return ok
	}
	out := Fleet{Running: []Running{}, Queue: []Queued{}, Sandboxes: []Sandbox{}, Limits: []Limit{}, Streams: a.cfg.Hub.Open()}
	for _, x := range f.Running {
		if may(x.Repo) {
			if !v.Operates() {
				x.Owner = "" // names machines
			}
			out.Running = append(out.Running, x)
		}
	}
	for _, x := range f.Queue {
		if may(x.Repo) {
			out.Queue = append(out.Queue, x)
		}
	}
	for _, x := range f.Sandboxes {
		if may(x.Repo) {
			out.Sandboxes = append(out.Sandboxes, x)
		}
	}
	if v.Operates() {
		out.Limits = append(out.Limits, f.Limits...)
	}
	return answer(w, http.StatusOK, out)
}

// maxOutcomes is how many tasks are added up, newest first.
const maxOutcomes = 100_000

// outcomes remembers what became of each task as of an event, so that a log is folded once.
type outcomes struct {
	records Records

	mu    sync.Mutex
	known map[task.ID]known
}

type known struct {
	seq int64
	outcome.Outcome
}

func newOutcomes(r Records) *outcomes { return &outcomes{records: r, known: map[task.ID]known{}} }

func (o *outcomes) of(ctx context.Context, t store.Task) (outcome.Outcome, error) {
	o.mu.Lock()
	k, ok := o.known[t.ID]
	o.mu.Unlock()
	if ok && k.seq == t.LastSeq {
		return k.Outcome, nil
	}
	events, err := o.records.Events(ctx, t.ID, 0, 0)
	if err != nil {
		return outcome.Outcome{}, err
	}
	out, err := outcome.Of(events)
	if err != nil {
		return outcome.Outcome{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.known) >= maxOutcomes {
		clear(o.known)
	}
	o.known[t.ID] = known{int64(len(events)), out}
	return out, nil
}

// sums adds up what became of the tasks that the viewer may read.
func (a *API) sums(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	since, err := outcome.ParseSince(q.Get("since"), a.cfg.Now())
	if err != nil {
		return refusal{http.StatusBadRequest, err.Error()}
	}
	by := q.Get("by")
	if by == "" {
		by = "repository"
	}
	key, err := outcome.Grouping(by)
	if err != nil {
		return refusal{http.StatusBadRequest, err.Error()}
	}
	ts, err := a.cfg.Records.Tasks(r.Context(), store.Filter{Repo: q.Get("repo"), Limit: maxOutcomes})
	if err != nil {
		return err
	}
	if ts, err = a.cfg.Gate.Readable(r.Context(), viewer(r), ts); err != nil {
		return err // a sum over a part would be wrong
	}
	all := []outcome.Outcome{}
	for _, t := range ts {
		if t.Created.Before(since) {
			continue
		}
		o, err := a.outcomes.of(r.Context(), t)
		if err != nil {
			return err
		}
		all = append(all, o)
	}
	return answer(w, http.StatusOK, outcome.NewReport(since, by, key, a.cfg.Now(), all))
}

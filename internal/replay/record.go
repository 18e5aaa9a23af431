package replay

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/daybreak-agent/daybreak/internal/agent"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/worker"
)

// record is a decoded log.
type record struct {
	id      task.ID
	created *event.TaskCreated
	all     []entry
	last    int64
	nonce   []byte // of the prompt's frames
	asks    bool   // the agent was told that it may ask people
	blob    func(ctx context.Context, digest string) ([]byte, error)
}

// entry is one event with what it says.
type entry struct {
	seq  int64
	e    event.Event
	p    event.Payload
	step int
}

// name is what a person calls it.
func (e entry) name() string {
	switch p := e.p.(type) {
	case *event.ToolStarted:
		return "the call of " + p.Name
	case *event.ToolFinished:
		return "the result of " + p.Name
	case *event.StateChanged:
		return "the change to state " + string(p.To)
	case *event.Noticed:
		return "a notice (" + p.What + ")"
	}
	return string(e.e.Kind)
}

// attempt is one run of the record: its first event (run.started) and the one after its last.
type attempt struct{ from, to int }

func read(r Record) (*record, error) {
	log := &record{id: r.Events[0].Task, blob: r.Blob}
	step := 0
	for _, e := range r.Events {
		p, err := event.Decode(e)
		if err != nil {
			return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("event %d of the record", e.Seq), Err: err}
		}
		switch p := p.(type) {
		case *event.TaskCreated:
			log.created = p
		case *event.ModelRequested:
			step = p.Step
		case *event.PromptFrozen:
			if err = log.readPrompt(p); err != nil {
				return nil, err
			}
		}
		log.all, log.last = append(log.all, entry{e.Seq, e, p, step}), e.Seq
	}
	if log.created == nil || log.all[0].p != event.Payload(log.created) {
		return nil, &task.Error{Class: task.Invalid, Msg: "the record does not begin with the task's creation"}
	}
	return log, nil
}

// issueMark is the mark that policy.Frame puts around the issue.
var issueMark = regexp.MustCompile(`<issue-([0-9a-f]{16})>`)

// readPrompt finds the random bytes of the recorded prompt: with the same ones an unchanged
// program makes the same prompt.
func (log *record) readPrompt(p *event.PromptFrozen) error {
	s, err := log.load(context.Background(), p.Prefix)
	if err != nil {
		return err
	}
	var prefix agent.Prefix
	if err := json.Unmarshal([]byte(s), &prefix); err != nil {
		return &task.Error{Class: task.Invalid, Msg: "the recorded prompt is no prompt", Err: err}
	}
	log.asks = slices.ContainsFunc(prefix.Tools, func(t model.ToolSpec) bool { return t.Name == "ask" })
	for _, b := range prefix.First.Blocks {
		if m := issueMark.FindStringSubmatch(b.Text); m != nil {
			log.nonce, err = hex.DecodeString(m[1])
			return err
		}
	}
	return nil
}

func (log *record) load(ctx context.Context, t event.Text) (string, error) {
	if t.Blob == "" {
		return t.Inline, nil
	}
	b, err := log.blob(ctx, t.Blob)
	return string(b), err
}

// attempts lists the runs in which the agent was at work; with to > 0 only the one that has the
// event.
func (log *record) attempts(to int64) []attempt {
	var out []attempt
	end := len(log.all)
	for i := len(log.all) - 1; i >= 0; i-- {
		if _, ok := log.all[i].p.(*event.RunStarted); !ok {
			continue
		}
		if slices.ContainsFunc(log.all[i:end], worked) {
			out = append([]attempt{{i, end}}, out...)
		}
		end = i
	}
	if to > 0 { // what comes between two runs is as the run before left it
		for len(out) > 1 && log.all[out[1].from].seq <= to {
			out = out[1:]
		}
		out = out[:min(len(out), 1)]
	}
	return out
}

func worked(e entry) bool {
	switch e.p.(type) {
	case *event.ModelRequested, *event.ToolFinished, *event.PromptFrozen:
		return true
	}
	return false
}

// overlay is the replay's own store over the record's blobs.
type overlay struct {
	store.Store
	record Record
}

// Blob implements store.Store.
func (o *overlay) Blob(ctx context.Context, digest string) ([]byte, error) {
	b, err := o.Store.Blob(ctx, digest)
	if task.ClassOf(err) == task.NotFound {
		return o.record.Blob(ctx, digest)
	}
	return b, err
}

// seed brings the store to where the task stood when the attempt began. Attempts after the first
// begin from the record, not from what the replay made of the one before: each is compared by
// itself.
func seed(ctx context.Context, st *overlay, log *record, a attempt) error {
	created := *log.created
	created.Limits.Wall = 0 // a replay takes the time it takes
	first, err := event.New(created)
	if err != nil {
		return err
	}
	_, isNew, err := st.Create(ctx, store.Task{ID: log.id, Key: created.Key, Repo: created.Repo, Title: created.IssueTitle}, []event.Draft{first})
	if err != nil {
		return err
	}
	if !isNew {
		return &task.Error{Class: task.Internal, Msg: "the replay's store is not empty"}
	}
	l, err := st.Acquire(ctx, log.id, "replay", leaseTTL, nil)
	if err != nil {
		return err
	}
	var drafts []event.Draft
	add := func(e entry) error {
		d := event.Draft{Kind: e.e.Kind, Version: e.e.Version, Payload: e.e.Payload}
		if r, ok := e.p.(*event.BudgetRaised); ok {
			raised := *r
			raised.Limits.Wall = 0
			if d, err = event.New(raised); err != nil {
				return err
			}
		}
		drafts = append(drafts, d)
		return nil
	}
	for _, e := range log.all[1:a.from] {
		if carried(e.p) {
			if err := add(e); err != nil {
				return err
			}
		}
	}
	for i := a.from; i < a.to; i++ {
		if log.given(i) {
			if err := add(log.all[i]); err != nil {
				return err
			}
		}
	}
	const batch = 500
	for chunk := range slices.Chunk(drafts, batch) {
		if _, err := st.Append(ctx, l, chunk...); err != nil {
			return err
		}
	}
	return st.Release(ctx, l)
}

// carried reports whether an event of an earlier run is part of where the task stood. Sandboxes
// are not: those of the record are not the replay's to end. Nor is what people said about a
// publication: the replay publishes nothing.
func carried(p event.Payload) bool {
	switch p.(type) {
	case *event.SandboxStarted, *event.SandboxEnded, *event.WallClocked, *event.LeaseTaken, *event.Checkpoint,
		*event.PublicationHeld, *event.PublicationApproved:
		return false
	}
	return true
}

// given reports whether event i of a run itself comes from outside of what is replayed: what people
// pushed to the branch and the base that it stands on, a raised budget, files of a lost sandbox.
func (log *record) given(i int) bool {
	switch p := log.all[i].p.(type) {
	case *event.BudgetRaised, *event.BranchAdopted:
		return true
	case *event.Rebased:
		_, adopted := log.all[i-1].p.(*event.BranchAdopted)
		return adopted
	case *event.WorkspaceSaved:
		return p.Why == "recovered" || p.Why == worker.WhyPushed
	case *event.Noticed:
		return p.What == "lost"
	}
	return false
}

// rebases are notes on what a replay leaves out: after a change was proven, its target branch moved.
func (log *record) rebases() []string {
	var out []string
	for i, e := range log.all {
		if p, ok := e.p.(*event.Rebased); ok && !log.given(i) {
			out = append(out, fmt.Sprintf("event %d put the verified change on commit %.12s of %s and verified it there again; that part is not replayed, `daybreak verify --base %.12s` repeats it", e.seq, p.To, p.Target, p.To))
		}
	}
	return out
}

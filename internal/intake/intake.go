// Package intake turns what forges tell, by webhook or because they were asked, into tasks and
// into words for tasks.
//
// Invariants: a delivery is proven over its raw bytes before anything of it is read, kept before
// it is answered, and acted upon until it is concluded; acting twice on the same thing changes
// nothing more, so that webhooks, the poller and a crash may all repeat it in any order; who may
// start, steer or stop is asked of the forge at that moment and never taken from a delivery; the
// text of a task is the text that was there at the trigger, or there is no task.
package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Store is what intake needs of one.
type Store interface {
	store.Store
	store.Deliveries
}

// Wanted is a task to be made.
type Wanted struct {
	Repo     string // clone address
	Issue    []byte
	Key      string // one per issue of a repository
	Origin   event.Origin
	Priority int
}

// Host is one configured forge.
type Host struct {
	forge.Host
	Secrets []Secret // of its webhooks
}

// Secret proves deliveries until Until; zero is without end.
type Secret struct {
	Value []byte
	Until time.Time
}

// Rates bound what people can start. 0 is no bound.
type Rates struct {
	Author int // tasks an hour by one person
	Repo   int // tasks an hour in one repository
	Total  int // tasks an hour
	Queue  int // tasks that are not done
}

// Config is what intake needs. All fields without "may be" are required.
type Config struct {
	Store    Store
	Hosts    map[string]Host // by the name in the configuration
	Registry *Registry
	// Create makes the task, or finds the unfinished one with the same key.
	Create func(ctx context.Context, w Wanted) (store.Task, bool, error)
	// Again orders another run of a task that is not done.
	Again func(ctx context.Context, id task.ID, why string) error
	// Landed reads the commits on a branch of a repository, newest first, none from before since;
	// may be nil, and then no revert is found.
	Landed func(ctx context.Context, repo, branch string, since time.Time) ([]Landed, error)
	Most   task.Limits // to which people may raise a budget; 0: not at all
	Owner  string      // names this process in leases and claims
	Rates  Rates
	Now    func() time.Time
	Logger *slog.Logger
}

// Intake acts on deliveries.
type Intake struct {
	cfg    Config
	bodies bodies
	mail   chan struct{} // has a value when a delivery was kept by this process

	mu       sync.Mutex
	reported map[task.ID]int64 // up to which event this process has shown a task
	hands    map[string]int    // that act on a forge's deliveries now
	missed   map[string]bool   // forges that had something new while all hands were full
	claims   int               // that this process made
}

// New returns an intake that does nothing yet.
func New(cfg Config) *Intake {
	return &Intake{cfg: cfg, bodies: newBodies(), mail: make(chan struct{}, 1), reported: map[task.ID]int64{}, hands: map[string]int{}, missed: map[string]bool{}}
}

// keepFor is how long a concluded delivery is known: longer than any forge sends one again.
const keepFor = 60 * 24 * time.Hour

// place is where something happened.
type place struct {
	host Host
	Repository
}

// key is one per issue, however its task is asked for.
func (p place) key(number int) string { return fmt.Sprintf("%s:%s#%d", p.Forge, p.ID, number) }

// act does what a delivery asks for and says what that was.
func (in *Intake) act(ctx context.Context, d forge.Delivery) (string, error) {
	host, ok := in.cfg.Hosts[d.Forge]
	if !ok {
		return "ignored: the forge is not configured any more", nil
	}
	r, ok, err := in.cfg.Registry.Find(ctx, d.Forge, d.Repository)
	if err != nil || !ok {
		return "ignored: the repository is not registered", err
	}
	p := place{host, r}
	if strings.EqualFold(d.Sender.Name, r.Bot) && d.Kind != forge.Pushed {
		return "ignored: our own", nil
	}
	switch d.Kind {
	case forge.Labeled:
		if d.Issue == nil || !containsFold(d.Labels, r.Label) {
			return "ignored: another label", nil
		}
		return in.start(ctx, p, ask{trigger: "label", what: forge.Labeled, name: r.Label, who: d.Sender, at: d.At, number: d.Issue.Number, seen: seenAt(d)})
	case forge.Assigned:
		if d.Issue == nil || !containsFold(d.Assignees, r.Bot) {
			return "ignored: another assignee", nil
		}
		return in.start(ctx, p, ask{trigger: "assignment", what: forge.Assigned, name: r.Bot, who: d.Sender, at: d.At, number: d.Issue.Number, seen: seenAt(d)})
	case forge.Commented:
		return in.said(ctx, p, d)
	case forge.Reviewed, forge.ReviewCommented:
		return in.reviewed(ctx, p, d)
	case forge.Edited:
		return in.edited(ctx, p, d)
	case forge.PullEnded:
		return in.ended(ctx, p, d)
	case forge.Pushed:
		return in.pushed(ctx, p, d)
	case forge.StopPressed:
		return in.pressed(ctx, p, d)
	case forge.RetryPressed:
		return in.retried(ctx, p, d)
	}
	return "ignored", nil
}

func containsFold(list []string, s string) bool {
	for _, x := range list {
		if s != "" && strings.EqualFold(x, s) {
			return true
		}
	}
	return false
}

// may asks the forge whether a user may steer, at this moment. Bots, apps and those who are gone
// may not.
func (in *Intake) may(ctx context.Context, p place, u forge.User) (bool, error) {
	if u.Name == "" || u.Bot || strings.EqualFold(u.Name, "ghost") || strings.HasSuffix(strings.ToLower(u.Name), "[bot]") {
		return false, nil
	}
	got, err := p.host.Permission(ctx, p.URL, u.Name)
	return got >= forge.Write, err
}

// newest is the task that an issue had last; ok false for none.
func (in *Intake) newest(ctx context.Context, p place, number int) (t store.Task, ok bool, err error) {
	ts, err := in.cfg.Store.Tasks(ctx, store.Filter{Key: p.key(number), Limit: 1})
	if err != nil || len(ts) == 0 {
		return t, false, err
	}
	return ts[0], true, nil
}

// ofBranch is the task whose branch it is.
func (in *Intake) ofBranch(ctx context.Context, p place, branch string) (t store.Task, ok bool, err error) {
	rest, found := strings.CutPrefix(branch, "daybreak/")
	if !found {
		return t, false, nil
	}
	id := task.ID(rest[:min(len(rest), 28)])
	if !id.Valid() {
		return t, false, nil
	}
	t, err = in.cfg.Store.Task(ctx, id)
	if task.ClassOf(err) == task.NotFound {
		return t, false, nil
	}
	return t, err == nil && t.Repo == p.URL, err
}

// summary folds a task's log.
func (in *Intake) summary(ctx context.Context, id task.ID) (event.Summary, error) {
	events, err := in.cfg.Store.Events(ctx, id, 0, 0)
	if err != nil {
		return event.Summary{}, err
	}
	return event.Fold(events)
}

// move changes the state of a task that nobody works on.
func (in *Intake) move(ctx context.Context, id task.ID, ps ...event.Payload) error {
	drafts := make([]event.Draft, len(ps))
	for i, p := range ps {
		d, err := event.New(p)
		if err != nil {
			return err
		}
		drafts[i] = d
	}
	l, err := in.cfg.Store.Acquire(ctx, id, in.cfg.Owner+":intake", 30*time.Second, nil)
	if err != nil {
		return err
	}
	_, err = in.cfg.Store.Append(ctx, l, drafts...)
	return errors.Join(err, in.cfg.Store.Release(context.WithoutCancel(ctx), l))
}

// maxSaid is how many comments are remembered of one issue, the newest.
const maxSaid = 500

// once posts a comment, unless it is remembered, or found by its mark: it was posted by a process
// that ended then. A forge lists the oldest comments of an issue alone, so looking is not enough.
func (in *Intake) once(ctx context.Context, p place, at forge.Ref, mark, text string) error {
	key := "said/" + p.key(at.Number)
	if at.Pull {
		key += "/pull"
	}
	said := func(change func(all []string) []string) error {
		return in.cfg.Store.Update(ctx, key, func(old []byte) ([]byte, error) {
			var all []string
			if len(old) > 0 {
				if err := json.Unmarshal(old, &all); err != nil {
					return nil, err
				}
			}
			return json.Marshal(change(all))
		})
	}
	known := false
	err := said(func(all []string) []string { known = slices.Contains(all, mark); return all })
	if err != nil || known {
		return err
	}
	shown := "<!-- daybreak:" + mark + " -->"
	cs, err := p.host.Comments(ctx, p.URL, at)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(cs, func(c forge.Comment) bool {
		return strings.EqualFold(c.Author.Name, p.Bot) && strings.Contains(c.Body, shown)
	}) {
		if _, err = p.host.Comment(ctx, p.URL, at, text+"\n\n"+shown); err != nil {
			return err
		}
	}
	return said(func(all []string) []string {
		if slices.Contains(all, mark) {
			return all
		}
		all = append(all, mark)
		return all[max(0, len(all)-maxSaid):]
	})
}

package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// overlap is how far back a poll looks beyond the last one: clocks and slow writes.
const overlap = 10 * time.Minute

// Poll asks the forges for what no webhook told, and keeps it as deliveries with names of their
// own, so that it is acted upon once whoever tells it first. It is meant to be called every few
// minutes. What one repository refuses does not keep the others from being asked.
func (in *Intake) Poll(ctx context.Context) error {
	list, err := in.cfg.Registry.List(ctx)
	if err != nil {
		return err
	}
	found := 0
	var errs []error
	for _, r := range list {
		host, ok := in.cfg.Hosts[r.Forge]
		if !ok {
			continue
		}
		n, err := in.pollOne(ctx, place{host, r})
		found += n
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.Path, err))
		}
	}
	if found > 0 {
		in.cfg.Logger.InfoContext(ctx, "the forges knew of things that no webhook told", "found", found)
		in.wake()
	}
	if _, err := in.cfg.Store.Forget(ctx, in.cfg.Now().Add(-keepFor)); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (in *Intake) pollOne(ctx context.Context, p place) (found int, err error) {
	key := "poll/" + p.Forge + "/" + p.ID
	var since time.Time
	if err := in.cfg.Store.Update(ctx, key, func(old []byte) ([]byte, error) {
		since = time.Time{}
		if len(old) == 0 {
			return old, nil
		}
		return old, since.UnmarshalText(old)
	}); err != nil {
		return 0, err
	}
	now := in.cfg.Now().UTC()
	if !since.IsZero() {
		since = since.Add(-overlap)
	}
	n, err := in.pollIssues(ctx, p, since)
	found += n
	if err != nil {
		return found, err
	}
	n, err = in.pollTasks(ctx, p)
	found += n
	if err == nil {
		err = in.pollReverts(ctx, p)
	}
	if err != nil {
		return found, err
	}
	return found, in.cfg.Store.Update(ctx, key, func([]byte) ([]byte, error) { return now.MarshalText() })
}

// tell keeps what was found under its own name.
func (in *Intake) tell(ctx context.Context, p place, what string, d forge.Delivery) (int, error) {
	d.ID, d.Forge, d.Repository, d.Path = "poll:"+p.ID+":"+what, p.Forge, p.ID, p.Path
	b, err := json.Marshal(d)
	if err != nil {
		return 0, err
	}
	first, err := in.cfg.Store.Deliver(ctx, store.Delivery{Forge: p.Forge, ID: d.ID, Repository: p.ID, Body: b})
	if first {
		return 1, err
	}
	return 0, err
}

// pollIssues looks for issues that were labelled or assigned without a task.
func (in *Intake) pollIssues(ctx context.Context, p place, since time.Time) (found int, err error) {
	issues, err := p.host.Changed(ctx, p.URL, "", since)
	if err != nil {
		return 0, err
	}
	for _, i := range issues {
		labelled, assigned := containsFold(i.Labels, p.Label), containsFold(i.Assignees, p.Bot)
		if i.PullRequest || !labelled && !assigned {
			continue
		}
		t, ok, err := in.newest(ctx, p, i.Number)
		if err != nil {
			return found, err
		}
		if ok && (!t.State.Done() || t.State == task.InReview) {
			continue
		}
		acts, err := p.host.Acts(ctx, p.URL, i.Number)
		if err != nil {
			return found, err
		}
		for _, kind := range []forge.Kind{forge.Labeled, forge.Assigned} {
			a, did := last(acts, kind, map[forge.Kind]string{forge.Labeled: p.Label, forge.Assigned: p.Bot}[kind])
			if !did || ok && !a.At.After(t.Created) || kind == forge.Labeled && !labelled || kind == forge.Assigned && !assigned {
				continue
			}
			// Nobody has shown us the text as it was then, so the delivery has none of it.
			d := forge.Delivery{Kind: kind, At: a.At, Sender: a.Who, Issue: &forge.Issue{Number: i.Number}}
			if kind == forge.Labeled {
				d.Labels = []string{p.Label}
			} else {
				d.Assignees = []string{p.Bot}
			}
			n, err := in.tell(ctx, p, fmt.Sprintf("%s:%d:%d", kind, i.Number, a.At.Unix()), d)
			found += n
			if err != nil {
				return found, err
			}
		}
	}
	return found, nil
}

func last(acts []forge.Act, kind forge.Kind, what string) (a forge.Act, ok bool) {
	for _, x := range acts {
		if x.Kind == kind && containsFold([]string{x.What}, what) {
			a, ok = x, true
		}
	}
	return a, ok
}

// pollTasks looks for words and ends of the tasks that are not over.
func (in *Intake) pollTasks(ctx context.Context, p place) (found int, err error) {
	ts, err := in.cfg.Store.Tasks(ctx, store.Filter{Repo: p.URL, Limit: 1000, States: []task.State{
		task.Queued, task.Preparing, task.Working, task.Verifying, task.Publishing, task.InReview,
	}})
	if err != nil {
		return 0, err
	}
	for _, t := range ts {
		sum, err := in.summary(ctx, t.ID)
		if err != nil {
			return found, err
		}
		o := sum.Created.Origin
		if o == nil || o.Forge != p.Forge || o.Repository != p.ID {
			continue
		}
		n, err := in.pollTask(ctx, p, t, sum)
		found += n
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

func (in *Intake) pollTask(ctx context.Context, p place, t store.Task, sum event.Summary) (found int, err error) {
	o := sum.Created.Origin
	said := func(number int, pull *forge.Pull) error {
		cs, err := p.host.Comments(ctx, p.URL, forge.Ref{Number: number, Pull: pull != nil})
		if err != nil {
			return err
		}
		for _, c := range cs {
			if containsFold([]string{c.Author.Name}, p.Bot) || !c.Created.After(o.At) {
				continue
			}
			d := forge.Delivery{Kind: forge.Commented, At: c.Created, Sender: c.Author, Comment: &c, Pull: pull, Issue: &forge.Issue{Number: number}}
			n, err := in.tell(ctx, p, "comment:"+c.ID, d)
			found += n
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := said(o.Number, nil); err != nil || sum.PullRequest == nil || sum.PullRequest.Number == 0 {
		return found, err
	}
	number := sum.PullRequest.Number
	pull := &forge.Pull{Number: number, Branch: sum.PullRequest.Branch, State: forge.PullOpen}
	if err := said(number, pull); err != nil {
		return found, err
	}
	lines, err := p.host.ReviewComments(ctx, p.URL, number)
	if err != nil {
		return found, err
	}
	for _, c := range lines {
		if containsFold([]string{c.Author.Name}, p.Bot) {
			continue
		}
		n, err := in.tell(ctx, p, "line:"+c.ID, forge.Delivery{Kind: forge.ReviewCommented, At: c.Created, Sender: c.Author, Comment: &c, Pull: pull})
		found += n
		if err != nil {
			return found, err
		}
	}
	pr, err := p.host.PullRequest(ctx, p.URL, number)
	if err != nil {
		return found, err
	}
	if t.State == task.InReview && t.Owner == "" && pr.Head != "" && pr.Head != sum.PullRequest.Head && (sum.Pushed == nil || pr.Head != sum.Pushed.Head) {
		n, err := in.tell(ctx, p, "pushed:"+pr.Head, forge.Delivery{Kind: forge.Pushed, At: in.cfg.Now(), Branch: pull.Branch, After: pr.Head}) // the forge does not say by whom
		found += n
		if err != nil {
			return found, err
		}
	}
	if pr.State == forge.PullOpen {
		return found, nil
	}
	n, err := in.tell(ctx, p, fmt.Sprintf("ended:%d", number), forge.Delivery{Kind: forge.PullEnded, At: pr.Ended, Sender: pr.MergedBy, Pull: &forge.Pull{Number: number, Branch: pull.Branch, State: pr.State}})
	return found + n, err
}

package intake

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// ask is somebody's wish for a task.
type ask struct {
	trigger string
	what    forge.Kind // of the act that is looked for, "" when the wish itself says who and when
	name    string     // the label, or our user
	who     forge.User
	at      time.Time
	number  int
	seen    *forge.Issue // as the delivery showed it; nil when the poller found it
}

// slack is how far apart a forge writes the times of one act.
const slack = time.Second

// start makes the task that somebody asks for, if they may and the text is what they saw.
func (in *Intake) start(ctx context.Context, p place, a ask) (string, error) {
	live, err := p.host.Issue(ctx, p.URL, a.number)
	if task.ClassOf(err) == task.NotFound {
		return "ignored: the issue is gone", nil
	}
	if err != nil {
		return "", err
	}
	switch {
	case live.PullRequest:
		return "ignored: a pull request is no issue", nil
	case !live.Open:
		return "ignored: the issue is closed", nil
	case a.what == forge.Labeled && !containsFold(live.Labels, a.name), a.what == forge.Assigned && !containsFold(live.Assignees, a.name):
		return "ignored: it was taken back", nil
	}
	if a, err = in.whoAndWhen(ctx, p, a); err != nil {
		return "", err
	}
	if a.at.IsZero() {
		return "ignored: the forge does not say who asked and when", nil
	}
	if t, ok, err := in.newest(ctx, p, a.number); err != nil {
		return "", err
	} else if ok && (!t.State.Done() || t.State == task.InReview) {
		return fmt.Sprintf("task %s is there already (%s)", t.ID, t.State), nil
	} else if ok && !a.at.After(t.Created) {
		return fmt.Sprintf("ignored: task %s answered that", t.ID), nil
	}
	if ok, err := in.may(ctx, p, a.who); err != nil || !ok {
		return fmt.Sprintf("ignored: %q may not write to the repository", a.who.Name), err
	}
	if why := changedSince(a, live); why != "" {
		text := fmt.Sprintf("%s, so Daybreak did not start: it only works on the text that was there when somebody who may write asked for it. "+
			"Please read the issue again and, if it is what you want, %s.", why, again(a, p))
		return "refused: " + why, in.once(ctx, p, forge.Ref{Number: a.number}, fmt.Sprintf("edited:%d", a.at.Unix()), text)
	}
	w, err := in.wanted(ctx, p, a, live)
	if err != nil {
		return "", err
	}
	full, wait, err := in.allowed(ctx, p, a) // last, so that trouble with the forge uses up nothing
	if err != nil {
		return "", err
	}
	if full != "" {
		text := fmt.Sprintf("Daybreak did not start: %s. %s once more later.", full, strings.ToUpper(again(a, p)[:1])+again(a, p)[1:])
		if !wait {
			return "refused again: " + full, nil
		}
		return "refused: " + full, in.once(ctx, p, forge.Ref{Number: a.number}, fmt.Sprintf("rate:%d", a.at.Unix()), text)
	}
	t, created, err := in.cfg.Create(ctx, w)
	if t.ID == "" {
		return "", err
	}
	if aerr := p.host.Acknowledge(ctx, p.URL, forge.Ref{Number: a.number}, ""); aerr != nil { // the task is there: this is a courtesy
		in.cfg.Logger.WarnContext(ctx, "the issue could not be acknowledged", "task", t.ID, "error", aerr)
	}
	switch {
	case err != nil:
		return fmt.Sprintf("task %s failed at once: %v", t.ID, err), nil
	case !created:
		return fmt.Sprintf("task %s is there already (%s)", t.ID, t.State), nil
	}
	return fmt.Sprintf("task %s", t.ID), nil
}

// whoAndWhen completes the wish from the issue's own history: the poller has seen no delivery,
// and some forges do not say which of the labels is new.
func (in *Intake) whoAndWhen(ctx context.Context, p place, a ask) (ask, error) {
	if a.what == "" || a.seen != nil && !(a.what == forge.Labeled && p.host.Capabilities().WholeLabels) {
		return a, nil
	}
	acts, err := p.host.Acts(ctx, p.URL, a.number)
	if err != nil {
		return a, err
	}
	a.at = time.Time{}
	for _, act := range acts {
		if act.Kind == a.what && strings.EqualFold(act.What, a.name) {
			a.who, a.at = act.Who, act.At
		}
	}
	return a, nil
}

// changedSince says why the text cannot be taken for what was asked for, or "".
func changedSince(a ask, live forge.Issue) string {
	seen := a.seen
	if seen == nil {
		seen = &live
	}
	switch {
	case seen.Updated.IsZero():
		return "The forge does not say when this issue changed last"
	case seen.Updated.After(a.at.Add(slack)):
		return "This issue changed after it was asked for"
	case fingerprint(*seen) != fingerprint(live):
		return "The text of this issue was changed after it was asked for"
	}
	return ""
}

func fingerprint(i forge.Issue) [32]byte {
	return sha256.Sum256([]byte(fmt.Sprintf("%d:%s%s", len(i.Title), i.Title, i.Body)))
}

// again says how to ask once more.
func again(a ask, p place) string {
	switch a.what {
	case forge.Labeled:
		return "take the label `" + p.Label + "` off and put it on"
	case forge.Assigned:
		return "take the assignment back and make it"
	}
	return "ask again"
}

// maxComments is how many comments of an issue become part of the text.
const maxComments = 30

// wanted freezes the text: title, body and what people who may write said before the trigger.
func (in *Intake) wanted(ctx context.Context, p place, a ask, live forge.Issue) (Wanted, error) {
	origin := event.Origin{
		Forge: p.Forge, Repository: p.ID, Number: a.number, URL: live.URL, Trigger: a.trigger, By: a.who.Name, At: a.at,
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n", strings.Join(strings.Fields(live.Title), " "), live.Body)
	cs, err := p.host.Comments(ctx, p.URL, forge.Ref{Number: a.number})
	if err != nil {
		return Wanted{}, err
	}
	known := map[string]bool{}
	for _, c := range cs {
		if strings.EqualFold(c.Author.Name, p.Bot) {
			continue
		}
		out := func(why string) {
			origin.LeftOut = append(origin.LeftOut, fmt.Sprintf("%s by %q: %s", c.ID, c.Author.Name, why))
		}
		if c.Created.IsZero() || c.Updated.IsZero() || c.Created.After(a.at) || c.Updated.After(a.at) {
			out("written or changed after the trigger")
			continue
		}
		ok, asked := known[c.Author.Name]
		if !asked {
			if ok, err = in.may(ctx, p, c.Author); err != nil {
				return Wanted{}, err
			}
			known[c.Author.Name] = ok
		}
		switch {
		case !ok:
			out("its author may not write to the repository")
		case c.Internal:
			out("not for everybody who reads the issue")
		case len(origin.Comments) == maxComments:
			out("too many comments")
		default:
			origin.Comments = append(origin.Comments, c.ID)
			fmt.Fprintf(&b, "\n## Comment by %s at %s\n\n%s\n", c.Author.Name, c.Created.UTC().Format(time.RFC3339), c.Body)
		}
	}
	return Wanted{Repo: p.URL, Issue: []byte(b.String()), Key: p.key(a.number), Origin: origin}, nil
}

// bucket is how much of an hour's tasks is used up.
type bucket struct {
	Used float64   `json:"used"`
	At   time.Time `json:"at"`
	Told time.Time `json:"told"`
}

// allowed takes one task out of the hourly allowances, which all processes share. why is empty
// when it may be made; tell is true for the first refusal of an hour, the only one that is
// answered.
func (in *Intake) allowed(ctx context.Context, p place, a ask) (why string, tell bool, err error) {
	r := in.cfg.Rates
	if r.Queue > 0 {
		ts, err := in.cfg.Store.Tasks(ctx, store.Filter{Limit: r.Queue, States: []task.State{task.Queued, task.Preparing, task.Working, task.Verifying, task.Publishing}})
		if err != nil {
			return "", false, err
		}
		if len(ts) >= r.Queue {
			why = fmt.Sprintf("%d tasks wait or run, which is the most that is allowed", r.Queue)
		}
	}
	now := in.cfg.Now().UTC()
	err = in.cfg.Store.Update(ctx, "intake/rates", func(old []byte) ([]byte, error) {
		all := map[string]bucket{}
		if len(old) > 0 {
			if err := json.Unmarshal(old, &all); err != nil {
				return nil, err
			}
		}
		author := "author:" + p.Forge + ":" + strings.ToLower(a.who.Name)
		caps := []struct {
			name string
			max  int
			what string
		}{{author, r.Author, a.who.Name + " asked for"}, {"repo:" + p.Forge + ":" + p.ID, r.Repo, "there were in this repository"}, {"total", r.Total, "there were"}}
		refill := func(b bucket, max int) bucket {
			b.Used = max0(b.Used - now.Sub(b.At).Hours()*float64(max))
			b.At = now
			return b
		}
		for _, c := range caps {
			if b := refill(all[c.name], c.max); why == "" && c.max > 0 && b.Used+1 > float64(c.max) {
				why = fmt.Sprintf("%s as many tasks in the last hour as are allowed (%d)", c.what, c.max)
			}
		}
		if why != "" {
			b := all[author]
			tell = now.Sub(b.Told) >= time.Hour
			if tell {
				b.Told = now
			}
			all[author] = b
		} else {
			for _, c := range caps {
				b := refill(all[c.name], c.max)
				b.Used++
				all[c.name] = b
			}
		}
		for name, b := range all {
			if now.Sub(b.At) > 2*time.Hour && now.Sub(b.Told) > 2*time.Hour {
				delete(all, name)
			}
		}
		return json.Marshal(all)
	})
	return why, tell, err
}

func max0(f float64) float64 {
	if f < 0 {
		return 0
	}
	return f
}

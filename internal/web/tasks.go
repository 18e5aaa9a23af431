package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/live"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/story"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/web/render"
)

// The caps of the list.
const (
	listed   = 50   // rows of a page
	batch    = 500  // tasks read at once; the filter offers what is among the newest
	searched = 5000 // tasks that a page looks at
)

// listView is the list of tasks as one viewer sees it.
type listView struct {
	Rows                []row
	State, Repo, Author string
	StateChoices        []string
	Repos, Authors      []string
	Running, Waiting    int
	Trouble             bool // some repository's forge could not say
	Older               string
	Now                 time.Time
}

// Filtered reports whether a filter is set.
func (v listView) Filtered() bool { return v.State != "" || v.Repo != "" || v.Author != "" }

type row struct {
	store.Task
	RepoName, RepoPlain string
	Verdict             task.VerdictKind
	Cost                task.MicroUSD
	Steps               int
	PRLink, PRWord      string
	By                  string
	Held, Asked         bool
}

// The choices of the filter beside the states.
const (
	stateActive  = "active"
	stateWaiting = "waiting"
)

func (s *Site) tasks(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	v, err := s.list(r, q.Get("state"), q.Get("repo"), q.Get("author"), q.Get("before"))
	if err != nil {
		return err
	}
	h := s.head(r, "Tasks", "tasks")
	if q.Get("before") == "" {
		h.Live = "/live/tasks?" + url.Values{"state": {v.State}, "repo": {v.Repo}, "author": {v.Author}, "since": {v.Now.UTC().Format(time.RFC3339Nano)}}.Encode()
	}
	s.write(w, r, http.StatusOK, tasksPage(h, v))
	return nil
}

// list reads what a viewer may see of the newest tasks.
func (s *Site) list(r *http.Request, state, repo, author, before string) (listView, error) {
	v := listView{State: state, Repo: repo, Author: author, Now: s.cfg.Now()}
	v.StateChoices = []string{
		stateActive, stateWaiting, string(task.Queued), string(task.Working), string(task.Verifying), string(task.InReview), string(task.Merged), string(task.Closed),
		string(task.Declined), string(task.Exhausted), string(task.Stopped), string(task.Failed),
	}
	repos, authors := map[string]bool{}, map[string]bool{}
	newest, err := s.readable(r, &v, store.Filter{Limit: batch})
	if err != nil {
		return v, err
	}
	for _, t := range newest.mine {
		repos[t.Repo] = true
		if t.Author != "" {
			authors[t.Author] = true
		}
	}
	f := store.Filter{States: v.states(), Repo: repo, Before: task.ID(before), Limit: batch}
	for seen := 0; seen < searched && v.Older == ""; seen += batch {
		got, err := s.readable(r, &v, f)
		if err != nil {
			return v, err
		}
		if err := s.fill(r.Context(), &v, got.mine, authors); err != nil {
			return v, err
		}
		if got.read < batch {
			break
		}
		f.Before = got.last
	}
	v.Repos, v.Authors = keys(repos, repo), keys(authors, author)
	return v, nil
}

// part is a part of a listing.
type part struct {
	mine []store.Task // that the viewer may read
	read int
	last task.ID
}

func (s *Site) readable(r *http.Request, v *listView, f store.Filter) (part, error) {
	all, err := s.cfg.Source.Tasks(r.Context(), f)
	if err != nil {
		return part{}, err
	}
	p := part{read: len(all)}
	if p.read > 0 {
		p.last = all[p.read-1].ID
	}
	p.mine, err = s.cfg.Gate.Readable(r.Context(), viewer(r), all)
	v.Trouble = v.Trouble || err != nil // the rest is still shown
	return p, nil
}

// fill adds rows until the page is full, and says then where the next one begins.
func (s *Site) fill(ctx context.Context, v *listView, ts []store.Task, authors map[string]bool) error {
	for _, t := range ts {
		if len(v.Rows) == listed {
			v.Older = "/?" + url.Values{"state": {v.State}, "repo": {v.Repo}, "author": {v.Author}, "before": {string(v.Rows[listed-1].ID)}}.Encode()
			return nil
		}
		row, err := s.row(ctx, t)
		if err != nil {
			return err
		}
		if row.By != "" {
			authors[row.By] = true
		}
		if !v.fits(row) {
			continue
		}
		v.Rows = append(v.Rows, row)
		switch {
		case row.Held || row.Asked:
			v.Waiting++
		case !row.State.Done() && row.State != task.Queued:
			v.Running++
		}
	}
	return nil
}

// states are those that the filter leaves, nil for all.
func (v listView) states() []task.State {
	switch v.State {
	case "":
		return nil
	case stateActive, stateWaiting:
		return []task.State{task.Queued, task.Preparing, task.Working, task.Verifying, task.Publishing}
	}
	return []task.State{task.State(v.State)}
}

func keys(m map[string]bool, also string) []string {
	if also != "" {
		m[also] = true
	}
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// fits reports whether a row is one that the filter leaves.
func (v listView) fits(r row) bool {
	states := v.states()
	return (states == nil || slices.Contains(states, r.State)) && (v.Repo == "" || r.Repo == v.Repo) && (v.Author == "" || r.By == v.Author || r.Author == v.Author) && (v.State != stateWaiting || r.Held || r.Asked)
}

func (s *Site) row(ctx context.Context, t store.Task) (row, error) {
	k, err := s.facts.of(ctx, t)
	if err != nil {
		return row{}, err
	}
	r := row{
		Task: t, RepoName: story.RepoName(t.Repo), RepoPlain: render.Plain(t.Repo), Verdict: k.verdict, Cost: k.cost, Steps: k.steps,
		By: k.by, Held: k.held, Asked: k.asked, PRLink: webURL(k.pr),
	}
	switch {
	case k.prNumber > 0:
		r.PRWord = fmt.Sprintf("#%d", k.prNumber)
	case k.pr != "":
		r.PRWord = "open"
	}
	return r, nil
}

func titled(s string) string {
	if strings.TrimSpace(s) == "" {
		return "(no title)"
	}
	return s
}

// tasksLive sends the rows of tasks that changed, for the filter of the page that listens.
func (s *Site) tasksLive(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	v := listView{State: q.Get("state"), Repo: q.Get("repo"), Author: q.Get("author")}
	since, err := time.Parse(time.RFC3339Nano, q.Get("since"))
	if err != nil {
		since = s.cfg.Now()
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		if at, err := time.Parse(time.RFC3339Nano, last); err == nil {
			since = at
		}
	}
	who := viewer(r)
	list, err := s.cfg.Hub.SubscribeList(r.Context(), live.Watcher{Name: who.Key(), May: who.Still}, since)
	if err != nil {
		return err
	}
	defer list.Close()
	out, err := live.NewSender(w)
	if err != nil {
		return nil
	}
	send := func(out *live.Sender, t store.Task) error {
		if s.cfg.Gate.MayRead(r.Context(), who, t.Repo) != nil {
			return nil
		}
		row, err := s.row(r.Context(), t)
		if err != nil {
			return err
		}
		var b strings.Builder
		name := "row"
		if !v.fits(row) {
			name = "gone"
			b.WriteString("r-" + string(t.ID))
		} else if err := taskRow(row, s.cfg.Now()).Render(r.Context(), &b); err != nil {
			return err
		}
		out.Event(t.Updated.UTC().Format(time.RFC3339Nano), name, []byte(b.String()))
		return nil
	}
	_ = live.Send(r.Context(), out, list.Next, send) // the viewer comes back by itself
	return nil
}

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
	searched = 5000 // newest tasks that a filter looks at
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
	f := store.Filter{Limit: searched}
	all, err := s.cfg.Source.Tasks(r.Context(), f)
	if err != nil {
		return v, err
	}
	mine, err := s.cfg.Gate.Readable(r.Context(), viewer(r), all)
	v.Trouble = err != nil
	repos, authors := map[string]bool{}, map[string]bool{}
	for _, t := range mine {
		repos[t.Repo] = true
		if t.Author != "" {
			authors[t.Author] = true
		}
	}
	for _, t := range mine {
		if before != "" && string(t.ID) >= before || !v.might(t) {
			continue
		}
		if len(v.Rows) == listed {
			v.Older = "/?" + url.Values{"state": {state}, "repo": {repo}, "author": {author}, "before": {string(v.Rows[listed-1].ID)}}.Encode()
			break
		}
		row, err := s.row(r.Context(), t)
		if err != nil {
			return v, err
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
	v.Repos, v.Authors = keys(repos, repo), keys(authors, author)
	return v, nil
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

// might reports whether a task can fit the filter, by what the store's row says.
func (v listView) might(t store.Task) bool {
	if v.Repo != "" && t.Repo != v.Repo {
		return false
	}
	switch v.State {
	case "":
		return true
	case stateActive, stateWaiting:
		return !t.State.Done()
	}
	return string(t.State) == v.State
}

// fits is the rest of the filter.
func (v listView) fits(r row) bool {
	return v.might(r.Task) && (v.Author == "" || r.By == v.Author || r.Author == v.Author) && (v.State != stateWaiting || r.Held || r.Asked)
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
	name, _ := s.cfg.Gate.Watcher(who, "")
	list, err := s.cfg.Hub.SubscribeList(r.Context(), live.Watcher{Name: name}, since)
	if err != nil {
		return err
	}
	defer list.Close()
	out, err := live.NewSender(w)
	if err != nil {
		return nil
	}
	send := func(out *live.Sender, t store.Task) error {
		if !who.Expires.IsZero() && !s.cfg.Now().Before(who.Expires) {
			return live.ErrClosed
		}
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

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/live"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// NewTask is the body of POST /api/tasks.
type NewTask struct {
	Repo        string `json:"repo"`                   // path or URL
	Ref         string `json:"ref,omitempty"`          // base: commit, branch or tag; "": the default branch
	Issue       string `json:"issue"`                  // the issue's text, its title in the first line
	Model       string `json:"model,omitempty"`        // "provider/model"; "": the configured one
	RequestedBy string `json:"requested_by,omitempty"` // whom caps count it for
	Priority    int    `json:"priority,omitempty"`     // 1 (first) to 4; 0: 2
	Key         string `json:"key,omitempty"`          // names the request: sent again, it finds its task; also by the header Idempotency-Key
	Budget      Budget `json:"budget,omitzero"`
}

// Budget is a task's, in a request. 0 leaves a meter as it is.
type Budget struct {
	Steps  int     `json:"steps,omitempty"`
	Tokens int64   `json:"tokens,omitempty"`
	USD    float64 `json:"usd,omitempty"`
	Wall   string  `json:"wall,omitempty"` // such as "40m"
}

// Limits reads it. Its errors say what is wrong in one line.
func (b Budget) Limits() (task.Limits, error) {
	if b.Steps < 0 || b.Tokens < 0 || !(b.USD >= 0 && b.USD <= 1e9) {
		return task.Limits{}, errors.New("a budget is negative or no number")
	}
	l := task.Limits{Steps: b.Steps, Tokens: b.Tokens, Cost: task.MicroUSD(b.USD*1e6 + 0.5)}
	if b.Wall != "" {
		d, err := time.ParseDuration(b.Wall)
		if err != nil || d <= 0 {
			return task.Limits{}, errors.New("budget.wall is not a time such as 40m")
		}
		l.Wall = d
	}
	return l, nil
}

// Request is a NewTask that was looked through.
type Request struct {
	NewTask
	Limits task.Limits // what Budget asks for
}

// Row is a task in an answer.
type Row struct {
	Task     task.ID    `json:"task"`
	State    task.State `json:"state"`
	Repo     string     `json:"repo"`
	Title    string     `json:"title"`
	Author   string     `json:"author"`
	Priority int        `json:"priority"`
	Created  time.Time  `json:"created"`
	Updated  time.Time  `json:"updated"`
	LastSeq  int64      `json:"last_seq"`
	Running  bool       `json:"running"` // a worker holds it
	Ordered  bool       `json:"ordered"` // its runs are ordered by the scheduler
}

func rowOf(t store.Task) Row {
	return Row{
		Task: t.ID, State: t.State, Repo: t.Repo, Title: t.Title, Author: t.Author, Priority: t.Priority, Created: t.Created.UTC(), Updated: t.Updated.UTC(),
		LastSeq: t.LastSeq, Running: t.Owner != "", Ordered: t.Dispatch,
	}
}

// Page is an answer of GET /api/tasks.
type Page struct {
	Tasks []Row   `json:"tasks"`          // newest first
	Next  task.ID `json:"next,omitempty"` // give it as before for what follows; "": that was all
}

// The caps of a request.
const (
	maxBody  = 9 << 20 // an issue of 8 MiB and its JSON
	maxWord  = 64 << 10
	maxIssue = 8 << 20
	maxKey   = 200
	maxName  = 200
	maxRepo  = 2000
	maxRows  = 200
	maxScan  = 20_000 // tasks that one page looks at to find those that the viewer may read
	batch    = 200    // of them at once
)

func (a *API) list(w http.ResponseWriter, r *http.Request) error {
	f, err := filter(r.URL.Query())
	if err != nil {
		return refusal{http.StatusBadRequest, err.Error()}
	}
	if streams(r) {
		return a.watchList(w, r, f)
	}
	want := f.Limit
	page := Page{Tasks: []Row{}}
	for scanned := 0; ; {
		f.Limit = max(want+1, batch)
		ts, err := a.cfg.Records.Tasks(r.Context(), f)
		if err != nil {
			return err
		}
		readable, err := a.cfg.Gate.Readable(r.Context(), viewer(r), ts)
		if err != nil && len(readable) == 0 {
			return err // a forge does not answer; that nothing is there would be a lie
		}
		for _, t := range readable {
			if len(page.Tasks) == want {
				page.Next = page.Tasks[want-1].Task
				return answer(w, http.StatusOK, page)
			}
			page.Tasks = append(page.Tasks, rowOf(t))
		}
		if scanned += len(ts); len(ts) < f.Limit {
			return answer(w, http.StatusOK, page)
		}
		f.Before = ts[len(ts)-1].ID
		if scanned >= maxScan { // the next page goes on behind what the viewer saw: no other task is named to them
			if n := len(page.Tasks); n > 0 {
				page.Next = page.Tasks[n-1].Task
			}
			return answer(w, http.StatusOK, page)
		}
	}
}

// filter reads the query of a listing.
func filter(q url.Values) (store.Filter, error) {
	f := store.Filter{Repo: q.Get("repo"), Author: q.Get("author"), Before: task.ID(q.Get("before")), Limit: 50}
	for _, list := range q["state"] {
		for s := range strings.SplitSeq(list, ",") {
			if !slices.Contains(task.States(), task.State(s)) {
				return f, errors.New("there is no state " + strconv.Quote(clip(s)))
			}
			f.States = append(f.States, task.State(s))
		}
	}
	if f.Before != "" && !f.Before.Valid() {
		return f, errors.New("before is no task's id")
	}
	if s := q.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > maxRows {
			return f, errors.New("limit is 1 to 200")
		}
		f.Limit = n
	}
	if len(f.Repo) > maxRepo || len(f.Author) > maxName {
		return f, errors.New("repo or author is too long")
	}
	return f, nil
}

func clip(s string) string { return s[:min(len(s), 40)] }

// watchList streams the tasks that change, as rows.
func (a *API) watchList(w http.ResponseWriter, r *http.Request, f store.Filter) error {
	v := viewer(r)
	list, err := a.cfg.Hub.SubscribeList(r.Context(), live.Watcher{Name: v.Key(), May: v.Still}, a.cfg.Now())
	if err != nil {
		return err
	}
	defer list.Close()
	out, err := live.NewSender(w)
	if err != nil {
		return err
	}
	next := func(ctx context.Context) ([]store.Task, error) {
		ts, err := list.Next(ctx)
		if err != nil {
			return nil, err
		}
		ts = slices.DeleteFunc(ts, func(t store.Task) bool {
			return f.Repo != "" && t.Repo != f.Repo || f.Author != "" && t.Author != f.Author || len(f.States) > 0 && !slices.Contains(f.States, t.State)
		})
		readable, err := a.cfg.Gate.Readable(ctx, v, ts)
		if err != nil {
			a.cfg.Logger.WarnContext(ctx, "some tasks are left out of a list: a forge does not answer", "error", err)
		}
		return readable, nil
	}
	return quiet(live.Send(r.Context(), out, next, func(out *live.Sender, t store.Task) error {
		b, err := json.Marshal(rowOf(t))
		out.Event("", "", b)
		return err
	}))
}

func (a *API) create(w http.ResponseWriter, r *http.Request) error {
	body, err := read(w, r, maxBody)
	if err != nil {
		return err
	}
	n, err := ParseNew(body, r.Header.Get("Idempotency-Key"))
	if err != nil {
		return refusal{http.StatusBadRequest, err.Error()}
	}
	v := viewer(r)
	if n.RequestedBy, err = who(v, n.RequestedBy); err != nil {
		return err
	}
	if n.Repo, err = a.cfg.Desk.Repository(n.Repo); err != nil {
		return err
	}
	if err := a.cfg.Gate.MayAct(r.Context(), v, n.Repo, access.Create); task.ClassOf(err) == task.NotFound && err != nil {
		return &task.Error{Class: task.NotFound, Msg: "no such repository", Fix: "name one that you may read"}
	} else if err != nil {
		return err
	}
	t, made, err := a.cfg.Desk.Create(r.Context(), n)
	if t.ID != "" {
		w.Header().Set("Location", "/api/tasks/"+string(t.ID))
	}
	if err != nil {
		return err
	}
	// A key finds a task of another repository; it stays as unknown as it was.
	if err := a.cfg.Gate.MayAct(r.Context(), v, t.Repo, access.Create); err != nil {
		w.Header().Del("Location")
		return &task.Error{Class: task.Conflict, Msg: "the key names another request"}
	}
	code := http.StatusOK
	if made {
		code = http.StatusCreated
	}
	return answer(w, code, struct {
		Row
		Made bool `json:"made"`
	}{rowOf(t), made})
}

// ParseNew reads a body, which nobody vouches for. header is a key given outside of it. Its
// errors say what is wrong in one line.
func ParseNew(body []byte, header string) (Request, error) {
	var n Request
	if err := decode(body, &n.NewTask); err != nil {
		return n, err
	}
	if header != "" {
		if n.Key != "" && n.Key != header {
			return n, errors.New("key and Idempotency-Key differ")
		}
		n.Key = header
	}
	switch {
	case n.Repo == "" || n.Issue == "":
		return n, errors.New("repo and issue are needed")
	case len(n.Repo) > maxRepo || len(n.Ref) > maxName || len(n.Model) > maxName || len(n.RequestedBy) > maxName:
		return n, errors.New("repo, ref, model or requested_by is too long")
	case slices.Contains(strings.FieldsFunc(n.Repo, func(r rune) bool { return r == '/' || r == '\\' }), ".."):
		return n, errors.New("repo has .. in it; write it as it is")
	case len(n.Issue) > maxIssue:
		return n, errors.New("the issue is larger than 8 MiB")
	case len(n.Key) > maxKey:
		return n, errors.New("the key is longer than 200 bytes")
	case n.Priority < 0 || n.Priority > 4:
		return n, errors.New("priority is 1 (first) to 4")
	}
	var err error
	n.Limits, err = n.Budget.Limits()
	return n, err
}

// read reads a body up to its cap.
func read(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		return nil, refusal{http.StatusRequestEntityTooLarge, "the body is larger than " + strconv.FormatInt(most>>10, 10) + " KiB"}
	}
	if err != nil {
		return nil, refusal{http.StatusBadRequest, "the body could not be read"}
	}
	return body, nil
}

// decode reads one JSON object; an unknown key is an error that names it.
func decode(body []byte, into any) error {
	if !utf8.Valid(body) {
		return errors.New("the body is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return errors.New("the body is not the JSON object that is expected: " + err.Error())
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("there is something after the JSON object")
	}
	return nil
}

func (a *API) show(w http.ResponseWriter, r *http.Request) error {
	t, err := a.open(r, access.Read)
	if err != nil {
		return err
	}
	v, err := a.cfg.Desk.Result(r.Context(), t.ID)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, v)
}

func (a *API) row(w http.ResponseWriter, r *http.Request) error {
	t, err := a.open(r, access.Read)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, rowOf(t))
}

package intake

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/forge/wire"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/sqlite"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// town is a forge in memory: one repository, its issues and its people.
type town struct {
	forge.Host // what is not here must not be called

	mu        sync.Mutex
	issues    map[int]*forge.Issue
	acts      map[int][]forge.Act
	comments  map[int][]forge.Comment
	lines     []forge.Comment
	pulls     map[int]*forge.PullRequest
	may       map[string]forge.Permission
	asked     []string // permissions asked for
	reactions []string
	statuses  []string
	trouble   error
	mute      error           // of comments
	asking    chan<- int      // is told which issue is asked for; may be nil
	slow      <-chan struct{} // until then nothing is said about issues; may be nil
	n         int
}

func (f *town) Name() string                     { return "town" }
func (f *town) Capabilities() forge.Capabilities { return forge.Capabilities{} }

func (f *town) Issue(ctx context.Context, _ string, n int) (forge.Issue, error) {
	if f.slow != nil {
		f.asking <- n
		select {
		case <-f.slow:
		case <-ctx.Done():
			return forge.Issue{}, context.Cause(ctx)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trouble != nil {
		return forge.Issue{}, f.trouble
	}
	if i := f.issues[n]; i != nil {
		return *i, nil
	}
	return forge.Issue{}, &task.Error{Class: task.NotFound, Msg: "no issue"}
}

func (f *town) Changed(context.Context, string, string, time.Time) (out []forge.Issue, err error) {
	for _, i := range f.issues {
		out = append(out, *i)
	}
	return out, nil
}

func (f *town) Acts(_ context.Context, _ string, n int) ([]forge.Act, error) { return f.acts[n], nil }

func (f *town) Comments(_ context.Context, _ string, at forge.Ref) ([]forge.Comment, error) {
	n := at.Number
	f.mu.Lock()
	defer f.mu.Unlock()
	cs := f.comments[n]
	return append([]forge.Comment(nil), cs[:min(len(cs), forge.MaxItems)]...), f.mute
}

func (f *town) ReviewComments(context.Context, string, int) ([]forge.Comment, error) {
	return f.lines, nil
}

func (f *town) Permission(_ context.Context, _, user string) (forge.Permission, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, user)
	return f.may[user], nil
}

func (f *town) PullRequest(_ context.Context, _ string, n int) (forge.PullRequest, error) {
	if p := f.pulls[n]; p != nil {
		return *p, nil
	}
	return forge.PullRequest{}, &task.Error{Class: task.NotFound, Msg: "no pull request"}
}

func (f *town) Comment(_ context.Context, _ string, at forge.Ref, body string) (string, error) {
	n := at.Number
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	id := fmt.Sprint(1000 + f.n)
	f.comments[n] = append(f.comments[n], forge.Comment{ID: id, Author: forge.User{ID: "9", Name: "bot"}, Body: body})
	return id, nil
}

func (f *town) EditComment(_ context.Context, _ string, at forge.Ref, id, body string) error {
	n := at.Number
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, c := range f.comments[n] {
		if c.ID == id {
			f.comments[n][i].Body = body
			return nil
		}
	}
	return &task.Error{Class: task.NotFound, Msg: "no comment"}
}

func (f *town) Acknowledge(_ context.Context, _ string, at forge.Ref, id string) error {
	n := at.Number
	f.reactions = append(f.reactions, fmt.Sprintf("%d/%s", n, id))
	return nil
}

func (f *town) SetStatus(_ context.Context, _, commit string, s forge.Status) error {
	f.statuses = append(f.statuses, commit[:4]+" "+string(s.State)+": "+s.Title)
	return nil
}

func (f *town) Verify(h http.Header, body, secret []byte) error {
	return wire.VerifyHex(h, "X-Sign", "", body, secret)
}

func (f *town) Parse(_ http.Header, body []byte) (d forge.Delivery, err error) {
	return d, wire.Decode(body, &d)
}

// said is what the bot wrote below an issue.
func (f *town) said(n int) (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.comments[n] {
		if c.Author.Name == "bot" {
			out = append(out, c.Body)
		}
	}
	return out
}

// spy remembers what became of deliveries.
type spy struct {
	*sqlite.Store
	mu         sync.Mutex
	outcomes   map[string]string
	dispatched bool
	cut        func(store.Signal) error // of a word that is said; may be nil
	fewer      int                      // tasks that a listing of all has; 0: all
}

func (s *spy) Conclude(ctx context.Context, forge, id, outcome string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcomes[id] = outcome
	return s.Store.Conclude(ctx, forge, id, outcome)
}

func (s *spy) Postpone(ctx context.Context, d store.Delivery, after time.Duration, why string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcomes[d.ID] = fmt.Sprintf("postponed %s: %s", after, why)
	return s.Store.Postpone(ctx, d, after, why)
}

func (s *spy) Signal(ctx context.Context, w store.Signal) error {
	if s.cut != nil {
		if err := s.cut(w); err != nil {
			return err
		}
	}
	return s.Store.Signal(ctx, w)
}

type lab struct {
	*Intake
	t     *testing.T
	town  *town
	st    *spy
	now   time.Time
	real  bool // the time is the bubble's
	made  []Wanted
	again []task.ID
}

const (
	repoID  = "42"
	repoURL = "https://town.example/shop/cart.git"
)

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), town: &town{
		issues: map[int]*forge.Issue{}, acts: map[int][]forge.Act{}, comments: map[int][]forge.Comment{}, pulls: map[int]*forge.PullRequest{},
		may: map[string]forge.Permission{"wanda": forge.Write, "olga": forge.Admin, "rita": forge.Read, "robot": forge.Write},
	}}
	now := func() time.Time {
		if l.real {
			return time.Now()
		}
		return l.now
	}
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"), sqlite.Options{Now: now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	st := &spy{Store: db, outcomes: map[string]string{}}
	l.st = st
	reg := NewRegistry(st, now)
	if err := reg.Add(t.Context(), Repository{Forge: "town", ID: repoID, Path: "shop/cart", URL: repoURL, Bot: "bot", Label: "daybreak"}); err != nil {
		t.Fatal(err)
	}
	l.Intake = New(Config{
		Store: st, Hosts: map[string]Host{"town": {Host: l.town, Secrets: []Secret{{Value: []byte("new")}, {Value: []byte("old"), Until: l.now.Add(time.Hour)}}}},
		Registry: reg, Owner: "test", Now: now, Logger: slog.New(slog.DiscardHandler),
		Create: func(ctx context.Context, w Wanted) (store.Task, bool, error) {
			d, err := event.New(event.TaskCreated{Repo: w.Repo, Target: "main", Key: w.Key, Origin: &w.Origin, Issue: event.Text{Inline: string(w.Issue)}})
			if err != nil {
				return store.Task{}, false, err
			}
			got, created, err := st.Create(ctx, store.Task{ID: task.ID(fmt.Sprintf("t_01kh%022d", len(l.made)+1)), Key: w.Key, Repo: w.Repo}, []event.Draft{d})
			if created {
				l.made = append(l.made, w)
			}
			return got, created, err
		},
		Again: func(_ context.Context, id task.ID, _ string) error { l.again = append(l.again, id); return nil },
	})
	return l
}

func user(name string) forge.User { return forge.User{ID: "id-" + name, Name: name} }

// issue puts one on the forge, written now.
func (l *lab) issue(n int, body string) *forge.Issue {
	i := &forge.Issue{Number: n, Title: "Total is wrong", Body: body, Author: user("rita"), Open: true, Created: l.now, Updated: l.now, URL: "https://town.example/shop/cart/issues/1"}
	l.town.issues[n] = i
	return i
}

// labelled puts the label on now and returns what the forge tells.
func (l *lab) labelled(n int, by string) forge.Delivery {
	i := l.town.issues[n]
	i.Labels, i.Updated = []string{"daybreak"}, l.now
	l.town.acts[n] = append(l.town.acts[n], forge.Act{Kind: forge.Labeled, What: "daybreak", Who: user(by), At: l.now})
	seen := *i
	return l.delivery(forge.Delivery{Kind: forge.Labeled, Labels: []string{"daybreak"}, Sender: user(by), Issue: &seen})
}

func (l *lab) delivery(d forge.Delivery) forge.Delivery {
	l.town.n++
	if d.ID == "" {
		d.ID = fmt.Sprintf("d-%d", l.town.n)
	}
	d.Forge, d.Repository, d.Path = "town", repoID, "shop/cart"
	if d.At.IsZero() {
		d.At = l.now
	}
	return d
}

// comment writes one now and returns what the forge tells.
func (l *lab) comment(n int, by, body string) forge.Delivery {
	l.town.n++
	c := forge.Comment{ID: fmt.Sprint(l.town.n), Author: user(by), Body: body, Created: l.now, Updated: l.now}
	l.town.comments[n] = append(l.town.comments[n], c)
	d := forge.Delivery{Kind: forge.Commented, Sender: c.Author, Comment: &c}
	if i := l.town.issues[n]; i != nil {
		i.Updated = l.now
		seen := *i
		d.Issue = &seen
	} else {
		d.Pull = &forge.Pull{Number: n}
	}
	return l.delivery(d)
}

// post sends a delivery to the hook as the forge would, and acts on what was kept.
func (l *lab) post(d forge.Delivery) (code int, outcome string) {
	l.t.Helper()
	b, err := json.Marshal(d)
	if err != nil {
		l.t.Fatal(err)
	}
	code = l.raw(b, "new").Code
	if err := l.Work(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	return code, l.outcome(d.ID)
}

func (l *lab) raw(b []byte, secret string) *httptest.ResponseRecorder {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write(b)
	req := httptest.NewRequest(http.MethodPost, "/hooks/town", io.NopCloser(strings.NewReader(string(b))))
	req.Header.Set("X-Sign", hex.EncodeToString(m.Sum(nil)))
	rec := httptest.NewRecorder()
	l.Hook("town").ServeHTTP(rec, req)
	return rec
}

// outcome is what was recorded of a delivery.
func (l *lab) outcome(id string) string {
	l.st.mu.Lock()
	defer l.st.mu.Unlock()
	return l.st.outcomes[id]
}

func (l *lab) pass(d time.Duration) { l.now = l.now.Add(d) }

// at takes the task along to a state.
func (l *lab) at(id task.ID, states ...task.State) {
	l.t.Helper()
	for _, to := range states {
		t, err := l.st.Task(l.t.Context(), id)
		if err != nil {
			l.t.Fatal(err)
		}
		ps := []event.Payload{event.StateChanged{From: t.State, To: to}}
		if to == task.InReview {
			ps = append([]event.Payload{event.PullRequestOpened{Branch: branchOf(id), Head: strings.Repeat("a", 40), Number: 7}}, ps...)
		}
		if err := l.move(l.t.Context(), id, ps...); err != nil {
			l.t.Fatal(err)
		}
	}
}

func branchOf(id task.ID) string { return "daybreak/" + string(id) + "-fix" }

func (l *lab) signals(id task.ID) (out []string) {
	l.t.Helper()
	ss, err := l.st.Signals(l.t.Context(), id)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, s := range ss {
		out = append(out, s.Kind+" "+s.Who+": "+s.Text)
	}
	return out
}

// dispatched makes the first task one of the scheduler's in what the store lists: the lab has no
// queue that would take its orders.
func (l *lab) dispatched() { l.st.dispatched = true }

func (s *spy) Tasks(ctx context.Context, f store.Filter) ([]store.Task, error) {
	if s.fewer > 0 && len(f.States) == 0 && f.Key == "" {
		f.Limit = s.fewer
	}
	ts, err := s.Store.Tasks(ctx, f)
	for i := range ts {
		ts[i].Dispatch = ts[i].Dispatch || s.dispatched
	}
	return ts, err
}

package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/outcome"
	"github.com/daybreak-agent/daybreak/internal/overview"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/web/storybook"
)

const (
	openRepo   = "https://git.example.com/open/shop"
	secretRepo = "https://git.example.com/secret/vault"
)

// some is a viewer who may read one repository.
func some() access.Viewer {
	return access.Viewer{Name: "ci", Via: access.ViaToken, All: true, Scopes: []access.Scope{access.Read}, Repos: []string{"https://git.example.com/open/*"}}
}

func busy() overview.Fleet {
	f := storybook.Fleet(now())
	for i := range f.Running {
		f.Running[i].Repo = []string{openRepo, secretRepo}[i%2]
		f.Running[i].Title = []string{"an open matter", "a secret matter"}[i%2]
		f.Running[i].Author = []string{"olga", "secret agent"}[i%2]
	}
	for i := range f.Queue {
		f.Queue[i].Repo, f.Queue[i].Title, f.Queue[i].Author = secretRepo, "a secret matter", "secret agent"
	}
	for i := range f.Sandboxes {
		f.Sandboxes[i].Repo = []string{openRepo, secretRepo}[i%2]
	}
	f.Ready.Repos = []overview.ReadyRepo{{Repo: openRepo, Waiting: 1}, {Repo: secretRepo, Waiting: 2}}
	f.Registries.Recent = []overview.Asked{{Repo: openRepo, Ecosystem: "npm", Name: "left-pad", Task: storybook.ID(1)}, {Repo: secretRepo, Ecosystem: "npm", Name: "secret-lib"}}
	return f
}

// TestFleetPage: an operator sees all of it, others what belongs to repositories that they may read,
// and nothing that is counted over all.
func TestFleetPage(t *testing.T) {
	l := newLab(t)
	if page := l.page("/fleet"); !strings.Contains(page, "No task runs and none waits") || !strings.Contains(page, `aria-current="page">Fleet`) || !strings.Contains(page, `data-src="/live/fleet"`) {
		t.Errorf("an idle fleet: %.3000s", page)
	}
	l.fleet.set(busy())
	page := l.page("/fleet")
	for _, want := range []string{
		"an open matter", "a secret matter", "secret-lib", "left-pad", "build-1", "claude-sonnet", "The provider takes no call before 06:00:40", "Registry requests", "Ready sandboxes", "13:00:00 UTC</time>",
		"the oldest for", "of 12 at most", "93 % from the mirror", "secret agent", "7 new", "1 goes on working", "priority 1: 3", "epoch 3", "runsc",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("an operator does not see %q", want)
		}
	}
	if n := strings.Count(page, "full</span>"); n != 3 { // of both repositories, and 4 of 4 of one author
		t.Errorf("%d repositories or people are at their cap", n)
	}
	l.who = some()
	page = l.page("/fleet")
	for _, no := range []string{"secret", "vault", "build-1", "build-2", "claude-sonnet", "Registry requests", "of 12", "433", "18,204", "By who asked</h3>"} {
		if strings.Contains(page, no) {
			t.Errorf("who may read one repository sees %q", no)
		}
	}
	for _, want := range []string{"an open matter", "left-pad", "in the repositories that you may read"} {
		if !strings.Contains(page, want) {
			t.Errorf("who may read one repository does not see %q", want)
		}
	}
	l.who = access.Viewer{Name: "nobody", Via: access.ViaOIDC, Scopes: []access.Scope{access.Read}}
	if page = l.page("/fleet"); strings.Contains(page, "matter") || strings.Contains(page, "git.example.com") {
		t.Error("who may read nothing sees something")
	}
}

// TestFleetLive: all pieces come first, then those that changed, and nothing that the viewer may not see.
func TestFleetLive(t *testing.T) {
	l := newLab(t)
	l.site.every = 5 * time.Millisecond
	l.fleet.set(busy())
	l.who = some()
	srv := httptest.NewServer(l)
	defer srv.Close()
	n := 0
	stream(t, srv.URL, "/live/fleet", "", func(_, name, data string) bool {
		if name != "patch" {
			t.Fatalf("an event %s", name)
		}
		var ids []string
		for _, e := range elements(t, data) {
			if e.name == "section" {
				ids = append(ids, e.attrs["id"])
			}
		}
		if strings.Contains(data, "secret") {
			t.Errorf("event %d tells of a repository that is not theirs", n)
		}
		n++
		switch n {
		case 1:
			if len(ids) != 8 {
				t.Errorf("at first there are %v", ids)
			}
			f := busy()
			f.Ready.Repos[0].Waiting = 77
			l.fleet.set(f)
			return false
		default:
			if !slices.Equal(ids, []string{"fleet-ready"}) || !strings.Contains(data, "77") {
				t.Errorf("then %v", ids)
			}
			return true
		}
	})
}

// record makes a task that came to an end.
func (l *lab) record(n int, repo string, ps ...event.Payload) {
	l.t.Helper()
	id := storetest.ID(n)
	if _, _, err := l.st.Create(l.t.Context(), store.Task{ID: id, Key: fmt.Sprint(n), Repo: repo}, []event.Draft{storetest.Draft(l.t, event.TaskCreated{Repo: repo})}); err != nil {
		l.t.Fatal(err)
	}
	lease := storetest.Lease(l.t, l.st, id)
	for _, p := range ps {
		if _, err := l.st.Append(l.t.Context(), lease, storetest.Draft(l.t, p)); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := l.st.Release(l.t.Context(), lease); err != nil {
		l.t.Fatal(err)
	}
}

func went(states ...task.State) (out []event.Payload) {
	for i := range len(states) - 1 {
		out = append(out, event.StateChanged{From: states[i], To: states[i+1]})
	}
	return out
}

// ended is a task's way to a pull request that a person merged or closed.
func ended(cost task.MicroUSD, merged bool) []event.Payload {
	last := task.Closed
	if merged {
		last = task.Merged
	}
	out := append(went(task.Queued, task.Preparing, task.Working), event.ModelResponded{Cost: cost, Priced: true, Tokens: task.Tokens{Input: 25, CacheRead: 75}})
	out = append(out, went(task.Working, task.Verifying, task.Publishing)...)
	out = append(out, event.PullRequestOpened{URL: "https://git.example.com/1"})
	out = append(out, went(task.Publishing, task.InReview)...)
	return append(append(out, event.PullRequestEnded{Merged: merged, At: now().Add(time.Hour)}), went(task.InReview, last)...)
}

// TestOutcomesPage: the figures are those of package outcome, over what the viewer may read.
func TestOutcomesPage(t *testing.T) {
	l := newLab(t)
	if page := l.page("/outcomes"); !strings.Contains(page, "Nothing to add up yet") {
		t.Errorf("%.2000s", page)
	}
	l.record(1, openRepo, ended(1_000_000, true)...)
	l.record(2, openRepo, ended(500_000, false)...)
	l.record(3, openRepo, append(went(task.Queued, task.Preparing, task.Working), event.Declined{Kind: "out_of_scope"}, event.StateChanged{From: task.Working, To: task.Declined})...)
	l.record(4, secretRepo, ended(100_000_000, true)...)
	l.record(5, secretRepo, append(went(task.Queued, task.Preparing, task.Working), event.ModelResponded{Cost: 20_000_000, Priced: true}, event.StateChanged{From: task.Working, To: task.Failed})...)
	see := func(path string, all ...string) string {
		t.Helper()
		page := l.page(path)
		for _, want := range all {
			if !strings.Contains(page, want) {
				t.Errorf("%s: no %q", path, want)
			}
		}
		return page
	}
	// 2 of 3 decided, 2 of 5 in all; 121.5 dollars for 2.
	see("/outcomes", `class="big">67 %<`, "2 of 3<", `class="big">40 %<`, "2 of 5 tasks", "$60.75", "$121.50 for all tasks", `class="big">75 %<`, "out of scope", "1 of 5 tasks", `aria-current="page">Outcomes`,
		"git.example.com/open/shop", "git.example.com/secret/vault", "week of 2 March 2026", "Merge rate")
	page := see("/outcomes?by=month&since=30d&repo="+openRepo, `class="big">50 %<`, "1 of 2<", "1 of 3 tasks", "$1.50", "March 2026", `<option value="30d" selected`, `<option value="month" selected`)
	if !strings.Contains(page, `<option value="`+secretRepo) {
		t.Error("the filter does not offer the other repository")
	}
	l.who = some()
	page = see("/outcomes", `class="big">50 %<`, "$1.50 for all tasks")
	if strings.Contains(page, "secret") || strings.Contains(page, "vault") {
		t.Error("a repository that is not theirs is named")
	}
	page = see("/outcomes?repo="+secretRepo, "No task was made in that time")
	if strings.Contains(page, "$100") {
		t.Error("what another repository cost is told")
	}
	if w := l.get("/outcomes?since=soon"); w.Code != http.StatusUnprocessableEntity {
		t.Errorf("a time that is none: %d", w.Code)
	}
	see("/outcomes?since=2026-03-01", `<option value="2026-03-01" selected`)
}

// TestFiguresOverTime: weeks in which nothing was asked for part a line, few make a hollow dot, and the
// oldest of very many weeks are not drawn.
func TestFiguresOverTime(t *testing.T) {
	at := func(weeks int, merged bool) outcome.Outcome {
		return outcome.Outcome{Repo: "r", Created: now().AddDate(0, 0, -7*weeks), State: task.Merged, Merged: merged, Closed: !merged, Cost: 2_000_000, PullRequest: "p", ToPullRequest: time.Hour}
	}
	by := func(id string, figures []figure) figure {
		for _, f := range figures {
			if f.ID == id {
				return f
			}
		}
		t.Fatalf("no figure %s", id)
		return figure{}
	}
	all := []outcome.Outcome{at(3, true), at(3, false), at(0, true), at(0, true), at(0, true), at(0, true), at(0, true)}
	v := newOutcomesView(outcomesView{By: "week"}, all, []string{"r"}, now())
	if len(v.Spans) != leastSpans || v.Spans[0].Name != "2026-01-12" || v.Spans[4].Name != "2026-02-09" || v.Earlier != 0 {
		t.Fatalf("%d weeks", len(v.Spans))
	}
	f := by("merge-rate", v.figures())
	dots := f.Plot.Lines[0].Dots
	if len(dots) != 2 || len(f.Plot.Lines[0].Segments) != 0 || !dots[0].Few || dots[1].Few || dots[0].Say != "week of 9 February 2026, of decided: 50 % (1 of 2)" {
		t.Errorf("%+v", f.Plot.Lines[0])
	}
	if f.Say[0] != "of decided: from 50 % (week of 9 February 2026) to 100 % (week of 2 March 2026), last 100 % (week of 2 March 2026)." || len(f.Rows) != leastSpans || f.Rows[3][1] != "50 % (1 of 2)" || f.Rows[1][1] != "–" {
		t.Errorf("%q %q", f.Say, f.Rows)
	}
	if f := by("cost", v.figures()); f.Rows[0][1] != "$2.00 ($10.00 for 5 merged)" || f.Rows[3][1] != "$4.00 ($4.00 for 1 merged)" {
		t.Errorf("%q", f.Rows)
	}
	if f := by("cache", v.figures()); !f.Plot.Empty || f.Say[0] != "read from a cache: nothing is known." {
		t.Errorf("%+v", f)
	}
	if f := by("time", newOutcomesView(outcomesView{By: "month"}, all[:1], nil, now().AddDate(0, 0, -21)).figures()); len(f.Plot.Lines[0].Dots) != 1 || f.Say[0] != "in the middle: 1 h (February 2026)." {
		t.Errorf("%+v", f)
	}
	old := newOutcomesView(outcomesView{By: "week"}, []outcome.Outcome{at(500, true), at(0, true)}, nil, now())
	if len(old.Spans) != maxSpans || old.Earlier != 501-maxSpans || old.Total.Tasks != 2 {
		t.Errorf("%d weeks, %d left out", len(old.Spans), old.Earlier)
	}
}

// TestOverviewPaint: a page, its style and its script are together under 100 KB as transferred.
func TestOverviewPaint(t *testing.T) {
	l := newLab(t)
	for _, path := range []string{"/storybook/fleet", "/storybook/outcomes?by=week"} {
		sum := 0
		for _, p := range []string{path, l.site.assets.path("app.css"), l.site.assets.path("app.js"), l.site.assets.path("mark.svg")} {
			sum += l.get(p, "Accept-Encoding", "gzip").Body.Len()
		}
		if sum > 100_000 {
			t.Errorf("%s: %d bytes", path, sum)
		}
	}
}

func TestSayings(t *testing.T) {
	for got, want := range map[string]string{
		roughly(30 * time.Second): "<1m", roughly(12 * time.Minute): "12m", roughly(125 * time.Minute): "2h 05m", roughly(72 * time.Hour): "3d",
		size(512): "512 B", size(3 << 20): "3.0 MiB", size(5 << 30): "5.0 GiB", shareOf(1, 0): "–", shareOf(1, 3): "33 %", width(5, 0): "0", width(9, 3): "100.0", compact(99_999): "99,999", compact(2_000_000): "2M",
		clock(now(), now().Add(time.Hour)): "07:00:00 UTC", clock(now(), now().Add(24*time.Hour)): "3 Mar 06:00 UTC",
		repoWords("https://git.example.com/a/b.git"): "git.example.com/a/b", repoWords("/srv/git/shop"): "shop", repoWords("/"): ".",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if host, process := machine("box:12:3@x"); host != "box" || process != "12" {
		t.Error(host, process)
	}
	if host, process := machine("odd"); host != "odd" || process != "" {
		t.Error(host, process)
	}
}

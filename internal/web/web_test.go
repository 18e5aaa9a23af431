package web

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/web/storybook"
)

// paths are pages of every kind, for every hard state.
func paths(l *lab) []string {
	out := []string{
		"/", "/?state=working&repo=x&author=y", "/storybook/", "/storybook/empty", "/fleet", "/outcomes", "/outcomes?repo=%22%3E%3Cscript%3E&since=all&by=month",
		"/storybook/fleet", "/storybook/fleet-idle", "/storybook/outcomes", "/storybook/outcomes?by=week", "/storybook/outcomes-none", "/leave?to=https://example.com/%22%3E", "/nothing/here",
	}
	for _, st := range l.site.book.Stories() {
		p := "/tasks/" + string(st.Row.ID)
		out = append(out, p, p+"?before=20", p+"/steps?before=40", p+"?said=steer", p+"/diff?file=0", p+"/texts/1", p+"/texts/1?of=raw")
		for _, e := range st.Log {
			switch e.Kind {
			case "verification.finished":
				out = append(out, p+"/verification", fmt.Sprintf("%s/texts/%d", p, e.Seq))
			case "tool.finished", "tool.started", "model.response", "workspace.saved", "setup.finished":
				if e.Seq < 60 {
					out = append(out, fmt.Sprintf("%s/texts/%d", p, e.Seq))
				}
			}
		}
	}
	return out
}

// TestPagesAreInert_WEB01_WEB02_WEB04: whatever a record holds, a page has only our elements: no
// script, style or picture but ours, no handler, no link out of here but by the leaving page and to
// the forge.
func TestPagesAreInert_WEB01_WEB02_WEB04(t *testing.T) {
	l := newLab(t)
	elementsWeWrite := strings.Fields("html head meta title link script body a header svg path rect span nav ul ol li div form input button main p strong code h1 h2 h3 label select option table caption thead tbody tr th td time bdi " +
		"line text circle g desc article section details summary pre dl dt dd figure figcaption blockquote em del br hr mark kbd textarea")
	attributesWeWrite := strings.Fields("lang charset name content rel href type src class id data-theme data-src data-text data-theme-form data-task data-seq data-word data-updated data-label data-part data-whole data-earlier data-o data-n " +
		"role hidden method action value title tabindex aria-label aria-labelledby aria-current aria-hidden aria-busy for rows required placeholder maxlength autocomplete selected open datetime scope " +
		"viewBox preserveAspectRatio d x y width height download x1 y1 x2 y2 cx cy r aria-describedby")
	for _, path := range paths(l) {
		w := l.get(path)
		if w.Code != http.StatusOK && !(strings.HasPrefix(path, "/nothing") && w.Code == http.StatusNotFound) && !(strings.Contains(path, "/diff") && w.Code == http.StatusNotFound) {
			t.Errorf("%s: %d", path, w.Code)
			continue
		}
		if w.Code == http.StatusNotFound && strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
			continue // the mux's own
		}
		for _, e := range elements(t, w.Body.String()) {
			if !slices.Contains(elementsWeWrite, e.name) {
				t.Errorf("%s: an element %s", path, e.name)
			}
			for k, v := range e.attrs {
				if !slices.Contains(attributesWeWrite, k) {
					t.Errorf("%s: <%s %s=%.60q>", path, e.name, k, v)
				}
			}
			for _, k := range []string{"href", "src", "action"} {
				v, ok := e.attrs[k]
				forge := strings.HasPrefix(v, "https://git.example.com/shop/checkout/")
				leaving := strings.HasPrefix(path, "/leave") && strings.HasPrefix(v, "https://example.com/")
				if ok && (!strings.HasPrefix(v, "/") || strings.HasPrefix(v, "//")) && !strings.HasPrefix(v, "#") && !forge && !leaving {
					t.Errorf("%s: <%s %s=%q>", path, e.name, k, v)
				}
				if (forge || leaving) && !strings.Contains(e.attrs["rel"], "noopener noreferrer") {
					t.Errorf("%s: a link out without rel: %q", path, v)
				}
			}
			if e.name == "script" && (!strings.HasPrefix(e.attrs["src"], "/static/") || e.text != "") {
				t.Errorf("%s: a script of the page: %v %q", path, e.attrs, e.text)
			}
		}
	}
}

// TestOutline: each page has one h1, names for what is pressed and filled in, and no id twice.
func TestOutline(t *testing.T) {
	l := newLab(t)
	for _, path := range paths(l) {
		if strings.Contains(path, "/steps") || strings.HasPrefix(path, "/nothing") || strings.Contains(path, "/diff") {
			continue
		}
		h1, ids := 0, map[string]bool{}
		labelled := map[string]bool{}
		all := elements(t, l.page(path))
		for _, e := range all {
			if e.name == "label" {
				labelled[e.attrs["for"]] = true
			}
		}
		for _, e := range all {
			if e.name == "h1" {
				h1++
			}
			if id := e.attrs["id"]; id != "" {
				if ids[id] {
					t.Errorf("%s: the id %s is there twice", path, id)
				}
				ids[id] = true
			}
			if (e.name == "button" || e.name == "a" || e.name == "summary") && strings.TrimSpace(e.text) == "" && e.attrs["aria-label"] == "" {
				t.Errorf("%s: a %s without words: %v", path, e.name, e.attrs)
			}
			if (e.name == "textarea" || e.name == "input" && e.attrs["type"] != "hidden") && !labelled[e.attrs["id"]] {
				t.Errorf("%s: a field without a label: %v", path, e.attrs)
			}
		}
		if h1 != 1 {
			t.Errorf("%s: %d h1", path, h1)
		}
	}
}

// TestIssueIsWhatTheModelSaw_WEB09: the text of the issue on the page is the text in the record, and
// so are the hashes.
func TestIssueIsWhatTheModelSaw_WEB09(t *testing.T) {
	l := newLab(t)
	for _, st := range l.site.book.Stories() {
		p, err := event.Decode(st.Log[0])
		if err != nil {
			t.Fatal(err)
		}
		c := p.(*event.TaskCreated)
		found := false
		page := l.page("/tasks/" + string(st.Row.ID))
		for _, e := range elements(t, page) {
			if e.attrs["class"] == "issue" {
				found = true
				if e.text != c.Issue.Inline {
					t.Errorf("%s shows another issue:\n%q\n%q", st.Name, e.text, c.Issue.Inline)
				}
			}
		}
		if !found || !strings.Contains(page, c.IssueHash) || !strings.Contains(page, digestOf(c.Issue.Inline)) {
			t.Errorf("%s: the issue or its hashes are not shown", st.Name)
		}
		if c.Hidden > 0 && !strings.Contains(page, "What was hidden") {
			t.Errorf("%s: nothing says what was hidden", st.Name)
		}
	}
}

// TestFirstPaint: page, style and script are together under 100 KB as transferred.
func TestFirstPaint(t *testing.T) {
	l := newLab(t)
	for _, st := range l.site.book.Stories() {
		page := l.get("/tasks/"+string(st.Row.ID), "Accept-Encoding", "gzip")
		sum := page.Body.Len()
		for _, name := range []string{"app.css", "app.js", "mark.svg"} {
			sum += l.get(l.site.assets.path(name), "Accept-Encoding", "gzip").Body.Len()
		}
		if sum > 100_000 {
			t.Errorf("%s: %d bytes", st.Name, sum)
		}
		if html := unpack(t, page.Body); !strings.HasSuffix(html, "</html>") {
			t.Errorf("%s: packed wrongly", st.Name)
		}
	}
}

// TestWords: a word reaches the desk with the viewer's name, from a form and from a script, and only
// of those who may.
func TestWords(t *testing.T) {
	l := newLab(t)
	id := storetest.New(t, l.st, 1)
	p := "/tasks/" + string(id)
	for _, tt := range []struct{ path, text, said, to string }{
		{"/steer", "use the v2 API\n", "steer|" + string(id) + "|mira|use the v2 API", p + "?said=steer"},
		{"/stop", "", "stop|" + string(id) + "|mira|", p + "?said=stop"},
		{"/approve", "bd82", "approve|" + string(id) + "|mira|bd82", p + "?said=approve"},
		{"/retry", "", "retry|" + string(id) + "|mira", "/tasks/" + string(storetest.ID(77)) + "?said=retry"},
	} {
		l.desk.said = nil
		w := l.post(p+tt.path, url.Values{"text": {tt.text}})
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != tt.to || !slices.Equal(l.desk.said, []string{tt.said}) {
			t.Errorf("%s: %d %s %q", tt.path, w.Code, w.Header().Get("Location"), l.desk.said)
		}
	}
	if w := l.post(p+"/steer", url.Values{"text": {"x"}}, "Accept", "text/plain"); w.Code != http.StatusAccepted || !strings.Contains(w.Body.String(), "Noted") {
		t.Errorf("for a script: %d %s", w.Code, w.Body)
	}
	for name, form := range map[string]url.Values{"empty": {"text": {" \n"}}, "long": {"text": {strings.Repeat("x", maxWord+1)}}, "not UTF-8": {"text": {"\xff"}}} {
		if w := l.post(p+"/steer", form, "Accept", "text/plain"); w.Code != http.StatusUnprocessableEntity || strings.Count(strings.TrimSpace(w.Body.String()), "\n") > 0 {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	l.desk.err = &task.Error{Class: task.Conflict, Msg: "the task is over"}
	if w := l.post(p+"/stop", nil); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "the task is over") {
		t.Errorf("conflict: %d", w.Code)
	}
	l.desk.err, l.desk.said = nil, nil
	l.who.Scopes = []access.Scope{access.Read}
	for _, path := range []string{"/steer", "/stop", "/approve", "/retry"} {
		if w := l.post(p+path, url.Values{"text": {"x"}}); w.Code != http.StatusForbidden || l.desk.said != nil {
			t.Errorf("%s by a reader: %d %q", path, w.Code, l.desk.said)
		}
	}
	l.who.Scopes, l.who.Via = []access.Scope{access.Read, access.Steer}, access.ViaToken
	if w := l.post(p+"/retry", nil); w.Code != http.StatusForbidden || l.desk.said != nil {
		t.Errorf("a task made without the scope for it: %d %q", w.Code, l.desk.said)
	}
	if w := l.post(p+"/stop", nil); w.Code != http.StatusSeeOther || !slices.Equal(l.desk.said, []string{"stop|" + string(id) + "|token:mira|"}) {
		t.Errorf("a token's word: %d %q", w.Code, l.desk.said)
	}
	l.who.Scopes, l.desk.said = []access.Scope{access.Read, access.Approve}, nil
	if w := l.post(p+"/approve", nil); w.Code != http.StatusUnprocessableEntity || l.desk.said != nil {
		t.Errorf("approval of no change: %d %q", w.Code, l.desk.said)
	}
	l.who.Scopes = []access.Scope{access.Read}
	if page := l.page(p); strings.Contains(page, `action="`+p) {
		t.Error("a reader is shown forms")
	}
	if w := l.get(p + "/steer"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET of a word: %d", w.Code)
	}
}

// TestUnreadable_WEB06: a task that the viewer may not read is as one that is not there, at every
// address, and in the list.
func TestUnreadable_WEB06(t *testing.T) {
	l := newLab(t)
	id := storetest.New(t, l.st, 1)
	l.who = access.Viewer{Name: "eve", All: true, Scopes: access.Scopes(), Repos: []string{"other/*"}}
	p := "/tasks/" + string(id)
	for _, path := range []string{"", "/steps?before=9", "/live", "/verification", "/diff?file=0", "/texts/1", "/logs/" + strings.Repeat("ab", 32)} {
		there, gone := l.get(p+path), l.get("/tasks/"+string(storetest.ID(9))+path)
		if there.Code != http.StatusNotFound || there.Body.Len() != gone.Body.Len() {
			t.Errorf("%s: %d, %d and %d bytes", path, there.Code, there.Body.Len(), gone.Body.Len())
		}
	}
	if w := l.post(p+"/stop", nil); w.Code != http.StatusNotFound || l.desk.said != nil {
		t.Errorf("stop: %d %q", w.Code, l.desk.said)
	}
	if strings.Contains(l.page("/"), string(id)) {
		t.Error("the list shows it")
	}
}

// TestList filters by state, repository and author, and goes on after a page.
func TestList(t *testing.T) {
	l := newLab(t)
	make := func(n int, repo, who string, more ...event.Payload) task.ID {
		id := storetest.ID(n)
		row := store.Task{ID: id, Key: fmt.Sprint(n), Repo: repo, Title: fmt.Sprintf("title %d", n), Author: who}
		first := []event.Draft{storetest.Draft(t, event.TaskCreated{Repo: repo, IssueTitle: row.Title, RequestedBy: who})}
		if _, _, err := l.st.Create(t.Context(), row, first); err != nil {
			t.Fatal(err)
		}
		if len(more) > 0 {
			var drafts []event.Draft
			for _, p := range more {
				drafts = append(drafts, storetest.Draft(t, p))
			}
			if _, err := l.st.Append(t.Context(), storetest.Lease(t, l.st, id), drafts...); err != nil {
				t.Fatal(err)
			}
		}
		return id
	}
	a := make(1, "https://h/team/shop.git", "mira")
	b := make(2, "https://h/team/cart.git", "olga", event.StateChanged{From: task.Queued, To: task.Stopped}, event.ModelResponded{Step: 1, Cost: 1_230_000, Priced: true})
	c := make(3, "https://h/team/cart.git", "mira", event.StateChanged{From: task.Queued, To: task.Preparing})
	shown := func(path string) string {
		page := l.page(path)
		var out []string
		for _, id := range []task.ID{a, b, c} {
			if strings.Contains(page, `id="r-`+string(id)) {
				out = append(out, string(id)[len(id)-1:])
			}
		}
		return strings.Join(out, "")
	}
	for path, want := range map[string]string{
		"/": "123", "/?state=active": "13", "/?state=stopped": "2", "/?repo=https%3A%2F%2Fh%2Fteam%2Fcart.git": "23", "/?author=mira": "13",
		"/?author=mira&state=preparing": "3", "/?state=waiting": "", "/?before=" + string(b): "1", "/?state=%3Cb%3E": "",
	} {
		if got := shown(path); got != want {
			t.Errorf("%s shows %q, want %q", path, got, want)
		}
	}
	if page := l.page("/"); !strings.Contains(page, "$1.23") || !strings.Contains(page, "1 at work") {
		t.Error("cost or sum is not shown")
	}
}

// TestTexts: a whole text is there by its record, and a log by the verdict that names it; nothing
// else of the store is.
func TestTexts(t *testing.T) {
	l := newLab(t)
	p := "/tasks/" + string(storybook.ID(1))
	log := ""
	for _, e := range elements(t, l.page(p+"/verification")) {
		if strings.Contains(e.attrs["href"], "/logs/") && log == "" {
			log = e.attrs["href"]
		}
	}
	if page := l.page(log); !strings.Contains(page, "FAIL orders") {
		t.Errorf("the log %s is not shown", log)
	}
	secret, err := l.st.PutBlob(t.Context(), []byte("of another task"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{p + "/logs/" + secret, p + "/texts/0", p + "/texts/99999", p + "/texts/x", p + "/texts/3", p + "/diff?file=99", p + "/diff?file=-1"} {
		if w := l.get(path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	w := l.get(p + "/texts/1?raw=1")
	if h := w.Header(); !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || !strings.Contains(h.Get("Content-Security-Policy"), "sandbox") || h.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("raw: %v", h)
	}
	huge := l.page("/tasks/" + string(storybook.ID(4)) + "/diff?file=3")
	if len(huge) > 12<<20 || !strings.Contains(huge, "more lines are not shown") {
		t.Errorf("a file of 30,000 lines: %d bytes", len(huge))
	}
}

// TestLong: of 5,000 events a page holds the newest, and the older ones are reached from it.
func TestLong(t *testing.T) {
	l := newLab(t)
	path, seen, pages := "/tasks/"+string(storybook.ID(3)), map[string]bool{}, 0
	for path != "" {
		next := ""
		for _, e := range elements(t, l.page(path)) {
			if e.name == "li" && strings.HasPrefix(e.attrs["class"], "step") {
				if seen[e.attrs["id"]] {
					t.Fatalf("%s is shown twice", e.attrs["id"])
				}
				seen[e.attrs["id"]] = true
			}
			if v := e.attrs["data-earlier"]; v != "" {
				next = v
			}
		}
		path = next
		pages++
	}
	if len(seen) != 821 || pages < 10 {
		t.Errorf("%d steps on %d pages", len(seen), pages)
	}
}

func TestTheme(t *testing.T) {
	l := newLab(t)
	w := l.post("/theme", url.Values{"theme": {"dark"}, "next": {"/tasks/x?a=b"}})
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/tasks/x?a=b" || !strings.Contains(w.Header().Get("Set-Cookie"), "daybreak_theme=dark") {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	if w := l.get("/", "Cookie", "daybreak_theme=dark"); !strings.Contains(w.Body.String(), `data-theme="dark"`) {
		t.Error("the theme is not in the first byte")
	}
	for _, next := range []string{"https://evil.example", "//evil.example", "/\\evil.example", "", "javascript:x", "/\t/evil.example"} {
		if w := l.post("/theme", url.Values{"theme": {"x"}, "next": {next}}); w.Header().Get("Location") != "/" {
			t.Errorf("next %q leads to %q", next, w.Header().Get("Location"))
		}
	}
}

// TestLeave_WEB01: the address is shown whole before anybody goes there, and only https has a page.
func TestLeave_WEB01(t *testing.T) {
	l := newLab(t)
	if page := l.page("/leave?to=" + url.QueryEscape("https://example.com/a?b=<c>")); !strings.Contains(page, "https://example.com/a?b=&lt;c&gt;") {
		t.Error("the address is not shown")
	}
	for _, to := range []string{"http://example.com", "javascript:alert(1)", "https://example.com/\u200bx", "//example.com", ""} {
		if w := l.get("/leave?to=" + url.QueryEscape(to)); w.Code != http.StatusNotFound {
			t.Errorf("%q: %d", to, w.Code)
		}
	}
}

func TestAssets(t *testing.T) {
	l := newLab(t)
	for name, kind := range map[string]string{"app.css": "text/css; charset=utf-8", "app.js": "text/javascript; charset=utf-8", "mark.svg": "image/svg+xml"} {
		w := l.get(l.site.assets.path(name), "Accept-Encoding", "gzip")
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") || unpack(t, w.Body) == "" {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
	}
	if w := l.get("/static/app.css"); w.Code != http.StatusNotFound {
		t.Errorf("without its hash: %d", w.Code)
	}
}

// TestLive: a stream brings what the page misses, once and in order, and one that was cut goes on
// where it was.
func TestLive(t *testing.T) {
	l := newLab(t)
	srv := httptest.NewServer(l)
	defer srv.Close()
	id := storetest.New(t, l.st, 1)
	lease := storetest.Lease(t, l.st, id)
	add := func(ps ...event.Payload) {
		var drafts []event.Draft
		for _, p := range ps {
			drafts = append(drafts, storetest.Draft(t, p))
		}
		if _, err := l.st.Append(t.Context(), lease, drafts...); err != nil {
			t.Fatal(err)
		}
	}
	add(event.RunStarted{Worker: "w"}, event.StateChanged{From: task.Queued, To: task.Preparing})
	page := l.page("/tasks/" + string(id))
	if !strings.Contains(page, `data-src="/tasks/`+string(id)+`/live?after=3"`) {
		t.Fatal("the page does not say where its stream begins")
	}
	add(event.StateChanged{From: task.Preparing, To: task.Working}, event.ModelRequested{Step: 1})
	rows := map[string]int{}
	last := ""
	take := func(until string) func(string, string, string) bool {
		return func(at, name, data string) bool {
			if name != "patch" {
				t.Fatalf("event %q", name)
			}
			last = at
			for _, e := range elements(t, data) {
				if e.name == "li" && strings.HasPrefix(e.attrs["id"], "e-") {
					rows[e.attrs["id"]]++
				}
			}
			return at == until
		}
	}
	stream(t, srv.URL, "/tasks/"+string(id)+"/live?after=3", "", take("5"))
	add(event.ToolStarted{Step: 1, Call: "a", Name: "run", Args: event.Text{Inline: `{"command":"ls"}`, Bytes: 16}})
	add(event.Noticed{Step: 1, What: "stuck", Text: "x"})
	exit := 0
	add(event.ToolFinished{Step: 1, Call: "a", Name: "run", ExitCode: &exit})
	stream(t, srv.URL, "/tasks/"+string(id)+"/live?after=3", last, take("8"))
	if rows["e-4"] != 1 || rows["e-5"] != 2 || rows["e-7"] != 1 || len(rows) != 3 {
		t.Errorf("rows came %v times", rows)
	}
	var again bool
	var many []event.Payload
	for range 2*maxBurst + 2 {
		many = append(many, event.Noticed{Step: 1, What: "x", Text: "y"})
	}
	add(many...)
	stream(t, srv.URL, "/tasks/"+string(id)+"/live?after=8", "", func(_, name, _ string) bool {
		again = name == "again"
		return true
	})
	if !again {
		t.Error("a page that missed much is not told to load again")
	}
}

// TestListLive: a row comes when its task changes, and leaves when it does not fit any more.
func TestListLive(t *testing.T) {
	l := newLab(t)
	srv := httptest.NewServer(l)
	defer srv.Close()
	id := storetest.New(t, l.st, 1)
	step := 0
	stream(t, srv.URL, "/live/tasks?state=active&since="+url.QueryEscape(now().Add(-1).Format("2006-01-02T15:04:05.999999999Z07:00")), "", func(_, name, data string) bool {
		step++
		if step == 1 {
			if name != "row" || !strings.Contains(data, `id="r-`+string(id)) {
				t.Fatalf("first %s %.200s", name, data)
			}
			if _, err := l.st.Append(t.Context(), storetest.Lease(t, l.st, id), storetest.Draft(t, event.StateChanged{From: task.Queued, To: task.Stopped})); err != nil {
				t.Fatal(err)
			}
			return false
		}
		if name == "row" {
			return false // of the lease alone
		}
		if name != "gone" || data != "r-"+string(id) {
			t.Fatalf("then %s %q", name, data)
		}
		return true
	})
}

// stored puts a story of the book into the lab's store, as a worker would have.
func (l *lab) stored(book *storybook.Book, id task.ID) {
	l.t.Helper()
	events, err := book.Events(l.t.Context(), id, 0, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	row, _ := book.Task(l.t.Context(), id)
	drafts := make([]event.Draft, len(events))
	for i, e := range events {
		drafts[i] = event.Draft{Kind: e.Kind, Version: e.Version, Payload: e.Payload}
	}
	if _, _, err := l.st.Create(l.t.Context(), store.Task{ID: id, Key: string(id), Repo: row.Repo, Title: row.Title}, drafts[:1]); err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.st.Append(l.t.Context(), storetest.Lease(l.t, l.st, id), drafts[1:]...); err != nil {
		l.t.Fatal(err)
	}
}

// BenchmarkTaskPage renders the page of a task in a SQLite store as a browser asks for it: cold when
// the server has not seen the task yet, warm when it has.
func BenchmarkTaskPage(b *testing.B) {
	for _, n := range []int{500, 5000} {
		l := newLab(b)
		book, err := storybook.Long(now(), n)
		if err != nil {
			b.Fatal(err)
		}
		l.site.book, l.site.cfg.Source = nil, l.st
		l.stored(book, storybook.ID(1))
		path := "/tasks/" + string(storybook.ID(1))
		b.Run(fmt.Sprintf("cold/%d", n), func(b *testing.B) {
			for b.Loop() {
				l.site.shelf, l.site.facts = newShelf(l.site.cfg.Source), newFacts(l.site.cfg.Source)
				l.page(path)
			}
		})
		b.Run(fmt.Sprintf("warm/%d", n), func(b *testing.B) {
			l.site.shelf = newShelf(l.site.cfg.Source)
			for b.Loop() {
				l.page(path)
			}
		})
	}
}

// BenchmarkViewers is what a step of a task costs while many watch it: from the append until all of
// them have it.
func BenchmarkViewers(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := newLab(b)
			id := storetest.New(b, l.st, 1)
			lease := storetest.Lease(b, l.st, id)
			got := make(chan struct{}, n)
			ctx, cancel := context.WithCancel(b.Context())
			var viewers sync.WaitGroup
			before := heap()
			for range n {
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/tasks/"+string(id)+"/live?after=1", nil)
				viewers.Go(func() { l.ServeHTTP(&counter{seen: got}, r) })
			}
			step := 0
			add := func() {
				step++
				if _, err := l.st.Append(b.Context(), lease, storetest.Draft(b, event.ModelRequested{Step: step})); err != nil {
					b.Error(err)
					return
				}
				for range n {
					<-got
				}
			}
			add()
			each := float64(heap()-before) / float64(n)
			for b.Loop() {
				add()
			}
			b.ReportMetric(each*1000/1e6, "MB/1000-viewers")
			cancel()
			viewers.Wait()
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// counter is a viewer that says when a patch came.
type counter struct{ seen chan struct{} }

func (c *counter) Header() http.Header { return http.Header{} }
func (c *counter) WriteHeader(int)     {}
func (c *counter) Flush()              {}

func (c *counter) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("event: patch")) {
		c.seen <- struct{}{}
	}
	return len(b), nil
}

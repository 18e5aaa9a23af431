package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/outcome"
	"github.com/daybreak-agent/daybreak/internal/overview"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestDescription: the description is good OpenAPI 3.1 and describes exactly the routes that there
// are.
func TestDescription(t *testing.T) {
	l := newLab(t)
	if err := l.doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(l.doc.OpenAPI, "3.1") {
		t.Errorf("it is OpenAPI %s", l.doc.OpenAPI)
	}
	var have, want []string
	for _, r := range l.Routes() {
		if r.Pattern != "/api/" {
			have = append(have, r.Pattern)
		}
		if r.Policy != access.API && r.Pattern != "GET /api/openapi.yaml" {
			t.Errorf("%s is for %s", r.Pattern, r.Policy)
		}
	}
	for path, item := range l.doc.Paths.Map() {
		for method, op := range item.Operations() {
			want = append(want, method+" "+path)
			if op.OperationID == "" || op.Summary == "" {
				t.Errorf("%s %s has no id or summary", method, path)
			}
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("routes\n%s\ndescribed\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
	for _, s := range task.States() {
		if !slices.Contains(l.doc.Components.Schemas["State"].Value.Enum, any(string(s))) {
			t.Errorf("the state %s is not described", s)
		}
	}
	if w := l.call(t, access.Viewer{}, "GET", "/api/openapi.yaml", ""); w.Code != 200 || w.Body.String() != string(description) {
		t.Errorf("%d", w.Code)
	}
	if w := l.call(t, operator, "GET", "/api/nothing", ""); w.Code != 404 || !strings.Contains(w.Body.String(), "openapi") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestCreate(t *testing.T) {
	l := newLab(t)
	l.record(t, 1, "/srv/shop", "ann")
	body := `{"repo": "/srv/shop", "issue": "It breaks.", "priority": 1, "key": "JIRA-7", "requested_by": "ann", "budget": {"wall": "40m", "usd": 2.5}}`
	for i, want := range []int{http.StatusCreated, http.StatusOK} {
		w := l.call(t, operator, "POST", "/api/tasks", body)
		if w.Code != want || w.Header().Get("Location") != "/api/tasks/"+string(storetest.ID(1)) {
			t.Fatalf("%d: %d %s", i, w.Code, w.Body)
		}
	}
	if n := l.desk.asked[0]; n.Repo != "/srv/shop" || n.Issue != "It breaks." || n.Key != "JIRA-7" || n.Limits.Wall.Minutes() != 40 || n.Limits.Cost != 2_500_000 || n.Priority != 1 || n.RequestedBy != "ann" {
		t.Errorf("%+v", n)
	}
	if w := l.call(t, operator, "POST", "/api/tasks", `{"repo": "/srv/shop", "issue": "i"}`, "Idempotency-Key", "K"); w.Code != 200 || l.desk.asked[2].Key != "K" || l.desk.asked[2].RequestedBy != "api" {
		t.Errorf("%d %+v", w.Code, l.desk.asked[2])
	}
	for _, tt := range []struct {
		v    access.Viewer
		body string
		code int
	}{
		{ci, `{"repo": "https://hub/open/x", "issue": "i"}`, 409}, // the desk's task is of another repository
		{ci, `{"repo": "https://hub/secret/x", "issue": "i"}`, 404},
		{ci, `{"repo": "https://hub/open/x", "issue": "i", "requested_by": "ann"}`, 403},
		{ci, `{"repo": "https://hub/open/../secret", "issue": "i"}`, 400},
		{person("reader"), `{"repo": "https://hub/open/x", "issue": "i"}`, 403},
		{person("stranger"), `{"repo": "https://hub/open/x", "issue": "i"}`, 404},
		{person("writer"), `{"repo": "/srv/shop", "issue": "i"}`, 404},
		{operator, `{"repo": "/forbidden", "issue": "i"}`, 422},
		{person("writer"), `{"repo": "https://hub/open/x", "issue": "i", "key": "taken elsewhere"}`, 409},
	} {
		if w := l.call(t, tt.v, "POST", "/api/tasks", tt.body); w.Code != tt.code || w.Header().Get("Location") != "" {
			t.Errorf("%s %s: %d, want %d: %s", tt.v.Name, tt.body, w.Code, tt.code, w.Body)
		}
	}
}

func TestRefuses(t *testing.T) {
	l := newLab(t)
	id := "/api/tasks/" + string(l.record(t, 1, "/srv/shop", "ann"))
	for _, tt := range []struct {
		name, method, path, body string
		code                     int
	}{
		{"no JSON", "POST", "/api/tasks", "repo=r", 400},
		{"an unknown key", "POST", "/api/tasks", `{"repo": "r", "issue": "i", "sudo": true}`, 400},
		{"two objects", "POST", "/api/tasks", `{"repo": "r", "issue": "i"}{}`, 400},
		{"nothing to do", "POST", "/api/tasks", `{"repo": "r"}`, 400},
		{"a negative budget", "POST", "/api/tasks", `{"repo": "r", "issue": "i", "budget": {"steps": -1}}`, 400},
		{"not UTF-8", "POST", "/api/tasks", "{\"repo\": \"r\xff\", \"issue\": \"i\"}", 400},
		{"too large", "POST", "/api/tasks", `{"issue": "` + strings.Repeat("x", maxBody) + `"}`, 413},
		{"no such task", "GET", "/api/tasks/" + string(storetest.ID(9)), "", 404},
		{"no id", "GET", "/api/tasks/..%2f..%2fetc", "", 404},
		{"a state that is none", "GET", "/api/tasks?state=gone", "", 400},
		{"a limit that is none", "GET", "/api/tasks?limit=0", "", 400},
		{"a limit beyond", "GET", "/api/tasks?limit=201", "", 400},
		{"a position that is none", "GET", id + "/events?after=x", "", 400},
		{"a page that is none", "GET", id + "/events?limit=-1", "", 400},
		{"a blob of nobody", "GET", id + "/blobs/" + strings.Repeat("a", 64), "", 404},
		{"a blob that is a path", "GET", id + "/blobs/..%2fx", "", 404},
		{"nothing changed", "GET", id + "/diff", "", 404},
		{"nothing verified", "GET", id + "/verification", "", 404},
		{"nothing to say", "POST", id + "/steer", "", 400},
		{"an empty word", "POST", id + "/steer", `{"text": " \n"}`, 400},
		{"too much to say", "POST", id + "/steer", `{"text": "` + strings.Repeat("x", maxWord/2+1) + `"}`, 400},
		{"far too much", "POST", id + "/steer", `{"text": "` + strings.Repeat("x", maxWord) + `"}`, 413},
		{"an unknown word", "POST", id + "/stop", `{"why": "x"}`, 400},
		{"a tree to stop", "POST", id + "/stop", `{"tree": "x"}`, 400},
		{"a text to approve", "POST", id + "/approve", `{"text": "x"}`, 400},
		{"a long name", "POST", id + "/approve", `{"by": "` + strings.Repeat("x", 300) + `"}`, 400},
		{"a text to retry", "POST", id + "/retry", `{"text": "x"}`, 400},
		{"a budget that is none", "POST", id + "/budget", `{"wall": "soon"}`, 400},
		{"no budget", "POST", id + "/budget", "", 400},
		{"a time that is none", "GET", "/api/outcomes?since=soon", "", 400},
		{"a group that is none", "GET", "/api/outcomes?by=mood", "", 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := l.call(t, operator, tt.method, tt.path, tt.body)
			if w.Code != tt.code || len(l.desk.asked)+len(l.desk.said) > 0 || w.Header().Get("Content-Type") != "application/problem+json" {
				t.Fatalf("%d, want %d: %.200s", w.Code, tt.code, w.Body)
			}
		})
	}
}

// TestErrors: what the caller can put right is said, what is ours is not.
func TestErrors(t *testing.T) {
	l := newLab(t)
	id := l.record(t, 1, "/srv/shop", "ann")
	for class, want := range map[task.Class]int{
		task.Invalid: 422, task.Auth: 422, task.NotFound: 404, task.Conflict: 409, task.Overloaded: 503, task.Unavailable: 503, task.Transient: 503, task.Internal: 500,
	} {
		l.desk.err = &task.Error{Class: class, Msg: "canary"}
		for _, path := range []string{"/api/tasks", "/api/tasks/" + string(id) + "/approve"} {
			body := ""
			if path == "/api/tasks" {
				body = `{"repo": "/srv/shop", "issue": "i"}`
			}
			w := l.call(t, operator, "POST", path, body)
			p := decodeInto[access.Problem](t, w)
			if w.Code != want || strings.Contains(p.Detail, "canary") != (want < 500 || class == task.Overloaded) || p.Class != string(class) || (want == 503) != (w.Header().Get("Retry-After") != "") {
				t.Errorf("%s: %d %+v", class, w.Code, p)
			}
		}
	}
}

// TestWords: a word is taken with whose it is; only the operator's token speaks for others.
func TestWords(t *testing.T) {
	l := newLab(t)
	id := l.record(t, 1, "https://hub/open/x", "ann")
	admin := access.Viewer{Name: "bridge", Via: access.ViaToken, All: true, Scopes: []access.Scope{access.Admin}}
	for _, tt := range []struct {
		v          access.Viewer
		path, body string
		code       int
		said       string
	}{
		{operator, "steer", `{"text": " use a set ", "by": "olga"}`, 202, "steer olga use a set"},
		{operator, "steer", `{"text": "x"}`, 202, "steer api x"},
		{admin, "answer", `{"text": "yes", "by": "olga"}`, 202, "answer olga yes"},
		{admin, "stop", "", 202, "stop token:bridge "},
		{person("writer"), "stop", `{"text": "enough"}`, 202, "stop writer enough"},
		{person("writer"), "stop", `{"by": "writer"}`, 202, "stop writer "},
		{person("writer"), "stop", `{"by": "olga"}`, 403, ""},
		{person("writer"), "approve", `{"tree": "cafe"}`, 202, "approve writer cafe"},
		{person("writer"), "budget", `{"usd": 20, "wall": "2h"}`, 200, "budget writer $20.0000 2h0m0s"},
		{person("writer"), "retry", "", 201, "retry writer"},
		{person("reader"), "stop", "", 403, ""},
		{person("reader"), "approve", "", 403, ""},
		{person("stranger"), "stop", "", 404, ""},
		{ci, "stop", "", 403, ""},
		{ci, "budget", `{"usd": 1}`, 403, ""},
	} {
		l.desk.said = nil
		w := l.call(t, tt.v, "POST", "/api/tasks/"+string(id)+"/"+tt.path, tt.body)
		if w.Code != tt.code || strings.Join(l.desk.said, "|") != tt.said {
			t.Errorf("%s %s %s: %d %s, said %q", tt.v.Name, tt.path, tt.body, w.Code, w.Body, l.desk.said)
		}
	}
	scopes := access.Viewer{Name: "s", Via: access.ViaToken, All: true, Scopes: []access.Scope{access.Read, access.Steer}}
	if w := l.call(t, scopes, "POST", "/api/tasks/"+string(id)+"/retry", ""); w.Code != 403 {
		t.Errorf("a retry makes a task: %d", w.Code)
	}
}

func TestList(t *testing.T) {
	l := newLab(t)
	for n := 1; n <= 30; n++ {
		repo := "https://hub/open/x"
		if n%3 == 0 {
			repo = "https://hub/secret/x"
		}
		l.record(t, n, repo, fmt.Sprint("author", n%2))
	}
	l.record(t, 31, "https://hub/open/y", "ann", event.StateChanged{From: task.Queued, To: task.Failed})
	all := func(v access.Viewer, query string) (ids []task.ID) {
		t.Helper()
		next := ""
		for range 40 {
			page := decodeInto[Page](t, l.call(t, v, "GET", "/api/tasks?limit=4&"+query+next, ""))
			for _, r := range page.Tasks {
				ids = append(ids, r.Task)
			}
			if page.Next == "" {
				return ids
			}
			next = "&before=" + string(page.Next)
		}
		t.Fatal("the pages have no end")
		return nil
	}
	for _, tt := range []struct {
		v     access.Viewer
		query string
		n     int
		first int
	}{
		{operator, "", 31, 31},
		{person("reader"), "", 21, 31},
		{person("stranger"), "", 0, 0},
		{operator, "repo=https://hub/secret/x", 10, 30},
		{person("reader"), "repo=https://hub/secret/x", 0, 0},
		{operator, "author=author1", 15, 29},
		{operator, "state=failed,merged", 1, 31},
		{operator, "state=failed&state=queued", 31, 31},
		{ci, "", 21, 31},
	} {
		got := all(tt.v, tt.query)
		if len(got) != tt.n || tt.n > 0 && got[0] != storetest.ID(tt.first) {
			t.Errorf("%s %q: %d tasks, %v", tt.v.Name, tt.query, len(got), got)
		}
		for i := 1; i < len(got); i++ {
			if got[i] >= got[i-1] {
				t.Errorf("%s %q: %s after %s", tt.v.Name, tt.query, got[i], got[i-1])
			}
		}
	}
	if r := decodeInto[Row](t, l.call(t, operator, "GET", "/api/tasks/"+string(storetest.ID(31))+"/row", "")); r.State != task.Failed || r.LastSeq != 2 || r.Author != "ann" || r.Running {
		t.Errorf("%+v", r)
	}
}

func TestSums(t *testing.T) {
	l := newLab(t)
	l.record(t, 1, "https://hub/open/x", "ann", event.ModelResponded{Cost: 2_000_000, Priced: true})
	l.record(t, 2, "https://hub/secret/x", "ann", event.ModelResponded{Cost: 3_000_000, Priced: true})
	for v, want := range map[string]task.MicroUSD{"operator": 5_000_000, "reader": 2_000_000} {
		who := operator
		if v == "reader" {
			who = person("reader")
		}
		for range 2 { // the second time from what is remembered
			r := decodeInto[outcome.Report](t, l.call(t, who, "GET", "/api/outcomes?since=1d&by=month", ""))
			if r.Total.Cost != want || r.By != "month" {
				t.Errorf("%s: %+v", v, r.Total)
			}
		}
	}
	r := decodeInto[outcome.Report](t, l.call(t, operator, "GET", "/api/outcomes?repo=https://hub/secret/x", ""))
	if r.Total.Tasks != 1 || r.Groups[0].Name != "https://hub/secret/x" {
		t.Errorf("%+v", r)
	}
}

func TestFleetAndMe(t *testing.T) {
	l := newLab(t)
	open, secret := "https://hub/open/x", "https://hub/secret/x"
	l.desk.fleet = overview.Fleet{
		Running: []overview.Running{{Task: storetest.ID(1), Repo: open, State: task.Working, Owner: "host:1"}, {Task: storetest.ID(2), Repo: secret, State: task.Working}},
		Queue:   []overview.Queued{{Task: storetest.ID(3), Repo: secret, State: task.Queued}}, Caps: overview.Caps{Total: 9, Repo: 3, Author: 2},
		Sandboxes: []overview.Sandbox{{Task: storetest.ID(1), Repo: open, ID: "s", Since: l.now()}, {Task: storetest.ID(2), Repo: secret, ID: "s2"}},
		Workers:   []overview.Worker{{Owner: "host:1", Tasks: 2, Slots: 4, Here: true}},
		Ready: overview.Ready{
			Repos: []overview.ReadyRepo{{Repo: open, Waiting: 1}, {Repo: secret, Waiting: 2}, {Waiting: 1}},
			Sums:  &overview.ReadySums{Waiting: 4, Most: 6},
		},
		Limits: []overview.Limit{{Model: "m", Value: []byte(`{"a": 1}`), Meters: []overview.Meter{{Name: "requests", Most: 50, Left: 3, Gains: 50}}, Blocked: l.now()}},
		Registries: overview.Registries{
			Recent: []overview.Asked{{Task: storetest.ID(1), Repo: open, Ecosystem: "npm", Name: "left-pad"}, {Task: storetest.ID(2), Repo: secret, Name: "secret-lib", Refused: "name.budget"}, {Name: "doctor"}},
			Sums:   &overview.RegistrySums{Upstreams: []string{"npm registry.test"}, Served: 9},
		},
	}
	f := decodeInto[overview.Fleet](t, l.call(t, operator, "GET", "/api/fleet", ""))
	if len(f.Running) != 2 || len(f.Queue) != 1 || len(f.Sandboxes) != 2 || len(f.Limits) != 1 || f.Running[0].Owner == "" || f.Caps.Total != 9 || len(f.Workers) != 1 ||
		len(f.Ready.Repos) != 3 || f.Ready.Sums.Waiting != 4 || len(f.Registries.Recent) != 3 || f.Registries.Sums.Served != 9 || f.Partial {
		t.Errorf("%+v", f)
	}
	for name, v := range map[string]access.Viewer{"a reader": person("reader"), "a token": ci} {
		w := l.call(t, v, "GET", "/api/fleet", "")
		f = decodeInto[overview.Fleet](t, w)
		if len(f.Running) != 1 || len(f.Queue) != 0 || len(f.Sandboxes) != 1 || len(f.Limits) != 0 || f.Running[0].Owner != "" || f.Caps.Total != 0 || len(f.Workers) != 0 ||
			len(f.Ready.Repos) != 1 || f.Ready.Sums != nil || len(f.Registries.Recent) != 1 || f.Registries.Sums != nil {
			t.Errorf("%s: %+v", name, f)
		}
		if strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s learns of a repository: %s", name, w.Body)
		}
	}
	w := l.call(t, access.Viewer{Name: "none", Via: access.ViaOIDC, Scopes: []access.Scope{access.Read}}, "GET", "/api/fleet", "")
	if strings.Contains(w.Body.String(), "hub") || w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	me := decodeInto[Me](t, l.call(t, ci, "GET", "/api/whoami", ""))
	if me.Name != "ci" || me.Operates || !slices.Equal(me.Scopes, []access.Scope{access.Read, access.Create}) || len(me.Repos) != 1 || me.Key != "key" {
		t.Errorf("%+v", me)
	}
	if me := decodeInto[Me](t, l.call(t, operator, "GET", "/api/whoami", "")); !me.Operates || len(me.Scopes) != len(access.Scopes()) {
		t.Errorf("%+v", me)
	}
}

// FuzzParseNew: whatever is sent, it is refused in one line or keeps the caps.
func FuzzParseNew(f *testing.F) {
	f.Add([]byte(`{"repo": "r", "issue": "i", "budget": {"wall": "1h", "usd": 1e308}}`), "key")
	f.Add([]byte(`{"repo": "\u0000", "issue": [1]}`), "")
	f.Add([]byte(`{"repo": "a/../b", "issue": "i", "budget": {"usd": 3}}`), "")
	f.Fuzz(func(t *testing.T, body []byte, key string) {
		n, err := ParseNew(body, key)
		if err != nil {
			return
		}
		if n.Repo == "" || n.Issue == "" || len(n.Key) > maxKey || n.Priority < 0 || n.Priority > 4 || n.Limits.Cost < 0 || n.Limits.Wall < 0 || n.Limits.Steps < 0 || strings.Contains(n.Repo, "/../") {
			t.Fatalf("%+v", n)
		}
	})
}

package app

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/api"
	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/mirror"
	"github.com/daybreak-agent/daybreak/internal/mirror/service"
	"github.com/daybreak-agent/daybreak/internal/overview"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestRoutes_WEB05: every route of the service has a policy and keeps it: who shows nothing gets nothing
// but what is meant for everybody, and what another site makes a browser send is refused on every
// route but those that prove their sender.
func TestRoutes_WEB05(t *testing.T) {
	a, _ := serving(t, func(c *config.Config) {
		c.Forges["hub"] = config.Forge{Kind: config.Gitea, URL: "https://hub.example", TokenEnv: "ANTHROPIC_API_KEY"}
		c.Serve.URL = "https://daybreak.example"
		c.Serve.OIDC = &config.OIDC{Issuer: "https://id.example", ClientID: "x"}
	})
	s := serverOf(t, a)
	var public []string
	for _, r := range s.Routes() {
		method, path, ok := strings.Cut(r.Pattern, " ")
		if !ok {
			method, path = http.MethodPost, r.Pattern
		}
		path = strings.NewReplacer("{$}", "", "{id}", "t_01kh0000000000000000000001", "{seq}", "1", "{digest}", strings.Repeat("a", 64), "{name}", "app.css").Replace(path)
		ask := func(method string, headers ...string) *httptest.ResponseRecorder {
			q := httptest.NewRequest(method, "https://daybreak.example"+path, nil)
			for i := 0; i < len(headers); i += 2 {
				q.Header.Set(headers[i], headers[i+1])
			}
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, q)
			if w.Header().Get("Content-Security-Policy") == "" || w.Header().Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(w.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'") {
				t.Errorf("%s: the headers are %v", r.Pattern, w.Header())
			}
			return w
		}
		w := ask(method)
		bare := !ok
		switch r.Policy {
		case access.Open, access.Proven:
			public = append(public, string(r.Policy)+" "+r.Pattern)
		case access.API:
			if w.Code != http.StatusUnauthorized {
				t.Errorf("%s: %d without a viewer", r.Pattern, w.Code)
			}
		case access.Page, access.Operators:
			if method == http.MethodGet || bare {
				if get := ask(http.MethodGet); get.Code != http.StatusSeeOther || !strings.HasPrefix(get.Header().Get("Location"), access.PathSignIn) {
					t.Errorf("%s: %d without a viewer", r.Pattern, get.Code)
				}
			}
			if method != http.MethodGet && w.Code != http.StatusUnauthorized {
				t.Errorf("%s: %d without a viewer", r.Pattern, w.Code)
			}
		default:
			t.Errorf("%s has no policy", r.Pattern)
		}
		if r.Policy == access.Proven {
			continue
		}
		if w := ask(method, "Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example", "Sec-Fetch-Mode", "cors"); w.Code != http.StatusForbidden && (r.Policy != access.Open || method != http.MethodGet) {
			t.Errorf("%s from another site: %d", r.Pattern, w.Code)
		}
		if r.Policy != access.Open {
			w := httptest.NewRecorder()
			if s.Handler().ServeHTTP(w, httptest.NewRequest(method, "https://evil.example"+path, nil)); w.Code != http.StatusMisdirectedRequest {
				t.Errorf("%s at another name: %d", r.Pattern, w.Code)
			}
		}
	}
	slices.Sort(public)
	want := []string{
		"open GET /api/openapi.yaml", "open GET /favicon.ico", "open GET /sign-in", "open GET /sign-in/link", "open GET /sign-in/oidc", "open GET /sign-in/oidc/callback",
		"open GET /static/{name}", "open POST /sign-out", "open POST /theme", "proven /hooks/hub", "proven GET /healthz", "proven GET /metrics", "proven GET /readyz",
	}
	if !slices.Equal(public, want) {
		t.Errorf("for everybody are\n%s", strings.Join(public, "\n"))
	}
}

// TestDesk: words over the API do what they do from a forge.
func TestDesk(t *testing.T) {
	a, repo := serving(t, func(*config.Config) {})
	ctx, d := t.Context(), a.desk()
	made, _, err := d.Create(ctx, api.Request{NewTask: api.NewTask{Repo: repo, Issue: "It breaks.", RequestedBy: "ann"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Steer(ctx, made.ID, "olga", "use\u200b a set"); err != nil {
		t.Fatal(err)
	}
	in, err := a.Store.Signals(ctx, made.ID)
	if err != nil || len(in) != 1 || in[0].Kind != store.Steer || in[0].Who != "olga" || strings.Contains(in[0].Text, "\u200b") {
		t.Errorf("%+v %v", in, err)
	}
	if err := d.Steer(ctx, made.ID, "olga", " \n"); task.ClassOf(err) != task.Invalid {
		t.Errorf("nothing that can be read: %v", err)
	}
	if _, err := d.Retry(ctx, made.ID, "olga"); task.ClassOf(err) != task.Conflict {
		t.Errorf("under way: %v", err)
	}
	if l, err := d.Budget(ctx, made.ID, "olga", task.Limits{Cost: 20_000_000}); err != nil || l.Cost != 20_000_000 {
		t.Errorf("%+v %v", l, err)
	}
	if _, err := d.Budget(ctx, made.ID, "olga", task.Limits{Cost: 1_000_000_000}); task.ClassOf(err) != task.Invalid {
		t.Errorf("beyond what the operator allows: %v", err)
	}
	fl := &fleet{a: a, folds: newFolds(a.Store), repos: map[task.ID]string{}}
	f, err := fl.now(ctx)
	if err != nil || len(f.Queue) != 1 || f.Queue[0].Task != made.ID || len(f.Running) != 0 || f.Queue[0].Since.IsZero() || f.Ready.Sums != nil || f.Registries.Sums != nil {
		t.Errorf("%+v %v", f, err)
	}
	l, err := a.queue.store.Claim(ctx, store.Job{ID: mustJob(t, a), Task: made.ID}, "w", time.Minute, store.Caps{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []event.Payload{
		event.StateChanged{From: task.Queued, To: task.Preparing}, event.SandboxStarted{ID: "box", Purpose: "agent", Runtime: "runc"},
	} {
		e, err := event.New(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Store.Append(ctx, l, e); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time folded on
		f, err = fl.now(ctx)
		if err != nil || len(f.Queue) != 0 || len(f.Running) != 1 || len(f.Sandboxes) != 1 || f.Sandboxes[0].ID != "box" {
			t.Fatalf("%+v %v", f, err)
		}
		if f.Running[0].Since.IsZero() || f.Sandboxes[0].Since.Before(f.Running[0].Since) || len(f.Workers) != 1 || f.Workers[0] != (overview.Worker{Owner: "w", Tasks: 1}) {
			t.Errorf("%+v", f)
		}
	}
	key, kept := limitKey(a.Config.Model), `{"requests": {"limit": 60, "left": 60, "rate": 1}}`
	if err := a.Store.Update(ctx, key, func([]byte) ([]byte, error) { return []byte(kept), nil }); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if f, err = fl.now(ctx); err != nil || len(f.Limits) != 1 || string(f.Limits[0].Value) != kept || len(f.Limits[0].Meters) != 1 || f.Limits[0].Meters[0] != (overview.Meter{Name: "requests", Most: 60, Left: 60, Gains: 60}) {
			t.Errorf("%+v %v", f.Limits, err)
		}
	}
	a.slots = 3
	a.asked.add([]mirror.Entry{{Task: made.ID, Ecosystem: mirror.NPM, Name: "old"}})
	a.asked.add([]mirror.Entry{{Task: made.ID, Ecosystem: mirror.NPM, Name: "left-pad", New: true}, {Task: "doctor", Name: "x", Refused: mirror.ReasonBudget}})
	a.mirror = service.New(service.Config{})
	if f, err = fl.now(ctx); err != nil || len(f.Workers) != 2 || f.Registries.Sums != nil {
		t.Fatalf("%+v %v", f, err)
	}
	if r := f.Registries.Recent; len(r) != 3 || r[0].Repo != "" || r[0].Refused == "" || r[1].Name != "left-pad" || r[1].Repo != f.Running[0].Repo || !r[1].New || r[2].Name != "old" {
		t.Errorf("%+v", r)
	}
	for range 50 {
		a.asked.add([]mirror.Entry{{Name: "many"}})
	}
	if n := len(a.asked.all()); n != maxRecent {
		t.Errorf("%d lines of the ledger are kept", n)
	}
	stopped, err := event.New(event.StateChanged{From: task.Preparing, To: task.Stopped})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Store.Append(ctx, l, stopped); err != nil {
		t.Fatal(err)
	}
	if err := d.Stop(ctx, made.ID, "olga", ""); task.ClassOf(err) != task.Conflict {
		t.Errorf("over: %v", err)
	}
	if err := d.Steer(ctx, made.ID, "olga", "x"); task.ClassOf(err) != task.Conflict {
		t.Errorf("over: %v", err)
	}
	again, err := d.Retry(ctx, made.ID, "olga")
	if err != nil || again == made.ID {
		t.Fatalf("%s %v", again, err)
	}
	row, err := a.Store.Task(ctx, again)
	if err != nil || row.State != task.Queued || row.Author != "olga" || row.Repo != made.Repo || !row.Dispatch {
		t.Errorf("%+v %v", row, err)
	}
	if third, err := d.Retry(ctx, made.ID, "ann"); err != nil || third != again {
		t.Errorf("one task for an issue: %s %v", third, err)
	}
}

func mustJob(t *testing.T, a *App) int64 {
	t.Helper()
	all, err := a.queue.store.Unfinished(t.Context())
	if err != nil || len(all) == 0 {
		t.Fatal(err)
	}
	return all[0].Job
}

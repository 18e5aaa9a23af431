package github

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/forge/forgetest"
	"github.com/daybreak-agent/daybreak/internal/forge/wire"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func (h *hub) fixture(asApp bool) forgetest.HostFixture {
	t := h.t
	g := forgetest.Git(t)
	cfg := Config{
		Name: "github", URL: h.srv.URL, API: h.srv.URL + "/api/v3", Git: g, Now: time.Now, Wire: wire.Config{Internal: true},
		Pinned: func(p string) string {
			if p == fakeOwner+"/"+fakeRepo {
				return strconv.Itoa(fakeID)
			}
			return ""
		},
	}
	bot := "machine"
	if asApp {
		bot, cfg.App = "daybreak[bot]", &App{ID: fakeApp, Key: h.key}
	} else {
		cfg.Token = "machine-token"
		h.may["machine"] = "write"
	}
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	gitdir, commit := forgetest.Ours(t, g, h.bare)
	locked := func(do func()) { h.mu.Lock(); defer h.mu.Unlock(); do() }
	fx := forgetest.HostFixture{
		Fixture: forgetest.Fixture{
			Forge: f, Repo: h.srv.URL + "/" + fakeOwner + "/" + fakeRepo + ".git", Base: "main", GitDir: gitdir, Commit: commit,
			Head: func(_ *testing.T, branch string) string { return h.head(branch) },
			SomebodyPushes: func(t *testing.T, branch, commit string) {
				gittest.Run(t, gitdir, "push", "-q", "--force", h.bare, commit+":refs/heads/"+branch)
			},
		},
		Host: f, Writer: "wanda", Reader: "rita", Stranger: "stan", Bot: bot, Secret: []byte(fakeSecret),
	}
	h.people(&fx, locked)
	fx.Forked = func(t *testing.T) forgetest.Forked {
		cfg.Fork = wire.Fork{Owner: forkOwner, Token: forkToken}
		h.forking = true
		h.tokens[forkToken] = true
		k, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return forgetest.Forked{
			Host: k, Owner: forkOwner, Token: forkToken, Head: func(_ *testing.T, branch string) string { return h.forkHead(branch) },
			Squat: func(*testing.T) { locked(func() { h.makeFork(true) }) },
		}
	}
	return fx
}

// people acts as persons do in a browser.
func (h *hub) people(fx *forgetest.HostFixture, locked func(func())) {
	fx.OpenIssue = func(_ *testing.T, by, title, body string) (n int) {
		locked(func() { n = h.open(by, title, body).number })
		return n
	}
	fx.EditIssue = func(_ *testing.T, by string, issue int, body string) {
		locked(func() {
			i := h.issues[issue]
			h.now()
			i.body, i.updated = body, h.clock
			h.tell("issues", by, object{"action": "edited", "issue": h.issueOf(i)})
		})
	}
	fx.Label = func(_ *testing.T, by string, issue int, label string) {
		locked(func() {
			i := h.issues[issue]
			i.acts = append(i.acts, object{"event": "labeled", "actor": userOf(by), "created_at": h.now(), "label": object{"name": label, "color": "00aabb"}})
			i.labels, i.updated = append(i.labels, label), h.clock
			h.tell("issues", by, object{"action": "labeled", "issue": h.issueOf(i), "label": object{"name": label}})
		})
	}
	fx.Assign = func(_ *testing.T, by string, issue int, who string) {
		locked(func() {
			i := h.issues[issue]
			i.acts = append(i.acts, object{"event": "assigned", "actor": userOf(by), "created_at": h.now(), "assignee": userOf(who), "assigner": userOf(by)})
			i.assigned, i.updated = append(i.assigned, who), h.clock
			h.tell("issues", by, object{"action": "assigned", "issue": h.issueOf(i), "assignee": userOf(who)})
		})
	}
	fx.Say = func(_ *testing.T, by string, issue int, body string) (id string) {
		locked(func() {
			n := h.say(by, issue, body)
			id = strconv.FormatInt(n.id, 10)
			h.tell("issue_comment", by, object{"action": "created", "issue": h.issueOf(h.issues[issue]), "comment": n.object()})
		})
		return id
	}
	fx.SayAgain = func(_ *testing.T, by, id, body string) {
		locked(func() {
			for _, n := range h.comments {
				if strconv.FormatInt(n.id, 10) == id {
					h.now()
					n.body, n.updated = body, h.clock
					h.tell("issue_comment", by, object{"action": "edited", "issue": h.issueOf(h.issues[n.issue]), "comment": n.object()})
				}
			}
		})
	}
	fx.SayAt = func(_ *testing.T, by string, pull int, path string, line int, body string) {
		locked(func() {
			h.now()
			h.seq++
			h.lines = append(h.lines, &note{id: h.seq, issue: pull, by: by, body: body, path: path, line: line, commit: h.head(h.issues[pull].pull.head), created: h.clock, updated: h.clock})
		})
	}
	fx.MakeReady = func(_ *testing.T, _ string, pull int) { locked(func() { h.issues[pull].pull.draft = false }) }
	end := func(by string, pull int, merge bool) {
		locked(func() {
			i := h.issues[pull]
			h.now()
			i.state, i.updated, i.pull.ended = "closed", h.clock, h.clock
			if merge {
				head := h.head(i.pull.head)
				i.pull.mergedBy = by
				i.pull.merge = gittest.Run(h.t, h.bare, "commit-tree", "-p", "main", "-p", head, "-m", "merge", head+"^{tree}")
				gittest.Run(h.t, h.bare, "update-ref", "refs/heads/main", i.pull.merge)
			}
			h.tell("pull_request", by, object{"action": "closed", "number": pull, "pull_request": h.pullOf(i)})
		})
	}
	fx.Merge = func(_ *testing.T, by string, pull int) { end(by, pull, true) }
	fx.Close = func(_ *testing.T, by string, pull int) { end(by, pull, false) }
	fx.Replace = func(*testing.T) { locked(func() { h.id++ }) }
	fx.Statuses = func(_ *testing.T, commit string) (out []string) {
		locked(func() {
			for _, c := range h.checks {
				if c["head_sha"] == commit {
					out = append(out, fmt.Sprint(c["conclusion"], ": ", c["output"].(object)["title"]))
				}
			}
			for _, s := range h.statuses {
				if s["sha"] == commit {
					out = append(out, fmt.Sprint(s["state"], ": ", s["description"]))
				}
			}
		})
		slices.Reverse(out)
		return out
	}
	fx.Reactions = func(_ *testing.T, issue int, comment string) (n int) {
		locked(func() {
			at := fmt.Sprint(issue, "/")
			if comment != "" {
				at = "/" + comment
			}
			n = h.reacts[at]
		})
		return n
	}
	fx.Next = func(t *testing.T) forgetest.Delivered {
		return h.hook.Next(t, func(d forgetest.Delivered) bool {
			got, err := fx.Host.Parse(d.Header, d.Body)
			return err != nil || got.Kind != forge.Ignored
		})
	}
	fx.Requests = func() (out []string) {
		locked(func() { out = slices.Clone(h.requests) })
		return out
	}
}

// TestAgainstTheDescription_FRG03 is the suite against a fake whose every request and answer is held
// to GitHub's own description.
func TestAgainstTheDescription_FRG03(t *testing.T) {
	var ops []string
	for op := range operations() {
		ops = append(ops, op)
	}
	desc := describe(t, ops)
	for _, c := range []struct {
		name string
		app  bool
	}{{"app", true}, {"token", false}} {
		fresh := func(t *testing.T) forgetest.HostFixture {
			h := newHub(t, desc)
			fx := h.fixture(c.app)
			if c.app {
				t.Cleanup(func() { h.narrow(t) })
			}
			return fx
		}
		t.Run(c.name+"/branches", func(t *testing.T) {
			forgetest.Run(t, func(t *testing.T) forgetest.Fixture { return fresh(t).Fixture })
		})
		t.Run(c.name+"/people", func(t *testing.T) { forgetest.RunHost(t, fresh) })
	}
	if flag.Lookup("test.run").Value.String() != "" {
		return // a part of the suite uses a part of the operations
	}
	slices.Sort(ops)
	for _, op := range ops {
		if desc.used[op] == 0 && !strings.HasSuffix(op, "/protection") {
			t.Errorf("%s was never asked for", op)
		}
	}
}

// narrow is FRG-03: every token was for the one repository, and never for workflows or more.
func (h *hub) narrow(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.granted) == 0 && len(h.requests) > 0 {
		t.Error("no token was made: the check proves nothing")
	}
	want := map[string]any{"contents": "write", "issues": "write", "pull_requests": "write", "checks": "write", "metadata": "read"}
	for _, g := range h.granted {
		if p := g["permissions"].(map[string]any); p["contents"] == "read" && h.forking { // it is enough there
			p["contents"] = "write"
		}
		if fmt.Sprint(g["permissions"]) != fmt.Sprint(want) || len(g["repository_ids"].([]any)) != 1 || g["repositories"] != nil {
			t.Errorf("a token was asked for with %v", g)
		}
	}
}

// TestGenuineWebhooks reads every example that GitHub publishes: none may be refused, and those
// that matter must be understood.
func TestGenuineWebhooks(t *testing.T) {
	raw := published(t, examplesPackage, examplesHash, "package/api.github.com/index.json")
	var all []struct {
		Name     string            `json:"name"`
		Examples []json.RawMessage `json:"examples"`
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	f := &Forge{cfg: Config{Name: "github"}}
	kinds, n := map[forge.Kind]int{}, 0
	for _, e := range all {
		for i, b := range e.Examples {
			n++
			d, err := f.Parse(http.Header{"X-Github-Event": {e.Name}, "X-Github-Delivery": {"x"}}, b)
			if err != nil {
				t.Errorf("%s %d: %v", e.Name, i, err)
				continue
			}
			kinds[d.Kind]++
			if d.Kind == forge.Ignored || d.Kind == forge.Ping {
				continue
			}
			if d.Repository == "0" || d.Path == "" || d.Sender.Name == "" {
				t.Errorf("%s %d: %+v", e.Name, i, d)
			}
			for _, must := range []struct {
				kind forge.Kind
				ok   bool
			}{
				{forge.Labeled, d.Issue != nil && len(d.Labels) == 1 && !d.At.IsZero()},
				{forge.Assigned, d.Issue != nil && len(d.Assignees) == 1},
				{forge.Commented, d.Comment != nil && d.Comment.ID != "0" && d.Issue != nil},
				{forge.ReviewCommented, d.Comment != nil && d.Comment.Path != "" && d.Pull != nil},
				{forge.Reviewed, d.Verdict != "" && d.Pull != nil},
				{forge.PullEnded, d.Pull != nil && d.Pull.Number > 0 && d.Pull.State != forge.PullOpen},
				{forge.Pushed, d.Branch != "" && len(d.After) == 40},
			} {
				if d.Kind == must.kind && !must.ok {
					t.Errorf("%s %d: %+v", e.Name, i, d)
				}
			}
		}
	}
	t.Logf("%d examples of %d events: %v", n, len(all), kinds)
	for _, k := range []forge.Kind{forge.Labeled, forge.Assigned, forge.Edited, forge.Commented, forge.ReviewCommented, forge.Reviewed, forge.PullEnded, forge.Pushed} {
		if kinds[k] == 0 {
			t.Errorf("no example is a %s", k)
		}
	}
	if n < 200 {
		t.Errorf("only %d examples", n)
	}
}

func TestStopButton(t *testing.T) {
	f := &Forge{cfg: Config{Name: "github"}}
	body := `{"action":"requested_action","requested_action":{"identifier":"stop"},"check_run":{"id":1,"name":"daybreak","external_id":"t_1"},"repository":{"id":1,"full_name":"a/b"},"sender":{"id":2,"login":"wanda","type":"User"}}`
	d, err := f.Parse(http.Header{"X-Github-Event": {"check_run"}, "X-Github-Delivery": {"x"}}, []byte(body))
	if err != nil || d.Kind != forge.StopPressed || d.Task != "t_1" || d.Sender.Name != "wanda" {
		t.Errorf("%+v %v", d, err)
	}
	d, err = f.Parse(http.Header{"X-Github-Event": {"check_run"}, "X-Github-Delivery": {"x"}}, []byte(strings.Replace(body, `"name":"daybreak"`, `"name":"other"`, 1)))
	if err != nil || d.Kind != forge.Ignored {
		t.Errorf("the button of somebody else's check: %+v %v", d, err)
	}
}

func TestParseKey(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{
		pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: p8}),
	} {
		if k, err := ParseKey(b); err != nil || !k.Equal(key) {
			t.Error(err)
		}
	}
	for _, b := range [][]byte{nil, []byte("x"), pem.EncodeToMemory(&pem.Block{Type: "X", Bytes: []byte("x")})} {
		if _, err := ParseKey(b); task.ClassOf(err) != task.Invalid {
			t.Errorf("%q: %v", b, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("issues", []byte(`{"action":"labeled","issue":{"number":1},"repository":null,"sender":null}`))
	f.Add("pull_request_review", []byte(`{"action":"submitted","review":{},"pull_request":{}}`))
	f.Fuzz(func(t *testing.T, event string, body []byte) {
		h := &Forge{cfg: Config{Name: "github"}}
		d, err := h.Parse(http.Header{"X-Github-Event": {event}, "X-Github-Delivery": {"x"}}, body)
		if err == nil && d.Kind != forge.Ignored && d.Kind != forge.Ping && !json.Valid(bytes.TrimSpace(body)) {
			t.Errorf("%+v from what is no JSON", d)
		}
	})
}

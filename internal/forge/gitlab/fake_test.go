package gitlab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge/forgetest"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
)

// A GitLab of our own making: no real one can run beside a test, so what it does is what the
// documents of its API say, as far as we read them.

type object = map[string]any

const (
	fakePath   = "shops/north/cart"
	fakeID     = 42
	fakeToken  = "glpat-test-token"
	forkID     = 4242
	forkPath   = "forks/daybreak/cart"
	forkToken  = "glpat-fork-token"
	fakeSecret = "a webhook's token"
)

type lab struct {
	t     *testing.T
	srv   *httptest.Server
	bare  string
	other string       // the fork, "" until there is one
	squat bool         // which is none
	files http.Handler // of git
	hook  *forgetest.Hook

	mu       sync.Mutex
	id, seq  int
	clock    time.Time
	issues   []object
	labels   map[int][]object
	merges   []object
	notes    map[string][]object // by "issues/1"
	lines    []object
	awards   map[string]int
	statuses []object
	requests []string
	scopes   []string // of the token

	protected object // how the default branch is; nil: it is not
}

func newLab(t *testing.T) *lab {
	t.Helper()
	root := t.TempDir()
	l := &lab{
		t: t, bare: filepath.Join(root, fakePath+".git"), files: forgetest.GitHTTP(t, root), hook: forgetest.Receive(t), id: fakeID, seq: 100, clock: time.Now().UTC().Add(-time.Minute).Truncate(time.Second),
		labels: map[int][]object{}, notes: map[string][]object{}, awards: map[string]int{}, scopes: []string{"api", "write_repository"},
	}
	gittest.Run(t, root, "init", "-q", "--bare", "-b", "main", l.bare)
	gittest.Run(t, l.bare, "config", "http.receivepack", "true")
	forgetest.Seed(t, l.bare)
	l.srv = httptest.NewServer(l)
	t.Cleanup(l.srv.Close)
	return l
}

func (l *lab) now() string { l.clock = l.clock.Add(time.Second); return l.clock.Format(time.RFC3339) }

func people() []string { return []string{"olga", "wanda", "rita", "stan", "bot"} }

func userOf(name string) object {
	return object{"id": 1 + slices.Index(people(), name), "username": name, "name": name, "state": "active"}
}

func level_(name string) int {
	return map[string]int{"olga": 50, "wanda": 30, "bot": 30, "rita": 20}[name]
}

func (l *lab) head(branch string) string {
	return gittest.Run(l.t, l.bare, "for-each-ref", "--format=%(objectname)", "refs/heads/"+branch)
}

// fork makes the fork, or something else of its name.
func (l *lab) fork(squat bool) {
	l.other, l.squat = filepath.Join(filepath.Dir(l.bare), "..", "..", forkPath+".git"), squat
	gittest.Run(l.t, l.bare, "clone", "-q", "--bare", l.bare, l.other)
	gittest.Run(l.t, l.other, "config", "http.receivepack", "true")
}

func (l *lab) forkHead(branch string) string {
	if l.other == "" {
		return ""
	}
	return gittest.Run(l.t, l.other, "for-each-ref", "--format=%(objectname)", "refs/heads/"+branch)
}

// forked answers what is asked about the fork, with its token alone.
func (l *lab) forked(r *http.Request, path string, in object) (int, any) {
	switch {
	case r.Method == "POST" && path == fmt.Sprintf("/projects/%d/fork", l.id):
		if in["namespace_path"] != "forks/daybreak" {
			return 404, object{"message": "404 Target Namespace Not Found"}
		}
		l.fork(false)
	case r.Method == "POST" && path == fmt.Sprintf("/projects/%d/merge_requests", forkID):
		if fmt.Sprint(in["target_project_id"]) != fmt.Sprint(l.id) || l.forkHead(fmt.Sprint(in["source_branch"])) == "" {
			return 400, object{"message": "bad target or source"}
		}
		in["source_project_id"] = forkID
		return l.answer(r, fmt.Sprintf("/projects/%d/merge_requests", l.id), in)
	case r.Method == "PUT" && strings.HasPrefix(path, fmt.Sprintf("/projects/%d/merge_requests/", l.id)):
		return l.answer(r, path, in)
	case path != "/projects/"+forkPath || l.other == "":
		return 404, object{"message": "404 Project Not Found"}
	}
	p := object{"id": forkID, "path_with_namespace": forkPath, "default_branch": "main", "visibility": "private"}
	if !l.squat {
		p["forked_from_project"] = l.project()
	}
	return 201, p
}

func (l *lab) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		l.t.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	path, api := strings.CutPrefix(r.URL.EscapedPath(), "/api/v4")
	if !api {
		l.git(w, r)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	path, err = url.PathUnescape(path)
	if err != nil {
		l.t.Error(err)
	}
	l.requests = append(l.requests, r.Method+" "+path+" "+string(body))
	var in object
	_ = json.Unmarshal(body, &in)
	code, out := 401, any(object{"message": "401 Unauthorized"})
	if r.Header.Get("Private-Token") == fakeToken {
		code, out = l.answer(r, path, in)
	} else if r.Header.Get("Private-Token") == forkToken {
		code, out = l.forked(r, path, in)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(out)
}

func (l *lab) git(w http.ResponseWriter, r *http.Request) {
	if _, token, _ := r.BasicAuth(); token == forkToken && strings.HasPrefix(r.URL.Path, "/"+forkPath+".git/") {
		l.files.ServeHTTP(w, r)
		return
	} else if token != fakeToken || !strings.HasPrefix(r.URL.Path, "/"+fakePath+".git/") {
		w.Header().Set("WWW-Authenticate", "Basic")
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	before := gittest.Run(l.t, l.bare, "for-each-ref", "--format=%(refname) %(objectname)")
	l.files.ServeHTTP(w, r)
	if after := gittest.Run(l.t, l.bare, "for-each-ref", "--format=%(refname) %(objectname)"); after != before {
		for line := range strings.Lines(after) {
			if ref, id, _ := strings.Cut(strings.TrimSpace(line), " "); !strings.Contains(before, strings.TrimSpace(line)) {
				l.tell("Push Hook", object{"object_kind": "push", "ref": ref, "before": strings.Repeat("0", 40), "after": id, "user_id": 5, "user_username": "bot"})
			}
		}
	}
}

func (l *lab) tell(event string, what object) {
	what["project"] = object{"id": l.id, "path_with_namespace": fakePath}
	b, err := json.Marshal(what)
	if err != nil {
		l.t.Error(err)
	}
	l.hook.Send(forgetest.Delivered{Body: b, Header: http.Header{
		"X-Gitlab-Event": {event}, "X-Gitlab-Token": {fakeSecret}, "Idempotency-Key": {fmt.Sprint("key-", time.Now().UnixNano())},
	}})
}

func (l *lab) project() object {
	return object{"id": l.id, "path_with_namespace": fakePath, "default_branch": "main", "visibility": "private", "web_url": l.srv.URL + "/" + fakePath}
}

// answer plays the API.
func (l *lab) answer(r *http.Request, path string, in object) (int, any) {
	missing := object{"message": "404 Not found"}
	switch {
	case path == "/user":
		return 200, userOf("bot")
	case path == "/personal_access_tokens/self":
		return 200, object{"id": 1, "scopes": l.scopes}
	case path == "/users":
		name := r.URL.Query().Get("username")
		if !slices.Contains(people(), name) {
			return 200, []any{}
		}
		return 200, []any{userOf(name)}
	case path == "/projects/"+fakePath || path == fmt.Sprint("/projects/", l.id):
		return 200, l.project()
	}
	rest, ok := strings.CutPrefix(path, fmt.Sprintf("/projects/%d/", l.id))
	if !ok {
		return 404, missing
	}
	m := func(pattern string) []string {
		method, p, _ := strings.Cut(pattern, " ")
		if method != r.Method {
			return nil
		}
		return regexp.MustCompile("^" + p + "$").FindStringSubmatch(rest)
	}
	if x := m(`GET members/all/(\d+)`); x != nil {
		n, _ := strconv.Atoi(x[1])
		name := people()[n-1]
		if level_(name) == 0 {
			return 404, missing
		}
		u := userOf(name)
		u["access_level"] = level_(name)
		return 200, u
	}
	if m(`GET members/all`) != nil {
		var out []any
		for _, p := range people() {
			if level_(p) > 0 {
				u := userOf(p)
				u["access_level"] = level_(p)
				out = append(out, u)
			}
		}
		return 200, out
	}
	if m(`GET protected_branches/\w+`) != nil {
		if l.protected == nil {
			return 404, missing
		}
		return 200, l.protected
	}
	if x := m(`POST statuses/([0-9a-f]{40})`); x != nil {
		in["sha"] = x[1]
		l.statuses = append(l.statuses, in)
		return 201, object{"id": 1, "status": in["state"]}
	}
	if x := m(`POST (issues|merge_requests)/(\d+)(?:/notes/(\d+))?/award_emoji`); x != nil {
		at := x[2] + "/" + x[3]
		if l.awards[at] > 0 {
			return 404, object{"message": "404 Award Emoji Name has already been taken Not Found"}
		}
		l.awards[at]++
		return 201, object{"id": 1, "name": in["name"]}
	}
	return l.talk(r, m, in, missing)
}

func (l *lab) talk(r *http.Request, m func(string) []string, in, missing object) (int, any) {
	q := r.URL.Query()
	if m(`GET issues`) != nil {
		out := []any{}
		for _, i := range l.issues {
			since, _ := time.Parse(time.RFC3339, q.Get("updated_after"))
			at, _ := time.Parse(time.RFC3339, fmt.Sprint(i["updated_at"]))
			if (q.Get("labels") == "" || slices.Contains(i["labels"].([]string), q.Get("labels"))) && !at.Before(since) {
				out = append(out, i)
			}
		}
		return 200, out
	}
	if x := m(`GET issues/(\d+)`); x != nil {
		if n, _ := strconv.Atoi(x[1]); n <= len(l.issues) {
			return 200, l.issues[n-1]
		}
		return 404, missing
	}
	if x := m(`GET issues/(\d+)/resource_label_events`); x != nil {
		n, _ := strconv.Atoi(x[1])
		return 200, append([]object{}, l.labels[n]...)
	}
	if x := m(`GET ((?:issues|merge_requests)/\d+)/notes`); x != nil {
		return 200, append([]object{}, l.notes[x[1]]...)
	}
	if x := m(`POST ((?:issues|merge_requests)/\d+)/notes`); x != nil {
		return 201, l.say("bot", x[1], fmt.Sprint(in["body"]))
	}
	if x := m(`PUT ((?:issues|merge_requests)/\d+)/notes/(\d+)`); x != nil {
		for _, n := range l.notes[x[1]] {
			if fmt.Sprint(n["id"]) == x[2] {
				n["body"], n["updated_at"] = in["body"], l.now()
				return 200, n
			}
		}
		return 404, missing
	}
	if m(`GET merge_requests`) != nil {
		out := []any{}
		for _, x := range l.merges {
			if x["source_branch"] == q.Get("source_branch") {
				out = append(out, l.merge(x))
			}
		}
		return 200, out
	}
	if m(`POST merge_requests`) != nil {
		for _, x := range l.merges {
			if x["source_branch"] == in["source_branch"] && x["state"] == "opened" {
				return 409, object{"message": []string{"Another open merge request already exists for this source branch: !1"}}
			}
		}
		x := object{
			"iid": len(l.merges) + 1, "title": in["title"], "description": in["description"], "source_branch": in["source_branch"], "target_branch": in["target_branch"],
			"state": "opened", "source_project_id": l.id, "author": userOf("bot"),
		}
		if in["source_project_id"] == forkID {
			x["source_project_id"] = forkID
		}
		x["web_url"] = fmt.Sprintf("%s/%s/-/merge_requests/%d", l.srv.URL, fakePath, x["iid"])
		l.merges = append(l.merges, x)
		return 201, l.merge(x)
	}
	if x := m(`(?:GET|PUT) merge_requests/(\d+)`); x != nil || m(`PUT merge_requests/(\d+)`) != nil || m(`GET merge_requests/(\d+)`) != nil {
		y := append(m(`PUT merge_requests/(\d+)`), m(`GET merge_requests/(\d+)`)...)
		n, _ := strconv.Atoi(y[1])
		if n > len(l.merges) {
			return 404, missing
		}
		for k, v := range in {
			l.merges[n-1][k] = v
		}
		return 200, l.merge(l.merges[n-1])
	}
	if m(`GET merge_requests/(\d+)/discussions`) != nil {
		out := []any{}
		for _, n := range l.lines {
			out = append(out, object{"id": fmt.Sprint("d", n["id"]), "notes": []any{n}})
		}
		return 200, out
	}
	if m(`POST merge_requests/(\d+)/discussions/d\d+/notes`) != nil {
		l.seq++
		return 201, object{"id": l.seq, "body": in["body"], "author": userOf("bot")}
	}
	l.t.Errorf("the fake has no %s %s", r.Method, r.URL.Path)
	return 404, missing
}

func (l *lab) merge(x object) object {
	x["sha"] = l.head(fmt.Sprint(x["source_branch"]))
	if x["source_project_id"] == forkID {
		x["sha"] = l.forkHead(fmt.Sprint(x["source_branch"]))
	}
	x["draft"] = strings.HasPrefix(fmt.Sprint(x["title"]), "Draft: ")
	return x
}

func (l *lab) say(by, at, body string) object {
	l.seq++
	now := l.now()
	n := object{"id": l.seq, "body": body, "author": userOf(by), "created_at": now, "updated_at": now, "system": false}
	l.notes[at] = append(l.notes[at], n)
	return n
}

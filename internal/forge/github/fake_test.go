package github

import (
	"bytes"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge/forgetest"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
)

// What GitHub's description does not say is assumed here and nowhere else: which fields change
// together, the order of lists, that a check run's newest state stands, that 422 answers a second
// pull request for a branch, and that a token is good for the repositories it was made for.

type object = map[string]any

const (
	fakeOwner  = "olga"
	fakeRepo   = "shop"
	fakeID     = 4711
	fakeApp    = 99
	fakeInst   = 7
	fakeSecret = "a webhook's secret"
)

// hub is a GitHub with one repository, whose every request and answer is held to GitHub's own
// description.
type hub struct {
	t     *testing.T
	desc  *description
	srv   *httptest.Server
	bare  string
	other string       // the fork, "" until there is one
	squat bool         // which is none
	files http.Handler // of git
	key   *rsa.PrivateKey
	hook  *forgetest.Hook

	mu       sync.Mutex
	id       int64
	seq      int64
	clock    time.Time
	issues   map[int]*ticket
	comments []*note
	lines    []*note
	checks   []object
	statuses []object
	reacts   map[string]int
	may      map[string]string
	tokens   map[string]bool // that are good
	granted  []object        // permissions that were asked for
	forking  bool            // an App whose branches go to a fork asks for tokens as well
	contents string          // what the App may do with the code where it is installed
	requests []string
}

type ticket struct {
	number           int
	title, body, by  string
	labels, assigned []string
	created, updated time.Time
	state            string
	acts             []object
	pull             *proposalOf
}

type proposalOf struct {
	head, base, mergedBy, merge string
	forked                      bool // the head is in the fork
	draft                       bool
	ended                       time.Time
}

type note struct {
	id               int64
	issue            int
	by, body, path   string
	line             int
	commit           string
	created, updated time.Time
}

type call struct {
	r    *http.Request
	p    map[string]string
	body object
	as   string // who asks
}

type handler func(h *hub, c call) (int, any)

// operations are what the fake can do.
func operations() map[string]handler {
	return map[string]handler{
		"GET /app": func(*hub, call) (int, any) {
			return 200, object{"id": fakeApp, "slug": "daybreak", "name": "daybreak", "owner": userOf("olga")}
		},
		"GET /repos/{owner}/{repo}/installation": func(h *hub, _ call) (int, any) {
			w := "write"
			return 200, object{"id": fakeInst, "account": userOf("olga"), "permissions": object{"contents": h.contents, "issues": w, "pull_requests": w, "checks": w, "metadata": "read"}}
		},
		"POST /app/installations/{installation_id}/access_tokens": (*hub).mint,
		"GET /user": func(_ *hub, c call) (int, any) {
			u := userOf(c.as)
			u["user_view_type"] = "private"
			return 200, u
		},
		"GET /repos/{owner}/{repo}": func(h *hub, c call) (int, any) {
			if c.p["owner"] == forkOwner {
				return h.fork()
			}
			return 200, h.repo()
		},
		"POST /repos/{owner}/{repo}/forks": (*hub).forkIt,
		"GET /repos/{owner}/{repo}/branches/{branch}": func(h *hub, c call) (int, any) {
			return 200, object{"name": c.p["branch"], "protected": false, "commit": object{"sha": h.head("main")}}
		},
		"GET /repos/{owner}/{repo}/branches/{branch}/protection": func(*hub, call) (int, any) { return 404, object{"message": "Branch not protected"} },
		"GET /repos/{owner}/{repo}/collaborators": func(h *hub, c call) (int, any) {
			var out []any
			for _, who := range []string{"olga", "wanda", "rita"} {
				m := h.may[who]
				u := userOf(who)
				u["permissions"] = object{"pull": true, "push": m == "write" || m == "admin", "admin": m == "admin", "triage": false, "maintain": false}
				u["role_name"] = m
				out = append(out, u)
			}
			return 200, out
		},
		"GET /repos/{owner}/{repo}/collaborators/{username}/permission": func(h *hub, c call) (int, any) {
			if !slices.Contains([]string{"olga", "wanda", "rita", "stan", "machine"}, c.p["username"]) {
				return 404, object{"message": "Not Found"}
			}
			m := h.may[c.p["username"]]
			if m == "" {
				m = "none"
			}
			return 200, object{"permission": m, "role_name": m, "user": userOf(c.p["username"])}
		},
		"GET /repos/{owner}/{repo}/issues":                                             (*hub).listIssues,
		"GET /repos/{owner}/{repo}/issues/{issue_number}":                              (*hub).getIssue,
		"GET /repos/{owner}/{repo}/issues/{issue_number}/events":                       (*hub).listActs,
		"GET /repos/{owner}/{repo}/issues/{issue_number}/comments":                     (*hub).listComments,
		"POST /repos/{owner}/{repo}/issues/{issue_number}/comments":                    (*hub).addComment,
		"PATCH /repos/{owner}/{repo}/issues/comments/{comment_id}":                     (*hub).editComment,
		"POST /repos/{owner}/{repo}/issues/{issue_number}/reactions":                   (*hub).react,
		"POST /repos/{owner}/{repo}/issues/comments/{comment_id}/reactions":            (*hub).react,
		"GET /repos/{owner}/{repo}/pulls":                                              (*hub).listPulls,
		"POST /repos/{owner}/{repo}/pulls":                                             (*hub).openPull,
		"GET /repos/{owner}/{repo}/pulls/{pull_number}":                                (*hub).getPull,
		"PATCH /repos/{owner}/{repo}/pulls/{pull_number}":                              (*hub).editPull,
		"GET /repos/{owner}/{repo}/pulls/{pull_number}/comments":                       (*hub).listLines,
		"POST /repos/{owner}/{repo}/pulls/{pull_number}/comments/{comment_id}/replies": (*hub).reply,
		"GET /repos/{owner}/{repo}/commits/{ref}/check-runs":                           (*hub).listChecks,
		"POST /repos/{owner}/{repo}/check-runs":                                        (*hub).addCheck,
		"PATCH /repos/{owner}/{repo}/check-runs/{check_run_id}":                        (*hub).editCheck,
		"POST /repos/{owner}/{repo}/statuses/{sha}":                                    (*hub).addStatus,
	}
}

func newHub(t *testing.T, desc *description) *hub {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	h := &hub{
		t: t, desc: desc, bare: filepath.Join(root, fakeOwner, fakeRepo+".git"), files: forgetest.GitHTTP(t, root), key: key, contents: "write", hook: forgetest.Receive(t), id: fakeID, seq: 100,
		clock: time.Now().UTC().Add(-time.Minute).Truncate(time.Second), issues: map[int]*ticket{}, reacts: map[string]int{},
		may: map[string]string{"olga": "admin", "wanda": "write", "rita": "read"}, tokens: map[string]bool{"machine-token": true},
	}
	gittest.Run(t, root, "init", "-q", "--bare", "-b", "main", h.bare)
	gittest.Run(t, h.bare, "config", "http.receivepack", "true")
	forgetest.Seed(t, h.bare)
	h.srv = httptest.NewServer(h)
	t.Cleanup(h.srv.Close)
	return h
}

func (h *hub) now() string { h.clock = h.clock.Add(time.Second); return h.clock.Format(time.RFC3339) }

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		h.t.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	path, api := strings.CutPrefix(r.URL.Path, "/api/v3")
	if !api {
		h.git(w, r)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, r.Method+" "+path+" "+string(body))
	for op, do := range operations() {
		method, template, _ := strings.Cut(op, " ")
		params, ok := match(template, path)
		if method != r.Method || !ok {
			continue
		}
		in, err := h.desc.request(r, template, params)
		if err != nil {
			h.t.Errorf("%s %s is not as GitHub describes it: %v\n%s", r.Method, path, err, body)
		}
		as, code := h.who(r, template)
		var say any = object{"message": http.StatusText(code)}
		if code == 0 {
			c := call{r: r, p: params, as: as}
			_ = json.Unmarshal(body, &c.body)
			code, say = do(h, c)
		}
		out, err := h.desc.response(in, code, say)
		if err != nil {
			h.t.Errorf("the fake's answer to %s %s is not as GitHub describes it: %v", r.Method, path, err)
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(code)
		_, _ = w.Write(out)
		return
	}
	h.t.Errorf("the fake has no %s %s", r.Method, path)
	w.WriteHeader(http.StatusNotFound)
}

// match compares a path with a template; a branch may have slashes.
func match(template, path string) (map[string]string, bool) {
	ts, ps := strings.Split(template, "/"), strings.Split(path, "/")
	if len(ts) != len(ps) {
		return nil, false
	}
	params := map[string]string{}
	for i, t := range ts {
		if strings.HasPrefix(t, "{") {
			params[strings.Trim(t, "{}")] = ps[i]
		} else if t != ps[i] {
			return nil, false
		}
	}
	return params, true
}

// who finds out who asks: the App proves itself with a token that it signed, all others with one
// that is good here.
func (h *hub) who(r *http.Request, template string) (string, int) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if strings.HasPrefix(template, "/app") || strings.HasSuffix(template, "/installation") {
		if err := h.signed(token); err != nil {
			h.t.Errorf("%s: %v", template, err)
			return "", 401
		}
		return "daybreak[bot]", 0
	}
	if !h.tokens[token] {
		h.t.Errorf("%s with a token that is not good", template)
		return "", 401
	}
	switch token {
	case "machine-token":
		return "machine", 0
	case forkToken:
		return forkOwner, 0
	}
	return "daybreak[bot]", 0
}

func (h *hub) signed(token string) error {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return fmt.Errorf("no signed token")
	}
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(&h.key.PublicKey, crypto.SHA256, sum[:], sig); err != nil {
		return err
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return err
	}
	var c struct {
		Iat, Exp int64
		Iss      string
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return err
	}
	if now := time.Now().Unix(); c.Iss != strconv.Itoa(fakeApp) || c.Iat > now || c.Exp < now || c.Exp-c.Iat > 600 {
		return fmt.Errorf("claims %+v", c)
	}
	return nil
}

// git is the repository over HTTP, for those with a good token.
func (h *hub) git(w http.ResponseWriter, r *http.Request) {
	_, token, _ := r.BasicAuth()
	h.mu.Lock()
	ok := h.tokens[token] && (token == forkToken) == strings.HasPrefix(r.URL.Path, "/"+forkOwner+"/")
	h.mu.Unlock()
	if !ok {
		w.Header().Set("WWW-Authenticate", "Basic")
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	before := h.heads()
	h.files.ServeHTTP(w, r)
	if !strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
		return
	}
	for ref, id := range h.heads() {
		if before[ref] != id {
			zero := strings.Repeat("0", 40)
			who := "daybreak[bot]"
			if token == "machine-token" {
				who = "machine"
			}
			h.tell("push", who, object{"ref": ref, "before": or(before[ref], zero), "after": id})
		}
	}
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func (h *hub) heads() map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(gittest.Run(h.t, h.bare, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads")) {
		ref, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		out[ref] = id
	}
	return out
}

func (h *hub) head(branch string) string { return h.heads()["refs/heads/"+branch] }

// tell delivers an event.
func (h *hub) tell(event, sender string, what object) {
	what["repository"], what["sender"] = h.repo(), userOf(sender)
	b, err := json.Marshal(what)
	if err != nil {
		h.t.Error(err)
	}
	m := hmac.New(sha256.New, []byte(fakeSecret))
	m.Write(b)
	h.hook.Send(forgetest.Delivered{Body: b, Header: http.Header{
		"X-Github-Event": {event}, "X-Github-Delivery": {fmt.Sprintf("00000000-0000-4000-8000-%012d", time.Now().UnixNano()%1e12)},
		"X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(m.Sum(nil))}, "Content-Type": {"application/json"},
	}})
}

func userOf(name string) object {
	kind, id := "User", 1000
	if strings.HasSuffix(name, "[bot]") {
		kind, id = "Bot", 3000
	}
	for _, c := range name {
		id += int(c)
	}
	return object{"login": name, "id": id, "type": kind}
}

func (h *hub) repo() object {
	return object{
		"id": h.id, "name": fakeRepo, "full_name": fakeOwner + "/" + fakeRepo, "owner": userOf(fakeOwner), "default_branch": "main",
		"private": true, "archived": false, "html_url": h.srv.URL + "/" + fakeOwner + "/" + fakeRepo,
		"permissions": object{"admin": false, "push": true, "pull": true},
	}
}

func (h *hub) mint(c call) (int, any) {
	if p, ok := c.body["permissions"].(map[string]any); !ok || p["contents"] == "write" && h.contents != "write" {
		return 422, object{"message": "The permissions requested are not granted to this installation."}
	}
	h.granted = append(h.granted, c.body)
	h.seq++
	token := fmt.Sprintf("ghs_%d", h.seq)
	h.tokens[token] = true
	return 201, object{"token": token, "expires_at": time.Now().UTC().Add(time.Hour).Format(time.RFC3339), "permissions": c.body["permissions"], "repositories": []any{h.repo()}}
}

func (h *hub) issueOf(i *ticket) object {
	labels, assigned := []any{}, []any{}
	for _, l := range i.labels {
		labels = append(labels, object{"name": l, "id": 1})
	}
	for _, a := range i.assigned {
		assigned = append(assigned, userOf(a))
	}
	out := object{
		"number": i.number, "title": i.title, "body": i.body, "user": userOf(i.by), "state": i.state, "labels": labels, "assignees": assigned,
		"created_at": i.created.Format(time.RFC3339), "updated_at": i.updated.Format(time.RFC3339), "html_url": fmt.Sprintf("%s/%s/%s/issues/%d", h.srv.URL, fakeOwner, fakeRepo, i.number),
	}
	if i.pull != nil {
		out["pull_request"] = object{"url": "https://example.com/p", "html_url": "https://example.com/p", "diff_url": "https://example.com/p", "patch_url": "https://example.com/p"}
	}
	return out
}

func (h *hub) listIssues(c call) (int, any) {
	since, _ := time.Parse(time.RFC3339, c.r.URL.Query().Get("since"))
	label := c.r.URL.Query().Get("labels")
	out := []any{}
	for n := 1; n <= len(h.issues); n++ {
		if i := h.issues[n]; i.state == "open" && !i.updated.Before(since) && (label == "" || slices.Contains(i.labels, label)) {
			out = append(out, h.issueOf(i))
		}
	}
	return 200, out
}

func (h *hub) ticket(p string) *ticket {
	n, _ := strconv.Atoi(p)
	return h.issues[n]
}

func (h *hub) getIssue(c call) (int, any) {
	if i := h.ticket(c.p["issue_number"]); i != nil {
		return 200, h.issueOf(i)
	}
	return 404, object{"message": "Not Found"}
}

func (h *hub) listActs(c call) (int, any) {
	out := []any{}
	for _, a := range h.ticket(c.p["issue_number"]).acts {
		out = append(out, a)
	}
	return 200, out
}

func (n *note) object() object {
	return object{"id": n.id, "user": userOf(n.by), "body": n.body, "created_at": n.created.Format(time.RFC3339), "updated_at": n.updated.Format(time.RFC3339)}
}

func (h *hub) listComments(c call) (int, any) {
	n, _ := strconv.Atoi(c.p["issue_number"])
	out := []any{}
	for _, x := range h.comments {
		if x.issue == n {
			out = append(out, x.object())
		}
	}
	return 200, out
}

func (h *hub) say(by string, issue int, body string) *note {
	h.now()
	h.seq++
	n := &note{id: h.seq, issue: issue, by: by, body: body, created: h.clock, updated: h.clock}
	h.comments = append(h.comments, n)
	if i := h.issues[issue]; i != nil {
		i.updated = h.clock
	}
	return n
}

func (h *hub) addComment(c call) (int, any) {
	n, _ := strconv.Atoi(c.p["issue_number"])
	return 201, h.say(c.as, n, fmt.Sprint(c.body["body"])).object()
}

func (h *hub) editComment(c call) (int, any) {
	for _, x := range h.comments {
		if strconv.FormatInt(x.id, 10) == c.p["comment_id"] {
			h.now()
			x.body, x.updated = fmt.Sprint(c.body["body"]), h.clock
			return 200, x.object()
		}
	}
	return 422, object{"message": "no such comment"}
}

func (h *hub) react(c call) (int, any) {
	at := c.p["issue_number"] + "/" + c.p["comment_id"]
	code := 201
	if h.reacts[at] > 0 {
		code = 200
	}
	h.reacts[at] = 1
	return code, object{"id": 1, "content": c.body["content"], "user": userOf(c.as)}
}

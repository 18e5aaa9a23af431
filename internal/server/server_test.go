package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/task"
)

const token = "token-0123456789abcdef"

// tasks is a Tasks that remembers what it was asked.
type tasks struct {
	asked    []Request
	approved []string
	err      error
}

const known = task.ID("t_0123456789abcdefghjkmnpqrs")

func (f *tasks) Create(_ context.Context, n Request) (View, bool, error) {
	f.asked = append(f.asked, n)
	return View{Task: known, State: task.Queued}, len(f.asked) == 1, f.err
}

func (f *tasks) View(_ context.Context, id task.ID) (json.RawMessage, error) {
	if id != known {
		return nil, &task.Error{Class: task.NotFound, Msg: "no task " + string(id)}
	}
	return json.RawMessage(`{"state":"queued"}`), nil
}

func (f *tasks) Approve(_ context.Context, id task.ID, who string) error {
	if id != known {
		return &task.Error{Class: task.NotFound, Msg: "no task " + string(id)}
	}
	f.approved = append(f.approved, who)
	return f.err
}

func newTest(f *tasks, change func(*Config)) *Server {
	c := Config{Token: token, Tasks: f, Logger: slog.New(slog.DiscardHandler), Ready: func(context.Context) error { return nil }}
	if change != nil {
		change(&c)
	}
	return New(c)
}

func ask(s *Server, method, path, auth, kind, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if auth != "" {
		r.Header.Set("Authorization", auth)
	}
	r.Header.Set("Content-Type", kind)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

func TestCreate(t *testing.T) {
	f := &tasks{}
	s := newTest(f, nil)
	body := `{"repo": "/srv/shop", "issue": "It breaks.", "priority": 1, "key": "JIRA-7", "budget": {"wall": "40m", "usd": 2.5}}`
	for i, want := range []int{http.StatusCreated, http.StatusOK} {
		w := ask(s, "POST", "/api/tasks", "Bearer "+token, "application/json; charset=utf-8", body)
		if w.Code != want || w.Header().Get("Location") != "/api/tasks/"+string(known) {
			t.Fatalf("%d: %d %s", i, w.Code, w.Body)
		}
	}
	if n := f.asked[0]; n.Repo != "/srv/shop" || n.Issue != "It breaks." || n.Key != "JIRA-7" || n.Wall.Minutes() != 40 || n.Budget.USD != 2.5 || n.Priority != 1 {
		t.Errorf("%+v", n)
	}
	if w := ask(s, "GET", "/api/tasks/"+string(known), "Bearer "+token, "", ""); w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != `{"state":"queued"}` {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestRefuses(t *testing.T) {
	good := `{"repo": "r", "issue": "i"}`
	for _, tt := range []struct {
		name, method, path, auth, kind, body string
		code                                 int
	}{
		{"no token", "POST", "/api/tasks", "", "application/json", good, 401},
		{"a wrong one", "POST", "/api/tasks", "Bearer " + token + "x", "application/json", good, 401},
		{"another scheme", "POST", "/api/tasks", token, "application/json", good, 401},
		{"looking without one", "GET", "/api/tasks/" + string(known), "", "", "", 401},
		{"a form", "POST", "/api/tasks", "Bearer " + token, "application/x-www-form-urlencoded", good, 415},
		{"no JSON", "POST", "/api/tasks", "Bearer " + token, "application/json", "repo=r", 400},
		{"an unknown key", "POST", "/api/tasks", "Bearer " + token, "application/json", `{"repo": "r", "issue": "i", "sudo": true}`, 400},
		{"two objects", "POST", "/api/tasks", "Bearer " + token, "application/json", good + good, 400},
		{"nothing to do", "POST", "/api/tasks", "Bearer " + token, "application/json", `{"repo": "r"}`, 400},
		{"a negative budget", "POST", "/api/tasks", "Bearer " + token, "application/json", `{"repo": "r", "issue": "i", "budget": {"steps": -1}}`, 400},
		{"not UTF-8", "POST", "/api/tasks", "Bearer " + token, "application/json", "{\"repo\": \"r\xff\", \"issue\": \"i\"}", 400},
		{"too large", "POST", "/api/tasks", "Bearer " + token, "application/json", `{"issue": "` + strings.Repeat("x", maxBody) + `"}`, 413},
		{"no such task", "GET", "/api/tasks/t_0000000000000000000000000z", "Bearer " + token, "", "", 404},
		{"no id", "GET", "/api/tasks/..%2f..%2fetc", "Bearer " + token, "", "", 404},
		{"no such method", "DELETE", "/api/tasks/" + string(known), "Bearer " + token, "", "", 405},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &tasks{}
			w := ask(newTest(f, nil), tt.method, tt.path, tt.auth, tt.kind, tt.body)
			if w.Code != tt.code || len(f.asked) > 0 {
				t.Fatalf("%d, want %d: %s", w.Code, tt.code, w.Body)
			}
		})
	}
	w := ask(newTest(&tasks{}, func(c *Config) { c.Token = "" }), "POST", "/api/tasks", "Bearer ", "application/json", good)
	if w.Code != http.StatusForbidden {
		t.Errorf("without a configured token: %d", w.Code)
	}
}

// TestErrors: what the caller can put right is said, what is ours is not.
func TestErrors(t *testing.T) {
	for class, want := range map[task.Class]int{
		task.Invalid: 422, task.NotFound: 404, task.Conflict: 409, task.Unavailable: 503, task.Transient: 503, task.Internal: 500,
	} {
		f := &tasks{err: &task.Error{Class: class, Msg: "canary"}}
		w := ask(newTest(f, nil), "POST", "/api/tasks", "Bearer "+token, "application/json", `{"repo": "r", "issue": "i"}`)
		if w.Code != want || strings.Contains(w.Body.String(), "canary") != (want < 500) {
			t.Errorf("%s: %d %s", class, w.Code, w.Body)
		}
	}
}

func TestProbesAndMount(t *testing.T) {
	ready := errors.New("the store is away")
	s := newTest(&tasks{}, func(c *Config) { c.Ready = func(context.Context) error { return ready } })
	s.Mount("POST /hooks/test", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }))
	if w := ask(s, "POST", "/hooks/test", "", "", ""); w.Code != http.StatusAccepted {
		t.Errorf("mounted: %d", w.Code)
	}
	if w := ask(s, "GET", "/healthz", "", "", ""); w.Code != http.StatusOK {
		t.Errorf("healthz: %d", w.Code)
	}
	if w := ask(s, "GET", "/readyz", "", "", ""); w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "away") {
		t.Errorf("readyz: %d %s", w.Code, w.Body)
	}
	ready = nil
	if w := ask(s, "GET", "/readyz", "", "", ""); w.Code != http.StatusOK {
		t.Errorf("readyz: %d", w.Code)
	}
}

func TestPages(t *testing.T) {
	s := newTest(&tasks{}, nil)
	s.Mount("/pages/", s.Pages(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })))
	basic := func(password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte("any:"+password))
	}
	for _, tt := range []struct {
		method, auth string
		code         int
	}{
		{"GET", basic(token), http.StatusAccepted},
		{"POST", basic(token), http.StatusMethodNotAllowed},
		{"GET", basic("wrong"), http.StatusUnauthorized},
		{"GET", "Bearer " + token, http.StatusUnauthorized},
		{"GET", "", http.StatusUnauthorized},
	} {
		if w := ask(s, tt.method, "/pages/x", tt.auth, "", ""); w.Code != tt.code {
			t.Errorf("%s with %q: %d", tt.method, tt.auth, w.Code)
		}
	}
	off := newTest(&tasks{}, func(c *Config) { c.Token = "" })
	off.Mount("/pages/", off.Pages(http.NotFoundHandler()))
	if w := ask(off, "GET", "/pages/x", basic(""), "", ""); w.Code != http.StatusForbidden {
		t.Errorf("without a configured token: %d", w.Code)
	}
}

// TestServeEnds: a request at work is answered before the server ends.
func TestServeEnds(t *testing.T) {
	s := newTest(&tasks{}, nil)
	at, goOn := make(chan struct{}), make(chan struct{})
	s.Mount("GET /slow", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(at)
		<-goOn
		w.WriteHeader(http.StatusAccepted)
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended, answered := make(chan error, 1), make(chan int, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	go func() {
		res, err := http.Get("http://" + l.Addr().String() + "/slow")
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		_ = res.Body.Close()
		answered <- res.StatusCode
	}()
	<-at
	cancel()
	close(goOn)
	if code := <-answered; code != http.StatusAccepted {
		t.Errorf("%d", code)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// FuzzParseNew: whatever is sent, it is refused in one line or keeps the caps.
func FuzzParseNew(f *testing.F) {
	f.Add([]byte(`{"repo": "r", "issue": "i", "budget": {"wall": "1h", "usd": 1e308}}`), "key")
	f.Add([]byte(`{"repo": "\u0000", "issue": [1]}`), "")
	f.Fuzz(func(t *testing.T, body []byte, key string) {
		n, err := ParseNew(body, key)
		if err != nil {
			return
		}
		if n.Repo == "" || n.Issue == "" || len(n.Key) > maxKey || n.Priority < 0 || n.Priority > 4 || !(n.Budget.USD >= 0) || n.Wall < 0 {
			t.Fatalf("%+v", n)
		}
	})
}

// TestApprove: an approval needs the token, names who it is by, and says when nothing waits.
func TestApprove(t *testing.T) {
	f := &tasks{}
	s := newTest(f, nil)
	path := "/api/tasks/" + string(known) + "/approve"
	for _, tt := range []struct {
		auth, path, body string
		want             int
	}{
		{"Bearer wrong", path, "", http.StatusUnauthorized},
		{"Bearer " + token, "/api/tasks/t_none/approve", "", http.StatusNotFound},
		{"Bearer " + token, path, `{"tree": "x"}`, http.StatusBadRequest},
		{"Bearer " + token, path, `{"by": "` + strings.Repeat("x", 300) + `"}`, http.StatusBadRequest},
		{"Bearer " + token, path, strings.Repeat(" ", 5000), http.StatusBadRequest},
		{"Bearer " + token, path, `{"by": "olga"}`, http.StatusAccepted},
		{"Bearer " + token, path, "", http.StatusAccepted},
	} {
		if w := ask(s, "POST", tt.path, tt.auth, "application/json", tt.body); w.Code != tt.want {
			t.Errorf("%+v: %d %s", tt, w.Code, w.Body)
		}
	}
	if strings.Join(f.approved, " ") != "olga api" {
		t.Errorf("approved by %v", f.approved)
	}
	f.err = &task.Error{Class: task.Conflict, Msg: "nothing waits"}
	if w := ask(s, "POST", path, "Bearer "+token, "", ""); w.Code != http.StatusConflict {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// hail stands in front of a forge: the first request of each kind that changes something is answered
// with 500, with 429, by hanging up, or by hanging up when it is done already, in turn.
type hail struct {
	to *httputil.ReverseProxy

	mu   sync.Mutex
	seen map[string]bool
	hits []string
}

func (h *hail) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind := r.Method + " " + strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return '#'
		}
		return c
	}, r.URL.Path)
	pushes := strings.HasSuffix(r.URL.Path, "/git-receive-pack")
	h.mu.Lock()
	strike := r.Method != http.MethodGet && (strings.HasPrefix(r.URL.Path, "/api/v1/") || pushes) && !h.seen[kind]
	h.seen[kind] = true
	n := len(h.hits)
	if strike {
		h.hits = append(h.hits, fmt.Sprint(n%4, " ", kind))
	}
	h.mu.Unlock()
	if !strike {
		h.to.ServeHTTP(w, r)
		return
	}
	switch n % 4 {
	case 0:
		h.to.ServeHTTP(httptest.NewRecorder(), r) // done, and nobody is told
		panic(http.ErrAbortHandler)
	case 1:
		w.WriteHeader(http.StatusInternalServerError)
	case 2:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	default:
		panic(http.ErrAbortHandler)
	}
}

// TestGiteaOutages: a forge that fails once at every kind of change, some of them made all the same,
// ends up with one branch, one pull request, and one comment of each kind.
func TestGiteaOutages(t *testing.T) {
	v := newVillage(t)
	to, err := url.Parse(v.URL)
	if err != nil {
		t.Fatal(err)
	}
	h := &hail{to: &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }}, seen: map[string]bool{}}
	front := httptest.NewServer(h)
	t.Cleanup(front.Close)
	file := filepath.Join(v.dir, "daybreak.yaml")
	cfg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(cfg), v.URL, front.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := v.command("repo", "add", "--accept", front.URL+"/olga/shop").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	v.serve = v.start(t, nil, "serve")
	v.serve.address(t)
	n := v.issue("rita", "Negative price", "A coupon larger than the total: net(5, 8) gives -3.")
	v.labelled("wanda", n)
	<-v.model.thinking
	writer := v.say("wanda", n, "keep the floor at zero")
	v.until("the word is taken up", func() bool { return v.seen(writer) })
	v.model.letGo()
	v.asked(n)
	v.until("a pull request", v.state(n, task.InReview, task.Failed))
	v.until("the issue says so", func() bool { return strings.Contains(v.said(n)[0], "waits for review") })
	ps, s := v.pulls(), v.of(n)[0]
	if len(ps) != 1 || ps[0].Head.Sha != s.PullRequest.Head || len(v.said(n)) != 2 {
		t.Errorf("%d pull requests, %d comments; the task is %s: %s", len(ps), len(v.said(n)), s.State, s.Reason)
	}
	v.serve.end(t)
	h.mu.Lock()
	defer h.mu.Unlock()
	t.Logf("struck:\n%s", strings.Join(h.hits, "\n"))
	for _, want := range []string{"git-receive-pack", "/pulls", "/comments", "/reactions"} {
		if !strings.Contains(strings.Join(h.hits, "\n"), want) {
			t.Errorf("nothing went wrong at %s", want)
		}
	}
}

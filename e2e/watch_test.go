package e2e

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// heard keeps what an HTTP endpoint was sent.
type heard struct {
	*httptest.Server
	mu   sync.Mutex
	sent []string
}

func listen(t *testing.T) *heard {
	h := &heard{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			body = z
		}
		b, err := io.ReadAll(body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.sent = append(h.sent, r.URL.Path+" "+string(b))
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *heard) all() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.sent, "\n")
}

// One task, watched from outside: its numbers at /metrics, its spans at the collector, a note when
// its pull request is ready. No text of it is in numbers or spans, and no secret in anything.
func TestWatched(t *testing.T) {
	in := service(t, killFiles(t), "", "")
	hook, collector := listen(t), listen(t)
	secret := filepath.Join(in.dir, "hook")
	if err := os.WriteFile(secret, []byte(hook.URL+"/services/hook-secret-0123\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(in.dir, "daybreak.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(f, "telemetry: {otlp_endpoint: %q, listen: '127.0.0.1:0'}\nnotify: {webhook: {url_file: %q}}\n", collector.URL, secret)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	p := in.start(t, nil, "serve")
	id := in.ask(t, p)
	if got := in.wait(t, id); got != task.InReview {
		t.Fatalf("the task is %s\n%s", got, p.log())
	}
	own := regexp.MustCompile(`msg=metrics address=(\S+)`).FindStringSubmatch(p.log())
	if own == nil {
		t.Fatal("no listener for /metrics alone")
	}
	for _, address := range []string{p.address(t), own[1]} {
		code, numbers := get(t, "http://"+address+"/metrics", nil)
		for _, want := range []string{
			`daybreak_task_transitions_total{to="in_review"} 1`, `daybreak_verdicts_total{kind="verified"} 1`, `daybreak_tool_calls_total{outcome="ok",tool="submit"} 1`,
			`daybreak_model_calls_total{model="anthropic/claude-sonnet-4-5",outcome="ok"} `, `daybreak_tasks{state="in_review"} 1`, "daybreak_queue_tasks 0",
			`daybreak_effects_total{kind="notify",outcome="done"} 1`, `daybreak_effects_total{kind="pull_request",outcome="done"} 1`, `daybreak_queue_wait_seconds_count 1`,
			`daybreak_http_requests_total{code="201",method="POST",route="POST /api/tasks"} 1`, `daybreak_sandbox_start_seconds_count{purpose="agent"} 1`,
		} {
			if code != http.StatusOK || !strings.Contains(numbers, want) {
				t.Errorf("%s: %d, without %s", address, code, want)
			}
		}
		if strings.Contains(numbers, string(id)) || strings.Contains(numbers, "shop") {
			t.Errorf("%s names a task or a repository", address)
		}
	}
	if code, _ := get(t, "http://"+own[1]+"/metrics", map[string]string{"X-Forwarded-For": "192.0.2.7"}); code != http.StatusUnauthorized {
		t.Errorf("over a proxy: %d", code)
	}
	if code, _ := get(t, "http://"+own[1]+"/metrics", map[string]string{"X-Forwarded-For": "192.0.2.7", "Authorization": "Bearer " + apiToken}); code != http.StatusOK {
		t.Errorf("over a proxy with the token: %d", code)
	}
	p.end(t)

	note := hook.all()
	if n := strings.Count(note, "/services/hook-secret-0123 "); n != 1 || !strings.Contains(note, "Pull request ready: shop: ") || !strings.Contains(note, "/tasks/"+string(id)+"|the record") {
		t.Errorf("%d notes: %s", n, note)
	}
	spans := collector.all()
	for _, want := range []string{"/v1/traces ", "invoke_agent daybreak", "stage working", "step 1", "chat claude-sonnet-4-5", "execute_tool submit", "gen_ai.usage.input_tokens", "start sandbox", string(id)} {
		if !strings.Contains(spans, want) {
			t.Errorf("%s is in no span", want)
		}
	}
	for _, text := range []string{"price.py", "net(", "coupon", "sk-e2e", apiToken, "hook-secret"} {
		if strings.Contains(spans, text) {
			t.Errorf("%q got out in a span", text)
		}
	}
	if log := p.log(); strings.Contains(log, "hook-secret") || strings.Contains(log, apiToken) {
		t.Errorf("a secret is in the log: %s", log)
	}
}

func get(t *testing.T, url string, head map[string]string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range head {
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/notify"
	"github.com/daybreak-agent/daybreak/internal/task"
)

var note = notify.Note{
	Key: "pull_request:1", About: notify.PullRequest, Task: "t_1", Repo: "https://git.example.com/shop/cart.git",
	Title: "*Coupons* <!channel> & <https://evil.example|click> @here https://evil.example",
	Fact:  "verified, 4 steps, $0.10", Page: "https://daybreak.example/tasks/t_1", Link: "https://git.example.com/shop/cart/pulls/7?a=1|2>",
}

func TestSend(t *testing.T) {
	var got struct {
		Text   string `json:"text"`
		Unfurl *bool  `json:"unfurl_links"`
	}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(b, &got) != nil || r.Method != "POST" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %v: %s", r.Method, r.Header, err, b)
		}
		_, _ = io.WriteString(w, "ok")
	}))
	defer s.Close()
	pool := s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	hook, err := New(s.URL+"/services/secret", pool)
	if err != nil {
		t.Fatal(err)
	}
	if err := hook.Send(t.Context(), note); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(got.Text, "\u2060", "")
	for _, want := range []string{
		"Pull request ready: cart: *Coupons* &lt;!channel&gt; &amp; &lt;https://evil.example|click&gt; @here",
		"\nverified, 4 steps, $0.10\n", "<https://git.example.com/shop/cart/pulls/7?a=1%7C2%3E|the pull request>", "<https://daybreak.example/tasks/t_1|the record>",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
	for _, bad := range []string{"<!", "<https://evil", "https://evil", "@here", "*C"} {
		if strings.Contains(got.Text, bad) {
			t.Errorf("%q is in %q", bad, got.Text)
		}
	}
	if got.Unfurl == nil || *got.Unfurl {
		t.Error("links are unfurled")
	}
	if untrusted, err := New(s.URL+"/services/secret", nil); err != nil || task.ClassOf(untrusted.Send(t.Context(), note)) != task.Transient {
		t.Errorf("a certificate that nobody vouches for was taken: %v", err)
	}
}

// Every answer has its class, and no error names the address.
func TestRefusals(t *testing.T) {
	code, followed := 0, false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			followed = true
			return
		}
		w.Header().Set("Retry-After", "7")
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "no such hook: "+r.URL.Path)
	}))
	defer s.Close()
	hook, err := New(s.URL+"/services/secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	for c, want := range map[int]task.Class{
		302: task.Invalid, 400: task.Invalid, 401: task.Auth, 403: task.Auth, 404: task.NotFound, 410: task.NotFound, 429: task.RateLimited, 500: task.Overloaded, 503: task.Overloaded,
	} {
		code = c
		err := hook.Send(t.Context(), note)
		var e *task.Error
		if task.ClassOf(err) != want || !errors.As(err, &e) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%d: %v of class %s, want %s", c, err, task.ClassOf(err), want)
		}
		if c == 429 && e.RetryAfter != 7*time.Second {
			t.Errorf("again after %s", e.RetryAfter)
		}
	}
	if followed {
		t.Error("a redirect was followed")
	}
	s.Close()
	if err := hook.Send(t.Context(), note); task.ClassOf(err) != task.Transient || strings.Contains(err.Error(), "secret") {
		t.Errorf("away: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := hook.Send(ctx, note); err == nil {
		t.Error("sent after the end")
	}
	for _, bad := range []string{"", "ftp://h/x", "hooks.example.com/secret", "https://"} {
		if _, err := New(bad, nil); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

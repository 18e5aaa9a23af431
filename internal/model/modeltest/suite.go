package modeltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/model/scripted"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Run runs every scenario against the adapter.
func Run(t *testing.T, traits Traits, make Factory) {
	t.Run("Replies", func(t *testing.T) { replies(t, make) })
	t.Run("Thinking", func(t *testing.T) { thinking(t, traits, make) })
	t.Run("BadArguments_INT06", func(t *testing.T) { badArguments(t, make) })
	t.Run("Stops", func(t *testing.T) { stops(t, make) })
	t.Run("Failures", func(t *testing.T) { failures(t, make) })
	t.Run("Hang_MOD03", func(t *testing.T) { hang(t, make) })
	t.Run("Auth", func(t *testing.T) { auth(t, make) })
	t.Run("TooLarge", func(t *testing.T) { tooLarge(t, make) })
	t.Run("Usage", func(t *testing.T) { usage(t, traits, make) })
	t.Run("Prefix", func(t *testing.T) { prefix(t, traits, make) })
	t.Run("Redirect_MOD04", func(t *testing.T) { redirect(t, make) })
	t.Run("ByteCap_MOD03", func(t *testing.T) { byteCap(t, make) })
	t.Run("Cancel", func(t *testing.T) { cancel(t, make) })
	t.Run("NoServer", func(t *testing.T) { noServer(t, make) })
}

func replies(t *testing.T, make Factory) {
	b := serve(t, `
expect: [{contains: You fix bugs}, {contains: coupon}]
text: |
  Hello — "quoted" <b>&amp;</b> ☕
  	tab
---
expect: [{contains: go on}]
calls: [{name: read, input: {path: cart.go}}]
---
expect: [{tool: read, error: false, contains: package cart}]
text: Both at once.
calls:
  - {name: read, input: {path: a.go}}
  - name: edit
    input:
      path: b.go
      text: |
        func f() {
        	return "<&>"
        }
---
expect: [{tool: edit, error: true, contains: no match}, {tool: read, contains: no match}]
text: Done.
`, scripted.Options{})
	c := make(t, b.target())
	req := Request()
	r, s := mustAsk(t, c, req)
	want := "Hello — \"quoted\" <b>&amp;</b> ☕\n\ttab"
	if r.Message.Text() != want || s.text != want || r.Stop != model.StopEndTurn || r.Message.Role != model.Assistant {
		t.Errorf("text %q, shown %q, stop %s", r.Message.Text(), s.text, r.Stop)
	}
	if r.ID == "" || r.Model != "scripted" || s.usage == 0 || r.Tokens.Output == 0 || r.Estimated {
		t.Errorf("record %+v, usage shown %d times", r, s.usage)
	}
	req = Answer(req, r, "go on", false)
	r, s = mustAsk(t, c, req)
	calls := r.Message.Calls()
	if len(calls) != 1 || calls[0].Name != "read" || string(calls[0].Input) != `{"path":"cart.go"}` || calls[0].ID == "" || r.Stop != model.StopToolUse || len(s.tools) != 1 {
		t.Fatalf("calls %+v, stop %s, shown %v", calls, r.Stop, s.tools)
	}
	req = Answer(req, r, "package cart", false)
	r, s = mustAsk(t, c, req)
	calls = r.Message.Calls()
	if len(calls) != 2 || calls[0].ID == calls[1].ID || r.Message.Text() != "Both at once." || len(s.tools) != 2 {
		t.Fatalf("parallel calls %+v", calls)
	}
	if got, want := string(calls[1].Input), `{"path":"b.go","text":"func f() {\n\treturn \"<&>\"\n}\n"}`; got != want {
		t.Errorf("input %s, want %s", got, want)
	}
	req = Answer(req, r, "no match", true)
	if r, _ = mustAsk(t, c, req); r.Message.Text() != "Done." {
		t.Errorf("last text %q", r.Message.Text())
	}
	if got := fmt.Sprint(b.Replies()); got != "[1 1 1 1]" || b.Err() != nil {
		t.Errorf("replies %s, %v", got, b.Err())
	}
}

func thinking(t *testing.T, traits Traits, make Factory) {
	b := serve(t, `
thinking: The total is summed twice, I think.
text: Looking.
calls: [{name: read, input: {path: cart.go}}]
---
thinking: So it is.
calls: [{name: edit, input: {path: cart.go}}]
---
text: Done.
`, scripted.Options{})
	c := make(t, b.target())
	req := Request()
	req.Thinking = 2048
	r, s := mustAsk(t, c, req)
	first := r.Message.Blocks[0]
	if first.Type != model.ThinkingBlock || first.Text != "The total is summed twice, I think." || s.thinking != first.Text {
		t.Fatalf("blocks %+v, shown %q", r.Message.Blocks, s.thinking)
	}
	if kept := first.Signature != "" || first.Data != ""; kept != traits.ThinkingKept {
		t.Errorf("signed: %v", kept)
	}
	req = Answer(req, r, "ok", false)
	r, _ = mustAsk(t, c, req)
	req = Answer(req, r, "ok", false)
	mustAsk(t, c, req)
	// The signature, or the sealed text, goes back as it came.
	if token := first.Signature + first.Data; traits.ThinkingKept && bytes.Count(b.sent()[2], []byte(token)) != 1 {
		t.Errorf("the third request holds %q %d times", token, bytes.Count(b.sent()[2], []byte(token)))
	}
	if traits.ThinkingKept {
		// Tampered thinking is refused: the server does check.
		forged := req
		forged.Messages = append([]model.Message(nil), req.Messages...)
		m := forged.Messages[1]
		m.Blocks = append([]model.Block(nil), m.Blocks...)
		m.Blocks[0].Text += "!"
		m.Blocks[0].Data += "AAAA"
		forged.Messages[1] = m
		if _, _, err := ask(t, c, forged); task.ClassOf(err) != task.Invalid {
			t.Errorf("forged thinking: %v", err)
		}
	}
}

func badArguments(t *testing.T, make Factory) {
	b := serve(t, `
calls:
  - {name: edit, raw_input: '{"path": "a.go", "text": '}
  - {name: read, raw_input: '["a list"]'}
  - {name: read}
---
expect: [{tool: edit, error: true}]
text: Sorry.
`, scripted.Options{})
	c := make(t, b.target())
	req := Request()
	r, _ := mustAsk(t, c, req)
	calls := r.Message.Calls()
	if len(calls) != 3 || calls[0].BadInput != `{"path": "a.go", "text":` && calls[0].BadInput != `{"path": "a.go", "text": ` || calls[1].BadInput != `["a list"]` {
		t.Fatalf("calls %+v", calls)
	}
	for _, c := range calls {
		if string(c.Input) != "{}" {
			t.Errorf("input of a bad call %s", c.Input)
		}
	}
	if calls[2].BadInput != "" {
		t.Errorf("a call without arguments counts as bad: %q", calls[2].BadInput)
	}
	if r, _ = mustAsk(t, c, Answer(req, r, "not a JSON object", true)); r.Message.Text() != "Sorry." {
		t.Errorf("got %q", r.Message.Text())
	}
}

func stops(t *testing.T, make Factory) {
	b := serve(t, `
text: A long story that
stop: max_tokens
---
calls: [{name: edit, input: {path: a.go, text: cut somewhere in here}}]
stop: max_tokens
---
text: I will not do that.
stop: refusal
`, scripted.Options{})
	c := make(t, b.target())
	req := Request()
	r, _ := mustAsk(t, c, req)
	if r.Stop != model.StopMaxTokens || r.Message.Text() != "A long story that" {
		t.Errorf("cut text: %s %q", r.Stop, r.Message.Text())
	}
	req = Answer(req, r, "go on", false)
	r, _ = mustAsk(t, c, req)
	if calls := r.Message.Calls(); r.Stop != model.StopMaxTokens || len(calls) != 1 || calls[0].BadInput == "" {
		t.Errorf("cut call: %s %+v", r.Stop, r.Message.Blocks)
	}
	req = Answer(req, r, "it was cut", true)
	if r, _ = mustAsk(t, c, req); r.Stop != model.StopRefusal || r.Message.Text() != "I will not do that." {
		t.Errorf("refusal: %s %q", r.Stop, r.Message.Text())
	}
}

func failures(t *testing.T, make Factory) {
	for _, tc := range []struct {
		fault string
		class task.Class
		after time.Duration
	}{
		{"{status: 429, retry_after: 7}", task.RateLimited, 7 * time.Second},
		{"{status: 429, retry_after: 0.25}", task.RateLimited, 250 * time.Millisecond},
		{"{status: 429, type: insufficient_quota}", task.Auth, 0},
		{"{status: 529}", task.Overloaded, 0},
		{"{status: 500}", task.Transient, 0},
		{"{status: 503, retry_after: 3}", task.Transient, 3 * time.Second},
		{"{status: 408, type: timeout_error}", task.Transient, 0},
		{"{status: 400}", task.Invalid, 0},
		{"{status: 422}", task.Invalid, 0},
		{"{status: 401}", task.Auth, 0},
		{"{status: 402}", task.Auth, 0},
		{"{status: 403}", task.Auth, 0},
		{"{status: 404}", task.NotFound, 0},
		{"{status: 413}", task.TooLarge, 0},
		{"{cut: 1}", task.Transient, 0},
		{"{cut: 2}", task.Transient, 0},
		{"{cut: 5}", task.Transient, 0},
		{"{error_event: overloaded_error}", task.Overloaded, 0},
		{"{error_event: rate_limit_error}", task.RateLimited, 0},
		{"{error_event: api_error}", task.Transient, 0},
	} {
		t.Run(tc.fault, func(t *testing.T) {
			b := serve(t, "text: Here I am, and well.\ncalls: [{name: read, input: {path: a.go}}]\nfail: ["+tc.fault+"]\n", scripted.Options{})
			c := make(t, b.target())
			_, _, err := ask(t, c, Request())
			var e *task.Error
			if !errors.As(err, &e) || e.Class != tc.class || e.RetryAfter != tc.after {
				t.Fatalf("class %q, want %q after %s: %v", task.ClassOf(err), tc.class, tc.after, err)
			}
			if msg := err.Error(); strings.ContainsAny(msg, "\r\n") || strings.Contains(msg, "key-of-the-suite") || len(msg) > 600 {
				t.Errorf("message %q", msg)
			}
			if tc.class == task.NotFound && !strings.Contains(err.Error(), `model not found: "scripted"`) {
				t.Errorf("message %q", err)
			}
			// One request for one call: retries are the decorator's. And the turn is not lost.
			if got := b.Requests()[0]; got != 1 {
				t.Errorf("%d requests for one call", got)
			}
			if r, _ := mustAsk(t, c, Request()); r.Message.Text() != "Here I am, and well." {
				t.Errorf("after the fault: %q", r.Message.Text())
			}
		})
	}
}

func hang(t *testing.T, make Factory) {
	b := serve(t, "text: Hello.\nfail: [{hang: true}]\n", scripted.Options{})
	to := b.target()
	to.Limits.Idle = 50 * time.Millisecond
	_, _, err := ask(t, make(t, to), Request())
	if task.ClassOf(err) != task.Transient || !strings.Contains(err.Error(), "sent nothing for 50ms") {
		t.Errorf("got %v", err)
	}
	// A server that does not even send headers.
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(srv.CloseClientConnections)
	t.Cleanup(srv.Close)
	to.BaseURL = srv.URL
	_, _, err = ask(t, make(t, to), Request())
	if task.ClassOf(err) != task.Transient || !strings.Contains(err.Error(), "sent nothing") {
		t.Errorf("without headers: %v", err)
	}
}

func auth(t *testing.T, make Factory) {
	b := serve(t, "text: Hello.\n", scripted.Options{APIKey: "another"})
	_, _, err := ask(t, make(t, b.target()), Request())
	if task.ClassOf(err) != task.Auth || !strings.Contains(err.Error(), "API key") {
		t.Errorf("wrong key: %v", err)
	}
	to := b.target()
	to.APIKey = "another"
	mustAsk(t, make(t, to), Request())
}

func tooLarge(t *testing.T, make Factory) {
	b := serve(t, "text: Hello.\n", scripted.Options{Context: 100})
	if _, _, err := ask(t, make(t, b.target()), Request()); task.ClassOf(err) != task.TooLarge {
		t.Errorf("got %v", err)
	}
}

func usage(t *testing.T, traits Traits, make Factory) {
	b := serve(t, LongScript(4, 3000)+"---\ntext: Done.\nusage: {input: 11, output: 22, cache_read: 33, cache_write: 0}\n", scripted.Options{})
	c := make(t, b.target())
	req := Request()
	for i := range 5 {
		r, _ := mustAsk(t, c, req)
		u := b.usage(i)
		if want := (task.Tokens{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite}); r.Tokens != want {
			t.Errorf("step %d: %+v, want %+v", i, r.Tokens, want)
		}
		if i > 0 && i < 4 {
			if r.Tokens.CacheRead == 0 || i > 1 && r.Tokens.CacheRead < r.Tokens.Input {
				t.Errorf("step %d is not served from the cache: %+v", i, r.Tokens)
			}
			if traits.CacheWrites != (r.Tokens.CacheWrite > 0) {
				t.Errorf("step %d writes %d to the cache", i, r.Tokens.CacheWrite)
			}
		}
		req = Answer(req, r, strings.Repeat("result ", 100), false)
	}
}

func prefix(t *testing.T, traits Traits, make Factory) {
	const steps = 60
	b := serve(t, "thinking: Hm, let me see.\n"+LongScript(steps, 20), scripted.Options{})
	c := make(t, b.target())
	req := Request()
	req.Thinking = 1024
	var tokens task.Tokens
	for i := range steps {
		r, _ := mustAsk(t, c, req)
		tokens = tokens.Add(r.Tokens)
		req = Answer(req, r, fmt.Sprintf("result <%d> & more\n\tof it %s", i, strings.Repeat("line ", 50)), i%7 == 0)
	}
	bodies := b.sent()
	older := traits.Stable(t, bodies[0])
	for i := 1; i < len(bodies); i++ {
		newer := traits.Stable(t, bodies[i])
		if !bytes.HasPrefix(newer, older) || len(newer) <= len(older) {
			at := 0
			for at < len(older) && at < len(newer) && older[at] == newer[at] {
				at++
			}
			t.Fatalf("step %d is no prefix of step %d: they part at byte %d of %d: %q / %q", i-1, i, at, len(older), tail(older, at), tail(newer, at))
		}
		older = newer
	}
	// A second client makes the same bytes of the same request.
	if err := again(t, b, make, req); err != nil {
		t.Error(err)
	}
	in := tokens.Input + tokens.CacheRead + tokens.CacheWrite
	if share := float64(tokens.CacheRead) / float64(in); share < 0.9 {
		t.Errorf("only %.1f %% of the input came from the cache: %+v", 100*share, tokens)
	}
}

func again(t *testing.T, b *bench, make Factory, req model.Request) error {
	for range 2 { // past the transcript's end; the body is what counts
		_, _, _ = ask(t, make(t, b.target()), req)
	}
	bodies := b.sent()
	if n := len(bodies); !bytes.Equal(bodies[n-1], bodies[n-2]) {
		return errors.New("the same request gave different bytes")
	}
	return nil
}

func tail(b []byte, at int) []byte { return b[min(at, len(b)):min(at+60, len(b))] }

func redirect(t *testing.T, make Factory) {
	b := serve(t, "text: Hello.\nfail: [{status: 302}, {status: 307}]\n", scripted.Options{})
	c := make(t, b.target())
	for range 2 {
		if _, _, err := ask(t, c, Request()); task.ClassOf(err) != task.Invalid || !strings.Contains(err.Error(), "redirect") {
			t.Errorf("got %v", err)
		}
	}
	if n := len(b.sent()); n != 2 {
		t.Errorf("%d requests: a redirect was followed", n)
	}
}

func byteCap(t *testing.T, make Factory) {
	line := []byte(": " + strings.Repeat("x", 1<<20) + "\n\n")
	sent := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 80 {
			n, err := w.Write(line)
			sent += n
			if err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	to := (&bench{}).target()
	to.BaseURL = srv.URL
	_, _, err := ask(t, make(t, to), Request())
	if task.ClassOf(err) != task.Invalid || !strings.Contains(err.Error(), "longer than 67108864 bytes") {
		t.Errorf("got %v", err)
	}
	srv.Close()
	if sent < 64<<20 {
		t.Errorf("cut after %d bytes already", sent)
	}
}

func cancel(t *testing.T, make Factory) {
	gone := signal(t)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer gone.done()
		script := serve(t, "text: "+strings.Repeat("word ", 400)+"\n", scripted.Options{})
		rec := httptest.NewRecorder()
		script.ServeHTTP(rec, r)
		body := rec.Body.Bytes()
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // the other half comes only if nobody hangs up: never
	}))
	defer srv.Close()
	to := (&bench{}).target()
	to.BaseURL = srv.URL
	for d, err := range make(t, to).Stream(t.Context(), Request()) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Text != "" {
			break
		}
	}
	gone.wait()
	// The caller's own cancellation is told apart from a cut connection.
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	gone = signal(t)
	var last error
	for d, err := range make(t, to).Stream(ctx, Request()) {
		last = err
		if d.Text != "" {
			stop(errors.New("a person's stop"))
		}
	}
	if task.ClassOf(last) != task.StoppedBy || !strings.Contains(last.Error(), "a person's stop") {
		t.Errorf("got %v", last)
	}
	gone.wait()
}

// latch is closed once by a handler and waited for by its test.
type latch struct {
	t  *testing.T
	ch chan struct{}
}

func signal(t *testing.T) *latch { return &latch{t, make(chan struct{}, 1)} }

func (l *latch) done() {
	select {
	case l.ch <- struct{}{}:
	default:
	}
}

func (l *latch) wait() {
	select {
	case <-l.ch:
	case <-time.After(10 * time.Second):
		l.t.Error("the connection was not closed")
	}
}

func noServer(t *testing.T, make Factory) {
	srv := httptest.NewServer(http.NotFoundHandler())
	to := (&bench{}).target()
	to.BaseURL = srv.URL
	srv.Close()
	if _, _, err := ask(t, make(t, to), Request()); task.ClassOf(err) != task.Transient {
		t.Errorf("got %v", err)
	}
}

// Bench measures a step of a conversation of 60 steps: encoding, sending, and reading the
// reply. The server's part is included.
func Bench(b *testing.B, make func(to Target) model.Client) {
	const steps = 60
	s := serve(b, LongScript(steps+1, 200), scripted.Options{})
	to := s.target()
	to.HTTP = &http.Client{Transport: &http.Transport{}}
	c := make(to)
	req := Request()
	for range steps {
		r, _ := mustAsk(b, c, req)
		req = Answer(req, r, strings.Repeat("line of a result\n", 200), false)
	}
	b.ReportAllocs()
	for b.Loop() {
		mustAsk(b, c, req)
	}
}

// Package modeltest is the suite that every adapter of package model passes, over real HTTP
// to the scripted server.
//
// Invariants: the scenarios and what they expect are the same for all adapters, but for the
// differences that [Traits] names; no scenario sleeps or leaves the loopback interface.
package modeltest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/model/scripted"
	"github.com/daybreak-agent/daybreak/internal/model/scripted/transcript"
	"github.com/daybreak-agent/daybreak/internal/model/wire"
)

// Target says where a client under test sends its requests.
type Target struct {
	BaseURL string // of the server, without a path
	APIKey  string
	Model   string
	HTTP    *http.Client
	Limits  wire.Limits
}

// Traits are the ways in which the providers differ.
type Traits struct {
	ThinkingKept bool // thinking goes back to the provider in later requests
	CacheWrites  bool // cache writes are a class of their own
	// Stable returns the part of a request body that the provider's cache is keyed by, with
	// what may move taken out: of two steps, the older one must be a prefix of the newer.
	Stable func(t *testing.T, body []byte) []byte
}

// Factory makes the client under test.
type Factory func(t *testing.T, to Target) model.Client

// bench is one scripted server with what was sent to it.
type bench struct {
	*scripted.Server
	url string

	mu     sync.Mutex
	bodies [][]byte
	played []scripted.Played
}

// serve starts a scripted server for the turns, a transcript without its header.
func serve(t testing.TB, turns string, o scripted.Options) *bench {
	t.Helper()
	script, err := transcript.Parse(strings.NewReader("transcript: 1\nname: suite\n---\n" + turns))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{}
	o.Observe = func(_ string, _ []byte, p scripted.Played) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.played = append(b.played, p)
	}
	b.Server = scripted.NewServer(script, o)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		b.mu.Lock()
		b.bodies = append(b.bodies, body)
		b.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		b.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	b.url = srv.URL
	return b
}

func (b *bench) target() Target {
	return Target{
		BaseURL: b.url, APIKey: "key-of-the-suite", Model: "scripted", HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		Limits: wire.Limits{Idle: 10 * time.Second},
	}
}

func (b *bench) sent() [][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([][]byte(nil), b.bodies...)
}

func (b *bench) usage(i int) scripted.Usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i >= len(b.played) {
		return scripted.Usage{}
	}
	return b.played[i].Usage
}

// Request is a first request with a system text, two tools and a question.
func Request() model.Request {
	schema := `{"type":"object","properties":{"path":{"type":"string"},"text":{"type":"string"}},"required":["path"]}`
	return model.Request{
		System: "You fix bugs. <be brief> & exact. " + strings.Repeat("Some guidance that stays the same. ", 60),
		Tools: []model.ToolSpec{
			{Name: "edit", Description: "Change a file.", Schema: []byte(schema)},
			{Name: "read", Description: "Read a file.", Schema: []byte(schema)},
		},
		Messages:  []model.Message{{Role: model.User, Blocks: []model.Block{{Type: model.TextBlock, Text: "The coupon is applied twice."}}}},
		MaxOutput: 4096,
		CacheKey:  "t_suite",
	}
}

// Answer appends a reply and one result per call to the conversation. When the reply asked
// for nothing, text is the next thing a user says.
func Answer(req model.Request, r model.Response, text string, isError bool) model.Request {
	user := model.Message{Role: model.User}
	for _, c := range r.Message.Calls() {
		user.Blocks = append(user.Blocks, model.Block{Type: model.ToolResultBlock, ID: c.ID, Text: text, IsError: isError})
	}
	if len(user.Blocks) == 0 {
		user.Blocks = []model.Block{{Type: model.TextBlock, Text: text}}
	}
	req.Messages = append(append([]model.Message(nil), req.Messages...), r.Message, user)
	return req
}

// shown is what a display saw.
type shown struct {
	text, thinking string
	tools          []string
	usage          int
}

func ask(t testing.TB, c model.Client, req model.Request) (model.Response, shown, error) {
	t.Helper()
	var s shown
	r, err := model.Collect(c.Stream(t.Context(), req), func(d model.Delta) {
		s.text += d.Text
		s.thinking += d.Thinking
		if d.Tool != "" {
			s.tools = append(s.tools, d.Tool)
		}
		if d.Usage != nil {
			s.usage++
		}
	})
	return r, s, err
}

func mustAsk(t testing.TB, c model.Client, req model.Request) (model.Response, shown) {
	t.Helper()
	r, s, err := ask(t, c, req)
	if err != nil {
		t.Fatal(err)
	}
	return r, s
}

// LongScript is a transcript of n steps, each a call with an argument of about size bytes.
func LongScript(n, size int) string {
	return fmt.Sprintf("text: Looking.\ncalls:\n  - name: read\n    input: {path: a.go, text: %q}\nrepeat: %d\n", strings.Repeat("x", size), n)
}
